"""Two models on the same questions: how far they are apart, and whether that is chance."""

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

from scipy.stats import binomtest

from art_e.errors import UserError
from evals.metrics import sample_of
from evals.scored import Scored
from evals.statistics import Estimate


class Pair(NamedTuple):
    """The same question, asked of A and of B."""

    a: Scored
    b: Scored


class _Figure(NamedTuple):
    """A figure of an episode, None if unknown, over the episodes that satisfy `on`."""

    name: str
    of: Callable[[Scored], float | None]
    on: Callable[[Scored], bool]


def _everywhere(_: Scored) -> bool:
    return True


def _answerable(each: Scored) -> bool:
    return bool(each.question.answerable)


def _unanswerable(each: Scored) -> bool:
    return not each.question.answerable


def _cost(each: Scored) -> float | None:
    cost = each.trajectory.cost_usd
    return None if cost is None or each.cached else 1000 * cost


_FIGURES = (
    _Figure("accuracy", lambda each: float(each.correct), _answerable),
    _Figure("unanswerable_accuracy", lambda each: float(each.correct), _unanswerable),
    _Figure("hallucination", lambda each: float(each.wrong), _everywhere),
    _Figure("abstention", lambda each: float(each.trajectory.rubric["abstained"]), _everywhere),
    _Figure("turns", lambda each: float(each.trajectory.rubric["turns"]), _everywhere),
    _Figure("effort", lambda each: float(each.trajectory.rubric["effort"]), _everywhere),
    _Figure("cost_per_1000_usd", _cost, _everywhere),
    _Figure("latency_mean_s", lambda each: each.trajectory.seconds["total"], _everywhere),
)
LATENCY = "latency_mean_s"


def compare(a: Sequence[Scored], b: Sequence[Scored], *, timed: bool = True) -> dict[str, Any]:
    """The paired figures of two models' episodes, B against A:

        {"n": pairs, "left_out": {"a", "b"},
         "figures": {name: {"a", "b", "difference": estimate of B - A}},
         "p": McNemar's for accuracy, "only_a", "only_b": answerable questions right in one,
         "mended": estimate, the share of A's errors that B mends,
         "broken": estimate, the share of B's errors that A has right,
         "needed": questions that would show such a difference, null without one,
         "flipped": [{"question_id", "repeat", "question", "gold", "a", "b", "right": "a"|"b"}]}

    A figure that is unknown for a pair is left out, as is latency unless `timed`.
    Where questions were asked several times, McNemar's test takes a question as right if
    most of its repeats are: repeats are no independent evidence. Raises `UserError` where
    no question was asked of both.
    """
    pairs = paired(a, b)
    if not pairs:
        raise UserError("the two have no question in common; compare runs of the same questions")
    right_in = [_right_questions([pair[side] for pair in pairs]) for side in (0, 1)]
    only_a, only_b = (len(right_in[one] - right_in[1 - one]) for one in (0, 1))
    answerable = [pair for pair in pairs if _answerable(pair.a)]
    n = len({pair.a.question.id for pair in answerable})
    p_a, p_b = (len(right) / n if n else 0.0 for right in right_in)
    return {
        "n": len(pairs),
        "left_out": {"a": len(a) - len(pairs), "b": len(b) - len(pairs)},
        "figures": {
            figure.name: row
            for figure in _FIGURES
            if (timed or figure.name != LATENCY) and (row := _row(figure, pairs)) is not None
        },
        "p": mcnemar(only_a, only_b),
        "only_a": only_a,
        "only_b": only_b,
        "mended": _mended([pair.a for pair in answerable], [pair.b for pair in answerable]),
        "broken": _mended([pair.b for pair in answerable], [pair.a for pair in answerable]),
        "needed": None if p_a == p_b else questions_needed(p_a, p_b, (only_a + only_b) / n),
        "flipped": [_flip(pair) for pair in answerable if pair.a.correct != pair.b.correct],
    }


def paired(a: Sequence[Scored], b: Sequence[Scored]) -> list[Pair]:
    """The episodes of both on the same question and repeat, by question id.

    Raises `UserError` if a side has two episodes of one question and repeat.
    """
    by_key = []
    for side in (a, b):
        keyed = {(each.question.id, each.trajectory.repeat): each for each in side}
        if len(keyed) < len(side):
            raise UserError("a side has episodes of several models; say which: RUN:MODEL")
        by_key.append(keyed)
    first, second = by_key
    return [Pair(first[key], second[key]) for key in sorted(first.keys() & second.keys())]


def mcnemar(only_a: int, only_b: int) -> float:
    """McNemar's exact two-sided p that A and B are right equally often.

    It is counted from the questions that only one of them has right; 1 without any.
    """
    flipped = only_a + only_b
    return 1.0 if flipped == 0 else float(binomtest(only_a, flipped, 0.5).pvalue)


def questions_needed(p1: float, p2: float, discordant: float) -> int:
    """The questions with which McNemar's test tells accuracy `p1` from `p2` in 80 % of runs, at
    5 % two-sided, when both are asked the same questions.

    `discordant` (d) is the share of questions that only one has right. n = (z_a sqrt(d) + z_b
    sqrt(d - (p1-p2)^2))^2 / (p1-p2)^2 (Connor, Biometrics 43, 1987). Raises `ValueError` if the
    accuracies are equal.
    """
    gap = p2 - p1
    if gap == 0:
        raise ValueError("no number of questions tells equal accuracies apart")
    z_alpha, z_power = (NormalDist().inv_cdf(level) for level in (0.975, 0.8))
    spread = z_alpha * math.sqrt(discordant) + z_power * math.sqrt(max(0.0, discordant - gap**2))
    return math.ceil(spread**2 / gap**2)


def _right_questions(scored: Sequence[Scored]) -> set[str]:
    """The answerable questions that were right in most of their repeats."""
    correct: dict[str, list[bool]] = {}
    for each in scored:
        if _answerable(each):
            correct.setdefault(each.question.id, []).append(each.correct)
    return {question for question, right in correct.items() if 2 * sum(right) > len(right)}


def _row(figure: _Figure, pairs: Sequence[Pair]) -> dict[str, Any] | None:
    on = [pair for pair in pairs if figure.on(pair.a)]
    values = [(figure.of(pair.a), figure.of(pair.b)) for pair in on]
    known = [(one, other) for one, other in values if one is not None and other is not None]
    if not known or len(known) < len(values):
        return None
    sample = sample_of([pair.a for pair in on])
    return {
        "a": sum(one for one, _ in known) / len(known),
        "b": sum(other for _, other in known) / len(known),
        "difference": sample.mean([other - one for one, other in known]),
    }


def _mended(erring: Sequence[Scored], mending: Sequence[Scored]) -> Estimate:
    errors = [
        (each, other) for each, other in zip(erring, mending, strict=True) if not each.correct
    ]
    return sample_of([each for each, _ in errors]).share([other.correct for _, other in errors])


def _flip(pair: Pair) -> dict[str, Any]:
    return {
        "question_id": pair.a.question.id,
        "repeat": pair.a.trajectory.repeat,
        "question": pair.a.question.question,
        "gold": pair.a.question.answer,
        "a": pair.a.trajectory.final_answer,
        "b": pair.b.trajectory.final_answer,
        "right": "a" if pair.a.correct else "b",
    }
