"""The loop from policy to trajectory: what is summed, timed, recorded, and how it ends."""

import asyncio
import datetime as dt
from typing import Any

import pytest

from art_e.agent import OnTurn, run_episode
from art_e.episode import Episode
from art_e.inbox.file import InboxFile
from art_e.message import AssistantMessage
from art_e.models.base import PolicyError, Usage
from art_e.question import Question
from art_e.trajectory import Trajectory
from tests import builders as episodes
from tests.builders import LEASE, ScriptedPolicy, answer, message
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
