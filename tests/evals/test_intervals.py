"""Intervals against known values, and against how often they hold the truth."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from evals.statistics import UNKNOWN, Estimate, Sample


def independent(n: int) -> Sample:
    return Sample(["i"] * n, [str(number) for number in range(n)])


def share(hits: int, n: int) -> Estimate:
    return independent(n).share([number < hits for number in range(n)])


def bounds(estimate: Estimate) -> tuple[float, float]:
    assert estimate["low"] is not None
    assert estimate["high"] is not None
    return estimate["low"], estimate["high"]


# Known values of Wilson's interval, to four places.
@pytest.mark.parametrize(
    ("hits", "n", "low", "high"),
    [
        (0, 10, 0.0, 0.2775),
        (10, 10, 0.7225, 1.0),
        (1, 5, 0.0362, 0.6245),
        (8, 10, 0.4902, 0.9433),
        (10, 20, 0.2993, 0.7007),
        (96, 100, 0.9016, 0.9843),
    ],
)
def test_wilson_bounds(hits: int, n: int, low: float, high: float) -> None:
    assert share(hits, n) == {
        "value": hits / n,
        "low": pytest.approx(low, abs=1e-4),
        "high": pytest.approx(high, abs=1e-4),
        "n": n,
        "method": "wilson",
    }


@settings(deadline=None)
@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_bounds_solve_their_equation(counts: tuple[int, int]) -> None:
    hits, n = counts
    z = 1.959963984540054
    # (p - hits/n)^2 = z^2 p (1 - p) / n.
    for bound in bounds(share(hits, n)):
        assert (bound - hits / n) ** 2 == pytest.approx(z * z * bound * (1 - bound) / n, abs=1e-9)


def test_what_nothing_is_known_of() -> None:
    nothing = independent(0)
    assert nothing.share([]) == nothing.mean([]) == nothing.percentile([], 50) == UNKNOWN
    assert nothing.kappa([], []) == UNKNOWN
    # Of one episode there is a mean, and no telling how far it is off.
    assert independent(1).mean([3.0]) == {**UNKNOWN, "value": 3.0, "n": 1}


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=60),
    st.integers(1, 20),
    st.integers(0, 100),
)
def test_an_interval_holds_its_mean_and_no_more_than_the_values(
    values: list[float], inboxes: int, percent: int
) -> None:
    n = len(values)
    sample = Sample([f"i{each % inboxes}" for each in range(n)], [str(each) for each in range(n)])
    tiny = 1e-6
    for estimate in (sample.mean(values), sample.percentile(values, percent)):
        low, high = bounds(estimate)
        assert min(values) - tiny <= low <= high <= max(values) + tiny
    assert sample.percentile(values, percent)["value"] == pytest.approx(
        float(np.percentile(values, percent))
    )


@given(st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(0.1, 10)), min_size=2, max_size=40))
def test_a_ratio_is_that_of_the_sums_within_the_ratios_of_the_episodes(
    pairs: list[tuple[float, float]],
) -> None:
    above, below = ([pair[side] for pair in pairs] for side in (0, 1))
    estimate = independent(len(pairs)).ratio(above, below)
    assert estimate["value"] == pytest.approx(sum(above) / sum(below), abs=1e-9)
    ratios = [one / other for one, other in pairs]
    low, high = bounds(estimate)
    assert min(ratios) - 1e-6 <= low <= high <= max(ratios) + 1e-6
    assert independent(len(pairs)).mean(above) == independent(len(pairs)).ratio(
        above, [1.0] * len(pairs)
    )


def test_the_same_episodes_give_the_same_bounds() -> None:
    values = np.random.default_rng(3).random(50).tolist()
    assert independent(50).mean(values) == independent(50).mean(values)
    assert independent(50).percentile(values, 95) == independent(50).percentile(values, 95)


def test_the_mean_is_the_textbook_interval_where_episodes_are_independent() -> None:
    values = np.random.default_rng(1).exponential(size=400)
    low, high = bounds(independent(400).mean(values.tolist()))
    standard_error = values.std(ddof=1) / 20
    assert low == pytest.approx(values.mean() - 1.96 * standard_error, abs=0.15 * standard_error)
    assert high == pytest.approx(values.mean() + 1.96 * standard_error, abs=0.15 * standard_error)


def _clustered(random: np.random.Generator, inboxes: int) -> tuple[Sample, list[bool]]:
    """20 questions an inbox; in half of the inboxes 90 % are right, in half 50 %."""
    rates = random.choice([0.9, 0.5], size=inboxes)
    hits = random.random((inboxes, 20)) < rates[:, None]
    labels = [f"i{number}" for number in range(inboxes) for _ in range(20)]
    return Sample(labels, [str(each) for each in range(len(labels))]), hits.ravel().tolist()


def test_clusters_are_honoured_where_wilson_would_say_too_much() -> None:
    """Of 300 worlds whose truth is 0.7, about 95 % have it inside their interval."""
    random = np.random.default_rng(2)
    inside = by_wilson = 0
    for _ in range(300):
        sample, hits = _clustered(random, 30)
        estimate = sample.share(hits)
        assert estimate["method"] == "bootstrap clustered by inbox"
        low, high = bounds(estimate)
        inside += low <= 0.7 <= high
        naive = binomtest(sum(hits), len(hits)).proportion_ci(method="wilson")
        by_wilson += naive.low <= 0.7 <= naive.high
    assert inside / 300 >= 0.90
    assert by_wilson / 300 <= 0.80


def test_repeats_of_a_question_are_one_piece_of_evidence() -> None:
    # 20 questions, each always answered in the same way, 10 times.
    right = [number < 12 for number in range(20)]
    once = independent(20).share(right)
    repeated = Sample(["i"] * 200, [str(number % 20) for number in range(200)]).share(right * 10)
    assert repeated["method"] == "bootstrap clustered by question"
    assert (repeated["value"], repeated["n"]) == (once["value"], 200)
    low, high = bounds(repeated)
    assert high - low > 0.8 * (bounds(once)[1] - bounds(once)[0])


def test_all_of_one_kind_is_not_certain() -> None:
    clustered = Sample([f"i{n % 10}" for n in range(40)], [str(n) for n in range(40)])
    estimate = clustered.share([False] * 40)
    assert (estimate["value"], estimate["method"]) == (0.0, "wilson")
    assert bounds(estimate)[1] == pytest.approx(0.0876, abs=1e-4)
    # Forty answers to ten questions say no more than ten.
    repeated = Sample(["i"] * 40, [str(n % 10) for n in range(40)]).share([True] * 40)
    assert bounds(repeated)[0] == pytest.approx(0.7225, abs=1e-4)


def test_a_part_is_clustered_by_what_is_left_of_it() -> None:
    whole = Sample([f"i{n % 10}" for n in range(40)], [str(n) for n in range(40)])
    part = whole.of([n % 10 < 4 for n in range(40)])
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
    assert low <= kappa + 1e-9 and kappa <= high + 1e-9


def test_kappa_of_judges_that_always_say_the_same_is_not_known() -> None:
    assert independent(5).kappa([True] * 5, [True] * 5) == {**UNKNOWN, "n": 5}
