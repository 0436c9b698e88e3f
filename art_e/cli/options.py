"""Options that several commands share, and their checks.

Knows nothing of the commands. Heavy imports are made inside the functions.
"""

import datetime as dt
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from art_e.errors import UserError

if TYPE_CHECKING:
    from art_e.inbox.file import InboxFile
    from art_e.question import Split

DbOption = Annotated[
    Path | None,
    typer.Option("--db", metavar="FILE", help="Inbox file [default: inbox.duckdb in ART_E_HOME]."),
]
InboxOption = Annotated[
    str | None,
    typer.Option(
        "--inbox", metavar="ADDRESS", help="Whose inbox; may be left out if the file has one owner."
    ),
]
AsOfOption = Annotated[
    str | None,
    typer.Option(
        "--as-of", metavar="DATE", help="YYYY-MM-DD: mail sent after that day does not exist."
    ),
]
AllOption = Annotated[
    bool, typer.Option("--all", help="Search spam and trash too, as Gmail labels them.")
]
OutOption = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Folder of the run [default: a new one in runs/]."),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print data alone, as JSON; notes go to stderr.")
]


def example(*commands: str) -> str:
    """The end of a help page: what to type, line by line."""
    lines = "\n".join(f"  {command}" for command in commands)
    return f"\b\nExample:\n{lines}"


def chosen_db(db: Path | None) -> Path:
    """The file of `--db`, or the default one."""
    from art_e.home import default_db

    return default_db() if db is None else db


def db_argument(db: Path | None) -> str:
    """What to add to a command so that it uses the same file."""
    return "" if db is None else f" --db {db}"


def parse_day(day: str | None, option: str) -> dt.date | None:
    """The date that an option gives. Raises `UserError` for what is none."""
    if day is None:
        return None
    wrong = UserError(f"{option} {day!r} is no date; write it as YYYY-MM-DD, such as 2001-03-31")
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", day, re.ASCII):
        raise wrong
    try:
        return dt.date.fromisoformat(day)
    except ValueError:  # such as 2001-02-30
        raise wrong from None


def chosen_address(file: "InboxFile", inbox: str | None, db: Path | None) -> str:
    """The address of `--inbox`, or the file's only owner. Raises `UserError` where neither is."""
    if inbox is not None:
        return inbox
    owners = file.owners()
    if len(owners) == 1:
        return owners[0]
    has = f"{len(owners)} owners" if owners else "no single owner"
    raise UserError(
        f"whose inbox? the file has {has}: add --inbox ADDRESS"
        f" (art-e inboxes{db_argument(db)} lists them)"
    )


def chosen_split(name: str | None) -> "Split | None":
    """The split of `--split`; None: all of them. Raises `UserError` for what is none."""
    from art_e.question import SPLITS

    chosen = next((each for each in SPLITS if each == name), None)
    if name is not None and chosen is None:
        raise UserError(f"no split {name!r}; there are {', '.join(SPLITS)}")
    return chosen
