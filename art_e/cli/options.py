"""Options that several commands share, and their checks."""

import contextlib
import datetime as dt
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from typer import Argument, Option

from art_e.config import setting
from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.inbox.inbox import Inbox
from art_e.storage import default_db, home, write_whole

DbOption = Annotated[
    Path | None, Option("--db", metavar="FILE", help="Inbox file [default: the one in ART_E_HOME].")
]
InboxOption = Annotated[
    str | None, Option("--inbox", metavar="ADDRESS", help="Whose inbox; optional with one owner.")
]
AsOfOption = Annotated[
    str | None, Option("--as-of", metavar="DATE", help="Ignore mail after this day (YYYY-MM-DD).")
]
AllOption = Annotated[bool, Option("--all", help="Include spam, trash and drafts.")]
OutOption = Annotated[
    Path | None, Option("--out", metavar="DIR", help="Folder of the run [default: new, in runs/].")
]
JsonOption = Annotated[bool, Option("--json", help="Print only JSON on stdout; notes on stderr.")]
RunArgument = Annotated[str, Argument(metavar="RUN", help="Name or folder of a run, or last.")]


def integer(help_text: str, minimum: int = 1) -> Any:
    """Return an option that takes an integer."""
    return Option(metavar="N", min=minimum, help=help_text)


def chosen_db(db: Path | None) -> Path:
    """Return the file of `--db`, or of `art-e config`, or the default one."""
    return db or Path(setting("db") or default_db())


def db_argument(db: Path | None) -> str:
    """Return the argument that makes a command use the same file."""
    return "" if db is None else f" --db {db}"


def parse_day(day: str | None, option: str) -> dt.date | None:
    """Return the date in an option's value. Raises `UserError` for an invalid one."""
    if day is None:
        return None
    if re.fullmatch(r"\d{4}-\d\d-\d\d", day, re.ASCII):
        with contextlib.suppress(ValueError):  # such as 2001-02-30
            return dt.date.fromisoformat(day)
    raise UserError(f"{option} must be a date, YYYY-MM-DD such as 2001-03-31, not {day!r}")


def chosen_address(file: InboxFile, inbox: str | None, db: Path | None) -> str:
    """Return the address of `--inbox`, of `art-e config` for its file, or the file's only owner."""
    if inbox is not None:
        return inbox
    if db is None and (configured := setting("inbox")) is not None:
        return configured
    owners = file.owners()
    if len(owners) == 1:
        return owners[0]
    count = f"{len(owners)} owners" if owners else "no single owner"
    why = f"whose inbox? the file has {count}"
    raise UserError(f"{why}: add --inbox ADDRESS (art-e inboxes{db_argument(db)} lists them)")


@contextlib.contextmanager
def opened_inbox(
    db: Path | None, inbox: str | None, as_of: str | None, *, junk: bool = False
) -> Iterator[tuple[InboxFile, Inbox]]:
    """Open the file of `--db`, and the inbox of `--inbox` as of `--as-of`. Raises `UserError`."""
    today = parse_day(as_of, "--as-of")
    with InboxFile(chosen_db(db), junk=junk) as file:
        yield file, file.open_inbox(chosen_address(file, inbox, db), today)


# ---- Mails by message id, by the start of an id, or by number in the last list.

MIN_PREFIX = 6  # characters of an id
LAST_LIST = "last_list.json"


class MailList(NamedTuple):
    """The mails of a numbered list, and the options that their inbox was opened with."""

    db: str = ""
    inbox: str = ""
    as_of: str | None = None
    junk: bool = False
    message_ids: list[str] = []  # noqa: RUF012 - never changed

    def mail_at(self, number: str, db: Path | None, inbox: str | None) -> str | None:
        """Return the mail at a number, unless the options name another file or inbox."""
        is_other = db is not None and str(db.resolve()) != self.db
        is_other |= inbox is not None and inbox.strip().lower() != self.inbox
        places = {str(place): name for place, name in enumerate(self.message_ids, 1)}
        return None if is_other else places.get(number)


def save_list(db: Path, inbox: Inbox, message_ids: list[str], *, junk: bool) -> MailList:
    """Save a printed list, so that later commands accept its numbers."""
    day = None if inbox.as_of is None else inbox.as_of.isoformat()
    mail_list = MailList(str(db.resolve()), inbox.address, day, junk, message_ids)
    with contextlib.suppress(OSError):  # nothing is saved in a read-only home
        home().mkdir(parents=True, exist_ok=True)
        write_whole(home() / LAST_LIST, json.dumps(mail_list))
    return mail_list


def load_list() -> MailList:
    """Return the list that was printed last, or an empty one."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        return MailList(*json.loads((home() / LAST_LIST).read_text("utf-8")))
    return MailList()


@contextlib.contextmanager
def opened_mail(
    reference: str, db: Path | None, inbox: str | None, as_of: str | None, *, junk: bool = False
) -> Iterator[tuple[InboxFile, Inbox, str]]:
    """Open a file and an inbox (a number opens those of the last list), and find a mail's id."""
    mail_list = load_list()
    if mail_list.mail_at(reference, db, inbox):
        db, inbox = Path(mail_list.db), mail_list.inbox
        as_of, junk = as_of or mail_list.as_of, junk or mail_list.junk
    with opened_inbox(db, inbox, as_of, junk=junk) as (file, opened):
        yield file, opened, find_mail(reference, mail_list, file, opened)


def find_mail(reference: str, mail_list: MailList, file: InboxFile, inbox: Inbox) -> str:
    """Return the id of the mail that `reference` names; `UserError` if there is not exactly one."""
    for name in (reference, mail_list.mail_at(reference, file.path, inbox.address)):
        if name is not None and (message_id := inbox.canonical_id(name)) is not None:
            return message_id
    ids = inbox.ids_beginning(reference) if len(reference.strip("<> ")) >= MIN_PREFIX else []
    if len(ids) == 1:
        return ids[0]
    if ids:
        some = ", ".join(ids[:3])
        raise UserError(f"several ids start with {reference}, such as {some}; give a longer part")
    until = "" if inbox.as_of is None else f" up to {inbox.as_of}"
    where = f"the inbox of {inbox.address}{until}"
    raise UserError(f"no mail {reference} in {where}; art-e search WORDS lists mails with numbers")
