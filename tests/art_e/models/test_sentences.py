import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_e.models.fit import MAX_CHARS, MAX_SENTENCE_CHARS, Sentence, Value, split_sentences, states

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


def test_a_wrapped_sentence_is_one() -> None:
    body = (
        "The ferry to the island leaves from the second pier and\n"
        "   takes about forty minutes when the weather is good, which\r\nis rare."
    )
    assert texts(body) == [" ".join(body.split())]


def test_lists_short_lines_and_paragraphs_stand_for_themselves() -> None:
    item = "a line that is long enough to go on below if it were not an item"
    body = f"Agenda\nBudget\n\n- {item}\n* {item}\n2) {item}\n{LONG}\n\n{LONG}"
    assert texts(body) == ["Agenda", "Budget", f"- {item}", f"* {item}", f"2) {item} {LONG}", LONG]


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


def test_a_quoted_sentence_does_not_run_on_in_another_depth() -> None:
    body = f"> {LONG}\n{LONG}"
    assert split_sentences(body) == [Sentence(LONG, 1), Sentence(LONG, 0)]


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


def test_below_a_mark_that_is_quoted_itself_the_mail_s_own_text_goes_on() -> None:
    body = "> -----Original Message-----\n> Old one.\n\n> Old two.\nMine."
    assert split_sentences(body) == [
        Sentence("Old one.", 2),
        Sentence("Old two.", 2),
        Sentence("Mine.", 0),
    ]


def test_headers_of_quoted_mail_and_rules_are_no_sentences() -> None:
    body = (
        "Fine with me.\n--\nAda\n___________\n"
        "On Mon, 5 May 2031 at 10:00, Bea Olm wrote:\n"
        "> From: Ada <ada@tarn.example>\n> Sent: Monday\n> To: Bea\n> CC: Cid\n"
        "> Subject: The ferry\n> Date: 5 May 2031\n>\n> When do we leave?\n"
    )
    assert split_sentences(body) == [
        Sentence("Fine with me.", 0),
        Sentence("Ada", 0),
        Sentence("When do we leave?", 1),
    ]


def test_a_sentence_that_begins_like_a_header_is_kept() -> None:
    body = "From here on it is easy. To me it is. On Monday Ada wrote: come."
    assert len(texts(body)) == 3


STATES: list[tuple[Value, str]] = [
    ("date", "We start on May 3."),
    ("date", "We start the 3rd of Sept. in any case."),
    ("date", "End of Feb is what we aim at."),
    ("date", "It will be mid-October."),
    ("date", "Let us say Thursday."),
    ("date", "by the 21st, she said"),
    ("date", "due 4/15"),
    ("date", "due 2031-04-15"),
    ("date", "at 9 a.m. sharp"),
    ("date", "at 16:45"),
    ("date", "next week"),
    ("amount", "It costs $ 400."),
    ("amount", "€1.200 in all"),
    ("amount", "EUR 50 each"),
    ("amount", "1.5 million of it"),
    ("amount", "a 5% rise"),
    ("amount", "80k a year"),
    ("number", "We need 14 of them."),
    ("number", "We need Seven of them."),
    ("contact", "Write to ada.olm+x@tarn.example please."),
    ("contact", "Call (555) 123-4567."),
    ("contact", "Call 555.123.4567."),
    ("contact", "ring x48213"),
    ("person", "It is Ada Olm."),
    ("person", "Zora-Lee O'Quell leads."),
    ("person", "ask for Bea"),
    ("code", "The ticket is #48."),
    ("code", "It is TK-4821."),
    ("code", "Use 482117."),
    ("code", "Use 48-21-17."),
    ("place", "It is in Oslo."),
    ("place", "go to the Granary"),
    ("place", "Room twelve is free"),
    ("place", "on floor 3"),
]
STATES_NOT: list[tuple[Value, str]] = [
    ("date", "We may start when all have marched."),
    ("date", "Mayor Olm decides."),
    ("date", "the secondary pump"),
    ("date", "3 pumps at 4.50 each"),
    ("amount", "It costs a lot."),
    ("amount", "We need 14 of them."),
    ("amount", "12 kegs and 5 keys"),
    ("number", "We need someone alone, often."),
    ("number", "the v2x plan"),
    ("contact", "Call her at @ noon."),
    ("contact", "It costs 1234567."),
    ("contact", "box1234"),
    ("person", "It is fine."),
    ("person", "Nobody."),
    ("code", "The ticket is lost."),
    ("code", "Use 4821."),
    ("code", "the USB stick"),
    ("place", "It is in progress."),
    ("place", "Into Oslo she rode"),
]


@pytest.mark.parametrize(("value", "text"), STATES)
def test_a_value_is_recognised(value: Value, text: str) -> None:
    assert states(text, value)


@pytest.mark.parametrize(("value", "text"), STATES_NOT)
def test_a_near_miss_is_not(value: Value, text: str) -> None:
    assert not states(text, value)


HOSTILE = {
    "one line": "x" * 100_000,
    "marks": "> " * 50_000,
    "tabs and marks": "\t" * 4_000 + ">" * 96_000,
    "dots": "." * 100_000,
    "dots and spaces": ". " * 50_000,
    "quotes after dots": ".\"'" * 33_000,
    "brackets": ". ((" * 25_000,
    "capitals": "A. " * 33_000,
    "spaces": " " * 100_000,
    "line ends": "\n" * 100_000,
    "letters on lines": "a\n" * 50_000,
    "original messages": "--original message\n" * 5_000,
    "wrote": f"on {'x ' * 39}\n" * 1_200,
    "bullets": "- " * 50_000,
    "digits": "1" * 100_000,
    "digits and hyphens": "1-" * 50_000,
    "addresses": "a@" * 50_000,
    "names": "Aa-" * 33_000,
    "months": "may of " * 14_000,
    "controls": "\x00\x85\u2028\ud800" * 25_000,
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
def test_hostile_bodies_take_little_time_and_space(body: str) -> None:
    before = time.process_time()
    found = split_sentences(body)
    for each in found[:200]:
        for value in ("date", "amount", "number", "person", "place", "contact", "code"):
            states(each.text, value)
    assert time.process_time() - before < 0.5
    assert sum(len(each.text) for each in found) <= MAX_CHARS
    assert all(0 < len(each.text) <= MAX_SENTENCE_CHARS for each in found)


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
