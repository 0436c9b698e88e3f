"""Loading question sets: files, folders and the hub; what is refused, and in what words."""

import dataclasses
import datetime as dt
import json
from pathlib import Path
from typing import Any

import datasets
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from art_e.question import Question, load_questions
from tests.builders import table, table_rows, the_error, write_lines

PUBLIC = table(__file__, "public_question.toml")
FIELDS = {"id": "17", "query_date": dt.date(2020, 1, 31), "message_ids": ("<1@t>", "<2@t>")}
QUESTION = Question(**PUBLIC | FIELDS, answerable=True)


def write(path: Path, *rows: Any) -> str:
    return str(write_lines(path, *rows))


def refused(source: str, **options: Any) -> str:
    return the_error(load_questions, source, **options)


@pytest.mark.parametrize(("name", "count"), [("enron", 1_146), ("enron-hard", 25)])
def test_loads_the_shipped_sets(name: str, count: int) -> None:
    rows = load_questions(name)
    assert len({row.id for row in rows}) == len(rows) == count
    assert all(row.split and row.answerable is not None and row.kind for row in rows)
    assert all(bool(row.message_ids) is row.answerable for row in rows)
    assert any(row.equivalent_ids for row in rows)


def test_loads_a_bare_file_of_the_public_form(tmp_path: Path) -> None:
    source = write(tmp_path / "q.jsonl", PUBLIC, "", {**PUBLIC, "id": "x", "batch": {"new": [1]}})
    assert load_questions(source) == [QUESTION, dataclasses.replace(QUESTION, id="x")]


@pytest.mark.parametrize(
    ("fields", "answerable"),
    [({}, True), ({"answer": None}, None), ({"answer": "I don't know."}, False),
     ({"answer": None, "kind": "unanswerable"}, False), ({"kind": "unanswerable"}, False),
     ({"answerable": False}, False)],
)  # fmt: skip
def test_answerable_may_be_implied(tmp_path: Path, fields: Any, answerable: bool | None) -> None:
    source = write(tmp_path / "q.jsonl", {**PUBLIC, **fields})
    assert load_questions(source)[0].answerable is answerable


@pytest.mark.parametrize(("text", "named"), table_rows(__file__, "bad_questions.tsv"))
def test_refuses_a_bad_row_by_its_number_and_field(tmp_path: Path, text: str, named: str) -> None:
    row = text
    if text.startswith("{"):
        changed = PUBLIC | json.loads(text)
        row = json.dumps({name: value for name, value in changed.items() if value != "left out"})
    source = write(tmp_path / "q.jsonl", PUBLIC, row, PUBLIC)
    message = refused(source)
    assert f"{source}, row 2: " in message
    assert named in message.partition("row 2: ")[2] or named == "row"


def test_loads_a_folder_of_splits(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", {**PUBLIC, "id": 1}, {**PUBLIC, "id": 2, "split": None})
    write(tmp_path / "test.jsonl", {**PUBLIC, "id": 3, "split": "test"})
    write(tmp_path / "questions.jsonl", {**PUBLIC, "id": 4})
    folder = str(tmp_path)
    loaded = [(each.id, each.split) for each in load_questions(folder)]
    assert loaded == [("1", "train"), ("2", "train"), ("3", "test")]
    assert [each.id for each in load_questions(folder, "test")] == ["3"]
    assert "validation" in refused(folder, split="validation")


def test_empty_sources_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "load_dataset", lambda _: pytest.fail("asked the hub"))
    for mistyped in ("missing", "sets/missing.jsonl", "~/sets", "a/b/c"):
        assert mistyped in refused(mistyped)
    assert "questions.jsonl" in refused(str(tmp_path))
    assert "no question" in refused(write(tmp_path / "empty.jsonl"))
    assert "JSONL file, a folder or a hub id" in refused(str(tmp_path / "missing.jsonl"))


def test_loads_from_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {
        "train": datasets.Dataset.from_list([{**PUBLIC, "id": 1}, {**PUBLIC, "id": 2}]),
        "test": datasets.Dataset.from_list([{**PUBLIC, "id": 3, "split": None}]),
        "spare": datasets.Dataset.from_list([{**PUBLIC, "id": 4}]),
    }
    monkeypatch.setattr(datasets, "load_dataset", {"someone/some.questions": parts}.get)
    loaded = [(each.id, each.split) for each in load_questions("someone/some.questions")]
    assert loaded == [("1", "train"), ("2", "train"), ("3", "test"), ("4", None)]


INFERRED = "query_date answer message_ids equivalent_ids kind difficulty split".split()
_questions = st.builds(
    Question,
    how_realistic=st.none() | st.floats(0, 1),
    answerable=st.booleans(),
    provenance=st.dictionaries(st.text(), st.text() | st.integers(), max_size=2),
    **dict.fromkeys(INFERRED, ...),
)


@settings(deadline=None)
@given(st.lists(_questions, min_size=1, max_size=4))
def test_rows_load_as_they_were(tmp_path_factory: pytest.TempPathFactory, rows: Any) -> None:
    path = tmp_path_factory.mktemp("round") / "q.jsonl"
    lines = [json.dumps(each.to_row(), ensure_ascii=n % 2 == 0) for n, each in enumerate(rows)]
    assert load_questions(write(path, *lines)) == rows
