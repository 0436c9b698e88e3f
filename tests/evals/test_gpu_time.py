"""GPU time shared among episodes: against counting moments by hand, and what it adds up to."""

import dataclasses
import datetime as dt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_e.trajectory import Trajectory
from evals.gpu_time import Serving, Spans, at_measured_cost, gpu_seconds, servings, shares, spans
from tests.evals.runs import episode, question

BEGUN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
ONE = Serving(3.6, 1, 2)  # a tenth of a cent a second


def ran(start: float, took: float, *, number: int = 0, **options: Any) -> Trajectory:
    """An episode that began so many seconds after `BEGUN`."""
    outcome = options.pop("outcome", "right")
    return episode(
        question(number),
        outcome,
        seconds=took,
        started_at=(BEGUN + dt.timedelta(seconds=start)).isoformat(timespec="milliseconds"),
        **options,
    )


# Whole seconds, so that a count of them is exact.
TIMES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), min_size=1, max_size=25)


@given(TIMES)
def test_each_second_is_split_among_those_that_ran_in_it(times: list[tuple[int, int]]) -> None:
    counted = [0.0] * len(times)
    busy = 0
    for second in range(40):
        running = [at for at, (start, took) in enumerate(times) if start <= second < start + took]
        busy += bool(running)
        for at in running:
            counted[at] += 1 / len(running)
    starts, took = (np.asarray(each, dtype=np.float64) for each in zip(*times, strict=True))
    found = shares(Spans(starts, starts + took))
    assert found == pytest.approx(counted)
    assert found.sum() == pytest.approx(busy)


def test_one_after_the_other_each_has_its_own_time_and_pauses_are_nobodys() -> None:
    episodes = [ran(0, 2.0), ran(2.5, 1.0), ran(3_600, 4.0)]
    assert gpu_seconds(episodes) == pytest.approx([2.0, 1.0, 4.0])


def test_the_order_in_which_they_are_on_disk_makes_no_difference() -> None:
    episodes = [ran(0, 2.0), ran(1, 3.0), ran(1.5, 0.25)]
    # 0 to 1 alone, to 1.5 by two, to 1.75 by three, to 2 by two, to 4 alone.
    expected = [1 + 0.25 + 0.25 / 3 + 0.125, 0.25 + 0.25 / 3 + 0.125 + 2, 0.25 / 3]
    assert gpu_seconds(episodes) == pytest.approx(expected)
    assert gpu_seconds(episodes[::-1]) == pytest.approx(expected[::-1])


def test_the_others_bear_what_failed() -> None:
    times = gpu_seconds([ran(0, 1.0), ran(1, 3.0), ran(4, 4.0, outcome="failed")])
    assert times == pytest.approx([2.0, 6.0, None])


@pytest.mark.parametrize("episodes", [[], [ran(0, 5.0, outcome="failed")], [ran(0, 0.0)]])
def test_there_is_none_where_nothing_was_worked_on(episodes: list[Trajectory]) -> None:
    assert gpu_seconds(episodes) == [None] * len(episodes)


def test_a_clock_of_another_zone_is_the_same_clock() -> None:
    late = ran(1, 1.0)
    moved = dt.datetime.fromisoformat(late.started_at).astimezone(
        dt.timezone(dt.timedelta(hours=5))
    )
    assert moved.isoformat() != late.started_at
    found = spans([ran(0, 1.0), dataclasses.replace(late, started_at=moved.isoformat())])
    assert found.starts.tolist() == [0.0, 1.0]


def test_costs_are_those_of_the_models_that_are_served_whatever_was_known_before() -> None:
    asked = [
        ran(0, 2.0, model="own", cost=9.0),
        ran(0, 2.0, model="hosted", cost=0.5),
        ran(1, 2.0, model="own", cost=None),
    ]
    found = at_measured_cost(asked, {"own": ONE})
    # Three seconds, each of them half: the hosted model was no load for the GPU.
    assert [each.cost_usd for each in found] == pytest.approx([0.0015, 0.5, 0.0015])
    assert [each.model for each in found] == ["own", "hosted", "own"]
    assert at_measured_cost(asked, {}) == asked


@given(TIMES, st.floats(0, 100), st.integers(1, 8))
def test_the_costs_add_up_to_the_hours_that_were_paid(
    times: list[tuple[int, int]], price: float, gpus: int
) -> None:
    episodes = [ran(start, took, model="own") for start, took in times]
    busy = len({second for start, took in times for second in range(start, start + took)})
    costs = [each.cost_usd for each in at_measured_cost(episodes, {"own": Serving(price, gpus, 1)})]
    if busy:
        known = [cost for cost in costs if cost is not None]
        assert sum(known) == pytest.approx(busy / 3600 * price * gpus)
        assert len(known) == len(costs)
    else:
        assert costs == [None] * len(costs)


def test_a_runs_configuration_says_who_is_served_and_how() -> None:
    config = {
        "concurrency": {"own": 8, "hosted": 4},
        "gpu_usd_per_hour": 2.1,
        "gpus": 2,
        "self_hosted": ["own"],
    }
    assert servings(config) == {"own": Serving(2.1, 2, 8)}
    assert servings({**config, "gpu_usd_per_hour": None}) == servings({}) == {}


@pytest.mark.parametrize(
    ("serving", "said"),
    [
        (Serving(2.1, 1, 8), "measured on your GPU at $2.10/h, concurrency 8"),
        (Serving(2.0, 2, 1), "measured on your 2 GPUs at $2.00/h each, concurrency 1"),
    ],
)
def test_it_is_said_on_what_it_was_measured(serving: Serving, said: str) -> None:
    assert str(serving) == said
