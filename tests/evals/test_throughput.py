"""Throughput and measured cost of made-up episodes, whose figures are known beforehand."""

from typing import Any

import pytest

from art_e.trajectory import Trajectory
from evals.gpu_time import Serving, at_measured_cost
from evals.metrics import NOTHING_ENDED, model_metrics
from evals.scored import Scored, load_run
from evals.statistics import UNKNOWN
from tests.evals.runs import question, write_run
from tests.evals.test_gpu_time import ran

SERVING = Serving(1.8, 2, 4)  # two GPUs, together a tenth of a cent a second
# 20 questions of 2 s, two at a time: 20 seconds. Each has 1,000 and 100 tokens.
TWO_AT_A_TIME = [
    ran(2.0 * (number // 2), 2.0, number=number, model="own", run_id="run") for number in range(20)
]


def figures_of(episodes: list[Trajectory], serving: Serving | None = SERVING) -> dict[str, Any]:
    served = {} if serving is None else {"own": serving}
    scored = [
        Scored(question(number), each)
        for number, each in enumerate(at_measured_cost(episodes, served))
    ]
    return model_metrics(scored, ["offline/2"], serving=serving)


def test_the_figures_are_those_of_the_seconds() -> None:
    figures = figures_of(TWO_AT_A_TIME)
    measured = figures["throughput"]
    assert (measured["seconds"], measured["n"]) == (pytest.approx(20), 20)
    assert measured["at_once"] == pytest.approx(2)
    assert measured["questions_per_second"]["value"] == pytest.approx(1)
    assert measured["prompt_tokens_per_second"]["value"] == pytest.approx(1_000)
    assert measured["completion_tokens_per_second"]["value"] == pytest.approx(100)
    # A second a question on two GPUs.
    assert measured["gpu_hours_per_1000"]["value"] == pytest.approx(2_000 / 3_600)
    assert (measured["prompt_tokens"], measured["completion_tokens"]) == (20_000, 2_000)
    assert (measured["gpu_usd_per_hour"], measured["gpus"], measured["concurrency"]) == (1.8, 2, 4)
    assert measured["left_out"] is None
    assert figures["cost_per_1000_usd"]["value"] == pytest.approx(1.0)
    assert figures["cost_usd"] == pytest.approx(0.02)
    assert figures["cost_source"] == "measured on your 2 GPUs at $1.80/h each, concurrency 4"


def test_the_intervals_are_as_wide_as_questions_differ() -> None:
    even = figures_of(TWO_AT_A_TIME)["cost_per_1000_usd"]
    assert even["low"] == pytest.approx(even["high"])
    uneven = figures_of(
        [ran(100.0 * number, 1.0 + number % 7, number=number, model="own") for number in range(20)]
    )
    cost, rate = uneven["cost_per_1000_usd"], uneven["throughput"]["questions_per_second"]
    assert cost["low"] < cost["value"] < cost["high"]
    assert cost["n"] == rate["n"] == 20
    # The same draws: the dearest has the lowest throughput.
    for one, other in (("low", "high"), ("value", "value"), ("high", "low")):
        expected = 1000 * SERVING.usd_per_second / rate[other]
        # Bounds lie between two draws.
        assert cost[one] == pytest.approx(expected, rel=1e-3)


def test_a_server_that_fails_is_no_cheap_one() -> None:
    failed = [ran(100 + number, 1.0, outcome="failed", model="own") for number in range(20)]
    figures = figures_of([*TWO_AT_A_TIME, *failed])
    assert (figures["n"], figures["errors"], figures["throughput"]["n"]) == (40, 20, 20)
    # 40 seconds for 20 questions.
    assert figures["throughput"]["questions_per_second"]["value"] == pytest.approx(0.5)
    assert figures["cost_per_1000_usd"]["value"] == pytest.approx(2.0)
    assert figures["cost_usd"] == pytest.approx(0.04)


def test_it_is_left_out_with_the_reason_where_nothing_ended() -> None:
    figures = figures_of([ran(0, 1.0, outcome="failed", model="own")])
    assert figures["throughput"]["left_out"] == NOTHING_ENDED
    assert figures["throughput"]["questions_per_second"] == UNKNOWN
    assert figures["cost_per_1000_usd"] == UNKNOWN
    assert figures["cost_usd"] is figures["cost_source"] is None


def test_other_models_have_their_price_per_token() -> None:
    figures = figures_of(TWO_AT_A_TIME, None)
    assert figures["throughput"] is None
    assert figures["cost_source"] == "price per token"
    assert figures["cost_usd"] == pytest.approx(20 * 0.002)


def test_a_run_read_from_disk_costs_the_same(tmp_path: Any) -> None:
    run = write_run(
        tmp_path / "run",
        TWO_AT_A_TIME,
        gpu_usd_per_hour=1.8,
        gpus=2,
        self_hosted=["own"],
        concurrency={"own": 4},
    )
    assert model_metrics(load_run(run), ["offline/2"], serving=SERVING) == figures_of(TWO_AT_A_TIME)
    # On disk stays what was known when each was asked.
    assert '"cost_usd":0.002' in run.trajectories.read_text().replace(" ", "")
