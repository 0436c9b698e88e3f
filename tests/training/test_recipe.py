"""Recipes: found by name or path, changed from the command line, refused in a line; `--recipe`."""

import json
from pathlib import Path
from typing import Any

import pytest

from art_e.errors import UserError
from art_e.trajectory import Trajectory, read_trajectories
from data_pipeline.synthetic.world import WorldConfig, questions
from tests.command_line import ANN, Run, json_of, the_error
from training.recipe import load_recipe, recipe_names

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
            "model.lora=4",
        ],
    )
    assert recipe.grpo is not None
    assert recipe.sft is not None
    assert (recipe.grpo.rate, recipe.reward.effort, recipe.name) == (1e-5, 0.0, "short")
    assert recipe.sft.steps == 3
    # What is no TOML is plain text, and may hold a "=".
    assert recipe.episode.prompt == "Say so = or not."
    assert recipe.model.lora == 4


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("grpo.rate=0", "grpo.rate"),
        ("grpo.rate=nan", "grpo.rate"),
        ("grpo.rollouts=1", "grpo.rollouts"),
        ("grpo.micro_batch=7", "the 128 episodes of each process are no multiple of"),
        ("grpo.minibatches=3", "the 8 forward passes of a batch must be multiples of it"),
        ("grpo.speed=9", "grpo.speed"),
        ("sft.stages=[]", "sft.stages"),
        ("sft.noise.guesses=2", "sft.noise.guesses"),
        ("episode.hits=99", "episode.hits"),
        ("reward.abstained=5", "reward"),
        ("data.questions=golden", r"data: beside \[data.worlds\] give both questions and db"),
        ("data.kinds=['riddle']", "data.kinds.0"),
        ("data.worlds.test=[1_000, 1_001]", "data.worlds: .* share a seed"),
        ("data.worlds.test=[5, 5]", r"data.worlds: a span of seeds is \[first, end\)"),
        ("model.bits=4", r"model: weights of 4 bits .* give base and lora"),
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


# ---- `--recipe`: questions are asked in the form of episodes that a recipe says.

MINE = """
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
VIEW = {**SHOWN, "all_words": False, "calls": 4, "closed_book": False, "utc": True}
ASKED = questions(WorldConfig(size=1000))[:4]


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(MINE, encoding="utf-8")
    return path


@pytest.fixture
def trained(recipe: Path, tmp_path: Path) -> Path:
    """A training run's folder, as far as it is asked for its form of episode."""
    folder = tmp_path / "trained"
    best = folder / "checkpoints" / "checkpoint-1"
    best.mkdir(parents=True)
    (folder / "metrics.json").write_text('{"best_checkpoint": "checkpoints/checkpoint-1"}')
    (best / "episode.json").write_text(load_recipe(str(recipe)).episode.model_dump_json())
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


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "name a TOML file"),
        ("[model]", "has no form of episode"),
        ("[episode", "has no form of episode"),
        ("[episode]\nmax_turns = 0", "episode.max_turns: Input should be greater"),
    ],
)
def test_a_file_without_a_form_is_refused(
    art_e: Run, db: Path, tmp_path: Path, content: str | None, words: str
) -> None:
    file = tmp_path / "form.toml"
    if content is not None:
        file.write_text(content)
    assert words in the_error(art_e("ask", "When?", "--db", db, "--recipe", file))


def test_one_question_in_the_form_of_a_recipe(art_e: Run, db: Path, trained: Path) -> None:
    question = "When does the warehouse lease end?"
    shown = json_of(
        art_e("ask", question, "--inbox", ANN, "--db", db, "--recipe", trained, "--json")
    )
    path = Path(shown["trajectory"])
    [trajectory] = read_trajectories(path)
    assert_of_the_recipe(trajectory)
    config = json.loads((path.parent / "config.json").read_text("utf-8"))
    assert config["max_turns"] == 4
