"""Paired statistics against truth counted out: every coin, every resample, every outcome."""

import dataclasses
from collections.abc import Sequence

import pytest

from art_e.errors import UserError
from art_e.question import Question
from evals.metrics import compare
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
A = side([*FOUR_RIGHT, *FOUR_WRONG, "abstained", "right", "wrong", "out of turns"])
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
    found = compare(side(["failed", "right", "wrong"]), side(["right", "unjudged", "right"]))
    assert (found["n"], found["left_out"]) == (1, {"a": 2, "b": 2})
    with pytest.raises(UserError, match="no question in common"):
        compare(A, side(["right"], [question(99, kind="lookup")]))
    for one, other in ((A + B, B), (B, A + B)):
        with pytest.raises(UserError, match="RUN:MODEL"):
            compare(one, other)


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


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.5]) == pytest.approx([0.04, 0.09, 0.09, 0.5])
    assert holm([0.6, 0.7]) == [1, 1]


def test_a_gap_is_told_from_chance() -> None:
    asked = [question(n, kind="lookup", inbox_address=f"i{n % 6}@test.example") for n in range(60)]
    right, wrong = side(["right"] * 60, asked), side(["wrong"] * 60, asked)
    # B has 18 more right and 6 fewer; then as many more as fewer.
    assert compare([*right[:6], *wrong[6:]], [*wrong[:42], *right[42:]])["p"] < 0.05
    assert compare([*right[:12], *wrong[12:]], [*wrong[:48], *right[48:]])["p"] == 1
