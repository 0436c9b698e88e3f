"""The filter on sets with planted faults: each row is dropped for its own, and is accounted for."""

import copy
import datetime as dt
import random
from pathlib import Path
from typing import Any

import pytest

from art_e.inbox.file import InboxFile
from art_e.question import Question, load_questions
from data_pipeline.golden.filtering import filter_rows
from data_pipeline.golden.golden_set import Batch, GoldenSet
from data_pipeline.ingest.batch import Rules
from tests.builders import date_header, make_inbox, raw
from tests.conftest import RealInbox

ANN = "ann@test.example"


@pytest.fixture
def db(tmp_path: Path) -> Path:
    made = tmp_path / "inbox.duckdb"
    lease = {"subject": "Lease", "body": "The lease ends on March 31, 2002."}
    mails = [
        raw("<1@test>", **lease, date=date_header(6)),
        raw("<9@test>", **lease, date=date_header(7)),
        raw("<2@test>", body="The pump is 40 bar.", date=date_header(8)),
        raw("<3@test>", body="The dinner is on May 7.", date=date_header(20)),
        raw("<4@test>", sender="Cat Coe <cat@test.example>", to="dan@test.example"),
    ]
    make_inbox(made, mails, Rules(any_id=True))
    return made


def row(name: str, question: str = "When does the lease end?", **more: Any) -> Question:
    fields: dict[str, Any] = {
        "answer": "March 31, 2002",
        "message_ids": ("<1@test>",),
        "inbox_address": ANN,
        "query_date": dt.date(2020, 1, 10),
        "how_realistic": 0.9,
        "kind": "lookup",
        "answerable": True,
    }
    return Question(id=name, question=question, **(fields | more))


def filtered(db: Path, *rows: Question, batches: tuple[Batch, ...] = ()) -> GoldenSet:
    golden = GoldenSet(list(rows), batches=list(batches))
    with InboxFile(db) as file:
        filter_rows(file, golden)
    return golden


def dropped(golden: GoldenSet) -> dict[str, str]:
    return {each.row["id"]: each.check for each in golden.rejected}


PLANTED = {
    "answer": row("q-1", answer=""),
    "sources": row("q-2", message_ids=("m37",), provenance={"batch": "b-1"}),
    "ids": row("q-3", "When does the lease in m2 end?", provenance={"batch": "b-1"}),
    "leak": row("q-4", "When does the lease of March 31, 2002 end?"),
    "wording": row("q-5", "When does Ann Alder's lease end?"),
    "realism": row("q-6", "How does the lease end, by date?", how_realistic=0.3),
    "duplicate": row("q-8"),
}
BATCH = Batch("b-1", ANN, "train", ("<1@test>", "<2@test>"))


def test_each_planted_fault_is_dropped_for_its_own_reason(db: Path) -> None:
    golden = filtered(db, row("q-7"), *PLANTED.values(), batches=(BATCH,))
    assert [each.id for each in golden.questions] == ["q-7"]
    assert dropped(golden) == {each.id: name for name, each in PLANTED.items()}
    sums = golden.manifest["steps"]["filter"]["sums"]
    assert (sums["in"], sums["kept"], sums["dropped"]) == (8, 1, dict.fromkeys(sorted(PLANTED), 1))
    [twin] = [each.reason for each in golden.rejected if each.check == "duplicate"]
    assert "q-7" in twin


def test_mails_that_the_inbox_does_not_have_yet_or_at_all(db: Path) -> None:
    golden = filtered(
        db,
        row("q-1", message_ids=("<3@test>",)),
        row("q-2", message_ids=("<4@test>",)),  # in another inbox
        row("q-3", message_ids=()),
        row("q-4", inbox_address="nobody@test.example"),
    )
    reasons = {each.row["id"]: each.reason for each in golden.rejected}
    assert dropped(golden) == dict.fromkeys(("q-1", "q-2", "q-3", "q-4"), "sources")
    assert "sent after 2020-01-10" in reasons["q-1"]
    assert "not in the inbox" in reasons["q-2"]
    assert "no mail" in reasons["q-3"]
    assert "no inbox" in reasons["q-4"]


def test_twice_is_once_and_order_does_not_matter(db: Path) -> None:
    rows = [row("q-7"), *PLANTED.values()]
    once = filtered(db, *rows, batches=(BATCH,))
    twice = copy.deepcopy(once)
    with InboxFile(db) as file:
        filter_rows(file, twice)
    other = filtered(db, *random.Random(1).sample(rows, len(rows)), batches=(BATCH,))
    assert once == twice == other


def test_real_questions_lose_only_third_person_and_twice_asked_ones(real_inbox: RealInbox) -> None:
    rows = load_questions(str(real_inbox.folder / "questions.jsonl"))
    golden = GoldenSet(list(rows))
    with InboxFile(real_inbox.db) as file:
        filter_rows(file, golden, min_realism=0.6)
    assert golden.manifest["steps"]["filter"]["sums"]["dropped"] == {"duplicate": 2, "wording": 5}
    named = [each for each in golden.rejected if each.check == "wording"]
    assert all("Vince" in each.row["question"] for each in named)
