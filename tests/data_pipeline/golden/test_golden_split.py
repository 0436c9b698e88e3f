"""`golden split`: the set in its folder is parted, and the user told how and what it cost."""

import json
from pathlib import Path
from typing import Any

import pytest

from art_e.question import Question, Split, load_questions
from data_pipeline.golden.golden_set import GoldenSet
from tests.command_line import ANN, BOB, HOSTILE, LEASE_ID, Run, assert_safe, json_of, the_error


def saved(folder: Path, rows: list[Question], **manifest: Any) -> Path:
    golden = GoldenSet(list(rows))
    golden.manifest |= manifest
    golden.record("generate" if manifest else "import", len(rows), {})
    golden.save(folder)
    return folder


def lease(name: str, inbox: str, gold: str = LEASE_ID, split: Split | None = None) -> Question:
    return Question(
        name, f"When does {name} end?", inbox, answer="2002", message_ids=(gold,), split=split
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Ann's and Bob's question have the same gold mail."""
    rows = [lease("q-1", ANN), lease("q-2", BOB)]
    return saved(tmp_path / "set", rows, inboxes={ANN: "train", BOB: "test"})


def test_the_set_is_parted_and_the_leak_told(art_e: Run, db: Path, folder: Path) -> None:
    result = art_e("golden", "split", "--db", db, "--out", folder)
    assert result.exit_code == 0, result.output
    assert "split: 2 rows, 1 kept" in result.stdout
    assert "1  dropped: leak-test-inbox" in result.stdout
    shared = next(line for line in result.stdout.splitlines() if "gold in both" in line)
    assert shared.split("│")[2:5] == [" train/test ", "      1 ", "     0 "]
    assert "2 inboxes: 1 train, 0 validation, 1 test, as generate drew them" in result.stderr
    # Nobody else's question is left to train on.
    assert "no row is left in train" in result.stderr
    assert [each.id for each in load_questions(str(folder))] == ["q-2"]


def test_json_is_the_step_alone(art_e: Run, db: Path, folder: Path) -> None:
    told = json_of(art_e("golden", "split", "--db", db, "--out", folder, "--json"))
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    assert told == {"set": str(folder), "step": "split", **manifest["steps"]["split"]}
    assert told["sums"]["dropped"] == {"leak-test-inbox": 1}


def test_hostile_rows_are_only_text(art_e: Run, db: Path, tmp_path: Path) -> None:
    rows = [lease(f"q {HOSTILE}", ANN, f"<{HOSTILE}>"), lease("q-2", BOB, f"<{HOSTILE}>")]
    folder = saved(tmp_path / "set", rows, inboxes={ANN: "train", BOB: "test"})
    result = art_e("golden", "split", "--db", db, "--out", folder)
    assert "1 gold mail not in the inbox file" in result.stdout
    assert_safe(result.stdout)
    assert_safe(result.stderr)


def test_wrong_calls_are_told_in_a_line(art_e: Run, db: Path, folder: Path, tmp_path: Path) -> None:
    def refused(*args: object) -> str:
        return the_error(art_e("golden", "split", *args))

    assert "no golden set" in refused("--db", db, "--out", tmp_path / "none")
    eve = saved(tmp_path / "eve", [lease("q-1", "eve@nowhere.example")])
    assert "--db FILE" in refused("--db", db, "--out", eve)
    empty = [each for name in ("train", "validation", "test") for each in (f"--{name}", 0)]
    drawn = saved(tmp_path / "drawn", [lease("q-1", ANN)])
    assert "--train, --validation or --test above 0" in refused("--db", db, "--out", drawn, *empty)
    before = (folder / "manifest.json").read_bytes()
    refused("--db", tmp_path / "no.duckdb", "--out", folder)
    assert (folder / "manifest.json").read_bytes() == before
