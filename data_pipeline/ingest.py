"""From mail sources to an inbox file: `ingest()` is what `art-e ingest` runs.

    sources -> batches -> workers.py (batch.py on all cores) -> InboxBuild (build.py) -> file

The file is complete or not there: an interrupt or a kill leaves what stood at
its path before. Adding to a file (`append`) builds it anew from its own mail
and the new, so that one run or several give the same inbox.
"""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import filelock

from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.inbox.mail import Mailbox
from data_pipeline.batch import Job, Rules, StoredMail
from data_pipeline.build import InboxBuild
from data_pipeline.records import MailFields, ParsedEmail, RawMessage
from data_pipeline.workers import processed

BATCH_MESSAGES = 2000
BATCH_BYTES = 8_000_000

Item = RawMessage | MailFields | StoredMail


class Source(NamedTuple):
    """Messages to read, and the rules for them."""

    messages: Iterable[RawMessage | MailFields]
    rules: Rules


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What became of every message. `counts` are those of the whole file."""

    db: Path
    counts: dict[str, Any]
    added_read: int
    added_stored: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """The report as `art-e ingest --json` prints it; the rate is of this run."""
        return {
            "db": str(self.db),
            **self.counts,
            "added": {"read": self.added_read, "stored": self.added_stored},
            "seconds": round(self.seconds, 3),
            "messages_per_second": round(self.added_read / self.seconds, 1),
        }


def ingest(
    sources: Sequence[Source],
    db: Path,
    *,
    owner: str | None = None,
    append: bool = False,
    limit: int | None = None,
    on_progress: Callable[[int], None] = lambda _: None,
) -> IngestReport:
    """Read all `sources` into the inbox file `db`; `limit` bounds the messages read.

    `on_progress` is called with the number of messages read so far. Raises
    `UserError` where a source can't be read, where no message was found, or where
    another ingest is writing the same file.
    """
    started = time.perf_counter()
    owner = None if owner is None else owner.strip().lower()
    db.parent.mkdir(parents=True, exist_ok=True)
    read = 0
    with _locked(db), contextlib.ExitStack() as opened:
        old = opened.enter_context(InboxFile(db)) if append and db.exists() else None
        old_counts = {"read": 0, "stored": 0} if old is None else old.counts
        build = opened.enter_context(InboxBuild(db))
        jobs: Iterator[Job] = _jobs(sources, owner, limit)
        if old is not None:
            jobs = itertools.chain(_stored_jobs(old), jobs)
            build.carry_over(old.path)
        for job, batch in processed(jobs):
            build.add(batch)
            read += sum(not isinstance(item, StoredMail) for item in job.items)
            on_progress(read)
        if read == 0:
            raise UserError("no message found in the source; is it the right path or --format?")
        build.deduplicate()
        counts = build.finish(read + old_counts["read"])
    return IngestReport(
        db=db,
        counts=counts,
        added_read=read,
        added_stored=counts["stored"] - old_counts["stored"],
        seconds=time.perf_counter() - started,
    )


@contextlib.contextmanager
def _locked(db: Path) -> Iterator[None]:
    lock = filelock.FileLock(f"{db}.lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise UserError(f"another ingest is writing {db}; wait for it to end") from None
    try:
        yield
    finally:
        lock.release()


def _jobs(sources: Sequence[Source], owner: str | None, limit: int | None) -> Iterator[Job]:
    left = limit
    for source in sources:
        for items in _batches(itertools.islice(source.messages, left)):
            if left is not None:
                left -= len(items)
            yield Job(items, source.rules, owner)


def _batches(messages: Iterable[Item]) -> Iterator[list[Item]]:
    batch: list[Item] = []
    size = 0
    for message in messages:
        batch.append(message)
        size += _size(message)
        if len(batch) >= BATCH_MESSAGES or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _size(message: Item) -> int:
    if isinstance(message, RawMessage):
        return len(message.data)
    return len(message.email.body if isinstance(message, StoredMail) else message.body)


def _stored_jobs(old: InboxFile) -> Iterator[Job]:
    rows = old.execute(
        """
        SELECT e.source, message_id, sent_at, subject, from_address, from_name, to_recipients,
            cc_recipients, bcc_recipients, body, junk, any_id, coalesce(owned.owners, [])
        FROM emails AS e LEFT JOIN (
            SELECT email_id, list(address ORDER BY address) AS owners
            FROM (FROM parties UNION ALL FROM junk_parties) JOIN addresses USING (address_id)
            WHERE role = 'owner' GROUP BY email_id
        ) AS owned USING (email_id) ORDER BY email_id
        """
    )
    while chunk := rows.fetchmany(BATCH_MESSAGES):
        yield Job([_stored_mail(row) for row in chunk], Rules(), None)


def _stored_mail(row: tuple[Any, ...]) -> StoredMail:
    source, message_id, sent_at, subject, address, name, *recipients, body, junk, any_id, own = row
    to, cc, bcc = (
        tuple(Mailbox(each["address"], each["name"]) for each in listed) for listed in recipients
    )
    email = ParsedEmail(
        source, message_id, sent_at, subject, Mailbox(address, name), to, cc, bcc, body, junk
    )
    return StoredMail(email, any_id, tuple(own))
