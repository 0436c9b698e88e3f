"""Runs of `art-e train` as processes, one after the other, each where it has not ended yet.

A run whose folder has COMPLETE is left as it is, and one that was begun goes on with
`--resume`. Knows nothing of what the runs are compared for.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from art_e.errors import UserError
from art_e.runs import Run


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
    def arguments(self) -> list[str]:
        """What `art-e` is given."""
        said = ["train", self.kind, "--recipe", self.recipe, "--seed", str(self.seed)]
        for each in self.changes:
            said += ["--set", each]
        if self.init is not None:
            said += ["--init", str(self.init)]
        if (self.out / "config.json").is_file():
            said.append("--resume")
        return [*said, "--out", str(self.out)]


def carry_out(jobs: Sequence[Job]) -> None:
    """Make the runs that have not ended. Raises `UserError` where one fails."""
    for job in jobs:
        if Run(job.out).complete:
            continue
        done = subprocess.run([sys.executable, "-m", "art_e", *job.arguments], check=False)
        if done.returncode:
            raise UserError(
                f"{job.out}: art-e train {job.kind} ended with exit code {done.returncode}; mend"
                " what it said, and run this again to go on"
            )
