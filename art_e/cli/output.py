"""What the commands print: data on stdout, notes and errors on stderr.

All text from others passes `clean`, and rich never reads it as markup."""

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

# A complete string sequence (OSC, DCS, SOS, PM, APC) is removed with its payload, of an unfinished
# one only the introducer, or it would swallow the mail. The work is linear: payloads stop at ESC.
_STRING = r"\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"
_CSI = r"\x1b\[[0-?]*[ -/]*[@-~]?"
_OTHER_ESCAPE = r"\x1b(?:[ -/]+[0-~]?|[0-~])?"
# One character each: C1 characters begin no sequence, as in mail they come from a wrong charset.
_CONTROLS = r"[\x00-\x08\x0b-\x1f\x7f-\x9f]"
_SURROGATES = r"[\ud800-\udfff]"

_UNSAFE = re.compile("|".join((_STRING, _CSI, _OTHER_ESCAPE, _CONTROLS, _SURROGATES)))


def clean(text: str) -> str:
    """`text` without escape sequences, control characters other than "\\n" and "\\t",
    characters that nobody sees or that override the direction of writing, and lone surrogates."""
    return visible(_UNSAFE.sub("", text))


def one_line(text: str) -> str:
    """`text` cleaned, on one line, with single spaces."""
    return " ".join(clean(" ".join(text.split())).split())


def cleaned(value: Any) -> Any:
    """JSON with its texts cleaned; message ids stay as the inbox has them."""
    if isinstance(value, dict):
        return {key: v if key == "message_id" else cleaned(v) for key, v in value.items()}
    if isinstance(value, list):
        return [cleaned(each) for each in value]
    return clean(value) if isinstance(value, str) else value


_asked = threading.Event()


@contextmanager
def listening() -> Iterator[None]:
    """Record Ctrl-C, unless this process ignores it (nohup, a background job). A library may
    swallow the `KeyboardInterrupt`; `interrupted` still knows."""
    _asked.clear()
    on_main_thread = threading.current_thread() is threading.main_thread()
    if not on_main_thread or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def interrupted() -> bool:
    """Whether Ctrl-C was pressed."""
    return _asked.is_set()


def _note(*_: object) -> None:
    _asked.set()
    # asyncio would print a traceback of each task that the interrupt ends.
    logging.getLogger("asyncio").disabled = True
    raise KeyboardInterrupt


STARTED = time.monotonic()  # about when the process began


@contextmanager
def status(*, silent: bool = False) -> "Iterator[Callable[[str], None]]":
    """Show a line on stderr, if that is a terminal; the function changes it to untrusted text, of
    which the end is shown: what is done now, or the last words of an answer that arrives."""
    if silent or not sys.stderr.isatty():
        yield lambda _: None
        return
    screen = console(to_stderr=True)
    with screen.status("") as shown:

        def show(line: str) -> None:
            line, room = one_line(line), screen.width - 3
            # A new spinner has the line drawn at once, however short it stands.
            shown.update(text(line if len(line) <= room else f"…{line[-room:]}"), spinner="dots")

        yield show


def print_json(value: Any) -> None:
    """Print `value` as JSON in plain ASCII, which is safe on any terminal."""
    # DEL is the one control character that JSON does not escape; it occurs in strings only.
    print_line(json.dumps(value, indent=2).replace("\x7f", "\\u007f"))


def print_line(text: str = "") -> None:
    """Print our own or cleaned text on stdout."""
    print(text)  # noqa: T201


def note(text: str) -> None:
    """Print one line on stderr: progress or an error, never data."""
    print_text(one_line(text), to_stderr=True)


def console(*, to_stderr: bool = False) -> "Console":
    """A console without markup, which prints text unchanged."""
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
    """A rich text of strings and (string, style) pairs, each cleaned, and of such texts."""
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
    """Print parts as `text` takes them, behind `lead`, below which further lines are indented. On a
    terminal lines break at spaces; what has none, such as a URL, stays whole."""
    stream, indent = sys.stderr if to_stderr else sys.stdout, " " * len(lead)
    if stream.isatty() or "FORCE_COLOR" in os.environ:
        screen = console(to_stderr=to_stderr)
        whole = text(*parts)
        if stream.isatty():
            whole = _wrapped(whole, screen.width - len(indent))
        for number, line in enumerate(whole.split(allow_blank=True)):
            screen.print(text(indent if number else lead, line), soft_wrap=True)
        return
    # Without styles rich, which is slow to import, has nothing to do.
    contents = (each[0] if isinstance(each, tuple) else str(each) for each in parts)
    lines_below = "".join(map(clean, contents)).expandtabs().replace("\n", f"\n{indent}")
    print(lead + lines_below, file=stream)


def _wrapped(whole: "Text", room: int) -> "Text":
    """Break lines at spaces, so that they fit into so many cells if their words do."""
    from rich.cells import cell_len

    whole.expand_tabs()
    plain, start, breaks = whole.plain, 0, list[int]()
    for word in re.finditer(r"\n|\S+", plain):
        if word[0] == "\n":
            start = word.end()
        elif cell_len(plain[start : word.end()]) > room and plain[start : word.start()].strip():
            start = word.start()
            breaks.append(start)
    lines = whole.divide(breaks)
    for line in lines:
        line.rstrip()
    return text("\n").join(lines)


def print_lines(*lines: str) -> None:
    """Print lines of untrusted text, each on one line, not wrapped."""
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
    """Print a table of untrusted text; columns not in `left` are set to the right, as numbers.
    Without `lines` it has no frame, and no cell is cut."""
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
    """A bar on stderr with the time left, if that is a terminal; it begins with what is `doing`.
    Call the function with the number done since the last call (1 by default)."""
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


def pressed_key(keys: str, of: str, things: str) -> str:
    """Wait for one of the keys in `of`; the line `keys` explains them. Ctrl-C, Ctrl-D and the end
    of the input are "q". Raises `UserError` without a terminal, naming the `things` to enter."""
    note(keys)
    while True:
        try:
            key = typer.getchar().lower()
        except (EOFError, KeyboardInterrupt):
            return "q"
        except OSError:
            raise UserError(f"{things} need a terminal, and there is no terminal here") from None
        # A closed terminal gives the empty string.
        if len(key) <= 1 and key in of:
            return key or "q"
        note(f"there is no key {key!r}; {keys}")


def plural(count: int, thing: str) -> str:
    """A count with its noun: 1 mail, 2 mails, 2 addresses, 2 inboxes."""
    ending = "" if count == 1 else "es" if thing.endswith(("s", "x")) else "s"
    return f"{count:,} {thing}{ending}"


def not_searched(unread: dict[str, int]) -> str:
    """Say how many attachments have no text to search, or only a part of it, and why."""
    total = plural(sum(unread.values()), "attachment")
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in unread.items())
    return f"not searched, or not whole: {total} ({reasons}); art-e open MESSAGE_ID shows a file"


def shown_usd(cost: float | None, digits: int = 4) -> str:
    """A cost in USD; None is unknown."""
    return "cost unknown" if cost is None else f"${cost:.{digits}f}"


def shown_cost(cost: float | None) -> str:
    """What was paid; 0 in words."""
    return "no cost" if cost == 0 else shown_usd(cost)


def total_usd(costs: Iterable[float | None]) -> float | None:
    """The sum of costs; None if one of them is unknown."""
    known = list(costs)
    return sum(filter(None, known)) if None not in known else None
