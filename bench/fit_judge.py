"""Fits the weights of `evals.judges.offline`: `python -m bench.fit_judge` prints their lines of
`evals/judges/vocabulary.txt`.

The pairs are the tuning half of the labelled set and `tests/evals/judge_pairs.jsonl`, without those
that a fault decides; right and wrong ones count alike. A weight above 0 would reward what speaks
against an answer.
"""

import datetime as dt
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from art_e.question import Question
from evals.judges.claims import clean, unframed
from evals.judges.labels import Case, load_pairs
from evals.judges.offline import WEIGHTS, Compared

RIDGE = 0.1
PAIRS = Path(__file__).parents[1] / "tests" / "evals" / "judge_pairs.jsonl"
FAULTS = [name for name in WEIGHTS if name != "bias"]
DAY = dt.date(2001, 5, 10)


def invented() -> list[Case]:
    """Return the pairs of `judge_pairs.jsonl`, asked on May 10, 2001."""
    cases = []
    for row in map(json.loads, PAIRS.read_text(encoding="utf-8").splitlines()):
        question = Question("q", row["question"], "ann@test.example", DAY, row["gold"])
        for label in ("right", "wrong"):
            cases += [Case(question, each, label == "right", "invented") for each in row[label]]
    return cases


def fitted() -> NDArray[np.float64]:
    """Return the bias and the weights."""
    tuning = [each for each in load_pairs() if each.half == "tuning" and each.question.answerable]
    features, labels = [], []
    for each in [*tuning, *invented()]:
        pair = each.question, each.question.answer or "", unframed(clean(each.answer or ""))
        compared = Compared(*pair)
        if compared.fault() is None:
            features.append([compared.features()[name] for name in FAULTS])
            labels.append(each.label)
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
    for name, weight in zip(["bias", *FAULTS], fitted(), strict=True):
        print(f"weight {weight:.2f} {name}")
