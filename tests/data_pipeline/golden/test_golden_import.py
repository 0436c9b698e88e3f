"""`art-e golden import`, and what it makes: exported, evaluated, imported anew."""

import json
from pathlib import Path
from typing import Any

import pytest

from art_e.question import load_questions
from data_pipeline.synthetic.world import WorldConfig, questions
from tests.command_line import ANN, HOSTILE, LEASE_ID, Run, assert_safe, json_of, the_error

ROW: dict[str, Any] = {
    "id": 1,
    "question": "When does the warehouse lease end?",
    "answer": "On March 31, 2002.",
    "message_ids": [LEASE_ID],
    "how_realistic": 0.9,
    "inbox_address": ANN,
    "query_date": "2001-03-31",
}


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """A good row, one whose gold mail is nowhere, and one that is none."""
    path = tmp_path / "rows.jsonl"
    bad = {**ROW, "id": 2, "message_ids": ["<none@harbor.example>"]}
    path.write_text("\n".join(map(json.dumps, (ROW, bad, [1]))), "utf-8")
    return path


@pytest.fixture(scope="module")
def world_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every fourth question of the synthetic world."""
    path = tmp_path_factory.mktemp("world") / "world.questions.jsonl"
    asked = questions(WorldConfig(size=1000))[::4]
    path.write_text("\n".join(json.dumps(each.to_row()) for each in asked), "utf-8")
    return path


def test_says_what_was_kept_and_what_not(art_e: Run, db: Path, rows: Path, tmp_path: Path) -> None:
    out = tmp_path / "golden"
    shown = json_of(art_e("golden", "import", rows, "--db", db, "--out", out, "--json"))
    assert shown["set"] == str(out)
    assert shown["sums"]["in"] == 3
    assert shown["sums"]["dropped"] == {"gold": 1, "row": 1}
    assert shown["report"]["realism"]["passed"] == 1
    assert [each.id for each in load_questions(str(out))] == ["1"]
    table = art_e("golden", "import", rows, "--db", db, "--out", out)
    assert table.exit_code == 0
    assert "import: 3 rows, 1 kept" in table.stdout
    assert "dropped: gold" in table.stdout
    assert "for example" in table.stdout
    assert f"art-e golden filter --db {db} --out {out}" in table.stderr


def test_hostile_rows_are_only_text(art_e: Run, db: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    hostile = {**ROW, "id": HOSTILE, "question": f"{HOSTILE} When?", "how_realistic": 0.1}
    twin = {**hostile, "id": f"{HOSTILE}2", "inbox_address": HOSTILE}
    path.write_text("\n".join(map(json.dumps, (hostile, twin, {"id": HOSTILE}))), "utf-8")
    result = art_e("golden", "import", path, "--db", db, "--out", tmp_path / "golden")
    assert result.exit_code == 0
    assert_safe(result.stdout + result.stderr)
    assert_safe((tmp_path / "golden" / "README.md").read_text("utf-8"))


def test_another_set_is_not_overwritten(art_e: Run, db: Path, rows: Path, tmp_path: Path) -> None:
    out, other = tmp_path / "golden", tmp_path / "other.jsonl"
    json_of(art_e("golden", "import", rows, "--db", db, "--out", out, "--json"))
    before = {each.name: each.read_bytes() for each in out.iterdir()}
    other.write_bytes(rows.read_bytes())
    assert "name another --out" in the_error(
        art_e("golden", "import", other, "--db", db, "--out", out)
    )
    json_of(art_e("golden", "import", rows, "--db", db, "--out", out, "--json"))
    assert {each.name: each.read_bytes() for each in out.iterdir()} == before


def test_a_set_of_other_rows_by_the_same_name_is_not_overwritten(
    art_e: Run, db: Path, rows: Path, tmp_path: Path
) -> None:
    out, other = tmp_path / "golden", tmp_path / "elsewhere" / rows.name
    json_of(art_e("golden", "import", rows, "--db", db, "--out", out, "--json"))
    before = (out / "questions.jsonl").read_bytes()
    other.parent.mkdir()
    other.write_text(json.dumps({**ROW, "question": "When does it begin?"}), "utf-8")
    assert "of other rows" in the_error(art_e("golden", "import", other, "--db", db, "--out", out))
    assert (out / "questions.jsonl").read_bytes() == before
    # The same rows may lie anywhere.
    other.write_bytes(rows.read_bytes())
    json_of(art_e("golden", "import", other, "--db", db, "--out", out, "--json"))
    assert (out / "questions.jsonl").read_bytes() == before


@pytest.mark.parametrize("within", ["mine.jsonl", "deeper/questions.jsonl", ""])
def test_a_source_is_not_written_over(
    art_e: Run, db: Path, rows: Path, tmp_path: Path, within: str
) -> None:
    own = tmp_path / "own"
    file = own / (within or "mine.jsonl")
    file.parent.mkdir(parents=True)
    file.write_bytes(rows.read_bytes())
    error = the_error(art_e("golden", "import", own / within, "--db", db, "--out", own))
    assert "lies in" in error
    assert "name another --out" in error
    assert [each for each in own.rglob("*") if each.is_file()] == [file]
    # Beside it there is room.
    json_of(art_e("golden", "import", own / within, "--db", db, "--out", tmp_path / "g", "--json"))


def test_a_source_that_is_none_leaves_nothing(art_e: Run, db: Path, tmp_path: Path) -> None:
    out = tmp_path / "golden"
    assert "hub id" in the_error(art_e("golden", "import", "a.jsonl", "--db", db, "--out", out))
    assert not out.exists()


def test_an_imported_world_is_exported_and_evaluated(
    art_e: Run, world_db: Path, world_rows: Path, tmp_path: Path
) -> None:
    out, to = tmp_path / "golden", tmp_path / "published"
    shown = json_of(art_e("golden", "import", world_rows, "--db", world_db, "--out", out, "--json"))
    assert shown["sums"]["dropped"] == {}
    parts = json_of(art_e("golden", "export", out, "--to", to, "--json"))
    assert sum(parts["questions"].values()) == shown["sums"]["kept"]
    assert set(parts["questions"]) == {"train", "validation", "test"}
    figures = json_of(
        art_e(
            "eval", "run", "-m", "offline", "--questions", to, "--split", "test",
            "--db", world_db, "--json",
        )
    )  # fmt: skip
    assert figures["questions"]["n"] == parts["questions"]["test"]
