"""Paired statistics against truth counted out: every coin, every resample, every outcome."""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from art_e.errors import UserError
from art_e.question import Question
from evals.paired import compare, paired
from evals.scored import Scored
from evals.statistics import holm
from tests.evals.runs import Outcome, episode, question

ASKED = [question(number, kind="lookup") for number in range(12)]


def side(
    outcomes: Sequence[Outcome], asked: Sequence[Question] = ASKED, *, repeat: int = 0
) -> list[Scored]:
    return [
        Scored(each, episode(each, outcome, repeat=repeat))
        for each, outcome in zip(asked, outcomes, strict=False)
    ]


# Questions 0-3 both right, 4-8 B alone, 9 A alone, 10 and 11 neither.
FOUR_RIGHT: list[Outcome] = ["right"] * 4
FOUR_WRONG: list[Outcome] = ["wrong"] * 4
A = side([*FOUR_RIGHT, *FOUR_WRONG, "abstained", "right", "wrong", "failed"])
B = side([*FOUR_RIGHT, *FOUR_RIGHT, "right", "not found", "wrong", "abstained"])


def test_differences_errors_mended_and_flips() -> None:
    found = compare(A, B)
    assert (found["n"], found["left_out"]) == (12, {"a": 0, "b": 0})
    hallucination = found["figures"]["hallucination"]
    assert (hallucination["a"], hallucination["b"]) == (5 / 12, 2 / 12)
    assert found["figures"]["abstention"]["difference"]["value"] == pytest.approx(0)
    assert (found["only_a"], found["only_b"]) == (1, 5)
    assert found["p"] == pytest.approx(14 / 64)
    # Seven errors become three.
    assert found["net_reduction"]["value"] == pytest.approx(4 / 7)
    assert (found["mended"]["value"], found["mended"]["n"]) == (5 / 7, 7)
    assert (found["broken"]["value"], found["broken"]["n"]) == (1 / 3, 3)
    flipped = {each["question_id"]: each["right"] for each in found["flipped"]}
    assert flipped == {"q4": "b", "q5": "b", "q6": "b", "q7": "b", "q8": "b", "q9": "a"}
    [first] = [each for each in found["flipped"] if each["question_id"] == "q4"]
    assert (first["gold"], first["a"], first["b"]) == ("On May 5.", "On December 31.", "On May 5.")
    assert compare(A[::-1], B) == found


def test_unanswerable_questions_are_apart_from_accuracy() -> None:
    can_not = [question(number, kind="unanswerable") for number in range(20, 24)]
    one = [*A, *side(["abstained", "wrong", "wrong", "wrong"], can_not)]
    other = [*B, *side(["abstained"] * 4, can_not)]
    found, alone = compare(one, other), compare(A, B)
    assert "unanswerable_accuracy" not in alone["figures"]
    row = found["figures"]["unanswerable_accuracy"]
    assert (row["a"], row["b"]) == (0.25, 1.0)
    for name in ("p", "only_a", "only_b", "mended", "broken", "net_reduction", "flipped"):
        assert found[name] == alone[name]


def test_only_questions_of_both_are_compared() -> None:
    found = compare(A, B[:6])
    assert (found["n"], found["left_out"]) == (6, {"a": 6, "b": 0})
    with pytest.raises(UserError, match="no question in common"):
        compare(A, side(["right"], [question(99, kind="lookup")]))
    for one, other in ((A + B, B), (B, A + B)):
        with pytest.raises(UserError, match="RUN:MODEL"):
            paired(one, other)


def test_an_unknown_cost_is_left_out() -> None:
    figures = compare(A, B)["figures"]
    assert figures["cost_per_1000_usd"]["a"] == pytest.approx(2.0)
    assert figures["latency_mean_s"]["b"] == pytest.approx(2.0)
    unpriced = [Scored(B[0].question, dataclasses.replace(B[0].trajectory, cost_usd=None)), *B[1:]]
    assert "cost_per_1000_usd" not in compare(A, unpriced)["figures"]
    assert "cost_per_1000_usd" not in compare(unpriced, B)["figures"]


def test_repeats_are_paired_and_are_one_question_to_the_test() -> None:
    often, always = [], []
    for repeat in range(3):
        # Question 0 is right once of three times, 1 twice; 2 and 3 never.
        correct = [repeat == 0, repeat < 2, False, False]
        often += side(["right" if right else "wrong" for right in correct], repeat=repeat)
        always += side(["right"] * 4, repeat=repeat)
    found = compare(often, always)
    assert (found["n"], found["figures"]["accuracy"]["a"]) == (12, 3 / 12)
    assert (found["only_a"], found["only_b"]) == (0, 3)
    assert found["p"] == pytest.approx(2 / 8)
    difference = found["figures"]["accuracy"]["difference"]
    # Each question has an inbox of its own.
    assert difference["method"] == "t over inboxes"
    # Half of two repeats are not most.
    twice = [each for each in often if each.trajectory.repeat < 2]
    assert compare(twice, always[:8])["only_b"] == 3


def coins(only_a: int, only_b: int) -> float:
    """The share of all ways to swap A and B on the flipped questions that are as lopsided."""
    swaps = list(itertools.product((1, -1), repeat=only_a + only_b))
    return sum(abs(sum(each)) >= abs(only_a - only_b) for each in swaps) / len(swaps)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=12))
def test_shares_and_flips_are_those_counted_and_mirrored(both: list[tuple[bool, bool]]) -> None:
    a, b = (side(["right" if each else "wrong" for each in one]) for one in zip(*both, strict=True))
    result, back = compare(a, b), compare(b, a)
    n, errors = len(both), sum(not one for one, _ in both)
    only_a = sum(one and not other for one, other in both)
    only_b = sum(other and not one for one, other in both)
    accuracy = result["figures"]["accuracy"]
    assert (result["n"], result["only_a"], result["only_b"]) == (n, only_a, only_b)
    assert accuracy["a"] == pytest.approx(sum(one for one, _ in both) / n)
    assert accuracy["b"] == pytest.approx(sum(other for _, other in both) / n)
    assert accuracy["difference"]["value"] == pytest.approx((only_b - only_a) / n)
    assert result["p"] == back["p"] >= coins(only_a, only_b) - 1e-9
    assert [each["right"] for each in result["flipped"]].count("a") == only_a
    assert result["mended"]["n"] == errors
    assert result["mended"]["value"] == (pytest.approx(only_b / errors) if errors else None)
    assert result["mended"] == back["broken"]
    if errors:
        assert result["net_reduction"]["value"] == pytest.approx((only_b - only_a) / errors)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_keeps_the_order_and_never_lowers_a_p(ps: list[float]) -> None:
    corrected = holm(ps)
    assert all(p <= other <= 1 for p, other in zip(ps, corrected, strict=True))
    assert corrected[ps.index(min(ps))] == min(1.0, len(ps) * min(ps))
    order = sorted(range(len(ps)), key=ps.__getitem__)
    assert [corrected[each] for each in order] == sorted(corrected)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.5]) == pytest.approx([0.04, 0.09, 0.09, 0.5])


@pytest.mark.parametrize(
    ("only_a", "only_b", "least", "most"), [(0.1, 0.3, 12, 30), (0.2, 0.2, 0, 3)]
)
def test_a_gap_is_found_and_equal_models_are_seldom_told_apart(
    only_a: float, only_b: float, least: int, most: int
) -> None:
    random, inboxes = np.random.default_rng(7), 6
    asked = [
        question(number, kind="lookup", inbox_address=f"i{number % inboxes}@test.example")
        for number in range(60)
    ]
    right, wrong = side(["right"] * len(asked), asked), side(["wrong"] * len(asked), asked)
    found = 0
    for _ in range(30):
        draws = random.random(len(asked))
        a = [right[n] if draw > 1 - only_a else wrong[n] for n, draw in enumerate(draws)]
        b = [right[n] if draw < only_b else wrong[n] for n, draw in enumerate(draws)]
        found += compare(a, b)["p"] < 0.05
    assert least <= found <= most
