"""No leak: mail of another inbox or after `as_of` is found by nothing, on no path."""

import datetime as dt
import email
import email.policy
import itertools
import re
import shutil
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from art_e.cli.mcp import answer_call
from art_e.cli.model_options import Options
from art_e.episode import Episode
from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.inbox.query import OPERATORS as EVERY_OPERATOR
from art_e.inbox.query import parse_query
from art_e.models.base import OFFLINE
from art_e.offline import OfflinePolicy
from art_e.question import Question
from art_e.web.server import WebSession
from data_pipeline.ingest.batch import Rules, content_digest, copy_digest
from data_pipeline.ingest.records import ParsedEmail, RawMessage
from data_pipeline.synthetic.world import WorldConfig, messages
from tests import builders, queries
from tests.builders import BOB, date_header, make_inbox, message_ids, new_file, raw, tries
from tests.formats import of_row, parsed
from tests.queries import Material, Query, as_row, plain_connection, run_query, run_sql

MAILS = 300
OWNER = "archive@keeper.example"
NO_LIMIT = 10_000


class Sent(NamedTuple):
    """What is known of a mail without looking into the inbox file."""

    ids: frozenset[str]
    parties: frozenset[str]
    sent_at: dt.datetime | None


class Leaky(NamedTuple):
    """An inbox file, opened here and as by a DuckDB shell, and what was put into it."""

    file: InboxFile
    shell: duckdb.DuckDBPyConnection
    mails: list[Sent]
    made_of: Material


def changed(message: RawMessage, number: int, **headers: str | None) -> RawMessage:
    """Return the mail with other headers; None removes one."""
    mail = email.message_from_bytes(message.data, policy=email.policy.default)
    for name, value in headers.items():
        del mail[name.replace("_", "-")]
        if value is not None:
            mail[name.replace("_", "-")] = value
    return RawMessage(f"changed/{number}/{sorted(headers)}", mail.as_bytes())


def parties_of(mail: ParsedEmail) -> frozenset[str]:
    return frozenset(box.address for box in (mail.sender, *mail.to, *mail.cc, *mail.bcc))


def sent(message: RawMessage, *owners: str, ids: Iterable[str] = ()) -> Sent:
    mail = parsed(message)
    return Sent(frozenset({mail.message_id, *ids}), parties_of(mail).union(owners), mail.sent_at)


@pytest.fixture(scope="module")
def leaky(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Leaky]:
    """Mails of many people, copies under other ids, and some that only their importer owns."""
    db = tmp_path_factory.mktemp("isolation") / "inbox.duckdb"
    originals = list(islice(messages(WorldConfig(size=1000, seed=5)), MAILS))
    copies = {n: f"<copy{n}@test>" for n in range(0, MAILS, 7)}
    copied = [changed(originals[n], n, message_id=name) for n, name in copies.items()]
    secret = {"bcc": "copied1@test.example"}
    hidden = [
        changed(originals[n], n, message_id=f"<hidden{n}@t>", **secret) for n in range(0, MAILS, 20)
    ]
    undated = [raw(f"<undated{n}@t>", date=None, subject=f"Undated {n}") for n in range(3)]
    owned = [raw(f"<list{n}@t>", to="list@test.example", subject=f"List {n}") for n in range(5)]
    rules = Rules(any_id=True)
    make_inbox(db, [*originals, *copied, *hidden, *undated], rules)
    make_inbox(db, owned, rules, owner=OWNER, append=True)

    mails = [sent(each, ids=filter(None, [copies.get(n)])) for n, each in enumerate(originals)]
    mails += [*map(sent, hidden), *map(sent, undated), *(sent(each, OWNER) for each in owned)]
    with InboxFile(db) as file, plain_connection(db) as shell:
        assert (file.counts["stored"], file.counts["duplicates"]) == (len(mails), len(copies))
        yield Leaky(file, shell, mails, queries.material(file))


def is_before(sent_at: dt.datetime | None, as_of: dt.date | None) -> bool:
    return as_of is None or (sent_at is not None and sent_at.date() <= as_of)


def is_visible(mail: Sent, address: str, as_of: dt.date | None) -> bool:
    return address in mail.parties and is_before(mail.sent_at, as_of)


@settings(max_examples=25)
@given(data=st.data())
def test_nothing_of_another_inbox_or_the_future_is_found(leaky: Leaky, data: st.DataObject) -> None:
    owners = [OWNER, "list@test.example", "copied1@test.example", *leaky.made_of.addresses]
    address = data.draw(st.sampled_from(owners))
    days = [dt.date.min, *leaky.made_of.days, dt.date.max]
    as_of = data.draw(st.none() | st.sampled_from(days))
    visible = [mail.ids for mail in leaky.mails if is_visible(mail, address, as_of)]
    inbox = leaky.file.open_inbox(address, as_of)

    every_hit = inbox.search([], max_results=NO_LIMIT)
    assert sum(hit.copies for hit in every_hit) == len(inbox) == len(visible)
    everything = message_ids(every_hit)
    assert all(any(each in ids for ids in visible) for each in everything)

    query = queries.random_query(data.draw(st.randoms(use_true_random=False)), leaky.made_of)
    hits = run_query(inbox, query._replace(max_results=NO_LIMIT))
    assert set(message_ids(hits)) <= set(everything)
    # The file's own SQL gives the same ids, order, scores and missing words.
    in_sql = run_sql(leaky.shell, address, as_of, query)
    assert [as_row(hit) for hit in run_query(inbox, query)] == in_sql

    for mail in data.draw(st.lists(st.sampled_from(leaky.mails), min_size=1, max_size=5)):
        for message_id in mail.ids:
            read, canonical = inbox.read(message_id), inbox.canonical_id(message_id)
            assert (read and read.message_id) == canonical
            assert canonical in (mail.ids if mail.ids in visible else {None})


def test_reading_many_mails_equals_reading_each(leaky: Leaky) -> None:
    # Aliases and mails of others are among them, as are ids that come twice or name nothing.
    ids = sorted(message_id for mail in leaky.mails for message_id in mail.ids)
    requested = [*ids, ids[0], "", f" {ids[1].strip('<>')} "]
    for address in ("copied1@test.example", leaky.made_of.addresses[0]):
        with InboxFile(leaky.file.path) as file:
            inbox = file.open_inbox(address, leaky.made_of.days[12])
            mails = inbox.read_many(requested)
            assert mails[:9] == [inbox.read(each) for each in requested[:9]]
            for _ in range(2):
                inbox.search(["project"])
            assert inbox.read_many(requested) == mails == [inbox.read(each) for each in requested]
            assert 0 < sum(each is not None for each in mails) < len(requested)


@pytest.mark.parametrize(
    "statement",
    ["SELECT * FROM read_text('{secret}')", "ATTACH '{other}' AS other", "INSTALL fts",
     "COPY (SELECT 1) TO '{other}'", "SET enable_external_access = true", "DELETE FROM emails",
     "CREATE TABLE mine (i INTEGER)"],
)  # fmt: skip
def test_file_is_read_only_and_isolated(leaky: Leaky, tmp_path: Path, statement: str) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("secret\n1\n")
    places = {"secret": secret, "other": tmp_path / "other.db"}
    with pytest.raises(duckdb.Error, match=r"Permission Error|Cannot enable|read-only"):
        leaky.file.execute(statement.format(**places)).fetchall()
    assert list(tmp_path.iterdir()) == [secret]


def test_mails_with_the_same_id_are_distinguished(tmp_path: Path) -> None:
    """The first keeps it; the other is named by what it says, in this inbox alone."""
    mails = [
        raw("<same@t>", subject="First", to=BOB),
        raw("<same@t>", subject="Second", date=None, to=f"{BOB}, cy@test.example"),
    ]
    with new_file(tmp_path / "inbox.duckdb", mails) as file:
        bob, cy = file.open_inbox(BOB), file.open_inbox("cy@test.example")
        for _ in range(3):  # from the file, then from memory
            named = {hit.subject: hit.message_id for hit in bob.search(["first", "second"])}
            assert named["First"] == "<same@t>"
            assert re.fullmatch(r"<[0-9a-f]{12}\+same@t>", named["Second"])
            for inbox, ids in ((bob, named), (cy, {"Second": "<same@t>"})):
                assert {hit.subject: hit.message_id for hit in inbox.search([])} == ids
                read = inbox.read_many([*ids.values()])
                assert [each and (each.subject, each.message_id) for each in read] == [*ids.items()]


# Non-interference: what a search says depends on the open inbox up to its date, and on nothing else

# Every character: a word outside an inbox is the same word inside it or none.

# All that Unicode has or may soon have, without surrogates and private use.
CHARACTERS = list(map(chr, (*range(32, 0xD800), *range(0xF900, 0x34000), *range(0xE0000, 0xE1000))))
MAILS_OF_SET = 50
OPERATORS = ("subject:", "-subject:", "", "-", "from:", "filename:")


def fields(message_id: str, to: str, number: int, texts: list[str]) -> RawMessage:
    """Make a mail with the texts in its subject, its body, and a sender's name of them."""
    sender = f"{' '.join(texts)} <s@test.example>"
    date = dt.datetime(2020, 1, 1, 0, number, tzinfo=dt.UTC)
    return of_row(message_id, " | ".join(texts), sender, [to], [], [], date, texts[0])


@pytest.mark.fire
def test_no_character_outside_an_inbox_changes_a_result_inside(tmp_path: Path) -> None:
    """The words of mail outside are those inside without a character, in its place, and alone."""
    size = tries(4, 40) * MAILS_OF_SET
    # Those that Unicode got after Python's, and Python and DuckDB split or fold differently.
    differing = "\xad\u0cf3\u0ece\u1c89\ua7cb\U00011240\U00011f02\U00031350\U000323af"
    rng = Random(0)
    drawn = [*differing, *rng.sample(CHARACTERS, tries(size, len(CHARACTERS)) - len(differing))]
    for first in range(0, len(drawn), size):
        placed = dict(enumerate(drawn[first : first + size]))
        inside = {n: f"Q{n}{char}z{n}" for n, char in placed.items()}
        inside_mails, others = [], []
        for number in range(MAILS_OF_SET):
            part = list(inside)[number::MAILS_OF_SET]
            inside_mails.append(fields(f"<in{number}@t>", BOB, number, [inside[n] for n in part]))
            around = [f"q{n}z{n} q{n} z{n} {placed[n]} {inside[n]}" for n in part]
            others.append(fields(f"<out{number}@t>", "zoe@test.example", number, around))
        # One text of each mail, all in one query.
        numbers = [*placed]
        sets = [numbers[at : at + MAILS_OF_SET] for at in range(0, len(placed), MAILS_OF_SET)]
        operators = OPERATORS if first == 0 else OPERATORS[:1]
        with (
            new_file(tmp_path / "whole.duckdb", [*inside_mails, *others]) as whole,
            new_file(tmp_path / "alone.duckdb", inside_mails) as alone,
        ):
            inboxes = [file.open_inbox(BOB) for file in (whole, alone)]
            for ours, operator in itertools.product(sets, operators):
                some = [n for n in ours if placed[n] != '"']
                for form in ([f"q{n}z{n}" for n in some], [inside[n] for n in some]):
                    joint = " OR " if operator[:1] != "-" else " "
                    text = joint.join(f'{operator}"{each}"' for each in form)
                    query = parse_query(text, dt.date(2020, 1, 1))
                    hits = [
                        message_ids(inbox.search([], query=query, max_results=NO_LIMIT))
                        for inbox in inboxes
                    ]
                    assert hits[0] == hits[1], ascii(text)
                    if operator == "subject:" and form[0] == inside[some[0]]:
                        assert len(hits[0]) == len(some)


# ---- Owners: copies of one mail differ, and what an inbox shows comes from its owner's

ANN, HOME, CY, DEE = (f"{name}@test.example" for name in ("ann", "home", "cy", "dee"))
# Who imported a copy; Cy and Dee have no import.
OWNERS = (ANN, HOME, BOB, "")
VIEWERS = ((ANN,), (HOME,), (BOB,), (CY,), (DEE,), (ANN, HOME))
# In which two copies may differ. With other wording or people they are not merged.
FIELDS = "name date spacing wording reference attachment labels junk people list".split()
WORDS = ("lease", "crane", "budget", "harbor", "permit", "invoice")
LABELS = ("inbox", "sent", "unread", "starred", "answered", "Work", "Work/tax", "category social")
DAYS = (None, dt.date(2020, 1, 12), dt.date(2020, 1, 20))


class Copy(NamedTuple):
    """A copy of a mail that `owner` imported, and in what it differs from the others'."""

    raw: RawMessage
    mail: ParsedEmail
    owner: str
    mark: str
    fields: frozenset[str]

    @property
    def digest(self) -> bytes:
        """What copies of one wording and of the same people have in common."""
        return copy_digest(self.mail, content_digest(self.mail))


def owned_copies(rng: Random, any_id: bool, mails: int = 24) -> list[Copy]:
    """Make copies of each mail for some of the owners, sometimes two for one."""
    copies: list[Copy] = []
    for number in range(mails):
        people = rng.sample((ANN, HOME, BOB, CY, DEE), rng.randint(2, 4))
        words = rng.choices(WORDS, k=4)
        for owner in rng.choices(OWNERS, k=rng.randint(1, 4)):
            fields = frozenset(each for each in FIELDS if rng.random() < 0.3)
            mark = f"{owner.partition('@')[0] or 'nobody'}{number}"
            called = f"Quill {mark} " if "name" in fields else "Person "
            day = rng.randint(6, 24) if "date" in fields else 6 + number % 18
            text = [*words, f"zebra{mark}"] if "wording" in fields else words
            spaces = "  " if "spacing" in fields else " "
            message = raw(
                f"<{number}{'.' + mark if any_id else ''}@t>",
                sender=f"{called}<{people[0]}>",
                to=", ".join(f"{called}<{each}>" for each in people[1:]),
                cc=CY if "people" in fields and CY not in people else None,
                subject=f"Re:{spaces}{text[-1]} {number % 5}",
                body=" ".join([*text, f"number {number} of the 3 May."]),
                date=f"{day} Jan 2020 09:{number:02}:00 +0000",
            )
            if "attachment" in fields or number % 3 == 0:
                text = [f"annex{mark}"] if "attachment" in fields else ["annex"]
                message = builders.with_files(message, {"note.txt": " ".join(text).encode()})
            if "reference" in fields:
                message = changed(message, number, references=f"<{rng.randrange(mails)}@t>")
            if "list" in fields:
                message = changed(message, number, list_id=f"<{mark}.x.example>")
            labels = (*rng.sample(LABELS, 2), mark) if "labels" in fields else ("inbox",)
            message = message._replace(
                source=f"{number}/{len(copies)}", labels=labels + ("spam",) * ("junk" in fields)
            )
            copies.append(Copy(message, parsed(message), owner, mark, fields))
    return copies


def write_owned(path: Path, copies: Collection[Copy], any_id: bool, rng: Random) -> None:
    """Import the copies for each owner, in any order of owners and mails."""
    for owner in rng.sample(OWNERS, len(OWNERS)):
        messages = [each.raw for each in copies if each.owner == owner]
        if messages:
            rng.shuffle(messages)
            make_inbox(path, messages, Rules(any_id=any_id), owner or None, append=True)


def is_in_inbox(copy: Copy, person: Collection[str], copies: Collection[Copy]) -> bool:
    """Return True if one of the person's addresses imported it, or sent or got it and imported
    neither another copy nor a mail of its id."""
    return copy.owner in person or (
        not parties_of(copy.mail).isdisjoint(person)
        and not any(
            other.mail.message_id == copy.mail.message_id or other.digest == copy.digest
            for other in copies
            if other.owner in person
        )
    )


def write_people(path: Path, person: Sequence[str]) -> None:
    with duckdb.connect(str(path)) as connection:
        for address in person:
            connection.execute("INSERT INTO people VALUES (?, ?)", [address, person[0]])


def test_each_owner_sees_one_copy_and_others_the_earliest(tmp_path: Path) -> None:
    db = tmp_path / "inbox.duckdb"
    people = {"to": f"{BOB}, {HOME}, {CY}", "cc": ANN}
    for owner, day, name, label in (
        (ANN, 6, "Dee", "Work"), (BOB, 3, "Mallory the Long", "spam"), (HOME, 6, "D.", "sent"),
    ):  # fmt: skip
        mail = raw(f"<{name[0]}@t>", sender=f"{name} <{DEE}>", date=date_header(day), **people)
        mail = builders.with_files(mail, {"note.txt": f"annex of {name}".encode()})
        mails = [mail._replace(labels=(label,)), raw(f"<{day}{name[0]}@t>", to=owner)]
        make_inbox(db, mails, Rules(any_id=True), owner, append=True)
    write_people(db, (ANN, HOME))

    def shown(address: str, junk: bool, day: int = 31) -> list[Any]:
        with InboxFile(db, junk=junk) as file:
            inbox = file.open_inbox(address, dt.date(2020, 1, day))
            hits = inbox.search(["annex"])
            mails = [inbox.read(hit.message_id) for hit in hits]
            # Nobody's own copy has another's id; to the others all copies' ids name the mail.
            ids = [each for each in "DM" if inbox.canonical_id(f"<{each}@t>")]
            assert len(ids) == (2 if address == CY and junk else len(hits))
            listed = {each.address: each.emails for each in file.inboxes()}
            assert junk or day < 31 or listed[address] == len(inbox)
            return [(each.sender.name, each.labels) for each in mails if each]

    person = [("Dee", ("Work", "sent"))]
    assert shown(ANN, junk=False) == shown(ANN, junk=True) == person
    assert shown(ANN, junk=True, day=6) == person and shown(ANN, junk=True, day=5) == []
    assert shown(BOB, junk=False) == []
    assert shown(BOB, junk=True, day=3) == [("Mallory the Long", ("spam",))]
    # Cy, who imported nothing, has the earliest that is not spam.
    assert shown(CY, junk=False) == [("Dee", ())]
    assert shown(CY, junk=True) == [("Mallory the Long", ())]


class Side(NamedTuple):
    """One inbox of a file, with and without junk, and on every surface."""

    files: dict[bool, InboxFile]
    shell: duckdb.DuckDBPyConnection
    session: WebSession
    address: str
    as_of: dt.date | None


SURFACES = ("search", "read", "thread", "mcp", "page", "ask", "sql", "count")


def shown_on(
    surface: str, side: Side, text: str, ids: list[str], words: list[str], people: dict[str, Any]
) -> Any:
    """Return what a surface shows of a query, of mails, and of words with filters by people."""
    query = parse_query(text, dt.date(2020, 1, 20))
    file, address, as_of = side.files[query.junk], side.address, side.as_of
    inbox = file.open_inbox(address, as_of)
    if surface == "search":
        hits = inbox.search(query.words, query=query, max_results=NO_LIMIT)
        return hits, inbox.thread_sizes(message_ids(hits))
    if surface == "read":
        names = [inbox.canonical_id(each) for each in ids]
        return inbox.read_many(ids), names, [inbox.files(each) for each in ids]
    if surface == "thread":
        return [inbox.thread(each) for each in ids], inbox.thread_sizes(ids)
    if surface == "mcp":
        one = {"message_id": ids[0]}
        keywords = {"keywords": words, **people}
        calls = ("search_emails", keywords), ("read_email", one), ("read_thread", one)
        return [answer_call(inbox, name, arguments) for name, arguments in calls]
    if surface == "page":
        has = inbox.read(ids[0]) is not None
        mail = has and side.session.mail(address, ids[0], whole=True, words=words, junk=query.junk)
        return side.session.search(address, text), mail, side.session.inbox(address)
    if surface == "ask":
        episode = Episode(inbox, Question("q", f"What is {' '.join(words)}?", address))
        trajectory = builders.play(episode, OfflinePolicy())
        return trajectory.messages, trajectory.final_answer, trajectory.sources
    if surface == "sql":
        return run_sql(side.shell, address, as_of, Query(words, **people, max_results=NO_LIMIT))
    listed = [each for each in side.files[False].inboxes() if each.address == address]
    return len(inbox), None if as_of else listed


def drawn_query(rng: Random, words: list[str], mark: str) -> tuple[str, list[str]]:
    """Draw a query of one or two operators, and their names."""
    days = [f"2020-01-{day:02}" for day in range(5, 26)]
    parties = ["quill", f'"quill {mark}"', mark, "person", "ann", BOB, CY, "me"]
    values: dict[str, Sequence[str]] = {
        **dict.fromkeys(("from", "to", "cc"), parties),
        **dict.fromkeys(("after", "before", "on"), days),
        **dict.fromkeys(("older_than", "newer_than"), ("3d", "1w", "2w")),
        "subject": [*words, "re"],
        "label": [*LABELS, mark],
        "in": ("inbox", "sent", "drafts", "spam", "anywhere"),
        "is": ("unread", "read", "starred", "answered", "important", "bulk"),
        "list": [mark, "example"],
        "category": ["social"],
        "has": ["attachment"],
        "filename": ["note", "annex"],
    }
    assert values.keys() == set(EVERY_OPERATOR)
    names = rng.sample(list(values), rng.randint(1, 2))
    terms = [f"{rng.choice(['', '-'])}{name}:{rng.choice(values[name])}" for name in names]
    beginnings = [f"{each[:4]}*" for each in words if len(each) > 3]
    return " ".join([*terms, *rng.sample([*words, *beginnings], rng.randint(0, 1))]), names


@pytest.mark.fire
@pytest.mark.parametrize("seed", range(tries(1, 24)))
@pytest.mark.usefixtures("home")
def test_inbox_shows_only_its_owners_copies(seed: int, tmp_path: Path) -> None:
    """Beside the mail of all owners, and after its day, each inbox is what it is alone."""
    rng = Random(seed)
    any_id = seed % 2 == 1
    copies = owned_copies(rng, any_id)
    ids = sorted({each.mail.message_id for each in copies})
    counts: Counter[str] = Counter()
    write_owned(tmp_path / "whole.duckdb", copies, any_id, rng)
    for number, person in enumerate(rng.sample(VIEWERS, tries(2, len(VIEWERS)))):
        as_of = rng.choice(DAYS)
        visible = [
            copy
            for copy in copies
            if is_in_inbox(copy, person, copies) and is_before(copy.mail.sent_at, as_of)
        ]
        others = [each for each in copies if each not in visible or each.owner not in person]
        if not visible or not others:
            continue
        sides = []
        paths = [tmp_path / f"{number}.{name}.duckdb" for name in ("whole", "alone")]
        shutil.copyfile(tmp_path / "whole.duckdb", paths[0])
        write_owned(paths[1], visible, any_id, rng)
        for path in paths:
            write_people(path, person)
            files = {junk: InboxFile(path, junk=junk) for junk in (False, True)}
            inbox = files[True].open_inbox(person[-1], as_of)
            session = WebSession(files[False], inbox, OFFLINE, Options())
            sides.append(Side(files, plain_connection(path), session, person[0], as_of))
        terms = sides[1].shell.execute("SELECT word FROM terms").fetchall()
        known = {word for (word,) in terms}
        for _ in range(tries(30, 60)):
            other, surface = rng.choice(others), rng.choice(SURFACES)
            mail = other.mail
            named = re.findall(r"\w+", f"{mail.subject} {mail.body} {mail.attached}")
            words = rng.sample(named, min(3, len(named)))
            text, operators = drawn_query(rng, words, other.mark)
            if surface == "sql":
                words = [each for each in words if each.lower() in known]
            names = [mail.message_id, *rng.sample(ids, 2)]
            filters = rng.sample(("from_addr", "to_addr"), rng.randint(0, 1))
            people = {each: rng.choice(("quill", other.mark, "person", CY)) for each in filters}
            results = []
            for side in sides:
                try:
                    results.append(shown_on(surface, side, text, names, words, people))
                except UserError as error:
                    results.append(str(error).partition(" in /")[0])
            case = seed, person, as_of, surface, text, names, words, people
            assert results[0] == results[1], case
            counts.update({surface, *operators, *other.fields, f"for {len(person)}"})
        for side in sides:
            for file in side.files.values():
                file.close()
            side.shell.close()
    print(dict(sorted(counts.items())))  # shown by `pytest -rP`
