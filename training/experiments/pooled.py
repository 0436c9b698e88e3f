"""Figures over questions and seeds: several runs that were asked the same questions.

A figure is a matrix with a row for each run and a column for each question, NaN where it is not
defined (effort when correct, of an answer that is wrong). Its pooled value is the mean of what
is known. Its 95 % interval is a bootstrap that draws runs, and questions within them: all runs
were asked the same questions, so that a question is drawn for all of them alike, and what is
hard for one seed and for the others is no evidence three times over. Where there are many
inboxes whole ones are drawn, as in `evals.statistics`. Knows nothing of what is measured.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from art_e.errors import UserError
from evals.scored import Scored
from evals.statistics import CONFIDENCE, MIN_INBOXES, RESAMPLES, UNKNOWN, Estimate, Floats, Sample

_SEED = 20_010_515
_BOUNDS = (100 * (1 - CONFIDENCE) / 2, 100 * (1 + CONFIDENCE) / 2)


class Measure(NamedTuple):
    """What is measured of an episode: `of` gives its value, None where it is not defined.
    `share` says that it is 0 or 1."""

    name: str
    title: str
    of: Callable[[Scored], float | None]
    share: bool


class Pool:
    """The questions that all runs were asked, and how often each resample draws what."""

    def __init__(self, inboxes: Sequence[str], questions: Sequence[str], runs: int) -> None:
        self._inboxes, self._questions = inboxes, questions
        by_inbox = len(set(inboxes)) >= MIN_INBOXES
        _, place = np.unique(inboxes if by_inbox else questions, return_inverse=True)
        random = np.random.default_rng(_SEED)
        self._of_questions = _drawn(random, int(place.max()) + 1)[:, place]
        self._of_runs = _drawn(random, runs)
        inbox = ", inboxes" if by_inbox else ", questions"
        self._method = f"bootstrap over runs{inbox}"

    def mean(self, values: NDArray[Any], *, share: bool = False) -> Estimate:
        """The pooled mean; a share of which all runs say the same of all has Wilson's interval."""
        known = values[~np.isnan(values)]
        if not len(known):
            return UNKNOWN
        if share and known.min() == known.max():
            # Nothing to resample: as many independent answers as there are questions.
            asked = np.flatnonzero(~np.isnan(values).all(axis=0)).tolist()
            sample = Sample(
                *([of[each] for each in asked] for of in (self._inboxes, self._questions))
            )
            told = sample.share([bool(known[0])] * len(asked))
            return Estimate(**{**told, "n": len(known)})
        return self._bounded(float(known.mean()), self._means(values), len(known))

    def gain(self, before: NDArray[Any], after: NDArray[Any]) -> Estimate:
        """How much larger the pooled mean of `after` is, runs and questions paired."""
        told = [each[~np.isnan(each)] for each in (before, after)]
        if not all(map(len, told)):
            return UNKNOWN
        resampled = self._means(after) - self._means(before)
        value = float(told[1].mean() - told[0].mean())
        return self._bounded(value, resampled, min(map(len, told)))

    def _means(self, values: NDArray[Any]) -> Floats:
        """The pooled mean of each resample; NaN where it drew nothing that is known."""
        known = ~np.isnan(values)
        sums, counts = (
            ((self._of_runs @ part) * self._of_questions).sum(axis=1)
            for part in (np.where(known, values, 0.0), known.astype(np.float64))
        )
        with np.errstate(invalid="ignore"):
            means: Floats = sums / counts
        return means

    def _bounded(self, value: float, resampled: Floats, n: int) -> Estimate:
        low, high = np.nanpercentile(resampled, _BOUNDS)
        return Estimate(value=value, low=float(low), high=float(high), n=n, method=self._method)


class Asked(NamedTuple):
    """Runs that were asked the same questions, each with its episodes in the same order."""

    runs: list[list[Scored]]

    @property
    def pool(self) -> Pool:
        """The resamples of these runs."""
        asked = [each.question for each in self.runs[0]]
        return Pool(
            [each.inbox_address for each in asked], [each.id for each in asked], len(self.runs)
        )

    def matrix(self, measure: Measure) -> Floats:
        """What is measured: a row for each run, a column for each question."""
        rows = [[measure.of(each) for each in run] for run in self.runs]
        return np.asarray([[np.nan if x is None else x for x in row] for row in rows], np.float64)


def asked_alike(runs: Sequence[Sequence[Scored]]) -> Asked:
    """The runs with their episodes in the order of the questions' ids.

    Raises `UserError` where they were not asked the same questions, each once.
    """
    ordered = [sorted(run, key=lambda each: each.question.id) for run in runs]
    ids = [[each.question.id for each in run] for run in ordered]
    if not ids or not ids[0] or any(each != ids[0] for each in ids):
        raise UserError("the runs were not asked the same questions; make them with one recipe")
    if len(set(ids[0])) < len(ids[0]):
        raise UserError("a run was asked a question twice; make it again")
    return Asked(ordered)


def _drawn(random: np.random.Generator, units: int) -> Floats:
    """How often each unit is drawn, resample by resample."""
    drawn = random.multinomial(units, np.full(units, 1 / units), size=RESAMPLES)
    return drawn.astype(np.float64)
