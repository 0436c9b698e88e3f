"""`eval run --gpu-usd-per-hour`: the cost of a model behind the wire, by the time it takes.

The provider of tests/provider.py stands in for a server of one's own; a real server is in
test_eval_served.py.
"""

import datetime as dt
import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from art_e.message import ToolCall
from art_e.models.base import Usage
from art_e.models.model import Model
from art_e.question import Question
from art_e.runs import Run as RunFolder
from data_pipeline.synthetic.world import WorldConfig, questions
from evals.benchmark import command, estimate_cost
from tests.command_line import Run, json_of, the_error
from tests.provider import Provider, Reply, Request, refuses, says

MODEL = "hosted_vllm/talk"
ASKED = questions(WorldConfig(size=1000))[:6]
USAGE = Usage(10_000, 2_000, 1_000)
SLOW_S = 0.05


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(each.to_row()) + "\n" for each in ASKED), encoding="utf-8")
    return path


def asked_in(request: Request) -> Question:
    said = [each["content"] for each in request.messages]
    [question] = [each for each in ASKED if each.question in said]
    return question


def knows_all(request: Request) -> Reply:
    """The gold answer, a while later."""
    question = asked_in(request)
    arguments = {"answer": question.answer, "sources": list(question.message_ids)}
    call = ToolCall("c", "return_final_answer", json.dumps(arguments))
    return says(None, call, usage=USAGE, delay_s=SLOW_S)


@pytest.fixture
def run(art_e: Run, golden: Path, world_db: Path, monkeypatch: pytest.MonkeyPatch) -> "Any":
    """Runs the command against a provider with that rule."""

    def run(*more: object, rule: Any = knows_all, model: str = MODEL) -> Result:
        options = ("--questions", golden, "--db", world_db, "-m", model, *more)
        with Provider(rule) as provider:
            monkeypatch.setenv("HOSTED_VLLM_API_BASE", provider.base_url)
            return art_e("eval", "run", *options)

    return run


def test_the_cost_is_the_time_at_the_gpus_price(run: Any) -> None:
    began = time.perf_counter()
    result = run("--gpu-usd-per-hour", 7.2, "--gpus", 2, "--json", "-m", "offline")
    whole = time.perf_counter() - began
    shown = json_of(result)
    figures = shown["models"][MODEL]
    measured = figures["throughput"]
    n = len(ASKED)
    assert n * SLOW_S <= measured["seconds"] < whole
    assert (measured["n"], measured["concurrency"]) == (n, 1)
    # Two GPUs at $7.20 are 0.4 cents a second.
    assert figures["cost_usd"] == pytest.approx(0.004 * measured["seconds"])
    assert figures["cost_per_1000_usd"]["value"] == pytest.approx(1000 * figures["cost_usd"] / n)
    assert figures["cost_per_1000_usd"]["low"] <= figures["cost_per_1000_usd"]["value"]
    assert figures["cost_source"] == "measured on your 2 GPUs at $7.20/h each, concurrency 1"
    rate = measured["questions_per_second"]["value"]
    assert rate == pytest.approx(n / measured["seconds"])
    assert measured["prompt_tokens_per_second"]["value"] == pytest.approx(10_000 * rate)
    # Nobody serves the baseline.
    assert shown["models"]["offline"]["throughput"] is None


def test_what_was_measured_on_is_in_the_runs_configuration(run: Any) -> None:
    shown = json_of(run("--gpu-usd-per-hour", 2, "--concurrency", 3, "--json"))
    config = RunFolder(Path(shown["run"])).config
    assert config["gpu_usd_per_hour"] == 2.0
    assert (config["gpus"], config["self_hosted"]) == (1, [MODEL])
    assert config["concurrency"] == {MODEL: 3}
    assert "--gpu-usd-per-hour 2.0" in (command(config) or "")
    assert shown["models"][MODEL]["throughput"]["concurrency"] == 3


def test_the_lines_for_prices_toml_give_the_measured_cost(
    run: Any, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run("--gpu-usd-per-hour", 2, "--json")
    figures = json_of(result)["models"][MODEL]
    noted = result.stderr.splitlines()
    assert f"add to {home / 'prices.toml'}:" in result.stderr
    first = noted.index(f'[models."{MODEL}"]')
    (home / "prices.toml").write_text("\n".join(noted[first : first + 4]) + "\n")
    monkeypatch.setenv("ART_E_HOME", str(home))
    expected = estimate_cost(MODEL, 1_000, home / "runs")
    assert expected.usd == pytest.approx(figures["cost_per_1000_usd"]["value"], rel=1e-4)


def test_the_measurement_wins_over_prices_toml(run: Any, home: Path) -> None:
    home.mkdir()
    (home / "prices.toml").write_text(
        f'[models."{MODEL}"]\nusd_per_million_prompt = 1000\nusd_per_million_completion = 1000\n'
    )
    told = json_of(run("--json"))["models"][MODEL]
    assert told["cost_per_1000_usd"]["value"] == pytest.approx(11_000)
    assert (told["cost_source"], told["throughput"]) == ("price per token", None)
    measured = json_of(run("--gpu-usd-per-hour", 2, "--json"))["models"][MODEL]
    assert measured["cost_per_1000_usd"]["value"] < 11
    assert measured["cost_source"].startswith("measured on your GPU")


def test_people_see_it_in_the_table_in_a_comparison_and_in_the_report(
    run: Any, art_e: Run, home: Path, tmp_path: Path
) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    result = run("--gpu-usd-per-hour", 2, "--concurrency", 2, "--out", own)
    assert result.exit_code == 0, result.output
    source = "measured on your GPU at $2.00/h, concurrency 2"
    [line] = [each for each in result.stdout.splitlines() if source in each]
    assert line.startswith(f"{MODEL}: $")
    for part in ("per 1,000 questions", "questions/s", "tokens/s", "under way at a time"):
        assert part in line
    assert "cost unknown" not in result.stdout
    assert run("--out", other).exit_code == 0
    compared = art_e("eval", "compare", own, other)
    assert f"cost of A: {source}" in compared.stdout
    assert "cost of B" not in compared.stdout
    assert json_of(art_e("eval", "report", own, "--json"))["report"]
    page = (own / "report.html").read_text("utf-8")
    assert f"Cost of {MODEL}: {source}. Other costs are by price per token." in page
    assert "throughput of models on your GPU" in page


def test_a_resumed_run_counts_the_time_of_both_parts_and_none_between(
    run: Any, tmp_path: Path
) -> None:
    out = tmp_path / "mine"
    options = ("--gpu-usd-per-hour", 2, "--out", out, "--json")
    whole = json_of(run(*options))["models"][MODEL]
    lines = (out / "trajectories.jsonl").read_text("utf-8").splitlines(keepends=True)
    # As after a kill an hour before: the last two are to be asked again.
    kept = [json.loads(line) for line in lines[:4]]
    for each in kept:
        begun = dt.datetime.fromisoformat(each["started_at"])
        each["started_at"] = (begun - dt.timedelta(hours=1)).isoformat()
    (out / "trajectories.jsonl").write_text(
        "".join(json.dumps(each) + "\n" for each in kept), encoding="utf-8"
    )
    for name in ("COMPLETE", "metrics.json"):
        (out / name).unlink()
    resumed = json_of(run(*options, "--resume"))["models"][MODEL]["throughput"]
    of_both = json.loads((out / "metrics.json").read_text("utf-8"))["models"][MODEL]["throughput"]
    assert resumed == of_both
    first = sum(each["seconds"]["total"] for each in kept)
    assert first + 2 * SLOW_S < resumed["seconds"] < 3 * whole["throughput"]["seconds"]
    assert resumed["n"] == len(ASKED)
    # Another price is another run.
    assert "gpu_usd_per_hour 2.0, not 3.0" in the_error(
        run("--gpu-usd-per-hour", 3, "--out", out, "--resume")
    )


def test_a_server_that_is_down_has_no_cost(run: Any) -> None:
    result = run("--gpu-usd-per-hour", 2, "--limit", 2, rule=lambda _: refuses(400, "down"))
    assert "cost not measured: no question was worked on to its end" in result.stdout
    assert f"{MODEL}: its cost was not measured" in result.stderr
    assert not re.search(r"\$\d", result.stdout)


def test_a_server_that_tells_no_tokens(run: Any) -> None:
    def silent(request: Request) -> Reply:
        arguments = {"answer": "So.", "sources": []}
        call = ToolCall("c", "return_final_answer", json.dumps(arguments))
        return says(None, call, usage=None)

    result = run("--gpu-usd-per-hour", 2, "--limit", 2, rule=silent)
    assert "per 1,000 questions, measured on your GPU" in result.stdout
    assert "its server reports no tokens" in result.stderr


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--gpus", 2), "add --gpu-usd-per-hour"),
        (("--gpu-usd-per-hour", "inf"), "is no sum"),
        (("--gpu-usd-per-hour", 2, "--cache"), "measures time"),
    ],
)
def test_what_can_not_be_measured_is_refused(
    run: Any, options: tuple[object, ...], why: str
) -> None:
    assert why in the_error(run(*options))


def test_a_hosted_model_has_no_gpu_of_ones_own(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789abcdef")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    line = the_error(run("--gpu-usd-per-hour", 2, model="openai/o3"))
    assert "-m hosted_vllm/NAME" in line
    assert os.environ.get("OPENAI_BASE_URL") is None


@pytest.mark.parametrize(
    ("model", "shares"),
    [("hosted_vllm/talk", True), ("offline", True), ("openai/o3", False)],
)
def test_models_that_share_a_gpu_are_asked_one_after_the_other(
    model: str, shares: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of `hosted_vllm` have one server, which may be on another machine."""
    monkeypatch.setenv("HOSTED_VLLM_API_BASE", "http://gpu.lan:8000/v1")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    assert Model(model).shares_machine is shares
