"""`golden split`: the set in its folder is parted, and the user told how and what it cost."""

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

from art_e.inbox.file import InboxFile
from art_e.question import Question, Split, load_questions
from data_pipeline.golden import cli as golden_split
from data_pipeline.golden import split as splitting
from data_pipeline.golden.golden_set import GoldenSet
from data_pipeline.synthetic.world import WorldConfig, questions
from tests.command_line import (
    ANN,
    BOB,
    HOSTILE,
    LEASE_ID,
    Run,
    assert_safe,
    json_of,
    the_error,
)


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


def test_options_draw_and_the_same_ones_give_the_same_bytes(
    art_e: Run, db: Path, tmp_path: Path
) -> None:
    folder = saved(tmp_path / "set", [lease("q-1", ANN), lease("q-2", BOB)])
    states = []
    for seed in (0, 1, 2, 3, 0):
        art_e("golden", "split", "--db", db, "--out", folder, "--seed", seed)
        states.append(b"".join(each.read_bytes() for each in sorted(folder.glob("[!.]*.*"))))
    assert states[0] == states[-1]
    assert len(set(states)) > 2
    result = art_e("golden", "split", "--db", db, "--out", folder, "--train", 0, "--validation", 0)
    assert "2 inboxes: 0 train, 0 validation, 2 test, drawn by seed 0" in result.stderr
    assert "none is in" not in result.stderr


@pytest.mark.parametrize(
    ("inboxes", "told"),
    [
        ([ANN], "a single inbox can't be parted: all its rows are in one split"),
        ([ANN, BOB], "too few inboxes for all splits: none is in validation"),
    ],
)
def test_too_few_inboxes_are_a_plain_word(
    art_e: Run, db: Path, tmp_path: Path, inboxes: list[str], told: str
) -> None:
    rows = [lease(f"q-{n}", each, "<lunch.1@harbor.example>") for n, each in enumerate(inboxes)]
    folder = saved(tmp_path / "set", rows)
    result = art_e("golden", "split", "--db", db, "--out", folder)
    assert told in result.stderr


def test_the_defaults_are_those_of_the_step() -> None:
    ours = inspect.signature(golden_split.split).parameters
    theirs = inspect.signature(splitting.split).parameters
    assert ours["seed"].default == theirs["seed"].default
    for name, wanted in theirs["wanted"].default._asdict().items():
        assert ours[name].default == wanted


def test_a_world_needs_no_model_and_loses_nothing(
    art_e: Run, world: InboxFile, tmp_path: Path
) -> None:
    rows = questions(WorldConfig(size=1000))
    folder = saved(tmp_path / "world", rows)
    result = art_e("golden", "split", "--db", world.path, "--out", folder)
    assert f"{len(rows)} kept" in result.stdout
    assert "as the rows came with them" in result.stderr
    # The folder is what every --questions takes.
    test = load_questions(str(folder), "test")
    assert [each.id for each in test] == [each.id for each in rows if each.split == "test"]


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
