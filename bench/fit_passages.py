"""Fit the weights of `art_e.passages` and the threshold of `art_e.offline`.

    python -m bench.fit_passages enron.duckdb enron

prints the lines for `art_e/data/baseline.toml`, and how often the first passage and the first three
hold the answer. A passage holds it if it has 70 % of the answer's words that the question lacks.
The loss of a training question is -log of the softmax probability of its right passages together:
those of gold mails that hold the answer. The threshold maximizes right minus wrong answers to the
validation questions, by the offline judge.
"""

import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from art_e.episode import gold_mails
from art_e.inbox.file import InboxFile
from art_e.passages import WEIGHTS, Passage, best_passages
from art_e.question import Question, load_questions
from bench.passages import SHOWN, holds, read_passages
from evals.judges.offline import OfflineJudge

RIDGE = 0.01
Numbers = NDArray[np.float64]


class Case(NamedTuple):
    """A question, the passages that the offline policy read, and which of them are right."""

    question: Question
    passages: list[Passage]
    holds: NDArray[np.bool_]
    from_gold: NDArray[np.bool_]

    @property
    def features(self) -> Numbers:
        return np.array([list(each.features.values()) for each in self.passages])


def read_cases(file: InboxFile, questions: list[Question]) -> list[Case]:
    """Return the cases of the questions for which a search found mails."""
    cases = []
    for question in questions:
        inbox = file.open_inbox(question.inbox_address, question.query_date)
        episode, passages = read_passages(inbox, question)
        gold = {name for names in gold_mails(inbox, question) for name in names}
        right = [holds(question, each.text) for each in passages]
        from_gold = [episode.tools.resolve(each.handle) in gold for each in passages]
        if passages:
            cases.append(Case(question, passages, np.array(right), np.array(from_gold)))
    return cases


def fit(cases: list[Case]) -> Numbers:
    """Return the weights that fit the cases, in the order of the features."""
    learned = [each for each in cases if (each.holds & each.from_gold).any()]
    columns = np.concatenate([each.features for each in learned])
    right = np.concatenate([each.holds & each.from_gold for each in learned])
    starts = np.cumsum([0, *(len(each.passages) for each in learned[:-1])])
    case_of = np.repeat(np.arange(len(learned)), [len(each.passages) for each in learned])
    spread = columns.std(axis=0) + 1e-9
    scaled = (columns - columns.mean(axis=0)) / spread

    def loss(weights: Numbers) -> tuple[float, Numbers]:
        scores = scaled @ weights
        powers = np.exp(scores - np.maximum.reduceat(scores, starts)[case_of])
        whole, part = np.add.reduceat(powers, starts), np.add.reduceat(powers * right, starts)
        slope = scaled.T @ (powers / whole[case_of] - powers * right / part[case_of])
        value = np.log(whole / part).mean() + RIDGE * weights @ weights
        return float(value), slope / len(learned) + 2 * RIDGE * weights

    best = minimize(loss, np.zeros(len(spread)), jac=True, method="L-BFGS-B").x
    return np.asarray(best / spread)


def rerank(cases: list[Case], weights: Numbers) -> list[Case]:
    """Return the cases with their passages ranked by these weights."""
    ordered = []
    for case in cases:
        scores = case.features @ weights
        order = np.argsort(-scores, kind="stable")
        passages = [case.passages[at]._replace(score=float(scores[at])) for at in order]
        ordered.append(Case(case.question, passages, case.holds[order], case.from_gold[order]))
    return ordered


def hit_rates(cases: list[Case]) -> str:
    """Return how often the first passage and the first three hold the answer."""
    places = []
    for case in cases:
        best = best_passages(case.passages, SHOWN)
        places.append([case.holds[case.passages.index(passage)] for passage in best])
    first, three = np.mean([each[0] for each in places]), np.mean([any(each) for each in places])
    return f"n = {len(cases)}, first {first:.1%}, first {SHOWN} {three:.1%}"


def threshold(cases: list[Case]) -> float:
    """Return the score at which right minus wrong answers, by the offline judge, is largest."""
    judge = OfflineJudge()
    best = sorted(cases, key=lambda case: -case.passages[0].score)
    answers = [(case.question, case.passages[0].sentence) for case in best]
    points = [1 if judge.decide(*each).correct else -1 for each in answers]
    last = int(np.argmax(np.cumsum(points)))
    return (best[last].passages[0].score + best[last + 1].passages[0].score) / 2


def main(db: str, source: str) -> None:
    """Print the weights that fit the golden set `source`, and the threshold."""
    with InboxFile(Path(db)) as file:
        splits = {name: load_questions(source, name) for name in ("train", "validation")}
        cases = {name: read_cases(file, questions) for name, questions in splits.items()}
    answerable = [each for each in cases["train"] if each.question.answerable]
    weights = fit(answerable)
    names = [*cases["train"][0].passages[0].features]
    for name in ("bulk", "person"):  # chosen by hand
        weights[names.index(name)] = WEIGHTS[name]
    for name, weight in sorted(zip(names, weights, strict=True), key=lambda each: -each[1]):
        print(f"{name} = {weight:.2f}")
    for name, read in cases.items():
        ordered = rerank([each for each in read if each.question.answerable], weights)
        print(f"# {name}: {hit_rates(ordered)}")
    print(f"abstain_below = {threshold(rerank(cases['validation'], weights)):.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
