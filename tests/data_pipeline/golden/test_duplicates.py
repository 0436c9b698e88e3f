"""Questions that ask the same: which are, which only look it, and at scale."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_e.question import Question
from data_pipeline.golden.filtering import duplicates

WORDS = "rebuild audit pump ledger quay barge turbine survey permit valve crane harbour".split()


def make(name: str, question: str, answer: str = "May 7", **fields: Any) -> Question:
    given_fields: dict[str, Any] = {
        "inbox_address": "ann@x.example",
        "answerable": True,
        "how_realistic": 0.8,
    }
    return Question(id=name, question=question, answer=answer, **(given_fields | fields))


def found(*questions: Question, gold: dict[str, set[str]] | None = None) -> dict[str, str]:
    """Which questions are duplicates of which."""
    twins = duplicates(questions, gold or {})
    return {name: each.reason.split()[2] for name, each in twins.items()}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("When is the Rice seminar?", "May 7"), ("when is the Rice Seminar", "On May 7.")),
        (
            ("When is the ALP Project presentation at Enron?", "May 7, at 4 p.m."),
            ("What is the date and time of the ALP Project presentation at Enron?", "4 pm, May 7"),
        ),
        (
            ("Who approved Nora's request for shelves?", "Adam Quill"),
            ("By whom was Nora's request for shelves approved?", "Adam Quill"),
        ),
    ],
)
def test_one_fact_asked_twice_is_found_without_a_common_mail(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    assert found(make("q-1", *one), make("q-2", *other)) == {"q-2": "q-1"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        # Another value, with one mail and even one answer.
        (("What is the price in January?", "$5"), ("What is the price in February?", "$6")),
        (("What is the price in January?", "$5"), ("What is the price in February?", "$5")),
        (
            ("Who booked room 41 for the audit?", "Ann"),
            ("Who booked room 42 for the audit?", "Ann"),
        ),
        # Another name.
        (
            ("How many trips have we booked for Ulrich Celik?", "4"),
            ("How many trips have we booked for Samuel Stone?", "4"),
        ),
        # Other answers.
        (("Who is the buyer of the plant?", "Dynegy"), ("Who is the seller of the plant?", "PGE")),
        (("What did I tell Jim?", "To wait"), ("What did Jim tell me?", "That he is ill")),
        # Denied.
        (("Who will attend the dinner?", "Ann"), ("Who will not attend the dinner?", "Ann")),
    ],
)
def test_near_texts_about_other_things_are_both_kept(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    both = make("q-1", *one), make("q-2", *other)
    assert found(*both, gold={"q-1": {"mail"}, "q-2": {"mail"}}) == {}


def test_in_two_inboxes_only_with_a_common_mail() -> None:
    one = make("q-1", "When is the all-hands meeting?")
    other = make("q-2", "When is the all-hands meeting?", inbox_address="bob@x.example")
    assert found(one, other) == {}
    assert found(one, other, gold={"q-1": {"a"}, "q-2": {"a"}}) == {"q-2": "q-1"}


def test_unanswerable_ones_only_in_the_same_words() -> None:
    fields: dict[str, Any] = {"answer": "", "answerable": False}
    one = make("q-1", "What is Richard's new phone extension in Oslo?", **fields)
    same = make("q-2", "In Oslo, what is Richard's new phone extension?", **fields)
    near = make("q-3", "What was Richard's old phone extension in Oslo?", **fields)
    assert found(one, same, near) == {"q-2": "q-1"}
    assert found(one, make("q-4", one.question, "x4711")) == {}


def test_kept_is_the_most_realistic_then_the_smallest_id() -> None:
    text = "When is the seminar?"
    low = make("q-1", text, how_realistic=0.7)
    assert found(low, make("q-10", text), make("q-9", text)) == {"q-1": "q-9", "q-10": "q-9"}
    unrated = make("q-0", text, how_realistic=None)
    assert found(unrated, low) == {"q-0": "q-1"}


# Few words, so that many are near.
TEXTS = st.lists(st.sampled_from(["seminar", "Rice", "Ann", "May 7", "dinner"]), max_size=4)


@given(
    st.lists(
        st.tuples(TEXTS, st.sampled_from(["May 7", "Ann", "Yes"]), st.sampled_from(["a", "b", ""])),
        max_size=12,
    ),
    st.randoms(use_true_random=False),
)
def test_order_does_not_matter_and_what_is_kept_has_no_duplicates(
    rows: list[tuple[list[str], str, str]], rng: random.Random
) -> None:
    questions = [
        make(f"q-{place}", f"When is the {' '.join(words)}?", answer)
        for place, (words, answer, _) in enumerate(rows)
    ]
    gold = {f"q-{place}": {mail} - {""} for place, (_, _, mail) in enumerate(rows)}
    first = found(*questions, gold=gold)
    shuffled = rng.sample(questions, len(questions))
    assert found(*shuffled, gold=gold) == first
    kept = [each for each in questions if each.id not in first]
    assert set(first.values()) <= {each.id for each in kept}
    assert found(*kept, gold=gold) == {}
