"""What the commands print: data on stdout, notes and errors on stderr.

Everything that others wrote passes `clean`; rich is never given it as markup.
Knows nothing of mail and of what the commands do.
"""

import io
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

from art_e.cli.clean import clean, one_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

# Rows are not cut to a screen that is not there.
PIPE_WIDTH = 240


def print_json(value: Any) -> None:
    """Print `value` as JSON in plain ASCII, which is safe on any terminal."""
    # DEL is the one control character that JSON does not escape; it occurs in strings only.
    print_line(json.dumps(value, indent=2).replace("\x7f", "\\u007f"))


def print_line(text: str = "") -> None:
    """Print text of our own, or cleaned already, on stdout."""
    print(text)  # noqa: T201


def note(text: str) -> None:
    """Print one line on stderr: what is going on, never data."""
    print(one_line(text), file=sys.stderr)  # noqa: T201


def console(*, to_stderr: bool = False) -> "Console":
    """A console that takes no markup and changes nothing in what it prints."""
    from rich.console import Console

    class Screen(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # main.py ends the process; rich would exit with 1

    stream: IO[str] = sys.stderr if to_stderr else sys.stdout
    return Screen(
        file=stream,
        width=None if stream.isatty() else PIPE_WIDTH,
        markup=False,
        emoji=False,
        highlight=False,
    )


def text(*parts: str | tuple[str, str]) -> "Text":
    """A rich text of strings and (string, style) pairs, each cleaned."""
    from rich.text import Text

    assembled = Text()
    for part in parts:
        content, style = (part, "") if isinstance(part, str) else part
        assembled.append(clean(content), style=style)
    return assembled


@contextmanager
def progress(things: str, total: int | None) -> "Iterator[Callable[..., None]]":
    """A bar on stderr where that is a terminal, else nothing.

    Gives a function to call with the number done since the last call, 1 if left out.
    """
    if not sys.stderr.isatty():
        yield lambda _=1: None
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    counted = f"{{task.completed:,}} {things}" + ("" if total is None else f" of {total:,}")
    columns = [SpinnerColumn(), BarColumn(), TextColumn(counted), TimeElapsedColumn()]
    with Progress(*columns, console=console(to_stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)

        def advance(count: int = 1) -> None:
            bar.advance(task, count)

        yield advance


def plural(count: int, thing: str) -> str:
    """A count with its noun: 1 mail, 2 mails, 2 addresses, 2 inboxes."""
    ending = "" if count == 1 else "es" if thing.endswith(("s", "x")) else "s"
    return f"{count:,} {thing}{ending}"


def shown_usd(cost: float | None, digits: int = 4) -> str:
    """A cost in USD, also one of which the price is not known."""
    return "cost unknown" if cost is None else f"${cost:.{digits}f}"


def tolerate_any_character() -> None:
    """Let stdout and stderr print what their encoding lacks as an escape."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
