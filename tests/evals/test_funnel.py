"""Every way in which an episode can end, and the step that it is counted at."""

import dataclasses
from typing import Any

import pytest

from evals.metrics import STEPS, ended_at, funnel
from evals.scored import Scored
from tests.evals.runs import Outcome, episode, question

ANSWERABLE = question(0, kind="lookup")
UNANSWERABLE = question(4, kind="unanswerable")


def ended(outcome: Outcome, *, answerable: bool = True, **options: Any) -> Scored:
    asked = ANSWERABLE if answerable else UNANSWERABLE
    return Scored(asked, episode(asked, outcome, **options))


def with_facts(scored: Scored, **facts: Any) -> Scored:
    rubric = {**scored.trajectory.rubric, **facts}
    return dataclasses.replace(
        scored, trajectory=dataclasses.replace(scored.trajectory, rubric=rubric)
    )


CASES = [
    ("right", ended("right")),
    ("right", ended("right", answerable=False)),
    ("read_but_wrong", ended("wrong")),
    ("found_not_read", ended("not read")),
    ("not_found", ended("not found")),
    ("abstained_though_read", ended("abstained")),
    ("out_of_turns", ended("out of turns")),
    ("out_of_turns", ended("out of turns", answerable=False)),
    ("lost_to_format", ended("lost")),
    ("failed", ended("failed")),
    ("unjudged", ended("unjudged")),
    ("made_up", ended("wrong", answerable=False)),
    ("judges_disagree", ended("wrong", second=True)),
    ("judges_disagree", ended("right", second=False)),
    # Both judges agree: there is nothing to say of them.
    ("right", ended("right", second=True)),
    ("read_but_wrong", ended("wrong", second=False)),
    # Abstained because it did not get that far.
    ("not_found", with_facts(ended("abstained"), found_gold=False, read_gold=False)),
    ("found_not_read", with_facts(ended("abstained"), read_gold=False)),
    # Read without a search, by an id that another mail named.
    ("read_but_wrong", with_facts(ended("wrong"), found_gold=False, read_gold=True)),
    ("gold_unknown", with_facts(ended("wrong"), found_gold=None, read_gold=None)),
    # Right without the gold mail, perhaps from a quote of it, is right.
    ("right", with_facts(ended("right"), found_gold=False, read_gold=False)),
]


@pytest.mark.parametrize(("step", "scored"), CASES)
def test_where_an_episode_ends(step: str, scored: Scored) -> None:
    assert ended_at(scored) == step


def test_each_episode_is_counted_once_and_every_step_is_named() -> None:
    counted = funnel([scored for _, scored in CASES])
    assert tuple(counted) == STEPS
    assert sum(counted.values()) == len(CASES)
    assert all(counted[step] == sum(each == step for each, _ in CASES) for step in STEPS)
    assert all(counted.values())


def test_of_nothing_there_are_zeros() -> None:
    assert funnel([]) == dict.fromkeys(STEPS, 0)
