"""95 % intervals of shares, means, percentiles and kappa, over episodes that are not independent.

Questions about one inbox are alike, and so are repeats of one question. From an effective number
of four inboxes on, the figures are about inboxes in general, and the unit is the inbox. With fewer
they are about these inboxes alone, and the unit is the question, or without repeats the episode.

A share over clusters is that of all episodes, and so is what its interval is about, however unequal
the clusters: Jeffreys' interval of an effective number of episodes (Korn and Graubard, Survey
Methodology 24, 1998; Franco et al., J Survey Statistics and Methodology 7, 2019), averaged over the
posterior of the correlation within clusters. docs/journal has the simulation. Without
clusters it is Wilson's. Means have t intervals: CR2's variance with the degrees of freedom of Bell
and McCaffrey (Survey Methodology 28, 2002)."""

import math
from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaln, expit, ndtri, stdtr, stdtrit

CONFIDENCE = 0.95
_QUANTILE = (1 + CONFIDENCE) / 2
NORMAL = float(ndtri(_QUANTILE))  # 1.96
FEW = 4  # below this effective number, the inboxes say nothing of others
# The grid of a beta-binomial: its mean, even on the scale of the logit; and the correlations within
# a cluster, with the prior weight of each: none weighs three, or few inboxes would always seem to
# differ. Repeats of a question are more alike than questions.
_MEANS = expit(np.linspace(-9, 9, 301))
_PRIORS = {
    "inboxes": {1e-5: 3} | dict.fromkeys((0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7), 1),
    "questions": dict.fromkeys((0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.99), 1),
    "": {1e-5: 1},
}

Floats = NDArray[np.float64]


class Estimate(TypedDict):
    """A figure and its 95 % interval over `n` episodes, by `method`. All but `n` are None without
    data; the bounds and the method are None with too little data. If some episodes are `unjudged`,
    the share is not a value but a `range`: from all of these wrong to all of them right. The
    interval then reaches from that of the least to that of the most."""

    value: float | None
    low: float | None
    high: float | None
    n: int
    method: str | None
    range: NotRequired[list[float]]
    unjudged: NotRequired[int]


def bare(value: float | None, n: int = 0) -> Estimate:
    """An estimate without an interval."""
    return Estimate(value=value, low=None, high=None, n=n, method=None)


UNKNOWN = bare(None)


class Sample:
    """Episodes by the inbox and the question of each."""

    def __init__(self, inboxes: Sequence[str], questions: Sequence[str]) -> None:
        self.n = len(inboxes)
        named, inbox, sizes = np.unique(
            np.asarray(inboxes, dtype=np.str_), return_inverse=True, return_counts=True
        )
        asked, question = np.unique(np.asarray(questions, dtype=np.str_), return_inverse=True)
        self.inboxes = len(named)
        # The number of inboxes of equal size that say as much (Kish, Survey Sampling, 1965).
        effective = self.n**2 / np.sum(sizes**2, dtype=float) if self.n else 0.0
        self.is_general = bool(effective >= FEW and len(named) < self.n)
        if self.is_general:
            self._unit, self._cluster, self._clusters = "inboxes", inbox, len(named)
        elif len(asked) < self.n:
            self._unit, self._cluster, self._clusters = "questions", question, len(asked)
        else:
            self._unit, self._cluster, self._clusters = "", np.arange(self.n), self.n

    def share(self, hits: Sequence[bool | None] | Floats) -> Estimate:
        """The share of episodes whose `hits` is true; a range if some are None or NaN."""
        if not self.n:
            return UNKNOWN
        counted = np.asarray(hits, dtype=np.float64)
        if unjudged := int(np.isnan(counted).sum()):
            least, most = (np.nan_to_num(counted, nan=end) for end in (0.0, 1.0))
            return self._range(self.share(least), self.share(most), unjudged)
        share = float(counted.mean())
        if not self._unit:
            return self._estimate(share, *_wilson(share, self.n), "wilson")
        low, high = self._share_bounds(counted)
        return self._estimate(share, low, high, f"Jeffreys over {self._unit}")

    def mean(self, values: Sequence[float] | Floats) -> Estimate:
        return self.ratio(values, np.ones(self.n))

    def ratio(self, values: Sequence[float] | Floats, of: Sequence[float] | Floats) -> Estimate:
        """The sum of `values` divided by the sum of `of`, of which none is negative."""
        above, below = (np.asarray(each, dtype=np.float64) for each in (values, of))
        if not below.sum():
            return UNKNOWN
        ratio = float(above.sum() / below.sum())
        error = self._error(above, below)
        # What is never negative has no negative mean.
        least = 0.0 if above.min() >= 0 else -math.inf
        return self._estimate(ratio, max(least, ratio - error), ratio + error)

    def difference(self, gains: Floats, most: Floats | None = None) -> Estimate:
        """The mean gain of pairs, each from -1 to 1: the difference of two shares. With `most`,
        where unjudged pairs may gain more than in `gains`, it is a range. It is at least as wide as
        that of independent pairs, half a pair added to each cell (Agresti and Min, Statistics in
        Medicine 24, 2005): pairs that are all alike don't make it sure."""
        if most is not None and (unjudged := int((gains != most).sum())):
            return self._range(self.difference(gains), self.difference(most), unjudged)
        plus, minus = (float(part.sum()) + 0.5 for part in (gains.clip(0), -gains.clip(None, 0)))
        pairs = self.n + 2
        center = (plus - minus) / pairs
        error = NORMAL * math.sqrt((plus + minus) / pairs - center**2) / pairs**0.5
        return self._widened(self.mean(gains), center - error, center + error, least=-1.0)

    def reduction(self, before: Floats, after: Floats) -> Estimate:
        """By what part errors, 1 in each pair with one, are fewer than before; at most all of them.
        At least as wide as that of independent pairs (Bonett and Price, Statistics in Medicine 25,
        2006): inboxes that are all alike don't make it sure."""
        pairs = float(np.maximum(before, after).sum())
        old, new = (float(errors.sum()) for errors in (before, after))
        if not old:
            return UNKNOWN
        apart = float(np.abs(before - after).sum())
        spread = math.sqrt((apart + 2) / ((old + 1) * (new + 1)))
        spreads = (math.sqrt((pairs + 1 - part) / (pairs + 2) / (part + 1)) for part in (old, new))
        quantile = NORMAL * spread / sum(spreads)
        of_old, of_new = (_wilson(part / pairs, pairs, quantile) for part in (old, new))
        low, high = 1 - of_new[1] / of_old[0], 1 - of_new[0] / of_old[1]
        return self._widened(self.ratio(before - after, before), low, high, least=-math.inf)

    @property
    def scope(self) -> str | None:
        """What the intervals are about, in words, if not about inboxes in general."""
        if self.is_general or not self.n:
            return None
        inboxes = f"these {self.inboxes} inboxes" if self.inboxes > 1 else "this one inbox"
        return f"about {inboxes}; nothing is known of others"

    def percentile(self, values: Sequence[float], percent: float) -> Estimate:
        """The percentile of a value an episode, interpolated between neighbours. Its bounds are the
        percentiles that bound the share of episodes below it (Woodruff, JASA 47, 1952)."""
        if not self.n:
            return UNKNOWN
        listed = np.asarray(values, dtype=np.float64)
        value = float(np.percentile(listed, percent))
        bounds = self._share_bounds((listed <= value).astype(np.float64))
        return self._estimate(value, *np.quantile(listed, bounds).tolist())

    def kappa(self, first: Sequence[bool], second: Sequence[bool]) -> Estimate:
        """Cohen's kappa of two judges, bounded by a jackknife; unknown if both give one verdict."""
        one, other = (np.asarray(each, dtype=np.float64) for each in (first, second))
        cells = np.stack([np.ones(self.n), one, other, one * other + (1 - one) * (1 - other)])
        whole = cells.sum(axis=1, keepdims=True)
        [value] = _kappa(whole)
        if not self.n or np.isnan(value):
            return bare(None, self.n)
        left_out = _kappa(whole - np.stack([self._summed(cell) for cell in cells]))
        left_out = left_out[~np.isnan(left_out)]
        spread = float(np.sum((left_out - left_out.mean()) ** 2)) if len(left_out) > 1 else math.nan
        error = stdtrit(max(1, self._clusters - 1), _QUANTILE) * math.sqrt(
            spread * (self._clusters - 1) / self._clusters
        )
        return self._estimate(float(value), max(-1.0, value - error), min(1.0, value + error))

    def p_of_no_mean(self, values: Floats) -> float:
        """The two-sided p of the values' mean being 0, by the t of their interval."""
        error = self._error(values, np.ones(self.n), quantile=None)
        mean = abs(float(values.mean()))
        if math.isnan(error) or not mean:
            return 1.0
        return float(2 * stdtr(self._freedom(np.ones(self.n)), -mean / error)) if error else 0.0

    def _share_bounds(self, hits: Floats) -> tuple[float, float]:
        """The bounds of a share over clusters."""
        sizes = self._summed(np.ones(self.n))
        # Clusters of the same counts have the same likelihood.
        counts = np.stack([self._summed(hits), sizes])
        (right, size), times = np.unique(counts, axis=1, return_counts=True)
        prior = _PRIORS[self._unit]
        correlations, weights = (np.array([*each])[:, None] for each in (prior, prior.values()))
        # Jeffreys' prior of the beta-binomial's mean, on the scale of the logit.
        likelihood = np.log(weights * np.sqrt(_MEANS * (1 - _MEANS)))
        alpha, beta = (part * (1 / correlations - 1) for part in (_MEANS, 1 - _MEANS))
        for hit, missed, alike in zip(right, size - right, times, strict=True):
            likelihood += alike * (betaln(hit + alpha, missed + beta) - betaln(alpha, beta))
        posterior = np.exp(likelihood - likelihood.max()).sum(axis=1)
        # Kish's design effect, and the degree of freedom that the share takes from the clusters.
        effect = 1 + correlations * (np.sum(sizes**2) / self.n - 1)
        rate, n = hits.mean(), self.n / effect * (1 - 1 / self._clusters)
        below = posterior @ betainc(n * rate + 0.5, n * (1 - rate) + 0.5, _MEANS) / posterior.sum()
        low, high = np.interp((1 - _QUANTILE, _QUANTILE), below, _MEANS).tolist()
        # A share that was never seen to fail may have no failures.
        return (low if right.any() else 0.0), (high if (size - right).any() else 1.0)

    def _error(self, above: Floats, below: Floats, quantile: float | None = _QUANTILE) -> float:
        """Half the ratio's interval, or its standard error (no quantile); NaN of one cluster."""
        whole, parts = below.sum(), self._summed(below)
        if self._clusters < 2 or parts.max() >= whole:
            return math.nan
        residuals = self._summed(above) - above.sum() / whole * parts
        error = math.sqrt(float(np.sum(residuals**2 / (1 - parts / whole)))) / whole
        return error if quantile is None else float(stdtrit(self._freedom(below), quantile) * error)

    def _freedom(self, below: Floats) -> float:
        """Bell and McCaffrey's degrees of freedom of a mean over clusters of these weights."""
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
        method = method or (f"t over {self._unit}" if self._unit else "t")
        return Estimate(value=value, low=low, high=high, n=self.n, method=method)

    def _range(self, low: Estimate, high: Estimate, unjudged: int) -> Estimate:
        """From the estimate with the unjudged all against to that with all in favour."""
        ends = {"range": [low["value"], high["value"]], "high": high["high"]}
        return cast(Estimate, {**low, "value": None, **ends, "unjudged": unjudged})

    def _widened(self, estimate: Estimate, low: float, high: float, least: float) -> Estimate:
        """The estimate with an interval that holds these bounds too, from `least` to 1."""
        value, *ends = (estimate[name] for name in ("value", "low", "high"))
        if value is None or ends[0] is None or ends[1] is None:
            return estimate
        return self._estimate(value, max(least, min(ends[0], low)), min(1.0, max(ends[1], high)))


def _wilson(share: float, n: float, quantile: float = NORMAL) -> tuple[float, float]:
    """Wilson's bounds of a share of `n` (JASA 22, 1927)."""
    center, square = share + quantile**2 / (2 * n), quantile**2 / n
    error = quantile * math.sqrt(share * (1 - share) / n + square / (4 * n))
    return max(0.0, (center - error) / (1 + square)), min(1.0, (center + error) / (1 + square))


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
