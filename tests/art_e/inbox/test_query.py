"""The query language: what each query must find in a mailbox of nine mails, and what is refused."""

import datetime as dt
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path

import pytest

from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.inbox.query import day_of, parse_query
from data_pipeline.ingest.records import RawMessage
from tests.builders import make_inbox, message_ids
from tests.command_line import Run, json_of, the_error

ME = "me@home.example"
TODAY = dt.date(2024, 6, 12)  # a Wednesday


def mail(
    number: int, day: str, sender: str, to: str, subject: str, body: str, labels: str = "",
    attached: str = "", **headers: str,
) -> RawMessage:  # fmt: skip
    made = EmailMessage()
    head = {"Message-ID": f"<{number}@x>", "From": sender, "To": to, "Subject": subject}
    if day:
        head["Date"] = f"{dt.date.fromisoformat(day):%d %b %Y} 09:00:00 +0000"
    for name, value in {**head, "X-Gmail-Labels": labels, **headers}.items():
        made[name.replace("_", "-")] = value
    made.set_content(body)
    if attached:
        made.add_attachment(b"x", "application", "pdf", filename=attached)
    return RawMessage(f"t/{number}", made.as_bytes(), in_mbox=True)


LANDLORD, ANN, BOB = "landlord@x.example", "Ann Alder <ann@x.example>", "bob@y.example"
MAILS = [
    mail(1, "2024-03-01", LANDLORD, ME, "Warehouse lease", "The warehouse lease ends in 2026.",
         "Inbox,Important"),
    mail(2, "2024-03-02", "scam@x.example", ME, "Pay", "Pay the lease now.", "Spam"),
    mail(3, "2024-03-03", ME, LANDLORD, "Re: Warehouse lease", "The move date is set.", "Sent",
         In_Reply_To="<1@x>"),
    mail(4, "2024-05-01", ANN, ME, "Budget", "It is 4,200 euros.", "Inbox,Unread,Work/Money",
         "The budget 2024.pdf", Cc=BOB),
    mail(5, "2024-05-20", BOB, ME, "Move", "Date of the move: unknown. To Oslo?", "Starred"),
    mail(6, "2024-06-01", ME, ANN, "Lease", "Dear Ann, about the lease", "Drafts"),
    mail(7, "2024-06-11", "news@list.example", "all@list.example", "Weekly", "No leases today."),
    mail(8, "2023-12-31", "zoe@x.example", ME, "Caf\u00e9", "\u65e5\u672c lease", "Trash"),
    mail(9, "", "nobody@x.example", ME, "Undated", "When was this?"),
]  # fmt: skip

FOUND: dict[str, set[int]] = {
    # Words: a mail needs one of them, in any form.
    "lease": {1, 3, 7}, "LEASES": {1, 3, 7}, "lease budget": {1, 3, 4, 7},
    "lease OR budget": {1, 3, 4, 7}, "10:30": set(), "http://nowhere.example": set(),
    # Phrases.
    '"lease ends"': {1}, '"move date"': {3}, '"Date of the MOVE"': {5}, '"4,200 euros"': {4},
    '"lease end"': set(), '"lease ends" OR "4,200 euros"': {1, 4},
    '"lease ends" OR subject:budget': {1, 4}, "oslo OR from:ann": {4, 5},
    "lease -oslo OR from:ann": {1, 3, 7},
    # Exclusion.
    "move": {3, 5}, "move -oslo": {3}, "-lease": {4, 5, 9}, '-"lease ends" lease': {3, 7},
    "budget -from:ann": set(), "lease -label:important": {3, 7}, "budget -has:attachment": set(),
    # People.
    "from:ann": {4}, "FROM:Ann": {4}, 'from:"Ann Alder"': {4}, "from:alder": {4},
    "from:ann@x.example": {4}, f"from:{ME}": {3}, "to:landlord": {3}, "to:bob": {4}, "cc:bob": {4},
    "cc:me": set(),
    # An address is found among the parties, and wherever a text names it.
    "landlord@x.example": {1, 3}, "bob@y.example": {4, 5}, "-landlord@x.example": {4, 5, 7, 9},
    "from:ann OR from:bob": {4, 5}, "from:ann OR from:bob move": {5},
    "move from:ann OR from:bob": {5}, "to:me is:unread": {4},
    # Subjects, by their words.
    "subject:lease": {1, 3}, "subject:leases": {1, 3}, 'subject:"warehouse lease"': {1, 3},
    "subject:ware": set(), "subject:lease from:landlord": {1}, "in:trash subject:cafe": {8},
    # Labels; spam, trash and drafts where they are asked for.
    "label:important": {1}, "label:work": {4}, "label:Work/Money": {4}, "label:money": set(),
    "in:inbox": {1, 4}, "in:sent": {3}, "in:spam": {2}, "in:spam OR in:trash lease": {2, 8},
    "in:drafts": {6}, "in:anywhere lease": {1, 2, 3, 6, 7, 8}, "lease -in:spam": {1, 3, 7},
    "\u65e5\u672c in:trash": {8}, "is:unread": {4}, "is:read": {1, 3, 5, 7, 9}, "is:starred": {5},
    # Attachments.
    "has:attachment": {4}, "filename:budget": {4}, "filename:pdf": {4},
    'filename:"budget 2024"': {4}, "filename:xlsx": set(),
    # Days, and ages on June 12, 2024; mail without a date has neither.
    "after:2024-05-01": {4, 5, 7}, "before:2024-05-01": {1, 3},
    "after:2024-03-01 before:2024-03-03": {1}, "on:2024-05-20": {5}, "after:2024/05": {4, 5, 7},
    "in:anywhere before:2024": {8}, "on:yesterday": {7}, 'after:"last monday"': {7},
    'after:"30 days ago"': {5, 7}, 'after:"last month"': {5, 7},
    'after:"may 2024" before:"june 2024"': {4, 5}, "after:may": {4, 5, 7},
    "after:last monday OR from:ann": {4, 7}, "after:may 2024 before:june 2024 -budget": {5},
    "-after:3 months ago": {1, 3, 9}, "older_than:1m": {1, 3, 4}, "older_than:1y": set(),
    "newer_than:1w": {7}, "newer_than:3d OR from:ann": {4, 7},
}  # fmt: skip


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("query") / "inbox.duckdb"
    make_inbox(path, MAILS, owner=ME)
    return path


@pytest.fixture(scope="module")
def files(db: Path) -> Iterator[dict[bool, InboxFile]]:
    with InboxFile(db) as kept, InboxFile(db, junk=True) as whole:
        yield {False: kept, True: whole}


def numbers(message_ids: list[str]) -> set[int]:
    return {int(each.strip("<@x>")) for each in message_ids}


@pytest.mark.parametrize("text", ["", *FOUND])
def test_a_query_finds_what_it_says(text: str, files: dict[bool, InboxFile]) -> None:
    query = parse_query(text, TODAY)
    file = files[query.junk]

    def found(address: str, as_of: dt.date | None = None) -> set[int]:
        hits = file.open_inbox(address, as_of).search(query.words, query=query, max_results=20)
        return numbers(message_ids(hits))

    expected = FOUND.get(text, {1, 3, 4, 5, 7, 9})
    for _ in range(3):  # from the file, and from memory
        assert found(ME) == expected
    # What `-lease` and the like find depends on no other mail.
    by_may = {1, 2, 3, 4, 8} if query.junk else {1, 3, 4}
    assert found(ME, dt.date(2024, 5, 1)) == expected & by_may
    # Labels are the owner's alone.
    if any(name in text for name in ("label:", "in:inbox", "in:sent", "is:")) and "-" not in text:
        assert found("landlord@x.example") == set()


REFUSED = {
    "re:lease": "no operator re:; quote it", "from: ann": "from: has no value",
    "lease subject:": "subject: has no value", "in:attic": "in:attic is not one of inbox, sent",
    "is:odd": "is:odd is not one of unread", "has:link": "has:link is not one of attachment",
    "older_than:week": "older_than:week is no age", "after:someday": "after:someday is no day",
    "after:2024-02-30": "is no day", "OR lease": "OR stands between",
    "lease OR": "OR stands between", "from:ann OR OR from:bob": "OR stands between",
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_query_is_told(text: str) -> None:
    with pytest.raises(UserError, match=REFUSED[text]) as caught:
        parse_query(text, TODAY)
    assert "\n" not in str(caught.value)


DAYS = {
    "today": "2024-06-12", "Yesterday": "2024-06-11", "wednesday": "2024-06-05",
    "last tue": "2024-06-11", "last week": "2024-06-05", "1 month ago": "2024-05-12",
    "last year": "2023-06-12", "december": "2023-12-01", "june": "2024-06-01",
    "feb 2020": "2020-02-01", "2020": "2020-01-01", "99999 years ago": "0001-01-01",
    "mar": "2024-03-01", "marble": None, "13": None, "last": None,
}  # fmt: skip


def test_days_as_people_name_them() -> None:
    days = {text: day_of(text, TODAY) for text in DAYS}
    assert {text: day and day.isoformat() for text, day in days.items()} == DAYS


def test_the_command_takes_it_in_one_argument_or_several(art_e: Run, db: Path) -> None:
    def found(*arguments: str) -> set[int]:
        hits = json_of(art_e("search", *arguments, "--db", db, "--json"))
        return numbers([each["message_id"] for each in hits])

    assert found("move", "-oslo") == found("move -oslo") == {3}
    assert found("in:spam") == {2}
    # The shell takes the quotes of from:"Ann Alder" away.
    assert found("from:Ann Alder", "budget") == found("from:ann budget") == {4}
    assert found("after:last year", "--as-of", "2024-12-01", "budget") == {4}
    assert found("lease", "--as-of", "2024-03-02", "newer_than:2d") == {1}
    assert "no operator foo:" in the_error(art_e("search", "foo:bar", "--db", db))
    wrong = art_e("search", "lease", "--frmo", "ann", "--db", db)
    assert "no such option --frmo" in the_error(wrong)
