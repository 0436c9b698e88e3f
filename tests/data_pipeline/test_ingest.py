"""Ingest: nothing lost, nothing counted twice, the same inbox in any order; and its command."""

import base64
import contextlib
import datetime as dt
import os
import re
import resource
import signal
import stat
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import get_args
from unittest import mock

import filelock
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.inbox.schema import SUBJECT_WEIGHT
from art_e.inbox.tokenizer import MAX_WORD_CHARS, addresses, marked, stems, tokens
from art_e.question import load_questions, read_rows
from art_e.runs import read_trajectories
from data_pipeline.cli import SEED, SIZE, FormatName, tour_question
from data_pipeline.golden.exchange import import_rows
from data_pipeline.golden.filtering import filter_rows
from data_pipeline.golden.golden_set import GoldenSet
from data_pipeline.golden.inboxes import Counts, split
from data_pipeline.ingest import batch
from data_pipeline.ingest.batch import Job, Rules, default_rules, process
from data_pipeline.ingest.records import FORMATS, RawMessage
from data_pipeline.ingest.sources import read_enron
from data_pipeline.synthetic.world import WorldConfig, questions
from tests.builders import (
    WAIT_S,
    contents,
    date_header,
    make_inbox,
    new_file,
    raw,
    tries,
    with_files,
)
from tests.command_line import Process, Run, json_of, the_error
from tests.conftest import RealInbox
from tests.formats import of_row, parsed
from tests.processes import Moment, wait_until

ANY_ID = Rules(any_id=True)


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "inbox.duckdb"


def test_every_message_of_public_mail_is_accounted_for(db: Path) -> None:
    to = [f"p{number}@test.example" for number in range(31)]
    messages = [
        raw("<30@t>", to=", ".join(to[:20]), cc=", ".join(to[20:30])),
        raw("<31@t>", to=", ".join(to[:20]), cc=", ".join(to[20:]), subject="More"),
        raw("<5000@t>", body="word " * 999 + "word."),
        raw("<5001@t>", body="word " * 999 + "words."),
        raw("<copy@t>", body="word " * 999 + "word."), RawMessage("mail/empty", b""),
    ]  # fmt: skip
    report = make_inbox(db, messages, default_rules("enron"))
    filtered = {"long-body": 1, "many-recipients": 1}
    assert report.counts == {
        "read": 6, "stored": 2, "duplicates": 1, "filtered": filtered, "quarantined": {"empty": 1},
        "cut": {}, "not_mail": {}, "junk": 0, "inboxes": 32, "attachments": 0, "unread": {},
    }  # fmt: skip
    with InboxFile(db) as file:
        assert file.counts == report.counts
        stored = file.execute("SELECT message_id FROM emails").fetchall()
        skipped = file.execute("SELECT source, stage, reason, detail FROM skipped").fetchall()
    assert sorted(stored) == [("<30@t>",), ("<5000@t>",)]
    people, length, empty = skipped
    assert people == ("mail/<31@t>", "filtered", "many-recipients", "31 recipients, 30 allowed")
    assert length == ("mail/<5001@t>", "filtered", "long-body", "5001 characters, 5000 allowed")
    assert empty[:3] == ("mail/empty", "quarantined", "empty")
    # Personal mail has no limits, and a copy under another id stays.
    assert make_inbox(db, messages, default_rules("mbox")).counts["stored"] == 5


def test_ids_of_copies_are_valid_from_their_day(db: Path) -> None:
    people = {"to": "cleo@test.example", "cc": "Bob B <bob@test.example>"}
    later = raw("<a@t>", date=date_header(9), **people)
    mails = [later, raw("<z@t>", date=date_header(7), **people)]
    with new_file(db, mails, rules=ANY_ID) as file:
        for address in ("bob@test.example", "cleo@test.example", "ann@test.example"):
            mail = file.open_inbox(address).read("<a@t>")
            assert mail is not None, address
            assert (mail.message_id, str(mail.cc[0])) == ("<z@t>", "Bob B <bob@test.example>")
            before = file.open_inbox(address, dt.date(2020, 1, 8))
            assert before.read("<z@t>") == mail
            assert before.read("<a@t>") is None
    # Bob got the mail days after Cleo: his inbox does not show it before that.
    mails = [
        raw("<1@t>", to="cleo@test.example", date=date_header(7)),
        raw("<2@t>", to="bob@test.example", date=date_header(9)),
        raw("<3@t>", to="cleo@test.example", bcc="bob@test.example", date=date_header(8)),
    ]
    with new_file(db, mails, rules=ANY_ID) as file:
        assert file.counts["stored"] == 3
        assert len(file.open_inbox("bob@test.example", dt.date(2020, 1, 7))) == 0
        assert len(file.open_inbox("bob@test.example")) == 2


def test_copies_in_personal_mail_need_the_same_id_and_content(db: Path) -> None:
    counts = make_inbox(db, [raw("<1@t>"), raw("<2@t>"), raw("<1@t>")]).counts
    assert (counts["stored"], counts["duplicates"]) == (2, 1)
    first, second = raw("<1@t>", body="One."), raw("<1@t>", body="Two.", date=date_header(8))
    with new_file(db, [second, first]) as file:
        hits = file.open_inbox("ann@test.example").search(["one", "two"])
        named = {hit.snippet: hit.message_id for hit in hits}
    assert named["One."] == "<1@t>"
    assert named["Two."].endswith("+1@t>")
    # A mail whose id was taken is recognised as a duplicate.
    counts = make_inbox(db, [second], append=True).counts
    assert (counts["stored"], counts["duplicates"]) == (2, 1)


def test_an_owner_has_all_mail_but_undated_mail_as_of_a_day(db: Path) -> None:
    mail = raw("<1@t>", to="list@lists.example", date=None)
    with new_file(db, [mail], owner="me@test.example") as file:
        assert file.open_inbox("me@test.example").read("<1@t>") is not None
        assert file.open_inbox("me@test.example", dt.date(2100, 1, 1)).read("<1@t>") is None


@st.composite
def a_mail(draw: st.DrawFn) -> RawMessage:
    """Draw from few values, so that copies, taken ids and shared recipients are frequent."""
    number, body = draw(st.integers(1, 4)), draw(st.integers(1, 2))
    day, name = draw(st.integers(6, 8)), draw(st.sampled_from(["", "Ann Alder", "A. Alder"]))
    to = draw(st.lists(st.sampled_from("bcde"), min_size=1, max_size=3, unique=True))
    cc = draw(st.lists(st.sampled_from("bcde"), max_size=2, unique=True))
    by_list = draw(st.sampled_from([{}, {"List_Id": "<a.t>"}, {"List_Id": "<b.t>"}]))
    return raw(
        f"<{number}@t>", body=f"Body {body}.", sender=f"{name} <ann@test.example>",
        to=", ".join(f"{each}@test.example" for each in to),
        cc=", ".join(f"{each} Person <{each}@test.example>" for each in cc) or None,
        # Different mails have different sources.
        date=date_header(day), **by_list,
        source=f"{number}/{body}/{day}/{to}/{cc}/{name}/{by_list}",
    )  # fmt: skip


@settings(max_examples=tries(3, 60))
@given(st.data())
def test_order_has_no_effect(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("order")
    one, two, whole = (folder / f"{name}.duckdb" for name in ("one", "two", "whole"))
    rules = [Rules(any_id=data.draw(st.booleans())) for _ in range(2)]
    first, second = (data.draw(st.lists(a_mail(), min_size=1, max_size=6)) for _ in range(2))
    owner = st.sampled_from([None, "ann@test.example", "b@test.example"])
    owners = [data.draw(owner) for _ in range(2)]
    make_inbox(one, first, rules[0], owners[0])
    make_inbox(one, second, rules[1], owners[1], append=True)
    make_inbox(two, data.draw(st.permutations(second)), rules[1], owners[1])
    make_inbox(two, data.draw(st.permutations(first)), rules[0], owners[0], append=True)
    assert contents(two) == contents(one)
    if rules[0] == rules[1] and owners[0] == owners[1]:
        make_inbox(whole, data.draw(st.permutations([*first, *second])), rules[0], owners[0])
        assert contents(whole) == contents(one)


def test_workers_equal_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = [
        raw(f"<{n}@t>", subject=f"Subject {n % 700}", body=f"Body of {n % 900}.")
        for n in range(batch.MIN_FOR_WORKERS)
    ]
    with mock.patch.object(batch, "map_in_workers", wraps=batch.map_in_workers) as pool:
        make_inbox(tmp_path / "workers.duckdb", messages, ANY_ID)
        monkeypatch.setattr(batch, "MIN_FOR_WORKERS", len(messages) + 1)
        make_inbox(tmp_path / "single.duckdb", messages, ANY_ID)
    assert pool.call_count == 1
    assert contents(tmp_path / "workers.duckdb") == contents(tmp_path / "single.duckdb")


def test_an_empty_source_or_a_second_ingest_changes_nothing(db: Path) -> None:
    make_inbox(db, [raw()])
    before = contents(db)
    with pytest.raises(UserError, match="no message found"):
        make_inbox(db, [])
    busy = pytest.raises(UserError, match="another ingest is writing")
    with filelock.FileLock(f"{db}.lock"), busy:
        make_inbox(db, [raw("<2@t>")])
    assert contents(db) == before
    assert list(db.parent.glob(".*.partial")) == []


def test_ingest_removes_only_its_own_leftovers(tmp_path: Path) -> None:
    """The name `mail` is a prefix of `mail.duckdb`, whose ingest may be running."""
    running = tmp_path / ".mail.duckdb.123.partial"
    killed = [tmp_path / ".mail.77.partial", tmp_path / ".in[box].duckdb.78.partial"]
    for folder in (running, *killed):
        folder.mkdir()
        (folder / "inbox.duckdb").write_text("half")
    make_inbox(tmp_path / "mail", [raw()])
    make_inbox(tmp_path / "in[box].duckdb", [raw()])
    assert (running / "inbox.duckdb").read_text() == "half"
    assert [each.exists() for each in killed] == [False, False]
    assert stat.S_IMODE((tmp_path / "mail").stat().st_mode) == 0o600


text = st.text(
    st.sampled_from("abcXYZ019 _-'\n\t.,\u00e9\u00df\u0130\u03a3\u4e2d\u0301\u00a0\u2028\x1c")
    | st.characters(),
    max_size=40,
)
parties = st.lists(st.sampled_from(["a@x", "B@x", "Jo <c@x>", "d@y"]), max_size=3)
endings = st.sampled_from(["", "w" * 64, "w" * 65, " ann@x.example"])
fields = st.builds(
    of_row, st.just(""), text.map("s ".__add__), text, parties, parties,
    parties, st.none(), st.builds(str.__add__, text, endings),
)  # fmt: skip


def indexed(words: Iterable[str]) -> list[str]:
    return [word for word in words if len(word) <= MAX_WORD_CHARS]


@settings(max_examples=40)
@given(st.lists(fields, max_size=4))
def test_postings_and_recipients_match_the_mails(fields: list[RawMessage]) -> None:
    emails = [*map(parsed, fields)]
    [batch] = process(Job(fields, Rules()))
    postings: Counter[tuple[int, str]] = Counter()
    words: list[str] = []
    lengths = []
    for row, email in enumerate(emails):
        content = indexed(tokens(email.subject)) * SUBJECT_WEIGHT + indexed(tokens(email.body))
        everything = content + indexed(tokens(email.sender.indexed))
        named = indexed(sorted({*addresses(email.subject), *addresses(email.body)}))
        named += indexed(marked(" ".join(tokens(f"{email.subject} {email.body}"))))
        postings.update((row, stem) for stem in stems(everything + named))
        words += content + named
        lengths.append(len(everything))
    rows = batch.postings.to_pylist()
    assert len(rows) == len(postings)
    stem_of = dict(zip(*batch.stems.to_pydict().values(), strict=True))
    assert postings == {(row["row"], stem_of[row["term"]]): row["frequency"] for row in rows}
    assert batch.mails["length"].to_pylist() == lengths
    terms: dict[int | None, dict[str, str]] = {}
    for row in batch.words.to_pylist():
        terms.setdefault(row["row"], {})[row["word"]] = stem_of[row["term"]]
    assert terms.pop(None, {}) == dict(zip(words, stems(words), strict=True))
    names = [indexed(tokens(email.sender.indexed)) for email in emails]
    stemmed = {row: dict(zip(name, stems(name), strict=True)) for row, name in enumerate(names)}
    assert terms == {row: words for row, words in stemmed.items() if words}
    assert batch.recipients.to_pylist() == [
        {"row": row, "address": box.address, "name": box.name, "role": role, "position": position}
        for row, email in enumerate(emails)
        for role, listed in enumerate((email.to, email.cc, email.bcc))
        for position, box in enumerate(listed)
    ]


SUMS = """db read stored duplicates filtered quarantined cut not_mail junk inboxes attachments
unread added seconds messages_per_second""".split()


@pytest.fixture
def eml(tmp_path: Path) -> Path:
    """Return a folder of four .eml files: two mails, a copy of one, and an empty file."""
    folder = tmp_path / "mail"
    folder.mkdir()
    for number, name in enumerate("aba"):
        (folder / f"{number}.eml").write_bytes(raw(f"<{name}@t>", subject=name).data)
    (folder / "9.eml").write_bytes(b"")
    return folder


def test_the_report_balances_in_json_and_text(art_e: Run, eml: Path, db: Path) -> None:
    report = json_of(art_e("ingest", eml, "--db", db, "--json"))
    assert list(report) == SUMS
    assert (report["read"], report["stored"], report["duplicates"]) == (4, 2, 1)
    assert report["added"] == {"read": 4, "stored": 2}
    assert report["quarantined"] == {"empty": 1}
    lines = art_e("ingest", eml / "0.eml", "--db", db, "--replace").stdout
    for line in ("1  read", "1  stored", "0  duplicates", f"art-e inboxes --db {db}"):
        assert line in lines
    both = json_of(art_e("ingest", eml / "1.eml", "--db", db, "--append", "--json"))
    assert (both["stored"], both["added"]["stored"]) == (2, 1)
    assert art_e("ingest", eml, "--owner", " Me@X.example").exit_code == 0
    assert len(json_of(art_e("search", "--from", "ann", "--json"))) == 2
    assert get_args(FormatName) == ("auto", *FORMATS)


def test_rules_follow_the_format_and_the_options(art_e: Run, tmp_path: Path) -> None:
    """Two copies under different ids, and a mail to 35 people."""
    folder = tmp_path / "maildir" / "ann"
    folder.mkdir(parents=True)
    people = ", ".join(f"p{number}@test.example" for number in range(35))
    for number, mail in enumerate((raw("<1@t>"), raw("<2@t>"), raw("<3@t>", to=people))):
        (folder / f"{number}.eml").write_bytes(mail.data)
    for options, stored in {
        "": 3, "--max-recipients 2": 2, "--max-body-chars 9": 0, "--format enron": 1,
        "--format enron --max-recipients 40": 2, "--format enron --no-filter": 3,
    }.items():  # fmt: skip
        report = art_e("ingest", folder.parent, "--replace", *options.split(), "--json")
        assert json_of(report)["stored"] == stored, options


def test_a_synthetic_world_brings_its_questions(art_e: Run, tmp_path: Path) -> None:
    db, path = tmp_path / "world.duckdb", tmp_path / "world.questions.jsonl"
    report = json_of(art_e("ingest", "synthetic:1000,seed=4", "--db", db, "--json"))
    assert report["questions"] == str(path)
    planted = load_questions(str(path))
    more = json_of(art_e("ingest", "synthetic:1000,seed=5", "--db", db, "--append", "--json"))
    assert more["read"] == 2_000
    both = load_questions(str(path))
    assert both[: len(planted)] == planted and len(both) > len(planted)
    part = art_e("ingest", "synthetic:1000", "--limit", 50, "--replace", "--json")
    assert "questions" not in json_of(part) and "--limit" in part.stderr


def test_only_inboxes_are_replaced_not_symlinks(art_e: Run, eml: Path, tmp_path: Path) -> None:
    precious = tmp_path / "mail.mbox"
    precious.write_text("From ann\n" * 100)
    assert "--db" in the_error(art_e("ingest", eml, "--db", precious))
    assert precious.read_text() == "From ann\n" * 100
    assert "folder" in the_error(art_e("ingest", eml, "--db", tmp_path))
    os.mkfifo(tmp_path / "pipe")  # not a device, which a test as root could destroy
    assert "is not a regular file" in the_error(art_e("ingest", eml, "--db", tmp_path / "pipe"))
    assert (tmp_path / "pipe").is_fifo()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real.duckdb")
    for options in ([], ["--replace"]):
        json_of(art_e("ingest", eml, "--db", link, "--json", *options))
        assert link.is_symlink()
        with InboxFile(tmp_path / "real.duckdb") as file:
            assert file.counts["read"] == 4
    # Mail is not replaced silently.
    error = the_error(art_e("ingest", eml, "--db", link))
    assert "is an inbox file already: --append adds to it, --replace rebuilds it" in error
    assert "--append and --replace" in the_error(art_e("ingest", eml, "--append", "--replace"))


# Functions at whose call an ingest may die, and the maximum number of calls until then.
BUILD = "data_pipeline.ingest.build:InboxBuild"
DEATHS = [("os", "fsync", 2), ("pathlib:Path", "replace", 1), (BUILD, "_run", 40)]
DEATHS += [(BUILD, "add", 1), ("pathlib:Path", "chmod", 1)]


@pytest.mark.fire
def test_a_kill_at_any_write_leaves_old_or_new(art_e: Run, eml: Path, tmp_path: Path) -> None:
    """After a kill at SQL, fsync or rename, a later ingest gives the same file as without it."""
    db, whole = tmp_path / "mail.duckdb", tmp_path / "whole.duckdb"
    (tmp_path / "more.eml").write_bytes(raw("<more@t>", subject="More").data)
    for path in (db, whole):
        json_of(art_e("ingest", eml, "--db", path, "--json"))
    more = ("ingest", str(tmp_path / "more.eml"), "--append", "--json", "--db")
    before = contents(db)
    json_of(art_e(*more, whole))
    after = contents(whole)
    for seed in range(tries(1, 20)):
        place, name, calls = DEATHS[seed % len(DEATHS)]
        moment = Moment(place, name, Random(seed).randint(1, calls))
        program = f"from tests.processes import *; die_at({moment!r})\n"
        program += f"from art_e.cli.main import app; app({[*more, str(db)]!r})"
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
        # An ingest with fewer calls ends by itself.
        assert ended.returncode in (0, -signal.SIGKILL)
        stored = contents(db)
        assert stored in (before, after)
        if stored == after:
            json_of(art_e("ingest", eml, "--db", db, "--replace", "--json"))
    json_of(art_e(*more, db))
    assert contents(db) == after
    assert not list(tmp_path.glob(".*.partial"))


def test_a_full_disk_gives_one_line_and_leaves_nothing(process: Process, db: Path) -> None:
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (300_000, 300_000))
    with process("ingest", "synthetic:1000", "--db", db, preexec_fn=limit) as started:
        out, err = started.communicate()
    assert (started.returncode, out) == (2, "")
    *_, last = err.splitlines()
    assert last.startswith("Error: ") and "internal error" not in last
    assert not [*db.parent.glob("*.duckdb"), *db.parent.glob(".*.partial")]


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_ingest_leaves_the_old_file_and_no_process(
    sent: signal.Signals, process: Process, art_e: Run, eml: Path, db: Path
) -> None:
    json_of(art_e("ingest", eml, "--db", db, "--json"))
    before = db.read_bytes()
    started = process("ingest", "synthetic:4000", "--db", db, "--replace")
    assert wait_until(lambda: list(db.parent.glob(".*.partial/*")), started)
    # A terminal sends Ctrl-C to the whole group.
    os.killpg(started.pid, sent) if sent == signal.SIGINT else started.send_signal(sent)
    out, err = started.communicate(timeout=WAIT_S)
    if sent == signal.SIGINT:
        assert (started.returncode, out) == (130, "")
        assert err == "interrupted; the inbox is unchanged\n"
    assert db.read_bytes() == before
    # The workers end after their parent, so that its process group is empty.
    deadline = time.monotonic() + WAIT_S
    with pytest.raises(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(started.pid, 0)
            time.sleep(0.05)
    # A later ingest removes the remains of the build, and is not locked out.
    assert json_of(art_e("ingest", eml, "--db", db, "--replace", "--json"))["read"] == 4
    assert not list(db.parent.glob(".*.partial"))


def test_the_demo_shows_every_step_and_builds_its_inbox_once(art_e: Run, home: Path) -> None:
    first, second = art_e("demo"), art_e("demo", "--json")
    question = tour_question(questions(WorldConfig(size=SIZE, seed=SEED)))
    steps = (question.question, " 1  search ", "  read ", "| ", "answer  ", "expected: ")
    positions = [first.stdout.index(step) for step in steps]
    assert positions == sorted(positions)
    assert f"expected: {question.answer}" in first.stdout
    assert "writing a sample company" in first.stderr
    assert "writing" not in second.stderr
    assert len(list((home / "worlds").glob("*.duckdb"))) == 1
    # The JSON is that of `ask` with the gold answer.
    answer = json_of(second)
    assert (answer["question"], answer["gold_answer"]) == (question.question, question.answer)
    assert str(question.answer).strip("$") in answer["answer"]
    [trajectory] = read_trajectories(Path(answer["trajectory"]))
    assert trajectory.inbox_address == question.inbox_address


# ---- The real Enron archive (`RealInbox`).

READ, FOUND_FIRST = 47_990, 48


@pytest.fixture(scope="module")
def real_file(real_inbox: RealInbox) -> Iterator[InboxFile]:
    with InboxFile(real_inbox.db) as opened:
        yield opened


# The number of a table's rows, and a hash of them with their order.
HASH = """SELECT count(*), bit_xor(hash(t, place))
    FROM (SELECT t, row_number() OVER () AS place FROM {} AS t)"""


def test_every_real_message_is_accounted_for(real_file: InboxFile) -> None:
    counts = real_file.counts
    assert (counts["read"], counts["quarantined"]) == (READ, {})
    assert set(counts["filtered"]) == {"long-body", "many-recipients"}
    # The archive's message ids are distinct, and each leads to a mail.
    row = real_file.execute(
        "SELECT count(*), count(DISTINCT message_id), count(email_id) FROM (SELECT message_id,"
        " email_id FROM emails UNION ALL SELECT message_id, email_id FROM aliases)"
    ).fetchone()
    copies = READ - sum(counts["filtered"].values())
    assert row == (copies, copies, copies)


def test_real_mail_in_any_order_gives_the_same_inbox(real_inbox: RealInbox, tmp_path: Path) -> None:
    messages = list(read_enron(real_inbox.archive))
    lines = (real_inbox.folder / "nasty.tsv").read_text(encoding="utf-8").splitlines()
    names = {line.partition("\t")[0] for line in lines if line.strip()}
    nasty = [each for each in messages if each.source in names]
    assert {each.source for each in nasty} == names
    for message in nasty:
        # Bodies don't contain headers or remains of an encoding.
        wrong = r"^X-Folder:|=3D|=A0|</?(?:html|td)\b|[^=]=\n"
        assert not re.search(wrong, parsed(message).body, re.M)
    Random(0).shuffle(messages)
    make_inbox(tmp_path / "inbox.duckdb", messages, default_rules("enron"))
    assert contents(tmp_path / "inbox.duckdb", HASH) == contents(real_inbox.db, HASH)


def test_real_questions_find_the_gold_mail(real_inbox: RealInbox, real_file: InboxFile) -> None:
    ranks = []
    for question in load_questions(str(real_inbox.folder / "questions.jsonl")):
        inbox = real_file.open_inbox(question.inbox_address, question.query_date)
        assert all(inbox.read(message_id) for message_id in question.message_ids), question.id
        gold = {inbox.canonical_id(message_id) for message_id in question.message_ids}
        is_gold = [hit.message_id in gold for hit in inbox.search(question.question.split())]
        ranks.append(is_gold.index(True))
    assert len(ranks) == 73
    assert ranks.count(0) >= FOUND_FIRST


@pytest.mark.parametrize(("name", "count"), [("enron", 1_146), ("enron-hard", 25)])
def test_shipped_questions_fit_the_archive(real_file: InboxFile, name: str, count: int) -> None:
    golden = GoldenSet()
    import_rows(real_file, golden, list(read_rows(name)), name)
    assert (golden.rejected, len(golden.questions)) == ([], count)
    for question in golden.questions:
        mails = real_file.inbox_of(question).read_many(question.equivalent_ids)
        assert None not in mails and question.split is not None, question.id
    equivalent = {each.id: each.equivalent_ids for each in load_questions(name)}
    assert {each.id: each.equivalent_ids for each in golden.questions} == equivalent
    filter_rows(real_file, golden, min_realism=0.0)
    # Two batches of the writer may ask for the same fact.
    assert {each.check for each in golden.rejected} <= {"duplicate"} and len(golden.rejected) <= 10
    before = len(golden.questions)
    split(real_file, golden, seed=0, targets=Counts())
    assert len(golden.questions) >= before - 5


def memory_of(process: int) -> int:
    """Return the bytes that a process and its children hold, shared ones counted once."""
    total, todo = 0, [process]
    while todo:
        folder = Path(f"/proc/{todo.pop()}")
        with contextlib.suppress(OSError):
            smaps = (folder / "smaps_rollup").read_text()
            total += int(re.search(r"^Pss: +(\d+)", smaps, re.MULTILINE)[1]) * 1024  # type: ignore[index]
            todo += map(int, (folder / f"task/{folder.name}/children").read_text().split())
    return total


@pytest.mark.fire
@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured by /proc")
def test_large_mails_are_ingested_in_bounded_memory(process: Process, tmp_path: Path) -> None:
    """Mails of 25 MB (under `make fire`) with words that don't occur in other mails."""
    count, size = tries(2, 60), tries(9_000_000, 16_500_000)
    for number in range(count):
        photo = Random(number).randbytes(size)
        letters = base64.b32encode(Random(-number).randbytes(size // 14)).decode()
        text = "\n".join(letters[at : at + 5] for at in range(0, len(letters), 5))
        mail = with_files(raw(f"<{number}@t>", body=text), {"photo.jpg": photo})
        (tmp_path / f"{number}.eml").write_bytes(mail.data)
    db = tmp_path / "i.duckdb"
    peak = 0
    with process("ingest", tmp_path, "--db", db) as started:
        while started.poll() is None:
            peak = max(peak, memory_of(started.pid))
            time.sleep(0.1)
        assert started.returncode == 0, started.communicate()
    assert peak < 1_000_000_000
    with InboxFile(db) as file:
        assert file.counts["stored"] == count
        [attached] = file.open_inbox("bob@test.example").files("<1@t>")
        assert attached.data == Random(1).randbytes(size)


def test_tasks_wait_for_others_above_the_size_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "_MAX_IN_FLIGHT", 100)
    started: list[int] = []
    tasks = (started.append(size) or size for size in [60, 30, 20, 500, 10, 10])  # type: ignore[func-returns-value]
    ended = 0
    for task, done in batch.map_in_workers(abs, tasks, abs):
        # The last task that was read waits.
        held = started[ended:-1]
        assert task == done and (sum(held) <= 100 or len(held) == 1)
        ended += 1
    assert ended == 6
