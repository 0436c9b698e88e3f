"""The smallest training there is: the recipe nano cut to seconds, with a world for each split.

What it learns is next to nothing. What it writes, counts and keeps is what any run does.
"""

import dataclasses
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from training.recipe import Recipe, Setting, load_recipe
from training.run import TrainingRun, Validation, opened

# As `--set` takes them.
CHANGES = (
    "model.scratch.layers=1", "model.scratch.hidden=32", "model.scratch.vocabulary=1_000",
    "data.worlds.train=[1_000, 1_001]", "data.worlds.validation=[200, 201]",
    "data.worlds.test=[900, 901]",
    "episode.max_turns=4", "episode.turn_tokens=32", "episode.episode_tokens=400",
    "judging.questions=3", "judging.test_questions=3",
    "sft.stages=[{part='first', steps=10, batch=8, rate=1e-2}, {steps=10, batch=8, rate=1e-2}]",
    "sft.validate_every=15",
    "grpo.steps=3", "grpo.warmup=0", "grpo.questions=2", "grpo.rollouts=4", "grpo.micro_batch=4",
    "grpo.validate_every=2",
)  # fmt: skip

# Even shorter, for what needs no more than a run's files.
FEW = (
    *CHANGES,
    "sft.stages=[{part='first', steps=2, batch=4}, {steps=2, batch=4}]",
    "sft.validate_every=4",
    "grpo.steps=2",
)


def recipe(*changes: str) -> Recipe:
    return load_recipe("nano", [*CHANGES, *changes])


@contextmanager
def at(home: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "ART_E_HOME", str(home))
        yield


@contextmanager
def begun(setting: Setting, out: Path, *, resume: bool = False) -> Iterator[TrainingRun]:
    with opened(setting, out, out.parent, resume=resume) as training:
        yield training


def validation(step: int, **figures: Any) -> Validation:
    """A made-up one with these figures, and no other but that of its questions."""
    names = [each.name for each in dataclasses.fields(Validation)]
    return Validation(**{**dict.fromkeys(names), "step": step, "n": 200, **figures})
