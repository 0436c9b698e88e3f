"""Two models on the same questions: how far they are apart, and whether that is chance."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
from scipy.stats import binomtest

from art_e.errors import UserError
from evals.metrics import HEADLINE, MEANS, SHARES, episode_table, table_sample
from evals.scored import Scored
from evals.statistics import Estimate

# Each figure's column of `evals.metrics.episode_table`, and the column of those it is over.
_FIGURES = {
    **{name: SHARES[name] for name in HEADLINE},
    **{name: MEANS[name] for name in ("turns", "effort")},
    "cost_per_1000_usd": ("cost_per_1000_usd", None),
    "latency_mean_s": ("total", None),
}


def compare(a: Sequence[Scored], b: Sequence[Scored]) -> dict[str, Any]:
    """The paired figures of two models' episodes, B against A:

        {"n": pairs, "left_out": {"a", "b"},
         "figures": {name: {"a", "b", "difference": estimate of B - A}},
         "p": of equal accuracy, "only_a", "only_b": answerable questions right in one,
         "net_reduction": estimate, by what part of A's errors B has fewer (the talk's 60 %),
         "mended", "broken": estimates, the share of A's errors that B has right, and of B's
                   that A has right,
         "flipped": [{"question_id", "repeat", "question", "gold", "a", "b", "right": "a"|"b",
                      "episodes": [id of A's, id of B's]}]}

    A figure that is unknown for a pair is left out. `p` is the larger of McNemar's exact p, which
    takes a repeated question as right if most of its repeats are, and that of the t over inboxes:
    the first is right where few questions differ, the second where inboxes do. Raises `UserError`
    if no question was asked of both, or a side has a question twice.
    """
    pairs = paired(a, b)
    if not pairs:
        raise UserError("the two have no question in common that was judged; compare other runs")
    one, other = (episode_table([pair[side] for pair in pairs]) for side in (0, 1))
    answerable = one["answerable"]
    right_a, right_b = (
        table[answerable].groupby("question")["correct"].mean() > 0.5 for table in (one, other)
    )
    only_a, only_b = int((right_a & ~right_b).sum()), int((right_b & ~right_a).sum())
    flips = only_a + only_b
    mcnemar = float(binomtest(only_a, flips, 0.5).pvalue) if flips else 1.0
    of_a, of_b = (table.loc[answerable, "correct"].astype(float) for table in (one, other))
    gains, errors = (of_b - of_a).tolist(), (1 - of_a).tolist()
    flipped = answerable & (one["correct"] != other["correct"])
    return {
        "n": len(pairs),
        "left_out": {"a": len(a) - len(pairs), "b": len(b) - len(pairs)},
        "figures": {name: row for name in _FIGURES if (row := _row(name, one, other)) is not None},
        "p": max(mcnemar, table_sample(one[answerable]).p_of_no_mean(gains)),
        "only_a": only_a,
        "only_b": only_b,
        "net_reduction": table_sample(one[answerable]).ratio(gains, errors),
        "mended": _mended(one[answerable], other[answerable]),
        "broken": _mended(other[answerable], one[answerable]),
        "flipped": [_flip(*pair) for pair, differs in zip(pairs, flipped, strict=True) if differs],
    }


def paired(a: Sequence[Scored], b: Sequence[Scored]) -> list[tuple[Scored, Scored]]:
    """The measured and judged episodes of both on the same question and repeat, by question id."""
    first, second = (
        {(each.question.id, each.trajectory.repeat): each for each in side} for side in (a, b)
    )
    if len(first) < len(a) or len(second) < len(b):
        raise UserError("a side has episodes of several models; say which: RUN:MODEL")
    pairs = ((first[key], second[key]) for key in sorted(first.keys() & second.keys()))
    return [pair for pair in pairs if all(each.measured and not each.unjudged for each in pair)]


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


def _flip(a: Scored, b: Scored) -> dict[str, Any]:
    return {
        "question_id": a.question.id,
        "repeat": a.trajectory.repeat,
        "question": a.question.question,
        "gold": a.question.answer,
        "a": a.trajectory.final_answer,
        "b": b.trajectory.final_answer,
        "right": "a" if a.correct else "b",
        "episodes": [a.trajectory.episode_id, b.trajectory.episode_id],
    }
