"""No leak: mail of another inbox or after `as_of` is found by nothing, on no path."""

import datetime as dt
import email
import email.policy
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from art_e.inbox.file import InboxFile
from art_e.inbox.inbox import Inbox
from art_e.inbox.query import parse_query
from data_pipeline.ingest.batch import Rules
from data_pipeline.ingest.parse import parse_message
from data_pipeline.ingest.records import ParsedEmail, RawMessage
from data_pipeline.synthetic.world import WorldConfig, messages
from tests.builders import (
    Material,
    Query,
    as_row,
    make_inbox,
    material,
    message_ids,
    plain_connection,
    random_query,
    raw,
    run_query,
    run_sql,
    tries,
)

MAILS = 300
OWNER = "archive@keeper.example"
NO_LIMIT = 10_000


class Sent(NamedTuple):
    """What is known of a mail without looking into the inbox file."""

    ids: frozenset[str]
    parties: frozenset[str]
    sent_at: dt.datetime | None


class Leaky(NamedTuple):
    """An inbox file, opened, and what was put into it."""

    db: Path
    file: InboxFile
    mails: list[Sent]
    made_of: Material


def changed(message: RawMessage, number: int, **headers: str | None) -> RawMessage:
    """The mail with other headers; None takes one out."""
    mail = email.message_from_bytes(message.data, policy=email.policy.default)
    for name, value in headers.items():
        del mail[name.replace("_", "-")]
        if value is not None:
            mail[name.replace("_", "-")] = value
    return RawMessage(f"changed/{number}/{sorted(headers)}", mail.as_bytes())


def sent(message: RawMessage, copy: RawMessage | None = None, *owners: str) -> Sent:
    """The facts of a mail and of its copy."""
    ids, parties, sent_at = set(), set(owners), None
    for each in filter(None, (copy, message)):
        mail = parse_message(each)
        assert isinstance(mail, ParsedEmail)
        ids.add(mail.message_id)
        parties.update(box.address for box in (mail.sender, *mail.to, *mail.cc, *mail.bcc))
        sent_at = mail.sent_at
    return Sent(frozenset(ids), frozenset(parties), sent_at)


@pytest.fixture(scope="module")
def leaky(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Leaky]:
    """Mails of many people, copies under other ids, and some that only their importer owns."""
    db = tmp_path_factory.mktemp("isolation") / "inbox.duckdb"
    originals = list(islice(messages(WorldConfig(size=1000, seed=5)), MAILS))
    copies = {
        number: changed(originals[number], number, message_id=f"<copy{number}@test>")
        for number in range(0, MAILS, 7)
    }
    hidden = [
        changed(each, number, message_id=f"<hidden{number}@t>", bcc="copied1@test.example")
        for number, each in enumerate(originals)
        if number % 20 == 0
    ]
    undated = [raw(f"<undated{n}@t>", date=None, subject=f"Undated {n}") for n in range(3)]
    owned = [raw(f"<list{n}@t>", to="list@test.example", subject=f"List {n}") for n in range(5)]
    rules = Rules(any_id=True)
    make_inbox(db, [*originals, *copies.values(), *hidden, *undated], rules)
    make_inbox(db, owned, rules, owner=OWNER, append=True)

    mails = [sent(each, copies.get(number)) for number, each in enumerate(originals)]
    mails += [*map(sent, hidden), *map(sent, undated), *(sent(each, None, OWNER) for each in owned)]
    with InboxFile(db) as file:
        assert (file.counts["stored"], file.counts["duplicates"]) == (len(mails), -(-MAILS // 7))
        yield Leaky(db, file, mails, material(file))


def is_visible(mail: Sent, address: str, as_of: dt.date | None) -> bool:
    if address not in mail.parties:
        return False
    return as_of is None or (mail.sent_at is not None and mail.sent_at.date() <= as_of)


@settings(max_examples=15)
@given(data=st.data())
def test_nothing_of_another_inbox_or_the_future_is_found(leaky: Leaky, data: st.DataObject) -> None:
    owners = [OWNER, "list@test.example", "copied1@test.example", *leaky.made_of.addresses]
    address = data.draw(st.sampled_from(owners))
    as_of = data.draw(st.none() | st.sampled_from(leaky.made_of.days))
    visible = [mail.ids for mail in leaky.mails if is_visible(mail, address, as_of)]
    inbox = leaky.file.open_inbox(address, as_of)

    everything = message_ids(inbox.search([], max_results=NO_LIMIT))
    assert len(everything) == len(inbox) == len(visible)
    assert all(any(each in ids for ids in visible) for each in everything)

    drawn = random_query(data.draw(st.randoms(use_true_random=False)), leaky.made_of)
    for query in (drawn._replace(max_results=NO_LIMIT), Query([], max_results=NO_LIMIT)):
        assert set(message_ids(run_query(inbox, query))) <= set(everything)

    for mail in data.draw(st.lists(st.sampled_from(leaky.mails), min_size=1, max_size=5)):
        for message_id in mail.ids:
            read, canonical = inbox.read(message_id), inbox.canonical_id(message_id)
            if mail.ids in visible:
                assert read is not None
                assert read.message_id == canonical and canonical in mail.ids
            else:
                assert (read, canonical) == (None, None)


def test_many_are_read_as_each_is_read_from_the_file_and_from_memory(leaky: Leaky) -> None:
    # Aliases and mails of others are among them, as are ids that come twice or name nothing.
    ids = sorted(message_id for mail in leaky.mails for message_id in mail.ids)
    wanted = [*ids, ids[0], "", f" {ids[1].strip('<>')} "]
    for address in ("copied1@test.example", leaky.made_of.addresses[0]):
        with InboxFile(leaky.db) as file:
            inbox = file.open_inbox(address, leaky.made_of.days[12])
            found = inbox.read_many(wanted)
            assert found[:9] == [inbox.read(each) for each in wanted[:9]]
            for _ in range(2):
                inbox.search(["project"])
            assert inbox.read_many(wanted) == found == [inbox.read(each) for each in wanted]
            assert 0 < sum(each is not None for each in found) < len(wanted)


@pytest.mark.parametrize(
    "statement",
    ["SELECT * FROM read_text('{secret}')", "ATTACH '{other}' AS other", "INSTALL fts",
     "COPY (SELECT 1) TO '{other}'", "SET enable_external_access = true", "DELETE FROM emails",
     "CREATE TABLE mine (i INTEGER)"],
)  # fmt: skip
def test_an_opened_file_is_read_only_and_reaches_no_other(
    leaky: Leaky, tmp_path: Path, statement: str
) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("secret\n1\n")
    places = {"secret": secret, "other": tmp_path / "other.db"}
    with pytest.raises(duckdb.Error, match=r"Permission Error|Cannot enable|read-only"):
        leaky.file.execute(statement.format(**places)).fetchall()
    assert list(tmp_path.iterdir()) == [secret]


# Non-interference: what a search says depends on the open inbox up to its date, and on nothing else


class Twins(NamedTuple):
    """The same inbox in two files: beside all other and later mail, and alone."""

    whole: InboxFile
    alone: InboxFile
    shells: tuple[duckdb.DuckDBPyConnection, duckdb.DuckDBPyConnection]
    address: str
    as_of: dt.date
    made_of: Material
    words: frozenset[str]  # that the smaller file's mail has


@pytest.fixture(scope="module")
def twins(leaky: Leaky, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    folder = tmp_path_factory.mktemp("twins")
    everything = list(islice(messages(WorldConfig(size=1000, seed=5)), MAILS))
    address = leaky.made_of.addresses[0]
    as_of = leaky.made_of.days[len(leaky.made_of.days) // 2]

    own = [each for each in everything if is_visible(sent(each), address, as_of)]
    rules = Rules(any_id=True)
    others = [*named_otherwise(own), *lookalikes(own, address)]
    make_inbox(folder / "whole.duckdb", [*everything, *others], rules)
    make_inbox(folder / "alone.duckdb", own, rules)
    paths = folder / "whole.duckdb", folder / "alone.duckdb"
    shells = plain_connection(paths[0]), plain_connection(paths[1])
    with InboxFile(paths[0]) as whole, InboxFile(paths[1]) as alone, shells[0], shells[1]:
        rows = alone.execute("SELECT word FROM terms").fetchall()
        words = frozenset(word for (word,) in rows)
        yield Twins(whole, alone, shells, address, as_of, leaky.made_of, words)


def opened(twins: Twins) -> list[Inbox]:
    """The inbox in either file."""
    return [file.open_inbox(twins.address, twins.as_of) for file in (twins.whole, twins.alone)]


def named_otherwise(own: list[RawMessage]) -> list[RawMessage]:
    """Mail among others, in which the people of `own` go by names that it does not give."""
    people = frozenset[str]().union(*(sent(each).parties for each in own))
    # After the day that the inbox is opened for, so that its owner may be among them.
    later = {"body": "unicorns zeppelins", "date": "Mon, 6 Jan 2031 09:00:00 +0000"}
    made = []
    for number, address in enumerate(sorted(people)):
        name = f"Zanzibar Quill {number}"
        sender, to = f"{name} <other{number}@test.example>", f'"{name}" <{address}>'
        made.append(raw(f"<other{number}@t>", sender=sender, to=to, **later))
    return made


def lookalikes(own: list[RawMessage], address: str) -> list[RawMessage]:
    """Mail outside the inbox, or after its day, that says what a mail of `own` says or has its id;
    the people in it are called otherwise."""
    made = []
    for number, each in enumerate(own):
        mail = parse_message(each)
        assert isinstance(mail, ParsedEmail)
        first, future = "Mon, 1 Jan 2001 09:00:00 +0000", "Tue, 7 Jan 2031 09:00:00 +0000"
        stranger, called = "Mallory <mallory@test.example>", f'"Zanzibar Quill" <{address}>'
        # An earlier mail of strangers has its id, another what it says.
        made.append(raw(mail.message_id, sender=stranger, to="eve@test.example", date=first))
        if mail.sender.address != address:
            others = {"to": stranger, "cc": None, "bcc": None}
            made.append(changed(each, number, message_id=f"<like{number}@t>", date=first, **others))
        # The owner gets both later: the id on a mail of another, and a copy with another id.
        made.append(raw(mail.message_id, sender=stranger, to=called, body="zeppelins", date=future))
        made.append(changed(each, number, message_id=f"<later{number}@t>", date=future))
    return made


@pytest.mark.fire
@settings(max_examples=tries(25, 3_000), deadline=None)
@given(data=st.data())
def test_what_an_id_names_depends_on_the_open_inbox_alone(
    twins: Twins, data: st.DataObject
) -> None:
    inboxes = opened(twins)
    own = message_ids(inboxes[1].search([], max_results=NO_LIMIT))
    made_up = ["<like0@t>", "<later0@t>", "<later1@t>", f"<{'0' * 12}+{own[0][1:]}"]
    names = data.draw(st.lists(st.sampled_from([*own, *made_up]), min_size=1, max_size=4))
    for inbox in inboxes * 2 * data.draw(st.booleans()):  # from memory
        inbox.search(["project"])
    assert inboxes[0].read_many(names) == inboxes[1].read_many(names)
    assert inboxes[0].thread_sizes(names) == inboxes[1].thread_sizes(names)
    for name in names:
        assert inboxes[0].thread(name) == inboxes[1].thread(name)
        assert (inboxes[0].read(name) is not None) == (name in own)


def test_two_mails_of_one_id_are_told_apart(tmp_path: Path) -> None:
    """The first keeps it; the other is named by what it says, in this inbox alone."""
    mails = [
        raw("<same@t>", subject="First", to="bob@test.example"),
        raw("<same@t>", subject="Second", date=None, to="bob@test.example, cy@test.example"),
    ]
    make_inbox(tmp_path / "inbox.duckdb", mails)
    with InboxFile(tmp_path / "inbox.duckdb") as file:
        bob, cy = file.open_inbox("bob@test.example"), file.open_inbox("cy@test.example")
        for _ in range(3):  # from the file, then from memory
            named = {hit.subject: hit.message_id for hit in bob.search(["first", "second"])}
            assert named["First"] == "<same@t>"
            assert re.fullmatch(r"<[0-9a-f]{12}\+same@t>", named["Second"])
            for inbox, ids in ((bob, named), (cy, {"Second": "<same@t>"})):
                for subject, name in ids.items():
                    read = inbox.read(name)
                    assert read is not None
                    assert (read.subject, read.message_id) == (subject, name)
            assert [hit.message_id for hit in cy.search(["second"])] == ["<same@t>"]


@pytest.mark.fire
@settings(max_examples=tries(25, 3_000), deadline=None)
@given(data=st.data())
def test_what_a_search_says_depends_on_the_open_inbox_alone(
    twins: Twins, data: st.DataObject
) -> None:
    drawn = random_query(data.draw(st.randoms(use_true_random=False)), twins.made_of)
    words = data.draw(st.lists(st.sampled_from(["unicorn", "unicorns", "zeppelins", "zeppelin"])))
    query = drawn._replace(
        keywords=[*drawn.keywords, *words],
        from_addr=data.draw(st.sampled_from([drawn.from_addr, "zanzibar", "quill 1", "u", None])),
        to_addr=data.draw(st.sampled_from([drawn.to_addr, "zanzibar", "quill 2", "i", None])),
    )
    whole, alone = opened(twins)
    assert run_query(whole, query) == run_query(alone, query)
    # SQL takes stems from the words of the file's mail.
    query = query._replace(keywords=[each for each in query.keywords if each in twins.words])
    in_sql = [run_sql(shell, twins.address, twins.as_of, query) for shell in twins.shells]
    assert in_sql[0] == in_sql[1] == [as_row(hit) for hit in run_query(whole, query)]


QUERIES = (
    "{w}", "unicorns {w}", "from:zanzibar", "to:quill {w}", '"{w} {w}"', "subject:{w}",
    "from:{w} OR {w}", "{w} -unicorn", "in:anywhere {w}", "newer_than:2y {w}",
)  # fmt: skip


@pytest.mark.fire
@settings(max_examples=tries(25, 1_500), deadline=None)
@given(data=st.data())
def test_what_a_typed_query_finds_depends_on_the_open_inbox_alone(
    twins: Twins, data: st.DataObject
) -> None:
    word = st.sampled_from([*twins.made_of.words, "unicorn", "zeppelins", "zanzibar"])
    text = re.sub("{w}", lambda _: data.draw(word), data.draw(st.sampled_from(QUERIES)))
    query = parse_query(text, twins.as_of)
    whole, alone = (each.search(query.words, query=query) for each in opened(twins))
    assert whole == alone


def test_singular_and_plural_are_one_missing_word_wherever_they_occur(twins: Twins) -> None:
    for inbox in opened(twins):
        [newest] = inbox.search([], max_results=1)
        [hit] = inbox.search(["unicorn", "unicorns", newest.subject], max_results=1)
        assert hit.missing == ("unicorn",)


def test_a_name_is_found_where_the_inbox_itself_gives_it(twins: Twins) -> None:
    """Mail of 2031 calls all people of the inbox Zanzibar, its owner in a mail to himself."""
    own = twins.whole.open_inbox(twins.address)
    assert len(own.search([], to_addr="zanzibar", max_results=NO_LIMIT)) > 1
    before, _ = opened(twins)
    for part in ("zanzibar", "Zanzibar Quill", "zan"):
        assert before.search([], to_addr=part) == before.search([], from_addr=part) == []
