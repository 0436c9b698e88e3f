"""Whether an answer is right, given the gold answer, without a model.

`OfflineJudge` decides in this order:

1. On an unanswerable question (`answerable` false, or a gold answer that abstains) abstention is
   correct and any answer is wrong; otherwise abstention is not correct. The gold answer itself,
   word for word, is correct.
2. Vetoes, because no score may outweigh them: an answer that speaks of its grading or gives orders
   to its reader, one with a value that contradicts the gold's values of its kind, one that lists
   candidates or offers an alternative to a value or a name. Values that the answer takes back
   ("not May 3", "moved from ... to") are free, and so are values of other kinds.
3. A score between 0 and 1 from few features (`Features`) of what the question asks for: what is
   stated of the gold's values, names and words, and what stands against it. From 0.5 the answer
   is correct.

The weights are a logistic regression with a ridge penalty, fitted by `python -m
tests.evals.fit_judge` on the tuning half of the labelled pairs and on the pairs of the judge's own
tests; docs/evaluation.md has its agreement with pairs that it was not fitted on.

`grounded_in` says whether an answer stands in the mails that were read.
"""

import datetime as dt
import math
import re
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from art_e.abstention import is_abstention
from art_e.errors import UserError
from art_e.inbox.mail import Email
from art_e.question import Question
from art_e.tools import MAX_BODY_CHARS
from evals.judges.names import (
    Name,
    asks_yes_no,
    content_stems,
    find_names,
    names_match,
    negated,
    negations,
    opposed,
    polarity,
    same_first,
    says_both,
    states_name,
)
from evals.judges.values import (
    Amount,
    Kind,
    PartialDate,
    TimeOfDay,
    Value,
    clean,
    compatible,
    conflict,
    find_values,
    same_value,
)
from evals.verdict import Verdict

# ---- What a question asks for, and what a text claims.

Wanted = Kind | str  # a kind of value, or "name"


class Asked(NamedTuple):
    """The kinds of value that a question asks for (may be none), and whether for text too."""

    kinds: frozenset[Wanted]
    text: bool


@dataclass(frozen=True, slots=True)
class Claims:
    """A text taken apart, without the values and names that it takes back."""

    text: str
    values: tuple[Value, ...]
    denied: tuple[Value, ...]
    names: tuple[Name, ...]


_ASKED: tuple[tuple[re.Pattern[str], tuple[Wanted, ...]], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), kinds)
    for pattern, kinds in (
        (r"\bwhen\b|\b(?:what|which) (?:\w+ ){0,2}(?:dates?|days?|month|year|deadline)\b"
         r"|\b(?:date|deadline|due date|dates) (?:of|for|and)\b", ("date", "time")),
        (r"\bwhat time\b|\btime (?:of|is|was|does|do|will)\b|\band time\b", ("time",)),
        (r"\bwho(?:m|se)?\b|\bwhich (?:person|employee|colleague)\b", ("name", "email")),
        (r"\bhow much\b|\b(?:costs?|price|salary|bonus|fee|budget|amount|rent|rate|total)\b"
         r"(?! (?:series|indices|index|center))", ("money", "percent", "measure", "number")),
        (r"\bwhat percent|\bpercentage\b", ("percent",)),
        (r"\bhow many\b|\bnumber of\b", ("number", "duration", "measure")),
        (r"\bhow long\b|\bduration\b", ("duration",)),
        (r"\bphone\b|\bfax\b|\bextension\b|\b(?:cell|telephone) number\b|\bcontact info",
         ("phone",)),
        (r"\bemail address\b|\be-mail address\b|\bcontact info", ("email",)),
        (r"\bwhat (?:room|floor)\b|\bwhich (?:room|floor)\b|\bwhere\b", ("code",)),
    )
)  # fmt: skip
_TEXT_TOO = re.compile(
    r"\b(?:and|or) (?:(?:about|at|for|from|in|of|on|to|with) )?(?:why|where|how|"
    r"what|which|who)\b|\bwhere and\b|^\W*why\b",
    re.IGNORECASE,
)
_CHOICE = re.compile(r"\bor\b", re.IGNORECASE)
_DENIAL_ENDS = re.compile(
    r"[;:!?(),]|\.(?= |$)|\b(?:but|until|instead|although|though|because|so|now)\b", re.IGNORECASE
)
_TAKEN_BACK = re.compile(
    r"\b(?:instead of|rather than|as opposed to|no longer|originally|previously|formerly|"
    r"initially|at first|before that|until then|used to be|other than|except)\b"
    r"|(?<=[(,]) ?(?:down|up) from\b",
    re.IGNORECASE,
)
# Beside the answer: "moved from ... to", "the old one, 9020, ...", "$980, but in the end $1,140".
_SET_ASIDE = re.compile(
    r"\b(?:moved|changed|rescheduled|postponed|pushed|shifted|delayed|extended|brought|raised|"
    r"lowered|increased|decreased|reduced|revised|corrected|updated)\b[^.;]{0,60}?"
    r"(?P<old>\bfrom [^.;]{1,60}?)(?= to\b)"
    r"|(?<=[;,.(] )(?P<former>(?:the|its|his|her|our|your|their) (?:old|former|previous) \w+"
    r"(?:,| was| is|:)? [^,.;()]{1,40})"
    r"|\bafter (?P<first>(?:first|initially|originally) \w+ing\b(?:[^.;,]|,(?=\d)){1,60})"
    r"|(?P<early>[^.;]{1,80}?),? but\b[^.;]{0,80}?"
    r"\b(?:in the end|finally|eventually|ended up)\b"
    r"|\b(?:of|among) (?P<choice>(?:all |the )(?:\w+ ){1,3}\([^)]{1,200}\))",
    re.IGNORECASE,
)
# What follows is circumstance, not the answer ("by May 4, after the reports of April 30").
_ASIDE = re.compile(
    r"\(|(?:,|;| -) ?(?:after|before|because|since|once|if|as|which|who|where|although|noting|with|"
    r"following|depending|while)\b|\bbecause\b",
    re.IGNORECASE,
)


def asked(question: str) -> Asked:
    """What `question` asks for; no kinds where that can't be told from its words."""
    kinds = {kind for pattern, wanted in _ASKED if pattern.search(question) for kind in wanted}
    return Asked(frozenset(kinds), bool(_TEXT_TOO.search(question)))


def is_choice(question: str) -> bool:
    """True if the question names the alternatives itself ("May 3 or May 4?")."""
    return bool(_CHOICE.search(question))


# A question and its gold answer are read for each of their episodes.
@lru_cache(maxsize=4_096)
def read_claims(text: str) -> Claims:
    """The claims of `text`, which is cleaned (and cut) first."""
    text = clean(text)
    spans = [match.span(match.lastgroup or 0) for match in _SET_ASIDE.finditer(text)]
    starts = [(start, start) for start in negations(text)]
    starts += [match.span() for match in _TAKEN_BACK.finditer(text)]
    for start, read in starts:
        end = _DENIAL_ENDS.search(text, read)
        spans.append((start, end.start() if end else len(text)))

    def is_denied(part: Value | Name) -> bool:
        return any(first <= part.start < last for first, last in spans)

    values = find_values(text)
    names = [
        name
        for name in find_names(text)
        if not any(value.start < name.end and name.start < value.end for value in values)
    ]
    for value in values:
        # The words before the "@" often are the owner's name.
        words = tuple(re.findall(r"[a-z]+", str(value.key).partition("@")[0]))
        if value.kind == "email" and len(words) > 1:
            names.append(Name(words, value.start, value.end, "@", False))
    return Claims(
        text,
        tuple(value for value in values if not is_denied(value)),
        tuple(value for value in values if is_denied(value)),
        tuple(name for name in names if not is_denied(name)),
    )


def _key_values(gold: Claims, asking: Claims, kinds: frozenset[Wanted]) -> list[Value]:
    """The values of `gold` that an answer must state.

    Those of the kinds asked for, before any aside, if there are any; otherwise all that
    the question does not have. The end of a time range is never needed.
    """
    needed = [v for v in gold.values if not (v.kind == "time" and getattr(v.key, "ends", False))]
    focused = [value for value in needed if value.kind in kinds]
    if not focused:
        if "name" in kinds and _key_names(gold, "", kinds):
            return []
        known = [] if is_choice(asking.text) else asking.values
        return [v for v in needed if all((v.kind, v.key) != (k.kind, k.key) for k in known)]
    # A price is a number only where the gold has none with a unit.
    priced = [value for value in focused if value.kind != "number"]
    focused = priced if priced and "money" in kinds else focused
    aside = _ASIDE.search(gold.text, focused[0].end)
    return [value for value in focused if aside is None or value.start < aside.start()]


def _key_names(gold: Claims, question: str, kinds: frozenset[Wanted]) -> list[Name]:
    """The names of `gold` that an answer must state.

    For a "who" question its subject if the next word is the question's verb ("Ann recommended
    Bob" for "Who recommended ..."), otherwise every name, before any aside, that the question
    does not have. For other questions: only where the gold is nothing but names.
    """
    asked_words = set(re.findall(r"\w+", question.lower()))
    names = [
        name
        for name in gold.names
        if not name.possessive and name.slot != "@" and not set(name.words) <= asked_words
    ]
    if not names:
        return []
    if "name" not in kinds:
        return names if not content_stems(_without(gold.text, names)) else []
    names = [name for name in names if name.slot not in ("in", "at", "near", "of")] or names
    verb = re.match(r" (\w+)", gold.text[names[0].end :])
    if verb and set(content_stems(verb[1])) & set(content_stems(question)):
        return names[:1]
    aside = _ASIDE.search(gold.text, names[0].end)
    return [name for name in names if aside is None or name.start < aside.start()]


def _without(text: str, parts: Sequence[Value | Name]) -> str:
    for part in sorted(parts, key=lambda part: -part.start):
        text = f"{text[: part.start]} {text[part.end :]}"
    return text


# ---- The judge.

MAX_VALUES = 40  # an answer with so many more values than its gold is a list of candidates

_YES_NO_GOLD = re.compile(r"\W*(?:yes|no)\b *(?:$|[,.;:!-])", re.IGNORECASE)
_WRAPPING = re.compile(
    r"^[\s\"'*_]*(?:(?:final )?answer ?: ?)?[\s\"'*_]*|[\s\"'*_]+$", re.IGNORECASE
)
_FAMILIES = (
    ("date", "time"),
    ("money", "percent", "duration", "measure", "number"),
    ("name", "email"),
)
# What must not follow a stated value: "or" and another value, or "or" and something vague.
_OR = re.compile(
    r"[ ,;()\"']{0,3}(?:or|and/or|alternatively|maybe|perhaps|possibly|otherwise|if not|/|vs\.?|"
    r"versus)(?!\w)(?: (?:on|at|by|in|even|maybe|perhaps|possibly|to|for|it|is|was|from|around|"
    r"about|the|else|\w{2,6}day)\b){0,4} ?,? ?",
    re.IGNORECASE,
)
_VAGUE = re.compile(
    r"(?:later|earlier|another|others?|some(?:one|body|thing)|thereabouts|sooner|any\w*|next|"
    r"(?:day|week|month|one|following|previous) (?:after|before|day|week|month|one))\b",
    re.IGNORECASE,
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
    """The verdict of `judge` by rule 1, which all judges share; None where it does not settle it.

    Raises UserError for a question without a gold answer.
    """
    gold, abstained = question.answer, is_abstention(answer)
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
    """A judge without a model; deterministic. It shares rule 1 and grounding with the others."""

    name: str

    async def judge(
        self, question: Question, answer: str | None, mails: Sequence[Email] = ()
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
        """The verdict on an answer that rule 1 does not settle."""


class OfflineJudge(RuleJudge):
    """The judge whose rules stand at the top of this module."""

    name = "offline/4"

    def _compared(self, question: Question, gold: str, answer: str) -> Verdict:
        compared = Compared(question, gold, answer)
        fault = compared.veto()
        if fault:
            return Verdict(False, None, self.name, fault)
        features = compared.features()
        sure = score(features)
        worst = min(features._fields, key=lambda name: _part(name, features))
        why = f"score {sure:.2f}" + (f", for {worst}" if _part(worst, features) < 0 else "")
        return Verdict(sure >= 0.5, None, self.name, why)


class Features(NamedTuple):
    """What the score is made of; each is between 0 and 1, and says something against the answer,
    but for `subset`."""

    values: float
    names: float
    text: float
    beside: float
    new: float
    subset: float
    items: float
    replaced: float
    changed: float
    swapped: float
    reversed: float
    polarity: float
    alternative: float
    other_name: float


BIAS = 3.98
WEIGHTS = Features(
    values=-6.67,
    names=-7.90,
    text=-6.92,
    beside=-5.22,
    new=-0.32,
    subset=1.58,
    items=-5.92,
    replaced=-4.11,
    changed=-1.84,
    swapped=-7.86,
    reversed=-6.81,
    polarity=-8.59,
    alternative=-6.07,
    other_name=-8.08,
)


def score(features: Features) -> float:
    """The chance that an answer with these features is right."""
    total = BIAS + sum(weight * each for weight, each in zip(WEIGHTS, features, strict=True))
    return 1 / (1 + math.exp(-total))


def _part(name: str, features: Features) -> float:
    return float(getattr(WEIGHTS, name) * getattr(features, name))


_ALTERNATIVE = re.compile(
    r"\b(?<!more )(?<!sooner )(?<!whether )or\b(?! (?:so|not)\b)", re.IGNORECASE
)
_HEDGE = re.compile(r"\bunless\b.{0,60}\bthen\b|\bor else\b", re.IGNORECASE)
_ITEMS = re.compile(r"[,;/]|\b(?:and|or)\b|&|\.(?= |$)|(?:^| )[-*] |\b\d{1,2}[.)] ", re.IGNORECASE)
_PARTS = re.compile(r"[,;]|\.(?= |$)|\b(?:and|plus|but|while)\b(?! \d)", re.IGNORECASE)
_SENTENCE = re.compile(r"[.;!?,]+(?: |$)")
_ASKS_REASON = re.compile(r"\b(?:why|reason|cause)\b", re.IGNORECASE)
_TOKEN = re.compile(r"\w+(?:[-'.:&]\w+)*")
_ACRONYM = re.compile(r"(?<![\w-])[A-Z]{2,5}(?![\w-])")
_NEIGHBOURS = re.compile(r"(?=(?<![\w-])([a-z]{3,30}) ([a-z]{3,30})(?![\w-]))")
_VAGUE_WORDS = frozenset("another other current new old good better nice great big large".split())
_AUXILIARY = re.compile(
    r"\b(?:did|do|does|is|are|was|were|has|have|had|will|would|can|could|should|may|won't)\b|n't\b",
    re.IGNORECASE,
)
_AFTER_SUBJECT = re.compile(
    r" (?:[a-z]+ed|(?!(?:this|his|its|as|us)\b)[a-z]+s|was|were|are|will|had|have|would|should|"
    r"can|could|may|might|did|said|told|sent|wrote|gave|made|took|went|got|came|knew|left|and|or|"
    r"&)\b| ?[,;/.()\"']|$"
)
LIST_ITEM = 4  # stems in an item of a list, at most; longer ones are clauses
MAX_TIMES, MAX_STEMS = 6, 30  # an answer has at most MAX_TIMES x the gold's stems + MAX_STEMS
SHORT_GOLD = 6  # stems; in longer golds an "or" of the answer is natural
SAME_START = 5  # letters that words of one family share: drain and drainage


class Compared:
    """An answer beside the gold answer."""

    def __init__(self, question: Question, gold: str, answer: str) -> None:
        self.asking, self.gold = read_claims(question.question), read_claims(gold)
        self.answer, self.near = read_claims(_unwrapped(answer)), question.query_date
        self.wanted = asked(self.asking.text)
        self.is_choice = is_choice(self.asking.text)
        self.values = _key_values(self.gold, self.asking, self.wanted.kinds)
        self.names = _key_names(self.gold, self.asking.text, self.wanted.kinds)

    # What no score may outweigh.

    def veto(self) -> str | None:
        """Why the answer is wrong whatever else it states, in one line; None if nothing is."""
        words = appeal(self.answer.text)
        if words and words.lower() not in f"{self.gold.text} {self.asking.text}".lower():
            return f"addresses the judge: {words!r}"
        if (hedge := _HEDGE.search(self.answer.text)) and not _HEDGE.search(self.gold.text):
            return f"hedges: {hedge[0]!r}"
        known = [*self.gold.values, *self.gold.denied]
        known += [] if self.is_choice else self.asking.values
        kinds = {value.kind for value in self.gold.values}
        candidates = [value for value in self.answer.values if value.kind in kinds]
        if len(candidates) > len(self.gold.values) + MAX_VALUES:
            return f"lists {len(candidates)} values"
        for value in candidates:
            shown = self.answer.text[value.start : value.end]
            if not any(compatible(other, value, self.near) for other in known):
                return f"has another {value.kind}: {shown!r}"
            has_or = is_choice(shown) or self._or_follows(value.end, value.kind)
            if has_or and not is_choice(self.gold.text):
                return f"offers an alternative to {shown!r}"
        for name in self.answer.names if self.names else ():
            if self._or_follows(name.end, "name") and not is_choice(self.gold.text):
                return f"offers an alternative to {' '.join(name.words)!r}"
        return None

    def _or_follows(self, end: int, kind: str) -> bool:
        """True if "or" follows at `end` with another value of the kind, or something vague."""
        match = _OR.match(self.answer.text, end)
        if match is None:
            return False
        family = next((kinds for kinds in _FAMILIES if kind in kinds), (kind,))
        starts = {value.start for value in self.answer.values if value.kind in family}
        if "name" in family:
            starts |= {name.start for name in self.answer.names}
        return match.end() in starts or bool(_VAGUE.match(self.answer.text, match.end()))

    # What the score is made of.

    def features(self) -> Features:
        """The features of an answer that no veto meets."""
        gold, answer, asking = self.gold.text, self.answer.text, self.asking.text
        found = dict.fromkeys(Features._fields, 0.0)
        if (asks_yes_no(asking) and not self.is_choice) or _YES_NO_GOLD.match(gold):
            return Features(**{**found, "polarity": self._polarity()})
        values = self.values
        if "name" in self.wanted.kinds and any(value.kind == "email" for value in values):
            values = []
            found["names"] = self._contact()
        else:
            found["values"] = self._missing_values()
            found["names"], found["other_name"] = self._names()
        found["swapped"] = float(_is_swapped(self.gold, self.answer))
        keyed = bool(self.names or any(value.kind in self.wanted.kinds for value in values))
        if self.wanted.text or not keyed:
            self._text(found)
        return Features(**found)

    def _missing_values(self) -> float:
        lacking = [v for v in self.values if not self._stated(v, self.answer.values)]
        denied = () if self.gold.values else self.gold.denied
        lacking += [v for v in denied if not self._stated(v, self.answer.denied)]
        return float(bool(lacking))

    def _stated(self, value: Value, values: Sequence[Value]) -> bool:
        return any(same_value(value, other, self.near) for other in values)

    def _polarity(self) -> float:
        """1 if the answer has not the gold's yes or no, or has both."""
        gold, answer = self.gold.text, self.answer.text
        wanted, given = polarity(gold), polarity(answer)
        if wanted is None:
            wanted = self._affirms(gold)
        if says_both(answer) or (given and negated(answer) and not negated(gold)):
            return 1.0
        if given is None:
            known = set(content_stems(f"{gold} {self.asking.text}"))
            stems = set(content_stems(answer))
            hits = len(known & stems)
            says = _AUXILIARY.search(answer) or opposed(self.asking.text, answer)
            hits += opposed(self.asking.text, answer) is not None
            if 2 * hits < len(stems) or (hits < 2 and not says):
                return 1.0
            given = self._affirms(answer)
        return float(given != wanted)

    def _affirms(self, text: str) -> bool:
        """True if a text without yes or no says what the question asks, and not its opposite."""
        return negated(text) == bool(opposed(self.asking.text, text))

    def _contact(self) -> float:
        """For "who": the gold's address or its name will do, and the address's owner by name."""
        given = list(self.answer.names)
        keys = {value.key for value in self.answer.values}
        for value in self.values:
            owner = tuple(re.findall(r"[a-z]+", str(value.key).partition("@")[0]))
            if value.key in keys:
                return 0.0
            if len(owner) > 1 and states_name(owner, self.answer.text, given):
                return 0.0
        named = [states_name(name.words, self.answer.text, given) for name in self.names]
        return float(not (named and all(named)))

    def _names(self) -> tuple[float, float]:
        """Whether a name is missing, and whether another stands where it should."""
        if not self.names:
            return 0.0, 0.0
        text, given = self.answer.text, list(self.answer.names)
        slots, end = {"", "@"}, 0
        lower = set(re.findall(r"[\w-]+", text.lower()))
        for name in self.names:
            found = states_name(name.words, text, given)
            is_thing = not negated(text) and all(_is_short(word, lower) for word in name.words)
            if found is None and not is_thing and not _first_name(name, given):
                return 1.0, 0.0
            slots.add(found.slot if found else "")
            end = max(end, found.end if found else 0)
        known = f"{self.gold.text} {'' if self.is_choice else self.asking.text}"
        words = set(re.findall(r"\w+", known.lower()))
        aside = _ASIDE.search(text, end)
        for name in given:
            if aside is not None and name.start > aside.start() > 0:
                continue
            golds = (*self.gold.names, *self.names)
            is_known = any(names_match(other.words, name.words) for other in golds)
            is_part = set(name.words) <= words or name.possessive or _is_word(name, text)
            if name.slot in slots and not is_known and not is_part:
                return 0.0, 1.0
        return 0.0, 0.0

    def _text(self, found: dict[str, float]) -> None:
        """Adds the features of the text beside the values and names that are needed."""
        parts = [*self.values, *self.names, *([] if self.gold.values else self.gold.denied)]
        gold, answer = _without(self.gold.text, parts), self.answer.text
        aside = None if _ASKS_REASON.search(self.asking.text) else _ASIDE.search(gold)
        if aside and content_stems(gold[: aside.start()]):
            gold = gold[: aside.start()]
        asked_stems, gold_stems = set(content_stems(self.asking.text)), content_stems(gold)
        known = {*content_stems(self.gold.text), *asked_stems}
        stems = set(content_stems(_without(answer, self.answer.values) if parts else answer))
        new = set(gold_stems) - asked_stems
        beyond = new or set(gold_stems)
        hits = {stem for stem in beyond if _stands(stem, stems)}
        strange = {stem for stem in stems if not _stands(stem, known)}
        lacking = 1 - len(hits) / len(beyond) if beyond else 0.0
        if not beyond and not parts:
            lacking = float(gold.lower() not in answer.lower())  # "A-", "all of us"
        if parts and not self.wanted.text:
            found["beside"] = lacking if strange else 0.0
        else:
            found["text"] = lacking
        found["new"] = len(strange) / max(1, len(stems))
        found["subset"] = float(bool(hits) and not strange)
        found["items"] = self._missing_items(gold, stems, asked_stems, bool(parts))
        rest = _without(answer, self.answer.values)
        found["replaced"] = float(_replaced(gold, rest, known))
        found["changed"] = float(_is_changed(gold_stems, content_stems(rest), known))
        first, second = (
            " ; ".join(part for part in _SENTENCE.split(text) if _any_stands(hits, content_stems(part)))
            for text in (gold, answer)
        )
        # "Not worn" is "unworn": a denial and an opposite together are none.
        denies = negated(first) != negated(second)
        found["reversed"] = float(denies != bool(opposed(gold, answer))) * (1 - lacking)
        is_short = not new or len(beyond) <= SHORT_GOLD
        offers = bool(_ALTERNATIVE.search(answer)) and not _ALTERNATIVE.search(gold)
        found["alternative"] = float(is_short and offers)
        if len(stems) > MAX_TIMES * len(gold_stems) + MAX_STEMS:
            found["items"] = 1.0

    def _missing_items(
        self, gold: str, given: set[str], asked_stems: set[str], has_values: bool
    ) -> float:
        """1 if an item of a gold list is missing, or if the answer lists where the gold does not."""
        items = [item for item in _ITEMS.split(gold) if not negated(item)]
        wanted = [stems for item in items if (stems := set(content_stems(item)))]
        if len(wanted) >= 2:
            if any(len(item) > LIST_ITEM for item in wanted):
                return 0.0
            for item in wanted:
                hits = sum(_stands(stem, given) for stem in item)
                missing = 2 * hits < len(item) and not item <= asked_stems
                if missing and (len(item) > 1 or not has_values):
                    return 1.0
        known = asked_stems.union(*wanted)
        items = [set(content_stems(item)) for item in _ITEMS.split(self.answer.text)]
        items = [item for item in items if item]
        strange = [item for item in items if len(item) <= 3 and not item & known]
        return float(not has_values and len(items) >= 3 and len(strange) >= 2)


def _first_name(gold: Name, names: Sequence[Name]) -> bool:
    """True if one of `names` is only the first name of `gold`, which tells who it is."""
    return len(gold.words) > 1 and any(
        len(name.words) == 1 and len(name.words[0]) > 2 and same_first(gold.words[0], name.words[0])
        for name in names
    )


def _is_word(name: Name, text: str) -> bool:
    """True if the name may be only a sentence's first word: no verb or comma follows it."""
    return _opens(name, text) and not _AFTER_SUBJECT.match(text, name.end)


def _stands(stem: str, stems: set[str]) -> bool:
    """True if the stem, or another of its family (drain, drainage), is among `stems`."""
    if stem in stems:
        return True
    if len(stem) < SAME_START or not stem.isalpha():
        return False
    return any(_akin(stem, other) for other in stems)


def _is_short(word: str, words: set[str]) -> bool:
    """True if the word is among `words`, whole or cut short ("chem")."""
    return word in words or any(len(each) > 3 and word.startswith(each) for each in words)


def _any_stands(stems: set[str], among: Sequence[str]) -> bool:
    return any(_stands(stem, set(among)) for stem in stems)


def _akin(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    start = next((at for at, (a, b) in enumerate(zip(one, other)) if a != b), len(short))
    return start >= SAME_START and start * 5 >= len(long) * 3 and long.isalpha()


def _is_swapped(gold: Claims, answer: Claims) -> bool:
    """True if the answer says of one thing what the gold says of another.

    Two parts have exchanged what the gold says of them, or subject and object have changed places
    around one verb.
    """
    first, second = _keyed(gold), _keyed(answer)
    parts = [tokens for part in _PARTS.split(first) if (tokens := _tokens(part))]
    counts = Counter(token for part in parts for token in part)
    own = [{token for token in part if counts[token] == 1} for part in parts]
    joined = [
        sum(bool(tokens & part) for part in own) >= 2
        for tokens in map(_tokens, _PARTS.split(second))
    ]
    if sum(joined) >= 2:
        return True
    given = set(_triples(second))
    return any((last, verb, first) in given for first, verb, last in _triples(first))


def _keyed(claims: Claims) -> str:
    """The text with its amounts and times in one spelling."""
    text = claims.text
    for value in reversed(claims.values):
        key = value.key
        if isinstance(key, Amount):
            shown = f"{key.number:f}"
        elif isinstance(key, TimeOfDay):
            shown = f"{key.minutes % 720}"
        else:
            continue
        text = f"{text[: value.start]} {shown}{value.kind} {text[value.end :]}"
    return text


def _tokens(text: str) -> set[str]:
    return {token for token in _TOKEN.findall(text.lower()) if content_stems(token)}


def _triples(text: str) -> Iterator[tuple[str, str, str]]:
    """Three words in a row, stemmed, with a content word (no number) in the middle."""
    for sentence in _PARTS.split(text.lower()):
        words = [word for word in _TOKEN.findall(sentence) if word not in ("a", "an", "the")]
        stems = [" ".join(content_stems(word)) or word for word in words]
        for first, verb, last in zip(stems, stems[1:], stems[2:], strict=False):
            if first != last and verb.isalpha() and content_stems(verb):
                yield first, verb, last


def _replaced(gold: str, answer: str, known: set[str]) -> bool:
    """True if another word of the answer stands in the place of one of the gold's.

    "The power button" is not "the menu button", and OPT is not CPT.
    """
    wanted, given = set(_ACRONYM.findall(gold)), set(_ACRONYM.findall(answer))
    lower = answer.lower()
    if {each for each in wanted if each.lower() not in lower} and {
        each for each in given if not _stands(each.lower(), known)
    }:
        return True
    answered = set(content_stems(answer))
    kinds = {noun: word for word, noun in _described(answer) if not _stands(word, known)}
    return any(
        noun in kinds and not _stands(word, answered) and kinds[noun][-2:] != word[-2:]
        for word, noun in _described(gold)
    )


def _is_changed(gold: Sequence[str], answer: Sequence[str], known: set[str]) -> bool:
    """True if the answer has the gold's content stems in their order, but for one of them."""
    if not 1 < len(gold) == len(answer):
        return False
    pairs = zip(gold, answer, strict=True)
    changed = [new for old, new in pairs if old != new and not _akin(old, new)]
    return len(changed) == 1 and changed[0] not in known


def _described(text: str) -> Iterator[tuple[str, str]]:
    """Stems of each two neighbouring content words in lower case, such as "menu button"."""
    for match in _NEIGHBOURS.finditer(text):
        stems = [content_stems(word) for word in match.groups()]
        if all(stems) and not match[1].endswith(("ly", "ed", "ing")) and match[1] not in _VAGUE_WORDS:
            yield stems[0][0], stems[1][0]


# ---- Whether the mails that were read state what an answer states, without a model.

# A mail is read in pieces that overlap, so that a value on an edge is whole in one of them.
PIECE_CHARS, OVERLAP_CHARS = 3_000, 200
WEEKS_AHEAD = 2  # "Friday" in a mail may be the one of the next week

_WORD = re.compile(r"\w+")
_HOW_OFTEN = re.compile(r"\bhow often\b", re.IGNORECASE)
_DAYS_FROM = {"today": 0, "tonight": 0, "tomorrow": 1, "yesterday": -1}


class Grounding(NamedTuple):
    """Whether an answer is grounded (None: can't be told), and in one line why not."""

    grounded: bool | None
    reason: str

    def added_to(self, reason: str) -> str:
        """The reason of a verdict with this one behind it, where there is one."""
        return f"{reason}; {self.reason}" if self.reason else reason


class _Read(NamedTuple):
    """What a mail states: the claims of its pieces, its values, words and date."""

    claims: tuple[Claims, ...]
    values: tuple[Value, ...]
    words: frozenset[str]
    day: dt.date | None


def grounded_in(question: str, answer: str, mails: Sequence[Email]) -> Grounding:
    """Whether `mails` state what `answer`, which is no abstention, states."""
    asking, said = read_claims(question), read_claims(answer)
    read = [_read(mail) for mail in mails]
    counted = "number" in asked(asking.text).kinds or _HOW_OFTEN.search(asking.text) is not None
    values = [
        value
        for value in said.values
        if not (counted and value.kind == "number")
        and not any(_covers(other, value, None) for other in asking.values)
    ]
    known = _words(asking.text)
    names = [
        name
        for name in said.names
        if name.slot != "@" and not _words(*name.words) <= known and not _opens(name, said.text)
    ]
    for value in values:
        shown = said.text[value.start : value.end]
        if not any(_states(mail, value, shown) for mail in read):
            return Grounding(False, f"no mail read has the {value.kind} {shown!r}")
    for name in names:
        if not any(_named(name, mail, known) for mail in read):
            return Grounding(False, f"no mail read has the name {' '.join(name.words)!r}")
    if values or names:
        return Grounding(True, "")
    new = set(content_stems(said.text)) - set(content_stems(asking.text))
    if not new or (counted and said.values):
        return Grounding(None, "")
    stated = {stem for mail in read for each in mail.claims for stem in content_stems(each.text)}
    if len(new & stated) < 0.5 * len(new):
        return Grounding(False, f"the mails read have {len(new & stated)} of {len(new)} new words")
    return Grounding(True, "")


def with_grounding(
    verdict: Verdict, question: Question, answer: str | None, mails: Sequence[Email]
) -> Verdict:
    """The verdict, and whether the answer stands in `mails`; not asked of an abstention."""
    if answer is None or not mails or is_abstention(answer):
        return verdict
    grounding = grounded_in(question.question, answer, mails)
    return replace(verdict, grounded=grounding.grounded, reason=grounding.added_to(verdict.reason))


def _read(mail: Email) -> _Read:
    people = ", ".join(str(each) for each in (mail.sender, *mail.to, *mail.cc, *mail.bcc))
    text = f"{mail.subject}\n{mail.body[:MAX_BODY_CHARS]}\n{people}"
    step = PIECE_CHARS - OVERLAP_CHARS
    pieces = (text[start : start + PIECE_CHARS] for start in range(0, len(text), step))
    claims = tuple(read_claims(piece) for piece in pieces)
    day = None if mail.date is None else mail.date.date()
    # What a mail takes back it still states; which of them holds is not asked here.
    stated = [value for each in claims for value in (*each.values, *each.denied)]
    if day is not None:
        stated += [counted for value in stated for counted in _counted_from(value, day)]
        stated.append(Value("date", PartialDate(day.year, day.month, day.day), 0, 0))
    words = _words(*(each.text for each in claims))
    return _Read(claims, tuple(stated), words, day)


def _counted_from(value: Value, day: dt.date) -> Iterator[Value]:
    """The days that a word such as "tomorrow", "Friday" or "the 16th" can be in a mail of `day`."""
    date = value.key
    if not isinstance(date, PartialDate) or date.month is not None or date.year is not None:
        return
    days: list[dt.date] = []
    if date.relative in _DAYS_FROM:
        days = [day + dt.timedelta(_DAYS_FROM[date.relative])]
    elif date.day is not None or date.weekday is not None:
        ahead = (
            day + dt.timedelta(number) for number in range(31 if date.day else 7 * WEEKS_AHEAD)
        )
        days = [
            each
            for each in ahead
            if date.day in (None, each.day) and date.weekday in (None, each.weekday())
        ]
    for each in days:
        yield replace(value, key=PartialDate(each.year, each.month, each.day))


def _states(mail: _Read, value: Value, shown: str) -> bool:
    """True if the mail has the value, or its very words where only context tells its kind."""
    if any(_covers(other, value, mail.day) for other in mail.values):
        return True
    words = re.compile(rf"(?<![\w.,:/$-]){re.escape(shown)}(?![\w%]|[.,:/-]\w)", re.IGNORECASE)
    return any(words.search(each.text) for each in mail.claims)


def _covers(stated: Value, said: Value, day: dt.date | None) -> bool:
    """True if `stated`, in a mail of `day`, says all that `said` says, and nothing against it."""
    one, other = stated.key, said.key
    if not isinstance(one, PartialDate) or not isinstance(other, PartialDate):
        return same_value(said, stated)
    # The mail's date tells a year that it leaves out; what the answer leaves out may be any.
    near = day if one.year is None else None
    if same_value(said, stated, near):
        return True
    if one.relative or other.relative or conflict(one, other, near):
        return False
    return (
        (other.month is None or one.month is not None)
        and (other.day is None or one.day is not None)
        and (other.weekday is None or bool(one.weekdays(day)))
        and (other.part is None or one.day is not None)
    )


def _words(*texts: str) -> frozenset[str]:
    """The words of the texts in lower case, without accents: addresses have none."""
    plain = unicodedata.normalize("NFKD", " ".join(texts).lower())
    return frozenset(_WORD.findall("".join(c for c in plain if not unicodedata.combining(c))))


def _named(name: Name, mail: _Read, known: frozenset[str]) -> bool:
    if _words(*name.words) <= mail.words | known:
        return True
    return any(states_name(name.words, each.text, list(each.names)) for each in mail.claims)


def _opens(name: Name, text: str) -> bool:
    before = text[: name.start].rstrip()
    return len(name.words) == 1 and (not before or before[-1] in ".;!?:")


# ---- Whether an answer talks to whoever grades it instead of answering.

_GOLD = r"(?:gold|reference|expected|ground[ -]truth|official)"
_GOOD = (
    r"(?:correct|right|true|valid|accurate|equivalent|full (?:marks|credit|points)|pass(?:ing)?)"
)
_APPEAL = re.compile(
    # the grader or the gold answer by name
    r"\b(?:grader|graders|grading|evaluator|evaluators|rubric|verdict|full (?:marks|credit)|"
    rf"{_GOLD} (?:answers?|truth|label|solution)|ground[ -]truth|"
    r"(?:dear|note to|attention|hey|hello|as)(?: the| a| an)? (?:\w+ )?(?:judge|examiner|reviewer)|"
    r"(?:llm|ai|the) judge (?:must|should|will|can|has)|"
    # what to do with the answer
    r"(?:mark|grade|score|count|accept|treat|consider|rate|evaluate|judge|deem|label|regard|award)"
    r"(?:ed|d)? (?:(?:this|it|that|my|me|the|as|answer|response|submission|reply|to|be|a|any) )"
    r"{1,6}"
    rf"(?:{_GOOD}|points?|credit|gold)|"
    r"(?:accept|pass|approve|award) (?:this|my) (?:answer|response|submission)|"
    r"you (?:must|should|have to) (?:\w+ )?(?:agree|accept|pass|award|mark)|"
    # that it is right
    r"(?:this|my|the|above|following) (?:answer|response) (?:is|was|should be|must be|matches)"
    rf"(?: \w+){{0,3}} (?:{_GOOD}|accepted|{_GOLD})|"
    rf"(?:equivalent to|matches|same as|identical to) the (?:{_GOLD}|correct|right|true)\b|"
    rf"(?:whatever|whichever) (?:\w+ ){{0,5}}(?:{_GOOD}|says?|{_GOLD})|"
    r"(?:verified|confirmed|certified|validated|known) (?:as|to be) (?:\w+ )?"
    rf"{_GOOD}|"
    # orders to a model
    r"(?:ignore|disregard|forget|override) (?:(?:all|any|the|your|these|of) ){0,3}(?:previous|"
    r"prior|above|earlier|preceding|other)? ?(?:instructions?|rules?|guidelines?|system|prompts?)|"
    r"(?:return|output|respond with|reply with|print) [\"'{]{0,3}(?:correct|true|yes|pass)|"
    r"(?:you are|as) an? (?:llm|ai|language model|helpful))\b"
    r"|[\"']?(?:correct|grounded|is_correct|verdict|score)[\"']? ?[:=] ?(?:true|yes|1|correct)\b"
    r"|<\|?/?(?:im_start|im_end|system|assistant|user|s)\|?>|\[/?INST\]|\bjudge ?:"
    r"|\b(?:system|assistant) ?: ?(?=.{0,80}\b(?:answer|grade|mark|correct)\b)",
    re.IGNORECASE,
)


def appeal(text: str) -> str | None:
    """The first words in `text` (cleaned) that address a grader or a model, or None."""
    found = _APPEAL.search(text)
    return found[0].strip() if found else None
