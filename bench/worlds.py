"""Build the mail to search: a synthetic world of any size, or a real archive.

`art-e ingest` reads it as a process of its own; then the stored mails are copied into the reference
design's file, so that both have the same mails.
"""

import io
import json
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from art_e.inbox.file import InboxFile
from bench.measure import run_process
from bench.reference import ReferenceMail, build
from data_pipeline.synthetic.world import WorldConfig, messages


class World(NamedTuple):
    """The same mails in both forms, and the seconds that each form took to build.

    `art-e ingest` parses the source; the reference only copies and indexes the stored mails.
    """

    name: str
    db: Path
    sqlite: Path
    mails: int
    build_seconds: dict[str, float]


def make_world(name: str, source: list[str], folder: Path) -> World:
    """Ingest `source` (with its options) in both forms into `folder`."""
    db, sqlite = folder / f"{name}.duckdb", folder / f"{name}.sqlite"
    command = [sys.executable, "-m", "art_e", "ingest", *source, "--db", str(db), "--json"]
    cost = run_process(command)
    stored = json.loads(cost.stdout)["stored"]
    world = copy_world(name, db, sqlite, cost.wall_seconds)
    if world.mails != stored:
        raise AssertionError(f"{stored} mails stored, {world.mails} copied")
    return world


def copy_world(name: str, db: Path, sqlite: Path, seconds: float) -> World:
    """Copy an inbox file, which took `seconds` to build, into the reference's form."""
    started = time.perf_counter()
    with InboxFile(db) as inbox_file:
        mails = build(sqlite, stored_mails(inbox_file))
    reference = time.perf_counter() - started
    return World(name, db, sqlite, mails, {"ours": seconds, "reference": reference})


def synthetic_archive(size: int, folder: Path) -> Path:
    """Write the raw messages of a synthetic world as a .tar in Enron's layout."""
    path = folder / f"messages-{size}.tar"
    with tarfile.open(path, "w") as tar:
        for number, message in enumerate(messages(WorldConfig(size=size))):
            entry = tarfile.TarInfo(f"maildir/owner-{number % 40:02d}/inbox/{number}.")
            entry.size = len(message.data)
            tar.addfile(entry, io.BytesIO(message.data))
    return path


def stored_mails(inbox_file: InboxFile) -> Iterator[ReferenceMail]:
    """Yield every mail of an inbox file in the reference's form, in order."""
    rows = inbox_file.execute(
        "SELECT message_id, subject, from_address, strftime(sent_at, '%Y-%m-%d %H:%M:%S'), body,"
        " source, to_recipients, cc_recipients, bcc_recipients FROM emails ORDER BY email_id"
    )
    while chunk := rows.fetchmany(1000):
        for row in chunk:
            recipients = [
                (party["address"], kind)
                for kind, parties in zip(("to", "cc", "bcc"), row[6:], strict=True)
                for party in parties
                if party["address"]
            ]
            yield ReferenceMail._make([*row[:6], recipients])
