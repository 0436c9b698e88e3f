"""Reviews of a golden set: the sample, the log, what verdicts do to the rows, the precision."""

import dataclasses
import datetime as dt
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.question import Question, Split
from data_pipeline.golden.golden_set import Check, GoldenSet, checks_of, with_checks
from data_pipeline.golden.review import (
    Decision,
    Review,
    Sample,
    drawn,
    edited,
    read_reviews,
    review,
    reviews_file,
    row_digest,
    write_review,
)
from tests.builders import date_header, make_inbox, raw

ANN, BOB = "ann@test.example", "bob@test.example"
ALL = Sample()
# A line of `reviews.jsonl`.
WHOLE: dict[str, Any] = {
    "id": "q-0", "digest": "", "said": "keep", "note": "", "changes": {}, "reviewer": None,
    "sample": {"size": 1, "seed": 0, "split": None},
}  # fmt: skip
# What makes it none.
FAULTS: tuple[dict[str, Any], ...] = (
    {"sample": {"size": 0, "seed": 0, "split": None}},
    {"sample": {"size": True, "seed": 0, "split": None}},
    {"sample": {"size": 5, "seed": 0, "split": "moon"}},
    {"id": 7},
    {"said": "burn"},
    {"changes": []},
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InboxFile]:
    path = tmp_path_factory.mktemp("inbox") / "inbox.duckdb"
    make_inbox(
        path,
        [
            raw("<1@test>", body="The lease ends in May.", date=date_header(2)),
            raw("<2@test>", body="The lease ends in June.", date=date_header(9)),
            raw("<3@test>", sender="eve@test.example", to="carl@test.example"),
        ],
    )
    with InboxFile(path) as opened:
        yield opened


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


def said(
    row: Question, word: Decision, note: str = "", /, sample: Sample = ALL, **changes: Any
) -> Review:
    return Review(
        id=row.id,
        digest=row_digest(row),
        said=word,
        note=note,
        changes=changes,
        reviewer=None,
        sample=sample,
    )


def test_every_verdict_does_what_it_says(file: InboxFile) -> None:
    golden = golden_set(5)
    kept, dropped, changed, skipped, unseen = golden.questions
    reviews = [
        said(kept, "keep"),
        said(dropped, "drop", "nobody asks\nthat \ud800"),
        said(
            changed,
            "edit",
            question="Lease 2?",
            answer="June",
            message_ids=["2@test"],
            query_date="2020-01-31",
        ),
        said(skipped, "skip", "not my trade"),
    ]
    review(file, golden, reviews, ALL)
    now = {each.id: each for each in golden.questions}
    assert list(now) == ["q-0", "q-2", "q-3", "q-4"]
    assert now["q-4"] == unseen
    assert checks_of(now["q-0"])["person"] == Check(
        "person", "review", True, "kept as it is", "person"
    )
    [rejected] = golden.rejected
    assert (rejected.row["id"], rejected.step, rejected.check) == ("q-1", "review", "person")
    assert rejected.reason == "dropped: nobody asks that ?"
    mended = now["q-2"]
    assert (mended.question, mended.answer) == ("Lease 2?", "June")
    assert (mended.message_ids, mended.query_date) == (("<2@test>",), dt.date(2020, 1, 31))
    was = {
        "question": "When does lease 2 end?",
        "answer": "May",
        "message_ids": ["<1@test>"],
        "query_date": "2020-01-05",
    }
    assert mended.provenance["mended"] == [{"step": "review", "check": "person", "was": was}]
    assert checks_of(now["q-3"])["person"].passed is None
    record = golden.manifest["steps"]["review"]
    assert record["sums"] == {
        "in": 5, "kept": 4, "dropped": {"person": 1}, "mended": {"person": 1},
        "unsure": {"person": 1},
    }  # fmt: skip
    counted = ("reviewed", "kept", "edited", "dropped", "skipped", "stale", "sample", "seed")
    assert [record[name] for name in counted] == [3, 1, 1, 1, 1, 0, 100, 0]
    # An edited row was not right as it stood. Wilson's bounds of 1 of 3, by his formula.
    estimate = record["precision"]
    assert (estimate["n"], estimate["method"]) == (3, "wilson")
    assert estimate["value"] == pytest.approx(1 / 3)
    assert estimate["low"] == pytest.approx(0.0615, abs=1e-4)
    assert estimate["high"] == pytest.approx(0.7923, abs=1e-4)


def test_a_row_that_changed_since_is_stale_and_one_checked_anew_is_not(file: InboxFile) -> None:
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
    review(file, golden, reviews, ALL)
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
    ("changes", "words"),
    [
        ({"question": "  "}, "the question is empty"),
        ({"answer": ""}, "the answer is empty"),
        ({"message_ids": []}, "no gold mail"),
        ({"message_ids": ["<2@test>"]}, "no mail <2@test> in the inbox on 2020-01-05"),
        ({"message_ids": ["<3@test>"], "query_date": "2020-02-01"}, "no mail <3@test>"),
        ({"query_date": "2020-01-01"}, "no mail <1@test>"),
        ({"query_date": "tomorrow"}, "YYYY-MM-DD"),
        ({"inbox_address": BOB}, "can't be edited"),
        ({"provenance": {}}, "can't be edited"),
    ],
)
def test_an_edit_that_does_not_fit_is_refused(
    file: InboxFile, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(UserError) as refused:
        edited(file, row(0), changes)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_log_survives_a_torn_line(tmp_path: Path) -> None:
    first, second = said(row(0), "keep", "well \x1b[2J"), said(row(1), "edit", answer="Ω")
    write_review(tmp_path, first)
    whole = reviews_file(tmp_path).read_bytes()
    for cut, again in itertools.product(range(1, len(whole), 7), (False, True)):
        reviews_file(tmp_path).write_bytes(whole + whole[:-cut])
        assert read_reviews(tmp_path) == [first]
        if again:
            write_review(tmp_path, second)
            assert read_reviews(tmp_path) == [first, second]


@pytest.mark.parametrize(
    "line",
    [
        "no JSON",
        "[]",
        "{}",
        *(json.dumps({**WHOLE, **part}) for part in FAULTS),
    ],
)
def test_a_line_that_is_no_review_is_named(tmp_path: Path, line: str) -> None:
    write_review(tmp_path, said(row(0), "keep"))
    with reviews_file(tmp_path).open("a") as log:
        log.write(f"{line}\n")
    with pytest.raises(UserError, match=r"reviews\.jsonl, line 2 is no review"):
        read_reviews(tmp_path)
