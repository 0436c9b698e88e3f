"""Fits the offline judge's weights: `python -m tests.evals.fit_judge` prints them.

The pairs are the tuning half of the labelled set and `judge_pairs.jsonl`, without those that have
a fault; the right ones count together as much as the wrong ones. A weight above 0 would reward what
speaks against an answer.
"""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize

from art_e.question import Question
from evals.judges.labels import Case, load_pairs
from evals.judges.offline import WEIGHTS, Compared, ruled

RIDGE = 0.3
PAIRS = Path(__file__).with_name("judge_pairs.jsonl").read_text(encoding="utf-8")
# Invented questions with answers labelled by hand: {question, gold, right: [...], wrong: [...]}.
ROWS: list[dict[str, Any]] = [json.loads(line) for line in PAIRS.splitlines()]

Array = np.ndarray[Any, np.dtype[np.float64]]


def invented() -> list[Case]:
    """The pairs of `judge_pairs.jsonl`."""
    return [
        Case(asked(row["question"], row["gold"]), answer, label == "right", "invented")
        for row in ROWS
        for label in ("right", "wrong")
        for answer in row[label]
    ]


def asked(question: str, gold: str | None, answerable: bool | None = None) -> Question:
    """The question as it was asked on May 10, 2001."""
    day = dt.date(2001, 5, 10)
    return Question("q", question, "ann@test.example", day, gold, answerable=answerable)


def fitted() -> Array:
    """The bias and the weights."""
    tuning = [each for each in load_pairs() if each.half == "tuning"]
    features, labels = [], []
    for each in [*tuning, *invented()]:
        if ruled(each.question, each.answer, "") is None:
            compared = Compared(each.question, each.question.answer or "", each.answer or "")
            if compared.fault() is None:
                features.append(compared.features())
                labels.append(each.label)
    columns, right = np.asarray(features), np.asarray(labels)
    signs = np.where(right, 1.0, -1.0)
    counts = np.where(right, (~right).sum() / right.sum(), 1.0)

    def loss(weights: Array) -> float:
        margins = signs * (weights[0] + columns @ weights[1:])
        return float(counts @ np.logaddexp(0, -margins) + RIDGE / 2 * (weights[1:] ** 2).sum())

    bounds = [(None, None), *[(None, 0.0)] * len(WEIGHTS)]
    found = minimize(loss, np.zeros(len(bounds)), method="L-BFGS-B", bounds=bounds).x
    return np.asarray(found)


if __name__ == "__main__":
    bias, *weights = fitted()
    print(f"BIAS = {bias:.2f}")
    print(*(f'"{k}": {v:.2f},' for k, v in zip(WEIGHTS, weights, strict=True)), sep="\n")
