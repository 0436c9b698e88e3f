"""Printing for all commands: data on stdout, notes and errors on stderr.

Untrusted text passes through `clean`, and rich never reads it as markup."""

import json
import logging
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, Literal

import typer

from art_e.errors import UserError
from art_e.text import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

# A complete string sequence (OSC, DCS, SOS, PM, APC) is removed with its payload. An unfinished one
# loses only its introducer, or it would swallow the mail. Linear time, as payloads stop at ESC.
_STRING = r"\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"
_CSI = r"\x1b\[[0-?]*[ -/]*[@-~]?"
_OTHER_ESCAPE = r"\x1b(?:[ -/]+[0-~]?|[0-~])?"
# Single characters. In mail, C1 characters come from a wrong charset and don't start a sequence.
_CONTROLS = r"[\x00-\x08\x0b-\x1f\x7f-\x9f]"
_SURROGATES = r"[\ud800-\udfff]"

_UNSAFE = re.compile("|".join((_STRING, _CSI, _OTHER_ESCAPE, _CONTROLS, _SURROGATES)))


def clean(text: str) -> str:
    """Remove escape sequences, control characters other than "\\n" and "\\t", characters that are
    invisible or override the direction of writing, and lone surrogates."""
    return visible(_UNSAFE.sub("", text))


def one_line(text: str) -> str:
    """Return `text` cleaned, on one line, with single spaces."""
    return " ".join(clean(" ".join(text.split())).split())


def clean_json(value: Any) -> Any:
    """Return JSON with its texts cleaned; message ids stay as the inbox has them."""
    if isinstance(value, dict):
        return {key: v if key == "message_id" else clean_json(v) for key, v in value.items()}
    if isinstance(value, list):
        return [clean_json(each) for each in value]
    return clean(value) if isinstance(value, str) else value


_interrupt = threading.Event()


@contextmanager
def recording_interrupts() -> Iterator[None]:
    """Record Ctrl-C for `interrupted`, because a library may swallow the `KeyboardInterrupt`.
    A process that ignores Ctrl-C (nohup, a background job) records nothing."""
    _interrupt.clear()
    on_main_thread = threading.current_thread() is threading.main_thread()
    if not on_main_thread or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _record_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def interrupted() -> bool:
    """Return whether Ctrl-C was pressed."""
    return _interrupt.is_set()


def _record_interrupt(*_: object) -> None:
    _interrupt.set()
    # asyncio would print a traceback for each task that the interrupt cancels.
    logging.getLogger("asyncio").disabled = True
    raise KeyboardInterrupt


STARTED = time.monotonic()  # roughly the start of the process


@contextmanager
def status(*, silent: bool = False) -> "Iterator[Callable[[str], None]]":
    """Show a status line on stderr, if that is a terminal. The yielded function sets the line to
    untrusted text, such as a step or an answer as it arrives; of a long text it shows the end."""
    if silent or not sys.stderr.isatty():
        yield lambda _: None
        return
    screen = console(to_stderr=True)
    with screen.status("") as spinner:

        def show(line: str) -> None:
            line, width = one_line(line), screen.width - 3
            line = line if len(line) <= width else f"…{line[-width:]}"
            spinner.update(text(line), spinner="dots")  # setting the spinner redraws at once

        yield show


def print_json(value: Any) -> None:
    """Print `value` as JSON in plain ASCII, which is safe on any terminal."""
    # DEL is the one control character that JSON does not escape; it occurs in strings only.
    print_line(json.dumps(value, indent=2).replace("\x7f", "\\u007f"))


def print_line(text: str = "") -> None:
    """Print trusted or cleaned text on stdout."""
    print(text)  # noqa: T201


def note(text: str) -> None:
    """Print one line on stderr: progress or an error, never data."""
    print_text(one_line(text), to_stderr=True)


def console(*, to_stderr: bool = False) -> "Console":
    """Return a console that prints text unchanged, without markup."""
    from rich.console import Console

    stream: IO[str] = sys.stderr if to_stderr else sys.stdout
    width = None if stream.isatty() else 240
    screen = Console(file=stream, width=width, markup=False, emoji=False, highlight=False)

    def reader_gone() -> None:
        raise BrokenPipeError

    # main.py ends the process; rich would exit with 1.
    screen.on_broken_pipe = reader_gone  # type: ignore[method-assign]
    return screen


def text(*parts: "str | tuple[str, str] | Text") -> "Text":
    """Return rich text of strings and (string, style) pairs, which are cleaned, and rich texts."""
    from rich.text import Text

    assembled = Text()
    for part in parts:
        if isinstance(part, Text):
            assembled.append_text(part)
        else:
            content, style = (part, "") if isinstance(part, str) else part
            assembled.append(clean(content), style=style)
    return assembled


def print_text(
    *parts: "str | tuple[str, str] | Text", lead: str = "", to_stderr: bool = False
) -> None:
    """Print parts as `text` takes them, after `lead`; further lines are indented to match. On a
    terminal lines break at spaces only, so that a URL stays whole."""
    stream, indent = sys.stderr if to_stderr else sys.stdout, " " * len(lead)
    if stream.isatty() or "FORCE_COLOR" in os.environ:
        screen = console(to_stderr=to_stderr)
        whole = text(*parts)
        if stream.isatty():
            whole = _wrapped(whole, screen.width - len(indent))
        for number, line in enumerate(whole.split(allow_blank=True)):
            screen.print(text(indent if number else lead, line), soft_wrap=True)
        return
    # Plain text needs no rich, which is slow to import.
    contents = (each[0] if isinstance(each, tuple) else str(each) for each in parts)
    lines_below = "".join(map(clean, contents)).expandtabs().replace("\n", f"\n{indent}")
    print(lead + lines_below, file=stream)


def _wrapped(whole: "Text", width: int) -> "Text":
    """Break lines at spaces so that they fit `width` cells; longer words stay whole."""
    from rich.cells import cell_len

    whole.expand_tabs()
    plain, start, breaks = whole.plain, 0, list[int]()
    for word in re.finditer(r"\n|\S+", plain):
        if word[0] == "\n":
            start = word.end()
        elif cell_len(plain[start : word.end()]) > width and plain[start : word.start()].strip():
            start = word.start()
            breaks.append(start)
    lines = whole.divide(breaks)
    for line in lines:
        line.rstrip()
    return text("\n").join(lines)


def print_lines(*lines: str) -> None:
    """Print untrusted texts, each on one line, not wrapped."""
    for line in lines:
        print_text(one_line(line))


def print_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str = "",
    caption: str = "",
    left: Sequence[int] = (0,),
    lines: bool = True,
) -> None:
    """Print a table of untrusted text; columns not in `left` are right-aligned, as for numbers.
    Without `lines` the table has no frame, and cells are not cut."""
    from rich.table import Table

    table = Table(title=text(one_line(title)), caption=caption)
    if not lines:
        table.box, table.pad_edge, table.header_style = None, False, "bold"
    for place, heading in enumerate(headings):
        justify: Literal["left", "right"] = "left" if place in left else "right"
        table.add_column(heading, justify=justify, overflow="ellipsis" if lines else "fold")
    for row in rows:
        table.add_row(*(text(one_line(cell)) for cell in row))
    console().print(table)


@contextmanager
def progress(things: str, total: int | None, *, doing: str = "") -> "Iterator[Callable[..., None]]":
    """Show a bar, labelled `doing`, with the remaining time on stderr, if that is a terminal.
    Call the yielded function with the number done since the last call (1 by default)."""
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich import progress as rich

    counted = f"{{task.description}}{{task.completed:,.0f}} {things}".rstrip()
    counted += "" if total is None else f" of {total:,}"
    columns = [rich.SpinnerColumn(), rich.BarColumn(), rich.TextColumn(counted, markup=False)]
    columns += [rich.TimeElapsedColumn(), rich.TimeRemainingColumn(compact=True)]
    with rich.Progress(*columns, console=console(to_stderr=True), transient=True) as bar:
        task = bar.add_task(one_line(doing) + ": " * bool(doing), total=total)
        yield lambda count=1: bar.update(task, advance=count)


def read_key(prompt: str, keys: str, things: str) -> str:
    """Wait for one of `keys`, which the line `prompt` explains. Ctrl-C, Ctrl-D and the end of input
    count as "q". Raises `UserError` without a terminal, naming the `things` to enter."""
    note(prompt)
    while True:
        try:
            key = typer.getchar().lower()
        except (EOFError, KeyboardInterrupt):
            return "q"
        except OSError:
            raise UserError(f"{things} need a terminal, and this is not one") from None
        # A closed terminal gives the empty string.
        if len(key) <= 1 and key in keys:
            return key or "q"
        note(f"there is no key {key!r}; {prompt}")


def plural(count: int, thing: str) -> str:
    """Return a count with its noun: 1 mail, 2 mails, 2 addresses, 2 inboxes."""
    ending = "" if count == 1 else "es" if thing.endswith(("s", "x")) else "s"
    return f"{count:,} {thing}{ending}"


def not_searched(unread: dict[str, int]) -> str:
    """Say how many attachments can't be searched, or only in part, and why."""
    total = plural(sum(unread.values()), "attachment")
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in unread.items())
    return f"not searched, or only in part: {total} ({reasons}); art-e open MESSAGE_ID shows a file"


def format_usd(cost: float | None, digits: int = 4) -> str:
    """Return a cost in USD, or "cost unknown" for None."""
    return "cost unknown" if cost is None else f"${cost:.{digits}f}"


def format_cost(cost: float | None) -> str:
    """Return a cost in USD, or "no cost" for 0."""
    return "no cost" if cost == 0 else format_usd(cost)


def total_usd(costs: Iterable[float | None]) -> float | None:
    """Return the sum of costs; None if one of them is unknown."""
    known = list(costs)
    return sum(filter(None, known)) if None not in known else None
