"""Whether an answer is right, given the gold answer, without a model.

`OfflineJudge` decides in this order, on the answer without openers, sources and politeness:

1. Abstention is correct exactly on an unanswerable question. The gold answer itself is correct.
2. Words to the grader, and a retraction of what was said, make an answer wrong.
3. All else is one score from 0 to 1 of what speaks against the answer (`WEIGHTS`). From 0.5 it is
   correct; near 0.5 (`UNSURE`) the judge is unsure. Free are values that the answer takes back ("not
   May 3"), values in brackets, of kinds that the gold does not have, and what the question has.

The weights are a logistic regression (`python -m bench.fit_judge`); docs/evaluation.md has the
agreement with labels. `F1Judge` is a second judge without a model.
"""

import calendar
import datetime as dt
import math
import re
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
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
    """Return whether no mail answers the question. Raises UserError without a gold answer."""
    if question.answerable is False:
        return True
    if question.answer is None:
        raise UserError(
            f"question {question.id} has no answer to judge against: "
            "give it `answer`, or set `answerable` to false"
        )
    return question.answerable is None and is_abstention(question.answer)


class RuleJudge(ABC):
    """A judge without a model; deterministic. All of them share rule 1 and grounding."""

    name: str

    async def judge(
        self, question: Question, answer: str | None, mails: Sequence[Email] | None = None
    ) -> Verdict:
        """Return `decide`, and whether an answer that is no abstention stands in `mails`."""
        verdict = self.decide(question, answer)
        if answer is None or mails is None or _abstains(answer):
            return verdict
        grounded, why = grounded_in(question.question, answer, mails) if mails else UNREAD
        reason = f"{verdict.reason}; {why}" if why else verdict.reason
        return replace(verdict, grounded=grounded, reason=reason)

    def decide(self, question: Question, answer: str | None) -> Verdict:
        """Return the verdict on `answer`. Raises UserError for a question without gold answer."""
        text = answer or ""
        abstained = _abstains(text)
        if is_unanswerable(question):
            reason = "abstained on" if abstained else "answered"
            return Verdict(abstained, None, self.name, f"{reason} an unanswerable question")
        gold = question.answer or ""
        if text and _WRAPPING.sub("", claims.clean(text)).casefold() == claims.clean(gold).casefold():
            return Verdict(True, None, self.name, "is the gold answer")
        verdict = self._compared(question, gold, claims.unframed(claims.clean(text)))
        is_yes_no = claims.asks_yes_no(question.question)
        if abstained and (is_yes_no or not verdict.correct):
            return Verdict(False, None, self.name, "abstained on an answerable question")
        return verdict

    @abstractmethod
    def _compared(self, question: Question, gold: str, answer: str) -> Verdict:
        """Return the verdict on an answer that rule 1 does not decide."""


def _abstains(answer: str) -> bool:
    text = claims.clean(answer)
    bare = claims.unframed(text)
    return is_abstention(bare) and not claims.appeal(text)


class OfflineJudge(RuleJudge):
    """The judge whose rules stand at the top of this module."""

    name = "offline/8"

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


BIAS = 2.72
# What speaks against an answer, and how much.
WEIGHTS = {
    "lacks a value or name": -3.80,  # that is needed
    "lacks all of them": -1.91,
    "lacks a detail": -2.40,  # a further value or name of the gold
    "lists another value or name": -4.90,  # beside one that is needed
    "has another value or name first": -2.58,
    "adds another value or name": -1.80,
    "corrects itself": -3.55,  # with another value or name behind "but" or "now"
    "names alternatives": -4.30,
    "adds items": -0.60,  # to a list
    "says yes for no or no for yes": -5.15,
    "lacks words of the gold answer": -3.96,  # by the share of those that the question lacks
    "lacks words beside the value": 0.00,
    "has another word": -3.37,  # in a copy of the gold, by how much of it the answer copies
    "leaves an item out": -1.17,  # of a list
    "says the opposite": -3.41,
    "mixes up what belongs to what": -4.67,
}
UNSURE = (0.15, 0.85)  # between these scores

_PARTS = re.compile(r"[,;/]|[.!?](?= |$)|\b(?:and|or|but|while)\b", re.IGNORECASE)
_OR = re.compile(r"(?<!more )\bor\b(?! (?:so|less|more)\b)|\bunless\b", re.I)
_HEDGE = re.compile(r"(?:maybe|perhaps|possibly|probably not|not sure|unclear)\b", re.IGNORECASE)
_CONTRAST = re.compile(r"\b(?:but|now|instead|however|yet|so|actually)\b", re.IGNORECASE)
_BRACKETS = re.compile(r"[(\[](?!(?:or|maybe)(?: maybe)? [A-Z0-9])[^()\[\]]{0,300}[)\]]")
_PREPOSITION = re.compile(r"\b(?:in|at|of|from|with|for|after|before|by|under|than|since)\b", re.I)
_BETWEEN = frozenset("a an the of mr mrs ms dr".split())
_TOKEN = re.compile(r"\w+(?:[-'.:&]\w+)*")
Part = claims.Value | claims.Name


class Compared:
    """An answer, without its frame, beside the gold answer."""

    def __init__(self, question: Question, gold: str, answer: str) -> None:
        self.asking, self.gold = claims.read_claims(question.question), claims.read_claims(gold)
        self.answer, self.near = claims.read_claims(answer), question.query_date
        self.plain = _BRACKETS.sub("", self.answer.text)
        asking, wanted = self.asking.text, claims.asked(self.asking.text)
        self.is_yes_no = claims.asks_yes_no(asking) and not claims.is_choice(asking)
        self.asked_stems = set(claims.content_stems(asking))
        # A choice's values are not free.
        self.free = () if claims.is_choice(asking) else self.asking.values
        # What the gold adds to the question.
        values = [each for each in self.gold.values if not self._is_asked(each)]
        if any(value.kind == "date" for value in values):
            values = [value for value in values if value.kind != "weekday"]
        asked_words = set(re.findall(r"\w+", asking.lower()))
        names = [
            name
            for name in self.gold.names
            if not asked_words.issuperset(name.words) and not claims.beside(self.gold.text, name)
        ]
        rest = claims.content_stems(_without(self.gold.text, values))
        if not (values or names or set(rest) - self.asked_stems):
            values = list(self.gold.values)
        # Of these the answer must have what is asked for, or a mere list of values or names.
        focused = [value for value in values if value.kind in wanted]
        if focused:
            names = [name for name in names if not _opens_sentence(name, self.gold.text)]
        is_named = "name" in wanted and bool(names)
        is_list = not claims.content_stems(_without(self.gold.text, self.gold.names))
        if not (focused or is_named or set(rest) - self.asked_stems):
            focused = values
        keys: list[Part] = [*focused, *(names if is_named or is_list else [])]
        keys = [] if self.is_yes_no else sorted(keys, key=lambda part: part.start)
        self.needed = self._first(keys)
        self.details: list[Part] = [key for key in keys if key not in self.needed]
        if not (focused or is_named or self.is_yes_no):
            self.details += [value for value in values if value not in keys]
        self.keys = [*self.needed, *self.details]
        is_keyed = any(isinstance(key, claims.Name) or key.kind in wanted for key in keys)
        self.is_text = "text" in wanted or not (is_keyed or self.is_yes_no)

    def _is_asked(self, value: claims.Value) -> bool:
        return any(claims.same_value(value, other) for other in self.free)

    def _first(self, keys: list[Part]) -> list[Part]:
        """Return the first key of each kind and those that follow without content between."""
        last: dict[str, Part] = {}
        first: list[Part] = []
        for key in keys:
            kind = key.kind if isinstance(key, claims.Value) else "name"
            if kind not in last or not _between(self.gold.text, last[kind], key):
                first.append(key)
                last[kind] = key
        return first

    def fault(self) -> str | None:
        """Return what makes the answer wrong however it is worded."""
        known = f"{self.gold.text} {self.asking.text}".lower()
        words = claims.appeal(self.answer.text)
        if words and words.lower() not in known:
            return f"addresses the judge: {words!r}"
        back = claims.RETRACTION.search(self.answer.text)
        if back and not set(claims.content_stems(back[0])) <= set(claims.content_stems(known)):
            return f"takes it back: {cut_line(back[0], SHOWN_CHARS)!r}"
        return None

    def features(self) -> list[float]:
        """Return how far each of `WEIGHTS` holds, from 0 to 1, of an answer without a fault."""
        gold, answer = self.gold.text, self.answer.text
        missing = [key for key in self.needed if not self._states(key)]
        details = [key for key in self.details if not self._states(key)]
        stems = set(claims.content_stems(_without(answer, self.answer.values)))
        rest = _without(gold, self.keys)
        beyond = set(claims.content_stems(rest)) - self.asked_stems
        share = len(beyond - stems) / max(1, len(beyond) + len(self.keys) * (not missing))
        if not beyond and not self.keys:  # "A-", "all of us"
            share = float(gold.lower() not in answer.lower())
        listed, before, after, contrast = ([], [], [], []) if missing else self._others()
        return [
            float(bool(missing)),
            float(bool(missing) and len(missing) == len(self.needed)),
            len(details) / max(1, len(self.keys)) * (not missing),
            float(bool(listed)),
            float(bool(before)),
            float(bool(after)),
            float(bool(contrast)),
            float(self._has_choice(beyond)),
            self._adds_items(beyond),
            float(self.is_yes_no and self._is_contrary()),
            share * self.is_text,
            share * (not self.is_text and not self.is_yes_no and not missing),
            min(_changed(gold, each, self.asked_stems) for each in (answer, self.plain)),
            float(self.is_text and self._lacks_item(stems)),
            (1 - share) * self._is_reversed(rest, stems),
            float(self._is_swapped()),
        ]

    # ---- Values and names.

    def _states(self, key: Part) -> bool:
        if isinstance(key, claims.Value):
            same = any(claims.same_value(key, other, self.near) for other in self.answer.values)
            return same or bool(_spelled(key, self.answer.text))
        given = [other for other in self.answer.names if claims.same_name(key.words, other.words)]
        if given:
            return not all(claims.beside(self.answer.text, other) for other in given)
        words = set(re.findall(r"[\w-]+", self.answer.text.lower()))
        return not self.answer.negated and words.issuperset(key.words)

    def _others(self) -> tuple[list[Part], ...]:
        """Return values and names outside brackets that neither gold nor question has: those that
        are listed beside one that the gold has, and those elsewhere before and behind it."""
        text, kinds = self.answer.text, {value.kind for value in self.gold.values}
        known = [*self.gold.values, *self.gold.denied, *self.free]
        spans = [code.span() for value in self.gold.values if (code := _spelled(value, text))]
        spans += [match.span() for match in _BRACKETS.finditer(text)]
        hits: list[Part] = []
        others: list[Part] = []
        for value in self.answer.values:
            if any(claims.compatible(other, value, self.near) for other in known):
                hits.append(value)
            elif value.kind in kinds and not (
                value.kind == "code" and any(value.key[0] in str(each.key[0]) for each in known)
            ):
                others.append(value)
        words = set(re.findall(r"\w+", f"{self.gold.text} {self.asking.text}".lower()))
        for name in self.answer.names if any(isinstance(k, claims.Name) for k in self.keys) else ():
            if text.startswith("'s ", name.end):
                continue
            if set(name.words) <= words or any(
                claims.same_name(gold.words, name.words) for gold in self.gold.names
            ):
                hits.append(name)
            elif not _opens_sentence(name, text):
                others.append(name)
        others = [each for each in others if not any(a <= each.start < b for a, b in spans)]
        listed: list[Part] = []
        before: list[Part] = []
        after: list[Part] = []
        contrast: list[Part] = []
        first = min((hit.start for hit in hits), default=0)
        for each in others:
            if self.is_yes_no or any(not _between(text, hit, each) - self.asked_stems for hit in hits):
                listed.append(each)
            elif each.start < first:
                before.append(each)
            elif _CONTRAST.search(text[first : each.start]):
                contrast.append(each)
            else:
                after.append(each)
        return listed, before, after, contrast

    def _has_choice(self, beyond: set[str]) -> bool:
        """Return whether "or" joins something the gold says with something else."""
        text = self.plain
        if _OR.search(self.gold.text):
            return False
        wanted = beyond | set(claims.content_stems(self.gold.text)) - self.asked_stems
        wanted |= set(claims.content_stems(self.gold.text)) if claims.is_choice(self.asking.text) else set()
        for match in _OR.finditer(text):
            before = re.split(r"[;:]|\.(?= |$)", text[: match.start()])[-1].split()[-4:]
            after = re.split(r"[;:]|\.(?= |$)", text[match.end() :])[0].split()[:4]
            if wanted & set(claims.content_stems(" ".join([*before, *after]))):
                return True
        return False

    def _adds_items(self, beyond: set[str]) -> float:
        """Return whether the answer lists what the gold has beside items that it has not."""
        text = self.plain
        known = self.asked_stems | set(claims.content_stems(self.gold.text))
        own = foreign = 0
        for item in _PARTS.split(text):
            stems = set(claims.content_stems(item))
            is_bare = len(stems) == len([w for w in item.split() if w.lower() not in _ARTICLES])
            own += bool(stems & beyond)
            foreign += bool(stems) and is_bare and not stems & known and not re.search(r"\d", item)
        return float(own > 0 and foreign > 0)

    # ---- Yes or no, and words.

    def _is_contrary(self) -> bool:
        """Return whether the answer lacks the gold's yes or no, or takes back its yes."""
        gold, answer = self.gold.text, self.answer.text
        wanted, given = claims.polarity(gold), claims.polarity(answer)
        if given and self.answer.negated and not self.gold.negated:
            return True
        # Without yes or no, a text affirms what is asked unless it denies it or has an opposite.
        if given is None and _HEDGE.match(answer):
            return True
        if given is None:
            given = self.answer.negated == claims.opposed(self.asking.text, answer)
        if wanted is None:
            wanted = self.gold.negated == claims.opposed(self.asking.text, gold)
        return given != wanted

    def _is_reversed(self, gold: str, stems: set[str]) -> bool:
        """Return whether the answer denies what `gold` affirms, or has an opposite of its words.

        "Not worn" is "unworn": a denial and an opposite together cancel out.
        """
        answer = self.answer.text
        if not self.is_text:
            return claims.opposed(f"{self.asking.text} {gold}", answer)
        beyond = stems.intersection(claims.content_stems(gold)) - self.asked_stems
        return (_denies(gold, beyond) != _denies(answer, beyond)) != claims.opposed(gold, answer)

    def _lacks_item(self, given: set[str]) -> bool:
        parts = map(claims.content_stems, _PARTS.split(self.gold.text))
        items = [set(stems) for stems in parts if stems]
        is_new = bool(given - self.asked_stems.union(*items))
        return not is_new and len(items) > 1 and not all(item & given for item in items)

    def _is_swapped(self) -> bool:
        """Return whether two parts of the answer have exchanged what the gold says of them."""
        parts, answered = (
            [_tokens(part) for part in _PARTS.split(text)]
            for text in (self.gold.text, self.answer.text)
        )
        counts = Counter(token for part in parts for token in part)
        own = [{token for token in part if counts[token] == 1} for part in parts]
        mixed = [frozenset(n for n, each in enumerate(own) if part & each) for part in answered]
        twice = {both for both, times in Counter(mixed).items() if len(both) > 1 and times > 1}
        turned = {triple[::-1] for triple in _triples(self.gold.text)}
        return bool(twice) or bool(_triples(self.answer.text) & turned)


def _between(text: str, one: Part, other: Part) -> set[str]:
    """Return the content and prepositions between two parts of a text."""
    first, last = sorted((one, other), key=lambda part: part.start)
    between = text[first.end : last.start]
    return {*claims.content_stems(between), *_PREPOSITION.findall(between)}


def _without(text: str, parts: Sequence[Part]) -> str:
    for part in sorted(parts, key=lambda part: -part.start):
        text = f"{text[: part.start]} {text[part.end :]}"
    return text


def _denies(text: str, beyond: set[str]) -> bool:
    """Return whether the parts of the text with any of the stems `beyond` deny something."""
    parts = [part for part in _PARTS.split(text) if beyond & set(claims.content_stems(part))]
    return bool(claims.denials(" ".join(parts)))


def _spelled(value: claims.Value, text: str) -> re.Match[str] | None:
    """Return where a code, phone number or address stands, whatever signs are between."""
    if value.kind not in ("code", "phone", "web"):
        return None
    key = re.sub(r"^(?:HTTPS?)?(?:WWW)?", "", str(value.key[0]))
    pattern = r"[\W_]{0,3}".join(map(re.escape, key[:200]))
    return re.search(rf"(?<![^\W_])(?:00|0|v)?{pattern}(?![^\W_])", text, re.IGNORECASE)


def _changed(gold: str, answer: str, asked_stems: set[str]) -> float:
    """Return how much of the gold the answer copies, if it changes or puts in a word inside it."""
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
    """Return three different words in a row, stemmed, without articles and titles."""
    triples: set[tuple[str, ...]] = set()
    for part in _PARTS.split(text.lower()):
        words = [word for word in _TOKEN.findall(part) if word not in _BETWEEN]
        stems = [" ".join(claims.content_stems(word)) or word for word in words]
        triples.update(zip(stems, stems[1:], stems[2:], strict=False))
    return {triple for triple in triples if triple[0] != triple[2]}


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
    """Return whether `mails` state what `answer`, which is no abstention, states."""
    asking, given = claims.read_claims(question), claims.read_claims(answer)
    read = [_read(mail) for mail in mails]
    kinds, known = claims.asked(asking.text), _plain_words(asking.text)
    is_count = "number" in kinds and "money" not in kinds
    stated = False
    for value in given.values:
        is_counted = is_count and value.kind == "number"
        if is_counted or any(_covers(other, value, None) for other in asking.values):
            continue
        shown, stated = given.text[value.start : value.end], True
        if not any(_states(mail, value, shown) for mail in read):
            return Grounding(False, f"no mail read has the {value.kind} {shown!r}")
    for name in given.names:
        words = _plain_words(*name.words)
        if words <= known or _opens_sentence(name, given.text):
            continue
        stated = True
        if not any(
            words <= mail.words | known
            or any(claims.same_name(name.words, other.words) for other in mail.claims.names)
            for mail in read
        ):
            return Grounding(False, f"no mail read has the name {' '.join(name.words)!r}")
    new = set(claims.content_stems(given.text)) - set(claims.content_stems(asking.text))
    if stated or not new or (is_count and given.values):
        return Grounding(stated or None, "")
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
    for each in [] if day is None else list(_days(values, words, day)):
        values.append(claims.Value("date", (each.year, each.month, each.day, None), 0, 0))
        values.append(claims.Value("weekday", (each.weekday(),), 0, 0))
    return _Read(stated, values, words, day)


def _days(values: Sequence[claims.Value], words: frozenset[str], day: dt.date) -> Iterator[dt.date]:
    """Yield a mail's day, and those that "tomorrow", "Friday" or "the 16th" can be in it."""
    yield day
    yield from (day + dt.timedelta(ahead) for word, ahead in _DAYS_FROM.items() if word in words)
    weekdays = {value.key[0] for value in values if value.kind == "weekday"}
    bare = {value.key[2] for value in values if value.kind == "date" and not any(value.key[:2])}
    for ahead in range(31):
        other = day + dt.timedelta(ahead)
        if other.day in bare or (ahead < 7 * WEEKS_AHEAD and other.weekday() in weekdays):
            yield other


def _states(mail: _Read, value: claims.Value, shown: str) -> bool:
    """Return whether the mail has the value, or its words where only context tells its kind."""
    if any(_covers(other, value, mail.day) for other in mail.values):
        return True
    words = rf"(?<![\w.,:/$-]){re.escape(shown)}(?![\w%]|[.,:/-]\w)"
    return bool(re.search(words, mail.claims.text, re.IGNORECASE))


def _covers(stated: claims.Value, given: claims.Value, day: dt.date | None) -> bool:
    """Return whether `stated`, in a mail of `day`, says all that `given` says."""
    one, other = stated.key, given.key
    if not stated.kind == given.kind == "date":
        return claims.same_value(given, stated)
    # The mail's date tells a year that it leaves out.
    if claims.conflict(one, other, day if one[0] is None else None):
        return False
    is_whole = all(b is None or a is not None for a, b in zip(one[1:], other[1:], strict=True))
    return bool(one[1] and one[2]) or is_whole


def _opens_sentence(name: claims.Name, text: str) -> bool:
    """Return whether the name is one word that opens a sentence of `text` and goes on."""
    before, after = text[: name.start].rstrip(), text[name.end : name.end + 5]
    opens = not before or before[-1] in ".!?:;"
    return len(name.words) == 1 and opens and bool(re.match(r":| (?!and\b|or\b)[a-z]", after))


def _plain_words(*texts: str) -> frozenset[str]:
    """Return the words of the texts in lower case, without accents: addresses have none."""
    plain = unicodedata.normalize("NFKD", " ".join(texts).lower())
    return frozenset(re.findall(r"\w+", re.sub(r"[\u0300-\u036f]", "", plain)))
