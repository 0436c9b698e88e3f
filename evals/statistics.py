"""Compute 95 % intervals of shares, means, percentiles and kappa over correlated episodes.

Questions about one inbox are correlated, and so are repeats of one question. With an effective
number of at least four inboxes, intervals are clustered by inbox and generalize to other inboxes.
With fewer, they hold for these inboxes only, and are clustered by question, or treat episodes as
independent if no question is repeated.

A share has Jeffreys' interval at the effective sample size (Korn and Graubard, Survey Methodology
24, 1998; Franco et al., J Survey Statistics and Methodology 7, 2019), averaged over the posterior
of the intraclass correlation; docs/journal has the simulation. Without clusters it has Wilson's
interval. A mean has a t interval, with the CR2 variance and the degrees of freedom of Bell and
McCaffrey (Survey Methodology 28, 2002)."""

import math
from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaln, expit, ndtri, stdtr, stdtrit

CONFIDENCE = 0.95
_QUANTILE = (1 + CONFIDENCE) / 2  # 0.975, two-sided
NORMAL = float(ndtri(_QUANTILE))  # 1.96
FEW = 4  # with a smaller effective number of inboxes, intervals hold for these inboxes only
# The beta-binomial's grid: means, uniform in the logit, and intraclass correlations with their
# prior weights. Zero (1e-5) has weight 3: otherwise a few inboxes would always seem to differ.
# Repeats of one question are more correlated than questions about one inbox.
_MEANS = expit(np.linspace(-9, 9, 301))  # (means,), from 0.0001 to 0.9999
_PRIORS = {
    "inboxes": {1e-5: 3} | dict.fromkeys((0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7), 1),
    "questions": dict.fromkeys((0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.99), 1),
    "": {1e-5: 1},
}

Floats = NDArray[np.float64]


class Estimate(TypedDict):
    """A figure and its 95 % interval over `n` episodes, by `method`. Without data all but `n` are
    None, with too little data the bounds and the method. If some episodes are `unjudged`, `value`
    is None and `range` has two values, with all of these wrong and with all of them right; the
    interval covers the intervals of both."""

    value: float | None
    low: float | None
    high: float | None
    n: int
    method: str | None
    range: NotRequired[list[float]]
    unjudged: NotRequired[int]


def point_estimate(value: float | None, n: int = 0) -> Estimate:
    """Return an estimate without an interval."""
    return Estimate(value=value, low=None, high=None, n=n, method=None)


UNKNOWN = point_estimate(None)


class Sample:
    """Episodes, each with its inbox and its question."""

    def __init__(self, inboxes: Sequence[str], questions: Sequence[str]) -> None:
        self.n = len(inboxes)
        inbox_names, inbox, sizes = np.unique(
            np.asarray(inboxes, dtype=np.str_), return_inverse=True, return_counts=True
        )
        ids, question = np.unique(np.asarray(questions, dtype=np.str_), return_inverse=True)
        self.inboxes = len(inbox_names)
        # Kish's effective number of inboxes, (sum m)^2 / sum m^2 (Survey Sampling, 1965).
        effective = self.n**2 / np.sum(sizes**2, dtype=float) if self.n else 0.0
        self.is_general = bool(effective >= FEW and len(inbox_names) < self.n)
        if self.is_general:
            self._unit, self._cluster, self._clusters = "inboxes", inbox, len(inbox_names)
        elif len(ids) < self.n:
            self._unit, self._cluster, self._clusters = "questions", question, len(ids)
        else:
            self._unit, self._cluster, self._clusters = "", np.arange(self.n), self.n

    def share(self, hits: Sequence[bool | None] | Floats) -> Estimate:
        """Return the share of episodes whose `hits` is true; a range if some are None or NaN."""
        if not self.n:
            return UNKNOWN
        values = np.asarray(hits, dtype=np.float64)
        if unjudged := int(np.isnan(values).sum()):
            worst, best = (np.nan_to_num(values, nan=end) for end in (0.0, 1.0))
            return self._range(self.share(worst), self.share(best), unjudged)
        share = float(values.mean())
        if not self._unit:
            return self._estimate(share, *_wilson(share, self.n), "wilson")
        low, high = self._share_bounds(values)
        return self._estimate(share, low, high, f"Jeffreys over {self._unit}")

    def mean(self, values: Sequence[float] | Floats) -> Estimate:
        return self.ratio(values, np.ones(self.n))

    def ratio(self, values: Sequence[float] | Floats, sizes: Sequence[float] | Floats) -> Estimate:
        """Return the sum of `values` divided by the sum of `sizes`, which are not negative."""
        above, below = (np.asarray(each, dtype=np.float64) for each in (values, sizes))
        if not below.sum():
            return UNKNOWN
        ratio = float(above.sum() / below.sum())
        error = self._error(above, below)
        # Non-negative values have a non-negative mean.
        least = 0.0 if above.min() >= 0 else -math.inf
        return self._estimate(ratio, max(least, ratio - error), ratio + error)

    def difference(self, gains: Floats, best: Floats | None = None) -> Estimate:
        """Return the mean of paired `gains` (-1 to 1), the difference of two shares. With unjudged
        pairs, `gains` is the worst case and `best` the best case, and the result is a range. Widen
        the interval to contain that of independent pairs with half a pair added to each cell
        (Agresti and Min, Statistics in Medicine 24, 2005): d +- z sqrt(((b + c + 1) / N - d^2) / N)
        with b gains, c losses, N = n + 2, d = (b - c) / N. Identical pairs alone have width 0."""
        if best is not None and (unjudged := int((gains != best).sum())):
            return self._range(self.difference(gains), self.difference(best), unjudged)
        # b and c, each with its half pair.
        plus, minus = (float(part.sum()) + 0.5 for part in (gains.clip(0), -gains.clip(None, 0)))
        pairs = self.n + 2  # N: half a pair in each of the four cells
        center = (plus - minus) / pairs  # d, shrunk towards 0 by the added pairs
        error = NORMAL * math.sqrt((plus + minus) / pairs - center**2) / pairs**0.5
        return self._widen(self.mean(gains), center - error, center + error, least=-1.0)

    def reduction(self, before: Floats, after: Floats) -> Estimate:
        """Return 1 - (errors after) / (errors before); both have 1 for an error, else 0. Widen
        the interval to contain that of independent pairs: Bonett and Price (Statistics in Medicine
        25, 2006) divide Wilson bounds of both error rates, with z reduced for their correlation."""
        # Pairs with an error on either side; the others don't change the ratio.
        pairs = float(np.maximum(before, after).sum())
        old, new = (float(errors.sum()) for errors in (before, after))
        if not old:
            return UNKNOWN
        discordant = float(np.abs(before - after).sum())
        # Standard errors of the log ratio, and of the logs of both rates.
        joint = math.sqrt((discordant + 2) / ((old + 1) * (new + 1)))
        single = (math.sqrt((pairs + 1 - part) / (pairs + 2) / (part + 1)) for part in (old, new))
        # z' (sum of single) = z joint: on the log scale, both half-widths add up to the ratio's.
        quantile = NORMAL * joint / sum(single)
        of_old, of_new = (_wilson(part / pairs, pairs, quantile) for part in (old, new))
        low, high = 1 - of_new[1] / of_old[0], 1 - of_new[0] / of_old[1]  # 1 - ratio swaps them
        return self._widen(self.ratio(before - after, before), low, high, least=-math.inf)

    @property
    def scope(self) -> str | None:
        """The inboxes that the intervals hold for, in words; None if they generalize to others."""
        if self.is_general or not self.n:
            return None
        inboxes = f"these {self.inboxes} inboxes" if self.inboxes > 1 else "this one inbox"
        return f"for {inboxes} only"

    def percentile(self, values: Sequence[float], percent: float) -> Estimate:
        """Return the interpolated percentile of `values`. With p the share of values up to it, its
        bounds are the quantiles of `values` at the bounds of p (Woodruff, JASA 47, 1952)."""
        if not self.n:
            return UNKNOWN
        array = np.asarray(values, dtype=np.float64)
        value = float(np.percentile(array, percent))
        bounds = self._share_bounds((array <= value).astype(np.float64))
        return self._estimate(value, *np.quantile(array, bounds).tolist())

    def kappa(self, first: Sequence[bool], second: Sequence[bool]) -> Estimate:
        """Return Cohen's kappa of two judges (Educ Psychol Meas 20, 1960); None if both always give
        the same verdict. Its interval is a jackknife over G clusters, with G - 1 degrees of freedom
        and the variance (G - 1) / G sum((kappa without g - their mean)^2)."""
        # Rows: all, yes by first, yes by second, agreed. Columns: episodes, the total, jackknife.
        one, other = (np.asarray(each, dtype=np.float64) for each in (first, second))
        cells = np.stack([np.ones(self.n), one, other, one * other + (1 - one) * (1 - other)])
        whole = cells.sum(axis=1, keepdims=True)  # (4, 1)
        [value] = _kappa(whole)
        if not self.n or np.isnan(value):
            return point_estimate(None, self.n)
        partial = _kappa(whole - np.stack([self._cluster_sums(cell) for cell in cells]))  # (G,)
        partial = partial[~np.isnan(partial)]  # undefined if chance is 1 without a cluster
        squares = float(np.sum((partial - partial.mean()) ** 2)) if len(partial) > 1 else math.nan
        error = stdtrit(max(1, self._clusters - 1), _QUANTILE) * math.sqrt(
            squares * (self._clusters - 1) / self._clusters
        )
        return self._estimate(float(value), max(-1.0, value - error), min(1.0, value + error))

    def p_of_zero_mean(self, values: Floats) -> float:
        """Return the two-sided p-value of a t-test of the hypothesis that the mean is 0."""
        error = self._error(values, np.ones(self.n), quantile=None)
        mean = abs(float(values.mean()))
        if math.isnan(error) or not mean:
            return 1.0
        return float(2 * stdtr(self._degrees(np.ones(self.n)), -mean / error)) if error else 0.0

    def _share_bounds(self, hits: Floats) -> tuple[float, float]:
        """Return the bounds of a share p over clusters. A cluster with k hits of m has the
        beta-binomial likelihood B(k + a, m - k + b) / B(a, b), with a = mu (1 / rho - 1) and
        b = (1 - mu) (1 / rho - 1). Summed over mu, it gives the posterior of the correlation rho.
        For each rho, Jeffreys' posterior of p is Beta(n* p + 1/2, n* (1 - p) + 1/2), with the
        effective number n* = n (1 - 1 / clusters) / (design effect)."""
        sizes = self._cluster_sums(np.ones(self.n))  # m of each cluster: (clusters,)
        # Clusters with the same counts have the same likelihood.
        counts = np.stack([self._cluster_sums(hits), sizes])  # (2, clusters)
        (right, size), times = np.unique(counts, axis=1, return_counts=True)
        prior = _PRIORS[self._unit]
        correlations, weights = (np.array([*each])[:, None] for each in (prior, prior.values()))
        # Jeffreys' prior of the mean, as a density of its logit.
        likelihood = np.log(weights * np.sqrt(_MEANS * (1 - _MEANS)))  # (correlations, means)
        # Rows of these are correlations rho, columns means mu.
        alpha, beta = (part * (1 / correlations - 1) for part in (_MEANS, 1 - _MEANS))
        for hit, miss, count in zip(right, size - right, times, strict=True):
            likelihood += count * (betaln(hit + alpha, miss + beta) - betaln(alpha, beta))
        posterior = np.exp(likelihood - likelihood.max()).sum(axis=1)  # of rho: (correlations,)
        # Kish's design effect, 1 + rho (sum m^2 / n - 1).
        effect = 1 + correlations * (np.sum(sizes**2) / self.n - 1)  # (correlations, 1)
        rate, n = hits.mean(), self.n / effect * (1 - 1 / self._clusters)  # n*: (correlations, 1)
        # P(p <= grid), averaged over the posterior of rho; its quantiles are the bounds.
        below = posterior @ betainc(n * rate + 0.5, n * (1 - rate) + 0.5, _MEANS) / posterior.sum()
        low, high = np.interp((1 - _QUANTILE, _QUANTILE), below, _MEANS).tolist()
        # Without hits the interval starts at 0, without misses it ends at 1.
        return (low if right.any() else 0.0), (high if (size - right).any() else 1.0)

    def _error(self, above: Floats, below: Floats, quantile: float | None = _QUANTILE) -> float:
        """Return half the width of a ratio's interval, or its standard error without `quantile`;
        NaN for one cluster. CR2: with cluster sums v and w, ratio r and W = sum(w), the variance is
        sum((v - r w)^2 / (1 - w / W)) / W^2."""
        whole, parts = below.sum(), self._cluster_sums(below)
        if self._clusters < 2 or parts.max() >= whole:  # 1 - w / W would be 0
            return math.nan
        # A cluster pulls r towards itself, which multiplies its residual's variance by 1 - w / W.
        residuals = self._cluster_sums(above) - above.sum() / whole * parts  # v - r w
        error = math.sqrt(float(np.sum(residuals**2 / (1 - parts / whole)))) / whole
        return error if quantile is None else float(stdtrit(self._degrees(below), quantile) * error)

    def _degrees(self, below: Floats) -> float:
        """Return Bell and McCaffrey's degrees of freedom, W^2 / (sum(w^2) + sum(o)^2 - sum(o^2)),
        with cluster sums w of `below`, W = sum(w) and o = w^2 / (W - w)."""
        whole, parts = below.sum(), self._cluster_sums(below)
        others = parts**2 / (whole - parts)  # o: (clusters,)
        return float(whole**2 / (np.sum(parts**2) + others.sum() ** 2 - np.sum(others**2)))

    def _cluster_sums(self, values: Floats) -> Floats:
        sums: Floats = np.zeros(self._clusters)
        np.add.at(sums, self._cluster, values)  # `+=` would count a repeated index once
        return sums

    def _estimate(
        self, value: float, low: float, high: float, method: str | None = None
    ) -> Estimate:
        if math.isnan(low) or math.isnan(high):
            return point_estimate(value, self.n)
        method = method or (f"t over {self._unit}" if self._unit else "t")
        return Estimate(value=value, low=low, high=high, n=self.n, method=method)

    def _range(self, low: Estimate, high: Estimate, unjudged: int) -> Estimate:
        ends = {"range": [low["value"], high["value"]], "high": high["high"]}
        return cast(Estimate, {**low, "value": None, **ends, "unjudged": unjudged})

    def _widen(self, estimate: Estimate, low: float, high: float, least: float) -> Estimate:
        """Extend the interval to `low` and `high`, within `least` and 1."""
        value, *ends = (estimate[name] for name in ("value", "low", "high"))
        if value is None or ends[0] is None or ends[1] is None:
            return estimate
        return self._estimate(value, max(least, min(ends[0], low)), min(1.0, max(ends[1], high)))


def _wilson(share: float, n: float, quantile: float = NORMAL) -> tuple[float, float]:
    """Return Wilson's bounds (JASA 22, 1927) of a share p of n:
    (p + z^2 / 2n +- z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)."""
    center, square = share + quantile**2 / (2 * n), quantile**2 / n
    error = quantile * math.sqrt(share * (1 - share) / n + square / (4 * n))
    return max(0.0, (center - error) / (1 + square)), min(1.0, (center + error) / (1 + square))


def _kappa(cells: NDArray[Any]) -> Floats:
    """Return (agreed - chance) / (1 - chance) per column of counts, with the rows of `kappa`."""
    n, one, other, agreed = np.asarray(cells, dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        # The share on which independent judges agree: both say yes, or both no.
        chance = (one * other + (n - one) * (n - other)) / n**2
        kappa: Floats = np.where(chance < 1, (agreed / n - chance) / (1 - chance), np.nan)
    return kappa


def holm(ps: Sequence[float]) -> list[float]:
    """Return p-values adjusted for multiple testing (Holm, Scand J Statist 6, 1979): the k-th
    smallest of m becomes the largest (m - j + 1) p_j for j up to k, at most 1."""
    corrected, least = list(ps), 0.0
    for rank, place in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        least = max(least, min(1.0, (len(ps) - rank) * ps[place]))  # rank = k - 1; never falls
        corrected[place] = least
    return corrected
