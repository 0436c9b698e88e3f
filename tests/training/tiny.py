"""The smallest training there is: the recipe nano cut to seconds, with a world for each split.

It learns next to nothing, but writes and counts what any run does."""

import dataclasses
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.builders import table
from training.recipe import Recipe, Setting, load_recipe
from training.run import TrainingRun, Validation, open_training

SETS = table(__file__, "changes.toml")
CHANGES, FEW = SETS["tiny"], [*SETS["tiny"], *SETS["few"]]


def flags(*changes: str) -> list[str]:
    return [word for each in changes for word in ("--set", each)]


def recipe(*changes: str) -> Recipe:
    return load_recipe("nano", [*CHANGES, *changes])


@contextmanager
def at(home: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "ART_E_HOME", str(home))
        yield


@contextmanager
def started(setting: Setting, out: Path, *, resume: bool = False) -> Iterator[TrainingRun]:
    with open_training(setting, out, out.parent, resume=resume) as training:
        yield training


def validation(step: int, **figures: Any) -> Validation:
    """Make a validation of 200 questions with only these figures."""
    names = [each.name for each in dataclasses.fields(Validation)]
    return Validation(**{**dict.fromkeys(names), "step": step, "n": 200, **figures})
