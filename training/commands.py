"""Runs `art-e` commands as processes, which free a run's GPU memory for what follows.

A command names the folder of its run: a complete run is left as it is, and a begun one resumes.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from art_e.errors import UserError
from art_e.parent import ends_with_parent
from art_e.runs import Run

ART_E = (sys.executable, "-m", "art_e")


class Command(NamedTuple):
    """The words after `art-e`, and the folder of the run that they make, if any."""

    words: tuple[str, ...]
    run: Path | None = None

    def __str__(self) -> str:
        return shlex.join(["art-e", *self.words])

    @property
    def done(self) -> bool:
        """Whether its run is complete."""
        return self.run is not None and Run(self.run).complete

    @property
    def arguments(self) -> list[str]:
        """The words, with `--resume` if the run was begun."""
        begun = self.run is not None and Run(self.run).begun
        return [*self.words, *(["--resume"] if begun else [])]


def train_command(
    kind: Literal["sft", "grpo"],
    out: Path,
    recipe: str,
    seed: int,
    changes: Sequence[str] = (),
    init: Path | None = None,
    *more: str,
) -> Command:
    """The `art-e train` of a recipe with `changes` (as for `--set`); GRPO begins from `init`."""
    words = ["train", kind, "--recipe", recipe, "--seed", str(seed)]
    words += [word for change in changes for word in ("--set", change)]
    words += [] if init is None else ["--init", str(init)]
    return Command((*words, *more, "--out", str(out)), out)


def carry_out(commands: Sequence[Command], environment: Mapping[str, str] | None = None) -> None:
    """Run the commands that are not done, with `environment` added to this process's.

    Raises `UserError` if one fails.
    """
    for command in commands:
        if command.done:
            continue
        done = subprocess.run(
            [*ART_E, *command.arguments],
            check=False,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            preexec_fn=ends_with_parent(),
        )
        if done.returncode:
            shown = shlex.join(["art-e", *command.words[:2]])
            where = f"{command.run}: " if command.run else ""
            raise UserError(
                f"{where}{shown} ended with exit code {done.returncode}; fix what it printed, then"
                " run this again to resume"
            )
