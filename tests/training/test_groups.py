"""Which questions are asked again: those that taught something, the hardest first."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_e.question import Question
from training.roller import FLAT, Curriculum, is_flat

QUESTIONS = [Question(f"q{number}", "Who?", "bob@test.example") for number in range(8)]
BY_ID = {each.id: each for each in QUESTIONS}

Rewards = Sequence[float | None]
rewards = st.lists(st.none() | st.sampled_from([-2.0, -0.5, 0.0, 0.1, 2.0]), min_size=2, max_size=4)
notes = st.lists(st.tuples(st.sampled_from(QUESTIONS), rewards), max_size=20)
besides = st.sets(st.sampled_from(sorted(BY_ID)))


def complete(earned: Rewards) -> list[float] | None:
    """What a group counts as: one with an unjudged member has no rewards."""
    rewards = [each for each in earned if each is not None]
    return rewards if len(rewards) == len(earned) else None


@pytest.mark.parametrize(
    ("earned", "flat"),
    [
        ([1.0, 1.0, 1.0], True),
        ([1.0, 1.0 + FLAT / 2], True),
        ([1.0, 1.0, 0.9], False),
        # A group with an unjudged member is left out, whatever the others earned.
        ([1.0, None, 1.0], True),
        ([1.0, None, 0.0], True),
        ([None, None], True),
    ],
)
def test_flat(earned: Rewards, flat: bool) -> None:
    assert is_flat(complete(earned)) is flat


def noted(asked: Sequence[tuple[Question, Rewards]], seed: int = 0) -> Curriculum:
    curriculum = Curriculum(QUESTIONS, seed)
    for question, earned in asked:
        curriculum.note(question.id, complete(earned))
    return curriculum


def in_order(curriculum: Curriculum, taken: set[str]) -> list[str]:
    """All that it gives as replacements, one after the other."""
    found: list[str] = []
    while (chosen := curriculum.replacement(taken | set(found))) is not None:
        found.append(chosen.id)
    return found


def test_the_hardest_comes_first_and_then_those_never_asked() -> None:
    curriculum = noted(
        [
            (BY_ID["q0"], [2.0, 1.0]),
            (BY_ID["q1"], [-1.0, 0.0]),
            (BY_ID["q2"], [1.0, 1.0]),
            (BY_ID["q3"], [0.5, 1.0]),
            (BY_ID["q4"], [None, 0.5, 1.0]),
        ]
    )
    order = in_order(curriculum, set())
    assert order[:3] == ["q1", "q3", "q0"]
    # q2 taught nothing, and is not asked again; q4 was not judged, and so counts as not asked.
    assert sorted(order[3:]) == ["q4", "q5", "q6", "q7"]


def test_a_question_that_went_flat_is_given_no_more_and_may_come_back() -> None:
    asked = [(BY_ID["q1"], [-1.0, 0.0]), (BY_ID["q1"], [1.0, 1.0])]
    assert "q1" not in in_order(noted(asked), set())
    assert in_order(noted([*asked, (BY_ID["q1"], [1.0, 0.0])]), set())[0] == "q1"


def test_the_seed_decides_the_order_of_those_never_asked() -> None:
    orders = {tuple(in_order(Curriculum(QUESTIONS, seed), set())) for seed in range(6)}
    assert len(orders) > 1
    assert in_order(Curriculum(QUESTIONS, 3), set()) == in_order(
        Curriculum(QUESTIONS[::-1], 3), set()
    )


@given(notes, besides)
def test_replacements_are_new_to_the_batch_and_harder_ones_come_before(
    asked: list[tuple[Question, Rewards]], taken: set[str]
) -> None:
    order = in_order(noted(asked), taken)
    assert len(set(order)) == len(order)
    assert not taken.intersection(order)
    judged = [(question.id, complete(earned)) for question, earned in asked]
    last = {name: earned for name, earned in judged if earned is not None}
    spread = [each for each in order if each in last]
    means = []
    for each in spread:
        told = last[each]
        assert max(told) > min(told)
        means.append(sum(told) / len(told))
    assert means == sorted(means)
    assert order[: len(spread)] == spread
    # Nothing that could be asked is left out.
    assert set(order) == {
        each
        for each in BY_ID
        if each not in taken and (each not in last or not is_flat(last[each]))
    }


@given(notes, notes, besides)
def test_one_that_was_restored_chooses_the_same(
    before: list[tuple[Question, Rewards]],
    after: list[tuple[Question, Rewards]],
    taken: set[str],
) -> None:
    undisturbed = noted([*before, *after])
    resumed = Curriculum(QUESTIONS, 0)
    resumed.restore(json.loads(json.dumps(noted(before).to_row())))
    for question, earned in after:
        resumed.note(question.id, complete(earned))
    assert in_order(resumed, taken) == in_order(undisturbed, taken)
    assert resumed.to_row() == undisturbed.to_row()
