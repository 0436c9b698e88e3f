"""Recipes: found by name or path, changed from the command line, refused in one line."""

import json
from pathlib import Path

import pytest

from art_e.errors import UserError
from training.recipe import load_recipe, named_recipe, recipe_names

NANO = Path(__file__).parents[2] / "training" / "recipes" / "nano.toml"


def test_by_name_and_by_file(tmp_path: Path) -> None:
    assert "nano" in recipe_names()
    by_name = load_recipe("nano")
    assert by_name.name == "nano"
    mine = tmp_path / "mine.toml"
    mine.write_text(NANO.read_text("utf-8"), encoding="utf-8")
    by_file = load_recipe(str(mine))
    assert by_file.name == "mine"
    assert by_file.model_copy(update={"name": "nano"}) == by_name


def test_changes_win_over_the_file() -> None:
    recipe = load_recipe(
        "nano",
        [
            "grpo.rate=1e-5",
            "reward.effort=0",
            "name=short",
            "sft.stages=[{steps=3}]",
            "episode.prompt=Say so = or not.",
            "model.lora.rank=4",
        ],
    )
    assert recipe.grpo is not None
    assert recipe.sft is not None
    assert recipe.model.lora is not None
    assert (recipe.grpo.rate, recipe.reward.effort, recipe.name) == (1e-5, 0.0, "short")
    assert recipe.sft.steps == 3
    # What is no TOML is plain text, and may hold a "=".
    assert recipe.episode.prompt == "Say so = or not."
    assert recipe.model.lora.rank == 4


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("grpo.rate=0", "grpo.rate"),
        ("grpo.rate=nan", "grpo.rate"),
        ("grpo.rollouts=1", "grpo.rollouts"),
        ("grpo.micro_batch=7", "the 128 episodes of each process are no multiple of"),
        ("grpo.loss=ppo", "grpo.loss"),
        ("grpo.speed=9", "grpo.speed"),
        ("sft.stages=[]", "sft.stages"),
        ("sft.noise.guesses=2", "sft.noise.guesses"),
        ("episode.hits=99", "episode.hits"),
        ("reward.abstained=5", "reward"),
        ("data.questions=golden", r"data: beside \[data.worlds\] give both questions and db"),
        ("data.kinds=['riddle']", "data.kinds.0"),
        ("data.worlds.test=[1_000, 1_001]", "data.worlds: .* share a seed"),
        ("data.worlds.test=[5, 5]", r"data.worlds: a span of seeds is \[first, end\)"),
        ("model.bits=4", r"model: weights of 4 bits .* give base and \[model.lora\]"),
        ("grpo", "table.field=value"),
        ("=3", "table.field=value"),
        ("grpo..rate=3", "table.field=value"),
        ("grpo.rate.x=3", "rate is no table"),
    ],
)
def test_what_is_no_recipe_is_refused_in_a_line(change: str, named: str) -> None:
    with pytest.raises(UserError, match=named) as raised:
        load_recipe("nano", [change])
    assert "\n" not in str(raised.value)


def test_vllm_takes_no_weights_of_4_bits() -> None:
    with pytest.raises(UserError, match="vLLM can't take on weights of 4 bits"):
        load_recipe("talk", ["model.bits=4"])


def test_files_that_are_no_recipe(tmp_path: Path) -> None:
    torn = tmp_path / "torn.toml"
    torn.write_text("[grpo\nsteps = 3")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    for name, words in (
        ("none", "no recipe 'none'; there are .*nano"),
        (str(tmp_path / "none.toml"), "no recipe"),
        (str(torn), "is no TOML"),
        (str(binary), "no recipe"),
    ):
        with pytest.raises(UserError, match=words) as raised:
            load_recipe(name)
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize("content", ["{", "[]", '{"recipe": "nano"}'])
def test_a_config_without_a_recipe_is_no_run(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(UserError, match="no training run"):
        named_recipe(str(tmp_path))


@pytest.mark.parametrize(
    ("table", "field", "value"), [("episode", "max_turns", "many"), ("grpo", "resample", 1)]
)
def test_a_recipe_of_another_version_is_refused_by_its_field(
    tmp_path: Path, table: str, field: str, value: object
) -> None:
    row = load_recipe("nano").to_row()
    row[table][field] = value
    (tmp_path / "config.json").write_text(json.dumps({"recipe": row}), encoding="utf-8")
    with pytest.raises(
        UserError, match=rf"{table}\.{field} does not fit.*; name the recipe"
    ) as raised:
        named_recipe(str(tmp_path))
    assert "\n" not in str(raised.value)


def test_a_folder_that_happens_to_bear_a_recipes_name_does_not_hide_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deep" / "er" / "nano").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep" / "er")
    assert named_recipe("nano") == load_recipe("nano")
