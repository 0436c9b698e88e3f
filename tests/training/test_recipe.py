"""Recipes: loaded by name or path, changed by --set, refused in a line; `--recipe`."""

import json
import shlex
import shutil
import tomllib
from pathlib import Path

import pytest

from art_e.runs import read_trajectories
from data_pipeline.synthetic.world import WorldConfig, questions
from tests.builders import table_rows, write_lines
from tests.builders import the_error as the_user_error
from tests.command_line import ANN, Run, json_of, the_error
from training.recipe import load_recipe


def test_recipe_loads_by_name_or_file_with_changes(tmp_path: Path) -> None:
    by_name = load_recipe("nano")
    assert by_name.name == "nano"
    nano = Path(__file__).parents[2] / "training" / "recipes" / "nano.toml"
    by_file = load_recipe(str(shutil.copyfile(nano, tmp_path / "mine.toml")))
    assert by_file == by_name.model_copy(update={"name": "mine"})
    changes = ["grpo.rate=1e-5", "reward.effort=0", "name=short", "sft.stages=[{steps=3}]"]
    recipe = load_recipe("nano", [*changes, "episode.prompt=Say so = or not.", "model.lora=4"])
    assert recipe.grpo is not None and recipe.sft is not None
    assert (recipe.grpo.rate, recipe.reward.effort, recipe.name) == (1e-5, 0.0, "short")
    assert recipe.sft.steps == 3
    # A value that is not TOML is text, and may contain "=".
    assert recipe.episode.prompt == "Say so = or not."
    assert recipe.model.lora == 4


@pytest.mark.parametrize(("line", "words"), table_rows(__file__, "user_errors.tsv"))
def test_user_errors(art_e: Run, line: str, words: str) -> None:
    assert words in the_error(art_e(*shlex.split(line)))


def test_invalid_recipe_files(tmp_path: Path) -> None:
    (tmp_path / "torn.toml").write_text("[grpo\nsteps = 3")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    for name, words in (
        ("none", "no recipe 'none'; there are"), (tmp_path / "none.toml", "no recipe"),
        (tmp_path / "torn.toml", "is not valid TOML"), (tmp_path / "binary.toml", "no recipe"),
    ):  # fmt: skip
        assert words in the_user_error(load_recipe, str(name))


# ---- `--recipe`: questions are asked in a recipe's form of episodes.

FORM = Path(__file__).with_name("form.toml")
QUESTION = questions(WorldConfig(size=1000))[0]


def assert_in_the_form(path: Path) -> None:
    assert json.loads((path.parent / "config.json").read_text("utf-8"))["max_turns"] == 4
    for trajectory in read_trajectories(path):
        assert trajectory.messages[0]["content"] == "You have 4 turns."
        assert trajectory.rubric["max_turns"] == 4
        results = [each["content"] for each in trajectory.messages if each["role"] == "tool"]
        pages = [json.loads(each.partition("\n")[0]) for each in results]
        hits = [hit for each in pages for hit in each.get("hits", ())]
        assert hits
        assert all(len(each["snippet"].removesuffix("...")) <= 12 for each in hits)
        # A name is alone, without its address.
        assert not any("<" in each["from"] for each in hits)


def test_eval_run_takes_a_form(art_e: Run, world_db: Path, tmp_path: Path) -> None:
    golden = write_lines(tmp_path / "questions.jsonl", QUESTION.to_row())
    words = ("eval", "run", "-m", "offline", "--questions", golden, "--db", world_db)
    printed = json_of(art_e(*words, "--recipe", FORM, "--json"))
    assert_in_the_form(Path(printed["run"]) / "trajectories.jsonl")
    assert printed["prompt"]["name"] == "recipe"
    # It excludes the options that it decides.
    error = the_error(art_e(*words, "--recipe", FORM, "--max-turns", "4", "--prompt", "mine.txt"))
    assert "--recipe already sets --max-turns and --prompt" in error


def test_ask_takes_the_form_of_a_run(art_e: Run, db: Path, tmp_path: Path) -> None:
    run = tmp_path / "trained"
    best = run / "checkpoints" / "checkpoint-1"
    best.mkdir(parents=True)
    (run / "metrics.json").write_text('{"best_checkpoint": "checkpoints/checkpoint-1"}')
    (best / "episode.json").write_text(json.dumps(tomllib.loads(FORM.read_text())["episode"]))
    words = ("ask", "When does the warehouse lease end?", "--inbox", ANN, "--db", db)
    assert_in_the_form(Path(json_of(art_e(*words, "--recipe", run, "--json"))["trajectory"]))


def test_file_without_a_form_is_refused(art_e: Run, db: Path, tmp_path: Path) -> None:
    path = tmp_path / "no-form.toml"
    command = ("ask", "When?", "--db", db, "--inbox", ANN, "--recipe", path)
    assert "name a TOML file" in the_error(art_e(*command))
    for content, words in (
        ("[model]", "has no episode form"),
        ("[episode", "has no episode form"),
        ("[episode]\nmax_turns = 0", "episode.max_turns: Input should be greater"),
    ):
        path.write_text(content)
        assert words in the_error(art_e(*command))
