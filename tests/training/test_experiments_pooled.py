"""Pooling over questions and seeds, against cases that are known."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from training.experiments.pooled import Pool


def pool(shape: tuple[int, int]) -> Pool:
    return Pool(["inbox"] * shape[1], [f"q{number}" for number in range(shape[1])], shape[0])


@st.composite
def shares(draw: st.DrawFn) -> NDArray[Any]:
    """0 or 1 for each run and question, some not known."""
    runs, questions = draw(st.integers(1, 4)), draw(st.integers(4, 20))
    cells = st.sampled_from([0.0, 1.0, 1.0, 0.0, np.nan])
    rows = draw(
        st.lists(
            st.lists(cells, min_size=questions, max_size=questions), min_size=runs, max_size=runs
        )
    )
    return np.asarray(rows, dtype=np.float64)


@given(shares())
def test_an_interval_holds_the_pooled_mean(values: NDArray[Any]) -> None:
    known = values[~np.isnan(values)]
    told = pool(values.shape).mean(values, share=True)
    assert told["n"] == len(known)
    if not len(known):
        assert told["value"] is None
        return
    value, low, high = told["value"], told["low"], told["high"]
    assert value is not None
    assert low is not None
    assert high is not None
    assert value == pytest.approx(known.mean())
    assert 0 <= low <= value + 1e-9
    assert value - 1e-9 <= high <= 1 + 1e-9


@given(shares(), st.floats(-2, 2))
def test_a_difference_that_is_always_the_same_has_no_width(
    values: NDArray[Any], difference: float
) -> None:
    told = pool(values.shape).gain(values, values + difference)
    if np.isnan(values).all():
        assert told["value"] is None
        return
    ends = [told["value"], told["low"], told["high"]]
    assert ends == pytest.approx([difference] * 3, abs=1e-9)


def test_seeds_that_differ_widen_the_interval() -> None:
    rng = np.random.default_rng(0)
    alike = (rng.random((3, 400)) < 0.6).astype(np.float64)
    apart = np.stack([(rng.random(400) < share) for share in (0.3, 0.6, 0.9)]).astype(np.float64)
    widths = []
    for values in (alike, apart):
        told = pool(values.shape).mean(values)
        assert told["low"] is not None
        assert told["high"] is not None
        widths.append(told["high"] - told["low"])
    assert widths[1] > 4 * widths[0]


def test_one_run_has_the_interval_of_its_questions() -> None:
    values = np.asarray([[1.0] * 60 + [0.0] * 40])
    told = pool(values.shape).mean(values)
    # sqrt(0.6 * 0.4 / 100) is 0.049.
    assert told["low"] == pytest.approx(0.6 - 1.96 * 0.049, abs=0.015)
    assert told["high"] == pytest.approx(0.6 + 1.96 * 0.049, abs=0.015)


def test_questions_that_are_hard_for_every_seed_are_no_evidence_three_times_over() -> None:
    row = [1.0] * 60 + [0.0] * 40
    one, three = (pool((runs, 100)).mean(np.asarray([row] * runs)) for runs in (1, 3))
    assert three["low"] == pytest.approx(one["low"], abs=0.015)
    assert three["high"] == pytest.approx(one["high"], abs=0.015)


def test_a_share_of_nothing_has_wilsons_interval() -> None:
    told = pool((3, 100)).mean(np.zeros((3, 100)), share=True)
    assert told["value"] == told["low"] == 0
    assert told["high"] == pytest.approx(0.037, abs=0.001)
    assert told["n"] == 300
