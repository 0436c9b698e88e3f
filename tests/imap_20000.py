"""Reads an account of 20,000 messages and syncs it, over connections that are cut.

    python -m tests.imap_20000        takes some minutes; needs Dovecot

It prints the times, and asserts that nothing is lost or read twice.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from art_e.inbox.file import InboxFile
from data_pipeline.ingest.imap import load_state, state_file
from data_pipeline.synthetic.world import WorldConfig, messages
from tests.dovecot import PASSWORD, USER, Server, Wire, dovecot

SIZE = 20_000
NEW, FLAGGED, DELETED = 100, 50, 50


def put(server: Server, mails: list[bytes]) -> None:
    started = time.perf_counter()
    with server.client() as client:
        for mail in mails:
            client.append("INBOX", r"(\Seen)", "", mail)
    print(f"{len(mails):,} messages delivered in {time.perf_counter() - started:.1f} s")


def art_e(*arguments: object, cuts: int) -> dict[str, Any]:
    """What a command printed as JSON, after so many cuts."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "art_e", *map(str, arguments), "--json"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stderr.count("is cut") == cuts
    print(f"art-e {arguments[0]}: {time.perf_counter() - started:.1f} s")
    print("".join(f"  {line}\n" for line in [*run.stderr.splitlines(), run.stdout]))
    found = json.loads(run.stdout)
    assert isinstance(found, dict)
    return found


def check(db: Path, mails: list[bytes], flagged: set[int]) -> None:
    """Assert that these mails are in the spool, and their number in the inbox file."""
    state = load_state(state_file(db))
    assert state is not None
    stars = {file: "starred" in labels for file, _, (labels, _) in state.files()}
    assert sorted(file.read_bytes() for file in stars) == sorted(mails)
    assert {file.read_bytes() for file, star in stars.items() if star} == {
        mails[at] for at in flagged
    }
    on_disk = {each for each in (db.parent / "imap").rglob("*/*/*") if each.is_file()}
    assert on_disk == set(stars)
    with InboxFile(db) as file:
        assert file.counts["read"] == len(mails)


def main() -> None:
    made = [each.data for each in messages(WorldConfig(size=SIZE + NEW))]
    mails = [each.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n") for each in made]
    with tempfile.TemporaryDirectory() as home, dovecot() as server:
        os.environ |= {"ART_E_HOME": home, "ART_E_IMAP_PASSWORD": PASSWORD}
        db, wire = Path(home) / "inbox.duckdb", Wire(server.port)
        put(server, mails[:SIZE])
        # In the middle of the messages.
        wire.cuts = [sum(map(len, mails[:SIZE])) // 2]
        report = art_e("ingest", f"imap://{USER}@127.0.0.1:{wire.port}", cuts=1)
        assert report["read"] == SIZE
        check(db, mails[:SIZE], set())
        put(server, mails[SIZE:])
        with server.client() as client:
            client.store(f"{DELETED + 1}:{DELETED + FLAGGED}", "+FLAGS", r"(\Flagged)")
            client.store(f"1:{DELETED}", "+FLAGS", r"(\Deleted)")
            client.expunge()
        # In the middle of the list of flags, then amid the new messages.
        listed = sum(
            len(f"* {SIZE} FETCH (UID {SIZE} FLAGS (\\Seen) RFC822.SIZE 999)..") for _ in mails
        )
        wire.cuts = [listed // 2, listed + sum(map(len, mails[SIZE:])) // 2]
        changes = art_e("sync", cuts=2)
        assert (changes["new"], changes["changed"], changes["deleted"]) == (NEW, FLAGGED, DELETED)
        check(db, mails[DELETED:], set(range(FLAGGED)))
        nothing = {"new": 0, "changed": 0, "deleted": 0, "ingest": None}
        assert art_e("sync", cuts=0) == nothing
        wire.close()
        print("nothing lost, nothing twice")


if __name__ == "__main__":
    main()
