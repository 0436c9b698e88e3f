"""How a training run went, as data: a row for each step, and one for each validation."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, Self

from art_e.errors import UserError
from art_e.message import compact_json
from art_e.models.checkpoint import ADAPTER_CONFIG, CONFIG, TOKENIZER
from art_e.storage import append_line, whole_lines, write_whole

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


# ---- Checkpoints of a training run: what they are called, what they hold, and which is the best.

CHECKPOINTS, _PREFIX = "checkpoints", "checkpoint-"
METRICS = "metrics.json"
# What the run knew then; a checkpoint counts once it is there, as it is written last.
STATE = "run.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
# All that a tokenizer may be saved as; one folder has some of them.
TOKENIZER_FILES = (
    TOKENIZER,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
)


def best_checkpoint(run_folder: Path) -> Path:
    """The checkpoint of a training run that did best on validation, as its metrics name it.

    Raises `UserError` where there is none.
    """
    named = content_of(run_folder / METRICS).get("best_checkpoint")
    if not isinstance(named, str):
        raise UserError(
            f"{run_folder} has no best checkpoint yet: its {METRICS} names none; name one of"
            f" {run_folder / CHECKPOINTS}, or go on with the run (--resume)"
        )
    folder = run_folder / named
    if not folder.is_dir():
        raise UserError(
            f"{folder}, the best checkpoint of {run_folder}, is gone; name one of"
            f" {run_folder / CHECKPOINTS}"
        )
    return folder


def checkpoint_of(run_folder: Path, step: int) -> Path:
    """Where a run has the checkpoint of that step."""
    return run_folder / CHECKPOINTS / f"{_PREFIX}{step}"


def newest_checkpoint(run_folder: Path) -> Path | None:
    """The newest checkpoint of a run that counts."""
    whole = [each for each in numbered(run_folder) if (each[0] / STATE).is_file()]
    return max(whole, key=lambda each: each[1])[0] if whole else None


def numbered(run_folder: Path) -> list[tuple[Path, int]]:
    """All checkpoints of a run, whole or not, each with its step."""
    found = (run_folder / CHECKPOINTS).glob(f"{_PREFIX}*")
    return [(each, step_of(each)) for each in found if each.name.removeprefix(_PREFIX).isdigit()]


def step_of(checkpoint: Path) -> int:
    """The step that a checkpoint is of, by its name."""
    return int(checkpoint.name.removeprefix(_PREFIX))


def meant_checkpoint(folder: Path) -> Path:
    """The best checkpoint where `folder` is a training run's, else `folder` itself."""
    is_run = (folder / CHECKPOINTS).is_dir()
    return best_checkpoint(folder) if is_run else folder


def base_of(checkpoint: Path) -> str | None:
    """The folder or hub id of the model that the adapter in `checkpoint` was trained on.

    None for a checkpoint that is whole. Raises `UserError` for an adapter that names none.
    """
    if not (checkpoint / ADAPTER_CONFIG).is_file():
        return None
    base = content_of(checkpoint / ADAPTER_CONFIG).get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise UserError(
            f"the {ADAPTER_CONFIG} of {checkpoint} does not name the model that it was trained"
            " on; write it there as base_model_name_or_path"
        )
    return base


def no_checkpoint(checkpoint: Path) -> UserError:
    """What is said of a folder that holds neither a model nor an adapter."""
    return UserError(
        f"{checkpoint} is no checkpoint: it has neither {ADAPTER_CONFIG} nor {CONFIG}; name a"
        " training run's folder, or a checkpoint in it"
    )


def content_of(path: Path) -> dict[str, Any]:
    """The JSON object of that file, of a run or of a checkpoint. Raises `UserError` where there
    is none."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        content = None
    if not isinstance(content, dict):
        raise UserError(
            f"{path} can't be read; name a training run's folder, or a checkpoint, that has it"
        )
    return content
