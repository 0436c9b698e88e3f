"""Gmail's spam and trash: stored, counted, and in nobody's inbox unless they are asked for."""

from pathlib import Path

import pytest

from tests.command_line import Run, json_of, the_error
from tests.formats import write_mbox

ME = "me@home.example"


def mail(number: int, labels: str | None, body: str, sender: str = "landlord") -> bytes:
    head = [] if labels is None else [f"X-Gmail-Labels: {labels}"]
    head += [
        f"Message-ID: <{number}@x.example>",
        f"From: {sender}@x.example",
        f"To: {ME}",
        f"Date: {number} Mar 2024 09:00:00 +0000",
        f"Subject: {'Minutes' if sender == 'club' else 'Warehouse lease'}",
    ]
    return ("\n".join(head) + f"\n\n{body}\n").encode()


REAL = "The warehouse lease ends on March 31, 2026."
SPAM = "The warehouse lease ends on May 2, 2024. Pay the lease now."
MAILS = [
    mail(1, "Inbox,Important", REAL),
    mail(2, "Spam,Unread", SPAM, "scam"),
    mail(3, "=?UTF-8?Q?Ge=C3=B6ffnet,Papierkorb?=", "The lease ends on May 1, 1999."),
    mail(4, None, "Lease papers are in the drawer."),
    *(mail(number, None, f"Minutes of meeting {number}.", "club") for number in range(10, 22)),
]


@pytest.fixture
def takeout(tmp_path: Path) -> Path:
    return write_mbox(tmp_path, MAILS)


def found(hits: list[dict[str, str]]) -> set[str]:
    return {each["message_id"] for each in hits}


def test_they_are_stored_counted_and_left_out(art_e: Run, takeout: Path) -> None:
    shown = art_e("ingest", takeout, "--owner", ME)
    assert "16  stored" in shown.stdout
    assert "2  of these spam or trash" in shown.stdout
    assert found(json_of(art_e("search", "lease", "--json"))) == {"<1@x.example>", "<4@x.example>"}
    assert found(json_of(art_e("search", "lease", "--all", "--json"))) == {
        f"<{number}@x.example>" for number in (1, 2, 3, 4)
    }
    assert "no mail 2@x.example" in the_error(art_e("read", "2@x.example"))
    assert "Pay the lease now" in art_e("read", "2@x.example", "--all").stdout
    listed = json_of(art_e("inboxes", "--json"))
    sizes = {each["address"]: each["emails"] for each in listed["inboxes"]}
    assert sizes == {ME: 14, "club@x.example": 12, "landlord@x.example": 2}
    assert listed["total"] == 3
    other = art_e("search", "lease", "--inbox", "scam@x.example")
    assert "no inbox 'scam@x.example'" in the_error(other)


def test_no_question_is_answered_from_spam(art_e: Run, takeout: Path) -> None:
    art_e("ingest", takeout, "--owner", ME)
    shown = json_of(art_e("ask", "When does the warehouse lease end?", "--json"))["passages"]
    assert found(shown) == {"<1@x.example>", "<4@x.example>"}
    assert shown[0]["text"] == REAL
    shown = json_of(art_e("ask", "When does the warehouse lease end?", "--all", "--json"))
    assert "<2@x.example>" in found(shown["passages"])


def test_a_mail_that_anyone_keeps_is_no_junk_in_whatever_order_it_comes(
    art_e: Run, tmp_path: Path
) -> None:
    spam = mail(1, "Spam", REAL)
    (tmp_path / "kept").mkdir()
    boxes = [write_mbox(tmp_path, [spam]), write_mbox(tmp_path / "kept", [MAILS[0]])]
    for number, order in enumerate((boxes, boxes[::-1])):
        db = tmp_path / f"{number}.duckdb"
        art_e("ingest", order[0], "--owner", ME, "--db", db)
        report = json_of(art_e("ingest", order[1], "--append", "--owner", ME, "--db", db, "--json"))
        assert (report["stored"], report["duplicates"], report["junk"]) == (1, 1, 0)
    art_e("ingest", boxes[0], "--owner", ME, "--db", tmp_path / "spam.duckdb")
    again = art_e("ingest", boxes[0], "--append", "--db", tmp_path / "spam.duckdb", "--json")
    assert json_of(again)["junk"] == 1
