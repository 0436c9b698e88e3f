"""How a training run went, as data: a row for each step, and one for each validation.

`steps.jsonl` of the run's folder has the steps, `metrics.json` the validations and what the
run took. A figure that a step does not have is None, never a guess. Knows nothing of how
training is done.
"""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, Self

from art_e.files import write_whole
from art_e.lines import append_line, whole_lines
from art_e.message import compact_json

STEPS = "steps.jsonl"


@dataclass(frozen=True, slots=True)
class Step:
    """One optimizer step. `seconds`, `tokens` and `cost_usd` are sums from the run's begin on,
    whatever killed it on the way; `tokens` counts those trained on and those generated.

    Of the episodes of the step (None in supervised training): the means of `reward` and of
    its `components`, the shares `accuracy` (of answerable questions), `hallucination` (wrong
    answers of all) and `abstention` (of all), and the means of `turns`, `effort` and
    `format_errors`. `groups` were asked, `flat_groups` of them had no spread in reward when
    they were trained on, `resampled` were replaced before; `unjudged` episodes left their
    groups. `entropy` is in nats a token, `kl` against the start (None without a KL term). The
    ratios are a token's probability by the trainer over that by vLLM, truncated at TRL's cap
    (None without vLLM): far from 1, the two compute different models.
    """

    step: int
    seconds: float
    tokens: int
    loss: float | None = None
    learning_rate: float | None = None
    grad_norm: float | None = None
    reward: float | None = None
    components: dict[str, float] = field(default_factory=dict)
    accuracy: float | None = None
    hallucination: float | None = None
    abstention: float | None = None
    turns: float | None = None
    effort: float | None = None
    format_errors: float | None = None
    entropy: float | None = None
    kl: float | None = None
    ratio_min: float | None = None
    ratio_mean: float | None = None
    ratio_max: float | None = None
    groups: int | None = None
    flat_groups: int | None = None
    resampled: int | None = None
    unjudged: int | None = None
    cost_usd: float = 0.0

    @classmethod
    def from_line(cls, line: str) -> Self:
        """The step of one line. Raises `ValueError` where it is none."""
        try:
            return cls(**json.loads(line))
        except TypeError as error:
            raise ValueError(str(error)) from None


@dataclass(frozen=True, slots=True)
class Validation:
    """The held-out questions at one step, by the judge that is not the reward's.

    Shares: `correct`, right answers and right abstentions, of all; `accuracy` of answerable
    questions, `hallucination` and `abstention` of all,
    `hallucination_unanswerable` of unanswerable ones. Means an episode: `turns`, `effort`,
    `format_errors`, `reward` (the reward's own judge); `turns_when_correct` and
    `effort_when_correct` of answers that are right, None where there are none.
    """

    step: int
    n: int
    correct: float | None
    accuracy: float | None
    hallucination: float | None
    hallucination_unanswerable: float | None
    abstention: float | None
    turns: float | None
    effort: float | None
    turns_when_correct: float | None
    effort_when_correct: float | None
    format_errors: float | None
    reward: float | None

    def to_row(self) -> dict[str, Any]:
        """As `metrics.json` holds it."""
        return dataclasses.asdict(self)


def mean_of(values: Sequence[float]) -> float | None:
    """Their mean as a row has it: None where there are none."""
    return fmean(values) if values else None


def append_step(folder: Path, step: Step) -> None:
    """Put a step behind the others, safe on disk when it returns."""
    append_line(folder / STEPS, compact_json(dataclasses.asdict(step)))


def read_steps(folder: Path) -> list[Step]:
    """The steps of a run's folder, in order; none where it has no such file."""
    return [Step.from_line(line.decode()) for line in whole_lines(folder / STEPS)]


def keep_steps(folder: Path, last: int) -> None:
    """Forget the steps after `last`, which a resumed run makes again."""
    kept = [each for each in read_steps(folder) if each.step <= last]
    lines = "".join(f"{compact_json(dataclasses.asdict(each))}\n" for each in kept)
    write_whole(folder / STEPS, lines)
