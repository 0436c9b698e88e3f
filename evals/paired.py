"""Two models on the same questions: how far they are apart, and whether that is chance."""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import pandas as pd
from scipy.stats import binomtest

from art_e.errors import UserError
from evals.metrics import HEADLINE, MEANS, SHARES, episode_table, table_sample
from evals.scored import Scored
from evals.statistics import Estimate


class Pair(NamedTuple):
    """The same question, asked of A and of B."""

    a: Scored
    b: Scored


LATENCY = "latency_mean_s"
# Each figure's column of `evals.metrics.episode_table`, and the column of those it is over.
_FIGURES = {
    **{name: SHARES[name] for name in HEADLINE},
    **{name: MEANS[name] for name in ("turns", "effort")},
    "cost_per_1000_usd": ("cost_per_1000_usd", None),
    LATENCY: ("total", None),
}


def compare(a: Sequence[Scored], b: Sequence[Scored], *, timed: bool = True) -> dict[str, Any]:
    """The paired figures of two models' episodes, B against A:

        {"n": pairs, "left_out": {"a", "b"},
         "figures": {name: {"a", "b", "difference": estimate of B - A}},
         "p": McNemar's for accuracy, "only_a", "only_b": answerable questions right in one,
         "mended": estimate, the share of A's errors that B mends,
         "broken": estimate, the share of B's errors that A has right,
         "needed": questions that would show such a difference, null without one,
         "flipped": [{"question_id", "repeat", "question", "gold", "a", "b", "right": "a"|"b"}]}

    A figure that is unknown for a pair is left out, as is latency unless `timed`. McNemar's test
    takes a repeated question as right if most of its repeats are, because repeats are no
    independent evidence. Raises `UserError` if no question was asked of both.
    """
    pairs = paired(a, b)
    if not pairs:
        raise UserError("the two have no question in common; compare runs of the same questions")
    one, other = (episode_table([pair[side] for pair in pairs]) for side in (0, 1))
    answerable = one["answerable"]
    right_a, right_b = (
        table[answerable].groupby("question")["correct"].mean() > 0.5 for table in (one, other)
    )
    only_a, only_b = int((right_a & ~right_b).sum()), int((right_b & ~right_a).sum())
    n = len(right_a)
    flipped = answerable & (one["correct"] != other["correct"])
    return {
        "n": len(pairs),
        "left_out": {"a": len(a) - len(pairs), "b": len(b) - len(pairs)},
        "figures": {
            name: row
            for name in _FIGURES
            if (timed or name != LATENCY) and (row := _row(name, one, other)) is not None
        },
        "p": mcnemar(only_a, only_b),
        "only_a": only_a,
        "only_b": only_b,
        "mended": _mended(one[answerable], other[answerable]),
        "broken": _mended(other[answerable], one[answerable]),
        "needed": None
        if only_a == only_b
        else questions_needed((only_b - only_a) / n, (only_a + only_b) / n),
        "flipped": [_flip(pair) for pair, differs in zip(pairs, flipped, strict=True) if differs],
    }


def paired(a: Sequence[Scored], b: Sequence[Scored]) -> list[Pair]:
    """The episodes of both on the same question and repeat, by question id.

    Raises `UserError` if a side has two episodes of one question and repeat.
    """
    first, second = (
        {(each.question.id, each.trajectory.repeat): each for each in side} for side in (a, b)
    )
    if len(first) < len(a) or len(second) < len(b):
        raise UserError("a side has episodes of several models; say which: RUN:MODEL")
    return [Pair(first[key], second[key]) for key in sorted(first.keys() & second.keys())]


def mcnemar(only_a: int, only_b: int) -> float:
    """McNemar's exact two-sided p that A and B are right equally often.

    It is counted from the questions that only one of them has right; 1 without any.
    """
    flipped = only_a + only_b
    return 1.0 if flipped == 0 else float(binomtest(only_a, flipped, 0.5).pvalue)


def questions_needed(gap: float, discordant: float) -> int:
    """The questions with which McNemar's test finds a difference `gap` of accuracies in 80 % of
    runs, at 5 % two-sided, when both are asked the same questions.

    `discordant` (d) is the share of questions that only one has right. n = (z_a sqrt(d) + z_b
    sqrt(d - gap^2))^2 / gap^2 (Connor, Biometrics 43, 1987). Raises `ValueError` without a gap.
    """
    if gap == 0:
        raise ValueError("no number of questions tells equal accuracies apart")
    z_alpha, z_power = (NormalDist().inv_cdf(level) for level in (0.975, 0.8))
    spread = z_alpha * math.sqrt(discordant) + z_power * math.sqrt(max(0.0, discordant - gap**2))
    return math.ceil(spread**2 / gap**2)


def _row(name: str, one: pd.DataFrame, other: pd.DataFrame) -> dict[str, Any] | None:
    """A figure of both sides and its difference; None if it is unknown for any pair."""
    column, over = _FIGURES[name]
    on = one if over is None else one[one[over]]
    of_a, of_b = (table.loc[on.index, column].astype(float) for table in (one, other))
    if on.empty or of_a.isna().any() or of_b.isna().any():
        return None
    difference = table_sample(on).mean((of_b - of_a).tolist())
    return {"a": float(of_a.mean()), "b": float(of_b.mean()), "difference": difference}


def _mended(erring: pd.DataFrame, mending: pd.DataFrame) -> Estimate:
    errors = erring[~erring["correct"]]
    return table_sample(errors).share(mending.loc[errors.index, "correct"].tolist())


def _flip(pair: Pair) -> dict[str, Any]:
    question = pair.a.question
    return {
        "question_id": question.id,
        "repeat": pair.a.trajectory.repeat,
        "question": question.question,
        "gold": question.answer,
        "a": pair.a.trajectory.final_answer,
        "b": pair.b.trajectory.final_answer,
        "right": "a" if pair.a.correct else "b",
    }
