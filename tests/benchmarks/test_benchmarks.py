"""Every benchmark at a tiny size; the three ways of searching agree where they should."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from art_e.inbox.file import InboxFile
from tests.benchmarks import ingest as ingest_benchmark
from tests.benchmarks import overhead, search
from tests.benchmarks.__main__ import parse_options
from tests.benchmarks.measure import machine_facts, run_process, summary
from tests.benchmarks.queries import draw_queries, largest_inboxes, plain_words, unequal_inboxes
from tests.benchmarks.reference import Filtered, ReferenceInbox, ReferenceMail, build
from tests.benchmarks.report import Result, show, show_targets, targets, write_report
from tests.benchmarks.worlds import World, stored_mails, synthetic_archive
from tests.builders import Query, raw
from tests.conftest import RealInbox


@pytest.fixture(scope="module")
def tiny(world_db: Path, tmp_path_factory: pytest.TempPathFactory) -> World:
    """The tests' world of 1,000 mails in both forms."""
    return _world(world_db, tmp_path_factory.mktemp("reference") / "world.sqlite")


@pytest.fixture(scope="module")
def reference(tiny: World) -> Iterator[ReferenceInbox]:
    """Its mails in the reference's file."""
    with ReferenceInbox(tiny.sqlite) as opened:
        yield opened


def _world(db: Path, sqlite: Path) -> World:
    with InboxFile(db) as inbox_file:
        cost = build(sqlite, stored_mails(inbox_file))
    no_cost = {"seconds": 1.0, "cpu_seconds": 1.0, "peak_mb": 1.0}
    return World("tiny", db, sqlite, cost.mails, no_cost, no_cost)


def test_search_benchmark_compares_and_times(tiny: World, tmp_path: Path) -> None:
    result = search.benchmark(tiny, queries=30, rounds=1, compared=20)
    assert result["agreement"]["macro"] == 20
    assert result["agreement"]["contains"] == 20
    assert result["agreement"]["same_set"] >= 5
    assert result["ours"]["ms"]["p50"] > 0
    assert result["ratios"]["p50"] == pytest.approx(
        result["reference"]["ms"]["p50"] / result["ours"]["ms"]["p50"]
    )
    ours = [result["memory"][f"ours, {number} inboxes"]["mails_open"] for number in (1, 20)]
    assert 0 < ours[0] < ours[1]
    show(result)
    written = write_report(tmp_path / "now.json", [result], machine_facts())
    assert written[1].read_bytes().startswith(b"\x89PNG")
    assert json.loads(written[0].read_text(encoding="utf-8"))["results"][0]["mails"] == tiny.mails


def test_a_search_that_differs_is_noticed(
    world: InboxFile, reference: ReferenceInbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = [inbox.address for inbox in unequal_inboxes(world)]
    monkeypatch.setattr(search, "by_macro", lambda _, __, ___: [])
    with pytest.raises(AssertionError, match="disagree"):
        search.compare(world, reference, addresses, 10)
    monkeypatch.undo()
    real = search.reference_ids
    monkeypatch.setattr(search, "reference_ids", lambda *given: {*real(*given), "<other@x>"})
    with pytest.raises(AssertionError, match="ours lacks"):
        search.compare(world, reference, addresses, 10)


def test_queries_are_seeded_and_find_their_mail(
    world: InboxFile, reference: ReferenceInbox
) -> None:
    addresses = [inbox.address for inbox in unequal_inboxes(world)]
    drawn = draw_queries(world, reference, addresses, 60, seed=4)
    assert drawn == draw_queries(world, reference, addresses, 60, seed=4)
    assert drawn != draw_queries(world, reference, addresses, 60, seed=5)
    assert {len(asked.query.keywords) for asked in drawn} == {1, 2, 3, 4}
    dated = sum(bool(asked.query.sent_after or asked.query.sent_before) for asked in drawn)
    assert 18 <= dated <= 42
    assert all(search.by_reference(reference, *asked) for asked in drawn)


def test_plain_words_have_one_form(world: InboxFile, reference: ReferenceInbox) -> None:
    largest = largest_inboxes(world, 1)[0]
    for word in plain_words(world, reference, largest.address, 10):
        rows = world.execute(
            "SELECT count(*) FROM terms WHERE stem = (SELECT stem FROM terms WHERE word = ?)",
            [word],
        ).fetchone()
        assert rows == (1,)


def test_ingest_benchmark_reads_the_same_mail_twice(tmp_path: Path) -> None:
    archive = synthetic_archive(1000, tmp_path)
    result = ingest_benchmark.benchmark("synthetic-1000", archive, repeats=1)
    assert result["ours"]["read"] == result["reference"]["read"] == 1000
    assert set(result["stages"]["ours"]["cpu_seconds"]) == {
        "read",
        "parse",
        "tokenise",
        "load",
        "deduplicate",
        "index",
    }
    show(result)


def test_episode_and_startup_benchmarks(tiny: World) -> None:
    turns = overhead.episode(tiny, episodes=5)
    assert turns["policies"]["search and read"]["turns"] == 5 * (2 * overhead.SEARCHES + 1)
    assert turns["policies"]["answer at once"]["turns"] == 5
    show(turns)
    processes = overhead.startup(tiny, runs=1)
    assert all(each["seconds"] > 0 for each in processes["commands"].values())
    show(processes)
    judged = targets([turns, processes])
    assert {each.unit for each in judged} == {"ms", "s"}
    show_targets([turns, processes])


@pytest.mark.parametrize(("ratio", "peak_mb"), [(3.9, 4000.0), (4.1, 4200.0)])
def test_targets_tell_which_side_of_the_limit(ratio: float, peak_mb: float) -> None:
    result: Result = {
        "benchmark": "ingest",
        "archive": "x",
        "ratios": {"seconds": ratio},
        "ours": {"peak_mb": peak_mb},
    }
    rate, peak = targets([result])
    assert rate.met == (ratio >= 4)
    assert peak.met == (peak_mb <= 4096)


def test_the_reference_filters_and_drops_copies() -> None:
    copies = [raw("<1@x>", body="same"), raw("<2@x>", body="same")]
    long = raw("<3@x>", body="word " * 1001)
    crowd = raw("<4@x>", body="to all", to=", ".join(f"p{n}@x.example" for n in range(31)))
    mails = Filtered([*copies, long, crowd])
    kept = list(mails)
    assert [mail.message_id for mail in kept] == ["<1@x>"]
    assert mails.read == 4


def test_the_reference_finds_what_its_query_says(tmp_path: Path) -> None:
    def mail(number: int, body: str, sender: str, to: str) -> ReferenceMail:
        date = f"2020-01-0{number} 10:00:00"
        return ReferenceMail(f"<{number}>", "s", sender, date, body, "f", [(to, "to")])

    path = tmp_path / "some.sqlite"
    build(
        path,
        [
            mail(1, "lease ends", "a@x", "b@x"),
            mail(2, "lease starts", "b@x", "c@x"),
            mail(3, "lease ends again", "c@x", "d@x"),
        ],
    )
    with ReferenceInbox(path) as opened:
        found = [hit.message_id for hit in opened.search("b@x", ["lease"])]
        assert found == ["<2>", "<1>"]
        assert [hit.message_id for hit in opened.search("b@x", ["lease", "ends"])] == ["<1>"]
        assert search.reference_ids(opened, "b@x", Query(["lease"], from_addr="b@x")) == {"<2>"}
        assert search.reference_ids(opened, "b@x", Query(["lease"], to_addr="b@x")) == {"<1>"}
        assert opened.search("b@x", ["lease ends"])[0].snippet == "<b>lease ends</b>"
        assert opened.mails_with(["lease", "absent"]) == {"lease": 3}


def test_a_broken_process_is_not_measured() -> None:
    with pytest.raises(RuntimeError, match="no such thing"):
        run_process(["python3", "-c", "import sys; sys.exit('no such thing')"])
    assert summary([1.0, 3.0])["p50"] == 2.0


def test_all_agree_on_real_mail(real_inbox: RealInbox, tmp_path: Path) -> None:
    real = _world(real_inbox.db, tmp_path / "real.sqlite")
    with InboxFile(real.db) as inbox_file, ReferenceInbox(real.sqlite) as opened:
        addresses = [inbox.address for inbox in unequal_inboxes(inbox_file)]
        counts = search.compare(inbox_file, opened, addresses, 60)
    assert counts["macro"] == counts["contains"] == 60
    assert counts["same_set"] >= 40


def test_the_command_line_names_benchmarks(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = parse_options(["search", "--size", "50", "--size", "20", "--no-archive"])
    assert (chosen.names, chosen.sizes, chosen.archive) == (["search"], [20, 50], None)
    for wrong in (["sorting"], ["--archive", "nowhere.tar"]):
        with pytest.raises(SystemExit):
            parse_options(wrong)
        assert wrong[-1] in capsys.readouterr().err
