"""How often intervals hold the truth, and how often equal models are told apart, by simulation.

python -m tests.coverage      # the tables of docs/evaluation.md, two minutes on one core
"""

from collections.abc import Sequence

import numpy as np
from scipy.stats import binomtest

from evals.paired import Planned, power
from evals.statistics import Sample

RUNS, QUESTIONS, TRUTH = 2_000, 50, 0.7
INBOXES, CORRELATIONS = (4, 8, 10, 30), (0.02, 0.05, 0.10)


def right_by_inbox(
    random: np.random.Generator, sizes: Sequence[int], truth: float, icc: float
) -> tuple[Sample, list[bool]]:
    """Questions of inboxes of these sizes, and which are right: an inbox's rate is drawn from a
    beta distribution with that intra-inbox correlation."""
    spread = (1 - icc) / icc
    rates = random.beta(truth * spread, (1 - truth) * spread, len(sizes))
    places = np.repeat(np.arange(len(sizes)), sizes)
    hits = random.random(len(places)) < rates[places]
    sample = Sample([f"i{each}" for each in places], [str(each) for each in range(len(places))])
    return sample, hits.tolist()


def coverage(inboxes: int, icc: float) -> tuple[float, float]:
    """The share of runs whose interval holds the truth: of Wilson's, which takes questions as
    independent, and ours."""
    random = np.random.default_rng(inboxes)
    inside = np.zeros(2)
    for _ in range(RUNS):
        sample, hits = right_by_inbox(random, [QUESTIONS] * inboxes, TRUTH, icc)
        naive, ours = (
            binomtest(sum(hits), len(hits)).proportion_ci(0.95, "wilson"),
            sample.share(hits),
        )
        assert ours["low"] is not None and ours["high"] is not None
        bounds = ((naive.low, naive.high), (ours["low"], ours["high"]))
        inside += [low <= TRUTH <= high for low, high in bounds]
    by_question, by_inbox = inside / RUNS
    return float(by_question), float(by_inbox)


def main() -> None:
    """Print the tables as Markdown."""
    print("| inboxes | correlation | Wilson | t over inboxes | equal models told apart |")
    print("|---|---|---|---|---|")
    for inboxes in INBOXES:
        for icc in CORRELATIONS:
            shares = (*coverage(inboxes, icc), power(Planned(0.0, icc=icc), inboxes, QUESTIONS))
            shown = " | ".join(f"{100 * each:.1f} %" for each in shares)
            print(f"| {inboxes} | {icc:.2f} | {shown} |")


if __name__ == "__main__":
    main()
