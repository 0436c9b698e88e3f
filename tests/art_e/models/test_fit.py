"""The offline policy's reading: the value that a question asks for, and sentences."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_e.models.fit import (
    MAX_CHARS,
    MAX_SENTENCE_CHARS,
    asked_value,
    split_sentences,
)  # fmt: skip


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("When is the move?", "date"),
        ("What is the deadline for slates?", "date"),
        ("How many people come?", "number"),
        ("What did Ada say the roof costs?", "amount"),
        ("To whom did Ada write?", "person"),
        ("Which hotel is booked?", "place"),
        ("What is Ada's phone number?", "contact"),
        ("Which flight number does Ada have?", "code"),
        ("Why was the roof late?", None),
        # Words that only contain one of the others.
        ("What was overdue?", None),
        ("What is the costume?", None),
    ],
)
def test_the_value_that_a_question_asks_for(question: str, expected: str | None) -> None:
    assert asked_value(question) == expected


LINES = st.lists(
    st.tuples(
        st.sampled_from(["", ">", "> ", "> > ", "- ", "From: ", "-----Original Message-----"]),
        st.text(alphabet="aB3 .?!\"'()\t\x0b\u00a0é", max_size=60),
    ).map("".join),
    max_size=12,
).map("\n".join)
HUGE = st.sampled_from(["x", ". ((", "a\n", "\x00\x85\u2028\ud800"]).map(lambda unit: unit * 50_000)


@given(LINES | HUGE)
def test_sentences_are_pieces_of_the_body_in_order(body: str) -> None:
    bare = "".join(body.replace(">", " ").split())
    at = 0
    sentences = split_sentences(body)
    for sentence in sentences:
        assert sentence.text == " ".join(sentence.text.split()) != ""
        assert len(sentence.text) <= MAX_SENTENCE_CHARS
        at = bare.index("".join(sentence.text.split()), at)
    assert sum(len(each.text) for each in sentences) <= MAX_CHARS
