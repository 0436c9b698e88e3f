"""Options that several commands share, and their checks."""

import contextlib
import datetime as dt
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from art_e.config import setting
from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.inbox.inbox import Inbox
from art_e.storage import default_db

DbOption = Annotated[
    Path | None,
    Option("--db", metavar="FILE", help="Inbox file [default: inbox.duckdb in ART_E_HOME]."),
]
InboxOption = Annotated[
    str | None,
    Option(
        "--inbox", metavar="ADDRESS", help="Whose inbox; may be left out if the file has one owner."
    ),
]
AsOfOption = Annotated[
    str | None,
    Option("--as-of", metavar="DATE", help="YYYY-MM-DD: mail sent after that day does not exist."),
]
AllOption = Annotated[bool, Option("--all", help="Search spam, trash and drafts too.")]
OutOption = Annotated[
    Path | None,
    Option("--out", metavar="DIR", help="Folder of the run [default: a new one in runs/]."),
]
JsonOption = Annotated[
    bool, Option("--json", help="Print data alone, as JSON; notes go to stderr.")
]


def integer(help_text: str, least: int = 1) -> Any:
    """Return an option that takes an integer."""
    return Option(metavar="N", min=least, help=help_text)


def chosen_db(db: Path | None) -> Path:
    """The file of `--db`, or of `art-e config`, or the default one."""
    return db or Path(setting("db") or default_db())


def db_argument(db: Path | None) -> str:
    """What to add to a command so that it uses the same file."""
    return "" if db is None else f" --db {db}"


def parse_day(day: str | None, option: str) -> dt.date | None:
    """The date that an option gives. Raises `UserError` for an invalid one."""
    if day is None:
        return None
    if re.fullmatch(r"\d{4}-\d\d-\d\d", day, re.ASCII):
        with contextlib.suppress(ValueError):  # such as 2001-02-30
            return dt.date.fromisoformat(day)
    raise UserError(f"{option} {day!r} is no date; write it as YYYY-MM-DD, such as 2001-03-31")


def chosen_address(file: InboxFile, inbox: str | None, db: Path | None) -> str:
    """The address of `--inbox`, of `art-e config` for its file, or else the file's only owner."""
    if inbox is not None:
        return inbox
    if db is None and (configured := setting("inbox")) is not None:
        return configured
    owners = file.owners()
    if len(owners) == 1:
        return owners[0]
    has = f"{len(owners)} owners" if owners else "no single owner"
    raise UserError(
        f"whose inbox? the file has {has}: add --inbox ADDRESS"
        f" (art-e inboxes{db_argument(db)} lists them)"
    )


@contextlib.contextmanager
def opened_inbox(
    db: Path | None, inbox: str | None, as_of: str | None, *, junk: bool = False
) -> Iterator[tuple[InboxFile, Inbox]]:
    """Open the file of `--db`, and the inbox of `--inbox` as of `--as-of`. Raises `UserError`."""
    today = parse_day(as_of, "--as-of")
    with InboxFile(chosen_db(db), junk=junk) as file:
        yield file, file.open_inbox(chosen_address(file, inbox, db), today)
