"""People with several addresses: one inbox holds all their mail, also after another ingest."""

from pathlib import Path

import pytest

from art_e.inbox.file import InboxFile
from tests.builders import date_header, make_inbox, message_ids, raw
from tests.command_line import Run, done, json_of
from tests.queries import plain_connection

WORK, HOME = "ann.lee@work.example", "ann@home.example"
SISTER, BOB = "sue@x.example", "bob@x.example"
MAILS = [
    raw("<1@t>", subject="Lease", sender=BOB, to=f"Ann Lee <{WORK}>", date=date_header(1)),
    raw("<2@t>", subject="Lease", sender=f'"Lee, Ann M" <{HOME}>', to=BOB, date=date_header(2)),
    raw("<3@t>", subject="Lease", sender=f"Sue Lee <{SISTER}>", to=BOB, date=date_header(3)),
    raw("<4@t>", subject="Both", sender=f"Ann Lee <{WORK}>", to=HOME, date=date_header(4)),
]  # fmt: skip


@pytest.fixture
def db(tmp_path: Path) -> Path:
    path = tmp_path / "inbox.duckdb"
    make_inbox(path, MAILS)
    return path


def ids_in(db: Path, address: str) -> list[str]:
    with InboxFile(db) as file:
        return message_ids(file.open_inbox(address).search([]))


def test_one_inbox_holds_the_mail_of_all_addresses(db: Path, art_e: Run) -> None:
    assert ids_in(db, WORK) == ["<4@t>", "<1@t>"] and ids_in(db, HOME) == ["<4@t>", "<2@t>"]
    merged = json_of(art_e("people", "merge", WORK, HOME.upper(), "--db", db, "--json"))
    assert merged == {"person": WORK, "addresses": [WORK, HOME], "emails": 3}
    everything = ["<4@t>", "<2@t>", "<1@t>"]
    assert ids_in(db, WORK) == ids_in(db, HOME) == everything
    with InboxFile(db) as file:
        assert [each.address for each in file.inboxes()] == [WORK, BOB, SISTER]
        assert file.inboxes(1) == [(WORK, 3, 2, 2)]
        inbox = file.open_inbox(HOME)
        assert set(message_ids(inbox.search(["lease"]))) == {"<1@t>", "<2@t>"}
        # Two addresses of one person don't make two mails a thread.
        assert inbox.thread_sizes(["<1@t>", "<2@t>"]) == [1, 1]
    with plain_connection(db) as shell:
        rows = shell.execute("SELECT message_id FROM search_inbox(?, [])", [HOME]).fetchall()
    assert [each for (each,) in rows] == everything
    assert db.stat().st_mode & 0o077 == 0 and not list(db.parent.glob(".*partial"))
    # A person can be merged again, and split.
    more = json_of(art_e("people", "merge", SISTER, HOME, "--db", db, "--json"))
    assert more == {"person": SISTER, "addresses": [SISTER, HOME, WORK], "emails": 4}
    listed = json_of(art_e("people", "list", "--db", db, "--json"))
    assert listed == {"people": {SISTER: [SISTER, WORK, HOME]}}
    art_e("people", "split", WORK, "--db", db)
    assert ids_in(db, WORK) == ["<4@t>", "<1@t>"] and ids_in(db, SISTER) == ["<3@t>"]


@pytest.mark.parametrize("option", ["--append", "--replace"])
def test_people_survive_another_ingest(db: Path, art_e: Run, option: str) -> None:
    art_e("people", "merge", WORK, HOME, "--db", db)
    mail = raw("<5@t>", sender=f"Ann <{HOME}>", to=WORK, date=date_header(5))
    (db.parent / "new.eml").write_bytes(mail.data)
    done(art_e("ingest", db.parent / "new.eml", "--db", db, option, "--owner", HOME))
    old = ["<4@t>", "<2@t>", "<1@t>"] if option == "--append" else []
    assert ids_in(db, WORK) == ["<5@t>", *old]


def test_ingest_suggests_merges_for_the_owner(tmp_path: Path, art_e: Run) -> None:
    for number, mail in enumerate(MAILS):
        (tmp_path / f"{number}.eml").write_bytes(mail.data)
    ingested = art_e("ingest", tmp_path, "--db", tmp_path / "own.duckdb", "--owner", WORK)
    assert f"art-e people merge {WORK} {HOME}" in ingested.stderr
    assert SISTER not in ingested.stderr
