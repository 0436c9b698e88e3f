"""How far a golden step that asks models is, with what it has cost so far.

On stderr: a bar where that is a terminal, else a line now and then, so that a log of a long
run tells what is being spent. Knows nothing of what is asked.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from art_e.cli.output import console, note

# Without a terminal a line is printed so often at most; what takes less prints none.
LINE_EVERY_S = 10.0


@contextmanager
def live(things: str, total: int) -> Iterator[Callable[[str], None]]:
    """Gives a function to call as each of `total` things is done, with what to say beside it."""
    if not sys.stderr.isatty():
        yield _lines(things, total)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = [
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(f"{things}, {{task.fields[told]}}", markup=False),
        TimeElapsedColumn(),
    ]
    with Progress(*columns, console=console(to_stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total, told="")
        yield lambda told: bar.update(task, advance=1, told=told)


def _lines(things: str, total: int) -> Callable[[str], None]:
    done = 0
    last = time.monotonic()

    def show(told: str) -> None:
        nonlocal done, last
        done += 1
        if time.monotonic() - last >= LINE_EVERY_S:
            last = time.monotonic()
            note(f"{done:,} of {total:,} {things}, {told}")

    return show
