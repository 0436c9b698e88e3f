"""Sentences of a mail, the values that they state, and how well they fit a question."""

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


def score(question: str, body: str) -> float:
    return max(each.score for each in candidates(question, [mail(body)]))


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


# What makes a sentence the better answer to QUESTION, all else alike.
BETTER: dict[str, tuple[str, str]] = {
    "words of the question": (
        "The Granary gets slates in the week of May 3.",
        "The brewery wants barrels in the week of May 3.",
    ),
    "other forms of the words": (
        "Slating the granaries is set for the third of May.",
        "Painting the breweries is set for the third of May.",
    ),
    "the kind of value": (
        "The Granary roof gets slates on May 3, they say.",
        "The Granary roof gets slates of a good kind.",
    ),
    "no question": (
        "The Granary roof will get its slates on May 3.",
        "Will the Granary roof get its slates on May 3?",
    ),
    "a whole sentence": ("So then it is May 3.", "May 3."),
}


@pytest.mark.parametrize(("better", "worse"), BETTER.values(), ids=BETTER)
def test_what_fits_better(better: str, worse: str) -> None:
    assert score(QUESTION, better) > score(QUESTION, worse)


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
)


@given(LINES)
def test_sentences_are_pieces_of_the_body_in_order(lines: list[str]) -> None:
    body = "\n".join(lines)
    bare = "".join(body.replace(">", " ").split())
    at = 0
    for sentence in split_sentences(body):
        assert sentence.text == " ".join(sentence.text.split()) != ""
        at = bare.index("".join(sentence.text.split()), at)


def test_a_huge_body_is_read_up_to_a_limit() -> None:
    for unit in ("x", ". ((", "a\n", "\x00\x85\u2028\ud800"):
        found = split_sentences(unit * (100_000 // len(unit)))
        assert sum(len(each.text) for each in found) <= MAX_CHARS
        assert all(0 < len(each.text) <= MAX_SENTENCE_CHARS for each in found)
