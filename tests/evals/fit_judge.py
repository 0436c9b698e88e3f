"""Fits the offline judge's weights: `python -m tests.evals.fit_judge` prints them.

The pairs are the tuning half of the labelled set and `judge_pairs.jsonl`, without those that have
a fault; the right ones count together as much as the wrong ones. A weight above 0 would reward what
speaks against an answer. It also prints how the judge does on the tuning half by cross-validation:
each category is judged with the weights of others.
"""

import datetime as dt
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from art_e.question import Question
from evals.judges.labels import load_pairs
from evals.judges.offline import WEIGHTS, Compared, ruled

RIDGE = 0.3
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


class Sample(NamedTuple):
    """The features of pairs, their labels, and their categories ("" outside the tuning half)."""

    columns: np.ndarray[Any, np.dtype[np.float64]]
    labels: np.ndarray[Any, np.dtype[np.bool_]]
    categories: np.ndarray[Any, np.dtype[np.str_]]


def sample() -> Sample:
    """The pairs on which the weights are fitted."""
    half = [each for each in load_pairs() if each.half == "tuning"]
    pairs = [(Pair(each.question, each.answer or "", each.label), each.category) for each in half]
    features, labels, categories = [], [], []
    for (question, answer, right), category in [*pairs, *((each, "") for each in table())]:
        if ruled(question, answer, "") is None:
            compared = Compared(question, question.answer or "", answer)
            if compared.fault() is None:
                features.append(compared.features())
                labels.append(right)
                categories.append(category)
    return Sample(*map(np.asarray, (features, labels, categories)))


def fitted(chosen: Sample) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The bias and the weights."""
    signs = np.where(chosen.labels, 1.0, -1.0)
    counts = np.where(chosen.labels, (~chosen.labels).sum() / chosen.labels.sum(), 1.0)

    def loss(weights: np.ndarray[Any, np.dtype[np.float64]]) -> float:
        margins = signs * (weights[0] + chosen.columns @ weights[1:])
        return float(counts @ np.logaddexp(0, -margins) + RIDGE / 2 * (weights[1:] ** 2).sum())

    bounds = [(None, None), *[(None, 0.0)] * len(WEIGHTS)]
    found = minimize(loss, np.zeros(len(bounds)), method="L-BFGS-B", bounds=bounds).x
    return np.asarray(found)


def cross_validated(chosen: Sample) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The score of each pair, with weights fitted on other categories."""
    scores = np.zeros(len(chosen.labels))
    for category in set(chosen.categories):
        left = chosen.categories != category
        weights = fitted(Sample(*(column[left] for column in chosen)))
        margins = weights[0] + chosen.columns[~left] @ weights[1:]
        scores[~left] = 1 / (1 + np.exp(-margins))
    return scores


if __name__ == "__main__":
    found = sample()
    bias, *weights = fitted(found)
    print(f"BIAS = {bias:.2f}")
    print(*(f'"{k}": {v:.2f},' for k, v in zip(WEIGHTS, weights, strict=True)), sep="\n")
    is_tuning = found.categories != ""
    scores, labels = (each[is_tuning] for each in (cross_validated(found), found.labels))
    print("tuning half, judged with the weights of other categories:")
    for low in (0.0, 0.2, 0.4, 0.6, 0.8):
        within = (low <= scores) & (scores < low + 0.2)
        share, mean = labels[within].mean(), scores[within].mean()
        print(f"score {low} to {low + 0.2:.1f}: {within.sum()}, mean {mean:.2f}, right {share:.2f}")
