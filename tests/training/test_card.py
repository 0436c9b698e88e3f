"""The model card: it says what the metrics say and no more, and no text becomes markup."""

import re
from typing import Any

import pytest
from huggingface_hub import ModelCard
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from training.export import card
from training.recipe import Recipe, Setting

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


def metrics(**fields: Any) -> dict[str, Any]:
    known = {
        "best_checkpoint": "checkpoints/checkpoint-40",
        "seconds": 5_400.0,
        "tokens": 1_234_567,
        "cost_usd": 1.5,
        "test": None,
        "alarms": [],
    }
    return {**known, **fields}


def made(recipe: dict[str, Any] = SMALL, kind: Any = "grpo", **given: Any) -> str:
    setting = Setting(kind, Recipe.model_validate(recipe), 20_010)
    return card(setting, metrics(**given))


def row(text: str, label: str) -> list[str]:
    [line] = [each for each in text.splitlines() if each.startswith(f"| {label}")]
    return [each.strip() for each in line.strip("|").split("|")][1:]


def front_matter(text: str) -> dict[str, Any]:
    found: dict[str, Any] = ModelCard(text).data.to_dict()  # type: ignore[no-untyped-call]
    return found


def estimate(value: float | None, low: float | None, high: float | None) -> dict[str, Any]:
    return {"value": value, "low": low, "high": high, "n": 267, "method": "wilson"}


@pytest.mark.parametrize(
    ("text", "there", "not_there"),
    [
        (made(), [
            "# ART-E agent: small, reinforcement learning (GRPO)",
            "made from the seeds 0 to 29. Validation: the seeds 30 to 30.",
            "art-e train grpo --recipe RECIPE.toml --init START --seed 20010 --out RUN",
            "Time: 1.50 hours.",
            "generated: 1,234,567.",
            "1.50 USD.",
            "--model local:RUN/checkpoints/checkpoint-40 --recipe RUN",
        ], []),
        # An adapter is merged before it is used.
        (made(LORA, "sft"), [
            "LoRA adapter of rank 8",
            "art-e train merge RUN/checkpoints/checkpoint-40 --out MERGED",
            "--model local:MERGED --recipe RUN\n",
        ], ["secret", "--init"]),
        (made(alarms=[{"step": 1_200, "kind": "abstention", "message": "lower the rate"}]), [
            "- Step 1,200, abstention: lower the rate\n",
        ], ["None was raised"]),
        (made(best_checkpoint=None), [
            "The test was not asked.", "local:RUN/checkpoints/CHECKPOINT"
        ], []),
    ],
)  # fmt: skip
def test_what_a_card_says(text: str, there: list[str], not_there: list[str]) -> None:
    assert [each for each in there if each not in text] == []
    assert [each for each in not_there if each in text] == []


def test_its_table() -> None:
    greedy = {"n": 400, "accuracy": estimate(0.81, 0.77, 0.85)}
    sampled = {"n": 400, "accuracy": estimate(None, None, None)}
    both = made(test={"greedy": greedy, "sampled": sampled})
    assert row(both, "measure") == ["greedy", "sampled"]
    assert row(both, "n ") == ["400", "400"]
    assert row(both, "accuracy") == ["0.810 (0.770 to 0.850, n = 267)", "not measured"]


def rendered(text: str) -> str:
    body = text.split("---\n", 2)[2]
    return str(MarkdownIt("commonmark").enable("table").render(body))


def hostile(word: str) -> str:
    """A card to which all that others write gives the same word."""
    recipe = {
        **SMALL, "name": word, "model": {"base": word}, "data": {"questions": word},
        "judging": {"reward": word, "validation": word},
    }  # fmt: skip
    return made(recipe, alarms=[{"step": 1, "kind": word, "message": word}], test={word: {"n": 1}})


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
