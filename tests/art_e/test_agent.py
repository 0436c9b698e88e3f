"""The loop from policy to trajectory: what is summed, timed, recorded, and how it ends."""

import asyncio
import datetime as dt
import itertools
from dataclasses import replace
from typing import Any

import pytest

from art_e.agent import OnTurn, run_episode
from art_e.episode import Episode
from art_e.inbox.file import InboxFile
from art_e.message import AssistantMessage, ChatMessage
from art_e.models.base import PolicyError, PolicyStep, Usage
from art_e.question import Question
from art_e.tools import schemas
from art_e.trajectory import Trajectory
from tests import builders as episodes
from tests.builders import LEASE, ScriptedPolicy, answer, call, message
from tests.builders import read_episodes as read
from tests.builders import search_episodes as search

AS_OF = dt.date(2020, 1, 31)
QUESTION = Question("q7", "When does the lease end?", episodes.BOB, AS_OF, "May 3", (LEASE,))
SCRIPT = [message(search("lease")), message(read("m1")), message(answer("May 3", "m1"))]


@pytest.fixture
def episode(inbox_file: InboxFile) -> Episode:
    return Episode(inbox_file.open_inbox(episodes.BOB, AS_OF), QUESTION)


def run(episode: Episode, policy: Any, on_turn: OnTurn | None = None) -> Trajectory:
    return asyncio.run(run_episode(episode, policy, "run-1", on_turn))


def test_a_trajectory_records_the_whole_episode(episode: Episode) -> None:
    before = dt.datetime.now(dt.UTC)
    trajectory = run(episode, ScriptedPolicy(SCRIPT))
    assert trajectory.run_id == "run-1"
    assert trajectory.question_id == "q7"
    assert (trajectory.inbox_address, trajectory.as_of) == (episodes.BOB, "2020-01-31")
    assert trajectory.model == "scripted"
    assert trajectory.policy == {"temperature": 0, "prompt_hash": episode.prompt_hash}
    assert [each["role"] for each in trajectory.messages] == [
        "system",
        "user",
        *["assistant", "tool"] * 3,
    ]
    assert trajectory.handles == {"m1": LEASE, **trajectory.handles}
    assert (trajectory.final_answer, trajectory.sources) == ("May 3", [LEASE])
    assert trajectory.rubric["turns"] == 3
    assert trajectory.rubric["answered"]
    assert trajectory.error is trajectory.verdict is trajectory.reward is None
    started = dt.datetime.fromisoformat(trajectory.started_at)
    assert before - dt.timedelta(milliseconds=1) <= started <= dt.datetime.now(dt.UTC)


def test_usage_and_cost_are_summed(episode: Episode) -> None:
    policy = ScriptedPolicy(SCRIPT, usage=Usage(100, 60, 7, 5), costs=[0.01, 0.02, 0.04])
    trajectory = run(episode, policy)
    assert trajectory.usage == {
        "prompt_tokens": 300,
        "cached_prompt_tokens": 180,
        "completion_tokens": 21,
        "reasoning_tokens": 15,
    }
    assert trajectory.cost_usd == pytest.approx(0.07)
    assert trajectory.rubric["prompt_tokens"] == 300
    assert trajectory.rubric["completion_tokens"] == 21


def test_calls_and_retries_are_told(episode: Episode) -> None:
    class Slow(ScriptedPolicy):
        async def act(self, messages: list[ChatMessage], tools: list[dict[str, Any]]) -> PolicyStep:
            if self.turn == 2:
                raise PolicyError("timeout", "no answer in time", retries=4)
            step = await super().act(messages, tools)
            return replace(step, seconds=0.25 * self.turn, retries=self.turn)

    trajectory = run(episode, Slow(SCRIPT))
    assert trajectory.call_seconds == [0.25, 0.5]
    assert trajectory.retries == 1 + 2 + 4
    assert trajectory.error == {"kind": "timeout", "message": "no answer in time"}


@pytest.mark.parametrize("costs", [[None] * 3, [None, 0.1, 0.1], [0.1, 0.1, None]])
def test_a_cost_that_is_not_known_in_part_is_not_known(
    episode: Episode, costs: list[float | None]
) -> None:
    assert run(episode, ScriptedPolicy(SCRIPT, costs=costs)).cost_usd is None


@pytest.mark.parametrize("turns_before", [0, 1, 2])
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


def test_seconds_of_model_and_tools_add_up(
    episode: Episode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that goes on by a second whenever it is read."""
    monkeypatch.setattr("art_e.agent.time.perf_counter", itertools.count().__next__)
    seconds = run(episode, ScriptedPolicy(SCRIPT)).seconds
    assert seconds == {"total": 13, "model": 3, "tools": 3}
    failing = Episode(episode.tools.inbox, QUESTION)
    seconds = run(failing, ScriptedPolicy([PolicyError("timeout", "too slow")])).seconds
    assert seconds == {"total": 3, "model": 1, "tools": 0}


def test_a_policy_sees_messages_and_schemas_and_each_turn_is_told(episode: Episode) -> None:
    seen: list[tuple[list[str], int]] = []
    told: list[tuple[AssistantMessage, list[str]]] = []

    class Watching(ScriptedPolicy):
        async def act(self, messages: list[ChatMessage], tools: list[dict[str, Any]]) -> PolicyStep:
            assert tools == schemas()
            seen.append(([each["role"] for each in messages], len(told)))
            return await super().act(messages, tools)

    def on_turn(said: AssistantMessage, observations: list[ChatMessage]) -> None:
        told.append((said, [each["tool_call_id"] for each in observations]))

    script = [message(search("lease"), call("x", "{}")), SCRIPT[2]]
    run(episode, Watching(script), on_turn)
    assert seen == [
        (["system", "user"], 0),
        (["system", "user", "assistant", "tool", "tool"], 1),
    ]
    assert told == [(script[0], ["call-0", "call-1"]), (script[1], ["call-0"])]
