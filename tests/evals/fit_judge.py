"""Fits the offline judge's weights: `python -m tests.evals.fit_judge` prints them.

The pairs are the tuning half of the labelled set and `judge_pairs.jsonl`, as far as their wording
decides. A weight above 0 would reward a fault.
"""

import datetime as dt
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from art_e.question import Question
from evals.judges.labels import load_pairs
from evals.judges.offline import Compared, Features, ruled

RIDGE = 1.0
PAIRS = Path(__file__).with_name("judge_pairs.jsonl").read_text(encoding="utf-8")
# Invented questions with answers labelled by hand: {question, gold, right: [...], wrong: [...]}.
ROWS: list[dict[str, Any]] = [json.loads(line) for line in PAIRS.splitlines()]


class Pair(NamedTuple):
    """An answer to a question with a gold answer, and whether it is right."""

    question: Question
    answer: str
    right: bool


def table() -> list[Pair]:
    """The pairs of `judge_pairs.jsonl`."""
    return [
        Pair(asked(row["question"], row["gold"]), answer, label == "right")
        for row in ROWS
        for label in ("right", "wrong")
        for answer in row[label]
    ]


def asked(question: str, gold: str | None, answerable: bool | None = None) -> Question:
    """The question as it was asked on May 10, 2001."""
    day = dt.date(2001, 5, 10)
    return Question("q", question, "ann@test.example", day, gold, answerable=answerable)


def fitted() -> tuple[float, Features]:
    """The bias and the weights."""
    tuning = [
        Pair(each.question, each.answer or "", each.label)
        for each in load_pairs()
        if each.half == "tuning"
    ]
    features, labels = [], []
    for question, answer, right in [*tuning, *table()]:
        if ruled(question, answer, "") is None:
            compared = Compared(question, question.answer or "", answer)
            if compared.fault() is None:
                features.append(compared.features())
                labels.append(right)
    columns, signs = np.asarray(features, float), np.where(labels, 1.0, -1.0)

    def loss(weights: np.ndarray[Any, np.dtype[np.float64]]) -> float:
        margins = signs * (weights[0] + columns @ weights[1:])
        return float(np.logaddexp(0, -margins).sum() + RIDGE / 2 * (weights[1:] ** 2).sum())

    bounds = [(None, None), *[(None, 0.0)] * len(Features._fields)]
    found = minimize(loss, np.zeros(len(bounds)), method="L-BFGS-B", bounds=bounds).x
    return float(found[0]), Features(*map(float, found[1:]))


if __name__ == "__main__":
    bias, weights = fitted()
    print(f"BIAS = {bias:.2f}", *(f"{k}={v:.2f}," for k, v in weights._asdict().items()), sep="\n")
