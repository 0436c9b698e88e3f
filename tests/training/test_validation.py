"""The figures that checkpoints are chosen by: the second judge's, on the same questions always."""

import dataclasses
from typing import Any

import pytest

from art_e.question import Question
from evals.judges.f1 import F1Judge
from evals.judges.offline import OfflineJudge, Verdict
from evals.metrics import model_metrics
from evals.scored import Scored
from tests.builders import QUESTION
from tests.training.conftest import Begin
from tests.training.test_scoring import IDK, LOST, RIGHT, WRONG, rollouts, score
from training.judging import LenientJudge
from training.rollout import Material
from training.validation import by_second, validation_of

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


def test_they_are_the_benchmarks(begin: Begin) -> None:
    scored = score(LenientJudge(), rollouts(begin, RIGHT, WRONG, IDK, LOST), F1Judge())
    found = validation_of(scored, 0)
    figures: Any = model_metrics(
        [by_second(each) for each in scored], ["f1", "lenient"], timed=False
    )
    for name in ("accuracy", "hallucination", "abstention", "turns", "effort"):
        assert getattr(found, name) == figures[name]["value"]
    assert found.format_errors == 0.75


def test_hallucination_on_unanswerable_questions(begin: Begin) -> None:
    scored = score(OfflineJudge(), rollouts(begin, RIGHT, WRONG, IDK, IDK, LOST), F1Judge())
    assert validation_of(scored, 0).hallucination_unanswerable is None
    mixed = [scored[0], *map(unanswerable, scored[1:])]
    assert validation_of(mixed, 0).hallucination_unanswerable == 0.25


def test_by_second_keeps_all_verdicts(begin: Begin) -> None:
    [answered] = score(OfflineJudge(), rollouts(begin, RIGHT), F1Judge())
    second = by_second(answered)
    assert [each["judge"] for each in second.verdicts] == [
        each["judge"] for each in answered.verdicts[::-1]
    ]
    [lost] = score(OfflineJudge(), rollouts(begin, LOST), F1Judge())
    assert by_second(lost) is lost


def test_held_out_questions_are_always_the_same(material: Material) -> None:
    first = material.held_out(10)
    assert len(first) == 10
    assert material.held_out(10) == first
    assert material.held_out(20)[:10] == first
    assert first != material.questions[:10]
    assert len(material.held_out(10**6)) == len(material.questions)
