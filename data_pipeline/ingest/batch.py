"""Parses, filters and tokenises mail in batches, on all cores.

A batch becomes Arrow tables, which are cheap to pass as files and to load into DuckDB. Row and term
numbers start at 0 in each table; `build.py` shifts them to the file's. This module must not import
DuckDB: workers run without it."""

import gc
import hashlib
import itertools
import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import sys
import tempfile
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from art_e.children import plain_environment
from art_e.inbox.schema import SUBJECT_WEIGHT
from art_e.inbox.threads import bare_subject
from art_e.inbox.tokenizer import MAX_WORD_CHARS, addresses, marked, stems, tokens, words
from art_e.text import toml_table
from data_pipeline.ingest.attachments import Extractor
from data_pipeline.ingest.parse import MAX_TEXT_CHARS, REST, parse_within
from data_pipeline.ingest.records import Format, ParsedEmail, RawMessage, Skipped

_DIGEST_BYTES = 16  # 128 bits: no two texts agree by chance


def _type(name: str | list[str]) -> pa.DataType:
    return pa.list_(pa.type_for_alias(*name)) if isinstance(name, list) else pa.type_for_alias(name)


_MAILS, _RECIPIENTS, _POSTINGS, _STEMS, _WORDS, _SKIPPED, _FILES = (
    pa.schema({column: _type(name) for column, name in columns.items()})
    for columns in toml_table(__package__, "tables.toml").values()
)

# Each ASCII character as `words` treats it: in lower case, or as a gap between words.
_SPACED = str.maketrans({char: "".join(words(char)) or " " for char in map(chr, range(128))})

_QUEUED = 2  # tasks per worker: one runs, one waits
MIN_FOR_WORKERS = 1200  # fewer messages are parsed before workers would start (about 0.7 s)
_MAX_IN_FLIGHT = 32_000_000  # bytes of mail in the workers; a larger mail is processed alone
_MAX_TEXT = 4_000_000  # characters of text in a table: attachments can be far larger than mails
_PIECE = 1 << 16  # bytes of a file in a row: DuckDB reads 2,048 rows at a time

Numbers = npt.NDArray[np.int64]
Task = TypeVar("Task")
Done = TypeVar("Done")


@dataclass(frozen=True, slots=True)
class Rules:
    """Limits on the mails of an inbox; None means no limit. Mails of the same people, subject and
    body are copies if they also have the same message id, or with `any_id` whatever their ids."""

    max_body_chars: int | None = None
    max_recipients: int | None = None
    any_id: bool = False


class Job(NamedTuple):
    """A batch for a worker: new mail, or mail of the file being added to."""

    items: Sequence[RawMessage | ParsedEmail]
    rules: Rules

    @property
    def size(self) -> int:
        """The approximate size of its mails in bytes."""
        return sum(item.size for item in self.items)


class BatchTables(NamedTuple):
    """The tables of a batch (tables.toml); in `words` only those of senders' names have a row."""

    mails: pa.Table
    recipients: pa.Table
    files: pa.Table
    postings: pa.Table
    stems: pa.Table
    words: pa.Table
    skipped: pa.Table


class _Indexed(NamedTuple):
    """A mail and its words to index, separated by white space: of its subject, of its body and
    attachments, of its sender's name, and its addresses and marked words."""

    email: ParsedEmail
    texts: tuple[str, str, str, str]


def process(job: Job) -> Iterator[BatchTables]:
    """Parse, filter and tokenise a batch; yield its tables, in several parts if it is long."""
    indexed: list[_Indexed] = []
    skipped: list[Skipped] = []
    chars, use, extractor = 0, partial(_indexed, job.rules), _extractor()
    for item in job.items:
        result = use(item) if isinstance(item, ParsedEmail) else parse_within(item, extractor, use)
        if isinstance(result, Skipped):
            skipped.append(result)
            continue
        email = result.email
        if isinstance(item, RawMessage):
            is_long = REST in email.body or REST in email.attached
            cut = Skipped("", "long-text", f"stored up to {MAX_TEXT_CHARS:,} characters", "cut")
            if fault := cut if is_long else item.fault:
                skipped.append(fault._replace(source=email.source))
        size = len(result.texts[1])
        if chars + size > _MAX_TEXT and indexed:
            yield _tables(indexed, skipped)
            indexed, skipped, chars = [], [], 0
        indexed.append(result)
        chars += size
    yield _tables(indexed, skipped)


_extractor = cache(Extractor)  # this process's reader of attachments


def _indexed(rules: Rules, email: ParsedEmail) -> _Indexed | Skipped:
    chars, recipients = len(email.body), len(email.to) + len(email.cc) + len(email.bcc)
    for reason, limit, count, things in (
        ("long-body", rules.max_body_chars, chars, "characters"),
        ("many-recipients", rules.max_recipients, recipients, "recipients"),
    ):
        if limit is not None and count > limit:
            return Skipped(email.source, reason, f"{count} {things}, {limit} allowed", "filtered")
    email = replace(email, any_id=True) if rules.any_id else email
    texts = (email.subject, email.body + email.attached, email.sender.indexed)
    named = {each for text in texts[:2] for each in addresses(text)}
    subject, text, sender = map(_spaced, texts)
    others = " ".join([*sorted(named), *marked(f"{subject} {text}")])
    return _Indexed(email, (subject, text, sender, others))


def content_digest(email: ParsedEmail) -> bytes:
    """Return a digest of a mail's sender, subject and body, white space aside."""
    text = "\0".join((email.sender.address, email.subject, email.body))
    return _digest(" ".join(text.split()).encode())


def copy_digest(email: ParsedEmail, content: bytes) -> bytes:
    """Return a digest that copies share: the same text to the same people, so nobody loses mail."""
    roles = enumerate((email.to, email.cc, email.bcc))
    people = sorted({f"{role}{each.address}" for role, listed in roles for each in listed})
    return _digest(content + "\0".join(people).encode())


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()


def _tables(indexed: list[_Indexed], skipped: list[Skipped]) -> BatchTables:
    emails = [each.email for each in indexed]
    postings, lengths, stem_table, words = _index([each.texts for each in indexed])
    digests = list(map(content_digest, emails))
    mails: dict[str, Any] = {
        "row": range(len(emails)),
        "bare_subject": [bare_subject(email.subject) for email in emails],
        "from_address": [email.sender.address for email in emails],
        "from_name": [email.sender.name for email in emails],
        "length": lengths,
        "content_digest": digests,
        "copy_digest": list(map(copy_digest, emails, digests)),
        "reference_ids": [email.references for email in emails],
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
        (row, number, part, file.name, file.kind, data, file.unread)
        for row, email in enumerate(emails)
        for number, file in enumerate(email.files, start=1)
        for part, data in enumerate(_pieces(file.data))
    ]
    mail_table = pa.table(mails, schema=_MAILS)
    people, attached = _table(recipients, _RECIPIENTS), _table(files, _FILES)
    left_out = _table(skipped, _SKIPPED)
    return BatchTables(mail_table, people, attached, postings, stem_table, words, left_out)


def _pieces(data: bytes | None) -> list[bytes | None]:
    return [data[at : at + _PIECE] for at in range(0, len(data), _PIECE)] if data else [data]


def _table(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [[]] * len(schema)
    return pa.table(dict(zip(schema.names, columns, strict=True)), schema=schema)


def _index(texts: list[tuple[str, str, str, str]]) -> tuple[pa.Table, Numbers, pa.Table, pa.Table]:
    """Return postings, lengths (words per mail), stems and words of the `texts` of each mail."""
    count = len(texts)
    in_turn = pa.array(itertools.chain(*zip(*texts, strict=True)), pa.large_string())
    token_lists = pc.ascii_split_whitespace(in_turn)
    words_of_text = np.diff(token_lists.offsets.to_numpy())  # (4 * count,): all subjects first
    encoded = token_lists.flatten().dictionary_encode()
    word_ids = encoded.indices.to_numpy()  # (tokens,): indexes into the distinct words
    # Arrow finds an empty word around leading and trailing blanks.
    all_surfaces = encoded.dictionary.to_pylist()
    is_word = np.fromiter((0 < len(word) <= MAX_WORD_CHARS for word in all_surfaces), dtype=bool)
    stemmed = pa.array(stems([*itertools.compress(all_surfaces, is_word)]), pa.string())
    stemmed = stemmed.dictionary_encode()
    stem_of_all = np.zeros(len(all_surfaces), dtype=np.int64)
    stem_of_all[is_word] = stemmed.indices.to_numpy()
    stem_count = max(len(stemmed.dictionary), 1)
    stem_table = pa.table([np.arange(len(stemmed.dictionary)), stemmed.dictionary], schema=_STEMS)

    rows = np.repeat(np.tile(np.arange(count), 4), words_of_text)  # (tokens,): their mails
    times = np.repeat(np.repeat([SUBJECT_WEIGHT, 1, 1, 1], count), words_of_text)
    times *= is_word[word_ids]  # 0 times: noise is not indexed
    keys = np.repeat(rows * stem_count + stem_of_all[word_ids], times)  # (mail, stem) as a number
    keys.sort(kind="stable")  # twice as fast, because the keys of each text are near each other
    starts = np.flatnonzero(np.concatenate(([len(keys) > 0], keys[1:] != keys[:-1])))
    pairs, frequency = keys[starts], np.diff(starts, append=len(keys))  # lengths of runs
    postings = pa.table([pairs // stem_count, pairs % stem_count, frequency], names=_POSTINGS.names)
    postings = postings.cast(_POSTINGS)
    # The document length of BM25, without addresses: many recipients don't make a mail long.
    content_end, names_end = (int(words_of_text[: n * count].sum()) for n in (2, 3))
    lengths = np.bincount(rows[:names_end], times[:names_end], minlength=count).astype(np.int64)
    # Words of subjects, bodies and marks in the order of their numbers, then those of names only.
    in_content = np.arange(word_ids[:content_end].max(initial=-1) + 1)
    marks = np.unique(word_ids[names_end:])
    in_content = np.concatenate((in_content, marks[marks >= len(in_content)]))
    listed = np.concatenate((in_content, word_ids[content_end:names_end]))
    of_row = np.concatenate((np.full(len(in_content), -1), rows[content_end:names_end]))
    listed, of_row = listed[is_word[listed]], of_row[is_word[listed]]
    columns = [pa.array(of_row, mask=of_row < 0), encoded.dictionary.take(listed)]
    words = pa.table([*columns, stem_of_all[listed]], schema=_WORDS)
    return postings, lengths, stem_table, words


def _spaced(text: str) -> str:
    return text.translate(_SPACED) if text.isascii() else " ".join(tokens(text))


def default_rules(source_format: Format) -> Rules:
    """Return the rules for a format: the reference's for public mail, none for the others."""
    public = source_format in ("enron", "csv", "hf")
    return Rules(max_body_chars=5_000, max_recipients=30, any_id=True) if public else Rules()


# ---- Parallel work on all cores, with its results in order.


def process_all(jobs: Iterator[Job], folder: Path) -> Iterator[tuple[Job, Iterator[BatchTables]]]:
    """Yield every job with its tables, in order; small ingests start no workers. Workers write
    their tables to `folder`, so that they don't fill the memory."""
    first: list[Job] = []
    for job in jobs:
        first.append(job)
        messages, size = sum(len(each.items) for each in first), sum(each.size for each in first)
        if messages >= MIN_FOR_WORKERS or size > _MAX_IN_FLIGHT:
            work = partial(_process_to_files, folder)
            done = map_in_workers(work, itertools.chain(first, jobs), lambda job: job.size)
            yield from ((each, map(_pop_tables, files)) for each, files in done)
            return
    yield from ((each, process(each)) for each in first)


def _process_to_files(folder: Path, job: Job) -> list[Path]:
    """Process a job; return the files of its tables."""
    files = []
    for tables in process(job):
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            pickle.dump(tables, file)
        files.append(Path(file.name))
    return files


def _pop_tables(file: Path) -> BatchTables:
    with file.open("rb") as opened:
        tables: BatchTables = pickle.load(opened)
    file.unlink()
    return tables


def map_in_workers(
    work: Callable[[Task], Done], tasks: Iterator[Task], size: Callable[[Task], int] = lambda _: 0
) -> Iterator[tuple[Task, Done]]:
    """Yield every task with its result, in order; `work` is a module-level function. Tasks whose
    `size`s add up to more than `_MAX_IN_FLIGHT` wait for one another."""
    workers = os.cpu_count() or 1
    # A forked worker starts at once. It lacks the parent's other threads, which DuckDB would need,
    # but it never calls DuckDB. A Python thread could hold a lock that the worker needs.
    can_fork = sys.platform == "linux" and threading.active_count() == 1
    context = multiprocessing.get_context("fork" if can_fork else "spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker)
    pending: deque[tuple[Task, Future[Done]]] = deque()
    in_flight = 0
    try:
        for task in tasks:
            in_flight += size(task)
            while pending and (len(pending) >= workers * _QUEUED or in_flight > _MAX_IN_FLIGHT):
                done, future = pending.popleft()
                in_flight -= size(done)
                yield done, future.result()
            pending.append((task, _submit(pool, work, task)))
        yield from ((done, future.result()) for done, future in pending)
    finally:
        pool.shutdown(cancel_futures=True)


def _submit(pool: ProcessPoolExecutor, work: Callable[[Task], Done], task: Task) -> Future[Done]:
    """Submit `task` with Ctrl-C blocked, so that workers that start here inherit that. This process
    defers Ctrl-C, too: a pool interrupted while it starts a worker never ends. Blocking the signal
    is not enough for that, because another thread may receive it."""
    pressed: list[int] = []
    on_main_thread = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT)
    if on_main_thread:
        signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        # Python 3.12 warns of a fork in a process with DuckDB's threads.
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            return pool.submit(work, task)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if on_main_thread:
            signal.signal(signal.SIGINT, handler)
        if pressed:
            signal.raise_signal(signal.SIGINT)


def _start_worker() -> None:
    """Ignore Ctrl-C, drop API keys, and end with the parent: the queue would wait for ever."""
    for name in os.environ.keys() - plain_environment().keys():
        del os.environ[name]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Block pandas: PyArrow would import it at the first list, which takes 0.3 s.
    sys.modules.setdefault("pandas", None)  # type: ignore[arg-type]
    with suppress(ImportError, AttributeError):
        pa.array([])
    gc.freeze()  # so that garbage collection skips the parent's objects and the modules
    if (parent := multiprocessing.parent_process()) is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    multiprocessing.connection.wait([sentinel])
    os._exit(1)
