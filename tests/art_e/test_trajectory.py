"""What happened in an episode: the loop that records it, trajectories as JSON lines, and runs."""

import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest

from art_e.agent import episode_record
from art_e.runs import find_run, list_runs, read_trajectories, start_run
from art_e.trajectory import Trajectory, exchanges
from tests import builders
from tests.builders import LEASE, Start, answer, call, message, read, search, the_error, trajectory


def test_a_line_gives_the_trajectory_back() -> None:
    for cost in (None, 0.1):
        text = builders.TEXT
        fields = {"policy": {"value": {text: [text, None, 1]}}, "verdict": {"reason": text}}
        episode = trajectory(text, cost_usd=cost, **fields)
        line = episode.to_line()
        assert "\n" not in line
        assert Trajectory.from_line(line) == episode


def test_another_bad_line_is_an_error(tmp_path: Path) -> None:
    path, line = tmp_path / "t.jsonl", trajectory().to_line()
    older = line.replace("art-e/trajectory/", "art-e/trajectory/0")
    odd = (
        trajectory(usage={"prompt_tokens": 10**400}), trajectory(seconds={"total": -1.0}),
        trajectory(cost_usd=float("nan")),
    )  # fmt: skip
    lines = [line.replace('"rubric"', '"unknown"'), *(each.to_line() for each in odd)]
    for bad in ("{", "\udcff", older, "[" * 100_000, *lines):
        path.write_bytes(f"{line}\n{bad}\n{line}\n".encode("utf-8", "surrogateescape"))
        rows = read_trajectories(path)
        assert next(rows) == trajectory()
        with pytest.raises(ValueError):  # of JSON, of UTF-8 or of the schema
            next(rows)


def test_events_say_what_was_found_read_and_cited(start: Start) -> None:
    episode = start(max_turns=4)
    episode.step(message(search("lease"), read("m9")))
    episode.step(message(text="Let me think."))
    episode.step(message(read(LEASE), call("send_money", '{"to": [[]]}')))
    episode.step(message(answer("On May 3.", "m1", "<no@t>")))
    record = episode_record(episode, "r", "scripted", {})
    searched, missed, silent, seen, wrong, final = record.events
    keywords, place = {"keywords": ["lease"]}, {"message_id": LEASE}
    expected = {"turn": 1, "tool": "search_emails", "arguments": keywords, "found": [LEASE]}
    assert searched == expected
    assert (missed["turn"], missed["tool"]) == (1, "read_email")
    assert "not found" in missed["error"] and "read" not in missed
    assert (silent["turn"], silent["tool"]) == (2, "") and "no tool" in silent["error"]
    assert seen == {"turn": 3, "tool": "read_email", "arguments": place, "read": LEASE}
    assert wrong.keys() == {"turn", "tool", "error", "notes"}
    assert "one turn left" in wrong["notes"][0]
    assert final["cited"] == [LEASE, "<no@t>"]
    assert record.mails_read == [LEASE]
    assert [len(turn.calls) for turn in exchanges(episode.messages)] == [2, 0, 2, 1]
    row = json.loads(record.to_line())
    assert row.pop("events") == record.events
    with pytest.raises(ValueError, match="events"):
        Trajectory.from_line(json.dumps(row))


CONFIG = {"model": "offline", "max_turns": 10, "questions": "Zürich.jsonl"}


def test_runs_of_the_same_second_get_separate_folders(tmp_path: Path) -> None:
    # Enough at once that two fall into one second.
    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda _: start_run("ask", CONFIG, tmp_path), range(24)))
    assert len({run.folder for run in runs}) == 24
    assert {run.id for run in list_runs(tmp_path)} == {run.id for run in runs}
    assert all(run.config["model"] == "offline" for run in runs)
    assert any(re.search(r"-ask-\d+$", run.id) for run in runs)


def test_folder_left_by_a_kill_is_reused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Path, "replace", Mock(side_effect=KeyboardInterrupt))
        start_run("eval", {**CONFIG, "note": "x" * 10_000}, tmp_path, out)
    assert [each.name for each in out.iterdir()] == [".config.json.partial"]
    assert start_run("eval", CONFIG, tmp_path, out).config["model"] == "offline"
    assert [each.name for each in out.iterdir()] == ["config.json"]
    (tmp_path / "file").write_text("x")
    for place in (out, tmp_path / "file", tmp_path / "file" / "inside"):
        assert "--out" in the_error(start_run, "eval", {"model": "other"}, tmp_path, place)
    assert find_run("run", tmp_path).config["model"] == "offline"


def test_a_run_elsewhere_is_listed_until_it_is_deleted(tmp_path: Path) -> None:
    runs, out = tmp_path / "runs", tmp_path / "paper" / "floor"
    old, run = start_run("ask", CONFIG, runs), start_run("eval", CONFIG, runs, out)
    assert list_runs(runs)[0] == find_run("floor", runs) == find_run("last", runs) == run
    shutil.rmtree(out)
    assert list_runs(runs) == [old]


@pytest.mark.parametrize("costs", [[None] * 3, [None, 0.1, 0.1], [0.1, 0.1, None]])
def test_a_cost_unknown_in_part_is_unknown(start: Start, costs: list[float | None]) -> None:
    script = [message(search("lease")), message(read("m1")), message(answer("May 3", "m1"))]
    policy = builders.ScriptedPolicy(script, costs=costs)
    assert builders.play(start(), policy).cost_usd is None
