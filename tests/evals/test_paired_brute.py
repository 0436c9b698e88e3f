"""Paired statistics against truth counted out: every coin, every resample, every outcome."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multinomial

from evals.paired import compare, mcnemar, questions_needed
from evals.scored import Scored
from tests.evals.hacks import changed, episode, question

# Every sixth has no answer.
ANSWERABLE = [question(number) for number in range(60) if number % 6 != 5]

Rights = list[tuple[bool, bool]]
rights = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=12)


def sides(both: Sequence[tuple[bool, bool]]) -> tuple[list[Scored], list[Scored]]:
    """Two models' episodes on as many questions; each pair says which had its question right."""
    one, other = (
        [
            changed(
                episode(asked, asked.answer if right else "No idea at all", right),
                seconds={"total": 1.0, "model": 0.9, "tools": 0.1},
                cost_usd=0.0,
            )
            for asked, right in zip(ANSWERABLE, said, strict=False)
        ]
        for said in zip(*both, strict=True)
    )
    return one, other


def coins(only_a: int, only_b: int) -> float:
    """The share of all ways to swap A and B on the flipped questions that are as lopsided."""
    flipped = only_a + only_b
    swaps = list(itertools.product((1, -1), repeat=flipped))
    return sum(abs(sum(each)) >= abs(only_a - only_b) for each in swaps) / len(swaps)


@given(st.integers(0, 6), st.integers(0, 6))
def test_mcnemar_is_the_share_of_swaps_as_lopsided(only_a: int, only_b: int) -> None:
    assert mcnemar(only_a, only_b) == pytest.approx(coins(only_a, only_b))


@settings(max_examples=40)
@given(rights)
def test_shares_and_flips_are_those_counted(both: Rights) -> None:
    result = compare(*sides(both))

    n = len(both)
    only_a = sum(one and not other for one, other in both)
    only_b = sum(other and not one for one, other in both)
    accuracy = result["figures"]["accuracy"]
    assert result["n"] == n and (result["only_a"], result["only_b"]) == (only_a, only_b)
    assert accuracy["a"] == pytest.approx(sum(one for one, _ in both) / n)
    assert accuracy["b"] == pytest.approx(sum(other for _, other in both) / n)
    assert accuracy["difference"]["value"] == pytest.approx((only_b - only_a) / n)
    assert result["p"] == pytest.approx(coins(only_a, only_b))
    assert [each["right"] for each in result["flipped"]].count("a") == only_a
    errors = sum(not one for one, _ in both)
    assert result["mended"]["n"] == errors
    assert result["mended"]["value"] == (pytest.approx(only_b / errors) if errors else None)


@settings(max_examples=40)
@given(rights)
def test_the_other_way_round_all_is_mirrored(both: Rights) -> None:
    a, b = sides(both)
    one, other = compare(a, b), compare(b, a)

    assert one["p"] == other["p"]
    assert one["mended"] == other["broken"] and one["needed"] == other["needed"]
    there, back = (each["figures"]["accuracy"]["difference"] for each in (one, other))
    assert there["value"] == pytest.approx(-back["value"])


@pytest.mark.parametrize("seed", range(6))
def test_the_bootstrap_has_the_bounds_of_all_resamples(seed: int) -> None:
    random = np.random.default_rng(seed)
    both = [(bool(one), bool(other)) for one, other in random.integers(0, 2, (6, 2))]
    both[:2] = [(True, False), (False, True)]
    differences = np.asarray([int(other) - int(one) for one, other in both])
    # All 6^6 ways to draw six questions of six, each as likely as any other.
    drawn = np.asarray(list(itertools.product(range(6), repeat=6)))
    means = differences[drawn].mean(axis=1)

    estimate = compare(*sides(both))["figures"]["accuracy"]["difference"]

    # 2,000 resamples place a quantile of 2.5 % between those of 1.5 % and 3.5 %.
    assert np.percentile(means, 1.5) - 1e-9 <= estimate["low"] <= np.percentile(means, 3.5) + 1e-9
    assert (
        np.percentile(means, 96.5) - 1e-9 <= estimate["high"] <= np.percentile(means, 98.5) + 1e-9
    )


@pytest.mark.parametrize(
    ("p1", "p2", "discordant"), [(0.9, 0.96, 0.08), (0.9, 0.96, 0.132), (0.5, 0.6, 0.3)]
)
def test_so_many_shared_questions_have_the_power(p1: float, p2: float, discordant: float) -> None:
    n = questions_needed(p1, p2, discordant)
    only_b, only_a = (discordant + p2 - p1) / 2, (discordant - p2 + p1) / 2
    b, a = np.meshgrid(np.arange(n + 1), np.arange(n + 1), indexing="ij")
    possible = a + b <= n
    a, b = a[possible], b[possible]
    found = (b - a) ** 2 > 3.841459 * np.maximum(a + b, 1e-12)

    chance = multinomial.pmf(
        np.stack([b, a, n - a - b], axis=1), n, [only_b, only_a, 1 - discordant]
    )

    assert chance.sum() == pytest.approx(1)
    # Of a dozen flips, one more or less is 3 % of all outcomes.
    assert chance[found].sum() == pytest.approx(0.8, abs=0.05)
