"""95 % intervals of shares, means, percentiles and kappa, over episodes that are not independent.

With at least ten inboxes the bootstrap draws whole inboxes, with repeats whole questions, else
episodes. Shares of independent episodes have Wilson's interval.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Self, TypedDict

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

CONFIDENCE = 0.95
RESAMPLES = 2_000
# Fewer clusters say too little about how clusters differ.
MIN_INBOXES = 10
_SEED = 20_010_515
_BOUNDS = (100 * (1 - CONFIDENCE) / 2, 100 * (1 + CONFIDENCE) / 2)

Floats = NDArray[np.float64]


class Estimate(TypedDict):
    """A figure and its 95 % interval over `n` episodes, by `method`.

    All but `n` are None without data; the bounds and the method are None with too little data.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int
    method: str | None


UNKNOWN = Estimate(value=None, low=None, high=None, n=0, method=None)


class Sample:
    """Episodes by the inbox and the question of each."""

    def __init__(self, inboxes: Sequence[str], questions: Sequence[str]) -> None:
        self._inboxes = np.asarray(inboxes, dtype=np.str_)
        self._questions = np.asarray(questions, dtype=np.str_)
        self.n = len(self._inboxes)
        self._distinct = len(np.unique(self._questions))
        named, inbox = np.unique(self._inboxes, return_inverse=True)
        if len(named) >= MIN_INBOXES:
            self._by, self._cluster, self._clusters = " clustered by inbox", inbox, len(named)
        elif self._distinct < self.n:
            _, question = np.unique(self._questions, return_inverse=True)
            self._by, self._cluster = " clustered by question", question
            self._clusters = self._distinct
        else:
            self._by, self._cluster, self._clusters = "", np.arange(self.n), self.n

    def of(self, chosen: Sequence[bool] | NDArray[np.bool_]) -> Self:
        """The sample of the chosen episodes; it may be clustered in another way."""
        kept = np.asarray(chosen, dtype=np.bool_)
        return type(self)(self._inboxes[kept].tolist(), self._questions[kept].tolist())

    def share(self, hits: Sequence[bool]) -> Estimate:
        """The share of episodes whose `hits` is true."""
        if not self.n:
            return UNKNOWN
        count = sum(map(bool, hits))
        if not self._by or count in (0, self.n):
            units = self._distinct
            interval = binomtest(round(count * units / self.n), units).proportion_ci(
                CONFIDENCE, method="wilson"
            )
            low, high = float(interval.low), float(interval.high)
            return _estimate(count / self.n, low, high, self.n, "wilson")
        return self.mean([float(hit) for hit in hits])

    def mean(self, values: Sequence[float]) -> Estimate:
        """The mean of one value an episode."""
        return self.ratio(values, np.ones(self.n))

    def ratio(self, values: Sequence[float], of: Sequence[float] | Floats) -> Estimate:
        """The sum of `values` divided by the sum of `of`, which must be positive."""
        if not self.n:
            return UNKNOWN
        above, below = (np.asarray(each, dtype=np.float64) for each in (values, of))
        weights = _weights(self._clusters)
        drawn = (weights @ self._summed(above)) / (weights @ self._summed(below))
        return self._bounded(float(above.sum() / below.sum()), drawn)

    def percentile(self, values: Sequence[float], percent: float) -> Estimate:
        """The percentile of a value an episode, interpolated between neighbours."""
        if not self.n:
            return UNKNOWN
        listed = np.asarray(values, dtype=np.float64)
        order = np.argsort(listed, kind="stable")
        # How often each value, in rising order, was drawn up to there.
        drawn = np.cumsum(_weights(self._clusters)[:, self._cluster[order]], axis=1)
        needed = np.maximum(drawn[:, -1:] * percent / 100, 1)
        places = np.argmax(drawn >= needed, axis=1)
        return self._bounded(float(np.percentile(listed, percent)), listed[order][places])

    def kappa(self, first: Sequence[bool], second: Sequence[bool]) -> Estimate:
        """Cohen's kappa of two judges; unknown if both always give the same verdict."""
        one, other = (np.asarray(each, dtype=np.float64) for each in (first, second))
        cells = np.stack([np.ones(self.n), one, other, one * other + (1 - one) * (1 - other)])
        [value] = _kappa(cells.sum(axis=1, keepdims=True))
        if not self.n or np.isnan(value):
            return Estimate(value=None, low=None, high=None, n=self.n, method=None)
        summed = np.stack([self._summed(cell) for cell in cells])
        resampled = _kappa(summed @ _weights(self._clusters).T)
        return self._bounded(float(value), resampled[~np.isnan(resampled)])

    def _summed(self, values: Floats) -> Floats:
        summed: Floats = np.zeros(self._clusters)
        np.add.at(summed, self._cluster, values)
        return summed

    def _bounded(self, value: float, resampled: Floats) -> Estimate:
        if self._clusters < 2:
            return _estimate(value, None, None, self.n, None)
        low, high = np.percentile(resampled, _BOUNDS)
        return _estimate(value, float(low), float(high), self.n, f"bootstrap{self._by}")


def _estimate(
    value: float, low: float | None, high: float | None, n: int, method: str | None
) -> Estimate:
    return Estimate(value=value, low=low, high=high, n=n, method=method)


@lru_cache(maxsize=4)
def _weights(clusters: int) -> Floats:
    """How often each cluster is drawn, resample by resample."""
    random = np.random.default_rng(_SEED)
    drawn = random.multinomial(clusters, np.full(clusters, 1 / clusters), size=RESAMPLES)
    weights = drawn.astype(np.float64)
    weights.flags.writeable = False
    return weights


def _kappa(cells: NDArray[Any]) -> Floats:
    """Kappa of each column of counts: all, yes of the first, yes of the second, agreed."""
    n, one, other, agreed = np.asarray(cells, dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        chance = (one * other + (n - one) * (n - other)) / n**2
        kappa: Floats = np.where(chance < 1, (agreed / n - chance) / (1 - chance), np.nan)
    return kappa
