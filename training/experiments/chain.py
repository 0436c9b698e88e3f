"""Training runs that are wanted, one after the other. Knows nothing of what they are for."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from training import commands
from training.commands import Command


class Job(NamedTuple):
    """A training run that is wanted in the folder `out`: its recipe with `changes` (as for
    `--set`) made to it, its seed, and for GRPO the folder of its start."""

    kind: Literal["sft", "grpo"]
    out: Path
    recipe: str
    seed: int
    changes: tuple[str, ...] = ()
    init: Path | None = None

    @property
    def command(self) -> Command:
        """The `art-e train` that makes it."""
        said = ["train", self.kind, "--recipe", self.recipe, "--seed", str(self.seed)]
        for each in self.changes:
            said += ["--set", each]
        if self.init is not None:
            said += ["--init", str(self.init)]
        return Command((*said, "--out", str(self.out)), self.out)


def carry_out(jobs: Sequence[Job]) -> None:
    """Make the runs that have not ended. Raises `UserError` where one fails."""
    commands.carry_out([each.command for each in jobs])
