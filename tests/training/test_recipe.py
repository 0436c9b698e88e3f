"""Recipes: found by name or path, changed from the command line, refused in one line."""

from pathlib import Path

import pytest

from art_e.errors import UserError
from tests.training import tiny
from training.recipe import load_recipe, recipe_names

NANO = Path(__file__).parents[2] / "training" / "recipes" / "nano.toml"
WORLDS = "data.worlds.train=[1, 3]", "data.worlds.validation=[3, 4]", "data.worlds.test=[5, 6]"


def test_by_name_and_by_file(tmp_path: Path) -> None:
    assert "nano" in recipe_names()
    by_name = load_recipe("nano")
    assert by_name.name == "nano"
    mine = tmp_path / "mine.toml"
    mine.write_text(NANO.read_text("utf-8"), encoding="utf-8")
    by_file = load_recipe(str(mine))
    assert by_file.name == "mine"
    assert by_file.model_copy(update={"name": "nano"}) == by_name


def test_nano_says_what_its_lines_are_for() -> None:
    """Each line has a comment, or stands in a table that has one."""
    tables: list[list[str]] = []
    for line in NANO.read_text("utf-8").splitlines():
        if line.startswith("["):
            tables.append([])
        if tables and line.strip():
            tables[-1].append(line)
    assert len(tables) > 8
    assert [table[0] for table in tables if "#" not in "".join(table)] == []


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


def test_a_recipe_survives_its_own_row() -> None:
    recipe = tiny.recipe()
    assert type(recipe).model_validate(recipe.to_row()) == recipe


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("grpo.rate=0", "grpo.rate"),
        ("grpo.rate=nan", "grpo.rate"),
        ("grpo.rollouts=1", "grpo.rollouts"),
        ("grpo.micro_batch=7", "grpo: questions times rollouts"),
        ("grpo.loss=ppo", "grpo.loss"),
        ("grpo.speed=9", "grpo.speed"),
        ("sft.stages=[]", "sft.stages"),
        ("sft.noise.guesses=2", "sft.noise.guesses"),
        ("episode.hits=99", "episode.hits"),
        ("reward.abstained=5", "reward"),
        ("model.base=Qwen/Qwen2.5-0.5B", "model: give either base or a table"),
        ("data.questions=golden", r"data: beside \[data.worlds\] give both questions and db"),
        ("data.kinds=['riddle']", "data.kinds.0"),
        ("data.worlds.test=[1_000, 1_001]", "data.worlds: .* share a seed"),
        ("data.worlds.test=[5, 5]", r"data.worlds: a span of seeds is \[first, end\)"),
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


def test_files_that_are_no_recipe(tmp_path: Path) -> None:
    torn = tmp_path / "torn.toml"
    torn.write_text("[grpo\nsteps = 3")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    for name, said in (
        ("none", "no recipe 'none'; there are .*nano"),
        (str(tmp_path / "none.toml"), "no recipe"),
        (str(torn), "is no TOML"),
        (str(binary), "no recipe"),
    ):
        with pytest.raises(UserError, match=said) as raised:
            load_recipe(name)
        assert "\n" not in str(raised.value)


def test_seeds_are_spans() -> None:
    recipe = load_recipe("nano", [*WORLDS, "data.worlds.strangers=[9, 10]"])
    assert recipe.data.worlds is not None
    assert recipe.data.worlds.train == (1, 3)
