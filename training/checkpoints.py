"""Checkpoints of a training run: what they are called, what they hold, and which is the best.

    RUN/checkpoints/checkpoint-N    of step N: whole weights, or a peft adapter, a tokenizer
    RUN/metrics.json                names the best of them as `best_checkpoint`

Knows nothing of how checkpoints come about, nor of what is done with them.
"""

import json
from pathlib import Path
from typing import Any

from art_e.errors import UserError
from art_e.policies.checkpoint import ADAPTER_CONFIG, CONFIG, TOKENIZER

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
