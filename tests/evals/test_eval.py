import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from art_e.question import Question
from art_e.trajectory import read_trajectories
from data_pipeline.synthetic.world import WorldConfig, questions
from evals.benchmark import command as rebuilt
from evals.benchmark import drawn
from tests.command_line import Run, json_of, the_error

KINDS = ["lookup", "latest-update", "multi-mail", "count", "unanswerable"]
LIMIT = 12


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The questions of `world_db`, as ingest writes them."""
    path = tmp_path_factory.mktemp("golden") / "world.questions.jsonl"
    rows = [json.dumps(each.to_row()) for each in questions(WorldConfig(size=1000))]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def asked_of_test() -> list[Question]:
    return [each for each in questions(WorldConfig(size=1000)) if each.split == "test"]


def command(golden: Path, db: Path, *more: object) -> list[object]:
    return [
        "eval", "run", "-m", "offline", "--questions", golden, "--split", "test", "--db", db, *more,
    ]  # fmt: skip


def test_json_has_the_figures_and_the_run(
    art_e: Run, golden: Path, world_db: Path, home: Path, asked_of_test: list[Question]
) -> None:
    result = art_e(*command(golden, world_db, "--limit", LIMIT, "--json"))
    shown = json_of(result)
    assert list(shown) == ["judges", "questions", "models", "prompt", "run"]
    assert shown["judges"] == ["offline/2"]
    assert shown["questions"]["n"] == LIMIT
    assert list(shown["models"]) == ["offline"]
    figures = shown["models"]["offline"]
    assert figures["n"] == LIMIT
    assert figures["errors"] == 0
    assert figures["cost_per_1000_usd"]["value"] == 0
    for share in ("accuracy", "hallucination", "abstention", "read_gold"):
        assert set(figures[share]) == {"value", "low", "high", "n", "method"}
    asked = drawn(asked_of_test, LIMIT)
    assert set(figures["by_kind"]) == {each.kind for each in asked}
    assert figures["accuracy"]["n"] == sum(bool(each.answerable) for each in asked)
    assert Path(shown["run"]).parent == home / "runs"


def test_the_run_folder_holds_everything(
    art_e: Run, golden: Path, world_db: Path, tmp_path: Path, asked_of_test: list[Question]
) -> None:
    out = tmp_path / "mine"
    shown = json_of(art_e(*command(golden, world_db, "--limit", LIMIT, "--out", out, "--json")))
    assert shown["run"] == str(out)
    names = {each.name for each in out.iterdir()} - {".lock"}
    assert names == {"config.json", "trajectories.jsonl", "metrics.json", "COMPLETE"}
    metrics = json.loads((out / "metrics.json").read_text("utf-8"))
    assert {**metrics, "run": str(out)} == shown
    config = json.loads((out / "config.json").read_text("utf-8"))
    assert (
        config.items()
        >= {
            "name": "eval",
            "models": ["offline"],
            "judges": ["offline/2"],
            "repeat": 1,
            "questions": str(golden),
            "split": "test",
            "limit": LIMIT,
            "max_turns": 10,
            "db": str(world_db),
        }.items()
    )
    trajectories = list(read_trajectories(out / "trajectories.jsonl"))
    assert [each.question_id for each in trajectories] == [
        each.id for each in drawn(asked_of_test, LIMIT)
    ]
    assert all(each.verdict is not None for each in trajectories)
    assert all(each.run_id == "mine" for each in trajectories)
    # The figures are those of the verdicts.
    figures = shown["models"]["offline"]
    right = sum(
        bool(each.verdict and each.verdict["correct"])
        for each in trajectories
        if each.rubric["answerable"]
    )
    assert figures["accuracy"]["value"] * figures["accuracy"]["n"] == pytest.approx(right)
    assert right > 0


def test_people_see_one_table_of_all_models(art_e: Run, golden: Path, world_db: Path) -> None:
    result = art_e(*command(golden, world_db))
    assert result.exit_code == 0
    [row] = [line for line in result.stdout.splitlines() if line.startswith("│ offline")]
    assert row.replace("│", " ").split()[:2] == ["offline", "37"]
    assert "judge offline/2; in brackets: 95 % interval" in result.stdout
    assert "offline: ended: right " in result.stdout
    assert "the report: art-e eval report " in result.stdout


def test_without_a_split_all_rows_are_asked(art_e: Run, golden: Path, world_db: Path) -> None:
    args = command(golden, world_db, "--limit", 3, "--json")
    at = args.index("--split")
    shown = json_of(art_e(*args[:at], *args[at + 2 :]))
    asked = drawn(questions(WorldConfig(size=1000)), 3)
    found = read_trajectories(Path(shown["run"]) / "trajectories.jsonl")
    assert [each.question_id for each in found] == [each.id for each in asked]


def test_a_model_named_twice_is_asked_once(art_e: Run, golden: Path, world_db: Path) -> None:
    shown = json_of(art_e(*command(golden, world_db, "--limit", 2, "-m", "offline", "--json")))
    assert len(list(read_trajectories(Path(shown["run"]) / "trajectories.jsonl"))) == 2


def test_a_preset_is_its_model(art_e: Run, golden: Path, world_db: Path, tmp_path: Path) -> None:
    # Where gpt-4.1 stands for openai/gpt-4.1, its key is missing and said so.
    args = command(golden, world_db)
    args[args.index("offline")] = "gpt-4.1"
    error = the_error(art_e(*args))
    assert "OPENAI_API_KEY" in error


def test_each_question_several_times(art_e: Run, golden: Path, world_db: Path) -> None:
    result = art_e(*command(golden, world_db, "--limit", LIMIT, "--repeat", 2))
    assert re.search(rf"offline +│ +{2 * LIMIT} ", result.stdout)
    assert "right every time: " in result.stdout


def test_a_prompt_of_ones_own(art_e: Run, golden: Path, world_db: Path, tmp_path: Path) -> None:
    prompt = tmp_path / "terse.txt"
    prompt.write_text("Be terse.", encoding="utf-8")
    shown = json_of(art_e(*command(golden, world_db, "--limit", 2, "--prompt", prompt, "--json")))
    assert shown["prompt"]["name"] == "terse"
    folder = Path(shown["run"])
    config = json.loads((folder / "config.json").read_text("utf-8"))
    assert config["prompt"] == {**shown["prompt"], "path": str(prompt)}
    assert f"--prompt {shlex.quote(str(prompt))}" in (rebuilt(config) or "")
    for each in read_trajectories(folder / "trajectories.jsonl"):
        assert each.messages[0]["content"] == "Be terse."
        assert each.policy["prompt_hash"] == shown["prompt"]["hash"]
    error = the_error(art_e(*command(golden, world_db, "--prompt", tmp_path / "none.txt")))
    assert "none.txt" in error


def test_with_other_options_a_run_is_not_resumed(
    art_e: Run, golden: Path, world_db: Path, tmp_path: Path
) -> None:
    out = tmp_path / "mine"
    art_e(*command(golden, world_db, "--limit", 2, "--out", out))
    error = the_error(art_e(*command(golden, world_db, "--limit", 3, "--out", out, "--resume")))
    assert "limit 2, not 3" in error
    # The same command again has nothing left to ask.
    again = art_e(*command(golden, world_db, "--limit", 2, "--out", out, "--resume", "--json"))
    assert json_of(again)["models"]["offline"]["n"] == 2
    assert "2 episodes there already" in again.stderr
    assert len(list(read_trajectories(out / "trajectories.jsonl"))) == 2


def test_few_turns_still_end_in_answers(art_e: Run, golden: Path, world_db: Path) -> None:
    shown = json_of(art_e(*command(golden, world_db, "--limit", 4, "--max-turns", 2, "--json")))
    trajectories = list(read_trajectories(Path(shown["run"]) / "trajectories.jsonl"))
    assert [each.rubric["turns"] for each in trajectories] == [2] * 4
    assert all(each.verdict is not None for each in trajectories)


@pytest.mark.parametrize(
    ("replaced", "by", "words"),
    [
        ("test", "dev", ["dev", "train, validation, test"]),
        ("offline", "nobody/nothing", ["nobody/nothing", "offline"]),
        ("QUESTIONS", "none.jsonl", ["none.jsonl", "JSONL"]),
        ("DB", "none.duckdb", ["none.duckdb", "art-e ingest"]),
        ("3", "0", ["--limit"]),
    ],
)
def test_a_wrong_option_is_one_line_and_makes_no_run(
    art_e: Run,
    golden: Path,
    world_db: Path,
    home: Path,
    tmp_path: Path,
    replaced: str,
    by: str,
    words: list[str],
) -> None:
    given: dict[str, Any] = {
        "offline": "offline",
        "test": "test",
        "3": "3",
        "QUESTIONS": golden,
        "DB": world_db,
    }
    given[replaced] = tmp_path / by if by.startswith("none") else by
    error = the_error(
        art_e(
            "eval", "run", "-m", given["offline"], "--questions", given["QUESTIONS"],
            "--split", given["test"], "--limit", given["3"], "--db", given["DB"],
        )
    )  # fmt: skip
    for word in words:
        assert word in error
    assert not (home / "runs").exists()


def test_questions_of_another_inbox_are_one_line(art_e: Run, golden: Path, db: Path) -> None:
    error = the_error(art_e(*command(golden, db, "--limit", 1)))
    assert "no inbox" in error


def test_a_folder_that_is_not_empty_is_refused(
    art_e: Run, golden: Path, world_db: Path, tmp_path: Path
) -> None:
    error = the_error(art_e(*command(golden, world_db, "--out", tmp_path.parent)))
    assert "--out" in error


def test_it_runs_as_a_process(golden: Path, world_db: Path, home: Path) -> None:
    args = command(golden, world_db, "--limit", 3, "--json")
    done = subprocess.run(
        [sys.executable, "-m", "art_e", *map(str, args)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "ART_E_HOME": str(home)},
    )
    # No progress bar where there is no terminal.
    assert done.stderr == "3 of 37 questions, drawn over inboxes and kinds (seed 0)\n"
    assert json.loads(done.stdout)["models"]["offline"]["n"] == 3
