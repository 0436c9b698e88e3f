"""A mail and a search hit as the inbox returns them, and types that its modules share."""

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

# Workers that parse mail import this module, and crash at exit if they have loaded DuckDB.
if TYPE_CHECKING:
    import duckdb

# Runs one SQL statement, with its parameters if it has any, on the calling thread's connection.
Execute = Callable[..., "duckdb.DuckDBPyConnection"]

Numbers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


class Mailbox(NamedTuple):
    """One address as a mail names it. `address` is lower case; `name` may be empty."""

    address: str
    name: str

    def __str__(self) -> str:
        if self.name and self.address:
            return f"{self.name} <{self.address}>"
        return self.name or self.address

    @property
    def indexed(self) -> str:
        """Return the sender's indexed text: the name, or else the address before the "@"."""
        return self.name or self.address.partition("@")[0]


# The end of message ids in Enron's public mail, whose dates all have the same time zone.
_ENRON = ".JavaMail.evans@thyme>"


def format_date(date: dt.datetime | None, message_id: str = "") -> str:
    """Return a date as all outputs show it: ISO 8601 with its zone, to the minute; for Enron's
    mail, whose time of day is unreliable, only the day."""
    if date is None:
        return "unknown"
    text = date.isoformat(timespec="minutes").replace("+00:00", "Z")
    return text[: len("2001-01-31")] if message_id.endswith(_ENRON) else text


def in_zone(sent_at: dt.datetime | None, utc_offset: int) -> dt.datetime | None:
    """Return a naive UTC date in the zone that is `utc_offset` minutes ahead of UTC."""
    return sent_at and sent_at.replace(tzinfo=dt.UTC).astimezone(
        dt.timezone(dt.timedelta(minutes=utc_offset))
    )


class Hit(NamedTuple):
    """A mail that a search found. `missing` lists the words that it lacks. `bulk`: it went to many,
    or is an automatic reply. `copies` counts the mails with the same content, itself included."""

    message_id: str
    date: dt.datetime | None
    sender: Mailbox
    subject: str
    snippet: str
    score: float
    missing: tuple[str, ...]
    bulk: bool = False
    copies: int = 1
    body: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "message_id": self.message_id,
            "date": format_date(self.date, self.message_id),
            "from": str(self.sender),
            "subject": self.subject,
            "snippet": self.snippet,
            "missing": list(self.missing),
            **({"bulk": True} if self.bulk else {}),
            "score": round(self.score, 6),
            "copies": self.copies,
        }


class AttachedFile(NamedTuple):
    """A file attached to a mail: its name, type and charset as declared; `data` is None if it was
    not stored. `unread` says why its text is missing from the mail, at least in part."""

    name: str
    kind: str
    data: bytes | None
    charset: str = ""
    unread: str = ""


@dataclass(frozen=True, slots=True)
class Email:
    """A whole mail. `date` is in the zone in which it was sent, None if unknown. `labels` are the
    owner's and are shown only to the owner."""

    message_id: str
    date: dt.datetime | None
    sender: Mailbox
    to: tuple[Mailbox, ...]
    cc: tuple[Mailbox, ...]
    bcc: tuple[Mailbox, ...]
    subject: str
    body: str
    labels: tuple[str, ...] = ()
    mailing_list: str = ""

    def to_json(self) -> dict[str, Any]:
        optional = {"labels": list(self.labels), "list": self.mailing_list}
        return {
            "message_id": self.message_id,
            "date": format_date(self.date, self.message_id),
            "from": str(self.sender),
            "to": [str(mailbox) for mailbox in self.to],
            "cc": [str(mailbox) for mailbox in self.cc],
            "bcc": [str(mailbox) for mailbox in self.bcc],
            "subject": self.subject,
            **{name: value for name, value in optional.items() if value},
            "body": self.body,
        }
