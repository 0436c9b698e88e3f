"""Opening an inbox file: what is refused and how, its inboxes, owners and counts."""

import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import duckdb
import pytest

from art_e.inbox import file as inbox_file
from art_e.inbox.file import InboxFile, InboxSummary
from art_e.inbox.inbox import Inbox
from art_e.inbox.mail import Hit
from tests.builders import BOB, make_inbox, message_ids, new_file, raw, the_error
from tests.queries import material


@pytest.fixture
def db(tmp_path: Path) -> Path:
    """Make a file of three mails: two from Ann, one to a list that was imported for Me."""
    path = tmp_path / "inbox.duckdb"
    mails = [
        raw("<1@t>", to="bob@test.example, ann@test.example"),
        raw("<2@t>", subject="Two", to="bob@test.example", cc="Cleo <cleo@test.example>"),
        raw("<3@t>", subject="Three", sender="bob@test.example", to="list@test.example"),
    ]
    make_inbox(path, mails)
    make_inbox(path, [raw("<4@t>", subject="Four")], owner="me@test.example", append=True)
    return path


def change(statement: str, path: Path) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute(statement)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (Path.unlink, "no inbox file"),
        (lambda path: path.write_bytes(b"mail " * 5_000), "can't be opened"),
        (lambda path: path.write_bytes(path.read_bytes()[:9_000]), "can't be opened"),
        (partial(change, "DELETE FROM meta WHERE key = 'complete'"), "not a complete inbox file"),
        (partial(change, "UPDATE meta SET value = '0' WHERE key = 'schema_version'"), "of this v"),
        (partial(change, "UPDATE meta SET value = '0' WHERE key = 'tokenizer'"), "of this version"),
    ],
)
def test_a_damaged_file_is_refused(db: Path, spoil: Callable[[Path], object], why: str) -> None:
    spoil(db)
    message = the_error(InboxFile, db)
    assert why in message and f"with: art-e ingest SOURCE --db {db}" in message
    assert message.endswith("--replace") is db.exists()


def test_inboxes_are_counted_by_role(db: Path) -> None:
    with InboxFile(db) as file:
        assert file.inboxes() == [
            InboxSummary("me@test.example", emails=1, sent=0, received=0),
            InboxSummary("bob@test.example", emails=4, sent=1, received=3),
            InboxSummary("ann@test.example", emails=3, sent=3, received=1),
            InboxSummary("cleo@test.example", emails=1, sent=0, received=1),
            InboxSummary("list@test.example", emails=1, sent=0, received=1),
        ]
        assert file.inboxes(limit=2) == file.inboxes()[:2]
        for summary in file.inboxes():
            assert len(file.open_inbox(summary.address)) == summary.emails
        assert file.owners() == ["me@test.example"]
        assert message_ids(file.open_inbox(" Me@TEST.example").search([])) == ["<4@t>"]


def test_an_unknown_address_suggests_the_nearest(db: Path) -> None:
    nearest = {"bop@test.example": "bob@", "cleo@test.exmaple": "cleo@", "x" * 100_000: ""}
    with InboxFile(db) as file:
        for address, suggested in (nearest | {"\x1b[31m\n\ud800'; --": ""}).items():
            message = the_error(file.open_inbox, address)
            assert re.match(f"no inbox .*; nearest: {suggested}", message)
            assert "art-e inboxes" in message and len(message) < 1_000
            assert not re.search(r"[\x1b\ud800]", message)


def test_mail_in_memory_is_bounded(world: InboxFile, monkeypatch: pytest.MonkeyPatch) -> None:
    with InboxFile(world.path) as file:
        addresses = [each.address for each in file.inboxes(limit=6)]
        inboxes = [file.open_inbox(address) for address in addresses]

        def bytes_after_searches() -> int:
            for inbox in inboxes:
                inbox.search(["the"])
            return file.cached_bytes

        _, few, everything = (bytes_after_searches() for _ in range(3))
        # Two searches read what they need, the third one all mail.
        assert few < everything / 10
        monkeypatch.setattr(inbox_file, "CACHE_BYTES", everything // 2)
        file.open_inbox(addresses[-1])
        assert file.cached_bytes <= everything // 2
        # What was let go is still whole for those who have it open.
        assert inboxes[0].search([]) == file.open_inbox(addresses[0]).search([])


def test_eight_threads_may_share_an_inbox(world: InboxFile) -> None:
    words = material(world).words
    address = world.inboxes(limit=1)[0].address
    barrier = threading.Barrier(8)

    def search(inbox: Inbox) -> list[list[Hit]]:
        barrier.wait()
        return [inbox.search(words[n : n + 3]) for n in range(100)]

    # Eight threads fill the caches of one inbox at once, then of one each.
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(search, [world.open_inbox(address)] * 8))
        assert answers == list(pool.map(search, [world.open_inbox(address) for _ in range(8)]))


def test_reader_keeps_the_file_that_it_opened(tmp_path: Path) -> None:
    db = tmp_path / "inbox.duckdb"
    with new_file(db, [raw(f"<old{n}@t>", subject=f"Barley {n}") for n in range(50)]) as old:
        inbox = old.open_inbox(BOB)
        before = inbox.search(["barley"])
        # Who opens the path then gets the new file, though the old is open in this process.
        with new_file(db, [raw(f"<new{n}@t>", subject=f"Oats {n}") for n in range(50)]) as new:
            later = new.open_inbox(BOB)
            assert (len(later.search(["oats"])), later.search(["barley"])) == (10, [])
        assert inbox.search(["barley"]) == old.open_inbox(BOB).search(["barley"]) == before != []
        assert inbox.search(["oats"]) == []
        assert inbox.read("<old7@t>") is not None
