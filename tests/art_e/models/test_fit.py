"""Sentences of a mail, the values that they state, and how well they fit a question."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_e.inbox.tokenizer import words
from art_e.models.fit import (
    MAX_CHARS,
    MAX_SENTENCE_CHARS,
    UNDATED,
    WEIGHTS,
    AnswerCandidate,
    ReadMail,
    Sentence,
    Value,
    asked_value,
    candidates,
    informative_words,
    name_stems,
    split_sentences,
    states,
)

QUESTION = "When does the Granary roof get its slates?"


def mail(
    body: str,
    handle: str = "m1",
    *,
    date: str = "2031-01-06T09:00Z",
    subject: str = "News",
    rank: int = 0,
) -> ReadMail:
    return ReadMail(handle, date, subject, "Ada Olm <ada@tarn.example>", body, rank)


def best(question: str, *mails: ReadMail) -> AnswerCandidate:
    return max(candidates(question, list(mails)), key=lambda each: each.score)


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("When does the Granary's roof leak?", ["granary", "roof", "leak"]),
        ("How many Slates, slates and SLATES are there?", ["slates"]),
        ("Please tell me the date of Zoë's move to flat 4B", ["zoe", "move", "flat", "4b"]),
        # None of these tells: then all do.
        ("What is it about?", ["what", "is", "it", "about"]),
        ("What time?", ["what", "time"]),
        ("¿?", []),
        ("", []),
    ],
)
def test_informative_words(question: str, expected: list[str]) -> None:
    assert informative_words(question) == expected


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("When is the move?", "date"),
        ("What day do we leave?", "date"),
        ("Which month was it?", "date"),
        ("What is the deadline for slates?", "date"),
        ("How many people come?", "number"),
        ("How often did the pump fail?", "number"),
        ("How much is it?", "amount"),
        ("What did Ada say the roof costs?", "amount"),
        ("What is the BUDGET of the Granary?", "amount"),
        ("Who leads the Granary?", "person"),
        ("Whose slates are they?", "person"),
        ("To whom did Ada write?", "person"),
        ("Where do they meet?", "place"),
        ("Which hotel is booked?", "place"),
        ("What is Ada's phone number?", "contact"),
        ("What is Ada's e-mail address?", "contact"),
        ("Which flight number does Ada have?", "code"),
        ("What is the door code?", "code"),
        ("Why was the roof late?", None),
        ("Was the roof late?", None),
        # Words that only contain one of the others.
        ("What was overdue?", None),
        ("What do the whole numbers say?", None),
        ("What is the costume?", None),
        ("", None),
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
    "its neighbour": (
        "The Granary roof is next.\n\nThey come on May 3 with a van.\n\n\nThe inn is fine.",
        "The inn is fine.\n\nThe Granary roof is next.\n\nBye, then.\n\nThey come on May 3 by van.",
    ),
}


@pytest.mark.parametrize(("better", "worse"), BETTER.values(), ids=BETTER)
def test_what_fits_better(better: str, worse: str) -> None:
    def said(body: str) -> float:
        found = candidates(QUESTION, [mail(body)])
        dated = [each for each in found if "May 3" in each.text or "third" in each.text]
        return (dated or found)[0].score

    assert said(better) > said(worse)


def test_the_newest_mail_is_preferred_among_equals() -> None:
    body = "The Granary roof gets its slates on May {}."
    mails = [
        mail(body.format(number), f"m{number}", date=f"2031-0{month}-06T09:00Z")
        for number, month in ((1, 2), (2, 4), (3, 3))
    ]
    for order in (mails, mails[::-1]):
        assert best(QUESTION, *order).handle == "m2"


def _stated(question: str) -> Callable[[str], float]:
    return lambda body: candidates(question, [mail(body)])[0].features["stated"]


def test_what_the_question_says_itself_is_not_the_value() -> None:
    stated = _stated("Who besides Bea Olm leads the Granary?")
    assert not stated("it is led by Bea Olm of the Granary")
    assert stated("it is led by Bea Olm and Cid Vey")
    stated = _stated("How many slates are on the 12 roofs?")
    assert not stated("the 12 roofs have slates")
    assert stated("the 12 roofs have 900 slates")


LONG = "The pump at the north gate was looked at by two people from the yard"


def texts(body: str) -> list[str]:
    return [each.text for each in split_sentences(body)]


def test_sentences_end_at_full_stops_question_and_exclamation_marks() -> None:
    body = f"{LONG}. Is it safe? It is! He said: (yes.) 3 bolts are new.\n"
    assert texts(body) == [
        f"{LONG}.",
        "Is it safe?",
        "It is!",
        "He said: (yes.",
        "3 bolts are new.",
    ]


@pytest.mark.parametrize(
    "sentence",
    [
        "Dr. Olm met Mrs. Vey at St. Albion on the second floor.",
        "J. R. Quell of Tarn Corp. Limited signs for both of them.",
        "They meet at 5 p.m. On days with rain they meet inside.",
        "Take e.g. Monday or i.e. Tuesday for the long test run.",
        "It costs 3.50 and version 2.1 of it is sold by tarn.example in boxes.",
        "See No. 7 and approx. 40 others of the same kind in the yard.",
    ],
)
def test_an_abbreviation_ends_no_sentence(sentence: str) -> None:
    assert texts(f"{sentence} Nobody minds.") == [sentence, "Nobody minds."]


def test_depth_counts_the_marks_before_a_line() -> None:
    body = "Mine.\n> Hers.\n> > His, of June.\n>> His, too.\n>>> The first.\nMine again."
    assert split_sentences(body) == [
        Sentence("Mine.", 0),
        Sentence("Hers.", 1),
        Sentence("His, of June.", 2),
        Sentence("His, too.", 2),
        Sentence("The first.", 3),
        Sentence("Mine again.", 0),
    ]


@pytest.mark.parametrize(
    "mark",
    [
        "-----Original Message-----",
        "---------- Forwarded message ----------",
        "-------- Forwarded by Ada Olm on 05/03/2031 --------",
        "____ Original message ____",
    ],
)
def test_what_is_below_an_original_message_is_deeper(mark: str) -> None:
    body = f"Yes.\n\n{mark}\n\nIs it?\n\n{mark}\nIt may be."
    assert split_sentences(body) == [
        Sentence("Yes.", 0),
        Sentence("Is it?", 1),
        Sentence("It may be.", 2),
    ]


STATES: dict[Value, list[str]] = {
    "date": [
        "We start on May 3.", "We start the 3rd of Sept. in any case.",
        "End of Feb is what we aim at.", "It will be mid-October.", "Let us say Thursday.",
        "by the 21st, she said", "due 4/15", "due 2031-04-15", "at 9 a.m. sharp", "at 16:45",
        "next week",
    ],
    "amount": [
        "It costs $ 400.", "€1.200 in all", "EUR 50 each", "1.5 million of it", "a 5% rise",
        "80k a year",
    ],
    "number": ["We need 14 of them.", "We need Seven of them."],
    "contact": [
        "Write to ada.olm+x@tarn.example please.", "Call (555) 123-4567.", "Call 555.123.4567.",
        "ring x48213",
    ],
    "person": ["It is Ada Olm.", "Zora-Lee O'Quell leads.", "ask for Bea"],
    "code": ["The ticket is #48.", "It is TK-4821.", "Use 482117.", "Use 48-21-17."],
    "place": ["It is in Oslo.", "go to the Granary", "Room twelve is free", "on floor 3"],
}  # fmt: skip
STATES_NOT: dict[Value, list[str]] = {
    "date": [
        "We may start when all have marched.", "Mayor Olm decides.", "the secondary pump",
        "3 pumps at 4.50 each",
    ],
    "amount": ["It costs a lot.", "We need 14 of them.", "12 kegs and 5 keys"],
    "number": ["We need someone alone, often.", "the v2x plan"],
    "contact": ["Call her at @ noon.", "It costs 1234567.", "box1234"],
    "person": ["It is fine.", "Nobody."],
    "code": ["The ticket is lost.", "Use 4821.", "the USB stick"],
    "place": ["It is in progress.", "Into Oslo she rode"],
}  # fmt: skip


@pytest.mark.parametrize(("cases", "expected"), [(STATES, True), (STATES_NOT, False)])
def test_values_are_recognised(cases: dict[Value, list[str]], expected: bool) -> None:
    for value, texts_of_it in cases.items():
        assert [text for text in texts_of_it if states(text, value) is not expected] == [], value


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
        assert sentence.depth >= 0
        at = bare.index("".join(sentence.text.split()), at)
