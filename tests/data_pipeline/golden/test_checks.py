"""What is found of a row stands in its provenance, and each step can be taken back."""

import datetime as dt
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from art_e.question import Question
from data_pipeline.golden.golden_set import (
    STEPS,
    Check,
    Step,
    as_before,
    checks_of,
    mended,
    with_checks,
)
from tests.data_pipeline.golden.rows import DAYS, TEXTS, checks, questions

CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "question": TEXTS,
        "answer": st.none() | TEXTS,
        "message_ids": st.lists(TEXTS, max_size=3).map(tuple),
        "query_date": DAYS,
        "kind": st.sampled_from(["lookup", "latest-update"]),
        "split": st.sampled_from(["train", "test"]),
        "answerable": st.booleans(),
    },
)


def worked(draw: st.DrawFn, question: Question, step: Step) -> Question:
    """The question after a step that checks and mends it as it may."""
    for _ in range(draw(st.integers(0, 2))):
        question = with_checks(question, draw(st.lists(checks(step), max_size=2)))
        question = mended(question, step, "check", **draw(CHANGES))
    return question


@st.composite
def histories(draw: st.DrawFn) -> list[Question]:
    """A question before each step, and after the last."""
    states = [draw(questions())]
    for step in STEPS:
        states.append(worked(draw, states[-1], step))
    return states


@given(histories())
def test_each_step_can_be_taken_back(states: list[Question]) -> None:
    for place, step in enumerate(STEPS):
        for later in states[place:]:
            assert as_before(later, step) == states[place]


@given(questions(), st.lists(checks(), max_size=6))
def test_the_last_check_of_a_name_counts(question: Question, made: list[Check]) -> None:
    one_by_one = question
    for each in made:
        one_by_one = with_checks(one_by_one, [each])
    wanted = {each.name: each for each in made}
    assert checks_of(one_by_one) == checks_of(with_checks(question, made)) == wanted
    # It never changes what it is given, nor what else the provenance holds.
    assert "checks" not in question.provenance
    assert {**one_by_one.provenance, "checks": None} == {**question.provenance, "checks": None}


def row(**fields: Any) -> Question:
    return Question("q-1", "When?", "ann@test.example", dt.date(2020, 1, 5), "May", **fields)


def test_a_mend_remembers_what_was() -> None:
    once = mended(row(), "filter", "sources", answer="June", message_ids=("<2@test>",))
    twice = mended(once, "verify", "unambiguous", answer="July", query_date=None)
    assert (twice.answer, twice.query_date, twice.message_ids) == ("July", None, ("<2@test>",))
    assert twice.provenance["mended"] == [
        {"step": "filter", "check": "sources", "was": {"answer": "May", "message_ids": []}},
        {
            "step": "verify",
            "check": "unambiguous",
            "was": {"answer": "June", "query_date": "2020-01-05"},
        },
    ]
    assert as_before(twice, "verify") == once
    assert as_before(twice, "filter") == row()
