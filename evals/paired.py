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
    """Something that each episode has a value of; None where it is not known."""

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
         "needed": questions that would tell accuracies so far apart, null where equal,
         "flipped": [{"question_id", "repeat", "question", "gold", "a", "b", "right": "a"|"b"}]}

    A figure that is not known of all pairs is left out, as is latency unless `timed`.
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
        "needed": None
        if p_a == p_b
        else power(p_a, p_b, paired=True, discordant=(only_a + only_b) / n),
        "flipped": [_flip(pair) for pair in answerable if pair.a.correct != pair.b.correct],
    }


def paired(a: Sequence[Scored], b: Sequence[Scored]) -> list[Pair]:
    """The episodes of both on the same question and repeat, by question id.

    Raises `UserError` where a side has two episodes of one question and repeat.
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
    """McNemar's exact two-sided p that A and B are equally often right, from the questions
    that only one of them has right; 1 where there are none."""
    flipped = only_a + only_b
    return 1.0 if flipped == 0 else float(binomtest(only_a, flipped, 0.5).pvalue)


def power(
    p1: float,
    p2: float,
    paired: bool = False,
    power: float = 0.8,
    alpha: float = 0.05,
    *,
    discordant: float | None = None,
) -> int:
    """How many questions tell accuracy `p1` from `p2`, with that power, two-sided at `alpha`.

    Not paired (each model is asked that many questions of its own): the normal
    approximation for two proportions, n = (z_a sqrt(2 m (1-m)) + z_b sqrt(p1 (1-p1) +
    p2 (1-p2)))^2 / (p1-p2)^2 with m their mean (Fleiss, Levin and Paik, Statistical
    Methods for Rates and Proportions, 3rd ed., 2003, section 4.2, without the continuity
    correction). Paired (both are asked the same ones), for McNemar's test: n = (z_a sqrt(d)
    + z_b sqrt(d - (p1-p2)^2))^2 / (p1-p2)^2 (Connor, Biometrics 43, 1987), where d =
    `discordant` is the share of questions that only one has right. By default that of
    models that err independently; models that stumble over the same questions have a
    smaller one and need fewer questions. Raises `ValueError` where `p1` equals `p2`.
    """
    gap = p2 - p1
    if gap == 0:
        raise ValueError("equal accuracies can't be told apart by any number of questions")
    z_alpha, z_power = (NormalDist().inv_cdf(level) for level in (1 - alpha / 2, power))
    if paired:
        apart = p1 * (1 - p2) + p2 * (1 - p1) if discordant is None else discordant
        under_null, otherwise = apart, max(0.0, apart - gap**2)
    else:
        mean = (p1 + p2) / 2
        under_null, otherwise = 2 * mean * (1 - mean), p1 * (1 - p1) + p2 * (1 - p2)
    needed = (z_alpha * math.sqrt(under_null) + z_power * math.sqrt(otherwise)) ** 2 / gap**2
    return math.ceil(needed)


def _right_questions(scored: Sequence[Scored]) -> set[str]:
    """The answerable questions that were right in most of their repeats."""
    said: dict[str, list[bool]] = {}
    for each in scored:
        if _answerable(each):
            said.setdefault(each.question.id, []).append(each.correct)
    return {question for question, right in said.items() if 2 * sum(right) > len(right)}


def _row(figure: _Figure, pairs: Sequence[Pair]) -> dict[str, Any] | None:
    asked = [pair for pair in pairs if figure.on(pair.a)]
    values = [(figure.of(pair.a), figure.of(pair.b)) for pair in asked]
    known = [(one, other) for one, other in values if one is not None and other is not None]
    if not known or len(known) < len(values):
        return None
    sample = sample_of([pair.a for pair in asked])
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
