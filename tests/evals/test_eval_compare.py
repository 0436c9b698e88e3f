import json
from pathlib import Path

import pytest

from art_e.runs import Run as RunFolder
from tests.command_line import HOSTILE, Run, assert_safe, json_of, the_error
from tests.evals.runs import Outcome, episode, episodes, question, write_run

HALF: dict[Outcome, int] = {"right": 10, "wrong": 10}
MOST: dict[Outcome, int] = {"right": 18, "wrong": 2}


@pytest.fixture
def runs(home: Path) -> Path:
    return home / "runs"


@pytest.fixture
def two(runs: Path) -> tuple[RunFolder, RunFolder]:
    """A run with two models, and one with another."""
    both = [*episodes("openai/o3", HALF), *episodes("ollama_chat/qwen2.5:14b", MOST)]
    return write_run(runs / "first", both), write_run(runs / "second", episodes("other", MOST))


def test_json_has_both_sides_and_the_paired_figures(
    art_e: Run, two: tuple[RunFolder, RunFolder]
) -> None:
    shown = json_of(art_e("eval", "compare", "first:openai/o3", "second", "--json"))
    assert (shown["a"]["run"], shown["a"]["model"]) == ("first", "openai/o3")
    assert (shown["b"]["run"], shown["b"]["model"]) == ("second", "other")
    assert shown["a"]["judges"] == ["offline/2"]
    # 4 of 20 questions can't be answered: 2 of each side's first ten, 4 of its first 18.
    accuracy = shown["figures"]["accuracy"]
    assert (accuracy["a"], accuracy["b"]) == (8 / 16, 15 / 16)
    assert (shown["only_a"], shown["only_b"]) == (0, 7)
    assert shown["p"] == pytest.approx(2 / 2**7)
    assert len(shown["flipped"]) == 7
    assert shown["mended"]["value"] == 7 / 8


def test_people_see_a_table_the_test_and_what_flipped(
    art_e: Run, two: tuple[RunFolder, RunFolder]
) -> None:
    result = art_e("eval", "compare", "first:openai/o3", "second")
    assert result.exit_code == 0
    assert "A: openai/o3, prompt default (0123456789abcdef), run first" in result.stdout
    assert "exact McNemar p = 0.0156 (significant)" in result.stdout
    assert "of A's errors B mends 87.5%" in result.stdout
    assert result.stdout.count("right in B alone: When does the lease") == 7
    [row] = [line for line in result.stdout.splitlines() if line.startswith("│ Accuracy")]
    assert "50.0%" in row and "93.8%" in row and "+43.8 pts" in row


def test_a_model_whose_name_has_a_colon_and_a_run_named_by_its_path(
    art_e: Run, two: tuple[RunFolder, RunFolder]
) -> None:
    first, second = two
    shown = json_of(
        art_e("eval", "compare", f"{first.folder}:ollama_chat/qwen2.5:14b", second.folder, "--json")
    )
    assert shown["a"]["model"] == "ollama_chat/qwen2.5:14b"
    assert shown["flipped"] == []
    preset = json_of(art_e("eval", "compare", "first:o3", "second", "--json"))
    assert preset["a"]["model"] == "openai/o3"


def test_two_prompts_of_one_model(art_e: Run, runs: Path) -> None:
    for name, outcomes in (("default", HALF), ("terse", MOST)):
        policy = {"temperature": 0, "prompt": name, "prompt_hash": f"hash of {name}"}
        write_run(runs / name, episodes("openai/o3", outcomes, policy=policy))
    shown = json_of(art_e("eval", "compare", "default", "terse", "--json"))
    assert (shown["a"]["prompt"], shown["b"]["prompt"]) == (
        "default (hash of default)",
        "terse (hash of terse)",
    )
    assert shown["only_b"] == 7


def test_small_costs_keep_their_digits_and_the_sign_of_what_is_no_zero(
    art_e: Run, runs: Path
) -> None:
    for name, cost in (("dear", 0.000004), ("cheap", 0.0000032)):
        write_run(runs / name, [episode(question(n), "right", cost=cost) for n in range(4)])
    shown = art_e("eval", "compare", "dear", "cheap").stdout
    [row] = [line for line in shown.splitlines() if line.startswith("│ Cost")]
    assert [cell.strip() for cell in row.split("│")][2:4] == ["$0.004", "$0.0032"]
    assert "-$0.0008" in row
    assert "-0.00 " not in shown and "$-" not in shown


def test_other_judges_are_noted_and_a_cache_has_no_latency(art_e: Run, runs: Path) -> None:
    verdict = {"correct": True, "grounded": None, "judge": "stern/2", "reason": "so"}
    write_run(runs / "one", episodes("m", {"right": 5}), cache=True)
    write_run(runs / "other", episodes("m", {"right": 5}, verdict=verdict))
    result = art_e("eval", "compare", "one", "other", "--json")
    assert "A was judged by offline/2, B by stern/2" in result.stderr
    assert "latency_mean_s" not in json.loads(result.stdout)["figures"]


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        ("first", "second", ["openai/o3", "first:openai/o3"]),
        ("first:nobody", "second", ["nobody", "openai/o3"]),
        ("third", "second", ["third", "art-e runs list"]),
        ("first:o3", "elsewhere", ["no question in common"]),
        ("empty", "second", ["empty", "no episode"]),
    ],
)
def test_what_can_not_be_compared_is_one_line(
    art_e: Run, runs: Path, two: tuple[RunFolder, RunFolder], a: str, b: str, words: list[str]
) -> None:
    stranger = question(99, kind="lookup")
    write_run(runs / "elsewhere", [episode(stranger, "right")])
    write_run(runs / "empty", [], complete=False)
    error = the_error(art_e("eval", "compare", a, b))
    for word in words:
        assert word in error


def test_hostile_text_is_only_text(art_e: Run, runs: Path) -> None:
    asked = question(0, kind="lookup", question=f"When? {HOSTILE}", answer=f"In May {HOSTILE}")
    for name, outcome in (("a", "right"), ("b", "wrong")):
        made = episode(asked, outcome, model=f"m {HOSTILE}")  # type: ignore[arg-type]
        write_run(runs / name, [made])
    result = art_e("eval", "compare", "a", "b")
    assert result.exit_code == 0
    assert_safe(result.stdout)
    assert "[bold]red[/bold]" in result.stdout
