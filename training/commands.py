"""Commands of `art-e` as processes, one after the other, each where it has not been done yet.

A command that makes a run names its folder: one that has COMPLETE is left as it is, and one
that was begun goes on with `--resume`. Knows nothing of what the commands do.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from art_e.errors import UserError
from art_e.parent import ends_with_parent
from art_e.runs import Run

ART_E = (sys.executable, "-m", "art_e")


class Command(NamedTuple):
    """What `art-e` is given; `run` is the folder of the run that it makes, None where it makes
    none."""

    words: tuple[str, ...]
    run: Path | None = None

    def __str__(self) -> str:
        return shlex.join(["art-e", *self.words])

    @property
    def done(self) -> bool:
        """Whether its run has ended by itself."""
        return self.run is not None and Run(self.run).complete

    @property
    def arguments(self) -> list[str]:
        """The words, with `--resume` where the run was begun."""
        begun = self.run is not None and Run(self.run).begun
        return [*self.words, *(["--resume"] if begun else [])]


def carry_out(
    commands: Sequence[Command],
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run those that are not done, with `environment` besides this process's own.

    Raises `UserError` where one fails.
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
                f"{where}{shown} ended with exit code {done.returncode}; mend what it said, and"
                " run this again to go on"
            )
