"""The offline policy's reading: the value that a question asks for, sentences, the best mail."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_e.models.fit import (
    MAX_CHARS,
    MAX_SENTENCE_CHARS,
    WEIGHTS,
    ReadMail,
    asked_value,
    candidates,
    split_sentences,
)  # fmt: skip

QUESTION = "When does the Granary roof get its slates?"


def mail(body: str, handle: str = "m1", date: str = "2031-01-06", **more: str | int) -> ReadMail:
    fields = {"subject": "News", "rank": 0, **more}
    return ReadMail(handle, date, str(fields["subject"]), "Ada <ada@t>", body, int(fields["rank"]))


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


BODY = "The roof gets its slates on May 3."


@pytest.mark.parametrize(
    ("worse", "better"),
    [
        (mail(BODY, date="2031-02-06"), mail(BODY, "m2", "2031-04-06")),
        (mail(BODY, rank=5), mail(BODY, "m2", rank=2)),
        (mail(BODY, subject="The Brewery"), mail(BODY, "m2", subject="The Granary")),
    ],
    ids=["newer", "better hit", "names the subject"],
)
def test_which_mail_is_preferred_among_equals(worse: ReadMail, better: ReadMail) -> None:
    for order in ([worse, better], [better, worse]):
        found = candidates(QUESTION, order)
        assert max(found, key=lambda each: each.score).handle == "m2"
        for each in found:
            assert each.score == pytest.approx(
                sum(WEIGHTS[name] * size for name, size in each.features.items())
            )


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
