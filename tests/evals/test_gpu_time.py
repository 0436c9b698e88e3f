"""GPU time, cost and throughput against moments counted by hand, and what they add up to."""

import dataclasses
import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.metrics import Serving, gpu_seconds, load_costed, model_metrics, servings
from evals.scored import Scored
from evals.statistics import UNKNOWN
from tests.evals.runs import episode, question, write_run

BEGUN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SERVING = Serving(3.6, 4)  # a tenth of a cent a second
CONFIG: dict[str, Any] = {
    "gpu_usd_per_hour": 3.6,
    "self_hosted": ["own"],
    "concurrency": {"own": 4},
}


def ran(start: float, took: float, *, number: int = 0, **options: Any) -> Scored:
    """An episode that began so many seconds after `BEGUN`."""
    outcome = options.pop("outcome", "right")
    started = (BEGUN + dt.timedelta(seconds=start)).isoformat(timespec="milliseconds")
    options = {"model": "own", "run_id": "run", "started_at": started, **options}
    asked = question(number)
    return Scored(asked, episode(asked, outcome, seconds=took, **options))


def times_of(*episodes: Scored) -> list[float | None]:
    times = gpu_seconds(episodes)
    return [times.get(each.trajectory.episode_id) for each in episodes]


# Whole seconds, so that a count of them is exact.
TIMES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), min_size=1, max_size=25)


@given(TIMES)
def test_the_machines_time_is_that_in_which_any_question_ran(times: list[tuple[int, int]]) -> None:
    busy = sum(any(start <= second < start + took for start, took in times) for second in range(40))
    found = gpu_seconds([ran(*each, number=number) for number, each in enumerate(times)])
    assert sum(found.values()) == pytest.approx(busy)


def test_questions_bear_it_in_proportion_to_their_own_and_pauses_are_nobodys() -> None:
    apart = [ran(0, 2.0), ran(2.5, 1.0, number=1), ran(3_600, 4.0, number=2)]
    assert times_of(*apart) == pytest.approx([2.0, 1.0, 4.0])
    # Four seconds for six of questions.
    episodes = [ran(0, 2.0), ran(1, 3.0, number=1), ran(1.5, 1.0, number=2)]
    expected = [4 / 3, 2.0, 2 / 3]
    assert times_of(*episodes) == pytest.approx(expected)
    assert times_of(*episodes[::-1]) == pytest.approx(expected[::-1])
    # A clock of another zone is the same clock.
    elsewhere = dt.timezone(dt.timedelta(hours=5))
    middle = episodes[1]
    moved = dt.datetime.fromisoformat(middle.trajectory.started_at).astimezone(elsewhere)
    there = dataclasses.replace(middle.trajectory, started_at=moved.isoformat())
    episodes[1] = Scored(middle.question, there)
    assert times_of(*episodes) == pytest.approx(expected)


def test_only_served_models_have_measured_costs(tmp_path: Path) -> None:
    episodes = [
        ran(0, 2.0, cost=9.0),
        ran(0, 2.0, model="hosted", cost=0.5),
        ran(1, 2.0, number=1, cost=None),
        ran(3, 1.0, number=2, outcome="failed"),
    ]
    run = write_run(tmp_path / "run", [each.trajectory for each in episodes], **CONFIG)
    found = [each.trajectory for each in load_costed(run)]
    # Four seconds, each of them half: the hosted model was no load for the GPU, and the two that
    # ended bear the time of the one that failed.
    assert [each.cost_usd for each in found] == [
        pytest.approx(0.002), 0.5, pytest.approx(0.002), None,
    ]  # fmt: skip
    assert [each.model for each in found] == ["own", "hosted", "own", "own"]
    # On disk stays what was known when each was asked.
    assert '"cost_usd":9.0' in run.trajectories.read_text().replace(" ", "")


# ---- Throughput: 20 questions of 2 s, two at a time: 20 seconds. Each has 1,000 and 100 tokens.

TWO_AT_A_TIME = [ran(2.0 * (number // 2), 2.0, number=number) for number in range(20)]


def test_throughput_is_by_the_seconds_in_which_it_was_asked() -> None:
    figures = model_metrics(TWO_AT_A_TIME, ["offline/7"], SERVING)
    measured = dict(figures["throughput"])
    assert measured.pop("questions_per_second")["value"] == pytest.approx(1)
    assert measured == {
        "seconds": pytest.approx(20), "n": 20,
        "prompt_tokens": 20_000, "completion_tokens": 2_000, "usd_per_hour": 3.6,
        "concurrency": 4,
    }  # fmt: skip
    assert figures["cost_per_1000_usd"]["value"] == pytest.approx(1.0)
    assert figures["cost_usd"] == pytest.approx(0.02)
    assert figures["cost_source"] == "measured at $3.60 an hour, concurrency 4"
    other = model_metrics(TWO_AT_A_TIME, ["offline/7"], None)
    assert (other["throughput"], other["cost_source"]) == (None, "price per token")
    assert other["cost_usd"] == pytest.approx(20 * 0.002)


def test_runs_name_their_served_models() -> None:
    assert servings({"models": ["own"]}) == {}
    assert servings(CONFIG) == {"own": SERVING}
    # A run made before holds the price of one of its GPUs.
    assert servings({**CONFIG, "gpu_usd_per_hour": 1.8, "gpus": 2}) == {"own": SERVING}


def test_a_server_that_fails_is_no_cheap_one() -> None:
    failed = [ran(100 + n, 1.0, number=20 + n, outcome="failed") for n in range(20)]
    figures = model_metrics([*TWO_AT_A_TIME, *failed], ["offline/7"], SERVING)
    assert (figures["n"], figures["errors"], figures["throughput"]["n"]) == (40, 20, 20)
    # 40 seconds for 20 questions.
    assert figures["throughput"]["questions_per_second"]["value"] == pytest.approx(0.5)
    assert figures["cost_per_1000_usd"]["value"] == pytest.approx(2.0)
    assert figures["cost_usd"] == pytest.approx(0.04)
    nothing = model_metrics(failed, ["offline/7"], SERVING)
    assert nothing["cost_per_1000_usd"] == UNKNOWN
    assert nothing["throughput"] is nothing["cost_usd"] is nothing["cost_source"] is None
