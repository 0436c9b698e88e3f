"""Fit the weights of `evals.judges.offline`: `python -m bench.fit_judge` prints their lines for
`evals/judges/vocabulary.txt`.

The data are the tuning half of the labelled set and `tests/evals/judge_pairs.jsonl`, without pairs
that are disqualified; right and wrong answers have about equal weight in the logistic loss. Weights
are at most 0, because a positive one would reward a fault.
"""

import datetime as dt
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from art_e.question import Question
from evals.judges.claims import clean, strip_frame
from evals.judges.labels import Case, load_pairs
from evals.judges.offline import WEIGHTS, Comparison

RIDGE = 0.1
PAIRS = Path(__file__).parents[1] / "tests" / "evals" / "judge_pairs.jsonl"
FAULTS = [name for name in WEIGHTS if name != "bias"]
DAY = dt.date(2001, 5, 10)


def invented_cases() -> list[Case]:
    """Return the pairs of `judge_pairs.jsonl`, asked on May 10, 2001."""
    cases = []
    for row in map(json.loads, PAIRS.read_text(encoding="utf-8").splitlines()):
        question = Question("q", row["question"], "ann@test.example", DAY, row["gold"])
        for label in ("right", "wrong"):
            cases += [Case(question, each, label == "right", "invented") for each in row[label]]
    return cases


def fit() -> NDArray[np.float64]:
    """Return the bias and the weights that fit the pairs."""
    tuning = [each for each in load_pairs() if each.half == "tuning" and each.question.answerable]
    features, labels = [], []
    for case in [*tuning, *invented_cases()]:
        gold, answer = case.question.answer or "", strip_frame(clean(case.answer or ""))
        comparison = Comparison(case.question, gold, answer)
        if comparison.disqualifying_reason() is None:
            features.append([comparison.features()[name] for name in FAULTS])
            labels.append(case.label)
    columns, right = np.asarray(features), np.asarray(labels)
    signs = np.where(right, 1.0, -1.0)
    counts = np.where(right, 1.1 * (~right).sum() / right.sum(), 1.0)

    def loss(weights: NDArray[np.float64]) -> float:
        margins = signs * (weights[0] + columns @ weights[1:])
        return float(counts @ np.logaddexp(0, -margins) + RIDGE / 2 * (weights[1:] ** 2).sum())

    bounds = [(None, None), *[(None, 0.0)] * len(FAULTS)]
    best = minimize(loss, np.zeros(len(bounds)), method="L-BFGS-B", bounds=bounds).x
    return np.asarray(best)


if __name__ == "__main__":
    for name, weight in zip(["bias", *FAULTS], fit(), strict=True):
        print(f"weight {weight:.2f} {name}")
