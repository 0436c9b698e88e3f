"""What travels through ingest: raw messages in, parsed mail out; and what one mail may take."""

import datetime as dt
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from art_e.inbox.mail import AttachedFile, Mailbox

Format = Literal["mail", "mbox", "maildir", "eml", "enron", "csv", "hf", "imap", "synthetic"]
FORMATS: tuple[Format, ...] = get_args(Format)

LARGEST_MESSAGE = 50_000_000  # bytes; larger ones are rejected, so sources read one more
LARGEST_FILE = 20_000_000  # of attached files that are kept and read
# For one message: CPU time of reading and indexing it, and the time that its attachments may take.
CPU_SECONDS, ATTACHMENT_SECONDS = 20.0, 10.0
# What reading and indexing it may add to this process's memory; attachments have their own process.
MEMORY_BYTES = 370_000_000
_MEMORY_NOW, _DATA_FIELD = Path("/proc/self/statm"), 5  # of Linux


class RawMessage(NamedTuple):
    """One message as its source stores it. `source` is a path that is stable for the same mail in
    the same source. `envelope_date` is the container's own date (the From_ line of an mbox), used
    when the message's dates are missing or absurd. `labels` and `gmail_thread` are the container's;
    those in headers count only `in_mbox`. `owner` is the address whose inbox holds it, whoever
    wrote it. `fault` says why it can't be stored, or with data why only a part of it is."""

    source: str
    data: bytes
    envelope_date: dt.datetime | None = None
    labels: tuple[str, ...] = ()
    in_mbox: bool = False
    gmail_thread: str = ""
    owner: str = ""
    fault: "Skipped | None" = None

    @property
    def size(self) -> int:
        return len(self.data)

    @property
    def is_mail(self) -> bool:
        """Whether it is a mail, and not only a file beside mail."""
        return self.fault is None or self.fault.stage != "not_mail"


@dataclass(frozen=True, slots=True)
class ParsedEmail:
    """A message as the inbox stores it. `message_id` has its angle brackets; it is derived from the
    content where the message has none. `sent_at` is naive UTC, None without a plausible date;
    `utc_offset` is its own zone's, in minutes. An address stands once in `to`, `cc` or `bcc`.
    `body` has "\\n" line ends. `junk`: its owner has it in spam, trash or drafts, as one of its
    `labels` says. `references` are the message ids of the mails that it follows, the nearest last;
    `gmail_thread` is Gmail's name of its thread, `delivered_to` the address that got it.
    `mailing_list` has its list's name and addresses; `bulk`: it went to many, or nobody wrote it.
    `attached` has the texts of attachments, and is read and searched behind the body. `owner` is as
    in `RawMessage`; with `any_id` copies have any message id, else the same."""

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
    utc_offset: int = 0
    labels: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    gmail_thread: str = ""
    mailing_list: str = ""
    bulk: bool = False
    attached: str = ""
    delivered_to: str = ""
    files: tuple[AttachedFile, ...] = ()
    owner: str = ""
    any_id: bool = False

    @property
    def size(self) -> int:
        """About its bytes."""
        return len(self.body) + len(self.attached)


class Skipped(NamedTuple):
    """A message that isn't stored, or not whole (stage "cut"), and why: a short fixed `reason`."""

    source: str
    reason: str
    detail: str
    stage: Literal["quarantined", "filtered", "cut", "not_mail"] = "quarantined"


@contextmanager
def limited_memory() -> Iterator[None]:
    """Raise `MemoryError` here, on Linux, if this process would take `MEMORY_BYTES` more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if _MEMORY_NOW.exists():
        pages = int(_MEMORY_NOW.read_text().split()[_DATA_FIELD])
        most = pages * resource.getpagesize() + MEMORY_BYTES
        if soft == resource.RLIM_INFINITY or most < soft:
            resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
