"""Exports load with `datasets`; the card is safe; the figures are right."""

import dataclasses
import datetime as dt
import json
import re
from pathlib import Path
from typing import Any

import datasets
import pytest
from markdown_it import MarkdownIt

from art_e.question import Question, Split, load_questions
from data_pipeline.golden.exchange import card, export, stats
from data_pipeline.golden.golden_set import Check, GoldenSet, with_checks
from tests.builders import files_of, the_error


def question(number: int, split: Split | None) -> Question:
    base = Question(
        f"q-{number}", "When does it end?\n\u2028“Really”?", "ann@test.example",
        dt.date(2020, 1, 5), "May", (f"<{number}@t>", "<x@t>"), 0.9, "lookup", None, True, split,
        {"model": "m", "nested": {"a": [1, None]}, "umlaut": "ä"},
    )  # fmt: skip
    return with_checks(base, [Check("ids", "filter", None, "not sure", "rule")])


@pytest.fixture
def golden() -> GoldenSet:
    """Return a set of two rows to train on, two to test on, and a rejected one."""
    splits: tuple[Split, ...] = ("train", "test", "train", "test")
    rows = [question(number, split) for number, split in enumerate(splits)]
    secret = Check("leak", "filter", False, "the secret reason", "rule")
    golden = GoldenSet([*rows, question(99, "test")])
    golden.finish("filter", [*((each, None) for each in rows), (golden.questions[-1], secret)], {})
    return golden


def test_exports_load_with_datasets_and_as_questions(golden: GoldenSet, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert export(golden, out) == {"train": 2, "test": 2}
    files = files_of(out)
    names = "README.md manifest.json test.jsonl test.parquet train.jsonl train.parquet"
    assert sorted(files) == names.split()
    # Rejected rows are left out.
    assert not any(b"q-99" in each or b"the secret reason" in each for each in files.values())
    train, test = golden.questions[::2], golden.questions[1::2]
    parts = datasets.load_dataset(str(out), cache_dir=str(tmp_path / "cache"))
    for name, questions in (("train", train), ("test", test)):
        rows = [{**row, "provenance": json.loads(row["provenance"])} for row in parts[name]]
        assert [Question.from_row(row) for row in rows] == questions
    assert load_questions(str(out)) == train + test
    assert load_questions(str(out), "test") == test
    assert load_questions(str(out / "test.parquet")) == test
    for file in out.glob("*.jsonl"):
        file.unlink()
    assert sorted(load_questions(str(out)), key=lambda each: each.id) == golden.questions


def test_an_export_is_whole_or_missing(golden: GoldenSet, tmp_path: Path) -> None:
    (tmp_path / ".out.partial").mkdir()  # of an export that was killed
    golden.questions[0] = dataclasses.replace(golden.questions[0], split=None)
    export(golden, tmp_path / "out")
    assert load_questions(str(tmp_path / "out" / "questions.parquet")) == golden.questions
    assert [each.name for each in tmp_path.iterdir()] == ["out"]
    assert "exists already" in the_error(export, golden, tmp_path / "out")


HOSTILE = "x | y\n\n# owned <script>alert(1)</script> [a](http://e) `b` ![i](//e) **c** {{ 7*7 }}"


def test_hostile_text_stays_text_on_the_card() -> None:
    def rendered(word: str) -> str:
        row = dataclasses.replace(question(1, "test"), provenance={"model": word, "prompt": word})
        golden = GoldenSet([with_checks(row, [Check(word, "filter", True, word, word)])])
        for step in ("generate", "import", "filter"):
            golden.finish(step, [(each, None) for each in golden.questions], {"model": word})
        golden.manifest |= {"db": {"name": word, "mails": 1}}
        golden.manifest["steps"]["filter"]["sums"]["dropped"] = {word: 1}
        body = card(golden).split("---\n", 2)[2]
        return str(MarkdownIt("commonmark").enable("table").render(body))

    hostile, plain = rendered(HOSTILE), rendered("word")
    assert hostile.count("alert(1)") >= 5
    assert set(re.findall(r"</?(\w+)", hostile)) == set(re.findall(r"</?(\w+)", plain))
    assert hostile.count("<h2>") == plain.count("<h2>")
    assert "{{ 7*7 }}" in hostile


def test_stats_count_rows_by_label_and_split(golden: GoldenSet) -> None:
    fields: dict[str, Any] = {"kind": None, "difficulty": "hard", "inbox_address": "bob@x.example"}
    golden.questions[1] = dataclasses.replace(golden.questions[1], **fields)
    figures = stats(golden)
    assert (figures["rows"], figures["rejected"]) == (4, 1)
    one = {"train": 0, "test": 1}
    assert figures["kinds"] == {"lookup": {"train": 2, "test": 1}, "unlabelled": one}
    assert figures["difficulties"]["hard"] == one
    assert [tuple(each.values()) for each in figures["splits"]] == [("train", 2, 1), ("test", 2, 2)]
    assert figures["steps"][0]["dropped"] == {"leak": 1}
