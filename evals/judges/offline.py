"""Whether an answer is right, given the gold answer, without a model.

`OfflineJudge` decides in this order:

1. Abstention is correct exactly on an unanswerable question. The gold answer itself is correct.
2. Words to the grader and alternatives make an answer wrong, however it is worded.
3. All else is one score from 0 to 1 of what speaks against the answer (`WEIGHTS`). From 0.5 it is
   correct; near 0.5 (`UNSURE`) the judge is unsure. Values that the answer takes back ("not May 3",
   "moved from ... to") are free, and so are values of kinds that the gold does not have.

The weights are a logistic regression with a ridge penalty; docs/evaluation.md has the agreement
with labels. `F1Judge` is a second judge without a model.
"""

import calendar
import datetime as dt
import math
import re
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import astuple, replace
from difflib import SequenceMatcher
from typing import NamedTuple

from art_e.abstention import is_abstention
from art_e.errors import UserError
from art_e.inbox.mail import Email
from art_e.question import Question
from art_e.text import cut_line
from art_e.tools import MAX_BODY_CHARS
from evals.judges import claims
from evals.scored import Verdict

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


def _unwrapped(answer: str) -> str:
    return _WRAPPING.sub("", claims.clean(answer))


class RuleJudge(ABC):
    """A judge without a model; deterministic. All of them share rule 1 and grounding."""

    name: str

    async def judge(
        self, question: Question, answer: str | None, mails: Sequence[Email] | None = None
    ) -> Verdict:
        """`decide`, and whether an answer that is no abstention stands in `mails`."""
        verdict = self.decide(question, answer)
        if answer is None or mails is None or is_abstention(answer):
            return verdict
        grounded, why = grounded_in(question.question, answer, mails) if mails else UNREAD
        reason = f"{verdict.reason}; {why}" if why else verdict.reason
        return replace(verdict, grounded=grounded, reason=reason)

    def decide(self, question: Question, answer: str | None) -> Verdict:
        """The verdict on `answer`. Raises UserError for a question without a gold answer."""
        text = answer or ""
        abstained = is_abstention(answer and answer[: claims.MAX_CHARS]) and not claims.appeal(
            claims.clean(text)
        )
        if is_unanswerable(question):
            reason = "abstained on" if abstained else "answered"
            return Verdict(abstained, None, self.name, f"{reason} an unanswerable question")
        gold = question.answer or ""
        if answer and _unwrapped(answer).casefold() == claims.clean(gold).casefold():
            return Verdict(True, None, self.name, "is the gold answer")
        if abstained:
            return Verdict(False, None, self.name, "abstained on an answerable question")
        return self._compared(question, gold, text)

    @abstractmethod
    def _compared(self, question: Question, gold: str, answer: str) -> Verdict:
        """The verdict on an answer that rule 1 does not decide."""


class OfflineJudge(RuleJudge):
    """The judge whose rules stand at the top of this module."""

    name = "offline/7"

    def _compared(self, question: Question, gold: str, answer: str) -> Verdict:
        compared = Compared(question, gold, answer)
        if fault := compared.fault():
            return Verdict(False, None, self.name, fault)
        degrees = zip(WEIGHTS.items(), compared.features(), strict=True)
        penalties = {reason: weight * degree for (reason, weight), degree in degrees}
        chance = 1 / (1 + math.exp(-BIAS - sum(penalties.values())))
        worst = min(penalties, key=penalties.__getitem__)
        reason = worst if chance < 0.5 else "says what the gold answer says"
        unsure = UNSURE[0] < chance < UNSURE[1]
        reason = f"{reason} (score {chance:.2f})"
        return Verdict(chance >= 0.5, None, self.name, reason, unsure=unsure)


BIAS = 2.54
# What speaks against an answer, and how much.
WEIGHTS = {
    "lacks a value or name": -4.52,  # that is needed
    "has a value or name more": -3.62,  # and lacks none
    "says yes for no or no for yes": -4.91,
    "lacks words of the gold answer": -3.68,  # by the share of those that the question lacks
    "has another word": -3.43,  # in a copy of the gold, by how much of it the answer copies
    "leaves an item out": -1.05,  # of a list, and has nothing new
    "says the opposite": -2.77,
    "mixes up what belongs to what": -3.58,
}
UNSURE = (0.15, 0.85)  # between these scores

_PARTS = re.compile(r"[,;/]|[.!?](?= |$)|\b(?:and|or|but|while)\b", re.IGNORECASE)
_BETWEEN = frozenset("a an the of mr mrs ms dr".split())
_TOKEN = re.compile(r"\w+(?:[-'.:&]\w+)*")


class Compared:
    """An answer beside the gold answer."""

    def __init__(self, question: Question, gold: str, answer: str) -> None:
        self.asking, self.gold = claims.read_claims(question.question), claims.read_claims(gold)
        self.answer, self.near = claims.read_claims(_unwrapped(answer)), question.query_date
        wanted = claims.asked(self.asking.text)
        asking = self.asking.text
        self.is_yes_no = claims.asks_yes_no(asking) and not claims.is_choice(asking)
        # What the answer must state: what is asked for, or all values, or a mere list of names.
        focused = tuple(value for value in self.gold.values if value.kind in wanted)
        names = tuple(n for n in self.gold.names if not claims.beside(self.gold.text, n))
        is_named = "name" in wanted and bool(names)
        is_list = not claims.content_stems(_without(self.gold.text, self.gold.names))
        self.values = focused if focused or is_named else self.gold.values
        self.names = names if is_named or is_list else ()
        if self.is_yes_no:
            self.values = self.names = ()
        self.keyed = bool(self.names) or any(value.kind in wanted for value in self.values)
        self.scored = "text" in wanted or not (self.keyed or self.is_yes_no)
        self.asked_stems = set(claims.content_stems(self.asking.text))

    def fault(self) -> str | None:
        """What makes the answer wrong however it is worded."""
        gold, answer = self.gold.text, self.answer.text
        words = claims.appeal(answer)
        if words and words.lower() not in f"{gold} {self.asking.text}".lower():
            return f"addresses the judge: {words!r}"
        is_choice = claims.is_choice(answer) and not claims.is_choice(gold)
        return "offers alternatives" if is_choice else None

    def features(self) -> list[float]:
        """How far each of `WEIGHTS` holds, from 0 to 1, of an answer without a fault."""
        has_keys = all(map(self._is_named, self.names)) and all(
            any(claims.same_value(value, other, self.near) for other in self.answer.values)
            or _spelled(value, self.answer.text)
            for value in self.values
        )
        stems = set(claims.content_stems(_without(self.answer.text, self.answer.values)))
        gold = _without(self.gold.text, [*self.values, *self.names])
        missing = self._missing(gold, stems, has_keys=has_keys)
        return [
            float(not has_keys),
            float(has_keys and (self._has_other_value() or self._has_other_name())),
            float(self.is_yes_no and self._is_contrary()),
            missing,
            _changed(self.gold.text, self.answer.text, self.asked_stems),
            float(self.scored and self._lacks_item(stems)),
            (1 - missing) * self._is_reversed(gold, stems),
            float(self._is_swapped()),
        ]

    # ---- Values and names.

    def _has_other_value(self) -> bool:
        """True if the answer has a value of the gold's kinds that neither gold nor question has."""
        kinds = {value.kind for value in self.gold.values}
        known = [*self.gold.values, *self.gold.denied, *self.asking.values]
        codes = [code for value in self.values if (code := _spelled(value, self.answer.text))]
        return any(
            value.kind in kinds
            and not any(claims.compatible(other, value, self.near) for other in known)
            and not any(code.start() <= value.start < code.end() for code in codes)
            for value in self.answer.values
        )

    def _has_other_name(self) -> bool:
        """True if a name is needed, and the answer has one that neither gold nor question has."""
        words = set(re.findall(r"\w+", f"{self.gold.text} {self.asking.text}".lower()))
        return bool(self.names) and any(
            not set(name.words) <= words
            and not claims.opens_sentence(name, self.answer.text)
            and not any(claims.same_name(gold.words, name.words) for gold in self.names)
            for name in self.answer.names
        )

    def _is_named(self, name: claims.Name) -> bool:
        given = [other for other in self.answer.names if claims.same_name(name.words, other.words)]
        if given:
            return not all(claims.beside(self.answer.text, other) for other in given)
        words = set(re.findall(r"[\w-]+", self.answer.text.lower()))
        return not self.answer.negated and words.issuperset(name.words)

    # ---- Yes or no, and words.

    def _is_contrary(self) -> bool:
        """True if the answer lacks the gold's yes or no, or takes back its yes."""
        gold, answer = self.gold.text, self.answer.text
        wanted, given = claims.polarity(gold), claims.polarity(answer)
        if given and self.answer.negated and not self.gold.negated:
            return True
        # Without yes or no, a text affirms what is asked unless it denies it or has an opposite.
        if given is None:
            given = self.answer.negated == claims.opposed(self.asking.text, answer)
        if wanted is None:
            wanted = self.gold.negated == claims.opposed(self.asking.text, gold)
        return given != wanted

    def _missing(self, gold: str, stems: set[str], *, has_keys: bool) -> float:
        """The share of the content of `gold`, without needed values and names, that is missing."""
        if not self.scored:
            return 0.0
        keys = len(self.values) + len(self.names)
        beyond = set(claims.content_stems(gold)) - self.asked_stems
        if not beyond and not keys:
            return float(gold.lower() not in self.answer.text.lower())  # "A-", "all of us"
        return len(beyond - stems) / max(1, len(beyond) + keys * has_keys)

    def _is_reversed(self, gold: str, stems: set[str]) -> bool:
        """True if the answer denies what `gold` affirms, or has an opposite of one of its words.

        "Not worn" is "unworn": a denial and an opposite together cancel out.
        """
        answer = self.answer.text
        if not self.scored:
            return claims.opposed(f"{self.asking.text} {gold}", answer)
        beyond = stems.intersection(claims.content_stems(gold)) - self.asked_stems
        return (_denies(gold, beyond) != _denies(answer, beyond)) != claims.opposed(gold, answer)

    def _lacks_item(self, given: set[str]) -> bool:
        parts = map(claims.content_stems, _PARTS.split(self.gold.text))
        items = [set(stems) for stems in parts if stems]
        is_new = bool(given - self.asked_stems.union(*items))
        return not is_new and len(items) > 1 and not all(item & given for item in items)

    def _is_swapped(self) -> bool:
        """True if two parts of the answer have exchanged what the gold says of them, or subject and
        object have changed places around a word."""
        gold, answer = self.gold.text, self.answer.text
        parts = [_tokens(part) for part in _PARTS.split(gold)]
        answered = [_tokens(part) for part in _PARTS.split(answer)]
        counts = Counter(token for part in parts for token in part)
        own = [{token for token in part if counts[token] == 1} for part in parts]
        mixed = [part for part in answered if sum(bool(part & each) for each in own) >= 2]
        return len(mixed) >= 2 or bool(_triples(answer) & {each[::-1] for each in _triples(gold)})


def _without(text: str, parts: Sequence[claims.Value | claims.Name]) -> str:
    for part in sorted(parts, key=lambda part: -part.start):
        text = f"{text[: part.start]} {text[part.end :]}"
    return text


def _denies(text: str, beyond: set[str]) -> bool:
    """True if the parts of the text that have any of the stems `beyond` deny something."""
    parts = [part for part in _PARTS.split(text) if beyond & set(claims.content_stems(part))]
    return bool(claims.negations(" ".join(parts)))


def _spelled(value: claims.Value, text: str) -> re.Match[str] | None:
    """Where a code, phone number or address stands in `text`, whatever signs are between."""
    if value.kind not in ("code", "phone", "web"):
        return None
    key = re.sub(r"^(?:HTTPS?)?(?:WWW)?", "", str(value.key))
    pattern = r"[\W_]{0,3}".join(map(re.escape, key[:200]))
    return re.search(rf"(?<![^\W_])(?:00|0|v)?{pattern}(?![^\W_])", text, re.IGNORECASE)


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
            {stem for stem in claims.content_stems(" ".join(words)) if stem.isalpha()}
            for words in (wanted[start:end], given[first:last])
        )
        is_other = bool(old - new) or tag == "insert"
        if is_other and 0 < len(new - old - asked_stems) <= 2 and len(old) <= 2:
            return share
    return 0.0


def _tokens(text: str) -> set[str]:
    return {token for token in _TOKEN.findall(text.lower()) if claims.content_stems(token)}


def _triples(text: str) -> set[tuple[str, ...]]:
    """Three different words in a row, stemmed, without articles and titles."""
    found: set[tuple[str, ...]] = set()
    for part in _PARTS.split(text.lower()):
        words = [word for word in _TOKEN.findall(part) if word not in _BETWEEN]
        stems = [" ".join(claims.content_stems(word)) or word for word in words]
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
    """Judges short answers by F1 over the words in lower case, without punctuation and articles
    (SQuAD v1.1, Rajpurkar et al. 2016).

    Unlike there, punctuation separates words, so that no list hides in one word. Each number and
    month of the answer must be one of the gold's, and one must be there where the gold has any (as
    in DROP, Dua et al. 2019). A weekday is free where the gold has none. The gold without the
    question's words is a reference too: for a room, "74" is "Room 74".
    """

    name = "f1/1"

    def _compared(self, question: Question, gold: str, answer: str) -> Verdict:
        asking, given, wanted = map(_words, (question.question, answer, gold))
        if not _WEEKDAYS.intersection(wanted):
            given = [word for word in given if word not in _WEEKDAYS]
        figures, known = (
            [word for word in words if word in _MONTHS or not word.isalpha()]
            for words in (given, wanted)
        )
        strange = [word for word in figures if word not in known]
        if strange:
            reason = f"has {cut_line(strange[0], SHOWN_CHARS)!r}, which the gold answer lacks"
            return Verdict(False, None, self.name, reason)
        if known and not figures:
            return Verdict(False, None, self.name, "has no number or month of the gold answer")
        beyond = [word for word in wanted if word not in asking]
        shared = max(f1(given, wanted), f1(given, beyond))
        return Verdict(shared >= F1_THRESHOLD, None, self.name, f"F1 {shared:.2f}")


def f1(given: Sequence[str], gold: Sequence[str]) -> float:
    """The harmonic mean of precision and recall of the words `given`; 0 if they share none."""
    hits = (Counter(given) & Counter(gold)).total()
    return 2 * hits / (len(given) + len(gold)) if hits else 0.0


def _words(text: str) -> list[str]:
    found = _F1_WORD.findall(_DROPPED.sub("", text.lower()))
    return [word for word in found if word not in _ARTICLES]


# ---- Whether the mails that were read state what an answer states.

WEEKS_AHEAD = 2  # "Friday" in a mail may be the one of the next week

_DAYS_FROM = {"today": 0, "tonight": 0, "tomorrow": 1, "yesterday": -1}


class Grounding(NamedTuple):
    """Whether an answer is grounded (None: can't be told), and in one line why not."""

    grounded: bool | None
    reason: str


# An answer given without reading has no support, whatever it says.
UNREAD = Grounding(False, "no mail was read")


class _Read(NamedTuple):
    """What a mail of `day` states; the values include its date and the days that it names."""

    claims: claims.Claims
    values: list[claims.Value]
    words: frozenset[str]
    day: dt.date | None


def grounded_in(question: str, answer: str, mails: Sequence[Email]) -> Grounding:
    """Whether `mails` state what `answer`, which is no abstention, states."""
    asking, given = claims.read_claims(question), claims.read_claims(answer)
    read = [_read(mail) for mail in mails]
    kinds, known = claims.asked(asking.text), _plain_words(asking.text)
    is_count = "number" in kinds and "money" not in kinds
    stated = False
    for value in given.values:
        if is_count and value.kind == "number":
            continue
        if any(_covers(other, value, None) for other in asking.values):
            continue
        shown, stated = given.text[value.start : value.end], True
        if not any(_states(mail, value, shown) for mail in read):
            return Grounding(False, f"no mail read has the {value.kind} {shown!r}")
    for name in given.names:
        if _plain_words(*name.words) <= known or claims.opens_sentence(name, given.text):
            continue
        stated = True
        if not any(
            _plain_words(*name.words) <= mail.words | known
            or any(claims.same_name(name.words, other.words) for other in mail.claims.names)
            for mail in read
        ):
            return Grounding(False, f"no mail read has the name {' '.join(name.words)!r}")
    if stated:
        return Grounding(True, "")
    new = set(claims.content_stems(given.text)) - set(claims.content_stems(asking.text))
    if not new or (is_count and given.values):
        return Grounding(None, "")
    stems = {stem for mail in read for stem in claims.content_stems(mail.claims.text)} & new
    if 2 * len(stems) < len(new):
        return Grounding(False, f"the mails read have {len(stems)} of {len(new)} new words")
    return Grounding(True, "")


def _read(mail: Email) -> _Read:
    people = ", ".join(str(each) for each in (mail.sender, *mail.to, *mail.cc, *mail.bcc))
    text = f"{mail.subject}\n{mail.body[:MAX_BODY_CHARS]}\n{people}"
    stated = claims.read_claims(text, limit=2 * MAX_BODY_CHARS)
    # What a mail takes back it still states; which of them holds is not asked here.
    values, words = [*stated.values, *stated.denied], _plain_words(stated.text)
    day = None if mail.date is None else mail.date.date()
    if day is not None:
        dates = [
            claims.PartialDate(each.year, each.month, each.day)
            for each in _days(values, words, day)
        ]
        values += [claims.Value("date", date, 0, 0) for date in dates]
    return _Read(stated, values, words, day)


def _days(values: Sequence[claims.Value], words: frozenset[str], day: dt.date) -> Iterator[dt.date]:
    """The day of a mail, and those that "tomorrow", "Friday" or "the 16th" can be in it."""
    yield day
    yield from (day + dt.timedelta(ahead) for word, ahead in _DAYS_FROM.items() if word in words)
    for date in (value.key for value in values):
        if not isinstance(date, claims.PartialDate) or date.month or date.year:
            continue
        for ahead in range(31 if date.day else 7 * WEEKS_AHEAD):
            other = day + dt.timedelta(ahead)
            if date.day in (None, other.day) and date.weekday in (None, other.weekday()):
                yield other


def _states(mail: _Read, value: claims.Value, shown: str) -> bool:
    """True if the mail has the value, or its very words where only context tells its kind."""
    if any(_covers(other, value, mail.day) for other in mail.values):
        return True
    words = rf"(?<![\w.,:/$-]){re.escape(shown)}(?![\w%]|[.,:/-]\w)"
    return bool(re.search(words, mail.claims.text, re.IGNORECASE))


def _covers(stated: claims.Value, given: claims.Value, day: dt.date | None) -> bool:
    """True if `stated`, in a mail of `day`, says all that `given` says, and nothing against it."""
    one, other = stated.key, given.key
    if not isinstance(one, claims.PartialDate) or not isinstance(other, claims.PartialDate):
        return claims.same_value(given, stated)
    # The mail's date tells a year that it leaves out, and a day its weekday.
    if claims.conflict(one, other, day if one.year is None else None):
        return False
    parts = list(zip(astuple(one), astuple(other), strict=True))[1:]
    return bool(one.month and one.day) or all(b is None or a is not None for a, b in parts)


def _plain_words(*texts: str) -> frozenset[str]:
    """The words of the texts in lower case, without accents: addresses have none."""
    plain = unicodedata.normalize("NFKD", " ".join(texts).lower())
    return frozenset(re.findall(r"\w+", re.sub(r"[\u0300-\u036f]", "", plain)))
