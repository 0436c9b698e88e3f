"""The mail that is searched: the synthetic world of any size, or a real archive.

Each is ingested once by `art-e ingest` as a whole process, and its stored mails
are copied into the reference design's file, so that both hold the same mails.
Files are kept in a cache folder under a name that changes with the code that
writes them.
"""

import hashlib
import io
import json
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import art_e.inbox
import data_pipeline
from art_e.inbox.file import InboxFile
from data_pipeline.synthetic.world import WorldConfig, messages
from tests.benchmarks.measure import run_process
from tests.benchmarks.reference import ReferenceMail, build

CACHE = Path("runs/bench/cache")

_CHUNK = 1000
# What of art_e.inbox decides what a file holds (the rest reads it).
_WRITERS = ("tokenizer.py", "schema.py", "schema.sql", "macros.sql")


@dataclass(frozen=True, slots=True)
class World:
    """One set of mails in both forms, and what each took to make.

    `ingest` is of `art-e ingest` from the source (parsing too); `reference` of
    copying the stored mails into SQLite row by row and indexing them (no parsing).
    """

    name: str
    db: Path
    sqlite: Path
    mails: int
    ingest: dict[str, float]
    reference: dict[str, float]

    def facts(self) -> dict[str, Any]:
        """The world as a result records it, without paths."""
        return {
            "world": self.name,
            "mails": self.mails,
            "file_mb": {"ours": _size_mb(self.db), "reference": _size_mb(self.sqlite)},
            "build": {"ours": self.ingest, "reference": self.reference},
        }


def synthetic_world(size: int, cache: Path = CACHE) -> World:
    """The default seed's world of `size` mails."""
    return _world(f"synthetic-{size}", [f"synthetic:{size}"], "", cache)


def archive_world(archive: Path, cache: Path = CACHE) -> World:
    """A real archive in Enron's layout, under the rules for it."""
    stat = archive.stat()
    stamp = f"{archive.resolve()} {stat.st_size} {stat.st_mtime_ns}"
    return _world("real-archive", [str(archive), "--format", "enron"], stamp, cache)


def synthetic_archive(size: int, cache: Path = CACHE) -> Path:
    """The world's raw messages as a .tar in Enron's layout."""
    path = cache / f"messages-{size}-{_code_digest()}.tar"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        for stale in cache.glob(f"messages-{size}-*"):
            stale.unlink()
        partial = path.with_suffix(".partial")
        with tarfile.open(partial, "w") as tar:
            for number, message in enumerate(messages(WorldConfig(size=size))):
                entry = tarfile.TarInfo(f"maildir/owner-{number % 40:02d}/inbox/{number}.")
                entry.size = len(message.data)
                tar.addfile(entry, io.BytesIO(message.data))
        partial.replace(path)
    return path


def _world(name: str, source: list[str], stamp: str, cache: Path) -> World:
    cache.mkdir(parents=True, exist_ok=True)
    mark = hashlib.blake2b(f"{stamp} {_code_digest()}".encode(), digest_size=6).hexdigest()
    db, sqlite = cache / f"{name}-{mark}.duckdb", cache / f"{name}-{mark}.sqlite"
    record = cache / f"{name}-{mark}.json"
    if not record.exists():
        for stale in cache.glob(f"{name}-*"):
            stale.unlink()
        cost = run_process(
            [sys.executable, "-m", "art_e", "ingest", *source, "--db", str(db), "--json"]
        )
        report = json.loads(cost.stdout)
        with InboxFile(db) as inbox_file:
            copied = build(sqlite, stored_mails(inbox_file))
        if copied.mails != report["stored"]:
            raise AssertionError(f"{report['stored']} mails stored, {copied.mails} copied")
        facts = {
            "mails": copied.mails,
            "ingest": {
                "read": report["read"],
                "seconds": cost.wall_seconds,
                "cpu_seconds": cost.cpu_seconds,
                "peak_mb": cost.peak_mb,
            },
            "reference": {
                "seconds": copied.rows_seconds + copied.index_seconds,
                "rows_seconds": copied.rows_seconds,
                "index_seconds": copied.index_seconds,
            },
        }
        record.write_text(json.dumps(facts), encoding="utf-8")
    made = json.loads(record.read_text(encoding="utf-8"))
    return World(name, db, sqlite, made["mails"], made["ingest"], made["reference"])


def stored_mails(inbox_file: InboxFile) -> Iterator[ReferenceMail]:
    """Every mail of an inbox file in the reference's form, in the file's order."""
    rows = inbox_file.execute(
        "SELECT message_id, subject, from_address, sent_at, body, source,"
        " to_recipients, cc_recipients, bcc_recipients FROM emails ORDER BY email_id"
    )
    while chunk := rows.fetchmany(_CHUNK):
        for message_id, subject, sender, sent_at, body, source, *listed in chunk:
            yield ReferenceMail(
                message_id,
                subject,
                sender,
                None if sent_at is None else sent_at.strftime("%Y-%m-%d %H:%M:%S"),
                body,
                source,
                [
                    (each["address"], kind)
                    for kind, recipients in zip(("to", "cc", "bcc"), listed, strict=True)
                    for each in recipients
                    if each["address"]
                ],
            )


def _code_digest() -> str:
    """Changes with the code that decides what a file holds."""
    pipeline = Path(data_pipeline.__file__).parent
    inbox = Path(art_e.inbox.__file__).parent
    files = [
        *pipeline.rglob("*.py"),
        *pipeline.rglob("*.sql"),
        *(inbox / each for each in _WRITERS),
    ]
    digest = hashlib.blake2b(digest_size=6)
    for file in sorted(files):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _size_mb(path: Path) -> float:
    return path.stat().st_size / 1024 / 1024
