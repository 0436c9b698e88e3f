"""Measures how often the 95 % interval of an accuracy holds the truth: `python -m bench.coverage`.

The truth is the accuracy in all inboxes, or, where `Sample` says that a figure is about its own
inboxes alone, the accuracy in these.
"""

import sys
from collections.abc import Sequence
from itertools import cycle, islice
from typing import NamedTuple

import numpy as np

from evals.statistics import Sample

INBOXES, ACCURACIES, CORRELATIONS = (2, 4, 8, 10, 20), (0.5, 0.7, 0.9, 0.97), (0.02, 0.1, 0.2, 0.3)
# Questions of each inbox, in turn: 20 on average.
SIZES = {"equal": (20,), "unequal": (5, 45, 10, 20)}


class Drawn(NamedTuple):
    """Episodes, which of them are right, and the accuracy of their model in these inboxes."""

    sample: Sample
    hits: list[bool]
    here: float


def draw(
    random: np.random.Generator, sizes: Sequence[int], accuracy: float, correlation: float
) -> Drawn:
    """Draw answers: an inbox's rate is beta distributed with this correlation within inboxes."""
    spread = (1 - correlation) / correlation
    rates = random.beta(accuracy * spread, (1 - accuracy) * spread, len(sizes))
    places = np.repeat(np.arange(len(sizes)), sizes)
    hits = random.random(len(places)) < rates[places]
    sample = Sample([f"i{each}" for each in places], [str(each) for each in range(len(places))])
    return Drawn(sample, hits.tolist(), float(rates[places].mean()))


def coverage(sizes: Sequence[int], accuracy: float, correlation: float, runs: int) -> float:
    """Return the share of `runs` whose interval holds the truth."""
    random, inside = np.random.default_rng(len(sizes)), 0
    for _ in range(runs):
        sample, hits, here = draw(random, sizes, accuracy, correlation)
        share = sample.share(hits)
        truth = accuracy if sample.scope is None else here
        inside += (share["low"] or 0.0) <= truth <= (share["high"] or 0.0)
    return inside / runs


def main(runs: int) -> None:
    """Print the table of docs/evaluation.md."""
    print("| inboxes | correlation |", *(f"{each:.0%} |" for each in ACCURACIES))
    print("|---|---|" + "---|" * len(ACCURACIES))
    for inboxes in INBOXES:
        for correlation in CORRELATIONS:
            cells = []
            for accuracy in ACCURACIES:
                shapes = (list(islice(cycle(size), inboxes)) for size in SIZES.values())
                cells.append([coverage(each, accuracy, correlation, runs) for each in shapes])
            shown = (" / ".join(f"{100 * each:.1f}" for each in cell) for cell in cells)
            print(f"| {inboxes} | {correlation} | {' | '.join(shown)} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
