"""Trajectories as lines of JSON: round trips, and lines that are no trajectory."""

import json
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from art_e.agent import episode_record
from art_e.errors import UserError
from art_e.message import AssistantMessage, ToolCall
from art_e.runs import find_run, list_runs, start_run
from art_e.storage import AppendLog
from art_e.trajectory import Trajectory, exchanges, read_trajectories
from tests.builders import (
    LEASE,
    TEXT,
    Start,
    answer,
    call,
    message,
    read_episodes,
    search_episodes,
    trajectory,
)


def write(path: Path, *trajectories: Trajectory) -> None:
    with AppendLog(path) as log:
        for each in trajectories:
            log.append(each.to_line())


_texts = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from("\n\r\u2028\u2029\x85\0\"'\\")
)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=5,
)


@settings(deadline=None)
@given(_texts, _json, st.none() | st.floats(0, 100))
@example(TEXT, {"a": TEXT}, 0.1)
def test_a_line_gives_the_trajectory_back(text: str, policy: Any, cost: float | None) -> None:
    made = trajectory(text, policy={"value": policy}, cost_usd=cost, verdict={"reason": text})
    line = made.to_line()
    assert "\n" not in line
    assert Trajectory.from_line(line) == made


LINE = trajectory().to_line()
ROW = json.loads(LINE)


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "{",
        "\udcff",
        json.dumps({**ROW, "schema": "art-e/trajectory/0"}),
        json.dumps({key: value for key, value in ROW.items() if key != "schema"}),
        json.dumps({key: value for key, value in ROW.items() if key != "rubric"}),
        json.dumps({**ROW, "unknown": 1}),
    ],
)
def test_another_bad_line_is_an_error(tmp_path: Path, bad: str) -> None:
    path = tmp_path / "t.jsonl"
    text = f"{LINE}\n{bad}\n{LINE}\n"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    read = read_trajectories(path)
    assert next(read) == trajectory()
    with pytest.raises(ValueError):  # of JSON, of UTF-8 or of the schema
        next(read)


def conversation(*observations: str, calls: list[ToolCall]) -> list[dict[str, Any]]:
    answers = [
        {"role": "tool", "tool_call_id": made.id, "content": content}
        for made, content in zip(calls, observations, strict=False)
    ]
    asked = [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]
    return [*asked, AssistantMessage("Hm", tuple(calls)).to_chat(), *answers]


def test_exchanges_pair_calls_with_what_came_back() -> None:
    calls = [read_episodes("m1"), call("send_money", "[1]"), search_episodes("x")]
    messages = conversation('{"body":"b"}', "no {JSON", calls=calls)
    messages.append({"role": "assistant", "content": None})
    messages.append({"role": "user", "content": '{"error":"e"}'})
    first, second = exchanges(messages)
    assert first == (
        "Hm",
        [
            ("read_email", {"message_id": "m1"}, [{"body": "b"}]),
            ("send_money", "[1]", [{"text": "no {JSON"}]),
            ("search_emails", {"keywords": ["x"]}, []),
        ],
        [],
    )
    assert second == ("", [], [{"error": "e"}])
    assert exchanges(messages[:2]) == []


def test_events_say_what_was_found_read_and_cited(start: Start) -> None:
    """As stored, and as they follow from the messages of a file that has none."""
    episode = start(max_turns=4)
    episode.step(message(search_episodes("lease"), read_episodes("m9")))
    episode.step(message(text="Let me think."))
    episode.step(message(read_episodes(LEASE), call("send_money", '{"to": [[]]}')))
    episode.step(message(answer("On May 3.", "m1", "<no@t>")))
    made = episode_record(episode, "r", "scripted", {})
    searched, missed, silent, read, wrong, final = made.events
    assert searched == {
        "turn": 1,
        "tool": "search_emails",
        "arguments": {"keywords": ["lease"]},
        "found": [LEASE],
    }
    assert (missed["turn"], missed["tool"]) == (1, "read_email")
    assert "not found" in missed["error"] and "read" not in missed
    assert (silent["turn"], silent["tool"]) == (2, "") and "no tool" in silent["error"]
    assert read == {
        "turn": 3,
        "tool": "read_email",
        "arguments": {"message_id": LEASE},
        "read": LEASE,
    }
    assert wrong.keys() == {"turn", "tool", "error", "notes"}
    assert "one turn left" in wrong["notes"][0]
    assert final["cited"] == [LEASE, "<no@t>"]
    assert (made.mails_found, made.mails_read) == ([LEASE], [LEASE])
    row = json.loads(made.to_line())
    assert row.pop("events") == made.events
    assert Trajectory.from_line(json.dumps(row)) == made


@given(st.text(max_size=8), _json, st.lists(_json, max_size=3), st.text(max_size=5))
def test_events_of_any_conversation_can_be_kept(
    name: str, arguments: Any, observations: list[Any], behind: str
) -> None:
    calls = [call(name, json.dumps(arguments), str(each)) for each in range(2)]
    contents = [json.dumps(each) + behind for each in observations]
    made = trajectory(messages=conversation(*contents, calls=calls))
    assert len(made.events) == 2
    assert Trajectory.from_line(made.to_line()) == made


CONFIG = {"model": "offline", "max_turns": 10, "questions": "Zürich.jsonl"}


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_runs_of_the_same_second_get_folders_of_their_own(tmp_path: Path) -> None:
    # So many at once that two must fall into one second.
    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda _: start_run("ask", CONFIG, tmp_path), range(24)))
    assert len({run.folder for run in runs}) == 24
    assert {run.id for run in list_runs(tmp_path)} == {run.id for run in runs}
    assert all(run.config["model"] == "offline" for run in runs)
    assert any(re.search(r"-ask-\d+$", run.id) for run in runs)


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    start_run("eval", CONFIG, tmp_path, tmp_path / "run")
    (tmp_path / "file").write_text("x")
    for out in ("run", "file", "file/inside"):
        with pytest.raises(UserError, match="--out") as caught:
            start_run("eval", {"model": "other"}, tmp_path, tmp_path / out)
        assert "\n" not in str(caught.value)
    assert find_run("run", tmp_path).config["model"] == "offline"
    assert (tmp_path / "file").read_text() == "x"


def test_a_folder_that_a_kill_left_before_the_run_began_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", _killed)
        with pytest.raises(KeyboardInterrupt):
            start_run("eval", {**CONFIG, "note": "x" * 10_000}, tmp_path, out)
    assert [each.name for each in out.iterdir()] == [".config.json.partial"]
    assert start_run("eval", CONFIG, tmp_path, out).config["model"] == "offline"
    assert [each.name for each in out.iterdir()] == ["config.json"]


def test_the_configuration_has_what_a_rerun_needs(tmp_path: Path) -> None:
    config = start_run("ask", CONFIG, tmp_path).config
    assert config["name"] == "ask"
    assert CONFIG.items() <= config.items()
    assert {"python", "art-e", "duckdb", "numpy"} <= set(config["versions"])
    assert all(re.match(r"\d", version) for version in config["versions"].values())
    checkout = Path(__file__).parents[2]
    if (checkout / ".git").exists():
        head = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=checkout, capture_output=True, text=True, check=True
        )
        assert config["commit"] == head.stdout.strip()


def test_a_run_is_found_by_name_or_path(tmp_path: Path) -> None:
    run = start_run("ask", CONFIG, tmp_path / "runs")
    assert find_run(run.id, tmp_path / "runs") == run
    assert find_run(str(run.folder), tmp_path / "elsewhere").folder == run.folder
    for missing in ("20200101-000000-ask", "", "."):
        with pytest.raises(UserError, match="art-e runs list"):
            find_run(missing, tmp_path / "runs")
