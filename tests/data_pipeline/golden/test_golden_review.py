"""`golden review`: a person's keys, on a runner and on a real terminal; safe and resumable."""

import dataclasses
import datetime as dt
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from art_e.cli.main import app
from art_e.question import Question
from data_pipeline.golden.golden_set import Check, GoldenSet, with_checks
from data_pipeline.golden.review import KEYS, Sample, drawn, read_reviews
from tests.builders import WAIT_S, press_keys
from tests.command_line import ANN, HOSTILE, HOSTILE_ID, LEASE_ID, assert_safe, json_of

LEASE_2 = "<lease.2@harbor.example>"
Review = Callable[..., Result]


def row(number: int, **fields: Any) -> Question:
    base = Question(
        f"q-{number}", f"When does lease {number} end?", ANN, dt.date(2001, 3, 1),
        "March 31, 2002", (LEASE_ID,), 0.9, "lookup", "easy", True,
        "test" if number % 2 else "train", {"model": "m"},
    )  # fmt: skip
    return dataclasses.replace(base, **fields)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "set"
    save(path, [row(number) for number in range(6)])
    return path


def save(path: Path, questions: list[Question]) -> None:
    golden = GoldenSet(questions=questions)
    golden.record("import", came=len(questions), settings={})
    golden.save(path)


@pytest.fixture
def review(folder: Path, db: Path) -> Review:
    def run(keys: str, *args: object) -> Result:
        arguments = ["golden", "review", folder, "--db", db, *args]
        return CliRunner().invoke(app, [str(each) for each in arguments], input=keys)

    return run


def shown(folder: Path) -> list[str]:
    """The ids in the order in which they are shown by default."""
    golden = GoldenSet.load(folder)
    golden.undo("review")
    return [each.id for each in drawn(golden.questions, Sample())]


def record(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = GoldenSet.load(folder).manifest["steps"]["review"]
    return found


def test_keys_become_verdicts_in_the_order_shown(review: Review, folder: Path) -> None:
    order = shown(folder)
    result = review("k?dnnot asked\nks\nsq", "--reviewer", "ann")
    assert result.exit_code == 0, result.output
    assert "there is no key '?'" in result.stderr
    written = read_reviews(folder)
    assert [(each.id, each.said, each.note) for each in written] == [
        (order[0], "keep", ""),
        (order[1], "drop", ""),
        (order[2], "keep", "not asked"),
        (order[3], "skip", ""),
        (order[4], "skip", ""),
    ]
    assert {each.reviewer for each in written} == {"ann"}
    assert "5 reviews added" in result.stderr
    golden = GoldenSet.load(folder)
    assert [each.row["id"] for each in golden.rejected] == [order[1]]
    assert "precision 66.7% (20.8% to 93.9%, wilson): 2 of 3 rows of all splits" in result.stderr
    assert "review: 6 rows, 5 kept" in result.stdout


def test_hostile_rows_and_mail_are_only_text(folder: Path, review: Review) -> None:
    hostile = row(
        0, question=f"When? {HOSTILE}\nand where?", answer=HOSTILE, message_ids=(HOSTILE_ID,),
        query_date=None,
    )  # fmt: skip
    check = Check(HOSTILE, "filter", True, HOSTILE, HOSTILE)
    save(folder, [with_checks(hostile, [check])])
    result = review("wd")
    assert result.exit_code == 0, result.output
    assert "The prize code is 7781." in result.stdout
    assert "[bold]red[/bold]" in result.stdout
    assert_safe(result.stdout)
    assert_safe(result.stderr.replace("\r", ""))
    assert len(GoldenSet.load(folder).rejected) == 1


def test_apply_needs_nobody_and_takes_the_sample_of_the_last_review(
    folder: Path, review: Review, art_e: Any, db: Path
) -> None:
    review("kdq", "--sample", 2, "--seed", 7, "--split", "test")
    before = (folder / "questions.jsonl").read_bytes()
    by_hand = record(folder)
    assert (by_hand["split"], by_hand["sample"], by_hand["seed"]) == ("test", 2, 7)
    card = (folder / "README.md").read_text("utf-8")
    assert "2 rows of a random sample of the test split: 1 were right and 1 dropped" in card
    # As after a step that was run again.
    golden = GoldenSet.load(folder)
    golden.undo("review")
    golden.save(folder)
    applied = json_of(art_e("golden", "review", folder, "--db", db, "--apply", "--json"))
    assert (folder / "questions.jsonl").read_bytes() == before
    assert record(folder) == by_hand
    assert applied["precision"] == by_hand["precision"]
    assert applied["step"] == "review"
    assert (applied["reviewed"], applied["dropped"], applied["split"]) == (2, 1, "test")


def test_killed_it_has_lost_no_verdict(folder: Path, db: Path, review: Review) -> None:
    untouched = (folder / "questions.jsonl").read_bytes()
    order = shown(folder)
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "art_e", "golden", "review", str(folder), "--db", str(db)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "dumb"},
        start_new_session=True,
    )
    try:
        press_keys(ours, [b"d", b"k"], KEYS, until="3 of 6")
        process.send_signal(signal.SIGKILL)
        assert process.wait(WAIT_S) == -signal.SIGKILL
    finally:
        process.kill()
        process.wait()
        os.close(theirs)
        os.close(ours)
    assert [each.said for each in read_reviews(folder)] == ["drop", "keep"]
    # Not applied yet; going on does it, with the third row.
    assert (folder / "questions.jsonl").read_bytes() == untouched
    assert "3 of 6" in review("q").stdout
    assert [each.row["id"] for each in GoldenSet.load(folder).rejected] == [order[0]]
