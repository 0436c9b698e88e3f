"""`art-e train`: from nothing to a checkpoint that answers, and what is refused in a line."""

import asyncio
import json
import re
from pathlib import Path

import pytest
from typer.testing import Result

from art_e.models.base import ModelOptions
from art_e.models.local import LocalPolicy
from art_e.tools import schemas
from tests.command_line import Run, json_of, the_error
from tests.training import tiny

FEW = (
    "judging.questions=3",
    "judging.test_questions=3",
    "sft.stages=[{part='first', steps=2, batch=4}, {steps=2, batch=4}]",
    "grpo.steps=1",
)


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of all tests that train, whose worlds are there already."""
    return tiny.home_of(tmp_path_factory)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trained")


def changes(*more: str) -> list[str]:
    return [part for each in (*tiny.CHANGES, *FEW, *more) for part in ("--set", each)]


def test_a_start_then_grpo_then_an_answer(art_e: Run, out: Path, tmp_path: Path) -> None:
    start, trained = out / "start", out / "trained"
    metrics = json_of(art_e("train", "sft", *changes(), "--out", start, "--json"))
    assert metrics["run"] == str(start)
    assert [each["step"] for each in metrics["validation"]] == [0, 2, 4]
    result = art_e("train", "grpo", *changes(), "--init", start, "--out", trained)
    assert result.exit_code == 0, result.output
    # Data alone on stdout, and none was asked for.
    assert result.stdout == ""
    assert "no baseline" in result.stderr
    assert f"art-e eval report {trained}" in result.stderr
    metrics = json.loads((trained / "metrics.json").read_text("utf-8"))
    best = trained / metrics["best_checkpoint"]
    assert f"local:{best}" in result.stderr
    policy = LocalPolicy(str(best), ModelOptions(max_output_tokens=4))
    step = asyncio.run(policy.act([{"role": "user", "content": "Who?"}], schemas()))
    assert step.usage.completion_tokens <= 4
    # A run that has ended is not begun again, nor gone on with.
    for more in ([], ["--resume"]):
        again = art_e("train", "grpo", *changes(), "--init", start, "--out", trained, *more)
        assert str(trained) in the_last_line(again)


def test_a_pause_is_told_and_gone_on_from(art_e: Run, tmp_path: Path) -> None:
    start, trained = tmp_path / "start", tmp_path / "trained"
    command = ("train", "sft", *changes("sft.validate_every=4"), "--out", start)
    result = art_e(*command, "--minutes", "0")
    assert result.exit_code == 0, result.output
    assert the_lines(result)[-1] == (
        f"paused: 0 minutes are over; the same command with --resume --out {start} goes on"
    )
    assert [each.name for each in (start / "checkpoints").glob("checkpoint-*")] == ["checkpoint-1"]
    metrics = json_of(art_e(*command, "--resume", "--json"))
    assert metrics["paused"] is None
    assert (start / "COMPLETE").is_file()
    # The start may be named as the model, in place of one that is made from nothing.
    more = changes("grpo.steps=2", "grpo.validate_every=2", "grpo.logit_scale_rate=0")
    command = ("train", "grpo", *more, "--base-model", start, "--out", trained, "--json")
    metrics = json_of(art_e(*command, "--minutes", "0"))
    assert metrics["paused"] == "0 minutes are over"
    assert metrics["test"] is None
    metrics = json_of(art_e(*command, "--resume"))
    assert metrics["paused"] is None
    assert metrics["test"]["greedy"]["n"] == 3


def test_what_judges_may_cost_is_told_before_the_start(art_e: Run, tmp_path: Path) -> None:
    """No key is there, so that the start is as far as it gets."""
    told = changes(
        "judging.reward='openai/gpt-4.1'", "grpo.steps=100", "grpo.rollouts=8", "grpo.resample=0"
    )
    command = ("train", "grpo", *told, "--init", "start", "--out", tmp_path / "run")
    result = art_e(*command, "--max-cost", "5")
    assert result.exit_code == 2
    fee = next(each for each in the_lines(result) if each.startswith("judge openai/gpt-4.1"))
    # Two questions of eight rollouts a step, 51 validations of three questions, the test twice.
    assert re.fullmatch(r".*: about \$\d+\.\d\d for 1,759 episodes; \$5\.00 at most", fee), fee
    assert "no limit: --max-cost sets one" in art_e(*command).stderr


def the_lines(result: Result) -> list[str]:
    return result.stderr.splitlines()


def the_last_line(result: Result) -> str:
    """The error of a command that said something before it."""
    assert result.exit_code == 2, result.output
    return result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["sft", "--recipe", "none"], "no recipe 'none'"),
        (["sft", "--set", "sft.speed=9"], "sft.speed"),
        (["sft", "--set", "nothing"], "table.field=value"),
        (["sft", "--resume"], "--out"),
        (["sft", "--init", "none"], "there is no folder none"),
        (["merge", "none", "--out", "out"], "none"),
    ],
)
def test_errors(art_e: Run, args: list[str], said: str, tmp_path: Path) -> None:
    where = [] if "--resume" in args or args[0] == "merge" else ["--out", tmp_path / "run"]
    few = [] if args[0] == "merge" else changes()
    command = ["train", args[0], *few, *args[1:], *where]
    assert said in the_error(art_e(*command))


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "name its folder with --init"),
        (["--init", "none"], "none"),
        (["--init", "none", "--baseline", "none"], "no run 'none'"),
        (["--report-to", "trackio"], "pip install trackio"),
    ],
)
def test_errors_of_grpo(art_e: Run, args: list[str], said: str, tmp_path: Path) -> None:
    result = art_e("train", "grpo", *changes(), *args, "--out", tmp_path / "run")
    assert said in the_last_line(result)
