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
    refused,
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
# The date of a mail: "her note from May 30", "the email dated May 30".
_MAIL_OF = (
    r"\b(?:e-?mail|mail|message|note|memo|letter) (?:\w+ ){0,3}?"
    r"(?P<mail>(?:of|from|dated|sent)(?: on)? [^.;:()]{3,24}?)(?= ?(?:[.;:)]|,(?! ?\d)|$)| [a-z]+s\b)"
)
# Beside the answer: "moved from ... to", "the old one, 9020, ...", "$980, but in the end $1,140".
_SET_ASIDE = re.compile(
    r"\b(?:moved|changed|rescheduled|postponed|pushed|shifted|delayed|extended|brought|raised|"
    r"lowered|increased|decreased|reduced|revised|corrected|updated)\b[^.;]{0,60}?"
    r"(?P<old>\bfrom [^.;]{1,60}?)(?= to\b)"
    r"|(?<=[;,.(] )(?P<former>(?:the|its|his|her|our|your|their) (?:old|former|previous) \w+"
    r"(?:,| was| is|:)? [^,.;()]{1,40})"
    r"|\bafter (?P<first>(?:first|initially|originally) \w+ing\b(?:[^.;,]|,(?=\d)){1,60})"
    r"|(?P<before>\b(?:first|initially|originally) \w+ [^.;]{1,60}?),? but\b"
    r"|(?P<early>[^.;]{1,80}?),? but\b[^.;]{0,80}?"
    r"\b(?:in the end|finally|eventually|ended up)\b"
    rf"|{_MAIL_OF}"
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

    Those of the kinds asked for, before any aside, if there are any; otherwise all that the
    question does not have. The end of a time range is never needed, and for "who" no address whose
    words tell the name. Of a gold that only denies, what it denies.
    """
    is_owned = "name" in kinds and any(name.slot == "@" for name in gold.names)
    needed = [
        value
        for value in gold.values or gold.denied
        if not (isinstance(value.key, TimeOfDay) and value.key.ends)
        and not (is_owned and value.kind == "email")
    ]
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
        if not name.possessive
        and not set(name.words) <= asked_words
        and (name.slot != "@" or "name" in kinds)
    ]
    if owners := [name for name in names if name.slot == "@"]:
        return owners
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
        chance = score(features)
        faults = [weight * each for weight, each in zip(WEIGHTS, features, strict=True)]
        worst = _FAULTS[faults.index(min(faults))] if min(faults) else "states what the gold states"
        return Verdict(chance >= 0.5, None, self.name, f"{worst} (score {chance:.2f})")


class Features(NamedTuple):
    """What the score is made of. All speak against the answer; each is 0 to 1."""

    values: float  # a value that the question asks for is missing
    names: float  # a name that it asks for is missing
    text: float  # share of the gold's content stems, beyond the question's, that is missing
    beside: float  # the same where values or names are stated, and the answer has other words
    new: float  # share of the answer's stems that neither question nor gold has, times `text`
    items: float  # an item of the gold's list is missing, or the answer lists and the gold does not
    changed: float  # the gold but for one word, or another acronym
    swapped: float  # says of one thing what the gold says of another
    reversed: float  # denies what the gold affirms, or has an opposite word
    polarity: float  # says yes for no, no for yes, neither or both
    alternative: float  # has an "or" that a short gold lacks
    other_name: float  # another name in the place of the gold's


_FAULTS = (
    "lacks a value", "lacks a name", "lacks words of the gold answer", "lacks words beside the value",
    "has other words", "lacks or adds an item", "has another word", "exchanges what belongs to what",
    "says the opposite", "says yes for no or no for yes", "offers alternatives", "names another",
)  # fmt: skip
BIAS = 4.28
WEIGHTS = Features(
    values=-6.57,
    names=-8.19,
    text=-6.10,
    beside=-2.48,
    new=-2.18,
    items=-5.75,
    changed=-5.22,
    swapped=-7.33,
    reversed=-6.14,
    polarity=-8.87,
    alternative=-6.42,
    other_name=-8.35,
)


def score(features: Features) -> float:
    """The chance that an answer with these features is right."""
    total = sum(weight * each for weight, each in zip(WEIGHTS, features, strict=True))
    return 1 / (1 + math.exp(-BIAS - total))


_SENTENCE = re.compile(r"[.;!?,]+(?: |$)")
_ITEMS = re.compile(r"[,;/]|\b(?:and|or)\b|&|\.(?= |$)|(?:^| )[-*] |\b\d{1,2}[.)] ", re.IGNORECASE)
_PARTS = re.compile(r"[,;]|\.(?= |$)|\b(?:and|plus|but|while)\b(?! \d)", re.IGNORECASE)
_TOKEN = re.compile(r"\w+(?:[-'.:&]\w+)*")
_ACRONYM = re.compile(r"(?<![\w-])[A-Z]{2,5}(?![\w-])")
_ALTERNATIVE = re.compile(
    r"\b(?<!more )(?<!sooner )(?<!whether )or\b(?! (?:so|not)\b)", re.IGNORECASE
)
_HEDGE = re.compile(r"\bunless\b.{0,60}\bthen\b|\bor else\b", re.IGNORECASE)
_ASKS_REASON = re.compile(r"\b(?:why|reason|cause)\b", re.IGNORECASE)
_AUXILIARY = re.compile(
    r"\b(?:did|do|does|is|are|was|were|has|have|had|will|would|can|could|should|may|won't)\b|n't\b",
    re.IGNORECASE,
)
# What follows a sentence's capitalised first word if it is a name.
_AFTER_SUBJECT = re.compile(
    r" (?:[a-z]+ed|(?!(?:this|his|its|as|us)\b)[a-z]+s|was|were|are|will|had|have|would|can|could|"
    r"may|did|said|told|sent|wrote|gave|made|took|went|got|came|left|and|or|&)\b| ?[,;/.()\"']|$"
)
LIST_ITEM = 4  # stems in an item of a list, at most; longer ones are clauses
SHORT_GOLD = 6  # stems; in longer golds an "or" of the answer is natural
MAX_TIMES, MAX_STEMS = 6, 30  # an answer has at most MAX_TIMES x the gold's stems + MAX_STEMS
FAMILY = 5  # letters with which words of one family begin: drain and drainage


class Compared:
    """An answer beside the gold answer."""

    def __init__(self, question: Question, gold: str, answer: str) -> None:
        self.asking, self.gold = read_claims(question.question), read_claims(gold)
        self.answer, self.near = read_claims(_unwrapped(answer)), question.query_date
        self.wanted = asked(self.asking.text)
        self.is_choice = is_choice(self.asking.text)
        self.values = _key_values(self.gold, self.asking, self.wanted.kinds)
        self.names = _key_names(self.gold, self.asking.text, self.wanted.kinds)

    def veto(self) -> str | None:
        """Why the answer is wrong whatever else it states, in one line; None if nothing is."""
        gold, answer = self.gold.text, self.answer.text
        words = appeal(answer)
        if words and words.lower() not in f"{gold} {self.asking.text}".lower():
            return f"addresses the judge: {words!r}"
        if (hedge := _HEDGE.search(answer)) and not _HEDGE.search(gold):
            return f"hedges: {hedge[0]!r}"
        known = [*self.gold.values, *self.gold.denied]
        known += [] if self.is_choice else self.asking.values
        kinds = {value.kind for value in self.gold.values}
        candidates = [value for value in self.answer.values if value.kind in kinds]
        if len(candidates) > len(self.gold.values) + MAX_VALUES:
            return f"lists {len(candidates)} values"
        for value in candidates:
            shown = answer[value.start : value.end]
            if not any(compatible(other, value, self.near) for other in known):
                return f"has another {value.kind}: {shown!r}"
            if is_choice(shown) and not is_choice(gold):
                return f"offers an alternative: {shown!r}"
        if not is_choice(gold):
            for part in (*candidates, *(self.answer.names if self.names else ())):
                if self._or_follows(part):
                    return f"offers an alternative to {answer[part.start : part.end]!r}"
        return None

    def _or_follows(self, part: Value | Name) -> bool:
        """True if "or" follows with another value of the kind, or something vague."""
        match = _OR.match(self.answer.text, part.end)
        if match is None:
            return False
        kind = part.kind if isinstance(part, Value) else "name"
        family = next((kinds for kinds in _FAMILIES if kind in kinds), (kind,))
        starts = {value.start for value in self.answer.values if value.kind in family}
        if "name" in family:
            starts |= {name.start for name in self.answer.names}
        return match.end() in starts or bool(_VAGUE.match(self.answer.text, match.end()))

    def features(self) -> Features:
        """The features of an answer that no veto meets."""
        found = dict.fromkeys(Features._fields, 0.0)
        if (asks_yes_no(self.asking.text) and not self.is_choice) or _YES_NO_GOLD.match(
            self.gold.text
        ):
            found["polarity"] = float(self._is_contrary())
            return Features(**found)
        found["values"] = float(not all(self._is_stated(value) for value in self.values))
        if self.names:
            found["names"], found["other_name"] = self._names()
        found["swapped"] = float(_is_swapped(self.gold, self.answer))
        keyed = self.names or any(value.kind in self.wanted.kinds for value in self.values)
        if self.wanted.text or not keyed:
            self._text(found)
        return Features(**found)

    def _is_stated(self, value: Value) -> bool:
        given = self.answer.denied if value in self.gold.denied else self.answer.values
        if value.kind == "code":
            pieces = set(re.findall(r"[A-Z]+|\d+", str(value.key)))
            if pieces <= set(re.findall(r"[A-Z]+|\d+", self.answer.text.upper())):
                return True
        return any(same_value(value, other, self.near) for other in given)

    def _is_contrary(self) -> bool:
        """True if the answer lacks the gold's yes or no, or has both."""
        gold, answer = self.gold.text, self.answer.text
        wanted, given = polarity(gold), polarity(answer)
        if says_both(answer) or (given and negated(answer) and not negated(gold)):
            return True
        if given is None:
            stems, opposite = set(content_stems(answer)), opposed(self.asking.text, answer)
            hits = len(stems.intersection(content_stems(f"{gold} {self.asking.text}")))
            hits += opposite is not None
            if 2 * hits < len(stems) or (hits < 2 and not (opposite or _AUXILIARY.search(answer))):
                return True
            given = self._affirms(answer)
        return given != (self._affirms(gold) if wanted is None else wanted)

    def _affirms(self, text: str) -> bool:
        """True if a text without yes or no says what the question asks, and not its opposite."""
        return refused(text) == bool(opposed(self.asking.text, text))

    def _names(self) -> tuple[bool, bool]:
        """Whether a name is missing, and whether another stands where it should."""
        text, given = self.answer.text, list(self.answer.names)
        lower, slots, end = set(re.findall(r"[\w-]+", text.lower())), {"", "@"}, 0
        for name in self.names:
            found = states_name(name.words, text, given) or _first_name(name, given)
            if found is not None:
                slots.add(found.slot)
                end = max(end, found.end)
            elif negated(text) or not all(_is_short(word, lower) for word in name.words):
                return True, False
        known = f"{self.gold.text} {'' if self.is_choice else self.asking.text}"
        words = set(re.findall(r"\w+", known.lower()))
        aside = _ASIDE.search(text, end)
        for name in given:
            after = aside is not None and name.start > aside.start()
            is_part = after or name.possessive or set(name.words) <= words or _is_word(name, text)
            golds = (*self.gold.names, *self.names)
            if name.slot in slots and not is_part:
                if not any(names_match(other.words, name.words) for other in golds):
                    return False, True
        return False, False

    def _text(self, found: dict[str, float]) -> None:
        """Adds the features of the text beside the values and names that are needed."""
        gold, answer = _without(self.gold.text, [*self.values, *self.names]), self.answer.text
        rest, has_keys = _without(answer, self.answer.values), bool(self.values or self.names)
        aside = None if _ASKS_REASON.search(self.asking.text) else _ASIDE.search(gold)
        if aside and content_stems(gold[: aside.start()]):
            gold = gold[: aside.start()]
        asked_stems, gold_stems = set(content_stems(self.asking.text)), content_stems(gold)
        known = asked_stems.union(content_stems(self.gold.text))
        stems = set(content_stems(rest if has_keys else answer))
        new = set(gold_stems) - asked_stems
        beyond = new or set(gold_stems)
        missing = sum(not _stands(stem, stems) for stem in beyond) / max(1, len(beyond))
        if not beyond and not has_keys:
            missing = float(gold.lower() not in answer.lower())  # "A-", "all of us"
        strange = sum(not _stands(stem, known) for stem in stems) / max(1, len(stems))
        is_needed = self.wanted.text or not has_keys
        found["text" if is_needed else "beside"] = missing
        found["new"] = strange * missing
        found["items"] = float(
            self._is_other_list(gold, stems, known, has_keys)
            or len(stems) > MAX_TIMES * len(gold_stems) + MAX_STEMS
        )
        found["changed"] = _changed(gold, rest, known)
        # "Not worn" is "unworn": a denial and an opposite together are none.
        denies = self._denies(gold, answer, beyond & stems)
        found["reversed"] = (1 - missing) * (denies != bool(opposed(gold, answer)))
        is_short = not new or len(beyond) <= SHORT_GOLD
        offers = _ALTERNATIVE.search(answer) and not _ALTERNATIVE.search(gold)
        found["alternative"] = float(is_short and bool(offers))

    def _denies(self, gold: str, answer: str, beyond: set[str]) -> bool:
        """True if one denies what the other affirms, as a whole and where it has the gold's words."""
        where = (
            " ; ".join(part for part in _SENTENCE.split(text) if beyond & set(content_stems(part)))
            for text in (gold, answer)
        )
        first, second = map(refused, where)
        return first != second and refused(gold) != refused(answer)

    def _is_other_list(self, gold: str, given: set[str], known: set[str], has_keys: bool) -> bool:
        """True if an item of a gold list is missing, or if the answer lists two strange things."""
        items = [set(content_stems(item)) for item in _ITEMS.split(gold) if not negated(item)]
        wanted = [item for item in items if item]
        if len(wanted) >= 2 and all(len(item) <= LIST_ITEM for item in wanted):
            for item in wanted:
                hits = sum(_stands(stem, given) for stem in item)
                is_needed = not item <= set(content_stems(self.asking.text)) and (
                    len(item) > 1 or not has_keys
                )
                if is_needed and 2 * hits < len(item):
                    return True
        items = [set(content_stems(item)) for item in _ITEMS.split(self.answer.text)]
        strange = [item for item in items if item and len(item) <= 3 and not item & known]
        return not has_keys and sum(map(bool, items)) >= 3 and len(strange) >= 2


def _first_name(gold: Name, names: Sequence[Name]) -> Name | None:
    """The one of `names` that is only the first name of `gold`, which tells who it is."""
    for name in names:
        if len(name.words) == 1 < len(gold.words) and len(name.words[0]) > 2:
            if same_first(gold.words[0], name.words[0]):
                return name
    return None


def _is_short(word: str, words: set[str]) -> bool:
    """True if the word is among `words`, whole or cut short ("chem")."""
    return word in words or any(len(each) > 3 and word.startswith(each) for each in words)


def _is_word(name: Name, text: str) -> bool:
    """True if the name may be only a sentence's first word: no verb or comma follows it."""
    return _opens(name, text) and not _AFTER_SUBJECT.match(text, name.end)


def _opens(name: Name, text: str) -> bool:
    before = text[: name.start].rstrip()
    return len(name.words) == 1 and (not before or before[-1] in ".;!?:")


def _stands(stem: str, stems: set[str]) -> bool:
    """True if the stem, or another of its family (drain, drainage), is among `stems`."""
    if stem in stems or len(stem) < FAMILY or not stem.isalpha():
        return stem in stems
    return any(
        other.startswith(stem[:FAMILY]) and abs(len(other) - len(stem)) < FAMILY for other in stems
    )


def _changed(gold: str, answer: str, known: set[str]) -> float:
    """The share of the gold that an answer keeps which changes one word; 1 for another acronym."""
    lower = answer.lower()
    if any(each.lower() not in lower for each in _ACRONYM.findall(gold)):
        if any(not _stands(each.lower(), known) for each in _ACRONYM.findall(answer)):
            return 1.0
    wanted, given = content_stems(gold), content_stems(answer)
    if not 1 < len(wanted) == len(given):
        return 0.0
    pairs = zip(wanted, given, strict=True)
    changed = [new for old, new in pairs if not _stands(old, {new})]
    is_one = len(changed) == 1 and changed[0] not in known
    return 1 - 1 / len(wanted) if is_one else 0.0


def _is_swapped(gold: Claims, answer: Claims) -> bool:
    """True if the answer says of one thing what the gold says of another.

    Two parts have exchanged what the gold says of them, or subject and object have changed places
    around one verb.
    """
    first, second = _keyed(gold), _keyed(answer)
    parts = [tokens for part in _PARTS.split(first) if (tokens := _tokens(part))]
    counts = Counter(token for part in parts for token in part)
    own = [{token for token in part if counts[token] == 1} for part in parts]
    answered = map(_tokens, _PARTS.split(second))
    if sum(sum(bool(tokens & part) for part in own) >= 2 for tokens in answered) >= 2:
        return True
    given = set(_triples(second))
    return any(triple[::-1] in given for triple in _triples(first))


def _keyed(claims: Claims) -> str:
    """The text with its amounts and times in one spelling."""
    text = claims.text
    for value in reversed(claims.values):
        if isinstance(value.key, Amount | TimeOfDay):
            shown = f"{value.key[0]:f}{value.kind}"
            text = f"{text[: value.start]} {shown} {text[value.end :]}"
    return text


def _tokens(text: str) -> set[str]:
    return {token for token in _TOKEN.findall(text.lower()) if content_stems(token)}


def _triples(text: str) -> Iterator[tuple[str, ...]]:
    """Three words in a row, stemmed, with a content word (no number) in the middle."""
    for sentence in _PARTS.split(text.lower()):
        words = [word for word in _TOKEN.findall(sentence) if word not in ("a", "an", "the")]
        stems = [" ".join(content_stems(word)) or word for word in words]
        for triple in zip(stems, stems[1:], stems[2:], strict=False):
            if triple[0] != triple[2] and triple[1].isalpha() and content_stems(triple[1]):
                yield triple


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


class _Read(NamedTuple):
    """What a mail states: the claims of its pieces, its values, words and date."""

    claims: tuple[Claims, ...]
    values: tuple[Value, ...]
    words: frozenset[str]
    day: dt.date | None


def grounded_in(question: str, answer: str, mails: Sequence[Email]) -> Grounding:
    """Whether `mails` state what `answer`, which is no abstention, states."""
    asking, given = read_claims(question), read_claims(answer)
    read = [_read(mail) for mail in mails]
    counted = "number" in asked(asking.text).kinds or _HOW_OFTEN.search(asking.text) is not None
    values = [
        value
        for value in given.values
        if not (counted and value.kind == "number")
        and not any(_covers(other, value, None) for other in asking.values)
    ]
    known = _words(asking.text)
    names = [
        name
        for name in given.names
        if name.slot != "@" and not _words(*name.words) <= known and not _opens(name, given.text)
    ]
    for value in values:
        shown = given.text[value.start : value.end]
        if not any(_states(mail, value, shown) for mail in read):
            return Grounding(False, f"no mail read has the {value.kind} {shown!r}")
    for name in names:
        if not any(_named(name, mail, known) for mail in read):
            return Grounding(False, f"no mail read has the name {' '.join(name.words)!r}")
    if values or names:
        return Grounding(True, "")
    new = set(content_stems(given.text)) - set(content_stems(asking.text))
    if not new or (counted and given.values):
        return Grounding(None, "")
    stated = {stem for mail in read for each in mail.claims for stem in content_stems(each.text)}
    if 2 * len(new & stated) < len(new):
        return Grounding(False, f"the mails read have {len(new & stated)} of {len(new)} new words")
    return Grounding(True, "")


def with_grounding(
    verdict: Verdict, question: Question, answer: str | None, mails: Sequence[Email]
) -> Verdict:
    """The verdict, and whether the answer stands in `mails`; not asked of an abstention."""
    if answer is None or not mails or is_abstention(answer):
        return verdict
    grounded, why = grounded_in(question.question, answer, mails)
    return replace(
        verdict, grounded=grounded, reason=f"{verdict.reason}; {why}" if why else verdict.reason
    )


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
        days = [each for value in stated for each in _days(value, day)]
        dates = [PartialDate(each.year, each.month, each.day) for each in (day, *days)]
        stated += [Value("date", date, 0, 0) for date in dates]
    return _Read(claims, tuple(stated), _words(*(each.text for each in claims)), day)


def _days(value: Value, day: dt.date) -> list[dt.date]:
    """The days that a word such as "tomorrow", "Friday" or "the 16th" can be in a mail of `day`."""
    date = value.key
    if not isinstance(date, PartialDate) or date.month is not None or date.year is not None:
        return []
    if date.relative in _DAYS_FROM:
        return [day + dt.timedelta(_DAYS_FROM[date.relative])]
    if date.day is None and date.weekday is None:
        return []
    ahead = (day + dt.timedelta(number) for number in range(31 if date.day else 7 * WEEKS_AHEAD))
    return [
        each
        for each in ahead
        if date.day in (None, each.day) and date.weekday in (None, each.weekday())
    ]


def _states(mail: _Read, value: Value, shown: str) -> bool:
    """True if the mail has the value, or its very words where only context tells its kind."""
    if any(_covers(other, value, mail.day) for other in mail.values):
        return True
    words = re.compile(rf"(?<![\w.,:/$-]){re.escape(shown)}(?![\w%]|[.,:/-]\w)", re.IGNORECASE)
    return any(words.search(each.text) for each in mail.claims)


def _covers(stated: Value, given: Value, day: dt.date | None) -> bool:
    """True if `stated`, in a mail of `day`, says all that `given` says, and nothing against it."""
    one, other = stated.key, given.key
    if not isinstance(one, PartialDate) or not isinstance(other, PartialDate):
        return same_value(given, stated)
    # The mail's date tells a year that it leaves out; what the answer leaves out may be any.
    near = day if one.year is None else None
    if same_value(given, stated, near):
        return True
    if one.relative or other.relative or conflict(one, other, near):
        return False
    has_weekday = one.weekday is not None or bool(one.month and one.day)
    return (
        (other.month is None or one.month is not None)
        and (other.day is None or one.day is not None)
        and (other.weekday is None or has_weekday)
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
