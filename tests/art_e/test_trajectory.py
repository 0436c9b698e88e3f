"""What happened in an episode: the loop that records it, trajectories as JSON lines, and runs."""

import asyncio
import datetime as dt
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from art_e.agent import episode_record, run_episode
from art_e.episode import Episode
from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.message import AssistantMessage, ToolCall
from art_e.models.base import PolicyError, Usage
from art_e.question import Question
from art_e.runs import find_run, list_runs, start_run
from art_e.trajectory import Trajectory, exchanges, read_trajectories
from tests import builders as episodes
from tests.builders import (
    LEASE,
    TEXT,
    ScriptedPolicy,
    Start,
    answer,
    call,
    message,
    read,
    search,
    trajectory,
)

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
        "{",
        "\udcff",
        json.dumps({**ROW, "schema": "art-e/trajectory/0"}),
        json.dumps({key: value for key, value in ROW.items() if key != "rubric"}),
        json.dumps({**ROW, "unknown": 1}),
    ],
)
def test_another_bad_line_is_an_error(tmp_path: Path, bad: str) -> None:
    path = tmp_path / "t.jsonl"
    text = f"{LINE}\n{bad}\n{LINE}\n"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    rows = read_trajectories(path)
    assert next(rows) == trajectory()
    with pytest.raises(ValueError):  # of JSON, of UTF-8 or of the schema
        next(rows)


def conversation(*observations: str, calls: list[ToolCall]) -> list[dict[str, Any]]:
    answers = [
        {"role": "tool", "tool_call_id": made.id, "content": content}
        for made, content in zip(calls, observations, strict=False)
    ]
    asked = [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]
    return [*asked, AssistantMessage("Hm", tuple(calls)).to_chat(), *answers]


def test_exchanges_pair_calls_with_what_came_back() -> None:
    calls = [read("m1"), call("send_money", "[1]"), search("x")]
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
    episode = start(max_turns=4)
    episode.step(message(search("lease"), read("m9")))
    episode.step(message(text="Let me think."))
    episode.step(message(read(LEASE), call("send_money", '{"to": [[]]}')))
    episode.step(message(answer("On May 3.", "m1", "<no@t>")))
    made = episode_record(episode, "r", "scripted", {})
    searched, missed, silent, seen, wrong, final = made.events
    assert searched == {
        "turn": 1,
        "tool": "search_emails",
        "arguments": {"keywords": ["lease"]},
        "found": [LEASE],
    }
    assert (missed["turn"], missed["tool"]) == (1, "read_email")
    assert "not found" in missed["error"] and "read" not in missed
    assert (silent["turn"], silent["tool"]) == (2, "") and "no tool" in silent["error"]
    assert seen == {
        "turn": 3,
        "tool": "read_email",
        "arguments": {"message_id": LEASE},
        "read": LEASE,
    }
    assert wrong.keys() == {"turn", "tool", "error", "notes"}
    assert "one turn left" in wrong["notes"][0]
    assert final["cited"] == [LEASE, "<no@t>"]
    assert made.mails_read == [LEASE]
    assert exchanges(episode.messages) == episode.exchanges
    row = json.loads(made.to_line())
    assert row.pop("events") == made.events
    with pytest.raises(ValueError, match="events"):
        Trajectory.from_line(json.dumps(row))


CONFIG = {"model": "offline", "max_turns": 10, "questions": "Zürich.jsonl"}


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
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Path, "replace", Mock(side_effect=KeyboardInterrupt))
        start_run("eval", {**CONFIG, "note": "x" * 10_000}, tmp_path, out)
    assert [each.name for each in out.iterdir()] == [".config.json.partial"]
    assert start_run("eval", CONFIG, tmp_path, out).config["model"] == "offline"
    assert [each.name for each in out.iterdir()] == ["config.json"]


def test_the_configuration_has_what_a_rerun_needs(tmp_path: Path) -> None:
    config = start_run("ask", CONFIG, tmp_path).config
    assert {"name": "ask", **CONFIG}.items() <= config.items()
    assert {"python", "art-e", "duckdb", "numpy"} <= set(config["versions"])


def test_a_run_is_found_by_name_or_path(tmp_path: Path) -> None:
    run = start_run("ask", CONFIG, tmp_path / "runs")
    assert find_run(run.id, tmp_path / "runs") == run
    assert find_run(str(run.folder), tmp_path / "elsewhere").folder == run.folder
    for missing in ("20200101-000000-ask", "", "."):
        with pytest.raises(UserError, match="art-e runs list"):
            find_run(missing, tmp_path / "runs")


# The loop from policy to trajectory


AS_OF = dt.date(2020, 1, 31)
QUESTION = Question("q7", "When does the lease end?", episodes.BOB, AS_OF, "May 3", (LEASE,))
SCRIPT = [message(search("lease")), message(read("m1")), message(answer("May 3", "m1"))]


@pytest.fixture
def episode(inbox_file: InboxFile) -> Episode:
    return Episode(inbox_file.open_inbox(episodes.BOB, AS_OF), QUESTION)


def run(episode: Episode, policy: Any) -> Trajectory:
    return asyncio.run(run_episode(episode, policy, "run-1"))


@pytest.mark.parametrize("costs", [[None] * 3, [None, 0.1, 0.1], [0.1, 0.1, None]])
def test_a_cost_that_is_not_known_in_part_is_not_known(
    episode: Episode, costs: list[float | None]
) -> None:
    assert run(episode, ScriptedPolicy(SCRIPT, costs=costs)).cost_usd is None


@pytest.mark.parametrize("turns_before", [0, 2])
def test_a_policy_that_fails_ends_the_episode_with_an_error(
    episode: Episode, turns_before: int
) -> None:
    failure = PolicyError("provider", "503 from the host")
    script: list[AssistantMessage | Exception] = [*SCRIPT[:turns_before], failure]
    trajectory = run(episode, ScriptedPolicy(script, usage=Usage(10, 0, 1), costs=[0.5] * 3))
    assert trajectory.error == {"kind": "provider", "message": "503 from the host"}
    assert trajectory.rubric["turns"] == turns_before
    ends = ("answered", "abstained", "lost_to_format", "ran_out_of_turns")
    assert not any(trajectory.rubric[each] for each in ends)
    assert trajectory.final_answer is None
    assert trajectory.usage["prompt_tokens"] == 10 * turns_before
    assert trajectory.cost_usd == pytest.approx(0.5 * turns_before)
    assert len(trajectory.messages) == 2 + 2 * turns_before
