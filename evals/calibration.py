"""Where the offline policy's numbers come from: its sentence weights and its threshold.

    for seed in 1 2 3; do art-e ingest synthetic:5000,seed=$seed --db world$seed.duckdb; done
    python -m evals.calibration world1.duckdb world2.duckdb world3.duckdb

The weights are fitted on the worlds' training questions (a softmax over the
sentences read; the right ones, by the offline judge and of a gold mail, should
win). The threshold is the score from which the best sentence is more likely right
than not, by a logistic regression on the validation questions: below it, answering
would cost more than abstaining does. It prints both, to be put into `art_e/models/fit.py` and
`offline.py`. Results are reported on the test questions of the default seed,
whose world has no part in this.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from art_e.agent import run_episode
from art_e.episode import Episode
from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.models.fit import WEIGHTS
from art_e.models.offline import OfflinePolicy, all_candidates, is_to_be_counted
from art_e.question import Question, load_questions
from evals.judges.offline import OfflineJudge

# Keeps weights of features that hardly occur near 0.
L2 = 0.01

Matrix = npt.NDArray[np.float64]


class Example(NamedTuple):
    """One question: a row of features and whether it is right for each sentence read."""

    features: Matrix
    right: npt.NDArray[np.bool_]


class Threshold(NamedTuple):
    """The score from which to answer, and what that gives on the questions it is from."""

    score: float
    right: int
    wrong: int


def examples(inbox_file: InboxFile, questions: Sequence[Question]) -> list[Example]:
    """Read for every question what the policy reads, and judge every sentence of it."""
    judge = OfflineJudge()
    policy = OfflinePolicy(abstain_below=float("inf"))
    found = []
    for question in questions:
        inbox = inbox_file.open_inbox(question.inbox_address, question.query_date)
        episode = Episode(inbox, question)
        trajectory = asyncio.run(run_episode(episode, policy, "calibration"))
        if is_to_be_counted(trajectory.messages):
            continue  # not answered with a sentence
        gold = {inbox.canonical_id(each) for each in question.message_ids}
        sentences = all_candidates(trajectory.messages)
        right = [
            question.answerable is True
            and trajectory.handles[each.handle] in gold
            and judge.decide(question, each.text).correct is True
            for each in sentences
        ]
        if sentences:
            rows = [[each.features[name] for name in WEIGHTS] for each in sentences]
            found.append(Example(np.asarray(rows), np.asarray(right, dtype=np.bool_)))
    return found


def fit_weights(found: Sequence[Example]) -> Matrix:
    """The weights, in the order of `WEIGHTS`, under which right sentences win most likely."""
    useful = [each for each in found if each.right.any() and not each.right.all()]
    if not useful:
        raise UserError("no training question has both right and wrong sentences to learn from")

    def loss(weights: Matrix) -> tuple[float, Matrix]:
        total, gradient = L2 * float(weights @ weights), 2 * L2 * weights
        for each in useful:
            scores = each.features @ weights
            share = np.exp(scores - scores.max())
            share /= share.sum()
            won = float(share[each.right].sum())
            total -= float(np.log(won)) / len(useful)
            pull = share * (1 - each.right / won)
            gradient = gradient + each.features.T @ pull / len(useful)
        return total, gradient

    fitted: Matrix = minimize(loss, np.zeros(len(WEIGHTS)), jac=True, method="L-BFGS-B").x
    return fitted


def choose_threshold(found: Sequence[Example], weights: Matrix) -> Threshold:
    """The score at which the best sentence is as likely right as wrong (Platt scaling).

    Raises `UserError` where the questions can't tell.
    """
    firsts = [int(np.argmax(each.features @ weights)) for each in found]
    best = np.asarray(
        [each.features[first] @ weights for each, first in zip(found, firsts, strict=True)]
    )
    right = np.asarray([each.right[first] for each, first in zip(found, firsts, strict=True)])
    if right.all() or not right.any():
        raise UserError(
            "the best sentences are not right for some validation questions and wrong for"
            " others: more worlds are needed"
        )

    def loss(line: Matrix) -> float:
        log_odds = line[0] + line[1] * (best - best.mean())
        return float(np.mean(np.logaddexp(0, log_odds) - right * log_odds))

    intercept, slope = minimize(loss, np.zeros(2), method="Nelder-Mead").x
    if slope <= 0:
        raise UserError("a higher score does not make an answer likelier: more worlds are needed")
    score = float(best.mean() - intercept / slope)
    answered = best >= score
    return Threshold(score, int(right[answered].sum()), int((~right[answered]).sum()))


def main() -> None:
    """Fit, choose, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("worlds", type=Path, nargs="+", metavar="WORLD.duckdb")
    train: list[Example] = []
    validation: list[Example] = []
    for world in parser.parse_args().worlds:
        questions = str(world.with_suffix(".questions.jsonl"))
        with InboxFile(world) as inbox_file:
            train += examples(inbox_file, load_questions(questions, "train"))
            validation += examples(inbox_file, load_questions(questions, "validation"))
    weights = np.round(fit_weights(train), 2)
    threshold = choose_threshold(validation, weights)
    for name, weight in zip(WEIGHTS, weights, strict=True):
        sys.stdout.write(f'    "{name}": {weight},\n')
    sys.stdout.write(
        f"ABSTAIN_BELOW = {threshold.score:.2f}: {threshold.right} right, {threshold.wrong} wrong"
        f" of {len(validation)} validation questions\n"
    )


if __name__ == "__main__":
    try:
        main()
    except UserError as problem:
        sys.stderr.write(f"Error: {problem}\n")
        sys.exit(2)
