"""Finds questions that ask the same as another question, which is kept.

Two questions of one inbox are duplicates if they have the same answer, and their texts are

- the same apart from case and punctuation, or
- near: the same values (dates, amounts, codes), at least `NEAR` of their content stems in common,
  and no name in each that the other lacks. If each has a content word that the other lacks, or the
  answer is common ("yes", "3"), they must also share a gold mail.

Questions of two inboxes must share a gold mail too. Gold mails are compared by content, answers by
the offline judge, in both directions for near texts.

The most realistic question is kept, then an answerable one, then the smallest id. Questions are
compared with kept ones only, so that a chain of near texts does not collapse into its first.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from art_e.abstention import is_abstention
from art_e.question import Question
from data_pipeline.golden.golden_set import natural
from evals.judges.claims import read_claims
from evals.judges.names import asks_yes_no, content_stems, negated
from evals.judges.offline import OfflineJudge

NEAR = 0.5

_WORDS = re.compile(r"\w+")
_ASKING = {word: word for word in "who what when where why how whose".split()}
_ASKING |= {"whom": "who", "which": "what"}


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A question asks the same as `kept`."""

    kept: Question
    reason: str  # one line, with the id of `kept`


@dataclass(frozen=True, slots=True)
class _Text:
    """A question as it is compared."""

    question: Question
    gold: Set[str]
    plain: str  # without case and punctuation
    stems: Set[str]  # of its content words
    names: Set[str]
    values: Set[str]
    asking: Set[str]  # its question words
    denies: bool

    def compared_by(self) -> list[tuple[Any, ...]]:
        """Duplicates share at least one of these keys."""
        inbox = self.question.inbox_address
        return [(each, self.values, self.denies) for each in (inbox, *sorted(self.gold))]


def duplicates(questions: Sequence[Question], gold: Mapping[str, Set[str]]) -> dict[str, Duplicate]:
    """Duplicates by question id.

    `gold` has the contents (any digest) of gold mails by question id. Ids must differ; the order
    of `questions` does not matter.
    """
    found: dict[str, Duplicate] = {}
    index: defaultdict[tuple[Any, ...], list[_Text]] = defaultdict(list)
    for question in sorted(questions, key=_preference):
        text = _text(question, gold.get(question.id, frozenset()))
        candidates = {each.question.id: each for key in text.compared_by() for each in index[key]}
        twin = _twin(text, sorted(candidates.values(), key=lambda each: _preference(each.question)))
        if twin is not None:
            found[question.id] = twin
            continue
        for key in text.compared_by():
            index[key].append(text)
    return found


def _preference(question: Question) -> tuple[Any, ...]:
    return (-(question.how_realistic or 0.0), question.answerable is False, natural(question.id))


def _text(question: Question, gold: Set[str]) -> _Text:
    claims = read_claims(question.question)
    words = _WORDS.findall(claims.text)
    # The first word always has a capital.
    capitals = " ".join(word for word in words[1:] if word[0].isupper())
    return _Text(
        question,
        gold,
        " ".join(words).lower(),
        frozenset(content_stems(claims.text)),
        frozenset(content_stems(capitals)),
        frozenset(f"{value.kind} {value.key}" for value in (*claims.values, *claims.denied)),
        frozenset(_ASKING[word.lower()] for word in words if word.lower() in _ASKING),
        negated(claims.text),
    )


def _twin(text: _Text, candidates: Sequence[_Text]) -> Duplicate | None:
    """The first candidate that asks the same as `text`."""
    for kept in candidates:
        shared = not kept.gold.isdisjoint(text.gold)
        same_text = kept.plain == text.plain
        if not same_text and not (_near(kept, text) and (shared or _is_enough(kept, text))):
            continue
        if _same_answer(kept.question, text.question, both_ways=not same_text):
            words = "the same text" if same_text else "nearly the same text"
            name = kept.question.id
            return Duplicate(kept.question, f"asks what {name} does: {words} and the same answer")
    return None


def _near(one: _Text, other: _Text) -> bool:
    if one.names - other.stems and other.names - one.stems:
        return False
    return len(one.stems & other.stems) >= NEAR * len(one.stems | other.stems)


def _is_enough(kept: _Text, text: _Text) -> bool:
    """Whether two near texts with the same answer are duplicates without a shared gold mail."""
    if kept.question.answerable is False:
        # All unanswerable questions have the same answer.
        return kept.stems == text.stems and kept.asking == text.asking
    replaced = bool(kept.stems - text.stems) and bool(text.stems - kept.stems)
    return not replaced and not _is_common(kept.question)


def _is_common(question: Question) -> bool:
    """Whether many questions have this answer: yes or no, or a bare number."""
    if is_abstention(question.answer) or asks_yes_no(question.question):
        return True
    gold = read_claims(question.answer or "")
    return not any(stem.isalpha() for stem in content_stems(gold.text)) and all(
        value.kind in ("number", "ordinal", "percent") for value in gold.values
    )


def _same_answer(one: Question, other: Question, *, both_ways: bool) -> bool:
    if (one.answerable is False) != (other.answerable is False):
        return False
    judge = OfflineJudge()
    pairs = ((one, other), (other, one))
    verdicts = (judge.decide(question, given.answer).correct for question, given in pairs)
    return all(verdicts) if both_ways else any(verdicts)
