"""Comparisons against counts made by hand, published sample sizes, and simulated models."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.stats import binom

from art_e.errors import UserError
from art_e.question import Question
from evals.paired import compare, mcnemar, paired, questions_needed
from evals.scored import Scored
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
OF_A: list[Outcome] = [
    "right", "right", "right", "right", "wrong", "wrong", "wrong", "wrong",
    "abstained", "right", "wrong", "failed",
]  # fmt: skip
OF_B: list[Outcome] = [
    "right", "right", "right", "right", "right", "right", "right", "right",
    "right", "not found", "wrong", "abstained",
]  # fmt: skip
A, B = side(OF_A), side(OF_B)


def test_differences_errors_mended_and_flips() -> None:
    found = compare(A, B)
    assert found["n"] == 12
    assert found["left_out"] == {"a": 0, "b": 0}
    accuracy = found["figures"]["accuracy"]
    assert (accuracy["a"], accuracy["b"]) == (5 / 12, 9 / 12)
    assert accuracy["difference"]["value"] == pytest.approx(4 / 12)
    assert accuracy["difference"]["low"] <= 4 / 12 <= accuracy["difference"]["high"]
    assert found["figures"]["hallucination"]["a"] == 5 / 12
    assert found["figures"]["hallucination"]["b"] == 2 / 12
    assert found["figures"]["abstention"]["difference"]["value"] == pytest.approx(0)
    # Nothing here is unanswerable.
    assert "unanswerable_accuracy" not in found["figures"]
    assert (found["only_a"], found["only_b"]) == (1, 5)
    assert found["p"] == pytest.approx(14 / 64)
    assert (found["mended"]["value"], found["mended"]["n"]) == (5 / 7, 7)
    assert (found["broken"]["value"], found["broken"]["n"]) == (1 / 3, 3)
    flipped = {each["question_id"]: each["right"] for each in found["flipped"]}
    assert flipped == {"q4": "b", "q5": "b", "q6": "b", "q7": "b", "q8": "b", "q9": "a"}
    [first] = [each for each in found["flipped"] if each["question_id"] == "q4"]
    assert (first["gold"], first["a"], first["b"]) == ("On May 5.", "On December 31.", "On May 5.")


def test_the_other_way_round_is_the_mirror_image() -> None:
    one, other = compare(A, B), compare(B, A)
    assert one["p"] == other["p"]
    assert (one["mended"], one["broken"]) == (other["broken"], other["mended"])
    assert one["needed"] == other["needed"]
    for name, row in one["figures"].items():
        back = other["figures"][name]["difference"]
        assert row["difference"]["value"] == pytest.approx(-back["value"])
        assert row["difference"]["low"] == pytest.approx(-back["high"], abs=0.05)


def test_the_order_of_episodes_makes_no_difference() -> None:
    assert compare(A, B) == compare(A[::-1], B)


def test_a_model_against_itself_differs_in_nothing() -> None:
    found = compare(A, A)
    assert found["p"] == 1
    assert found["flipped"] == []
    assert found["needed"] is None
    assert found["mended"]["value"] == 0
    assert all(row["difference"]["value"] == 0 for row in found["figures"].values())


def test_only_questions_of_both_are_compared() -> None:
    found = compare(A, B[:6])
    assert (found["n"], found["left_out"]) == (6, {"a": 6, "b": 0})
    stranger = [question(99, kind="lookup")]
    with pytest.raises(UserError, match="no question in common"):
        compare(A, side(["right"], stranger))


def test_a_side_of_several_models_is_refused() -> None:
    with pytest.raises(UserError, match="RUN:MODEL"):
        paired([*A, *B], B)


def test_a_cost_that_is_not_known_is_left_out_and_so_is_time_from_a_cache() -> None:
    unpriced = [
        dataclasses.replace(each, trajectory=dataclasses.replace(each.trajectory, cost_usd=None))
        for each in B
    ]
    assert "cost_per_1000_usd" not in compare(A, unpriced)["figures"]
    assert compare(A, B)["figures"]["cost_per_1000_usd"]["a"] == pytest.approx(2.0)
    assert "latency_mean_s" not in compare(A, B, timed=False)["figures"]


def test_repeats_are_paired_and_are_one_question_to_the_test() -> None:
    asked = ASKED[:4]
    often: list[Scored] = []
    always: list[Scored] = []
    for repeat in range(3):
        # Question 0 is right once of three times, 1 twice; 2 and 3 never.
        rights = [repeat == 0, repeat < 2, False, False]
        often += side(["right" if right else "wrong" for right in rights], asked, repeat=repeat)
        always += side(["right"] * 4, asked, repeat=repeat)
    found = compare(often, always)
    assert found["n"] == 12
    assert found["figures"]["accuracy"]["a"] == 3 / 12
    assert (found["only_a"], found["only_b"]) == (0, 3)
    assert found["p"] == pytest.approx(2 / 8)
    difference = found["figures"]["accuracy"]["difference"]
    assert difference["method"] == "bootstrap clustered by question"


# p of the exact test, worked out from the binomial coefficients.
@pytest.mark.parametrize(
    ("only_a", "only_b", "p"),
    [
        (0, 0, 1.0),
        (3, 3, 1.0),
        (0, 5, 2 / 32),
        (0, 6, 2 / 64),
        (1, 9, 22 / 1024),
        (4, 10, 2 * 1471 / 16384),
    ],
)
def test_mcnemar_is_exact(only_a: int, only_b: int, p: float) -> None:
    assert mcnemar(only_a, only_b) == pytest.approx(p)
    assert mcnemar(only_b, only_a) == pytest.approx(p)


def test_fewer_questions_are_needed_if_fewer_flip() -> None:
    independent = questions_needed(0.90, 0.96, 0.90 * 0.04 + 0.96 * 0.10)
    assert questions_needed(0.90, 0.96, 0.06) < 0.5 * independent
    assert questions_needed(0.96, 0.90, 0.132) == independent
    with pytest.raises(ValueError, match="equal"):
        questions_needed(0.9, 0.9, 0.1)


@pytest.mark.parametrize("discordant", [0.10, 0.20])
def test_so_many_questions_do_find_the_difference(discordant: float) -> None:
    """The test's own power at the promised number of questions, summed over all outcomes."""
    n = questions_needed(0.80, 0.90, discordant)
    only_b = (discordant + 0.10) / 2 / discordant
    found = 0.0
    for flips in range(n + 1):
        chance = binom.pmf(flips, n, discordant)
        if chance > 1e-9:
            significant = [each for each in range(flips + 1) if mcnemar(flips - each, each) < 0.05]
            found += chance * float(np.sum(binom.pmf(significant, flips, only_b)))
    # The exact test is a little weaker than the approximation that the formula is made for.
    assert 0.70 < found < 0.85


def test_differences_hold_the_truth_over_clustered_questions() -> None:
    """Models that are right of 60 % and 75 %; of 40 worlds about 95 % hold the 15 points."""
    random = np.random.default_rng(4)
    asked = [
        question(number, kind="lookup", inbox_address=f"i{number % 20}@test.example")
        for number in range(120)
    ]
    templates = {
        outcome: {each.id: Scored(each, episode(each, outcome)) for each in asked}
        for outcome in ("right", "wrong")
    }
    inside = significant = 0
    for _ in range(40):
        sides = [
            [templates["right" if right else "wrong"][each.id] for each, right in drawn]
            for drawn in (
                zip(asked, random.random(len(asked)) < rate, strict=True) for rate in (0.60, 0.75)
            )
        ]
        found = compare(*sides)
        difference = found["figures"]["accuracy"]["difference"]
        assert difference["method"] == "bootstrap clustered by inbox"
        inside += difference["low"] <= 0.15 <= difference["high"]
        significant += found["p"] < 0.05
    assert inside >= 34
    assert 16 <= significant <= 39
