"""What travels through ingest: raw messages in, parsed mail out."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from art_e.inbox.mail import Mailbox

Format = Literal["enron", "maildir", "mbox", "eml", "csv", "hf", "synthetic"]
FORMATS: tuple[Format, ...] = get_args(Format)

# In bytes. Larger messages are rejected; sources needn't read further than one byte beyond.
LARGEST_MESSAGE = 50_000_000


class RawMessage(NamedTuple):
    """One message as its source stores it.

    `source` is a path that is stable for the same mail in the same source
    (`maildir/allen-p/inbox/1.`). `envelope_date` is a date that the container
    itself knows (the From_ line of an mbox), used when the message's own dates
    are missing or absurd.
    """

    source: str
    data: bytes
    envelope_date: dt.datetime | None = None


class MailFields(NamedTuple):
    """One message whose container has taken it apart already (the Hugging Face set)."""

    source: str
    message_id: str
    subject: str
    sender: str
    to: Sequence[str]
    cc: Sequence[str]
    bcc: Sequence[str]
    date: dt.datetime | None
    body: str


@dataclass(frozen=True, slots=True)
class ParsedEmail:
    """A message as the inbox stores it.

    `message_id` has its angle brackets; it is derived from the content where
    the message has none. `sent_at` is UTC without tzinfo, None where no
    plausible date is known. An address stands in one of `to`, `cc`, `bcc` only,
    once. `body` is text with "\\n" line ends. `junk` says that its owner has it in spam or trash.
    """

    source: str
    message_id: str
    sent_at: dt.datetime | None
    subject: str
    sender: Mailbox
    to: tuple[Mailbox, ...]
    cc: tuple[Mailbox, ...]
    bcc: tuple[Mailbox, ...]
    body: str
    junk: bool = False


@dataclass(frozen=True, slots=True)
class Rejected:
    """A message that can't be stored, and why (`reason` is a short fixed word)."""

    source: str
    reason: str
    detail: str
