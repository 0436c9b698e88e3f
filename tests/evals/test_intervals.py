"""Intervals against known values, and their coverage in simulations."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t

from bench.coverage import coverage, draw_answers
from evals.statistics import UNKNOWN, Estimate, Sample


def over(n: int, inboxes: int = 1, questions: int | None = None) -> Sample:
    """Return a sample of n episodes, divided evenly among inboxes and questions."""
    return Sample(
        [f"i{each % inboxes}" for each in range(n)],
        [str(each % (questions or n)) for each in range(n)],
    )


def bounds(estimate: Estimate) -> tuple[float, float]:
    assert estimate["low"] is not None and estimate["high"] is not None
    return estimate["low"], estimate["high"]


# Known values of Wilson's interval, to four places.
@pytest.mark.parametrize(
    ("hits", "n", "low", "high"),
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (1, 5, 0.0362, 0.6245), (8, 10, 0.4902, 0.9433)],
)
def test_wilson_bounds_match_known_values(hits: int, n: int, low: float, high: float) -> None:
    share = over(n).share([number < hits for number in range(n)])
    assert (share["value"], share["n"], share["method"]) == (hits / n, n, "wilson")
    assert bounds(share) == pytest.approx((low, high), abs=1e-4)


def test_estimates_without_enough_data() -> None:
    nothing = over(0)
    assert nothing.share([]) == nothing.mean([]) == nothing.percentile([], 50) == UNKNOWN
    assert nothing.kappa([], []) == UNKNOWN
    assert over(1).mean([3.0]) == {**UNKNOWN, "value": 3.0, "n": 1}
    lone = over(2).ratio([3.0, 0.0], [1.0, 0.0])
    assert lone == {**UNKNOWN, "value": 3.0, "n": 2}, "only one episode counts"
    # One inbox says nothing about others, but its questions say something about it.
    assert over(2, 1).mean([3.0, 4.0])["method"] == "t"


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(0, 1e3), min_size=2, max_size=60), st.integers(1, 20), st.integers(1, 99))
def test_interval_contains_its_value(values: list[float], inboxes: int, percent: int) -> None:
    sample = over(len(values), inboxes)
    tiny = 1e-6
    low, high = bounds(mean := sample.mean(values))
    assert 0 <= low <= (mean["value"] or 0) + tiny <= high + 2 * tiny
    low, high = bounds(middle := sample.percentile(values, percent))
    assert min(values) - tiny <= low <= high <= max(values) + tiny
    assert middle["value"] == pytest.approx(float(np.percentile(values, percent)))
    hits = [value > 500 for value in values]
    low, high = bounds(share := sample.share(hits))
    assert 0 <= low <= (share["value"] or 0) + tiny <= high + 2 * tiny
    assert low < high <= 1


@given(st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(0.1, 10)), min_size=2, max_size=40))
def test_ratio_is_the_ratio_of_sums(pairs: list[tuple[float, float]]) -> None:
    above, below = ([pair[side] for pair in pairs] for side in (0, 1))
    sample = over(len(pairs))
    assert sample.ratio(above, below)["value"] == pytest.approx(sum(above) / sum(below), abs=1e-9)
    assert sample.mean(above) == sample.ratio(above, [1.0] * len(pairs))
    assert sample.ratio(above, [0.0] * len(pairs)) == UNKNOWN


def test_bounds_match_textbooks_for_independent_data_and_equal_inboxes() -> None:
    values = np.random.default_rng(1).exponential(size=400)
    low, high = bounds(over(400).mean(values.tolist()))
    error = t.ppf(0.975, 399) * values.std(ddof=1) / 20
    assert [low, high] == pytest.approx([values.mean() - error, values.mean() + error])
    # A percentile's bounds are order statistics, with ranks np +- 1.96 sqrt(np(1 - p)).
    ordered = np.sort(values)
    low, high = bounds(over(400).percentile(values.tolist(), 90))
    spread = 1.96 * (400 * 0.9 * 0.1) ** 0.5
    for bound, rank in ((low, 360 - spread), (high, 360 + spread)):
        assert ordered[round(rank) - 4] <= bound <= ordered[round(rank) + 4]
    # For equal inboxes it is the t interval of their means.
    values = np.random.default_rng(3).normal(size=60)
    means = values.reshape(10, 6).mean(axis=0)
    low, high = bounds(over(60, 6).mean(values.tolist()))
    error = t.ppf(0.975, 5) * means.std(ddof=1) / 6**0.5
    assert [low, high] == pytest.approx([values.mean() - error, values.mean() + error])


# Like the table in docs/journal/2026-11-28-intervals.md, with fewer runs.
@pytest.mark.parametrize("sizes", [(8, 7), (40,) * 4, (30, 20, 20, 20, 10, 10, 10, 40), (8,) * 20])
@pytest.mark.parametrize(("truth", "icc"), [(0.5, 0.02), (0.7, 0.10), (0.9, 0.3), (0.97, 0.3)])
def test_intervals_cover_the_truth(sizes: tuple[int, ...], truth: float, icc: float) -> None:
    # 92 to 99 %, less two standard errors of 150 runs.
    assert coverage(sizes, truth, icc, 150) >= 0.88


def test_figures_of_few_inboxes_are_limited_to_these() -> None:
    # 72 questions about one inbox and one about another have the interval of 73 questions.
    hits = [number < 60 for number in range(73)]
    sample = Sample(["a"] * 72 + ["b"], [str(number) for number in range(73)])
    assert sample.share(hits) == over(73).share(hits)
    assert sample.scope == "for these 2 inboxes only"
    # One of eight inboxes has nearly all questions.
    uneven = Sample(["a"] * 90 + list("bcdefgh"), [str(number) for number in range(97)])
    assert uneven.scope == "for these 8 inboxes only"
    assert over(40, 4).scope is None
    # Questions with many answers may be harder.
    assert coverage((1, 9) * 20, 0.7, 0.5, 150, harder=0.5, draw=draw_answers) >= 0.88


def test_intervals_stay_in_range_and_have_a_width_for_identical_data() -> None:
    low, high = bounds(over(40, 8).difference(np.array([1.0] * 39 + [-1.0])))
    assert 0 < low < 0.95 < high <= 1
    low, high = bounds(over(40, 8).difference(np.zeros(40)))
    assert low == -high and high == pytest.approx(0.047, abs=1e-3)
    # Bonett and Price: 8 errors become 24.
    before, after = (np.repeat([1.0, 0.0], [errors, 160 - errors]) for errors in (8, 24))
    assert bounds(over(160, 8).reduction(before, after)) == pytest.approx((-4.27, -0.71), abs=0.01)
    # The example of Agresti and Min: 8 and 16 of 100 pairs differ.
    low, high = bounds(over(100).difference(np.repeat([1.0, -1.0, 0.0], [16, 8, 76])))
    assert low < 0 < 0.08 < high < 0.2
    assert bounds(over(10).percentile([1.0] * 6 + [2.0] * 4, 50)) == (1.0, 2.0)
    low, high = bounds(over(40, 2).share([number % 4 < 2 for number in range(40)]))
    assert [low, high] == pytest.approx([0.352, 0.648], abs=1e-3)
    clustered = over(40, 10).share([False] * 40)
    assert clustered["value"] == bounds(clustered)[0] == 0.0
    assert bounds(clustered)[1] > 0.0876, "Wilson's bound for forty independent episodes"
    # Forty answers to ten questions are little more evidence than ten.
    assert 0.70 < bounds(over(40, 1, 10).share([True] * 40))[0] < 0.83


def test_p_of_zero_mean_agrees_with_the_interval() -> None:
    random = np.random.default_rng(6)
    for _ in range(50):
        sample, values = over(40, 5), random.normal(0.3, 1, 40)
        low, high = bounds(sample.mean(values))
        assert (sample.p_of_zero_mean(values) < 0.05) == (not low <= 0 <= high)
    assert over(40, 5).p_of_zero_mean(np.zeros(40)) == 1.0


def test_kappa_matches_known_tables() -> None:
    for counts, kappa in (
        ((20, 15, 5, 10), 0.4),  # a textbook example: agreed 0.7, by chance 0.5
        ((45, 15, 25, 15), 0.1304),
        ((50, 50, 0, 0), 1.0),
        ((0, 0, 50, 50), -1.0),
    ):
        one, other = (np.repeat(cell, counts).tolist() for cell in ([1, 0, 1, 0], [1, 0, 0, 1]))
        estimate = over(len(one)).kappa(one, other)
        assert estimate["value"] == pytest.approx(kappa, abs=1e-4)
        low, high = bounds(estimate)
        assert low <= kappa + 1e-9 and kappa - 1e-9 <= high
        # The textbook's standard error of the first example is 0.13.
        assert high - low < 0.55


def test_kappa_is_unknown_if_both_judges_are_constant() -> None:
    assert over(5).kappa([True] * 5, [True] * 5) == {**UNKNOWN, "n": 5}
    # With one difference it is known, although most resamples lack the difference.
    assert over(5).kappa([True] * 5, [True] * 4 + [False])["value"] == 0
    # Of the two jackknife samples only one has a kappa, so that the bounds are -1 and 1.
    lone = over(2).kappa([True, False], [True, True])
    assert (lone["value"], lone["low"], lone["high"]) == (0, -1, 1)


def test_bounds_of_kappa_are_a_jackknife() -> None:
    one = [number < 7 for number in range(12)]
    other = [number % 5 != 0 for number in range(12)]
    samples = [
        over(11).kappa(one[:place] + one[place + 1 :], other[:place] + other[place + 1 :])
        for place in range(12)
    ]
    values = np.asarray([each["value"] for each in samples], dtype=float)
    error = t.ppf(0.975, 11) * (11 * values.var()) ** 0.5
    estimate = over(12).kappa(one, other)
    middle = estimate["value"] or 0.0
    expected = [max(-1.0, middle - error), min(1.0, middle + error)]
    assert list(bounds(estimate)) == pytest.approx(expected)
    assert -1 < expected[0] < expected[1] < 1
