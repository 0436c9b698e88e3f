"""Pairs of models in the report."""

from pathlib import Path

import pytest

from art_e.runs import Run
from evals.report.build import pairings
from evals.report.entries import measure
from tests.evals.runs import episodes, question, training, write_run


def runs_of(tmp_path: Path) -> list[Run]:
    asked = [question(number, kind="lookup") for number in range(10)]
    weak = episodes("weak", {"right": 4, "wrong": 6}, questions=asked)
    strong = episodes("strong", {"right": 9, "wrong": 1}, questions=asked)
    return [write_run(tmp_path / "a", weak), write_run(tmp_path / "b", strong)]


def test_models_of_two_runs_are_paired_by_question(tmp_path: Path) -> None:
    [pair] = pairings(measure(runs_of(tmp_path)))
    assert pair.title == "strong against weak"
    accuracy = next(row for row in pair.table.rows if row.label == "Accuracy")
    assert [cell.value for cell in accuracy.cells] == ["40.0%", "90.0%", "+50.0 pts"]
    # Five questions flipped, all one way: p = 2 / 2^5.
    assert "p = 0.0625: 0 questions right only in weak, 5 only in strong" in pair.summary[0]
    assert "mends 83.3%" in pair.summary[1]
    assert {flip.right for flip in pair.flips} == {"strong"}
    assert len(pair.flips) == 5
    assert pair.flips[0].fragment == "episode=weak-q4-0&with=strong-q4-0"


@pytest.mark.parametrize(
    ("a", "b", "cost", "latency"),
    [
        ((0.03, 4.0), (0.001, 5.5), "-$29.00", "+1.50 s"),
        ((0.0, 0.012), (0.0, 0.009), "+$0.00", "-3.0 ms"),
        ((0.0, 0.012), (0.002, 2.012), "+$2.00", "+2.00 s"),
    ],
)
def test_differences_are_signed_and_in_the_unit_of_their_sides(
    tmp_path: Path, a: tuple[float, float], b: tuple[float, float], cost: str, latency: str
) -> None:
    run = [
        each
        for model, (usd, seconds) in (("a", a), ("b", b))
        for each in episodes(model, {"right": 4}, cost=usd, seconds=seconds)
    ]
    [pair] = pairings(measure([write_run(tmp_path / "run", run)]))
    differences = {row.label: row.cells[2].value for row in pair.table.rows}
    assert differences["Cost per 1,000"] == cost
    assert differences["Latency, mean"] == latency
    assert differences["Accuracy"] == "+0.0 pts"


def test_models_without_a_question_in_common_are_no_pair(tmp_path: Path) -> None:
    run = [
        *episodes("a", {"right": 2}),
        *episodes("b", {"right": 2}, questions=map(question, (7, 8))),
    ]
    assert pairings(measure([write_run(tmp_path / "run", run)])) == []


def test_rollouts_of_one_question_are_no_pair(tmp_path: Path) -> None:
    asked = [question(0)] * 4
    group = episodes("trained", {"right": 2, "wrong": 2}, questions=asked, step=5)
    run = write_run(tmp_path / "run", [*group, *episodes("base", {"right": 1})])
    assert pairings(measure([run])) == []


def test_a_step_is_paired_with_the_baseline(tmp_path: Path) -> None:
    base = write_run(tmp_path / "base", episodes("base", {"right": 5, "wrong": 15}))
    [pair] = pairings(measure([base, write_run(tmp_path / "t", training([0, 9], n=20))]))
    assert pair.title == "trained, step 9 against base"
