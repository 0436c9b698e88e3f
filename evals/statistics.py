"""95 % intervals of shares, means, percentiles and kappa, over episodes that are not independent.

Questions about one inbox are alike, and so are repeats of one question. So the unit is the inbox,
with one inbox the question, and without repeats the episode. Intervals are t intervals over these
clusters: CR2's variance with the degrees of freedom of Bell and McCaffrey (Survey Methodology 28,
2002), those of shares on the scale of the logit. They hold the truth of four inboxes as often as
that of thirty (docs/evaluation.md has the simulation; a bootstrap over few inboxes does not).
"""

import math
from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit
from scipy.stats import binomtest, t

CONFIDENCE = 0.95
_QUANTILE = (1 + CONFIDENCE) / 2
# With fewer clusters the interval of a share is at least as wide as that of independent questions.
FEW = 4

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


def bare(value: float | None, n: int = 0) -> Estimate:
    """An estimate without an interval."""
    return Estimate(value=value, low=None, high=None, n=n, method=None)


UNKNOWN = bare(None)


class Sample:
    """Episodes by the inbox and the question of each."""

    def __init__(self, inboxes: Sequence[str], questions: Sequence[str]) -> None:
        self.n = len(inboxes)
        named, inbox = np.unique(np.asarray(inboxes, dtype=np.str_), return_inverse=True)
        asked, question = np.unique(np.asarray(questions, dtype=np.str_), return_inverse=True)
        self._distinct = len(asked)
        self._method, self._cluster, self._clusters = "t", np.arange(self.n), self.n
        if 1 < len(named) < self.n:
            self._method, self._cluster, self._clusters = "t over inboxes", inbox, len(named)
        elif self._distinct < self.n:
            self._method, self._cluster, self._clusters = "t over questions", question, len(asked)

    def share(self, hits: Sequence[bool]) -> Estimate:
        """The share of episodes whose `hits` is true."""
        if not self.n:
            return UNKNOWN
        counted = np.asarray(hits, dtype=np.float64)
        share, units = float(counted.mean()), self._distinct
        wilson = binomtest(round(share * units), units).proportion_ci(CONFIDENCE, "wilson")
        independent = float(wilson.low), float(wilson.high)
        if self._method == "t" or share in (0, 1):
            return self._estimate(share, *independent, "wilson")
        low, high = self._share_bounds(counted)
        # By luck two or three clusters are alike, and then seem to be sure.
        if self._clusters < FEW or low == high:
            low, high = min(low, independent[0]), max(high, independent[1])
        return self._estimate(share, low, high)

    def mean(self, values: Sequence[float]) -> Estimate:
        return self.ratio(values, np.ones(self.n))

    def ratio(self, values: Sequence[float], of: Sequence[float] | Floats) -> Estimate:
        """The sum of `values` divided by the sum of `of`, of which none is negative."""
        above, below = (np.asarray(each, dtype=np.float64) for each in (values, of))
        if not below.sum():
            return UNKNOWN
        ratio = float(above.sum() / below.sum())
        error = self._error(above, below)
        # What is never negative has no negative mean.
        least = 0.0 if above.min() >= 0 else -math.inf
        return self._estimate(ratio, max(least, ratio - error), ratio + error)

    def percentile(self, values: Sequence[float], percent: float) -> Estimate:
        """The percentile of a value an episode, interpolated between neighbours.

        Its bounds are the percentiles that bound the share of episodes below it (Woodruff, JASA 47,
        1952).
        """
        if not self.n:
            return UNKNOWN
        listed = np.asarray(values, dtype=np.float64)
        value = float(np.percentile(listed, percent))
        below = (listed <= value).astype(np.float64)
        bounds = self._share_bounds(below, percent / 100)
        if not math.isnan(bounds[0]):
            bounds = np.quantile(listed, bounds).tolist()
        return self._estimate(value, *bounds)

    def kappa(self, first: Sequence[bool], second: Sequence[bool]) -> Estimate:
        """Cohen's kappa of two judges; unknown if both always give the same verdict.

        The bounds are those of a jackknife over clusters.
        """
        one, other = (np.asarray(each, dtype=np.float64) for each in (first, second))
        cells = np.stack([np.ones(self.n), one, other, one * other + (1 - one) * (1 - other)])
        whole = cells.sum(axis=1, keepdims=True)
        [value] = _kappa(whole)
        if not self.n or np.isnan(value):
            return bare(None, self.n)
        left_out = _kappa(whole - np.stack([self._summed(cell) for cell in cells]))
        left_out = left_out[~np.isnan(left_out)]
        spread = float(np.sum((left_out - left_out.mean()) ** 2)) if len(left_out) > 1 else math.nan
        error = t.ppf(_QUANTILE, max(1, self._clusters - 1)) * math.sqrt(
            spread * (self._clusters - 1) / self._clusters
        )
        return self._estimate(float(value), max(-1.0, value - error), min(1.0, value + error))

    def p_of_no_mean(self, values: Sequence[float]) -> float:
        """The two-sided p of the values' mean being 0, by the t of their interval."""
        listed = np.asarray(values, dtype=np.float64)
        error = self._error(listed, np.ones(self.n), quantile=None)
        mean = abs(float(listed.mean()))
        if math.isnan(error) or not mean:
            return 1.0
        return float(2 * t.sf(mean / error, self._freedom(np.ones(self.n)))) if error else 0.0

    def _share_bounds(self, hits: Floats, share: float | None = None) -> tuple[float, float]:
        """The bounds of a share between 0 and 1, on the scale of the logit."""
        at = float(hits.mean()) if share is None else share
        error = self._error(hits, np.ones(self.n)) / (at * (1 - at))
        return float(expit(logit(at) - error)), float(expit(logit(at) + error))

    def _error(self, above: Floats, below: Floats, quantile: float | None = _QUANTILE) -> float:
        """The half width of the ratio's interval, or without a quantile its standard error; NaN if
        there is one cluster."""
        whole, parts = below.sum(), self._summed(below)
        if self._clusters < 2 or parts.max() >= whole:
            return math.nan
        residuals = self._summed(above) - above.sum() / whole * parts
        error = math.sqrt(float(np.sum(residuals**2 / (1 - parts / whole)))) / whole
        return error if quantile is None else float(t.ppf(quantile, self._freedom(below)) * error)

    def _freedom(self, below: Floats) -> float:
        """Bell and McCaffrey's degrees of freedom of a mean over clusters of these weights; of
        equal clusters one less than there are."""
        whole, parts = below.sum(), self._summed(below)
        others = parts**2 / (whole - parts)
        return float(whole**2 / (np.sum(parts**2) + others.sum() ** 2 - np.sum(others**2)))

    def _summed(self, values: Floats) -> Floats:
        summed: Floats = np.zeros(self._clusters)
        np.add.at(summed, self._cluster, values)
        return summed

    def _estimate(
        self, value: float, low: float, high: float, method: str | None = None
    ) -> Estimate:
        if math.isnan(low) or math.isnan(high):
            return bare(value, self.n)
        return Estimate(value=value, low=low, high=high, n=self.n, method=method or self._method)


def _kappa(cells: NDArray[Any]) -> Floats:
    """Kappa of each column of counts: all, yes of the first, yes of the second, agreed."""
    n, one, other, agreed = np.asarray(cells, dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        chance = (one * other + (n - one) * (n - other)) / n**2
        kappa: Floats = np.where(chance < 1, (agreed / n - chance) / (1 - chance), np.nan)
    return kappa


def holm(ps: Sequence[float]) -> list[float]:
    """The p of each of several comparisons, corrected for their number by Holm's step-down."""
    corrected, least = list(ps), 0.0
    for rank, place in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        least = max(least, min(1.0, (len(ps) - rank) * ps[place]))
        corrected[place] = least
    return corrected
