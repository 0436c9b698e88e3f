"""What counts as declining to answer, and what only looks like it."""

from collections.abc import Callable
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_e.abstention import is_abstention
from bench.fit_abstention import texts
from evals.judges.labels import load_pairs

ABSTENTIONS = [
    "", "   \n", "...", "I dont know", "i DON`T know", "idk", "Unknown.", "no answer found", "N/A",
    "I apologize, but I could not find the answer in your emails.", "null", '"I don\'t know"',
    "The date of the meeting is not mentioned in the emails.", "I cannot tell from the emails.",
    "I don't know. The emails I read do not mention it.", "*I don't know*",
]  # fmt: skip

ANSWERS = [
    "I don't know John's flight, but the meeting is on May 3.", "None", "0", "No.", "EES Houston",
    "Kim said she does not know when the move is.", "Unknown Pleasures LLC", "Not before May 4.",
    "I don't know. It might be May 3.", "I could not find a hotel in Houston.", "Nasdaq: NA",
    "Send it to unknown@example.com", "Not available until June", "To be determined.",
    "The answer is 42, I don't know why.", "日本語の答え",
]  # fmt: skip


@pytest.mark.parametrize("answer", [None, *ABSTENTIONS, *ANSWERS])
def test_declines(answer: str | None) -> None:
    assert is_abstention(answer) is (answer not in ANSWERS)


@pytest.mark.parametrize(("half", "found"), [("reporting", 0.88), ("unseen", 0.8)])
def test_most_ways_to_decline_are_found_and_few_answers_lost(half: str, found: float) -> None:
    """The weights were not fitted to these; those of "unseen" have another author."""
    rows = [each for each in texts() if each.half == half]
    right = {
        abstains: [is_abstention(each.text) for each in rows if each.abstains is abstains]
        for abstains in (True, False)
    }
    assert len(right[True]) >= 98 and fmean(right[True]) >= found
    assert len(right[False]) >= 65 and 1 - fmean(right[False]) >= 0.9


def test_hardly_a_right_answer_is_taken_for_an_abstention() -> None:
    pairs = [each for each in load_pairs() if each.half == "reporting" and each.question.answerable]
    given = {each.answer for each in pairs if each.label} | {each.question.answer for each in pairs}
    lost = [each for each in given if is_abstention(each)]
    assert len(given) > 100 and len(lost) <= 0.01 * len(given)


@given(
    st.sampled_from(["I don't know", "I do not know the answer", "I couldn't find that"]),
    st.sampled_from([str, str.upper, str.lower]),
    st.sampled_from(["'", "’", "`", "ʼ", ""]),
    st.sampled_from([" ", "  ", "\t", "\u00a0 "]),
    st.sampled_from(["", ".", "!", "...", " ?", "\n", '"', " :-)"]),
    st.sampled_from(["", " ", "\n", '"', "- ", "**", "("]),
)
def test_spelling_never_hides_an_abstention(
    text: str, recase: Callable[[str], str], apostrophe: str, space: str, end: str, start: str
) -> None:
    varied = recase(text).replace("'", apostrophe).replace(" ", space)
    assert is_abstention(start + varied + end)


def test_an_answer_after_an_abstention_is_an_answer() -> None:
    """Else a model would earn an abstention's reward with a guess."""
    declined = [each.text for each in texts() if each.abstains and each.half != "tuning"]
    contents = ("Kim Ward", "$400", "room EB12", "Monday")
    guesses = [f"{each}. It is {content}." for each in declined for content in contents]
    assert sum(map(is_abstention, guesses)) <= 0.1 * len(guesses)
