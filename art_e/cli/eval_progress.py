"""How far a benchmark is, model by model, with accuracy and cost so far.

On stderr where that is a terminal, else nothing. Knows nothing of how questions are asked.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from art_e.cli.clean import one_line
from art_e.cli.output import console, shown_usd

if TYPE_CHECKING:
    from evals.scored import Scored


@dataclass(slots=True)
class Tally:
    """What is known so far of one model; `measured`: its cost is, when the run ends."""

    measured: bool = False
    answerable: int = 0
    right: int = 0
    cost_usd: float | None = 0.0
    errors: int = 0

    def count(self, scored: "Scored") -> None:
        """Add an episode."""
        if scored.question.answerable:
            self.answerable += 1
            self.right += scored.correct
        cost = scored.trajectory.cost_usd
        self.cost_usd = None if self.cost_usd is None or cost is None else self.cost_usd + cost
        self.errors += scored.trajectory.error is not None

    def __str__(self) -> str:
        said = [f"{self.right / self.answerable:.1%} right" if self.answerable else "no answer yet"]
        said.append("cost measured at the end" if self.measured else shown_usd(self.cost_usd))
        if self.errors:
            said.append(f"{self.errors} failed")
        return ", ".join(said)


@contextmanager
def live(
    models: Sequence[str], episodes: int, measured: Sequence[str] = ()
) -> "Iterator[Callable[[Scored], None]]":
    """A bar for each model, of `episodes` to come; gives a function to call with each episode.

    What those of `measured` cost is known when all have ended.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = [
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[tally]}", markup=False),
        TimeElapsedColumn(),
    ]
    with Progress(*columns, console=console(to_stderr=True), transient=True) as bars:
        tallies = {model: Tally(model in measured) for model in models}
        tasks = {
            model: bars.add_task(one_line(model), total=episodes, tally="") for model in models
        }

        def show(scored: "Scored") -> None:
            model = scored.trajectory.model
            tallies[model].count(scored)
            bars.update(tasks[model], advance=1, tally=str(tallies[model]))

        yield show
