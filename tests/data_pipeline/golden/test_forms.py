"""What a set's files may hold: what steps write is taken, all else refused in one line."""

import json
from pathlib import Path
from typing import Any

import pytest

from art_e.errors import UserError
from data_pipeline.golden.golden_set import Check, GoldenSet, Rejected, mended, with_checks
from tests.data_pipeline.golden.sets import golden_set, row


def changed(folder: Path, name: str, place: int, **fields: Any) -> None:
    """Give the line of that place other values."""
    lines = (folder / name).read_text("utf-8").splitlines()
    lines[place] = json.dumps({**json.loads(lines[place]), **fields})
    (folder / name).write_text("\n".join(lines) + "\n", "utf-8")


CHECK = {"step": "filter", "passed": True, "reason": "", "by": "rule"}
MEND = {"step": "filter", "check": "sources", "was": {"answer": "June"}}


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        ("questions.jsonl", {"how_realistic": "high"}, "how_realistic"),
        ("questions.jsonl", {"how_realistic": 7}, "how_realistic"),
        ("questions.jsonl", {"split": "\x1b[31mtrain"}, "split"),
        ("questions.jsonl", {"answer": ["May"]}, "answer"),
        ("questions.jsonl", {"provenance": "str"}, "provenance"),
        ("questions.jsonl", {"more": 1}, "no field 'more'"),
        ("questions.jsonl", {"id": "q-1"}, "two rows have the id 'q-1'"),
        ("questions.jsonl", {"id": "q-3"}, "two rows have the id 'q-3'"),
        ("questions.jsonl", {"provenance": {"checks": {"x": {**CHECK, "step": "zz"}}}}, "x.step"),
        ("questions.jsonl", {"provenance": {"checks": {"x": {**CHECK, "passed": "no"}}}}, "passed"),
        ("questions.jsonl", {"provenance": {"checks": [1]}}, "checks"),
        ("questions.jsonl", {"provenance": {"mended": [{**MEND, "was": {"id": []}}]}}, "id"),
        ("questions.jsonl", {"provenance": {"mended": [{**MEND, "was": {"x": 1}}]}}, "'x'"),
        ("rejected.jsonl", {"rejected": {"step": "zz", "check": "x", "reason": ""}}, "step"),
        ("rejected.jsonl", {"rejected": {"step": "filter", "check": 1, "reason": ""}}, "check"),
        ("rejected.jsonl", {"inbox_address": None}, "inbox_address"),
        ("batches.jsonl", {"message_ids": "m1"}, "message_ids"),
        ("batches.jsonl", {"split": "other"}, "split"),
    ],
)
def test_a_line_that_no_step_writes_is_refused(
    tmp_path: Path, name: str, fields: dict[str, Any], words: str
) -> None:
    golden_set(4, dropped=1).save(tmp_path)
    changed(tmp_path, name, 0, **fields)
    with pytest.raises(UserError, match="no whole golden set") as refused:
        GoldenSet.load(tmp_path)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


SUMS: dict[str, Any] = {"in": 4, "kept": 3, "dropped": {}, "mended": {}, "unsure": {}}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"steps": None}, "steps"),
        ({"steps": {"filter": {}}}, "filter.sums"),
        ({"steps": {"zz": {"sums": SUMS}}}, "zz"),
        ({"steps": {"filter": {"sums": {**SUMS, "in": "4"}}}}, "sums.in"),
        ({"steps": {"filter": {"sums": {**SUMS, "dropped": {"x": -1}}}}}, "dropped.x"),
        ({"steps": {"filter": {"sums": SUMS, "unchecked": [1]}}}, "unchecked"),
        ({"db": "inbox.duckdb"}, "db"),
        ({"inboxes": {"ann@test.example": "other"}}, "inboxes"),
    ],
)
def test_a_manifest_that_no_step_writes_is_refused(
    tmp_path: Path, fields: dict[str, Any], words: str
) -> None:
    golden_set(4, dropped=1).save(tmp_path)
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **fields}), "utf-8")
    with pytest.raises(UserError, match="no whole golden set") as refused:
        GoldenSet.load(tmp_path)
    assert words in str(refused.value)


def test_what_steps_write_is_taken(tmp_path: Path) -> None:
    doubt = Check("answerable", "verify", None, "no verdict", "m")
    mends = mended(row(1), "filter", "sources", message_ids=("<2@t>",), kind="lookup")
    golden = GoldenSet([with_checks(row(0), [doubt]), mends])
    # An import keeps what was no question as it came.
    golden.rejected = [Rejected({"id": "q-0", "provenance": [1]}, "import", "row", "none")]
    golden.record("import", came=3, settings={"any": {"setting": [1]}})
    golden.save(tmp_path)
    assert GoldenSet.load(tmp_path) == golden
