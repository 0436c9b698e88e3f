"""Threads: by the ids that mails name, by Gmail, by subject and people; never by other's mail."""

import datetime as dt
from pathlib import Path

import pytest

from art_e.inbox.file import InboxFile
from data_pipeline.ingest.records import RawMessage
from tests.builders import make_inbox, raw
from tests.command_line import Run, json_of, the_error

ME = "me@home.example"


def mail(
    number: int, subject: str = "Hi", sender: str = "ann@x.example", to: str = ME, day: int = 1,
    **headers: str,
) -> RawMessage:  # fmt: skip
    date = f"{dt.date(2024, 1, 1) + dt.timedelta(day):%d %b %Y} 09:00:00 +0000"
    made = raw(f"<{number}@x>", subject=subject, sender=sender, to=to, date=date)
    head = "".join(f"{name.replace('_', '-')}: {value}\n" for name, value in headers.items())
    return made._replace(data=head.encode() + made.data, in_mbox=True)


def threads(db: Path, address: str = ME, as_of: dt.date | None = None) -> set[frozenset[int]]:
    """The threads of an inbox by their mails' numbers, those of one mail left out."""
    with InboxFile(db) as file:
        inbox = file.open_inbox(address, as_of)
        ids = [hit.message_id for hit in inbox.search([], max_results=99)]
        found = {each: [mail.message_id for mail in inbox.thread(each)] for each in ids}
        assert inbox.thread_sizes(ids) == [len(found[each]) for each in ids]
    for each in ids:
        # One of its own thread, which is the same from each of its mails, in order of dates.
        assert each in found[each]
        assert all(found[other] == found[each] for other in found[each])
    several = [names for names in found.values() if len(names) > 1]
    return {frozenset(int(name.strip("<@x>")) for name in names) for names in several}


@pytest.mark.parametrize(
    ("mails", "linked"),
    [
        # By the ids of References and In-Reply-To, also of a mail that is not there.
        ([mail(1), mail(2, "Other", In_Reply_To="<1@x>"), mail(3, "More")], {1, 2}),
        ([mail(1), mail(2, "b", References="<0@x> <1@x>"), mail(3, "c", References="<2@x>")],
         {1, 2, 3}),
        ([mail(1, "a", References="<9@x>"), mail(2, "b", In_Reply_To="<9@x> of Ann")], {1, 2}),
        # By Gmail's thread.
        ([mail(1, "a", X_GM_THRID="17"), mail(2, "b", X_GM_THRID="17"),
          mail(3, "a", X_GM_THRID="18")], {1, 2}),
        # By subject, for replies and forwards within 60 days that have someone in common.
        ([mail(1, "Lease"), mail(2, "RE: lease", ME, "ann@x.example", 3)], {1, 2}),
        ([mail(1, "Lease"), mail(2, "Re: AW: Fwd:  Lease", day=60), mail(3, "Lease", day=61)],
         {1, 2}),
        ([mail(1, "Re[2]: Lease"), mail(2, "WG: Lease")], {1, 2}),
        ([mail(1, "Lease"), mail(2, "Re: Lease", day=62)], set()),
        ([mail(1, "Lease"), mail(2, "Re: Lease", "bob@y.example")], set()),
        ([mail(1, "Report"), mail(2, "Report", day=2)], set()),
        ([mail(1, ""), mail(2, "Re: ", day=2)], set()),
        # Of two conversations of one subject each reply joins its own.
        ([mail(1, "Hi"), mail(2, "Hi", "bob@y.example"), mail(3, "Re: Hi", day=4)], {1, 3}),
    ],
)  # fmt: skip
def test_what_links_mails(mails: list[RawMessage], linked: set[int], tmp_path: Path) -> None:
    make_inbox(tmp_path / "i.duckdb", mails, owner=ME)
    assert threads(tmp_path / "i.duckdb") == ({frozenset(linked)} if linked else set())


def test_mail_that_an_inbox_lacks_links_nothing_in_it(tmp_path: Path) -> None:
    """Ann sent 1 and 3 to me, and 2, which both belong to, to Bob alone; 4 comes later."""
    mails = [
        mail(1, "Plan"),
        mail(2, "Re: Plan", to="bob@y.example", day=2, In_Reply_To="<1@x>"),
        mail(3, "Other", day=3, In_Reply_To="<2@x>"),
        mail(4, "Re: Plan", day=9, References="<1@x> <2@x>"),
    ]
    make_inbox(tmp_path / "i.duckdb", mails)
    before = dt.date(2024, 1, 8)
    assert threads(tmp_path / "i.duckdb", as_of=before) == set()
    assert threads(tmp_path / "i.duckdb") == {frozenset({1, 3, 4})}
    assert threads(tmp_path / "i.duckdb", "ann@x.example", before) == {frozenset({1, 2, 3})}


def test_the_commands_show_them(art_e: Run, tmp_path: Path) -> None:
    db = tmp_path / "i.duckdb"
    reply = mail(2, "Re: Lease", ME, "ann@x.example", 3)
    make_inbox(db, [mail(1, "Lease"), reply, mail(3, "Lease", day=9)], owner=ME)
    shown = json_of(art_e("thread", "2@x", "--db", db, "--json"))
    assert [each["message_id"] for each in shown] == ["<1@x>", "<2@x>"]
    printed = art_e("thread", "1@x", "--db", db).stdout
    assert printed.index("---- 1 of 2 ----") < printed.index("<1@x>") < printed.index("<2@x>")
    assert "no mail 9@x in the inbox" in the_error(art_e("thread", "9@x", "--db", db))
    hits = json_of(art_e("search", "subject:lease", "--db", db, "--json"))
    sizes = {each["message_id"]: each["thread"] for each in hits}
    assert sizes == {"<1@x>": 2, "<2@x>": 2, "<3@x>": 1}
    assert art_e("search", "subject:lease", "--db", db).stdout.count("thread: 2 mails") == 2
