"""What the commands that ask a person have in common: one key at a time, and mails to look at.

Mail is untrusted: what is shown of it is cleaned. Knows nothing of what is asked.
"""

from typing import TYPE_CHECKING, NamedTuple

import typer

from art_e.cli.clean import clean, one_line
from art_e.cli.output import note, plural, text
from art_e.errors import UserError

if TYPE_CHECKING:
    from rich.text import Text

BODY_LINES = 40
_LINE_CHARS = 1_000


class ShownMail(NamedTuple):
    """A mail as it is put before a person; `mark` is a word on it, such as "cited"."""

    date: str
    sender: str
    subject: str
    body: str
    mark: str = ""


def pressed_key(keys: str, of: str, things: str) -> str:
    """The key pressed, one of those in `of`; others are asked for again by the line `keys`.

    Ctrl-C, Ctrl-D and the end of the input are "q". Raises `UserError` without a terminal;
    `things` are what is asked for there.
    """
    note(keys)
    while True:
        try:
            key = typer.getchar().lower()
        except (EOFError, KeyboardInterrupt):
            return "q"
        except OSError:
            raise UserError(f"{things} are asked for on a terminal, and there is none") from None
        # Nothing is what a terminal gives that was closed.
        if len(key) <= 1 and key in of:
            return key or "q"
        note(f"there is no key {key!r}; {keys}")


def shown_mail(mail: ShownMail, lines_shown: int | None = BODY_LINES) -> "Text":
    """The mail's head and the first `lines_shown` lines of its body; None: all of them.

    Empty lines are left out. Of a line of more than a screenful the rest is left out,
    and it says so, unless all are shown.
    """
    lines = [each.rstrip() for each in clean(mail.body).split("\n") if each.strip()]
    shown = [_cut(each.expandtabs(4), lines_shown is None) for each in lines[:lines_shown]]
    body = "".join(f"\n| {line}" for line in shown)
    if len(shown) < len(lines):
        body += f"\n| ({plural(len(lines) - len(shown), 'more line')})"
    return text(
        (f"{one_line(mail.date)}  {one_line(mail.sender)}", "cyan"),
        f"  {one_line(mail.subject)}",
        (f"  {one_line(mail.mark)}" if mail.mark else "", "green"),
        (body, "dim"),
        "\n",
    )


def _cut(line: str, whole: bool) -> str:
    if whole or len(line) <= _LINE_CHARS:
        return line
    return f"{line[:_LINE_CHARS]} ({plural(len(line) - _LINE_CHARS, 'more character')})"
