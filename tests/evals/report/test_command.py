"""The command of a report leads back to the run it tells of."""

import shlex
from typing import Any

import pytest

from evals.report.build import command

CONFIG: dict[str, Any] = {
    "models": ["offline", "openai/o3"],
    "judges": ["offline/2", "gemini/gemini-2.5-flash@1f0c3a9b"],
    "questions": "my questions.jsonl",
    "split": "test",
    "limit": None,
    "repeat": 2,
    "prompt": {"name": "default", "hash": "0123"},
    "max_turns": 10,
    "concurrency": {"offline": 1, "openai/o3": 8},
    "cache": False,
}


def test_it_names_models_judges_and_options() -> None:
    assert shlex.split(command(CONFIG) or "") == [
        "art-e", "eval", "run", "-m", "offline", "-m", "openai/o3",
        "--judge", "offline", "--judge", "gemini/gemini-2.5-flash",
        "--questions", "my questions.jsonl", "--split", "test", "--repeat", "2",
        "--max-turns", "10",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "end"),
    [
        ({"concurrency": {"offline": 4, "openai/o3": 4}}, "--concurrency 4"),
        (
            {"prompt": {"name": "short", "hash": "4567", "path": "my/short one"}},
            "--prompt 'my/short one'",
        ),
        ({"cache": True}, "--cache"),
        (
            {"gpu_usd_per_hour": 2.1, "gpus": 2, "self_hosted": ["hosted_vllm/x"]},
            "--gpu-usd-per-hour 2.1 --gpus 2",
        ),
    ],
)
def test_what_was_chosen_is_in_it(changed: dict[str, Any], end: str) -> None:
    assert (command({**CONFIG, **changed}) or "").endswith(f" {end}")


def test_the_questions_that_a_recipe_keeps_are_not_named_again() -> None:
    kept = {
        **CONFIG,
        "recipe": "nano",
        "questions": "test of nano",
        "split": None,
        "db": "w.duckdb",
    }
    said = command(kept) or ""
    assert "--recipe nano" in said
    for option in ("--questions", "--db", "--max-turns"):
        assert option not in said
    validation = {**kept, "questions": "validation of nano", "split": "validation"}
    assert (command(validation) or "").endswith("--recipe nano")
    assert "--split validation" in (command(validation) or "")
    named = command({**kept, "questions": "mine.jsonl"}) or ""
    assert "--questions mine.jsonl" in named and "--db w.duckdb" in named


def test_judges_without_a_model_are_named_as_the_option_takes_them() -> None:
    for judge in ("offline/1", "f1/1"):
        said = shlex.split(command({**CONFIG, "judges": [judge]}) or "")
        assert said[said.index("--judge") + 1] == judge.partition("/")[0]


def test_a_run_of_another_command_has_none() -> None:
    assert command({"name": "train", "models": ["local:x"], "recipe": "nano"}) is None
