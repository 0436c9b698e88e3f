"""Parses, filters and tokenises mail in batches, on all cores.

A batch becomes Arrow tables, cheap to send between processes and to load into DuckDB. Row and term
numbers count within the batch; `build.py` makes them the file's. Nothing here may import DuckDB:
workers start without it. They are spawned, not forked, because the parent runs DuckDB's threads.
"""

import hashlib
import itertools
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from art_e.children import plain_environment
from art_e.inbox.schema import SUBJECT_WEIGHT
from art_e.inbox.threads import bare_subject
from art_e.inbox.tokenizer import MAX_WORD_CHARS, addresses, stems, tokens, words
from data_pipeline.ingest.attachments import Extractor
from data_pipeline.ingest.parse import parse_message
from data_pipeline.ingest.records import Format, MailFields, ParsedEmail, Quarantined, RawMessage

_DIGEST_BYTES = 16

_MAILS = pa.schema({
    "row": pa.int32(), "message_id": pa.string(), "sent_at": pa.timestamp("us"),
    "utc_offset": pa.int16(), "subject": pa.string(), "bare_subject": pa.string(),
    "from_address": pa.string(), "from_name": pa.string(), "body": pa.string(),
    "length": pa.int32(), "source": pa.string(), "content_digest": pa.binary(),
    "copy_digest": pa.binary(), "any_id": pa.bool_(), "junk": pa.bool_(),
    "labels": pa.list_(pa.string()), "reference_ids": pa.list_(pa.string()),
    "gmail_thread": pa.string(), "delivered_to": pa.string(), "attached": pa.string(),
    "owner": pa.string(),
})  # fmt: skip
# role: 0, 1, 2 for to, cc, bcc
_RECIPIENTS = pa.schema({
    "row": pa.int32(), "address": pa.string(), "name": pa.string(), "role": pa.int8(),
    "position": pa.int32(),
})  # fmt: skip
_FILES = pa.schema({
    "row": pa.int32(), "number": pa.int16(), "part": pa.int16(), "name": pa.string(),
    "kind": pa.string(), "data": pa.binary(),
})  # fmt: skip

# What `words` makes of each ASCII character: itself in lower case, or a gap between words.
_SPACED = str.maketrans({char: "".join(words(char)) or " " for char in map(chr, range(128))})

# Tasks of each worker: one being worked on, one waiting.
_QUEUED = 2
# Fewer messages than this are parsed sooner than workers start (about 0.7 s).
WORTH_WORKERS = 1200
# Bytes of mail under way; a larger mail is alone.
_MOST_HELD = 32_000_000
# Characters of text in a table: attachments unpack to more than their mails.
_MOST_TEXT = 8_000_000
# Bytes of a file in a row: DuckDB reads 2,048 rows at a time.
_PIECE = 1 << 16

Numbers = npt.NDArray[np.int64]
Task = TypeVar("Task")
Done = TypeVar("Done")


@dataclass(frozen=True, slots=True)
class Rules:
    """What is left out of the inbox; None: no limit. With `any_id`, mails of the same sender,
    subject and body are copies whatever their message ids; else only if the ids are the same as
    well."""

    max_body_chars: int | None = None
    max_recipients: int | None = None
    any_id: bool = False


class StoredMail(NamedTuple):
    """A parsed mail that is to be stored, or is stored in the file being added to."""

    email: ParsedEmail
    any_id: bool
    owner: str  # empty: nobody's


class Job(NamedTuple):
    """A batch as it goes to a worker."""

    items: Sequence[RawMessage | MailFields | StoredMail]
    rules: Rules

    @property
    def size(self) -> int:
        """About the bytes of its mails."""
        return sum(map(size_of, self.items))


def size_of(item: RawMessage | MailFields | StoredMail) -> int:
    """About the bytes of a mail."""
    if isinstance(item, RawMessage):
        return len(item.data)
    return len(item.body if isinstance(item, MailFields) else item.email.body)


class BatchTables(NamedTuple):
    """A batch as it comes back.

    recipients: row, address, name, role, position. files: row, number, part, name, kind, data.
    postings: row, term, frequency, with `term` an index into `stems`. words: word, term (of
    subjects and bodies, not of senders' names). skipped: source, stage, reason, detail.
    """

    mails: pa.Table
    recipients: pa.Table
    files: pa.Table
    postings: pa.Table
    stems: list[str]
    words: pa.Table
    skipped: list[tuple[str, str, str, str]]


def process(job: Job) -> list[BatchTables]:
    """Parse, filter and tokenise one batch, in several tables if its text is long. Never raises for
    what a mail contains."""
    tables = []
    kept: list[StoredMail] = []
    skipped: list[tuple[str, str, str, str]] = []
    text = 0
    for item in job.items:
        email = item if isinstance(item, StoredMail) else parse_message(item, _extractor())
        if isinstance(email, StoredMail):
            kept.append(email)
        elif isinstance(email, Quarantined):
            skipped.append((email.source, "quarantined", email.reason, email.detail))
        elif (why := _filtered(email, job.rules)) is not None:
            skipped.append((email.source, "filtered", *why))
        else:
            kept.append(StoredMail(email, job.rules.any_id, ""))
            text += len(email.body) + len(email.attached)
        if text > _MOST_TEXT:
            tables.append(_tables(kept, skipped))
            kept, skipped, text = [], [], 0
    return [*tables, _tables(kept, skipped)]


@cache
def _extractor() -> Extractor:
    """This process's reader of attachments."""
    return Extractor()


def content_digest(email: ParsedEmail) -> bytes:
    """What a mail says: sender, subject and body, white space aside."""
    text = "\0".join((email.sender.address, email.subject, email.body))
    return _digest(" ".join(text.split()).encode())


def copy_digest(email: ParsedEmail, content: bytes) -> bytes:
    """What makes two mails copies: they say the same to the same people. So no mail that a
    person got is a copy of one that they did not get."""
    roles = enumerate((email.to, email.cc, email.bcc))
    people = sorted({f"{role}{each.address}" for role, listed in roles for each in listed})
    return _digest(content + "\0".join(people).encode())


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()


def _filtered(email: ParsedEmail, rules: Rules) -> tuple[str, str] | None:
    if rules.max_body_chars is not None and len(email.body) > rules.max_body_chars:
        return "long-body", f"{len(email.body)} characters, {rules.max_body_chars} allowed"
    recipients = len(email.to) + len(email.cc) + len(email.bcc)
    if rules.max_recipients is not None and recipients > rules.max_recipients:
        return "many-recipients", f"{recipients} recipients, {rules.max_recipients} allowed"
    return None


def _tables(kept: list[StoredMail], skipped: list[tuple[str, str, str, str]]) -> BatchTables:
    emails = [each.email for each in kept]
    postings, lengths, stem_list, word_table = _index(emails)
    digests = [content_digest(email) for email in emails]
    mails: dict[str, Any] = {
        "row": range(len(emails)),
        "bare_subject": [bare_subject(email.subject) for email in emails],
        "from_address": [email.sender.address for email in emails],
        "from_name": [email.sender.name for email in emails],
        "length": lengths,
        "content_digest": digests,
        "copy_digest": list(map(copy_digest, emails, digests)),
        "any_id": [each.any_id for each in kept],
        "reference_ids": [email.references for email in emails],
        "owner": [each.owner for each in kept],
    }
    others = [name for name in _MAILS.names if name not in mails]
    mails |= {name: [getattr(email, name) for email in emails] for name in others}
    recipients = [
        (row, *box, role, position)
        for row, email in enumerate(emails)
        for role, listed in enumerate((email.to, email.cc, email.bcc))
        for position, box in enumerate(listed)
    ]
    files = [
        (row, number, part, file.name, file.kind, data)
        for row, email in enumerate(emails)
        for number, file in enumerate(email.files, start=1)
        for part, data in enumerate(_pieces(file.data))
    ]
    tables = _table(recipients, _RECIPIENTS), _table(files, _FILES), postings
    mail_table = pa.table(mails, schema=_MAILS)
    return BatchTables(mail_table, *tables, stem_list, word_table, skipped)


def _pieces(data: bytes | None) -> list[bytes | None]:
    starts = range(0, len(data), _PIECE) if data else ()
    return [data[at : at + _PIECE] for at in starts if data] or [data]


def _table(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [[]] * len(schema)
    return pa.table(dict(zip(schema.names, columns, strict=True)), schema=schema)


def _index(emails: list[ParsedEmail]) -> tuple[pa.Table, Numbers, list[str], pa.Table]:
    """Postings, indexed words of each mail, stems, and the words of subjects and bodies."""
    texts = [text for email in emails for text in (email.subject, email.body + email.attached)]
    texts += [email.sender.indexed for email in emails]
    numbers = np.arange(len(emails))
    row_of_text = np.concatenate((np.repeat(numbers, 2), numbers, numbers))
    times_of_text = np.ones(len(row_of_text), dtype=np.int64)
    times_of_text[: 2 * len(emails) : 2] = SUBJECT_WEIGHT

    spaced = itertools.chain(map(_spaced, texts), map(_addresses, emails))
    found = pc.ascii_split_whitespace(pa.array(spaced, pa.large_string()))
    words_of_text = np.diff(found.offsets.to_numpy())
    encoded = found.flatten().dictionary_encode()
    word_ids = encoded.indices.to_numpy()
    # Arrow finds an empty word around leading and trailing blanks.
    all_surfaces = encoded.dictionary.to_pylist()
    is_word = np.fromiter((0 < len(word) <= MAX_WORD_CHARS for word in all_surfaces), dtype=bool)
    surfaces = list(itertools.compress(all_surfaces, is_word))
    in_content = word_ids[: words_of_text[: 2 * len(emails)].sum()].max(initial=-1) + 1
    content_words = int(is_word[:in_content].sum())

    stem_numbers: defaultdict[str, int] = defaultdict(itertools.count().__next__)
    stem_of = np.fromiter(
        map(stem_numbers.__getitem__, stems(surfaces)), dtype=np.int64, count=len(surfaces)
    )
    stem_of_all = np.zeros(len(all_surfaces), dtype=np.int64)
    stem_of_all[is_word] = stem_of
    stem_count = max(len(stem_numbers), 1)
    times = np.repeat(times_of_text, words_of_text)
    times *= is_word[word_ids]
    rows = np.repeat(np.repeat(row_of_text, words_of_text), times)
    keys = rows * stem_count + np.repeat(stem_of_all[word_ids], times)
    pairs, frequency = np.unique(keys, return_counts=True)
    numbered = {"row": pairs // stem_count, "term": pairs % stem_count, "frequency": frequency}
    postings = pa.table({name: column.astype(np.int32) for name, column in numbered.items()})
    content = pa.array(surfaces[:content_words], pa.string())
    content_terms = stem_of[:content_words].astype(np.int32)
    word_table = pa.table({"word": content, "term": content_terms})
    # Without addresses, or a mail would count as long for its many recipients.
    counted = times[: words_of_text[: 3 * len(emails)].sum()].sum()
    lengths = np.bincount(rows[:counted], minlength=len(emails))
    return postings, lengths, list(stem_numbers), word_table


def _spaced(text: str) -> str:
    """The words of `text` with white space around them, and nothing else."""
    return text.translate(_SPACED) if text.isascii() else " ".join(tokens(text))


def _addresses(email: ParsedEmail) -> str:
    """The distinct addresses that a mail's text names."""
    texts = (email.subject, email.body, email.attached)
    return " ".join(sorted({each for text in texts for each in addresses(text)}))


def default_rules(source_format: Format) -> Rules:
    """The rules for one format: the reference's for public mail, none for the others."""
    public = source_format in ("enron", "csv", "hf")
    return Rules(max_body_chars=5_000, max_recipients=30, any_id=True) if public else Rules()


# ---- Work spread over all cores, its results in order.


def processed(jobs: Iterator[Job]) -> Iterator[tuple[Job, list[BatchTables]]]:
    """Every job with its tables, in order; small ingests don't pay for starting workers."""
    first: list[Job] = []
    for job in jobs:
        first.append(job)
        messages, size = sum(len(each.items) for each in first), sum(each.size for each in first)
        if messages >= WORTH_WORKERS or size > _MOST_HELD:
            yield from spread(process, itertools.chain(first, jobs), lambda job: job.size)
            return
    yield from ((each, process(each)) for each in first)


def spread(
    work: Callable[[Task], Done], tasks: Iterator[Task], size: Callable[[Task], int] = lambda _: 0
) -> Iterator[tuple[Task, Done]]:
    """Every task with its result, in order; `work` is a function of a module. Tasks whose `size`s
    add up to more than `_MOST_HELD` wait for one another."""
    workers = os.cpu_count() or 1
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker)
    under_way: deque[tuple[Task, Future[Done]]] = deque()
    held = 0
    try:
        for task in tasks:
            held += size(task)
            while under_way and (len(under_way) >= workers * _QUEUED or held > _MOST_HELD):
                done, future = under_way.popleft()
                held -= size(done)
                yield done, future.result()
            under_way.append((task, _submit(pool, work, task)))
        yield from ((done, future.result()) for done, future in under_way)
    finally:
        pool.shutdown(cancel_futures=True)


def _submit(pool: ProcessPoolExecutor, work: Callable[[Task], Done], task: Task) -> Future[Done]:
    """Submit `task`; workers that start here inherit that Ctrl-C is blocked. This process defers
    it, too: a pool interrupted while it starts a worker never ends. Blocking the signal is not
    enough for that, as another thread may take it."""
    pressed: list[int] = []
    on_main_thread = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT)
    if on_main_thread:
        signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return pool.submit(work, task)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if on_main_thread:
            signal.signal(signal.SIGINT, handler)
        if pressed:
            signal.raise_signal(signal.SIGINT)


def _start_worker() -> None:
    """Leave Ctrl-C and the keys to the parent, and end when it is killed (its queue would wait for
    ever)."""
    for name in os.environ.keys() - plain_environment().keys():
        del os.environ[name]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if (parent := multiprocessing.parent_process()) is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    multiprocessing.connection.wait([sentinel])
    os._exit(1)
