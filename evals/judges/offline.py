"""Whether an answer is right, given the gold answer, without a model.

`OfflineJudge` decides in this order:

1. On an unanswerable question (`answerable` false, or a gold answer that abstains) abstention is
   correct and any answer is wrong; otherwise abstention is not correct. The gold answer itself,
   word for word, is correct.
2. Faults (`Compared.faults`) make an answer wrong however it is worded, such as words to its
   grader, a value that contradicts the gold's, alternatives, or a value or name that is missing.
   Values that the answer takes back ("not May 3", "moved from ... to") are free, and so are values
   of kinds that the gold does not have.
3. Where the question asks for more than values and names, the words get a score between 0 and 1
   from five features (`Features`). From 0.5 the answer is correct.

The weights are a logistic regression with a ridge penalty. `python -m tests.evals.fit_judge` fits
them on the tuning half of the labelled pairs and on the pairs of the judge's own tests;
docs/evaluation.md has its agreement with other pairs. `F1Judge` is a second judge without a model.
"""

import calendar
import math
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from art_e.abstention import is_abstention
from art_e.errors import UserError
from art_e.inbox.mail import Email
from art_e.question import Question
from art_e.text import cut_line
from evals.judges.claims import (
    Claims,
    Name,
    appeal,
    asked,
    asks_yes_no,
    content_stems,
    has_verb,
    is_choice,
    opens_sentence,
    opposed,
    polarity,
    read_claims,
    refused,
    same_name,
)
from evals.judges.grounding import with_grounding
from evals.judges.values import MAX_CHARS, TimeOfDay, Value, clean, compatible, same_value
from evals.verdict import Verdict

# ---- What a gold answer needs.


def _key_values(gold: Claims, asking: Claims, kinds: frozenset[str]) -> list[Value]:
    """The values of `gold` that an answer must state.

    Those of the kinds asked for. If the gold has neither such values nor a name that is asked for,
    all values that the question does not have. The end of a time range is never needed. Of a gold
    that only denies, what it denies.
    """
    needed = [
        value
        for value in gold.values or gold.denied
        if not (isinstance(value.key, TimeOfDay) and value.key.ends)
    ]
    focused = [value for value in needed if value.kind in kinds]
    if focused or ("name" in kinds and gold.names):
        return focused
    known = {(value.kind, value.key) for value in asking.values}
    return [value for value in needed if (value.kind, value.key) not in known]


def _key_names(gold: Claims, kinds: frozenset[str]) -> list[Name]:
    """The names of `gold` that an answer must state: of a gold that is nothing but names, or if
    the question asks for a name."""
    only_names = not content_stems(_without(gold.text, gold.names))
    return list(gold.names) if "name" in kinds or only_names else []


def _without(text: str, parts: Sequence[Value | Name]) -> str:
    for part in sorted(parts, key=lambda part: -part.start):
        text = f"{text[: part.start]} {text[part.end :]}"
    return text


# ---- The judges.

_WRAPPING = re.compile(
    r"^[\s\"'*_]*(?:(?:final )?answer ?: ?)?[\s\"'*_]*|[\s\"'*_]+$", re.IGNORECASE
)


def is_unanswerable(question: Question) -> bool:
    """Whether no mail answers the question. Raises UserError without a gold answer."""
    if question.answerable is False:
        return True
    if question.answer is None:
        raise UserError(
            f"question {question.id} has no answer to judge against: "
            "give it `answer`, or set `answerable` to false"
        )
    return is_abstention(question.answer)


def ruled(question: Question, answer: str | None, judge: str) -> Verdict | None:
    """The verdict of `judge` by rule 1; None if the answer has to be compared with the gold answer.

    Raises UserError for a question without a gold answer.
    """
    gold, abstained = question.answer, is_abstention(answer and answer[:MAX_CHARS])
    if is_unanswerable(question):
        reason = "abstained on" if abstained else "answered"
        return Verdict(abstained, None, judge, f"{reason} an unanswerable question")
    assert gold is not None
    if answer is None or abstained:
        return Verdict(False, None, judge, "abstained on an answerable question")
    if _unwrapped(answer).casefold() == clean(gold).casefold():
        return Verdict(True, None, judge, "is the gold answer")
    return None


def _unwrapped(answer: str) -> str:
    return _WRAPPING.sub("", clean(answer))


class RuleJudge(ABC):
    """A judge without a model; deterministic. All of them share rule 1 and grounding."""

    name: str

    async def judge(
        self, question: Question, answer: str | None, mails: Sequence[Email] | None = None
    ) -> Verdict:
        """`decide`, and whether the answer stands in `mails`."""
        return with_grounding(self.decide(question, answer), question, answer, mails)

    def decide(self, question: Question, answer: str | None) -> Verdict:
        """The verdict on `answer`. Raises UserError for a question without a gold answer."""
        settled = ruled(question, answer, self.name)
        if settled is not None:
            return settled
        assert question.answer is not None and answer is not None
        return self._compared(question, question.answer, answer)

    @abstractmethod
    def _compared(self, question: Question, gold: str, answer: str) -> Verdict:
        """The verdict on an answer that rule 1 does not decide."""


class OfflineJudge(RuleJudge):
    """The judge whose rules stand at the top of this module."""

    name = "offline/5"

    def _compared(self, question: Question, gold: str, answer: str) -> Verdict:
        compared = Compared(question, gold, answer)
        fault = next(compared.faults(), None)
        wording = None if fault else compared.wording()
        if wording is None:
            reason = fault or "states what the gold answer states"
            return Verdict(not fault, None, self.name, reason)
        against = [weight * each for weight, each in zip(WEIGHTS, wording, strict=True)]
        chance = 1 / (1 + math.exp(-BIAS - sum(against)))
        reason = "says what the gold answer says"
        if chance < 0.5:
            reason = _AGAINST[against.index(min(against))]
        return Verdict(chance >= 0.5, None, self.name, f"{reason} (score {chance:.2f})")


class Features(NamedTuple):
    """What speaks against the words of an answer; each is 0 to 1."""

    missing: float  # share of the gold's content stems, beyond the question's, that is missing
    new: float  # that share, times the share of the answer's stems that are new
    items: float  # an item of the gold's list is missing, or the answer lists and the gold does not
    changed: float  # the gold but for one word
    reversed: float  # denies what the gold affirms, or has an opposite word


_AGAINST = (
    "lacks words of the gold answer", "has other words", "lacks or adds an item",
    "has another word", "says the opposite",
)  # fmt: skip
BIAS = 3.42
WEIGHTS = Features(missing=-4.72, new=-2.73, items=-1.88, changed=-4.36, reversed=-5.45)

_PARTS = re.compile(r"[,;/]|[.!?](?= |$)|\b(?:and|or|but|while)\b", re.IGNORECASE)
_TOKEN = re.compile(r"\w+(?:[-'.:&]\w+)*")


class Compared:
    """An answer beside the gold answer."""

    def __init__(self, question: Question, gold: str, answer: str) -> None:
        self.asking, self.gold = read_claims(question.question), read_claims(gold)
        self.answer, self.near = read_claims(_unwrapped(answer)), question.query_date
        self.wanted = asked(self.asking.text)
        self.values = _key_values(self.gold, self.asking, self.wanted)
        self.names = _key_names(self.gold, self.wanted)
        self.is_yes_no = asks_yes_no(self.asking.text) and not is_choice(self.asking.text)
        keyed = self.names or any(value.kind in self.wanted for value in self.values)
        self.scored = not self.is_yes_no and ("text" in self.wanted or not keyed)

    def faults(self) -> Iterator[str]:
        """What makes the answer wrong however it is worded, one line for each fault."""
        gold, answer = self.gold.text, self.answer.text
        words = appeal(answer)
        if words and words.lower() not in f"{gold} {self.asking.text}".lower():
            yield f"addresses the judge: {words!r}"
        kinds = {value.kind for value in self.gold.values}
        candidates = [value for value in self.answer.values if value.kind in kinds]
        known = [*self.gold.values, *self.gold.denied, *self.asking.values]
        for value in candidates:
            if not any(compatible(other, value, self.near) for other in known):
                yield f"has another {value.kind}: {answer[value.start : value.end]!r}"
        if is_choice(answer) and not is_choice(gold):
            yield "offers alternatives"
        if self.is_yes_no:
            if self._is_contrary():
                yield "says yes for no or no for yes"
            return
        for value in self.values:
            if not self._is_stated(value):
                yield f"lacks the {value.kind}"
        if self.names:
            yield from self._name_faults()
        if _is_swapped(gold, answer):
            yield "mixes up what belongs to what"

    def _is_stated(self, value: Value) -> bool:
        given = self.answer.denied if value in self.gold.denied else self.answer.values
        if value.kind == "code":
            pieces = set(re.findall(r"[A-Z]+|\d+", str(value.key)))
            if pieces <= set(re.findall(r"[A-Z]+|\d+", self.answer.text.upper())):
                return True
        return any(same_value(value, other, self.near) for other in given)

    def _is_contrary(self) -> bool:
        """True if the answer lacks the gold's yes or no, or takes back its yes."""
        gold, answer = self.gold.text, self.answer.text
        wanted, given = polarity(gold), polarity(answer)
        if given and self.answer.negated and not self.gold.negated:
            return True
        if given is None:
            shared = set(content_stems(answer)) & set(content_stems(f"{gold} {self.asking.text}"))
            if len(shared) < 2 and not has_verb(answer) and not opposed(self.asking.text, answer):
                return True
            given = self._affirms(answer)
        return given != (self._affirms(gold) if wanted is None else wanted)

    def _affirms(self, text: str) -> bool:
        """True if a text without yes or no says what the question asks, and not its opposite."""
        return refused(text) == opposed(self.asking.text, text)

    def _name_faults(self) -> Iterator[str]:
        """A name that is missing, or another in its place."""
        text, given = self.answer.text, self.answer.names
        lower = set(re.findall(r"[\w-]+", text.lower()))
        for name in self.names:
            is_named = any(same_name(name.words, other.words) for other in given)
            if not is_named and (self.answer.negated or not lower.issuperset(name.words)):
                yield "lacks a name"
        words = set(re.findall(r"\w+", f"{self.gold.text} {self.asking.text}".lower()))
        for name in given:
            is_known = set(name.words) <= words or opens_sentence(name, text)
            if not is_known and not any(same_name(gold.words, name.words) for gold in self.names):
                yield f"names another: {text[name.start : name.end]!r}"

    def wording(self) -> Features | None:
        """The features of the words beside needed values and names; None if they don't count."""
        if not self.scored:
            return None
        gold, answer = _without(self.gold.text, [*self.values, *self.names]), self.answer.text
        rest, has_keys = _without(answer, self.answer.values), bool(self.values or self.names)
        asked_stems, gold_stems = set(content_stems(self.asking.text)), set(content_stems(gold))
        known = asked_stems.union(content_stems(self.gold.text))
        stems = set(content_stems(rest))
        beyond = gold_stems - asked_stems
        missing = len(beyond - stems) / max(1, len(beyond))
        if not beyond and not has_keys:
            missing = float(gold.lower() not in answer.lower())  # "A-", "all of us"
        strange = len(stems - known) / max(1, len(stems))
        # "Not worn" is "unworn": a denial and an opposite together cancel out.
        denies = _denies(gold, beyond & stems) != _denies(answer, beyond & stems)
        return Features(
            missing=missing if "text" in self.wanted or not has_keys else 0.0,
            new=strange * missing,
            items=float(self._is_other_list(gold, stems, known)),
            changed=_changed(gold, rest, known),
            reversed=(1 - missing) * (denies != opposed(gold, answer)),
        )

    def _is_other_list(self, gold: str, given: set[str], known: set[str]) -> bool:
        """True if an item of a gold list is missing, or if the answer lists two strange things."""
        wanted, items = _parts(gold), _parts(self.answer.text)
        if len(wanted) >= 2 and any(2 * len(item & given) < len(item) for item in wanted):
            return True
        return len(items) >= 3 and sum(not item & known for item in items) >= 2


def _parts(text: str) -> list[set[str]]:
    """The content stems of each part of a text that has any."""
    return [stems for part in _PARTS.split(text) if (stems := set(content_stems(part)))]


def _denies(text: str, beyond: set[str]) -> bool:
    """True if the parts of the text that have any of the stems `beyond` deny something."""
    return refused(" ".join(p for p in _PARTS.split(text) if beyond & set(content_stems(p))))


def _changed(gold: str, answer: str, known: set[str]) -> float:
    """The share of the gold that an answer keeps which changes one word."""
    wanted, given = content_stems(gold), content_stems(answer)
    if not 1 < len(wanted) == len(given):
        return 0.0
    pairs = zip(wanted, given, strict=True)
    changed = [new for old, new in pairs if old != new]
    is_one = len(changed) == 1 and changed[0] not in known
    return 1 - 1 / len(wanted) if is_one else 0.0


def _is_swapped(gold: str, answer: str) -> bool:
    """True if the answer says of one thing what the gold says of another.

    Two parts have exchanged what the gold says of them, or subject and object have changed places
    around one verb.
    """
    parts, answered = ([_tokens(part) for part in _PARTS.split(text)] for text in (gold, answer))
    counts = Counter(token for part in parts for token in part)
    own = [{token for token in part if counts[token] == 1} for part in parts]
    mixed = [part for part in answered if sum(bool(part & each) for each in own) >= 2]
    return len(mixed) >= 2 or any(triple[::-1] in _triples(answer) for triple in _triples(gold))


def _tokens(text: str) -> set[str]:
    return {token for token in _TOKEN.findall(text.lower()) if content_stems(token)}


def _triples(text: str) -> set[tuple[str, ...]]:
    """Three different words in a row, stemmed, without articles."""
    found: set[tuple[str, ...]] = set()
    for part in _PARTS.split(text.lower()):
        words = [word for word in _TOKEN.findall(part) if word not in _ARTICLES]
        stems = [" ".join(content_stems(word)) or word for word in words]
        found.update(zip(stems, stems[1:], stems[2:], strict=False))
    return {triple for triple in found if triple[0] != triple[2]}


# ---- A second judge: how many words an answer and the gold answer share.

F1_THRESHOLD = 0.8  # on worlds of other seeds, 0.6 and 0.7 accept more lists
SHOWN_CHARS = 60  # of a word of the answer, in the reason

_ARTICLES = frozenset(("a", "an", "the"))
_WEEKDAYS = frozenset(map(str.lower, calendar.day_name))
_MONTHS = frozenset(map(str.lower, calendar.month_name[1:]))
# Apostrophes, commas of thousands, ".00", and the ending of "4th".
_DROPPED = re.compile(r"['’]|(?<=\d)(?:,(?=\d{3})|\.00\b|(?:st|nd|rd|th)\b)")
_F1_WORD = re.compile(r"\d+(?:[.:/-]\d+)*[^\W_]*|[^\W_]+")


class F1Judge(RuleJudge):
    """Judges short answers in the words of the mail by the measure of SQuAD v1.1.

    That is F1 over the words in lower case, without punctuation and articles (Rajpurkar et al.
    2016). Unlike there:

    - Punctuation separates words, so that no list hides in one word. It stays inside numbers.
    - Each number and month of the answer must be one of the gold's, and one must be there where
      the gold has any (the latter as in DROP, Dua et al. 2019): by words alone, May 3, 2020 is as
      near to May 4, 2020 as to its other spellings.
    - A weekday is free where the gold has none.
    - The gold without the question's words is a reference too: for a room, "74" is "Room 74".
    """

    name = "f1/1"

    def _compared(self, question: Question, gold: str, answer: str) -> Verdict:
        given, wanted = _words(answer), _words(gold)
        if not _WEEKDAYS.intersection(wanted):
            given = [word for word in given if word not in _WEEKDAYS]
        fault = _figure_fault(given, wanted)
        if fault is not None:
            return Verdict(False, None, self.name, fault)
        asked_words = set(_words(question.question))
        beyond = [word for word in wanted if word not in asked_words]
        shared = max(f1(given, wanted), f1(given, beyond))
        return Verdict(shared >= F1_THRESHOLD, None, self.name, f"F1 {shared:.2f}")


def f1(given: Sequence[str], gold: Sequence[str]) -> float:
    """The harmonic mean of precision and recall of the words `given`; 0 if they share none."""
    hits = (Counter(given) & Counter(gold)).total()
    return 2 * hits / (len(given) + len(gold)) if hits else 0.0


def _words(text: str) -> list[str]:
    found = _F1_WORD.findall(_DROPPED.sub("", text.lower()))
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
