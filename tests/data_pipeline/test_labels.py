"""Labels are read from mailboxes and shown to the owner only. Spam, trash and drafts are stored and
counted, but in inboxes only on request. The owner of mail is inferred."""

from pathlib import Path

import pytest

from art_e.inbox.file import InboxFile
from art_e.text import toml_table
from art_e.tools import Tools
from data_pipeline.ingest.labels import of_maildir, of_path
from data_pipeline.ingest.records import RawMessage
from tests.builders import WAIT_S, raw, run, search, table_rows
from tests.command_line import Run, json_of, the_error
from tests.formats import parsed, write_mbox
from tests.processes import at_terminal, press_keys

ME = "me@home.example"
LABELS = toml_table(__package__, "labels.toml")


def mail(number: int, labels: str | None, body: str, sender: str = "landlord") -> bytes:
    label = "" if labels is None else f"X-Gmail-Labels: {labels}\n"
    subject = "Minutes" if sender == "club" else "Warehouse lease"
    return (
        f"{label}Message-ID: <{number}@x.example>\nFrom: {sender}@x.example\nTo: {ME}\n"
        f"Date: {number} Mar 2024 09:00:00 +0000\nSubject: {subject}\n\n{body}\n"
    ).encode()


REAL = "The warehouse lease ends on March 31, 2026."
MAILS = [
    mail(1, "Inbox,Important", REAL),
    mail(2, "Spam,Unread", "The warehouse lease ends on May 2, 2024. Pay the lease now.", "scam"),
    mail(3, "=?UTF-8?Q?Ge=C3=B6ffnet,Papierkorb?=", "The lease ends on May 1, 1999."),
    mail(4, None, "Lease papers are in the drawer."),
    mail(5, "Drafts,Opened", "The warehouse lease ends some day, I think.", "me"),
    *(mail(number, None, f"Minutes of meeting {number}.", "club") for number in range(10, 22)),
]


@pytest.fixture
def takeout(tmp_path: Path) -> Path:
    return write_mbox(tmp_path, MAILS)


def ids_of(hits: list[dict[str, str]]) -> set[str]:
    return {each["message_id"] for each in hits}


def test_spam_trash_and_drafts_are_stored_but_left_out(art_e: Run, takeout: Path) -> None:
    ingested = art_e("ingest", takeout, "--owner", ME)
    assert "17  stored" in ingested.stdout
    assert "3  of these spam, trash or drafts" in ingested.stdout
    assert ids_of(json_of(art_e("search", "lease", "--json"))) == {"<1@x.example>", "<4@x.example>"}
    everything = {f"<{number}@x.example>" for number in range(1, 6)}
    assert ids_of(json_of(art_e("search", "lease", "--all", "--json"))) == everything
    assert "no mail 2@x.example" in the_error(art_e("read", "2@x.example"))
    assert "Pay the lease now" in art_e("read", "2@x.example", "--all").stdout
    listed = json_of(art_e("inboxes", "--json"))
    sizes = {each["address"]: each["emails"] for each in listed["inboxes"]}
    assert sizes == {ME: 14, "club@x.example": 12, "landlord@x.example": 2}
    assert listed["total"] == 3
    other = art_e("search", "lease", "--inbox", "scam@x.example")
    assert "no inbox 'scam@x.example'" in the_error(other)
    # Answers don't use spam, and only the owner sees labels.
    assert "Labels: important, inbox\n" in art_e("read", "1@x.example").stdout
    landlords = json_of(art_e("read", "1@x.example", "--inbox", "landlord@x.example", "--json"))
    assert "labels" not in landlords
    ask = ("ask", "When does the warehouse lease end?", "--json")
    assert ids_of(json_of(art_e(*ask))["passages"]) == {"<1@x.example>", "<4@x.example>"}
    assert "<2@x.example>" in ids_of(json_of(art_e(*ask, "--all"))["passages"])


def test_mail_kept_by_any_owner_is_not_junk(art_e: Run, tmp_path: Path) -> None:
    spam = mail(1, "Spam", REAL)
    boxes = [write_mbox(tmp_path, [spam]), write_mbox(tmp_path / "kept", [MAILS[0]])]
    for number, order in enumerate((boxes, boxes[::-1])):
        db = tmp_path / f"{number}.duckdb"
        art_e("ingest", order[0], "--owner", ME, "--db", db)
        report = json_of(art_e("ingest", order[1], "--append", "--owner", ME, "--db", db, "--json"))
        assert (report["stored"], report["duplicates"], report["junk"]) == (1, 1, 0)
    art_e("ingest", boxes[0], "--owner", ME)
    assert json_of(art_e("ingest", boxes[0], "--append", "--owner", ME, "--json"))["junk"] == 1


def test_labels_are_read_in_an_mbox_only() -> None:
    for headers, labels in LABELS["mbox"].items():
        data = f"From: a@x.example\n{headers}\n\nHi\n".encode()
        # In other mail anyone could have written them, so they don't count.
        mbox, other = (parsed(RawMessage("t", data, in_mbox=box)) for box in (True, False))
        assert (mbox.labels, mbox.junk) == (tuple(labels), bool({"trash", "drafts"} & set(labels)))
        assert (other.labels, other.junk) == ((), False)


def test_bulk_mail_is_recognised_by_its_headers() -> None:
    for headers, mailing_list, bulk in table_rows(__file__, "bulk.tsv"):
        data = f"From: a@x.example\n{headers.replace(' | ', chr(10))}\n\nHi\n".encode()
        mail = parsed(RawMessage("t", data))
        assert (mail.mailing_list, str(mail.bulk)) == (mailing_list, bulk), headers


def test_hits_are_marked_as_bulk(art_e: Run, home: Path, tmp_path: Path) -> None:
    """A copy addressed to the owner is personal, even if another came through a list."""
    listed = b"List-Id: Club <club.x.example>\n"
    mails = [
        listed + mail(1, None, "Lease one."), mail(2, "Category promotions", "Lease two."),
        mail(3, "Category updates", "Lease three."),
        *(head + mail(4, None, "Lease four.") for head in (listed, b"")),
    ]  # fmt: skip
    art_e("ingest", write_mbox(tmp_path, mails), "--owner", ME)

    def bulk(inbox: str) -> dict[str, bool]:
        hits = json_of(art_e("search", "lease", "--inbox", inbox, "--json"))
        return {each["message_id"][1]: each.get("bulk", False) for each in hits}

    assert bulk(ME) == {"1": True, "2": True, "3": False, "4": False}
    assert bulk("landlord@x.example") == {"1": True, "2": False, "3": False, "4": False}
    with InboxFile(home / "inbox.duckdb") as file:
        hits = run(Tools(file.open_inbox(ME)), search("lease"))["hits"]
    assert sorted("bulk" in hit for hit in hits) == [False, False, True, True]
    assert "List: Club <club.x.example>\n" in art_e("read", "4@x.example").stdout


def test_labels_of_maildir_and_program_folders() -> None:
    for path, labels in LABELS["maildir"].items():
        folder, _, file = path.rpartition("/")
        assert of_maildir(folder, file) == tuple(labels)
    for path, labels in LABELS["program"].items():
        assert of_path(path) == tuple(labels)


def test_the_likeliest_owner_is_inferred(art_e: Run, takeout: Path, tmp_path: Path) -> None:
    # To a list with the member me@home.example; a word in another header is not an address.
    notes = ["Delivered-To: <Ann@home.example>"] * 5
    notes += ["X-Original-To: other@home.example", "Delivered-To: nobody"]
    mails = [f"{note}\n".encode() + mail(n, None, f"Hi {n}.") for n, note in enumerate(notes, 1)]
    ingested = art_e("ingest", write_mbox(tmp_path / "delivered", mails))
    assert "owner: ann@home.example (5 mails); if that is wrong: --owner" in ingested.stderr
    assert len(json_of(art_e("search", "hi", "--json"))) == 7
    assert f"owner: {ME} (17 mails)" in art_e("ingest", takeout, "--replace").stderr
    # A typo is reported; without a majority there is no owner.
    wrong = art_e("ingest", takeout, "--replace", "--owner", "me@hoem.example")
    assert f"owner: me@hoem.example; most mail belongs to {ME} (17 mails), club@" in wrong.stderr
    mails = [raw(f"<{n}@t>", sender=f"a{n}@x.example", to=f"b{n}@x.example").data for n in range(3)]
    nobody = art_e("ingest", write_mbox(tmp_path / "many", mails), "--replace")
    assert "no owner: no address has most of the mail" in nobody.stderr
    assert "no single owner" in the_error(art_e("search", "hi"))


@pytest.mark.parametrize(("key", "owners"), [(b"y", [ME]), (b"n", [])])
def test_owner_is_confirmed(key: bytes, owners: list[str], takeout: Path, tmp_path: Path) -> None:
    db = tmp_path / "mine.duckdb"
    with at_terminal(("ingest", takeout, "--db", db), {"TERM": "dumb"}) as (process, terminal):
        press_keys(terminal, [key], "[y]es [n]o", "next:")
        assert process.wait(WAIT_S) == 0
    with InboxFile(db) as file:
        assert file.owners() == owners
