"""What a benchmark is expected to cost, by what earlier ones used."""

from pathlib import Path
from typing import Any

import pytest

from evals.benchmark import ASSUMED, estimate_cost
from evals.statistics import Sample
from tests.evals.runs import write_run

# USD per token at OpenAI's list: prompt, cached prompt, completion.
O3 = (2e-6, 0.5e-6, 8e-6)


def earlier(
    runs: Path, name: str, model: str, prompt: float, *, complete: bool = True, **more: Any
) -> None:
    """A run in which `model` used so many prompt tokens a question, a tenth of them cached."""
    means = {"prompt_tokens": prompt, "cached_prompt_tokens": prompt / 10, "completion_tokens": 300}
    tokens = {each: Sample(["i"] * 2, ["1", "2"]).mean([mean] * 2) for each, mean in means.items()}
    run = write_run(runs / name, [], complete=complete)
    run.write_json("metrics.json", {"models": {model: {"tokens": tokens}, **more}})


def test_without_a_run_tokens_are_assumed_and_said_to_be(tmp_path: Path) -> None:
    estimate = estimate_cost("openai/o3", 1000, tmp_path)
    one = ASSUMED.prompt * O3[0] + ASSUMED.completion * O3[2]
    assert estimate.usd == pytest.approx(1000 * one)
    assert f"openai/o3: about ${1000 * one:.2f} for 1,000 episodes" in str(estimate)
    assert "assumed" in str(estimate)


def test_the_newest_run_of_the_same_model_tells_best(tmp_path: Path) -> None:
    earlier(tmp_path, "20260101-000000-eval", "openai/o3", 9_000)
    earlier(tmp_path, "20260102-000000-eval", "openai/o3", 5_000)
    earlier(tmp_path, "20260103-000000-eval", "openai/gpt-4.1", 7_000)
    # Killed ones have no say.
    earlier(tmp_path, "20260104-000000-eval", "openai/o3", 1_000, complete=False)
    estimate = estimate_cost("openai/o3", 10, tmp_path)
    one = 4_500 * O3[0] + 500 * O3[1] + 300 * O3[2]
    assert estimate.usd == pytest.approx(10 * one)
    assert "as openai/o3 in 20260102-000000-eval" in str(estimate)
    # Another model's tokens are nearer the truth than an assumption.
    other = estimate_cost("openai/o4-mini", 10, tmp_path)
    assert other.tokens.prompt == 7_000


def test_runs_that_used_no_tokens_or_are_of_the_old_form_are_passed_over(tmp_path: Path) -> None:
    earlier(
        tmp_path,
        "20260101-000000-eval",
        "offline",
        0,
        older={"tokens": {"prompt_tokens": 1.0, "completion_tokens": 1.0}},
    )
    assert "assumed" in str(estimate_cost("openai/o3", 1, tmp_path))


def test_a_price_that_is_not_known_is_not_zero(tmp_path: Path) -> None:
    estimate = estimate_cost("hosted_vllm/Qwen2.5-14B-Instruct", 10, tmp_path)
    assert estimate.usd is None
    assert "cost unknown" in str(estimate)
