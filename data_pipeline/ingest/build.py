"""Builds an inbox file from sources of mail: `ingest()` is what `art-e ingest` runs.

    sources.py -> batch.py on all cores -> InboxBuild -> file

The file is complete or missing: an interrupt or a kill leaves the path as it was before. Adding
to a file rebuilds it from its old mail and the new, so that one run or several give the same
inbox."""

import contextlib
import itertools
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import duckdb
from pydantic import TypeAdapter

from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.inbox.schema import SCHEMA_VERSION, macros_sql, statements, tables_sql
from art_e.inbox.tokenizer import TOKENIZER
from art_e.storage import home, locked
from art_e.text import digest
from data_pipeline.ingest.batch import BatchTables, Job, Rules, process_all
from data_pipeline.ingest.records import ParsedEmail, RawMessage

_BATCH_MESSAGES = 2000
_BATCH_BYTES = 8_000_000
# DuckDB's memory while workers parse, and after they have ended; beyond it DuckDB uses the disk.
_STAGING_MEMORY, _MERGING_MEMORY = "160MB", "350MB"
_MAX_THREADS = 4  # DuckDB's threads share its memory
# A lookup decompresses whole row groups; DuckDB's 122,880 rows make reading twice as slow.
_ROW_GROUP_SIZE = 4096
_STORED = TypeAdapter(ParsedEmail)


class Source(NamedTuple):
    """Messages to read, and the rules for them."""

    messages: Iterable[RawMessage | ParsedEmail]
    rules: Rules


class LikelyOwner(NamedTuple):
    """An address that may own the mail; `mails`, a `share` of all, are the evidence for it."""

    address: str
    mails: int
    share: float


@dataclass(frozen=True, slots=True)
class IngestReport:
    """The outcome of every message. `counts` are those of the whole file."""

    db: Path
    counts: dict[str, Any]
    added_read: int
    added_stored: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return the report as `art-e ingest --json` prints it; the rate is of this run."""
        added = {"read": self.added_read, "stored": self.added_stored}
        rate = round(self.added_read / self.seconds, 1)
        speed = {"seconds": round(self.seconds, 3), "messages_per_second": rate}
        return {"db": str(self.db), **self.counts, "added": added, **speed}


def ingest(
    sources: Sequence[Source], db: Path, *,
    choose_owner: Callable[[list[LikelyOwner]], str | None] = lambda _: None, append: bool = False,
    limit: int | None = None, on_progress: Callable[[int], None] = lambda _: None,
) -> IngestReport:  # fmt: skip
    """Read all `sources`, or their first `limit` messages, into the inbox file `db`. `choose_owner`
    gets the likely owners of the new mail, the likeliest first, and returns the one whose inbox
    holds all of it. `on_progress` gets the number of messages read since the last call. Raises
    `UserError` for an unreadable source, without a message, and during another ingest."""
    started = time.perf_counter()
    db.parent.mkdir(parents=True, exist_ok=True)
    read = 0
    busy = f"another ingest is writing {db}; wait for it to end"
    with locked(lock_of(db), busy), contextlib.ExitStack() as opened:
        people = _people_in(db)
        old = opened.enter_context(InboxFile(db)) if append and db.exists() else None
        old_counts = {"read": 0, "stored": 0} if old is None else old.counts
        build = opened.enter_context(InboxBuild(db))
        jobs = _jobs(sources, limit)
        if old is not None:
            jobs = itertools.chain(_jobs([Source(_stored(old), Rules())], None), jobs)
            build.carry_over(old.path)
        for job, batches in process_all(jobs, build.folder):
            for batch in batches:
                build.add(batch, stored=isinstance(job.items[0], ParsedEmail))
            new = sum(isinstance(item, RawMessage) and item.is_mail for item in job.items)
            read += new
            on_progress(new)
        if read == 0:
            raise UserError("no message found in the source; is it the right path or --format?")
        owner = choose_owner(build.candidates())
        counts = build.finish(read + old_counts["read"], owner, people)
    seconds = time.perf_counter() - started
    return IngestReport(db, counts, read, counts["stored"] - old_counts["stored"], seconds)


def synthetic_file(key: str, mails: Callable[[], Iterable[RawMessage]]) -> Path:
    """Return the inbox file of the synthetic mail that `key` describes; build it if missing."""
    # Files of an earlier schema can't be opened.
    path = home() / "worlds" / f"{digest(f'{SCHEMA_VERSION}/{key}')}.duckdb"
    path.parent.mkdir(parents=True, exist_ok=True)
    # One of several concurrent runs builds the file, and the others wait.
    with locked(path.with_name(f"{path.name}.making")):
        if not path.exists():
            ingest([Source(mails(), Rules())], path)
    return path


def target_of(path: Path) -> Path:
    """Return `path`, or the target of a symlink: the target is replaced, not the link."""
    return path.resolve() if path.is_symlink() else path


def lock_of(db: Path) -> Path:
    """Return the lock file of processes that write `db`."""
    return db.with_name(f"{db.name}.lock")


def _people_in(db: Path) -> list[tuple[str, str]]:
    """Return pairs of address and person from a file, to carry over when it is rebuilt."""
    with contextlib.suppress(UserError), InboxFile(db) as old:
        return [(each, person) for person, listed in old.people().items() for each in listed]
    return []


def _jobs(sources: Sequence[Source], limit: int | None) -> Iterator[Job]:
    pairs = ((source.rules, message) for source in sources for message in source.messages)
    for rules, group in itertools.groupby(itertools.islice(pairs, limit), lambda pair: pair[0]):
        batch: list[RawMessage | ParsedEmail] = []
        size = 0
        for _, message in group:
            batch.append(message)
            size += message.size
            if len(batch) >= _BATCH_MESSAGES or size >= _BATCH_BYTES:
                yield Job(batch, rules)
                batch, size = [], 0
        if batch:
            yield Job(batch, rules)


def _sql(name: str, **values: object) -> str:
    return statements(Path(__file__).with_name("queries.sql"))[name].substitute(values)


def _stored(old: InboxFile) -> Iterator[ParsedEmail]:
    """Yield the mails of the file being added to, read in parts of limited size."""
    for span in old.execute(_sql("parts"), [_BATCH_BYTES]).fetchall():
        rows = old.execute(_sql("stored"), list(span)).fetchall()
        yield from (_STORED.validate_python(fields) for (fields,) in rows)


class InboxBuild:
    """An inbox file that is built in a folder next to its path; used as a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Remove what killed builds left. The caller holds the file's lock, so no build is running.
        partial = re.compile(re.escape(f".{path.name}.") + r"\d+\.partial")
        for folder in path.parent.iterdir():
            if partial.fullmatch(folder.name):
                shutil.rmtree(folder)
        self.folder = path.parent / f".{path.name}.{os.getpid()}.partial"
        self._rows = self._stored = self._terms = 0

    def __enter__(self) -> Self:
        threads = min(os.cpu_count() or 1, _MAX_THREADS)
        spill = {"memory_limit": _STAGING_MEMORY, "temp_directory": str(self.folder / "spill")}
        options = {"threads": threads, "autoinstall_known_extensions": False}
        self._connection = duckdb.connect(config={**spill, **options})
        self._run("ATTACH ':memory:' AS staging")
        self._run_file("staging.sql")
        # Only the user may read the mail, whatever the process's umask is.
        self.folder.mkdir(parents=True, mode=0o700)
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        shutil.rmtree(self.folder)

    def add(self, batch: BatchTables, *, stored: bool = False) -> None:
        """Add a worker's tables and renumber their rows; mails already `stored` must come first."""
        first = {"row": self._rows, "term": self._terms}
        for name, table in batch._asdict().items():
            if not table.num_rows:
                continue
            moved = [f"{key} + {first[key]} AS {key}" for key in table.column_names if key in first]
            replaced = f"REPLACE ({', '.join(moved)})" if moved else ""
            self._connection.register("incoming", table)
            self._run(f"INSERT INTO staging.{name} BY NAME SELECT * {replaced} FROM incoming")
            self._connection.unregister("incoming")
        self._rows += batch.mails.num_rows
        self._terms += batch.stems.num_rows
        self._stored = self._rows if stored else self._stored

    def carry_over(self, old: Path) -> None:
        """Copy the duplicates, skipped mails and attached files of the file being added to."""
        self._attach(old, "old (READ_ONLY)")
        self._run(_sql("carry_over"))

    def candidates(self) -> list[LikelyOwner]:
        """Return the likely owners of the new mail: the addresses that servers delivered most of it
        to, or else those that are sender or recipient of most of it."""
        for source in ("delivered", "parties"):
            query = _sql("candidates", source=_sql(source), first=self._stored)
            if rows := self._run(query).fetchall():
                break
        return list(map(LikelyOwner._make, rows))

    def finish(self, read: int, owner: str | None, people: list[tuple[str, str]]) -> dict[str, Any]:
        """Merge the copies, write the file, mark it complete and move it into place; return its
        counts. `read` is the number of messages that the file accounts for, `owner` the address
        whose inbox gets all the new mail; `people` are pairs of an address and its person."""
        if owner is not None:
            new = f"row >= {self._stored} AND owner = ''"
            self._run(f"UPDATE staging.mails SET owner = ? WHERE {new}", [owner])
        self._run(f"SET memory_limit = '{_MERGING_MEMORY}'")
        for row in people:
            self._run("INSERT INTO staging.people VALUES (?, ?)", list(row))
        self._run_file("merge.sql")
        new_file = self.folder / "inbox.duckdb"
        self._attach(new_file, f"inbox (ROW_GROUP_SIZE {_ROW_GROUP_SIZE})")
        self._run("USE inbox")
        self._run(tables_sql())
        with self._connection.cursor() as other, ThreadPoolExecutor(1) as thread:
            try:
                index = thread.submit(self._run_file, "index.sql", other)
                self._run_file("load.sql")
                self._run(macros_sql())
                index.result()
            finally:
                other.interrupt()
        counts = self._counts(read)
        self._run(_sql("meta"), [SCHEMA_VERSION, TOKENIZER, json.dumps(counts)])
        self._run("CHECKPOINT inbox")
        self._run("INSERT INTO meta VALUES ('complete', 'true')")  # once all else is on disk
        self._run("CHECKPOINT inbox")
        self._run("USE memory")
        self._run("DETACH inbox")
        put_in_place(new_file, self.path)
        return counts

    def _counts(self, read: int) -> dict[str, Any]:
        def count(table: str) -> int:
            return int(self._run(f"SELECT count(*) FROM inbox.{table}").fetchall()[0][0])

        stages = ("filtered", "quarantined", "cut", "not_mail")
        sql = "SELECT stage, reason, count(*) FROM skipped GROUP BY ALL ORDER BY ALL"
        rows = self._run(sql).fetchall()
        skipped = {stage: {row[1]: row[2] for row in rows if row[0] == stage} for stage in stages}
        stored, duplicates = count("emails"), count("aliases")
        counts = {"read": read, "stored": stored, "duplicates": duplicates, **skipped}
        not_stored = (*skipped["filtered"].values(), *skipped["quarantined"].values())
        accounted = stored + duplicates + sum(not_stored)
        if accounted != read:
            raise AssertionError(f"{read} messages read, {accounted} accounted for: {counts}")
        inboxes = count("addresses WHERE emails > 0")
        files = "SELECT unread, count(*) FROM inbox.files WHERE part = 0 GROUP BY ALL ORDER BY ALL"
        unread = dict(self._run(files).fetchall())
        attachments = {"attachments": sum(unread.values()), "unread": unread}
        unread.pop("", None)
        return {**counts, "junk": count("emails WHERE junk"), "inboxes": inboxes, **attachments}

    def _attach(self, path: Path, name: str) -> None:
        quoted = str(path).replace("'", "''")
        self._run(f"ATTACH '{quoted}' AS {name}")

    def _run_file(self, name: str, cursor: duckdb.DuckDBPyConnection | None = None) -> None:
        sql = Path(__file__).with_name(name).read_text(encoding="utf-8")
        (cursor or self._connection).execute(sql)

    def _run(self, sql: str, parameters: object = None) -> duckdb.DuckDBPyConnection:
        return self._connection.execute(sql, parameters)


def put_in_place(new: Path, path: Path) -> None:
    """Move `new` to `path` once it is on the disk; only its owner may read it."""
    new.chmod(0o600)
    _sync(new)  # before the rename, or a crash could leave an empty file under the name
    new.replace(path)
    _sync(path.parent)  # the rename itself


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
