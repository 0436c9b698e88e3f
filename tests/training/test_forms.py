"""The form of an episode, from whatever says it: a recipe, a file, a run, a checkpoint in one."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from art_e.errors import UserError
from art_e.tools import View
from training.recipe import EpisodeForm, Recipe, load_recipe, named_recipe

TOML = """
[model.scratch]
[data.worlds]
train = [0, 2]
validation = [2, 3]
test = [3, 4]
[episode]
max_turns = 4
prompt = "Answer $inbox_address."
hits = 3
snippet_chars = 40
addresses = false
"""
EXPECTED = EpisodeForm(
    max_turns=4, prompt="Answer $inbox_address.", hits=3, snippet_chars=40, addresses=False
)


@pytest.fixture
def recipe_file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(TOML, encoding="utf-8")
    return path


@pytest.fixture
def run_folder(recipe_file: Path, tmp_path: Path) -> Path:
    """A training run's folder with one checkpoint, whose own config is a model's."""
    folder = tmp_path / "run"
    checkpoint = folder / "checkpoints" / "checkpoint-40"
    checkpoint.mkdir(parents=True)
    write(checkpoint / "config.json", {"model_type": "qwen2"})
    recipe = load_recipe(str(recipe_file))
    write(folder / "config.json", {"name": "sft", "kind": "sft", "recipe": recipe.to_row()})
    return folder


def write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")


def test_a_file_a_run_and_its_checkpoint_say_the_same(recipe_file: Path, run_folder: Path) -> None:
    inside = run_folder / "checkpoints" / "checkpoint-40"
    forms = [named_recipe(str(each)).episode for each in (recipe_file, run_folder, inside)]
    assert forms == [EXPECTED] * 3
    assert forms[0].view == View(True, 3, 40, False)


def test_a_checkpoint_is_found_from_within_it(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run_folder / "checkpoints" / "checkpoint-40")
    assert named_recipe(".").episode == EXPECTED


def test_a_folder_of_other_things_says_what_to_name(tmp_path: Path) -> None:
    other = tmp_path / "a" / "b" / "model"
    other.mkdir(parents=True)
    write(other / "config.json", {"model_type": "qwen2"})
    with pytest.raises(UserError, match="name the recipe that the model was trained by"):
        named_recipe(str(other))


@pytest.mark.parametrize("content", ["{", "[]", '{"recipe": "nano"}'])
def test_a_config_without_a_recipe_is_no_run(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(UserError, match="no training run"):
        named_recipe(str(tmp_path))


def test_a_recipe_of_another_version_is_told_by_its_field(run_folder: Path) -> None:
    config = json.loads((run_folder / "config.json").read_text())
    config["recipe"]["episode"]["max_turns"] = "many"
    write(run_folder / "config.json", config)
    with pytest.raises(UserError, match=r"episode\.max_turns") as raised:
        named_recipe(str(run_folder))
    assert "\n" not in str(raised.value)


def test_what_is_nothing_at_all(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no recipe"):
        named_recipe(str(tmp_path / "nowhere"))


def test_a_folder_that_happens_to_bear_a_recipes_name_does_not_hide_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deep" / "er" / "small").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep" / "er")
    recipe = Recipe.model_validate({**tomllib.loads(TOML), "name": "small"})
    monkeypatch.setattr("training.recipe.recipe_names", lambda: ["small"])
    monkeypatch.setattr("training.recipe.load_recipe", {"small": recipe}.__getitem__)
    assert named_recipe("small").episode == EXPECTED
