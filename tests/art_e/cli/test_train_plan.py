"""`art-e train plan`: what is printed, as data and for people, and what is refused in a line."""

import shutil
from pathlib import Path

import pytest

from tests.command_line import Run, json_of, the_error

# Real runs, made once a session for all tests that look into them.
from tests.training.conftest import trained, training_home, warm  # noqa: F401
from training.recipe import recipe_names


@pytest.mark.parametrize("recipe", recipe_names())
def test_each_recipe_is_told_line_by_line(art_e: Run, recipe: str) -> None:
    gpus = "4" if recipe == "talk-multi" else "1"
    result = art_e("train", "plan", "--recipe", recipe, "--gpus", gpus)
    assert result.exit_code == 0, result.output
    for said in ("weights", "AdamW", "keys and values", "trained on", "an hour", "assumed", "fit"):
        assert said in result.stdout
    row = json_of(art_e("train", "plan", "--recipe", recipe, "--gpus", gpus, "--json"))
    assert row["recipe"] == recipe
    for stage in row["stages"]:
        for phase in stage["memory"]:
            size = sum(line["size"] for line in phase["lines"])
            assert size == phase["bytes"] == row["memory_bytes"] - phase["left"]


def test_options_change_the_plan(art_e: Run, tmp_path: Path) -> None:
    plan = ("train", "plan", "--recipe", "talk", "--json")
    talk = json_of(art_e(*plan))
    assert talk["gpu"] == "h100-80gb"
    assert talk["fits"]
    dear = json_of(art_e(*plan, "--usd-per-hour", "6"))
    assert dear["gpu_usd"] == pytest.approx(6 * talk["hours"])
    short = json_of(art_e(*plan, "--set", "grpo.steps=100"))
    assert short["hours"] < talk["hours"] / 5
    small = json_of(art_e(*plan, "--base-model", "Qwen/Qwen2.5-7B-Instruct"))
    assert small["parameters"] == pytest.approx(7.61e9, rel=0.01)


def test_what_does_not_fit_comes_with_what_to_change(art_e: Run) -> None:
    plan = ("train", "plan", "--recipe", "talk", "--set", "grpo.vllm.memory=0.3")
    result = art_e(*plan)
    # It was planned, which is what was asked for.
    assert result.exit_code == 0
    assert "one whole episode" in result.stdout
    assert "1. --set grpo.vllm.memory=" in result.stdout
    row = json_of(art_e(*plan, "--json"))
    assert not row["fits"]
    mended = [each for change in row["remedies"][0]["changes"] for each in ("--set", change)]
    assert json_of(art_e(*plan, *mended, "--json"))["fits"]


def test_a_run_stands_beside_its_plan(art_e: Run, trained: Path) -> None:  # noqa: F811
    row = json_of(art_e("train", "plan", "--against", trained, "--json"))
    assert row["recipe"] == "nano"
    by_name = {each["what"]: each for each in row["compared"]}
    assert by_name["steps"] == {"what": "steps", "planned": 3, "reported": 3}
    generated = by_name["tokens a step, generated"]
    assert generated["reported"] > 0
    assert by_name["most memory in use, GB"]["reported"] is None
    # Groups were replaced at most once, which is planned for all of them.
    told = {each["what"]: each for each in row["by_its_own"]}
    assert 0.45 < generated["reported"] / told["tokens a step, generated"]["planned"] <= 1.01
    shown = art_e("train", "plan", "--against", trained)
    assert "by its episodes" in shown.stdout
    assert "tokens a step, generated" in shown.stdout


def test_a_warm_start_and_an_unfinished_run_are_compared_too(
    art_e: Run,
    warm: Path,  # noqa: F811
    trained: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    row = json_of(art_e("train", "plan", "--against", warm, "--json"))
    assert row["compared"][1]["what"] == "tokens a step, trained on"
    assert row["compared"][1]["reported"] > 0
    begun = tmp_path / "begun"
    shutil.copytree(trained, begun)
    for name in ("COMPLETE", "metrics.json", "steps.jsonl", "trajectories.jsonl"):
        (begun / name).unlink()
    row = json_of(art_e("train", "plan", "--against", begun, "--json"))
    assert row["compared"][0]["reported"] == 0
    assert row["by_its_own"] == []
    assert art_e("train", "plan", "--against", begun).exit_code == 0


def test_what_can_not_be_planned_is_one_line(art_e: Run, trained: Path) -> None:  # noqa: F811
    plan = ("train", "plan")
    assert "h100-80gb" in the_error(art_e(*plan, "--gpu", "tpu"))
    assert "talk-multi" in the_error(art_e(*plan, "--recipe", "none"))
    assert "--gpus 2" in the_error(art_e(*plan, "--recipe", "talk-multi"))
    assert "no run" in the_error(art_e(*plan, "--against", "none"))
    assert "nano" in the_error(art_e(*plan, "--recipe", "talk", "--against", trained))
    changed = art_e(*plan, "--set", "grpo.steps=1", "--against", trained)
    assert "--recipe" in the_error(changed)


def test_help_has_an_example(art_e: Run) -> None:
    assert "art-e train plan --recipe talk" in art_e("train", "plan", "--help").stdout
