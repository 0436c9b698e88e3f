"""Verifying with a model at the wire: each planted fault falls to its own check, and no other."""

import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import pytest

from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from data_pipeline.golden.golden_set import GoldenSet
from data_pipeline.golden.offline_reader import WordChecks
from data_pipeline.golden.verify import verify
from tests.data_pipeline.golden.verified import (
    ROWS,
    CarefulReader,
    Verified,
    checked,
    data_of,
    dropped,
    form_of,
    kept,
    one,
)
from tests.provider import Reply, Request, refuses, says


def test_each_fault_falls_to_its_own_check(run: Verified) -> None:
    golden = run(CarefulReader())
    assert {name: check for name, (check, _) in dropped(golden).items()} == {
        "ambiguous": "unambiguous",
        "wrong": "answerable",
        "guessable": "needs-mail",
        "miscounted": "unambiguous",
        "answered": "unanswerable",
        "undated": "unambiguous",
        "lost": "answerable",
    }
    assert set(kept(golden)) == {
        "right", "superseded", "supersedes", "other", "yes", "counted", "nothing", "hostile",
    }  # fmt: skip
    sums = golden.manifest["steps"]["verify"]["sums"]
    assert sums == {
        "in": 15,
        "kept": 8,
        "dropped": {"answerable": 2, "needs-mail": 1, "unambiguous": 3, "unanswerable": 1},
        "mended": {"unambiguous": 2},
        "unsure": {"needs-mail": 1},
    }
    assert golden.manifest["steps"]["verify"]["unchecked"] == {}
    for name in ("right", "other", "counted", "hostile"):
        found = checked(golden, name)
        assert list(found) == ["needs-mail", "answerable", "unambiguous"]
        assert all(each.passed for each in found.values())
        assert all("\n" not in each.reason for each in found.values())


def test_a_superseded_answer_becomes_the_latest_and_the_set_can_be_taken_back(
    run: Verified,
) -> None:
    golden = run(CarefulReader())
    mended, was = kept(golden)["superseded"], one("superseded")[0]
    assert (mended.kind, mended.answer) == ("latest-update", "5,000 dollars")
    assert mended.message_ids == ("<crane-new@t>",)
    assert mended.difficulty == was.difficulty
    # What it was checked with before is not what it is checked with now.
    assert "5,000" in checked(golden, "superseded")["answerable"].reason
    superseding = kept(golden)["supersedes"]
    assert (superseding.kind, superseding.answer) == ("latest-update", "Thursday")
    assert superseding.message_ids == ("<boiler-new@t>",)
    golden.undo("verify")
    assert sorted(golden.questions, key=lambda each: each.id) == sorted(
        ROWS, key=lambda each: each.id
    )
    assert golden.manifest["steps"] == {}


@pytest.mark.parametrize("seed", range(3))
def test_nothing_depends_on_the_order_of_replies(run: Verified, tmp_path: Path, seed: int) -> None:
    quiet, shaken = CarefulReader(), CarefulReader()
    waits = random.Random(seed)

    def slow(request: Request) -> Reply:
        return dataclasses.replace(shaken(request), delay_s=waits.uniform(0, 0.03))

    first = run(quiet, folder=tmp_path / "a", concurrency=1)
    second = run(slow, folder=tmp_path / "b", concurrency=8)
    first.save(tmp_path / "a")
    second.save(tmp_path / "b")
    for name in ("questions.jsonl", "questions.parquet", "rejected.jsonl", "manifest.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert quiet.asked == shaken.asked


def test_what_could_not_be_checked_is_counted_and_asked_alone_the_next_time(run: Verified) -> None:
    def failing(request: Request, careful: CarefulReader = CarefulReader()) -> Reply:  # noqa: B008
        form, data = form_of(request), data_of(request)
        if form == "Candidates":
            return refuses(400, "no")
        if form == "Reading" and "mails" not in data and "lease" in data["question"]:
            return says("It is May, I think.")
        if form == "Correctness":
            return says("who knows")
        return careful(request)

    # In other words, so that a judge has to be asked whether they are the same.
    rows = (
        *(dataclasses.replace(each, answer="the 3rd of May") for each in one("right")),
        *one("yes"),
        *one("nothing"),
    )
    golden = run(failing, rows)
    assert golden.rejected == []
    assert golden.manifest["steps"]["verify"]["unchecked"] == {
        "answerable": {"judge": 1},
        "needs-mail": {"unparseable": 1},
        "unambiguous": {"request": 1},
    }
    found = checked(golden, "right")
    assert [(name, each.passed, each.reason) for name, each in found.items()] == [
        ("needs-mail", None, "not checked: unparseable"),
        ("answerable", None, "not checked: judge"),
        ("unambiguous", None, "not checked: request"),
    ]
    sums = golden.manifest["steps"]["verify"]["sums"]
    assert sums["unsure"] == {"answerable": 1, "needs-mail": 2, "unambiguous": 1}

    class Lenient(CarefulReader):
        def reply(self, form: str, data: dict[str, Any]) -> dict[str, Any]:
            if form == "Correctness":
                return {"reason": "one day", "verdict": "correct"}
            return super().reply(form, data)

    again = Lenient()
    golden = run(again, rows)
    assert [json.loads(each)[0] for each in again.asked] == ["Correctness", "Candidates"]
    # What could not be read three times has its three replies, and is asked no more.
    assert golden.manifest["steps"]["verify"]["unchecked"] == {"needs-mail": {"unparseable": 1}}
    found = checked(golden, "right")
    assert [each.passed for each in found.values()] == [None, True, True]


def test_an_inbox_that_is_not_there_is_told(inbox_file: InboxFile) -> None:
    rows = [dataclasses.replace(each, inbox_address="eve@test.example") for each in ROWS]
    with pytest.raises(UserError, match=r"no inbox 'eve@test\.example'"):
        verify(inbox_file, GoldenSet(rows), WordChecks())
