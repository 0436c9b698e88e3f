"""What counts as declining to answer, and what only looks like it."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_e.abstention import is_abstention

ABSTENTIONS = [
    "", "   \n", "...", "?", "I don't know.", "I dont know", "i DON`T know", "Dunno.", "idk",
    "Unknown.", "The answer is unknown.", "I am not entirely sure about that.", "No idea",
    "no answer found", "I couldn't find that in the inbox",
    "I was not able to determine when the move is.",
    "I apologize, but I could not find the answer in your emails.",
    "The e-mails don't say when the move is.", "None of the emails mention the budget.",
    "Your inbox does not contain that information.", "not specified",
    "The date of the meeting is not mentioned in the emails.", "N/A", "N.A.", "null",
    "Based on the emails I could find, I don't know.",
    "I do not know who will lead the new group, sorry.",
    "I searched the inbox, but I could not find the answer.",
    "There is no information about this in the emails.",
    "I don't have enough information to answer.",
    "I don't know. The emails I read do not mention it.", "I cannot tell from the emails.",
    "It cannot be determined from the available emails.", "I found nothing about the trip.",
    "Well, I really don't know.", '"I don\'t know"', "*I don't know*",
]  # fmt: skip

ANSWERS = [
    "I don't know John's flight, but the meeting is on May 3.",
    "Kim said she does not know when the move is.", "Unknown Pleasures LLC", "May 3", "No.",
    "No, she did not confirm.", "None", "0", "Nothing was approved.", "Not before May 4.",
    "I don't know. It might be May 3.", "I'm not sure, May 3?",
    "I am not sure about the room. The time is 3 pm.",
    "I don't know why you ask: it is EB3001.", "Sorry, the meeting is cancelled.",
    "I could not find a hotel in Houston.", "I do not have a car.", "You said you don't know.",
    "The caller is John Unknown.", "Send it to unknown@example.com", "Not available until June",
    "To be determined.", "I don't know about that, $5,000 sounds right",
    "The emails do not agree: one says March 3, the other March 4.",
    "No information security training is needed.",
    "The missing invoice was found in the mail room.",
    "Nasdaq: NA", "They were unable to find a room, therefore the meeting is on Monday.",
    "The answer is 42, I don't know why.", "日本語の答え",
]  # fmt: skip


@pytest.mark.parametrize("answer", [None, *ABSTENTIONS])
def test_declines(answer: str | None) -> None:
    assert is_abstention(answer)


@pytest.mark.parametrize("answer", ANSWERS)
def test_is_an_answer(answer: str) -> None:
    assert not is_abstention(answer)


@pytest.mark.parametrize(("half", "found"), [("tuning", 0.95), ("reporting", 0.80)])
def test_most_ways_to_decline_are_found_and_hardly_an_answer_is_lost(
    half: str, found: float
) -> None:
    """The phrasings of `abstentions.jsonl` were written down before the rule."""
    lines = (Path(__file__).parent / "abstentions.jsonl").read_text("utf-8").splitlines()
    rows = [each for each in map(json.loads, lines) if each["half"] == half]
    verdicts = [(each["abstains"], is_abstention(each["text"])) for each in rows]
    declined = [verdict for abstains, verdict in verdicts if abstains]
    answers = [verdict for abstains, verdict in verdicts if not abstains]
    assert len(declined) == 98 and sum(declined) / 98 >= found
    assert sum(answers) <= 0.02 * len(answers)


@given(
    st.sampled_from([(text, True) for text in ABSTENTIONS] + [(text, False) for text in ANSWERS]),
    st.sampled_from([str, str.upper, str.lower, str.swapcase]),
    st.sampled_from(["'", "’", "`", "ʼ", ""]),
    st.sampled_from([" ", "  ", "\t", "\u00a0 "]),
    st.sampled_from(["", ".", "!", "...", " ?", "\n", '"', " :-)"]),
    st.sampled_from(["", " ", "\n", '"', "- ", "**", "("]),
)
def test_spelling_never_changes_the_verdict(
    case: tuple[str, bool], recase: object, apostrophe: str, space: str, end: str, start: str
) -> None:
    text, declined = case
    assert callable(recase)
    varied = re.sub(r"['’`]", apostrophe, str(recase(text))).replace(" ", space)
    assert is_abstention(start + varied + end) is declined


@given(st.sampled_from(ABSTENTIONS), st.sampled_from(["Kim Ward", "$400", "room EB12", "Monday"]))
def test_an_answer_after_an_abstention_is_an_answer(declined: str, content: str) -> None:
    assert not is_abstention(f"{declined}. It is {content}.")
