"""What counts as declining to answer, and what only looks like it."""

import json
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_e.abstention import is_abstention
from art_e.question import load_questions
from evals.judges.labels import load_pairs
from tests.builders import table

KNOWN = table(__file__, "declines.toml")


@pytest.mark.parametrize("answer", [None, *KNOWN["abstentions"], *KNOWN["answers"]])
def test_declining_answers_are_recognised(answer: str | None) -> None:
    assert is_abstention(answer) is (answer not in KNOWN["answers"])


class Text(NamedTuple):
    """A labelled text; only the halves "tuning" and "models-tuning" were seen before the rules."""

    text: str
    abstains: bool
    half: str


def texts(*halves: str) -> list[Text]:
    lines = Path(__file__).with_name("abstentions.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [Text(**json.loads(line)) for line in lines]
    return [row for row in rows if row.half in halves]


# "models": in the manner of real models, in seven languages. "unseen": traps, of another author.
@pytest.mark.parametrize(
    ("half", "share"), [("models", 0.94), ("reporting", 0.88), ("unseen", 0.66)]
)
def test_most_abstentions_are_found_and_few_answers_lost(half: str, share: float) -> None:
    rows = [row for row in texts(half) if "{answer}" not in row.text]
    declined = [is_abstention(row.text) for row in rows if row.abstains]
    answered = [not is_abstention(row.text) for row in rows if not row.abstains]
    assert len(declined) >= 98 and fmean(declined) >= share
    assert len(answered) >= 19 and fmean(answered) >= 0.92


def test_right_answers_behind_the_openers_of_models_are_answers() -> None:
    openers = cycle(row.text for row in texts("models") if "{answer}" in row.text)
    rows = [row for row in load_questions("enron") if row.answer and row.split != "train"]
    answers = [
        next(openers).replace("{answer}", row.answer or "").replace("{question}", row.question)
        for row in 2 * rows
    ]
    assert len(answers) >= 400 and sum(map(is_abstention, answers)) <= 0.01 * len(answers)


@pytest.mark.parametrize(("answer", "declines"), KNOWN["beside_a_mail"])
def test_a_value_of_the_cited_mails_makes_an_answer(answer: str, declines: bool) -> None:
    mail = "Amit: I resign on 1 April. Vasant will drive."
    assert is_abstention(answer)
    assert is_abstention(answer, "Who drove us?", [mail]) is declines


def test_right_answers_are_rarely_taken_for_abstentions() -> None:
    pairs = [each for each in load_pairs() if each.half == "reporting" and each.question.answerable]
    gold = {each.question.answer for each in pairs}
    answers = gold | {each.answer for each in pairs if each.label}
    lost = [each for each in answers if is_abstention(each)]
    assert len(answers) > 100 and len(lost) <= 0.01 * len(answers)


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
    declined = [row.text for row in texts("models", "reporting", "unseen") if row.abstains]
    contents = ("Kim Ward", "$400", "room EB12", "Monday")
    guesses = [f"{each}. It is {content}." for each in declined for content in contents]
    assert sum(map(is_abstention, guesses)) <= 0.1 * len(guesses)
