"""What each query must find in a mailbox of nine mails, what is refused, and what links mails."""

import datetime as dt
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.inbox.query import day_of, parse_query
from art_e.quotations import LEFT_OUT
from data_pipeline.ingest.records import RawMessage
from tests.builders import make_inbox, message_ids, raw, table, table_rows, tries, with_files
from tests.builders import the_error as the_user_error
from tests.command_line import Run, json_of, the_error

ME = "me@home.example"
TODAY = dt.date(2024, 6, 12)  # a Wednesday


def mail(
    number: int, day: str = "2024-01-02", sender: str = "ann@x.example", to: str = ME,
    subject: str = "Hi", body: str = "", labels: str = "", attached: str = "", **headers: str,
) -> RawMessage:  # fmt: skip
    date = f"{dt.date.fromisoformat(day):%d %b %Y} 09:00:00 +0000" if day else None
    headers = {"sender": sender, "to": to, "X_Gmail_Labels": labels, **headers}
    text = body or f"Mail {number}."
    mail = raw(f"<{number}@x>", subject=subject, body=text, date=date, **headers)
    return with_files(mail, {attached: b"x"} if attached else {})._replace(in_mbox=True)


def mails(rows: list[dict[str, str]]) -> list[RawMessage]:
    return [mail(number, **fields) for number, fields in enumerate(rows, start=1)]


CASES = table(__file__, "query.toml")
# Queries, and the numbers of the mails that they find on June 12, 2024.
LINES = Path(__file__).with_name("queries.tsv").read_text("utf-8").splitlines()[1:]
PAIRS = (line.split("\t") for line in LINES if not line.startswith("#"))
FOUND = {query: set(map(int, re.findall(r"\d+", found))) for query, found in PAIRS}


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("query") / "inbox.duckdb"
    make_inbox(path, mails(CASES["mails"]), owner=ME)
    return path


@pytest.fixture(scope="module")
def files(db: Path) -> Iterator[dict[bool, InboxFile]]:
    with InboxFile(db) as file, InboxFile(db, junk=True) as whole:
        yield {False: file, True: whole}


def numbers(message_ids: list[str]) -> set[int]:
    return {int(each.strip("<@x>")) for each in message_ids}


def found(file: InboxFile, text: str, address: str = ME, as_of: dt.date | None = None) -> set[int]:
    query = parse_query(text, TODAY)
    hits = file.open_inbox(address, as_of).search(query.words, query=query, max_results=20)
    return numbers(message_ids(hits))


@pytest.mark.parametrize("text", ["", *FOUND])
def test_queries_find_the_expected_mails(text: str, files: dict[bool, InboxFile]) -> None:
    file = files[is_junk := parse_query(text, TODAY).junk]
    expected = FOUND.get(text, {1, 3, 4, 5, 7, 9})
    for _ in range(3):  # from the file, and from memory
        assert found(file, text) == expected
    # What `-lease` and the like find depends on no other mail.
    by_may = {1, 2, 3, 4, 8} if is_junk else {1, 3, 4}
    assert found(file, text, as_of=dt.date(2024, 5, 1)) == expected & by_may
    # Labels are the owner's alone.
    if re.search("label:|in:(inbox|sent)|is:|category:", text) and "-" not in text:
        assert found(file, text, "landlord@x.example") == set()


def test_invalid_queries_are_rejected_by_name() -> None:
    for text, error in [*table_rows(__file__, "refused.tsv"), ["(" * 101, "100 brackets"]]:
        assert error in the_user_error(parse_query, text, TODAY), text


PIECES = [*'(){}-+* "\n\0\u2028', *"OR AND from: in: after: foo: lease 日本".split()]


@given(st.text() | st.lists(st.sampled_from(PIECES)).map("".join))
def test_any_text_is_a_query_or_a_one_line_error(text: str) -> None:
    try:
        parse_query(text, TODAY)
    except UserError as error:
        assert len(str(error).splitlines()) == 1


TERMS = ["lease", '"move date"', "from:ann", "to:me", "is:read", "ware*", "subject:(move OR lease)"]
FORMS = st.sampled_from(["({} {})", "({} OR {})", "{{{} {}}}", "(-{} {})"])
QUERIES = st.recursive(
    st.sampled_from(TERMS), lambda some: st.builds(str.format, FORMS, some, some), max_leaves=6
)


@settings(max_examples=tries(12, 400))
@given(QUERIES, QUERIES)
def test_brackets_keep_the_laws_of_logic(files: dict[bool, InboxFile], a: str, b: str) -> None:
    file = files[False]
    one, other = found(file, a), found(file, b)
    for text in (f"{a} OR {b}", f"{{{a} {b}}}", f"(({a}) OR {b})", f"-(-{a} -{b})"):
        assert found(file, text) == one | other, text
    for text in (f"({a} {b}) OR zzz", f"-(-{a} OR -{b})", f"-(-({a} {b}))"):
        assert found(file, text) == one & other, text
    assert found(file, f"-({a} {b})") == found(file, "") - (one & other)


def test_days_as_people_name_them() -> None:
    for text, day in table_rows(__file__, "days.tsv"):
        assert str(day_of(text, TODAY) or "") == day, text


def test_command_takes_a_query_in_one_or_several_arguments(art_e: Run, db: Path) -> None:
    def found(*arguments: str) -> set[int]:
        hits = json_of(art_e("search", *arguments, "--db", db, "--json"))
        return numbers([each["message_id"] for each in hits])

    assert found("move", "-oslo") == found("move -oslo") == {3}
    assert found("in:spam") == {2}
    # The shell takes the quotes of from:"Ann Alder" away.
    assert found("from:Ann Alder", "budget") == found("from:ann budget") == {4}
    assert found("after:last year", "--as-of", "2024-12-01", "budget") == {4}
    assert found("lease", "--as-of", "2024-03-02", "newer_than:2d") == {1}
    assert found("from:(ann OR bob)", "budget") == found("(from:ann OR from:bob)", "budget") == {4}
    assert "no operator foo:" in the_error(art_e("search", "foo:bar", "--db", db))
    wrong = art_e("search", "lease", "--frmo", "ann", "--db", db)
    assert "no such option --frmo" in the_error(wrong)


# ---- Threads.


def threads(db: Path, address: str = ME, as_of: dt.date | None = None) -> set[frozenset[int]]:
    """Return the threads of an inbox by their mails' numbers, those of one mail left out."""
    with InboxFile(db) as file:
        inbox = file.open_inbox(address, as_of)
        ids = [hit.message_id for hit in inbox.search([], max_results=99)]
        threads = {each: [mail.message_id for mail in inbox.thread(each)] for each in ids}
        assert inbox.thread_sizes(ids) == [len(threads[each]) for each in ids]
    for message_id in ids:
        # One of its own thread, which is the same from each of its mails, in order of dates.
        assert message_id in threads[message_id]
        assert all(threads[other] == threads[message_id] for other in threads[message_id])
    several = [names for names in threads.values() if len(names) > 1]
    return {frozenset(int(name.strip("<@x>")) for name in names) for names in several}


@pytest.mark.parametrize("case", CASES["threads"])
def test_mails_are_linked_into_threads(case: dict[str, Any], tmp_path: Path) -> None:
    make_inbox(tmp_path / "i.duckdb", mails(case["mails"]), owner=ME)
    linked = frozenset(case["linked"])
    assert threads(tmp_path / "i.duckdb") == ({linked} if linked else set())


def test_mail_outside_the_inbox_links_nothing(tmp_path: Path) -> None:
    """Ann sent 1 and 3 to me, and 2, which both belong to, to Bob alone; 4 comes later."""
    sent = [
        mail(1, subject="Plan"),
        mail(2, "2024-01-03", to="bob@y.example", subject="Re: Plan", In_Reply_To="<1@x>"),
        mail(3, "2024-01-04", subject="Other", In_Reply_To="<2@x>"),
        mail(4, "2024-01-10", subject="Re: Plan", References="<1@x> <2@x>"),
    ]
    make_inbox(tmp_path / "i.duckdb", sent)
    before = dt.date(2024, 1, 8)
    assert threads(tmp_path / "i.duckdb", as_of=before) == set()
    assert threads(tmp_path / "i.duckdb") == {frozenset({1, 3, 4})}
    assert threads(tmp_path / "i.duckdb", "ann@x.example", before) == {frozenset({1, 2, 3})}


def test_commands_show_threads(art_e: Run, tmp_path: Path) -> None:
    db = tmp_path / "i.duckdb"
    text = "The lease of the harbor office ends on May 3, so decide."
    quote = f"\n\nAm 2. Januar 2024 schrieb Bob:\n\n> {text}"
    lease, later = mail(1, subject="Lease", body=text), mail(3, "2024-01-10", subject="Lease")
    reply = mail(2, "2024-01-04", ME, "ann@x.example", "Re: Lease", f"We stay.{quote}")
    make_inbox(db, [lease, reply, later], owner=ME)
    thread = json_of(art_e("thread", "2@x", "--db", db, "--json"))
    assert [each["message_id"] for each in thread] == ["<1@x>", "<2@x>"]
    added = [each["added"].split() for each in thread]
    assert added == [text.split(), ["We", "stay.", *LEFT_OUT.split()]] and text in thread[1]["body"]
    printed = art_e("thread", "1@x", "--db", db).stdout
    assert printed.count(text) == 1 and "schrieb" not in printed
    assert art_e("thread", "1@x", "--full", "--db", db).stdout.count(text) == 2
    assert printed.index("---- 1 of 2 ----") < printed.index("<1@x>") < printed.index("<2@x>")
    assert "no mail 9@x in the inbox" in the_error(art_e("thread", "9@x", "--db", db))
    hits = json_of(art_e("search", "subject:lease", "--db", db, "--json"))
    sizes = {each["message_id"]: each["thread"] for each in hits}
    assert sizes == {"<1@x>": 2, "<2@x>": 2, "<3@x>": 1}
    assert art_e("search", "subject:lease", "--db", db).stdout.count("thread: 2 mails") == 2
