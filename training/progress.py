"""How a training run went, as data: a row per step, and one per validation."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from art_e.message import compact_json
from art_e.storage import append_line, whole_lines
from evals.scored import Scored

# Files of a run's folder: the steps, and the episodes of the test.
STEPS, EPISODES = "steps.jsonl", "test.jsonl"


@dataclass(frozen=True, slots=True)
class Step:
    """One optimizer step. `seconds`, `tokens` (trained on and generated) and `cost_usd` are sums
    since the run began, kills included.

    The figures of episodes are None in supervised training. `accuracy` is of answerable questions;
    of the `groups`, `flat_groups` had no spread in reward and `unranked` were not compared;
    `unjudged` episodes lost their groups. `entropy` is in nats a token. The ratios are a token's
    probability by the trainer over that by vLLM, `ratio_cut` is the share of those that are cut.
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
    calls: float | None = None
    entropy: float | None = None
    ratio_min: float | None = None
    ratio_mean: float | None = None
    ratio_max: float | None = None
    ratio_spread: float | None = None
    ratio_cut: float | None = None
    groups: int | None = None
    flat_groups: int | None = None
    unjudged: int | None = None
    unranked: int | None = None
    cost_usd: float = 0.0


@dataclass(frozen=True, slots=True)
class Validation:
    """The held-out questions at one step, by the judge of validations (`reward`: by its own).

    `correct` counts right abstentions too. `accuracy` is the share of answerable questions, and
    `hallucination_unanswerable` of the others.
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

    @property
    def merit(self) -> tuple[float, float]:
        """What the best checkpoint has most of: questions handled right, then few wrong answers."""
        return self.correct or 0.0, -(self.hallucination or 0.0)


def mean_of(values: Sequence[float]) -> float | None:
    """The mean; None for no values."""
    return fmean(values) if values else None


def by_second(scored: Scored) -> Scored:
    """The episode by the verdict of its second judge, if it has one."""
    if not (seconds := scored.trajectory.other_verdicts):
        return scored
    others = [*seconds[1:], *filter(None, [scored.trajectory.verdict])]
    trajectory = dataclasses.replace(scored.trajectory, verdict=seconds[0], other_verdicts=others)
    return Scored(scored.question, trajectory)


def append_step(folder: Path, step: Step) -> None:
    """Append a step to a run's file, safe on disk when it returns."""
    append_line(folder / STEPS, compact_json(dataclasses.asdict(step)))


def read_steps(folder: Path) -> list[Step]:
    """The steps of a run's folder; none without a file."""
    return [Step(**json.loads(line)) for line in whole_lines(folder / STEPS)]
