"""Reviews of a golden set: a person's keys, the sample, the log, the precision; killed, resumed."""

import dataclasses
import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import Result

from art_e.question import Question
from data_pipeline.golden import review
from data_pipeline.golden.golden_set import Check, GoldenSet, checks_of, with_checks
from data_pipeline.golden.review import KEYS, ReviewSample, read_reviews, sample_rows
from tests.command_line import ANN, HOSTILE, HOSTILE_ID, LEASE_ID, Run, assert_safe, done
from tests.golden import set_of
from tests.processes import at_terminal, press_keys

RunReview = Callable[[str], Result]


def row(number: int, **fields: Any) -> Question:
    base = Question(
        f"q-{number}", f"When does lease {number} end?", ANN, dt.date(2001, 3, 1),
        "March 31, 2002", (LEASE_ID,), 0.9, split="test" if number % 2 else "train",
    )  # fmt: skip
    return dataclasses.replace(base, **fields)


def test_only_changed_rows_make_reviews_stale() -> None:
    rows = [row(number) for number in range(4)]
    digests = [(each.id, review.row_digest(each)) for each in rows]
    reviews = [review.Review(id=name, digest=digest, said="drop") for name, digest in digests]
    rechecked = with_checks(rows[0], [Check("answerable", "verify", True, "says May", "model")])
    golden = set_of(
        dataclasses.replace(rechecked, split="validation", how_realistic=0.1),
        row(1, answer="July"),
        row(2, message_ids=("<2@test>",), query_date=dt.date(2020, 1, 31)),
    )
    review.review(golden, reviews, ReviewSample())
    assert [each.id for each in golden.questions] == ["q-1", "q-2"]
    [rejected] = golden.rejected
    assert (rejected.row["id"], rejected.check, rejected.reason) == ("q-0", "person", "dropped")
    record = golden.manifest["steps"]["review"]
    # The fourth row is not in the set.
    assert (record["stale"], record["reviewed"], record["kept"]) == (3, 1, 0)


@given(st.sets(st.integers(0, 60), min_size=2), st.integers(0, 5), st.randoms())
def test_a_sample_is_stable_when_rows_come_and_go(ids: set[int], seed: int, random: Any) -> None:
    rows = [row(number) for number in sorted(ids)]
    whole = sample_rows(rows, ReviewSample(len(rows), seed))
    assert sorted(each.id for each in whole) == sorted(each.id for each in rows)
    # A smaller sample starts the larger one, and removed rows don't reorder the others.
    assert sample_rows(rows, ReviewSample(1, seed)) == whole[:1]
    left = [each for each in random.sample(rows, len(rows)) if each != whole[1]]
    assert sample_rows(left, ReviewSample(len(rows), seed)) == [whole[0], *whole[2:]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    set_of(*map(row, range(6))).save(tmp_path / "set")
    return tmp_path / "set"


@pytest.fixture
def run_review(art_e: Run, folder: Path, db: Path) -> RunReview:
    return lambda keys: art_e("golden", "review", folder, "--db", db, keys=keys)


def order_of(folder: Path) -> list[str]:
    """Return the ids in the default order of review."""
    questions = GoldenSet.load(folder, "review").questions
    return [each.id for each in sample_rows(questions, ReviewSample())]


def test_keys_become_verdicts(run_review: RunReview, folder: Path) -> None:
    order = order_of(folder)
    result = done(run_review("k?dksq"))
    assert "there is no key '?'" in result.stderr
    decisions = list(zip(order, ["keep", "drop", "keep", "skip"], strict=False))
    assert [(each.id, each.said) for each in read_reviews(folder)] == decisions
    assert "4 reviews added" in result.stderr
    golden = GoldenSet.load(folder)
    [rejected] = golden.rejected
    assert (rejected.row["id"], rejected.reason) == (order[1], "dropped")
    now = {each.id: checks_of(each).get("person") for each in golden.questions}
    assert now[order[0]] == Check("person", "review", True, "kept", "person")
    skipped = now[order[3]]
    assert skipped is not None and skipped.passed is None
    assert now[order[4]] is now[order[5]] is None
    record, one = golden.manifest["steps"]["review"], {"person": 1}
    assert record["sums"] == {"in": 6, "kept": 5, "dropped": one, "changed": {}, "unsure": one}
    # Wilson's interval of 2 of 3: (p + z^2/2n +- z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n).
    estimate = [record["precision"][name] for name in ("value", "low", "high")]
    assert estimate == pytest.approx([2 / 3, 0.2077, 0.9385], abs=1e-4)
    assert "precision 66.7% (20.8% to 93.9%, wilson): 2 of 3 rows of all splits" in result.stderr
    assert "review: kept 5 of 6 rows" in result.stdout


def test_hostile_rows_and_mail_are_only_text(folder: Path, run_review: RunReview) -> None:
    texts = {"question": f"When? {HOSTILE}\nand where?", "answer": HOSTILE}
    hostile = row(0, **texts, message_ids=(HOSTILE_ID,), query_date=None)
    set_of(with_checks(hostile, [Check(HOSTILE, "filter", True, HOSTILE, HOSTILE)])).save(folder)
    result = done(run_review("wd"))
    assert "The prize code is 7781." in result.stdout
    assert "[bold]red[/bold]" in result.stdout
    assert_safe(result.stdout)
    assert_safe(result.stderr.replace("\r", ""))
    assert len(GoldenSet.load(folder).rejected) == 1


def test_a_killed_review_loses_no_verdict(folder: Path, db: Path, run_review: RunReview) -> None:
    untouched, order = (folder / "questions.jsonl").read_bytes(), order_of(folder)
    command = ("golden", "review", folder, "--db", db)
    with at_terminal(command, {"TERM": "dumb"}) as (process, terminal):
        press_keys(terminal, [b"d", b"k"], KEYS, until="3 of 6")
        process.kill()
    assert [each.said for each in read_reviews(folder)] == ["drop", "keep"]
    # The verdicts are applied when the review continues, with the third row.
    assert (folder / "questions.jsonl").read_bytes() == untouched
    assert "3 of 6" in run_review("q").stdout
    assert [each.row["id"] for each in GoldenSet.load(folder).rejected] == [order[0]]
