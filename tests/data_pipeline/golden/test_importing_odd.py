"""Importing rows that are nested, numbered or many as no question is, and telling rows apart."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from art_e.inbox.file import InboxFile
from data_pipeline.golden.golden_set import GoldenSet
from data_pipeline.golden.importing import source_digest
from tests.data_pipeline.golden.importable import PUBLIC, imported, small_inbox, write


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InboxFile]:
    with InboxFile(small_inbox(tmp_path_factory.mktemp("inbox"))) as opened:
        yield opened


@pytest.mark.parametrize("levels", [60, 300, 700, 900, 5_000])
@pytest.mark.parametrize("column", ["mine", "provenance", "id"])
def test_what_is_nested_too_deep_costs_its_row_alone(
    file: InboxFile, tmp_path: Path, column: str, levels: int
) -> None:
    deep = json.dumps({**PUBLIC, column: "HERE"}).replace('"HERE"', "[" * levels + "]" * levels)
    text = {**PUBLIC, "id": 18, "provenance": f'{{"a": {"[" * levels}{"]" * levels}}}'}
    golden = imported(file, tmp_path, deep, text, PUBLIC)
    assert [each.id for each in golden.questions] == ["17"]
    assert [each.check for each in golden.rejected] == ["row", "row"]
    golden.save(tmp_path / "set")
    assert len(GoldenSet.load(tmp_path / "set").rejected) == 2


def test_what_is_written_is_json_whatever_the_numbers_were(file: InboxFile, tmp_path: Path) -> None:
    odd: dict[str, Any] = {"a": [float("nan"), 1.5], "b": {"c": float("-inf")}}
    bad = {**PUBLIC, "id": None, "mine": odd}
    golden = imported(file, tmp_path, {**PUBLIC, "mine": odd, "provenance": odd}, bad)
    golden.save(tmp_path / "set")

    def refused(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    null = {"a": [None, 1.5], "b": {"c": None}}
    for name in ("questions.jsonl", "rejected.jsonl"):
        [line] = (tmp_path / "set" / name).read_text("utf-8").splitlines()
        row = json.loads(line, parse_constant=refused)
        if name == "rejected.jsonl":
            assert row["mine"] == null
        else:
            assert row["provenance"]["extra"] == {"mine": null}
            assert row["provenance"].items() >= null.items()


def test_a_digest_tells_the_rows_from_others(file: InboxFile, tmp_path: Path) -> None:
    golden = imported(file, tmp_path, PUBLIC, [1])
    made = golden.manifest["steps"]["import"]["digest"]
    assert source_digest(str(tmp_path / "q.jsonl")) == made
    # The order of columns says nothing, that of rows does.
    turned = dict(reversed(PUBLIC.items()))
    assert source_digest(write(tmp_path / "same.jsonl", [turned, [1]])) == made
    others: list[list[Any]] = [[PUBLIC], [[1], PUBLIC], [{**PUBLIC, "answer": "no"}, [1]]]
    for number, rows in enumerate(others):
        assert source_digest(write(tmp_path / f"{number}.jsonl", rows)) != made
