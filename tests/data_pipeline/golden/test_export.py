"""What is exported loads with `datasets` and with `load_questions`, whole, and nothing else."""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import datasets
import pytest

from art_e.question import Question, Split, load_questions
from data_pipeline.golden.export import export
from data_pipeline.golden.golden_set import Check, GoldenSet, Rejected, with_checks

SPLITS_OF_ROWS: tuple[Split, ...] = ("train", "test", "train", "test")


def question(number: int, split: Split | None) -> Question:
    base = Question(
        f"q-{number}", "When does it end?\n\u2028“Really”?", "ann@test.example",
        dt.date(2020, 1, 5), "May", (f"<{number}@t>", "<x@t>"), 0.9, "lookup", None, True, split,
        {"model": "m", "nested": {"a": [1, None]}, "umlaut": "ä"},
    )  # fmt: skip
    return with_checks(base, [Check("ids", "filter", None, "not sure", "rule")])


def golden_set(*splits: Split | None) -> GoldenSet:
    golden = GoldenSet([question(number, split) for number, split in enumerate(splits)])
    secret = Check("leak", "filter", False, "the secret reason", "rule")
    golden.rejected.append(Rejected.of(question(99, "test"), secret))
    golden.record("filter", len(splits) + 1, {})
    return golden


def loaded(folder: Path, tmp_path: Path) -> dict[str, list[Any]]:
    parts = datasets.load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))
    return {name: list(rows) for name, rows in parts.items()}


def test_loads_with_datasets_by_its_splits(tmp_path: Path) -> None:
    golden = golden_set(*SPLITS_OF_ROWS)
    assert export(golden, tmp_path / "out") == {"train": 2, "test": 2}
    found = loaded(tmp_path / "out", tmp_path)
    assert {name: [row["id"] for row in rows] for name, rows in found.items()} == {
        "train": ["q-0", "q-2"],
        "test": ["q-1", "q-3"],
    }
    for row in (row for rows in found.values() for row in rows):
        row["provenance"] = json.loads(row["provenance"])
        assert Question.from_row(row) in golden.questions


def test_loads_as_questions_from_every_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    golden, out = golden_set(*SPLITS_OF_ROWS), tmp_path / "out"
    export(golden, out)
    train, test = golden.questions[::2], golden.questions[1::2]
    assert load_questions(str(out)) == train + test
    assert load_questions(str(out), "test") == test
    assert load_questions(str(out / "test.parquet")) == test
    # The hub gives what the folder gives.
    parts = datasets.load_dataset(str(out), cache_dir=str(tmp_path / "cache"))
    monkeypatch.setattr(datasets, "load_dataset", lambda _: parts)
    assert load_questions("someone/questions", "train") == train
    for file in out.glob("*.jsonl"):
        file.unlink()
    assert sorted(load_questions(str(out)), key=lambda each: each.id) == golden.questions


def test_rejected_rows_stay_behind(tmp_path: Path) -> None:
    export(golden_set(*SPLITS_OF_ROWS), tmp_path / "out")
    for file in (tmp_path / "out").iterdir():
        assert b"q-99" not in file.read_bytes()
        assert b"the secret reason" not in file.read_bytes()
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == [
        "README.md", "manifest.json", "test.jsonl", "test.parquet", "train.jsonl", "train.parquet",
    ]  # fmt: skip


def test_an_earlier_export_is_replaced_whole(tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(golden_set(None), out)
    (tmp_path / ".out.partial").mkdir()  # of one that was killed
    export(golden_set(*SPLITS_OF_ROWS), out)
    first = {each.name: each.read_bytes() for each in out.iterdir()}
    assert "questions.parquet" not in first
    export(golden_set(*SPLITS_OF_ROWS), out)
    assert {each.name: each.read_bytes() for each in out.iterdir()} == first
    assert [each.name for each in tmp_path.iterdir()] == ["out"]
