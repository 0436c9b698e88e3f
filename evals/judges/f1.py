"""A second judge without a model: by how many words an answer and the gold answer share.

The measure of SQuAD v1.1 (Rajpurkar et al. 2016, "SQuAD: 100,000+ Questions for Machine
Comprehension of Text"): lower case, no punctuation, no articles, F1 over the words, the best
over the references. An answer of `THRESHOLD` or more is right. It differs in these points:

- Punctuation parts words instead of joining them, so that a list can't hide in one word; inside
  a number it stays, but for commas. "4th" is 4.
- Each number and month of the answer must be one of the gold's, and one must be there where the
  gold has any (DROP, Dua et al. 2019, asks for the latter). By words alone, May 3, 2020 is as
  near to May 4, 2020 as its other spellings are.
- A weekday is free where the gold has none.
- The references are the gold answer, and the gold answer without the question's words: asked
  for a room, "74" is as good as "Room 74".

It shares abstention and groundedness with the offline judge, and nothing else. It is for short
answers in the words of the mail; docs/evaluation.md has its agreement there, and on answers in
other words, where it can't be believed. `THRESHOLD` was chosen on worlds of other seeds (900 to
903): from 0.6 to 0.8 it agrees alike, at 0.9 less, and 0.8 accepts the fewest lists.
"""

import re
from collections import Counter
from collections.abc import Sequence

from art_e.question import Question
from art_e.text import cut_line
from evals.judges.offline import RuleJudge
from evals.verdict import Verdict

THRESHOLD = 0.8
SHOWN_CHARS = 60  # of a word of the answer, in the reason

_ARTICLES = frozenset(("a", "an", "the"))
_WEEKDAYS = frozenset("monday tuesday wednesday thursday friday saturday sunday".split())
_MONTHS = frozenset(
    "january february march april may june july august september october november december".split()
)
# Apostrophes, commas of thousands, ".00", and the ending of "4th".
_DROPPED = re.compile(r"['’]|(?<=\d)(?:,(?=\d{3})|\.00\b|(?:st|nd|rd|th)\b)")
_WORD = re.compile(r"\d+(?:[.:/-]\d+)*[^\W_]*|[^\W_]+")


class F1Judge(RuleJudge):
    """The judge by shared words. Its rules stand at the top of this module."""

    name = "f1/1"

    def _compared(self, question: Question, gold: str, answer: str) -> Verdict:
        given, wanted = _words(answer), _words(gold)
        if not _WEEKDAYS.intersection(wanted):
            given = [word for word in given if word not in _WEEKDAYS]
        fault = _figure_fault(given, wanted)
        if fault is not None:
            return Verdict(False, None, self.name, fault)
        asked = set(_words(question.question))
        beyond = [word for word in wanted if word not in asked]
        shared = max(f1(given, wanted), f1(given, beyond))
        return Verdict(shared >= THRESHOLD, None, self.name, f"F1 {shared:.2f}")


def f1(given: Sequence[str], gold: Sequence[str]) -> float:
    """The harmonic mean of precision and recall of the words `given`; 0 if they share none."""
    hits = (Counter(given) & Counter(gold)).total()
    return 2 * hits / (len(given) + len(gold)) if hits else 0.0


def _words(text: str) -> list[str]:
    found = _WORD.findall(_DROPPED.sub("", text.lower()))
    return [word for word in found if word not in _ARTICLES]


def _figure_fault(given: Sequence[str], gold: Sequence[str]) -> str | None:
    """The answer has a number or month that the gold lacks, or none where the gold has one."""
    figures, known = ([word for word in words if _is_figure(word)] for words in (given, gold))
    strange = next((word for word in figures if word not in known), None)
    if strange is not None:
        return f"has {cut_line(strange, SHOWN_CHARS)!r}, which the gold answer lacks"
    return "has no number or month of the gold answer" if known and not figures else None


def _is_figure(word: str) -> bool:
    return word in _MONTHS or not word.isalpha()
