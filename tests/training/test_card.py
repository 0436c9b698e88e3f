"""The model card: it tells what the metrics say and no more, and no text becomes markup."""

import re
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from training.export import card, write_card
from training.progress import Validation
from training.recipe import Recipe, load_recipe
from training.run import Kind, Setting

HOSTILE = (
    "x | y\n\n# owned <script>alert(1)</script> [a](http://evil) `b` ![i](//e) **c** {{ 7*7 }}"
)
SMALL: dict[str, Any] = {
    "name": "small",
    "model": {"scratch": {"layers": 3, "hidden": 96}},
    "data": {"worlds": {"size": 2_000, "train": [0, 30], "validation": [30, 31], "test": [31, 32]}},
    "episode": {"max_turns": 5, "hits": 3},
    "sft": {"stages": [{"steps": 200}, {"steps": 100}]},
    "grpo": {"steps": 60},
}
LORA: dict[str, Any] = {
    "name": "of our own",
    "model": {"base": "Qwen/Qwen2.5-14B-Instruct", "lora": {"rank": 8}},
    "data": {"questions": "/home/ann/secret/golden", "db": "/home/ann/secret/mail.duckdb"},
    "sft": {"stages": [{"steps": 200}]},
}


def validation(step: int, accuracy: float, **fields: float | None) -> dict[str, Any]:
    figures: dict[str, Any] = {
        "n": 200, "correct": 0.65625, "hallucination": 0.125,
        "hallucination_unanswerable": 0.25, "abstention": 0.5,
        "turns": 3.5, "effort": 3.75, "turns_when_correct": 3.0, "effort_when_correct": 3.25,
        "format_errors": 0.0625, "reward": 0.875,
    }  # fmt: skip
    return Validation(step=step, accuracy=accuracy, **{**figures, **fields}).to_row()


def metrics(**fields: Any) -> dict[str, Any]:
    known = {
        "validation": [
            validation(0, 0.3), validation(20, 0.6), validation(40, 0.8), validation(60, 0.7),
        ],
        "best_checkpoint": "checkpoints/checkpoint-40",
        "seconds": 5_400.0,
        "tokens": 1_234_567,
        "cost_usd": 1.5,
        "test": None,
        "alarms": [],
    }  # fmt: skip
    return {**known, **fields}


def made(recipe: dict[str, Any] = SMALL, kind: Kind = "grpo", **given: Any) -> str:
    baseline = given.pop("baseline", None)
    setting = Setting(kind, Recipe.model_validate(recipe), 20_010, baseline=baseline)
    return card(setting, metrics(**given))


def row(text: str, label: str) -> list[str]:
    [line] = [each for each in text.splitlines() if each.startswith(f"| {label}")]
    return [each.strip() for each in line.strip("|").split("|")][1:]


def front_matter(text: str) -> dict[str, Any]:
    found: dict[str, Any] = ModelCard(text).data.to_dict()  # type: ignore[no-untyped-call]
    return found


def estimate(value: float | None, low: float | None, high: float | None) -> dict[str, Any]:
    return {"value": value, "low": low, "high": high, "n": 267, "method": "wilson"}


class TestFrontMatter:
    def test_of_a_model_made_from_nothing(self) -> None:
        assert front_matter(made()) == {
            "language": "en",
            "library_name": "transformers",
            "pipeline_tag": "text-generation",
            "tags": ["art-e", "email", "agent", "retrieval", "grpo"],
        }

    def test_of_an_adapter_there_is_a_base_and_no_license_is_made_up(self) -> None:
        found = front_matter(made(LORA, "sft"))
        assert found["base_model"] == "Qwen/Qwen2.5-14B-Instruct"
        assert found["library_name"] == "peft"
        assert "license" not in found

    def test_a_base_in_a_folder_is_not_told_with_its_path(self, tmp_path: Path) -> None:
        base = tmp_path / "mine"
        text = made({**LORA, "model": {"base": str(base)}}, "sft")
        assert "base_model" not in front_matter(text)
        assert "- Model: mine." in text
        assert str(tmp_path) not in text


@pytest.mark.parametrize(
    "told",
    [
        "# ART-E agent: small, reinforcement learning (GRPO)",
        "of 3 layers of width 96",
        "Trained were all weights.",
        "2,000 short mails each, made from the seeds 0 to 29. Validation: the seeds 30 to 30.",
        "at most 60 steps, each of 8 questions with 8 episodes each",
        "art-e train grpo --recipe RECIPE.toml --init START --seed 20010 --out RUN",
        "judged by f1",
        "Time: 1.50 hours (5,400 seconds).",
        "generated: 1,234,567.",
        "1.50 USD.",
        "None was raised.",
        "(5 turns at most, its own prompt",
        "--model local:RUN/checkpoints/checkpoint-40 --recipe RUN",
        "art-e serve RUN --name mine",
    ],
)
def test_it_tells_of_the_run(told: str) -> None:
    assert told in made()


def test_a_warm_start_has_its_own_command_and_steps() -> None:
    text = made(kind="sft")
    assert "small, warm start (SFT)" in text
    assert "Planned: 300 steps" in text
    assert "art-e train sft --recipe RECIPE.toml --seed 20010 --out RUN" in text
    assert "--init" not in text


def test_an_adapter_is_merged_before_it_is_used() -> None:
    text = made(LORA, "sft")
    assert "LoRA adapter of rank 8" in text
    assert "art-e train merge RUN/checkpoints/checkpoint-40 --out MERGED" in text
    assert "--model local:MERGED\n" in text
    # Its episodes are the usual ones.
    assert "--recipe RUN" not in text
    assert "golden set golden," in text
    assert "secret" not in text


def test_the_card_of_the_talk() -> None:
    """Its golden set is whatever its maker has at home, and its start is the model it names."""
    text = made(load_recipe("talk").to_row())
    assert "- Questions: those of a golden set that has no name, by its splits." in text
    assert "art-e train grpo --recipe talk --seed 20010 --out RUN" in text
    assert "adapter of rank 16" in text


def test_validation_has_the_first_the_best_and_the_last() -> None:
    text = made()
    assert row(text, "measure")[:3] == ["first (step 0)", "best (step 40)", "last (step 60)"]
    assert row(text, "accuracy (answerable") == ["0.300", "0.800", "0.700"]
    assert row(text, "questions asked") == ["200"] * 3
    assert row(text, "format errors") == ["0.062"] * 3


def test_what_the_metrics_lack_is_not_measured() -> None:
    text = made(
        validation=[validation(0, 0.3, turns_when_correct=None)], seconds=None, tokens=None,
        cost_usd=None, alarms=None, best_checkpoint=None,
    )  # fmt: skip
    assert row(text, "turns, answer right") == ["not measured"] * 2
    for told in (
        "Time: not measured.", "generated: not measured.", "judges: not measured.",
        "Alarms: not measured.", "Test questions: not measured.", "No baseline was given",
        "No checkpoint was chosen as the best.", "local:RUN/checkpoints/CHECKPOINT",
    ):  # fmt: skip
        assert told in text
    assert "Validation: not measured." in made(validation=[])


def test_test_figures_stand_with_their_intervals() -> None:
    greedy = {"n": 400, "accuracy": estimate(0.81, 0.77, 0.85), "by_kind": {"lookup": {}}}
    sampled = {"n": 400, "accuracy": estimate(None, None, None)}
    text = made(test={"greedy": greedy, "sampled": sampled}).partition("## Test")[2]
    assert row(text, "measure") == ["greedy", "sampled"]
    assert row(text, "accuracy") == ["0.810 (0.770 to 0.850, n = 267)", "not measured"]
    assert "95 % interval" in text
    alone = made(test=greedy).partition("## Test")[2]
    assert row(alone, "measure") == ["test"]
    assert row(alone, "questions asked") == ["400"]
    assert "by_kind" not in alone


def test_a_baseline_is_told_model_by_model_and_without_paths() -> None:
    models = {
        "offline": {"n": 9, "accuracy": estimate(0.2, 0.1, 0.3), "funnel": {"right": 2}},
        "local:/home/ann/secret/start": {"n": 9, "accuracy": estimate(0.4, 0.3, 0.5)},
    }
    text = made(baseline={"models": models, "questions": {"n": 9}}).partition("## Baseline")[2]
    assert row(text, "measure") == ["offline", "local\\:start"]
    assert row(text, "accuracy")[1] == "0.400 (0.300 to 0.500, n = 267)"
    assert "secret" not in text
    assert "Baseline: not measured." in made(baseline={"models": {}})


def test_a_shipped_recipe_is_named_and_changes_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Recipe.model_validate(SMALL)
    monkeypatch.setattr("training.export.recipe_names", lambda: ["small"])
    monkeypatch.setattr("training.export.load_recipe", {"small": own}.__getitem__)
    text = made()
    assert "--recipe small --init START" in text
    assert "RECIPE.toml" not in text
    assert "changed on the command line" not in text
    assert "changed on the command line" in made({**SMALL, "grpo": {"steps": 61}})


def test_alarms_are_told() -> None:
    alarm = {"step": 1_200, "kind": "abstention", "message": "it says nothing; lower the rate"}
    text = made(alarms=[alarm])
    assert "- Step 1,200, abstention: it says nothing; lower the rate\n" in text
    assert "None was raised" not in text


def rendered(text: str) -> str:
    body = text.split("---\n", 2)[2]
    return str(MarkdownIt("commonmark").enable("table").render(body))


def hostile(word: str) -> str:
    """A card to which all that others write gives the same word."""
    recipe = {
        **SMALL, "name": word, "model": {"base": word}, "data": {"questions": word},
        "judging": {"reward": word, "validation": word},
    }  # fmt: skip
    return made(
        recipe,
        alarms=[{"step": 1, "kind": word, "message": word}],
        best_checkpoint=word,
        test={word: {"n": 1, "accuracy": word}},
        baseline={"models": {word: {"n": 1}, f"local:{word}": {"n": 1}}},
    )


@given(st.text(min_size=1, max_size=60))
@example(HOSTILE)
@example("```\n# x")
@example("a\\|b")
@example("accuracy")
@example("~0")
def test_hostile_words_are_only_words(word: str) -> None:
    shown, plain = rendered(hostile(word)), rendered(hostile("word"))
    for pattern in (r"</?(\w+)", "<h2>", "<td", "<li>", "<pre>"):
        assert set(re.findall(pattern, shown)) == set(re.findall(pattern, plain))
        if pattern != r"</?(\w+)":
            assert len(re.findall(pattern, shown)) == len(re.findall(pattern, plain))


def test_it_is_written_whole(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("old")
    setting = Setting("grpo", Recipe.model_validate(SMALL), 1)
    write_card(tmp_path, setting, metrics())
    assert [each.name for each in tmp_path.iterdir()] == ["README.md"]
    assert (tmp_path / "README.md").read_text("utf-8") == card(setting, metrics())
