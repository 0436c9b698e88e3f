"""Measure how often the 95 % interval of an accuracy covers the truth: `python -m bench.coverage`.

The truth is the accuracy over all possible inboxes, or over the inboxes of the sample if `Sample`
limits its figures to these. Several answers to a question sample that question's own accuracy.
"""

import sys
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from typing import NamedTuple

import numpy as np

from evals.statistics import Sample

INBOXES, QUESTIONS = (2, 4, 8, 10, 20), (20, 40, 150)
ACCURACIES = (0.5, 0.7, 0.9, 0.97)
CORRELATIONS, OF_ANSWERS = (0.02, 0.1, 0.2, 0.3), (0.1, 0.5, 0.8)
# Sizes, equal and unequal, repeated in turn: of inboxes (20 on average), and of questions.
OF_INBOXES, OF_QUESTIONS = ((20,), (5, 45, 10, 20)), ((3,), (1, 2, 4, 9))


class World(NamedTuple):
    """Clusters of answers by their sizes: the accuracy, and the correlation within a cluster.

    Clusters above the mean size have an accuracy that is lower by `harder` times
    min(accuracy, 1 - accuracy), the others one that is higher by as much.
    """

    sizes: Sequence[int]
    accuracy: float
    correlation: float
    harder: float = 0.0


class Draw(NamedTuple):
    """A sample of episodes, which of them are right, and the true accuracy."""

    sample: Sample
    hits: list[bool]
    truth: float


class _Answers(NamedTuple):
    """The cluster, the expected rate, the cluster's actual rate and the outcome of each answer."""

    places: np.ndarray
    means: np.ndarray
    rates: np.ndarray
    hits: np.ndarray


def _answers(random: np.random.Generator, world: World) -> _Answers:
    """Draw the clusters' rates from beta distributions, and the answers by these rates.

    Beta(m s, (1 - m) s) with s = (1 - rho) / rho has the mean m and the intraclass correlation rho.
    """
    sizes, accuracy, correlation, harder = world
    shift = harder * min(accuracy, 1 - accuracy)
    means = accuracy + np.where(np.asarray(sizes) > np.mean(sizes), -shift, shift) * (harder > 0)
    spread = (1 - correlation) / correlation
    rates = random.beta(means * spread, (1 - means) * spread)
    places = np.repeat(np.arange(len(sizes)), sizes)
    hits = random.random(len(places)) < rates[places]
    return _Answers(places, means[places], rates[places], hits)


def draw_inboxes(random: np.random.Generator, world: World) -> Draw:
    """Draw one answer to each question of the inboxes."""
    places, means, rates, hits = _answers(random, world)
    sample = Sample([f"i{each}" for each in places], [str(each) for each in range(len(places))])
    return Draw(sample, hits.tolist(), float((means if sample.scope is None else rates).mean()))


def draw_answers(random: np.random.Generator, world: World) -> Draw:
    """Draw several answers to each question of one inbox."""
    places, means, _, hits = _answers(random, world)
    sample = Sample(["i"] * len(places), [str(each) for each in places])
    return Draw(sample, hits.tolist(), float(means.mean()))


Drawing = Callable[[np.random.Generator, World], Draw]


def coverage(
    sizes: Sequence[int], accuracy: float, correlation: float, runs: int, *,
    harder: float = 0.0, draw: Drawing = draw_inboxes,
) -> float:  # fmt: skip
    """Return the share of `runs` whose interval covers the truth."""
    random, inside = np.random.default_rng(len(sizes)), 0
    for _ in range(runs):
        sample, hits, truth = draw(random, World(sizes, accuracy, correlation, harder))
        share = sample.share(hits)
        inside += (share["low"] or 0.0) <= truth <= (share["high"] or 0.0)
    return inside / runs


def main(runs: int, *counts: int) -> None:
    """Print docs/journal/2026-11-28-intervals.md's tables, or their rows of these `counts`."""
    tables: tuple[
        tuple[str, Sequence[int], Sequence[float], tuple[tuple[int, ...], ...], Drawing], ...
    ]
    tables = (
        ("inboxes", INBOXES, CORRELATIONS, OF_INBOXES, draw_inboxes),
        ("questions", QUESTIONS, OF_ANSWERS, OF_QUESTIONS, draw_answers),
    )
    for unit, numbers, correlations, (equal, unequal), draw in tables:
        print(f"| {unit} | correlation |", *(f"{each:.0%} |" for each in ACCURACIES))
        print("|---|---|" + "---|" * len(ACCURACIES))
        shapes = ((equal, 0.0), (unequal, 0.0), (unequal, 0.5))
        for number in counts or numbers:
            for correlation in correlations if number in numbers else ():
                cells = []
                for accuracy in ACCURACIES:
                    shares = (
                        coverage(
                            list(islice(cycle(sizes), number)), accuracy, correlation, runs,
                            harder=harder, draw=draw,
                        )
                        for sizes, harder in shapes
                    )  # fmt: skip
                    cells.append(" / ".join(f"{100 * each:.1f}" for each in shares))
                print(f"| {number} | {correlation} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:] or ["500"]))
