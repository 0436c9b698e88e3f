"""Figures over seeds and questions: whose verdict counts, what is refused, known intervals."""

import dataclasses
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from art_e.episode import Rubric
from art_e.errors import UserError
from art_e.question import Question
from art_e.trajectory import Trajectory
from evals.scored import Scored
from tests import builders as episodes
from training.pooled import ACCURACY, EFFORT_RIGHT, INVENTED, Measure, PooledRuns, episodes_of_test

# Made-up runs: question i is answerable but for every fourth one.
NUMBER = 24


def question(number: int) -> Question:
    answerable = number % 4 != 0
    return Question(
        id=f"q{number:03}",
        question="When does the lease end?",
        inbox_address=f"inbox{number % 3}@test.example",
        query_date=date(2020, 1, 31),
        answer="May 3" if answerable else None,
        message_ids=("<1@t>",) if answerable else (),
        answerable=answerable,
        kind="lookup" if answerable else "unanswerable",
    )


def episode(asked: Question, policy: dict[str, Any], *, right: bool) -> Trajectory:
    """An episode that is right, or gives a wrong answer."""
    abstains = right and not asked.answerable
    rubric = Rubric(
        max_turns=6,
        answerable=asked.answerable,
        answered=not abstains,
        abstained=abstains,
        turns=3,
        effort=3,
    )
    decided, paid = ({"correct": each, "grounded": True} for each in (right, not right))
    return episodes.trajectory(
        episode_id=f"{asked.id}-{policy}",
        question_id=asked.id,
        question=asked.to_row(),
        policy=policy,
        rubric=dataclasses.asdict(rubric),
        # The reward's judge says the opposite: the other one decides.
        verdict={**paid, "judge": "reward", "reason": ""},
        other_verdicts=[{**decided, "judge": "other", "reason": ""}],
    )


def made(folder: Path, right: int) -> Path:
    """A run's test, with its first `right` questions right."""
    folder.mkdir(parents=True)
    asked = [question(number) for number in range(NUMBER)]
    lines = [
        episode(each, {"temperature": heat, "seed": 0}, right=number < right).to_line()
        for heat in (1.0, 0.0)
        for number, each in enumerate(asked)
    ]
    # In another order than that of the ids.
    (folder / "test.jsonl").write_text("".join(f"{each}\n" for each in reversed(lines)))
    return folder


def test_answers_are_judged_by_the_judge_of_validations(tmp_path: Path) -> None:
    runs = [episodes_of_test(made(tmp_path / str(right), right)) for right in (12, 24)]
    asked = PooledRuns([each["sampled"] for each in runs])
    assert [each.question.id for each in asked.runs[0]] == sorted(
        question(number).id for number in range(NUMBER)
    )
    accuracy, invented, effort = (asked.matrix(each) for each in (ACCURACY, INVENTED, EFFORT_RIGHT))
    assert np.nansum(accuracy, axis=1).tolist() == [9, 18]
    assert np.nansum(invented, axis=1).tolist() == [3, 0]
    assert np.isnan(accuracy).tolist() == (~np.isnan(invented)).tolist()
    assert np.isnan(effort[0]).sum() == NUMBER - 9


def test_a_test_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    folder = made(tmp_path / "run", 12)
    lines = (folder / "test.jsonl").read_text().split("\n")
    (folder / "test.jsonl").write_text("\n".join(lines[:NUMBER]) + "\n")
    with pytest.raises(UserError, match="not all of the test"):
        episodes_of_test(folder)
    (folder / "test.jsonl").write_text("{\n")
    with pytest.raises(UserError, match="can't be read"):
        episodes_of_test(folder)


def test_runs_of_other_questions_are_not_pooled() -> None:
    def run(*numbers: int) -> list[Scored]:
        asked = [question(number) for number in numbers]
        return [Scored(each, episode(each, {}, right=True)) for each in asked]

    with pytest.raises(UserError, match="same questions"):
        PooledRuns([run(1, 2), run(1, 3)])
    with pytest.raises(UserError, match="once"):
        PooledRuns([run(1, 1)])


# ---- Intervals, against known cases.

SHARE, VALUE = (Measure("m", "m", lambda _: None, share=share) for share in (True, False))


class Matrix(PooledRuns):
    """Runs whose measures all have the values of a matrix; NaN is undefined."""

    def __init__(self, values: NDArray[Any]) -> None:
        asked = [question(number) for number in range(values.shape[1])]
        scored = [Scored(each, episode(each, {}, right=True)) for each in asked]
        super().__init__([scored] * values.shape[0])
        self.values = values

    def matrix(self, measure: Measure) -> NDArray[Any]:
        return self.values


@st.composite
def shares(draw: st.DrawFn) -> NDArray[Any]:
    """0 or 1 for each run and question, some undefined."""
    runs, questions = draw(st.integers(1, 4)), draw(st.integers(4, 20))
    cells = st.sampled_from([0.0, 1.0, 1.0, 0.0, np.nan])
    row = st.lists(cells, min_size=questions, max_size=questions)
    return np.asarray(draw(st.lists(row, min_size=runs, max_size=runs)), dtype=np.float64)


@given(shares(), st.floats(-2, 2))
def test_an_interval_holds_the_pooled_mean_and_a_constant_gain_has_no_width(
    values: NDArray[Any], difference: float
) -> None:
    defined, runs = values[~np.isnan(values)], Matrix(values)
    estimate, gain = runs.mean(SHARE), Matrix(values + difference).gain(runs, VALUE)
    assert estimate["n"] == len(defined)
    if not len(defined):
        assert estimate["value"] is gain["value"] is None
        return
    low, value, high = (estimate[each] or 0.0 for each in ("low", "value", "high"))
    assert value == pytest.approx(defined.mean())
    assert 0 <= low <= value + 1e-9 <= high + 2e-9 <= 1 + 3e-9
    ends = [gain["value"], gain["low"], gain["high"]]
    assert ends == pytest.approx([difference] * 3, abs=1e-9)


def width(values: NDArray[Any]) -> float:
    estimate = Matrix(values).mean(VALUE)
    assert estimate["low"] is not None and estimate["high"] is not None
    return estimate["high"] - estimate["low"]


def test_the_interval_is_over_seeds_and_questions() -> None:
    rng = np.random.default_rng(0)
    alike = (rng.random((3, 400)) < 0.6).astype(np.float64)
    apart = np.stack([(rng.random(400) < share) for share in (0.3, 0.6, 0.9)]).astype(np.float64)
    assert width(apart) > 4 * width(alike)
    # Questions that are hard for every seed are no evidence three times over: the interval is that
    # of one run, where sqrt(0.6 * 0.4 / 100) is 0.049.
    for runs in (1, 3):
        values = np.asarray([[1.0] * 60 + [0.0] * 40] * runs)
        assert width(values) == pytest.approx(2 * 1.96 * 0.049, abs=0.03)
    # A share of nothing has Wilson's, of the questions of three inboxes.
    estimate = Matrix(np.zeros((3, 100))).mean(SHARE)
    assert estimate["value"] == estimate["low"] == 0
    assert estimate["high"] == pytest.approx(0.037, abs=0.001)
    assert estimate["n"] == 300
