"""Validation chooses: the prompt by what it handles right, the seed by its best checkpoint."""

import json
from pathlib import Path

import pytest

from art_e.runs import Run
from tests.evals.runs import episodes, write_run
from training.reproduction.choice import choose_prompt, chosen_seed, compared_in


def grpo(folder: Path, best: int, rows: dict[int, tuple[float, float]]) -> Path:
    """A run of GRPO whose validations handled such shares right, and wrong."""
    folder.mkdir()
    validation = [
        {"step": step, "correct": correct, "hallucination": wrong}
        for step, (correct, wrong) in rows.items()
    ]
    metrics = {"best_checkpoint": f"checkpoints/checkpoint-{best}", "validation": validation}
    (folder / "metrics.json").write_text(json.dumps(metrics))
    return folder


def _run(folder: Path, right: int) -> Run:
    return write_run(folder, episodes("m", {"right": right, "wrong": 10 - right}))


def test_the_seed_of_the_best_checkpoint(tmp_path: Path) -> None:
    runs = {
        0: grpo(tmp_path / "a", 10, {0: (0.9, 0.0), 10: (0.5, 0.1)}),
        1: grpo(tmp_path / "b", 20, {10: (0.2, 0.1), 20: (0.6, 0.3)}),
        2: grpo(tmp_path / "c", 20, {20: (0.6, 0.1)}),
        3: grpo(tmp_path / "d", 20, {20: (0.6, 0.1)}),
    }
    assert chosen_seed(runs) == 2


def test_without_a_model_the_first_prompt_stays(tmp_path: Path) -> None:
    prompts = {"default": None, "brief": "Answer."}
    assert choose_prompt(tmp_path, prompts, {each: [] for each in prompts}) == {
        "name": "default",
        "text": None,
    }
    assert compared_in(tmp_path) == ("default", [])


@pytest.mark.parametrize("better", ["default", "brief"])
def test_the_prompt_that_handles_most_right_is_chosen(tmp_path: Path, better: str) -> None:
    prompts = {"default": None, "brief": "Answer."}
    runs = {name: [_run(tmp_path / name, 9 if name == better else 6)] for name in prompts}
    chosen = choose_prompt(tmp_path, prompts, runs)
    assert chosen == {"name": better, "text": prompts[better]}
    name, rows = compared_in(tmp_path)
    assert name == better
    assert {each["name"]: each["correct"]["value"] for each in rows} == {
        each: 0.9 if each == better else 0.6 for each in prompts
    }


def test_of_equal_prompts_the_first_stays(tmp_path: Path) -> None:
    prompts = {"default": None, "brief": "Answer."}
    runs = {name: [_run(tmp_path / name, 5)] for name in prompts}
    assert choose_prompt(tmp_path, prompts, runs)["name"] == "default"


def test_episodes_of_all_models_count(tmp_path: Path) -> None:
    prompts = {"default": None, "brief": "Answer."}
    runs = {
        "default": [_run(tmp_path / "a", 9), _run(tmp_path / "b", 1)],
        "brief": [_run(tmp_path / "c", 6), _run(tmp_path / "d", 5)],
    }
    assert choose_prompt(tmp_path, prompts, runs)["name"] == "brief"
    assert [each["correct"]["n"] for each in compared_in(tmp_path)[1]] == [20, 20]
