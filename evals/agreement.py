"""How far a judge agrees with people: agreement, Cohen's kappa, confusion by category.

Several answers to one question hang together, so the intervals draw whole questions
(`evals.intervals`). Where a judge gave no verdict it counts as if it had said the
opposite of the label, in every figure: a judge that fails is not a better judge. Knows
nothing of where the labels come from.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from art_e.question import Question
from evals.intervals import Sample
from evals.judge import Judge, Verdict


@dataclass(frozen=True, slots=True)
class Case:
    """An answer that a person labelled: right or wrong."""

    question: Question
    answer: str | None
    label: bool
    category: str
    adversarial: bool = False


class Rated(NamedTuple):
    """A labelled answer and a judge's verdict on it."""

    case: Case
    verdict: Verdict

    @property
    def agrees(self) -> bool:
        """Whether the judge says what the label says."""
        return self.verdict.correct is self.case.label

    @property
    def said(self) -> bool:
        """The verdict, or where there is none the opposite of the label."""
        return self.case.label if self.agrees else not self.case.label


async def rate(
    judge: Judge,
    cases: Sequence[Case],
    *,
    concurrency: int,
    on_rated: Callable[[], object] = lambda: None,
) -> list[Rated]:
    """The judge's verdict on each case, in their order; `concurrency` are asked for at a time."""
    waiting = iter(enumerate(cases))
    rated: dict[int, Rated] = {}

    async def work() -> None:
        for number, case in waiting:
            rated[number] = Rated(case, await judge.judge(case.question, case.answer))
            on_rated()

    await asyncio.gather(*(work() for _ in range(concurrency)))
    return [rated[number] for number in range(len(cases))]


def agreement(rated: Sequence[Rated]) -> dict[str, Any]:
    """How far one judge's verdicts are those of the labels.

    The form is `{"n", "unjudged", "adversarial", "adversarial_judged_correct", "agreement":
    estimate, "kappa": estimate, "confusion", "by_category": {category: {"n", "unjudged",
    "agreement", "confusion"}}}`; estimates are those of `evals.intervals`, a confusion
    is `{"right_as_right", "right_as_wrong", "wrong_as_right", "wrong_as_wrong"}`, the
    unjudged ones left out.
    """
    hostile = [each for each in rated if each.case.adversarial]
    labels, said = [each.case.label for each in rated], [each.said for each in rated]
    categories = dict.fromkeys(each.case.category for each in rated)
    return {
        **_shares(rated),
        "kappa": _sample(rated).kappa(labels, said),
        "adversarial": len(hostile),
        "adversarial_judged_correct": sum(each.verdict.correct is True for each in hostile),
        "by_category": {
            category: _shares([each for each in rated if each.case.category == category])
            for category in categories
        },
    }


def _shares(rated: Sequence[Rated]) -> dict[str, Any]:
    cells = [(each.case.label, each.verdict.correct) for each in rated]
    return {
        "n": len(rated),
        "unjudged": sum(each.verdict.correct is None for each in rated),
        "agreement": _sample(rated).share([each.agrees for each in rated]),
        "confusion": {
            f"{'right' if label else 'wrong'}_as_{'right' if said else 'wrong'}": cells.count(
                (label, said)
            )
            for label in (True, False)
            for said in (True, False)
        },
    }


def _sample(rated: Sequence[Rated]) -> Sample:
    questions = [each.case.question for each in rated]
    return Sample([each.inbox_address for each in questions], [each.id for each in questions])
