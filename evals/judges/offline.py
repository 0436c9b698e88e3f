"""Whether an answer is right, given the gold answer, without a model.

`OfflineJudge` decides in this order:

1. On an unanswerable question (`answerable` false, or a gold answer that abstains) abstention is
   correct and any answer is wrong; otherwise abstention is not correct. The gold answer itself,
   word for word, is correct.
2. A fault (`Compared.fault`) makes an answer wrong however it is worded: words to its grader,
   alternatives, or a bare value that contradicts the gold's.
3. All else is one score between 0 and 1 from ten features (`Features`) of what the question asks
   for. From 0.5 the answer is correct; near 0.5 (`UNSURE`) the judge is unsure. Values that the
   answer takes back ("not May 3", "moved from ... to") are free, and so are values of kinds that
   the gold does not have.

The weights are a logistic regression with a ridge penalty. `python -m tests.evals.fit_judge` fits
them on the tuning half of the labelled pairs and on the pairs of the judge's own tests;
docs/evaluation.md has its agreement with other pairs. `F1Judge` is a second judge without a model.
"""

import calendar
import math
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher

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
    beside,
    content_stems,
    is_choice,
    opens_sentence,
    opposed,
    polarity,
    read_claims,
    refused,
    same_name,
)
from evals.judges.grounding import with_grounding
from evals.judges.values import (
    MAX_CHARS,
    Amount,
    TimeOfDay,
    Value,
    clean,
    compatible,
    in_month_of,
    same_value,
)
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


def _key_names(gold: Claims, asking: Claims, kinds: frozenset[str]) -> list[Name]:
    """The names of `gold` that an answer must state: of a gold that is nothing but names, or if
    the question asks for a name. What the question has of them is not needed."""
    only_names = not content_stems(_without(gold.text, gold.names))
    if "name" not in kinds and not only_names:
        return []
    known = set(re.findall(r"[\w-]+", asking.text.lower()))
    names = [
        name._replace(words=tuple(w for w in name.words if w not in known)) for name in gold.names
    ]
    return [name for name in names if name.words] or list(gold.names)


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
    abstained = is_abstention(answer and answer[:MAX_CHARS]) and not appeal(clean(answer or ""))
    if is_unanswerable(question):
        reason = "abstained on" if abstained else "answered"
        return Verdict(abstained, None, judge, f"{reason} an unanswerable question")
    assert question.answer is not None
    if answer and _unwrapped(answer).casefold() == clean(question.answer).casefold():
        return Verdict(True, None, judge, "is the gold answer")
    if abstained:
        return Verdict(False, None, judge, "abstained on an answerable question")
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

    name = "offline/6"

    def _compared(self, question: Question, gold: str, answer: str) -> Verdict:
        compared = Compared(question, gold, answer)
        fault = compared.fault()
        if fault:
            return Verdict(False, None, self.name, fault)
        found = zip(WEIGHTS.items(), compared.features(), strict=True)
        against = {reason: weight * degree for (reason, weight), degree in found}
        chance = 1 / (1 + math.exp(-BIAS - sum(against.values())))
        reason = "says what the gold answer says"
        if chance < 0.5:
            reason = min(against, key=against.__getitem__)
        reason, unsure = f"{reason} (score {chance:.2f})", UNSURE[0] < chance < UNSURE[1]
        return Verdict(chance >= 0.5, None, self.name, reason, unsure=unsure)


BIAS = 2.56
# What speaks against an answer, and how much.
WEIGHTS = {
    "lacks a value or name": -4.61,  # that is needed
    "lacks some values or names": -2.15,  # that are not asked for
    "has a value or name more": -3.20,  # and lacks none
    "says yes for no or no for yes": -5.05,
    "lacks words of the gold answer": -4.00,  # by the share of those that the question lacks
    "has another word": -3.33,  # in a copy of the gold, by how much of it the answer copies
    "leaves an item out": -1.12,  # of a list, and has nothing new
    "says the opposite": -2.95,
    "mixes up what belongs to what": -3.49,
}
UNSURE = (0.2, 0.8)  # between these scores

_PARTS = re.compile(r"[,;/]|[.!?](?= |$)|\b(?:and|or|but|while)\b", re.IGNORECASE)
_TOKEN = re.compile(r"\w+(?:[-'.:&]\w+)*")
_IN_ORDER = re.compile(r"\border\b|\bsequence\b|\bwho\b.{1,60}\bwhom\b", re.IGNORECASE)
_PASSIVE = re.compile(r"\b(?:was|were|been|got|is|are|being)\b[^.;]{1,80}\bby\b", re.IGNORECASE)
_DIRECTED = re.compile(r" (?:instead of|rather than|than|before|after|behind) ")


class Compared:
    """An answer beside the gold answer."""

    def __init__(self, question: Question, gold: str, answer: str) -> None:
        self.asking, self.gold = read_claims(question.question), read_claims(gold)
        self.answer, self.near = read_claims(_unwrapped(answer)), question.query_date
        wanted = asked(self.asking.text)
        self.is_choice = is_choice(self.asking.text)
        self.is_yes_no = asks_yes_no(self.asking.text) and not self.is_choice
        self.values = [] if self.is_yes_no else _key_values(self.gold, self.asking, wanted)
        self.names = [] if self.is_yes_no else _key_names(self.gold, self.asking, wanted)
        self.keyed = bool(self.names) or any(value.kind in wanted for value in self.values)
        self.scored = "text" in wanted or not (self.keyed or self.is_yes_no)
        self.asked_stems = set(content_stems(self.asking.text))
        self.known = self.asked_stems.union(content_stems(self.gold.text))
        self.others = self._other_values()

    def fault(self) -> str | None:
        """What makes the answer wrong however it is worded."""
        gold, answer = self.gold.text, self.answer.text
        words = appeal(answer)
        if words and words.lower() not in f"{gold} {self.asking.text}".lower():
            return f"addresses the judge: {words!r}"
        if is_choice(answer) and not is_choice(gold):
            return "offers alternatives"
        strange = set(content_stems(_without(answer, self.answer.values))) - self.known
        if self.others and len(strange) < 2 and not self.is_yes_no:
            other = self.others[0]
            return f"has another {other.kind}: {answer[other.start : other.end]!r}"
        return None

    def features(self) -> list[float]:
        """How far each of `WEIGHTS` holds, from 0 to 1, of an answer without a fault."""
        lacking = self._lacking()
        stems = set(content_stems(_without(self.answer.text, self.answer.values)))
        gold = _without(self.gold.text, [*self.values, *self.names])
        missing = self._missing(gold, stems, has_keys=not lacking)
        return [
            float(lacking == 1),
            float(lacking == 0.5),
            float(not lacking and bool(self.others or self._has_other_name())),
            float(self.is_yes_no and self._is_contrary()),
            missing,
            _changed(self.gold.text, self.answer.text, self.asked_stems),
            float(self.scored and stems <= self.known and self._lacks_item(stems)),
            (1 - missing) * self._is_reversed(gold, stems),
            float(self._is_swapped()),
        ]

    # ---- Values and names.

    def _other_values(self) -> list[Value]:
        """The answer's values of the gold's kinds that neither gold nor question has.

        The options of a choice are not the question's. A time that is the gold's in another zone is
        free.
        """
        kinds = {value.kind for value in self.gold.values}
        known = [*self.gold.values, *self.gold.denied]
        known += [] if self.is_choice else self.asking.values
        spans = [span for value in self.values for span in _spelled(value, self.answer.text)]
        zones = {value.key.zone for value in known if isinstance(value.key, TimeOfDay)} - {""}

        def is_elsewhere(value: Value) -> bool:
            return isinstance(value.key, TimeOfDay) and bool(zones) and value.key.zone not in zones

        return [
            value
            for value in self.answer.values
            if value.kind in kinds
            and not any(compatible(other, value, self.near) for other in known)
            and not any(start <= value.start < end for start, end in spans)
            and not is_elsewhere(value)
        ]

    def _has_other_name(self) -> bool:
        """True if a name is needed, and the answer has one that neither gold nor question has."""
        words = set(re.findall(r"\w+", f"{self.gold.text} {self.asking.text}".lower()))
        return bool(self.names) and any(
            not set(name.words) <= words
            and not opens_sentence(name, self.answer.text)
            and not any(same_name(gold.words, name.words) for gold in self.names)
            for name in self.answer.names
        )

    def _lacking(self) -> float:
        """1 if a needed value or name is missing.

        It is 0.5 if the question does not ask for such a value and the answer has others of the
        gold's words, or if some names are there of a gold that is more than names.
        """
        if not all(map(self._is_stated, self.values)):
            shared = self.known.intersection(content_stems(self.answer.text)) - self.asked_stems
            return 1.0 if self.keyed or not shared else 0.5
        named = [self._is_named(name) for name in self.names]
        is_sentence = content_stems(_without(self.gold.text, self.gold.names))
        return 0.0 if all(named) else 0.5 if any(named) and is_sentence else 1.0

    def _is_stated(self, value: Value) -> bool:
        given = self.answer.denied if value in self.gold.denied else self.answer.values
        spans = _spelled(value, self.answer.text)
        if spans:
            denied = [other.start for other in self.answer.denied]
            return not any(start <= place < end for start, end in spans for place in denied)
        if isinstance(value.key, Amount) and not value.key.number and self.answer.negated:
            return True  # "none", "no one"
        return any(
            same_value(value, each, self.near)
            for other in given
            for each in (other, *(in_month_of(other, date) for date in self.asking.values))
        )

    def _is_named(self, name: Name) -> bool:
        given = [other for other in self.answer.names if same_name(name.words, other.words)]
        if given:
            return not all(beside(self.answer.text, other) for other in given)
        words = set(re.findall(r"[\w-]+", self.answer.text.lower()))
        return not self.answer.negated and words.issuperset(name.words)

    # ---- Yes or no, and words.

    def _is_contrary(self) -> bool:
        """True if the answer lacks the gold's yes or no, or takes back its yes."""
        gold, answer = self.gold.text, self.answer.text
        wanted, given = polarity(gold), polarity(answer)
        if given and self.answer.negated and not self.gold.negated:
            return True
        if given is None:
            given = self._affirms(answer)
        return given != (self._affirms(gold) if wanted is None else wanted)

    def _affirms(self, text: str) -> bool:
        """True if a text without yes or no says what the question asks, and not its opposite."""
        return refused(text) == opposed(self.asking.text, text)

    def _missing(self, gold: str, stems: set[str], *, has_keys: bool) -> float:
        """The share of the content of `gold`, without needed values and names, that is missing."""
        if not self.scored:
            return 0.0
        keys = len(self.values) + len(self.names)
        beyond = set(content_stems(gold)) - self.asked_stems
        if not beyond and not keys:
            return float(gold.lower() not in self.answer.text.lower())  # "A-", "all of us"
        return len(beyond - stems) / max(1, len(beyond) + keys * has_keys)

    def _is_reversed(self, gold: str, stems: set[str]) -> bool:
        """True if the answer denies what `gold` affirms, or has an opposite of one of its words.

        "Not worn" is "unworn": a denial and an opposite together cancel out.
        """
        answer = self.answer.text
        if not self.scored:
            return opposed(gold if self.is_choice else f"{self.asking.text} {gold}", answer)
        beyond = stems.intersection(content_stems(gold)) - self.asked_stems
        return (_denies(gold, beyond) != _denies(answer, beyond)) != opposed(gold, answer)

    def _lacks_item(self, given: set[str]) -> bool:
        items = [stems for p in _PARTS.split(self.gold.text) if (stems := set(content_stems(p)))]
        return len(items) > 1 and any(not item & given for item in items)

    def _is_swapped(self) -> bool:
        """True if the answer says of one thing what the gold says of another.

        Two parts have exchanged what the gold says of them, subject and object have changed places
        around a word, or the names come in another order where it is asked for.
        """
        gold, answer = self.gold.text, self.answer.text
        if _IN_ORDER.search(self.asking.text) and len(self.names) >= 2:
            places = [answer.lower().find(name.words[-1]) for name in self.names]
            is_passive = bool(_PASSIVE.search(answer)) != bool(_PASSIVE.search(gold))
            return min(places) >= 0 and places != sorted(places, reverse=is_passive)
        parts = [_tokens(part) for part in _PARTS.split(gold)]
        answered = [_tokens(part) for part in _PARTS.split(answer)]
        counts = Counter(token for part in parts for token in part)
        own = [{token for token in part if counts[token] == 1} for part in parts]
        mixed = [part for part in answered if sum(bool(part & each) for each in own) >= 2]
        return (
            len(mixed) >= 2
            or bool(_triples(answer) & {triple[::-1] for triple in _triples(gold)})
            or any(_is_exchanged(gold, answer, word) for word in _DIRECTED.findall(gold))
        )


def _spelled(value: Value, text: str) -> list[tuple[int, int]]:
    """Where a code, phone number or address stands in `text`, whatever signs are between."""
    if value.kind not in ("code", "phone", "web"):
        return []
    key = re.sub(r"^(?:HTTPS?)?(?:WWW)?", "", str(value.key))
    pattern = r"[\W_]{0,3}".join(map(re.escape, key[:200]))
    found = re.finditer(rf"(?<![^\W_])(?:00|0|v)?{pattern}(?![^\W_])", text, re.IGNORECASE)
    return [match.span() for match in found]


def _denies(text: str, beyond: set[str]) -> bool:
    """True if the parts of the text that have any of the stems `beyond` deny something."""
    return refused(" ".join(p for p in _PARTS.split(text) if beyond & set(content_stems(p))))


def _changed(gold: str, answer: str, asked_stems: set[str]) -> float:
    """How much of the gold the answer copies, if it changes or puts in a word inside the copy."""
    wanted, given = _TOKEN.findall(gold.lower()), _TOKEN.findall(answer.lower())[:400]
    codes = SequenceMatcher(None, wanted, given, autojunk=False).get_opcodes()
    equal = [code for code in codes if code[0] == "equal"]
    copied = sum(end - start for _, start, end, _, _ in equal)
    if len(wanted) < 3 or 2 * copied < len(wanted):
        return 0.0
    share = copied**2 / len(wanted) / max(copied, equal[-1][4] - equal[0][3])
    for place, (tag, start, end, first, last) in enumerate(codes):
        at_edge = place == len(codes) - 1 or (place == 0 and last - first > 1)
        if tag in ("equal", "delete") or (tag == "insert" and at_edge):
            continue
        old, new = (
            {stem for stem in content_stems(" ".join(words)) if stem.isalpha()}
            for words in (wanted[start:end], given[first:last])
        )
        is_other = bool(old - new) or tag == "insert"
        if is_other and 0 < len(new - old - asked_stems) <= 2 and len(old) <= 2:
            return share
    return 0.0


def _is_exchanged(gold: str, answer: str, word: str) -> bool:
    """True if what stands before `word` in the gold stands after it in the answer, and so on."""
    if word not in answer:
        return False
    sides = [set(content_stems(side)) for text in (gold, answer) for side in text.split(word, 1)]
    before, after, first, last = sides
    return bool((before - after) & (last - first) and (after - before) & (first - last))


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
