"""Rows to import and a small inbox file that they are about."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from art_e.inbox.file import InboxFile
from art_e.question import Question
from data_pipeline.golden.golden_set import GoldenSet
from data_pipeline.golden.importing import import_questions
from data_pipeline.ingest.batch import Rules
from tests.builders import date_header, make_inbox, raw

# A row of the public data set, whose gold mail is there.
PUBLIC: dict[str, Any] = {
    "id": 17,
    "question": "When does the lease of the warehouse end?",
    "answer": "On May 3.",
    "message_ids": ["<1@test>"],
    "how_realistic": 0.9,
    "inbox_address": "bob@test.example",
    "query_date": "2020-01-10",
}


def small_inbox(folder: Path) -> Path:
    """Mail of Bob's: 1 (and its copy 1b), 2, a later 3 and one without a date; 4 is Carl's."""
    path = folder / "small.duckdb"
    lease = {"subject": "Lease", "body": "The lease of the warehouse ends on May 3.\n"}
    make_inbox(
        path,
        [
            raw("<1@test>", date=date_header(2), **lease),
            raw("<1b@test>", date=date_header(3), **lease),
            raw("<2@test>", date=date_header(4), body="Twelve pallets came."),
            raw("<3@test>", date=date_header(20), body="It ends in June."),
            raw("<4@test>", date=date_header(2), to="carl@test.example", body="For Carl."),
            raw("<5@test>", date=None, body="When was this?"),
        ],
        Rules(any_id=True),
    )
    return path


def write(path: Path, rows: Sequence[Any]) -> str:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def imported(file: InboxFile, tmp_path: Path, *rows: Any) -> GoldenSet:
    golden = GoldenSet()
    import_questions(file, golden, write(tmp_path / "q.jsonl", rows))
    return golden


def the_row(golden: GoldenSet) -> Question:
    [question] = golden.questions
    return question
