"""Every benchmark at a tiny size; a search that misses hits of the baseline fails."""

import json
from pathlib import Path

import pytest

from art_e.inbox.file import InboxFile
from bench import overhead, search
from bench.measure import machine_facts, run_process
from bench.queries import unequal_inboxes
from bench.reference import ReferenceInbox
from bench.report import show, write_report
from bench.worlds import World, copy_world, synthetic_archive


@pytest.fixture(scope="module")
def tiny(world_db: Path, tmp_path_factory: pytest.TempPathFactory) -> World:
    return copy_world("tiny", world_db, tmp_path_factory.mktemp("tiny") / "tiny.sqlite", 1.0)


def test_search_is_compared_and_timed(tiny: World, tmp_path: Path) -> None:
    result = search.benchmark(tiny, queries=30, rounds=1, compared=20)
    assert result["agreement"]["queries"] == 20
    ours, theirs = result["ours"]["p50"], result["reference"]["p50"]
    assert result["ratios"]["p50"] == pytest.approx(theirs / ours)
    show(result)
    report, plot = write_report(tmp_path / "now.json", [result], machine_facts())
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert json.loads(report.read_text(encoding="utf-8"))["results"][0]["mails"] == tiny.mails


def test_missed_hits_fail(tiny: World, world: InboxFile, monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = [inbox.address for inbox in unequal_inboxes(world)]
    monkeypatch.setattr(ReferenceInbox, "search", lambda *_: ["<other@x>"])
    differs = pytest.raises(AssertionError, match="ours lacks")
    with ReferenceInbox(tiny.sqlite) as reference, differs:
        search.compare(world, reference, addresses, 10)


@pytest.mark.long
def test_ingest_episodes_and_processes_are_timed(tiny: World, tmp_path: Path) -> None:
    ingested = overhead.ingest("tiny", synthetic_archive(1000, tmp_path), repeats=1)
    assert ingested["ours"]["read"] == ingested["reference"]["read"] == 1000
    turns = overhead.episode(tiny, episodes=5)
    assert turns["policies"]["search and read"]["turns"] == 5 * (2 * overhead.SEARCHES + 1)
    processes = overhead.startup(tiny, runs=1)
    assert all(each["seconds"] > 0 for each in processes["commands"].values())
    for result in (ingested, turns, processes):
        show(result)
    with pytest.raises(RuntimeError, match="out of luck"):
        run_process(["python3", "-c", "import sys; sys.exit('out of luck')"])
