"""Intervals against known values, and against how often they hold the truth."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from evals.statistics import UNKNOWN, Estimate, Sample


def independent(n: int) -> Sample:
    return Sample(["i"] * n, [str(number) for number in range(n)])


def over(n: int, inboxes: int = 1, questions: int | None = None) -> Sample:
    """So many episodes, spread evenly over inboxes and questions."""
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
    [
        (0, 10, 0.0, 0.2775),
        (10, 10, 0.7225, 1.0),
        (1, 5, 0.0362, 0.6245),
        (8, 10, 0.4902, 0.9433),
        (96, 100, 0.9016, 0.9843),
    ],
)
def test_wilson_bounds(hits: int, n: int, low: float, high: float) -> None:
    assert independent(n).share([number < hits for number in range(n)]) == {
        "value": hits / n,
        "low": pytest.approx(low, abs=1e-4),
        "high": pytest.approx(high, abs=1e-4),
        "n": n,
        "method": "wilson",
    }


def test_without_data_all_is_unknown_and_one_episode_has_no_interval() -> None:
    nothing = independent(0)
    assert nothing.share([]) == nothing.mean([]) == nothing.percentile([], 50) == UNKNOWN
    assert nothing.kappa([], []) == UNKNOWN
    assert independent(1).mean([3.0]) == {**UNKNOWN, "value": 3.0, "n": 1}
    assert bounds(independent(2).mean([3.0, 4.0])) == (3.0, 4.0)


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=60), st.integers(1, 20), st.integers(0, 100)
)
def test_an_interval_holds_its_mean_and_no_more_than_the_values(
    values: list[float], inboxes: int, percent: int
) -> None:
    sample = over(len(values), inboxes)
    tiny = 1e-6
    for estimate in (sample.mean(values), sample.percentile(values, percent)):
        low, high = bounds(estimate)
        assert min(values) - tiny <= low <= high <= max(values) + tiny
        assert estimate["n"] == len(values)
    expected = float(np.percentile(values, percent))
    assert sample.percentile(values, percent)["value"] == pytest.approx(expected)
    assert sample.mean(values) == sample.mean(values)


@given(st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(0.1, 10)), min_size=2, max_size=40))
def test_a_ratio_is_that_of_the_sums_within_the_ratios_of_the_episodes(
    pairs: list[tuple[float, float]],
) -> None:
    above, below = ([pair[side] for pair in pairs] for side in (0, 1))
    sample = independent(len(pairs))
    estimate = sample.ratio(above, below)
    assert estimate["value"] == pytest.approx(sum(above) / sum(below), abs=1e-9)
    ratios = [one / other for one, other in pairs]
    low, high = bounds(estimate)
    assert min(ratios) - 1e-6 <= low <= high <= max(ratios) + 1e-6
    assert sample.mean(above) == sample.ratio(above, [1.0] * len(pairs))


def test_of_independent_episodes_the_bounds_are_the_textbooks() -> None:
    values = np.random.default_rng(1).exponential(size=400)
    low, high = bounds(independent(400).mean(values.tolist()))
    error = values.std(ddof=1) / 20
    assert low == pytest.approx(values.mean() - 1.96 * error, abs=0.15 * error)
    assert high == pytest.approx(values.mean() + 1.96 * error, abs=0.15 * error)
    # A percentile's bounds are order statistics: of ranks np +- 1.96 sqrt(np(1 - p)).
    ordered = np.sort(values)
    low, high = bounds(independent(400).percentile(values.tolist(), 90))
    spread = 1.96 * (400 * 0.9 * 0.1) ** 0.5
    for bound, rank in ((low, 360 - spread), (high, 360 + spread)):
        assert ordered[round(rank) - 3] <= bound <= ordered[round(rank) + 3]


def test_clusters_are_honoured_where_wilson_would_say_too_much() -> None:
    """Of 300 worlds whose truth is 0.7, about 95 % have it inside their interval.

    Each has 20 questions an inbox; in half of the inboxes 90 % are right, in half 50 %.
    """
    random = np.random.default_rng(2)
    sample = over(600, 30)
    inside = by_wilson = 0
    for _ in range(300):
        rates = random.choice([0.9, 0.5], size=30)
        hits = (random.random((20, 30)) < rates).ravel().tolist()
        estimate = sample.share(hits)
        assert estimate["method"] == "bootstrap clustered by inbox"
        low, high = bounds(estimate)
        inside += low <= 0.7 <= high
        naive = binomtest(sum(hits), len(hits)).proportion_ci(method="wilson")
        by_wilson += naive.low <= 0.7 <= naive.high
    assert inside / 300 >= 0.90
    assert by_wilson / 300 <= 0.80


def test_ten_inboxes_are_clusters_nine_are_not() -> None:
    half = [number % 2 == 0 for number in range(90)]
    assert over(90, 10).share(half)["method"] == "bootstrap clustered by inbox"
    assert over(90, 9).share(half)["method"] == "wilson"
    assert over(90, 9).mean([1.0, 2.0] * 45)["method"] == "bootstrap"


def test_repeats_of_a_question_are_one_piece_of_evidence() -> None:
    # 20 questions, always answered in the same way, 10 times.
    right = [number < 12 for number in range(20)]
    once, repeated = independent(20).share(right), over(200, 1, 20).share(right * 10)
    assert repeated["method"] == "bootstrap clustered by question"
    assert (repeated["value"], repeated["n"]) == (once["value"], 200)
    widths = [high - low for low, high in map(bounds, (once, repeated))]
    assert 0.8 * widths[0] < widths[1] < 1.2 * widths[0]


def test_all_of_one_kind_is_not_certain() -> None:
    clustered = over(40, 10).share([False] * 40)
    assert (clustered["value"], clustered["method"]) == (0.0, "wilson")
    assert bounds(clustered)[1] == pytest.approx(0.0876, abs=1e-4)
    # Forty answers to ten questions say no more than ten.
    assert bounds(over(40, 1, 10).share([True] * 40))[0] == pytest.approx(0.7225, abs=1e-4)


def test_a_part_is_clustered_by_what_is_left_of_it() -> None:
    part = over(40, 10).of([n % 10 < 4 for n in range(40)])
    assert part.n == 16
    assert part.share([n % 2 == 0 for n in range(16)])["method"] == "wilson"


@pytest.mark.parametrize(
    ("both", "neither", "first", "second", "kappa"),
    [
        (20, 15, 5, 10, 0.4),  # the textbook's: agreed 0.7, by chance 0.5
        (45, 15, 25, 15, 0.1304),
        (50, 50, 0, 0, 1.0),
        (0, 0, 50, 50, -1.0),
    ],
)
def test_kappa_of_known_tables(
    both: int, neither: int, first: int, second: int, kappa: float
) -> None:
    one = [True] * both + [False] * neither + [True] * first + [False] * second
    other = [True] * both + [False] * neither + [False] * first + [True] * second
    estimate = independent(len(one)).kappa(one, other)
    assert estimate["value"] == pytest.approx(kappa, abs=1e-4)
    low, high = bounds(estimate)
    assert low <= kappa + 1e-9 and kappa - 1e-9 <= high
    # The textbook's standard error at the first table is 0.13.
    assert high - low < 0.55


def test_kappa_of_judges_that_always_say_the_same_is_unknown() -> None:
    assert independent(5).kappa([True] * 5, [True] * 5) == {**UNKNOWN, "n": 5}
    # One that differs once is known, though most resamples lack the difference.
    assert independent(5).kappa([True] * 5, [True] * 4 + [False])["value"] == 0
