"""The figures that checkpoints are chosen by: the second judge's, on the same questions always."""

import dataclasses
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from art_e.question import Question
from art_e.trajectory import read_trajectories
from evals.judges.offline import F1Judge, OfflineJudge
from evals.metrics import model_metrics
from evals.scored import Scored
from evals.verdict import Verdict
from tests.builders import QUESTION
from tests.training import tiny
from tests.training.conftest import Begin
from tests.training.test_judging import IDK, LOST, RIGHT, WRONG, rollouts, score
from training.judging import LenientJudge
from training.material import load_material
from training.progress import EPISODES, by_second
from training.recipe import Setting
from training.run import Judges
from training.start import load_start
from training.validation import (
    Examiner,
    by_transformers,
    figures_of,
    figures_on_test,
    validation_of,
)

NONE = dataclasses.replace(QUESTION, id="none", answer=None, message_ids=(), answerable=False)


def unanswerable(scored: Scored) -> Scored:
    """The same episode, as if nothing answered its question."""
    trajectory = scored.trajectory
    rubric = {**trajectory.rubric, "answerable": False}
    made = dataclasses.replace(trajectory, rubric=rubric, question=NONE.to_row())
    return Scored(NONE, made)


class No(OfflineJudge):
    """Finds nothing right."""

    name = "no/1"

    def decide(self, question: Question, answer: str | None) -> Verdict:
        return Verdict(False, None, self.name, "no")


def test_figures_are_by_the_second_judge(begin: Begin) -> None:
    """Where the reward's judge finds right what the other does not, accuracy does not rise."""
    scored = score(OfflineJudge(), rollouts(begin, RIGHT, RIGHT, WRONG, IDK), No())
    found = validation_of(scored, 5)
    assert (found.step, found.n) == (5, 4)
    assert found.accuracy == found.correct == 0.0
    assert found.hallucination == 0.75
    assert found.turns_when_correct is found.effort_when_correct is None
    # What was paid is the reward's own judge's.
    paid = [each.trajectory.reward["total"] for each in scored if each.trajectory.reward]
    assert found.reward == pytest.approx(sum(paid) / 4)
    other = validation_of(score(No(), rollouts(begin, RIGHT, RIGHT, WRONG, IDK), F1Judge()), 5)
    assert (other.accuracy, other.hallucination, other.abstention) == (0.5, 0.25, 0.25)
    assert (other.turns_when_correct, other.effort_when_correct) == (2.0, 2.0)


def test_figures_are_the_benchmarks_and_the_invented(begin: Begin) -> None:
    scored = score(LenientJudge(), rollouts(begin, RIGHT, WRONG, IDK, IDK, LOST), F1Judge())
    found, estimates = validation_of(scored, 0), figures_of(scored)
    decided = [by_second(each) for each in scored]
    figures: Any = model_metrics(decided, ["f1", "lenient"], timed=False)
    for name in ("accuracy", "hallucination", "abstention", "turns", "effort"):
        assert getattr(found, name) == figures[name]["value"] == estimates[name]["value"]
        # One question five times has no interval over questions.
        assert set(estimates[name]) >= {"value", "low", "high"}
    assert found.format_errors == estimates["format_errors"]["value"] == 0.6
    assert (estimates["n"], estimates["effort_when_correct"]["value"]) == (5, 2.0)
    # There was no unanswerable question to invent an answer to.
    assert found.hallucination_unanswerable is None
    mixed = [scored[0], *map(unanswerable, scored[1:])]
    assert validation_of(mixed, 0).hallucination_unanswerable == 0.25


def test_it_is_the_best_checkpoint_that_is_tested(warm: Path, home: Path, tmp_path: Path) -> None:
    metrics = json.loads((warm / "metrics.json").read_text("utf-8"))
    start = load_start(str(warm / metrics["best_checkpoint"]))
    judges = Judges(OfflineJudge(), F1Judge())
    recipe = tiny.recipe()
    with tiny.begun(Setting("sft", recipe, 0), tmp_path / "again") as training:
        examiner = Examiner(training, judges, start.tokens, partial(load_material, recipe.data))
        again, episodes = figures_on_test(examiner, by_transformers(training, start))
    assert json.loads(json.dumps(again)) == metrics["test"]
    stored = [each.messages for each in read_trajectories(warm / EPISODES)]
    assert [each.trajectory.messages for each in episodes] == stored
