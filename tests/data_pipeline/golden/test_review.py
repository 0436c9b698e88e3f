"""Reviews of a golden set: the sample, the log, what verdicts do to the rows, the precision."""

import dataclasses
import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_e.errors import UserError
from art_e.question import Question, Split
from data_pipeline.golden.golden_set import Check, GoldenSet, checks_of, with_checks
from data_pipeline.golden.review import (
    Decision,
    Review,
    Sample,
    drawn,
    read_reviews,
    review,
    reviews_file,
    row_digest,
    write_review,
)

ANN, BOB = "ann@test.example", "bob@test.example"
ALL = Sample()
# A line of `reviews.jsonl`.
WHOLE: dict[str, Any] = {
    "id": "q-0", "digest": "", "said": "keep", "note": "", "reviewer": None,
    "sample": {"size": 1, "seed": 0, "split": None},
}  # fmt: skip
# What makes it none.
FAULTS: tuple[dict[str, Any], ...] = (
    {"sample": {"size": 0, "seed": 0, "split": None}},
    {"sample": {"size": True, "seed": 0, "split": None}},
    {"sample": {"size": 5, "seed": 0, "split": "moon"}},
    {"id": 7},
    {"said": "burn"},
    {"said": "edit"},
)


def row(number: int, **fields: Any) -> Question:
    inbox = ANN if number % 2 else BOB
    split: Split = "train" if number % 2 else "test"
    base = Question(
        f"q-{number}", f"When does lease {number} end?", inbox, dt.date(2020, 1, 5), "May",
        ("<1@test>",), 0.9, "lookup", "easy", True, split, {"model": "m"},
    )  # fmt: skip
    return dataclasses.replace(base, **fields)


def golden_set(count: int) -> GoldenSet:
    golden = GoldenSet(questions=[row(number) for number in range(count)])
    golden.record("import", came=count, settings={})
    return golden


def said(row: Question, word: Decision, note: str = "", /, sample: Sample = ALL) -> Review:
    return Review(
        id=row.id, digest=row_digest(row), said=word, note=note, reviewer=None, sample=sample
    )


def test_every_verdict_does_what_it_says() -> None:
    golden = golden_set(5)
    kept, dropped, also, skipped, unseen = golden.questions
    reviews = [
        said(kept, "keep"),
        said(dropped, "drop", "nobody asks\nthat \ud800"),
        said(also, "keep", "well asked"),
        said(skipped, "skip", "not my trade"),
    ]
    review(golden, reviews, ALL)
    now = {each.id: each for each in golden.questions}
    assert list(now) == ["q-0", "q-2", "q-3", "q-4"]
    assert now["q-4"] == unseen
    assert checks_of(now["q-0"])["person"] == Check("person", "review", True, "kept", "person")
    [rejected] = golden.rejected
    assert (rejected.row["id"], rejected.step, rejected.check) == ("q-1", "review", "person")
    assert rejected.reason == "dropped: nobody asks that ?"
    assert checks_of(now["q-3"])["person"].passed is None
    record = golden.manifest["steps"]["review"]
    assert record["sums"] == {
        "in": 5, "kept": 4, "dropped": {"person": 1}, "mended": {}, "unsure": {"person": 1},
    }  # fmt: skip
    counted = ("reviewed", "kept", "dropped", "skipped", "stale", "sample", "seed")
    assert [record[name] for name in counted] == [3, 2, 1, 1, 0, 100, 0]
    # Wilson's bounds of 2 of 3, by his formula.
    estimate = record["precision"]
    assert (estimate["n"], estimate["method"]) == (3, "wilson")
    assert estimate["value"] == pytest.approx(2 / 3)
    assert estimate["low"] == pytest.approx(0.2077, abs=1e-4)
    assert estimate["high"] == pytest.approx(0.9385, abs=1e-4)


def test_a_row_that_changed_since_is_stale_and_one_checked_anew_is_not() -> None:
    golden = golden_set(4)
    reviews = [said(each, "drop") for each in golden.questions]
    rechecked = with_checks(
        golden.questions[0], [Check("answerable", "verify", True, "says May", "model")]
    )
    golden.questions = [
        dataclasses.replace(rechecked, split="validation", how_realistic=0.1),
        row(1, answer="July"),
        row(2, message_ids=("<2@test>",), query_date=dt.date(2020, 1, 31)),
    ]
    review(golden, reviews, ALL)
    assert [each.id for each in golden.questions] == ["q-1", "q-2"]
    record = golden.manifest["steps"]["review"]
    # The fourth is no more in the set.
    assert (record["stale"], record["reviewed"], record["dropped"]) == (3, 1, 1)


@given(
    st.sets(st.integers(0, 60), min_size=1),
    st.integers(1, 61),
    st.integers(0, 5),
    st.randoms(use_true_random=False),
)
def test_a_sample_is_stable(ids: set[int], size: int, seed: int, random: Any) -> None:
    rows = [row(number) for number in sorted(ids)]
    whole_sample = Sample(size=len(rows), seed=seed)
    whole = drawn(rows, whole_sample)
    assert sorted(each.id for each in whole) == sorted(each.id for each in rows)
    assert drawn(rows, Sample(size=size, seed=seed, split=None)) == whole[:size]
    shuffled = random.sample(rows, len(rows))
    assert drawn(shuffled, whole_sample) == whole
    # Rows that go move no others.
    gone = random.choice(rows)
    assert drawn(
        [each for each in rows if each != gone], Sample(size=len(rows), seed=seed, split=None)
    ) == [each for each in whole if each != gone]


@pytest.mark.parametrize(
    "line", ["no JSON", "[]", "{}", *(json.dumps({**WHOLE, **part}) for part in FAULTS)]
)
def test_a_line_that_is_no_review_is_named(tmp_path: Path, line: str) -> None:
    write_review(tmp_path, said(row(0), "keep"))
    with reviews_file(tmp_path).open("a") as log:
        log.write(f"{line}\n")
    with pytest.raises(UserError, match=r"reviews\.jsonl, line 2 is no review"):
        read_reviews(tmp_path)
