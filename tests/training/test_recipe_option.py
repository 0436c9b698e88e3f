"""`--recipe`: questions are asked in the form of episodes that a recipe says."""

import json
from pathlib import Path
from typing import Any

import pytest

from art_e.trajectory import Trajectory, read_trajectories
from data_pipeline.synthetic.world import WorldConfig, questions
from tests.command_line import ANN, Run, json_of, the_error
from training.recipe import load_recipe

RECIPE = """
[model.scratch]
[data.worlds]
train = [0, 2]
validation = [2, 3]
test = [3, 4]
[episode]
max_turns = 4
prompt = "You have $max_turns turns."
hits = 2
snippet_chars = 12
addresses = false
spaced = true
"""
SHOWN = {"handles": True, "hits": 2, "snippet_chars": 12, "addresses": False, "spaced": True}
VIEW = {**SHOWN, "all_words": False, "calls": 4, "closed_book": False}
ASKED = questions(WorldConfig(size=1000))[:4]


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(RECIPE, encoding="utf-8")
    return path


@pytest.fixture
def trained(recipe: Path, tmp_path: Path) -> Path:
    """A training run's folder, as far as it is asked for its recipe."""
    folder = tmp_path / "trained"
    folder.mkdir()
    row = load_recipe(str(recipe)).to_row()
    (folder / "config.json").write_text(json.dumps({"name": "sft", "recipe": row}))
    return folder


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    path = tmp_path / "questions.jsonl"
    rows = [json.dumps(each.to_row()) for each in ASKED]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def evaluate(golden: Path, db: Path, *more: object) -> list[object]:
    return ["eval", "run", "-m", "offline", "--questions", golden, "--db", db, *more]


def hits_of(trajectory: Trajectory) -> list[dict[str, Any]]:
    """All that searches of the episode brought up."""
    shown = [
        json.loads(each["content"].partition("\n")[0])
        for each in trajectory.messages
        if each["role"] == "tool"
    ]
    return [hit for each in shown for hit in each.get("hits", ())]


def assert_of_the_recipe(trajectory: Trajectory) -> None:
    assert trajectory.messages[0]["content"] == "You have 4 turns."
    assert trajectory.rubric["max_turns"] == 4
    hits = hits_of(trajectory)
    assert hits
    assert all(len(each["snippet"].removesuffix("...")) <= 12 for each in hits)
    # A name stands alone, without its address.
    assert not any("<" in each["from"] for each in hits)


def test_a_run_gets_the_form(art_e: Run, golden: Path, world_db: Path, recipe: Path) -> None:
    shown = json_of(art_e(*evaluate(golden, world_db, "--recipe", recipe, "--json")))
    folder = Path(shown["run"])
    trajectories = list(read_trajectories(folder / "trajectories.jsonl"))
    assert len(trajectories) == len(ASKED)
    for each in trajectories:
        assert_of_the_recipe(each)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    assert config["view"] == VIEW
    assert (config["max_turns"], config["recipe"]) == (4, str(recipe))
    assert config["prompt"] == shown["prompt"]
    assert shown["prompt"]["name"] == "recipe"


def test_a_recipe_excludes_the_options_that_it_decides(
    art_e: Run, golden: Path, world_db: Path, recipe: Path, tmp_path: Path
) -> None:
    options = ("--max-turns", "4", "--prompt", "mine.txt", "--out", tmp_path / "run")
    error = the_error(art_e(*evaluate(golden, world_db, "--recipe", recipe, *options)))
    assert "--recipe decides --max-turns and --prompt" in error
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("options", [[], ["--split", "validation"]])
def test_the_questions_of_a_recipe_by_split(art_e: Run, recipe: Path, options: list[str]) -> None:
    command = ("eval", "run", "-m", "offline", "--recipe", recipe, "--limit", 3)
    run = Path(json_of(art_e(*command, *options, "--json"))["run"])
    split = options[-1] if options else "test"
    config = json.loads((run / "config.json").read_text("utf-8"))
    assert config["questions"] == f"{split} of {recipe}"
    rows = read_trajectories(run / "trajectories.jsonl")
    assert {(each.question or {})["split"] for each in rows} == {split}


def test_one_question_in_the_form_of_a_recipe(art_e: Run, db: Path, trained: Path) -> None:
    question = "When does the warehouse lease end?"
    shown = json_of(
        art_e("ask", question, "--inbox", ANN, "--db", db, "--recipe", trained, "--json")
    )
    path = Path(shown["trajectory"])
    [trajectory] = read_trajectories(path)
    assert_of_the_recipe(trajectory)
    config = json.loads((path.parent / "config.json").read_text("utf-8"))
    assert (config["recipe"], config["max_turns"]) == (str(trained), 4)
