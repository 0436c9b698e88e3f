"""The records of ingest (raw messages, parsed mail) and the limits on one mail."""

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

LARGEST_MESSAGE = 50_000_000  # bytes; larger ones are rejected, so sources read one byte more
LARGEST_FILE = 20_000_000  # bytes of an attached file that is stored and read
# Per message: CPU time to parse and index it, and time to read its attachments.
CPU_SECONDS, ATTACHMENT_SECONDS = 20.0, 10.0
# Memory that a message may add to this process; attachments are read in their own process.
MEMORY_BYTES = 370_000_000
_MEMORY_NOW, _DATA_FIELD = Path("/proc/self/statm"), 5  # of Linux; field 5: data and stack pages


class RawMessage(NamedTuple):
    """One message as its source stores it. `source` is a path that is stable for the same mail in
    the same source. `envelope_date` is the container's own date (the From_ line of an mbox), used
    when the message's dates are missing or absurd. `labels` and `gmail_thread` are the container's;
    those in headers count only `in_mbox`. `owner` is the address whose inbox holds it, whoever
    wrote it. `fault` says why it can't be stored, or if there is data, why only a part of it is."""

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
        """False for other files that lie next to mail."""
        return self.fault is None or self.fault.stage != "not_mail"


@dataclass(frozen=True, slots=True)
class ParsedEmail:
    """A message as the inbox stores it. `message_id` has its angle brackets; it is derived from the
    content if the message has none. `sent_at` is naive UTC, None without a plausible date;
    `utc_offset` is that of its time zone, in minutes. An address is in only one of `to`, `cc` and
    `bcc`. `body` has "\\n" line ends. `junk`: one of its `labels` is spam, trash or drafts.
    `references` are the message ids of earlier mails in the thread, the nearest last;
    `gmail_thread` is Gmail's thread id, `delivered_to` the address that received it. `mailing_list`
    has the list's name and addresses; `bulk`: it was sent to many, or automatically. `attached` has
    the texts of attachments, which are read and searched after the body. `owner` is as in
    `RawMessage`; with `any_id`, copies may have different message ids."""

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
        """The approximate size in bytes."""
        return len(self.body) + len(self.attached)


class Skipped(NamedTuple):
    """A message that isn't stored, or only in part (stage "cut"), with a short fixed `reason`."""

    source: str
    reason: str
    detail: str
    stage: Literal["quarantined", "filtered", "cut", "not_mail"] = "quarantined"


@contextmanager
def limited_memory() -> Iterator[None]:
    """On Linux, raise `MemoryError` if this block takes over `MEMORY_BYTES` more memory."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if _MEMORY_NOW.exists():
        pages = int(_MEMORY_NOW.read_text().split()[_DATA_FIELD])
        limit = pages * resource.getpagesize() + MEMORY_BYTES
        if soft == resource.RLIM_INFINITY or limit < soft:
            resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
