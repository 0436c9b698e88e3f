"""Whether an answer is right, given the gold answer, without a model.

The rules of `OfflineJudge`, in order:

1. On an unanswerable question (`answerable` false, or a gold answer that itself abstains)
   abstention is correct and any answer is wrong; otherwise abstention is not correct.
   The gold answer itself, word for word, is correct.
2. An answer that speaks of its grading, or gives orders to its reader, is wrong.
   Only its first 4,000 characters are read.
3. No contradiction: a value of a kind that the gold has must agree with one of the gold's or
   stand in the question, and no "or" may follow it. So lists of candidates are wrong. Values of
   other kinds are free, and so are values taken back ("not May 3", "moved from ... to").
4. Yes or no: the answer must have the gold's polarity and not both.
5. Mix-ups: the gold's parts must not be put together otherwise.
6. Key values: the gold's values of the kinds that the question asks for (all of them where its
   words don't tell) must be stated, in any spelling. Dates match in all that the gold says and
   say nothing narrower.
7. Names: for "who", and where the gold is only names, each must be stated, by full name in any
   order, initial or nickname with last name, or last name; a first name alone only if the gold
   has no more. Another name in the same position in the sentence contradicts.
8. Text: where a gold has no key values or names, or the question asks for more (why, where,
   how), the answer must have half of the gold's content stems that the question does not give
   away and some of each item of a list, deny what the gold denies and nothing else, and have no
   opposite word, no "or" that a short gold lacks, and no other word in the place of the gold's.

`grounded_in` says whether an answer stands in the mails that were read.
"""

import datetime as dt
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
    has_auxiliary,
    is_part,
    names_match,
    names_thing,
    negated,
    negations,
    opposed,
    polarity,
    says_both,
    states_name,
)
from evals.judges.values import (
    Kind,
    PartialDate,
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
    r"initially|at first|before that|until then|(?:until|before) [^.;,]{1,20} "
    r"(?:it|he|she|they) (?:was|were)|"
    r"used to be|other than|except)\b|(?<=[(,]) ?(?:down|up) from\b",
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
    r"|\bafter (?P<later>\w+ing\b(?:[^.;,]|,(?=\d)){1,60}? at first)\b"
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


# A question and its gold answer are read for each of their episodes: of what a run of nano has
# read by the detectors of `evals.hacking`, a sixth differs.
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
        if value.kind == "email":
            words = _owner_words(value)
            if len(words) > 1:
                names.append(Name(words, value.start, value.end, "@", False))
    return Claims(
        text,
        tuple(value for value in values if not is_denied(value)),
        tuple(value for value in values if is_denied(value)),
        tuple(name for name in names if not is_denied(name)),
    )


def _owner_words(email: Value) -> tuple[str, ...]:
    """The words before the "@", which often are the owner's name."""
    return tuple(re.findall(r"[a-z]+", str(email.key).partition("@")[0]))


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

    name = "offline/3"

    def _compared(self, question: Question, gold: str, answer: str) -> Verdict:
        faults = _faults(question, read_claims(gold), _unwrapped(answer))
        fault = next(filter(None, faults), None)
        reason = fault or "states what the gold answer states"
        return Verdict(fault is None, None, self.name, reason)


def _faults(question: Question, gold: Claims, text: str) -> Iterator[str | None]:
    """Why the answer `text` is wrong, a line each; None from a check that it passes."""
    asking, near = read_claims(question.question), question.query_date
    words = appeal(text)
    if words and words.lower() not in f"{gold.text} {asking.text}".lower():
        yield f"addresses the judge: {words!r}"
    answer = read_claims(text)
    yield _contradiction(asking, gold, answer, near)
    is_yes_no = asks_yes_no(asking.text) and not is_choice(asking.text)
    if is_yes_no or _YES_NO_GOLD.match(gold.text):
        yield _polarity_fault(asking, gold, answer)
        return
    yield mixup(gold.text, answer.text)
    wanted = asked(asking.text)
    values = _key_values(gold, asking, wanted.kinds)
    names = _key_names(gold, asking.text, wanted.kinds)
    if "name" in wanted.kinds and any(value.kind == "email" for value in values):
        yield _contact_fault(values, names, answer)
        return
    for value in values:
        if not any(same_value(value, other, near) for other in answer.values):
            yield f"lacks the {value.kind} {gold.text[value.start : value.end]!r}"
    denied = () if gold.values else gold.denied
    for value in denied:
        if not any(same_value(value, other, near) for other in answer.denied):
            yield f"does not deny {gold.text[value.start : value.end]!r}"
    yield _names_fault(names, asking, gold, answer)
    if wanted.text or not (names or any(value.kind in wanted.kinds for value in values)):
        rest = _without(gold.text, [*values, *denied])
        yield from _text_faults(asking.text, rest, answer.text, bool(values or denied))


def _contradiction(
    asking: Claims, gold: Claims, answer: Claims, near: dt.date | None
) -> str | None:
    """The first value of the answer that is at odds with the gold's values of its kind."""
    known = [*gold.values, *gold.denied]
    if not is_choice(asking.text):
        known += asking.values
    kinds = {value.kind for value in gold.values}
    candidates = [value for value in answer.values if value.kind in kinds]
    if len(candidates) > len(gold.values) + MAX_VALUES:
        return f"lists {len(candidates)} values"
    for value in candidates:
        shown = answer.text[value.start : value.end]
        if not any(compatible(other, value, near) for other in known):
            return f"has another {value.kind}: {shown!r}"
        has_or = is_choice(shown) or _followed_by_or(answer, value.end, value.kind)
        if has_or and not is_choice(gold.text):
            return f"offers an alternative to {shown!r}"
    return None


def _followed_by_or(answer: Claims, end: int, kind: str) -> bool:
    """True if "or" follows at `end` with another value of the kind, or with something vague."""
    match = _OR.match(answer.text, end)
    if match is None:
        return False
    family = next((kinds for kinds in _FAMILIES if kind in kinds), (kind,))
    starts = {value.start for value in answer.values if value.kind in family}
    if "name" in family:
        starts |= {name.start for name in answer.names}
    return match.end() in starts or bool(_VAGUE.match(answer.text, match.end()))


def _polarity_fault(asking: Claims, gold: Claims, answer: Claims) -> str | None:
    wanted, given = polarity(gold.text), polarity(answer.text)
    if wanted is None:
        wanted = not negated(gold.text)
    if says_both(answer.text) or (given and negated(answer.text) and not negated(gold.text)):
        return "says yes and no"
    if given is None:
        known = set(content_stems(f"{gold.text} {asking.text}"))
        stems = set(content_stems(answer.text))
        hits = len(known & stems)
        if 2 * hits < len(stems) or (hits < 2 and not has_auxiliary(answer.text)):
            return "says neither yes nor no"
        given = not negated(answer.text)
    return None if given == wanted else "says yes for no, or no for yes"


def _contact_fault(values: list[Value], names: list[Name], answer: Claims) -> str | None:
    """For "who": the gold's address or its name will do, and the address's owner by name."""
    given = list(answer.names)
    for value in values:
        owner = _owner_words(value)
        if any(other.key == value.key for other in answer.values):
            return None
        if len(owner) > 1 and states_name(owner, answer.text, given):
            return None
    if names and all(states_name(name.words, answer.text, given) for name in names):
        return None
    return "names neither the person nor the address"


def _names_fault(needed: list[Name], asking: Claims, gold: Claims, answer: Claims) -> str | None:
    """A name that the answer lacks, or one that stands where the gold's should."""
    if not needed:
        return None
    slots = {"", "@"}
    for name in needed:
        found = states_name(name.words, answer.text, list(answer.names))
        if found is None and not negated(answer.text):
            found = names_thing(name.words, answer.text)
        if found is None:
            return f"lacks the name {' '.join(name.words)!r}"
        slots.add(found.slot)
    known = f"{gold.text} {'' if is_choice(asking.text) else asking.text}"
    words = set(re.findall(r"\w+", known.lower()))
    for name in answer.names:
        if name.slot not in slots:
            continue
        shown = " ".join(name.words)
        if _followed_by_or(answer, name.end, "name") and not is_choice(gold.text):
            return f"offers an alternative to {shown!r}"
        is_known = any(names_match(other.words, name.words) for other in (*gold.names, *needed))
        if not is_known and not is_part(name, words, answer.text):
            return f"names another: {shown!r}"
    return None


# ---- Whether a text states what a gold text states, by its content words.

TEXT_RECALL = 0.5  # share of the gold's stems, beyond the question's, that an answer must have
FEW, FEW_RECALL = 3, 0.66  # of so few stems, this share
SHORT_GOLD = 6  # stems; in longer golds an "or" of the answer is natural
MAX_TIMES, MAX_STEMS = 6, 30  # an answer has at most MAX_TIMES x the gold's stems + MAX_STEMS
LIST_ITEM = 4  # stems in an item of a list, at most; longer ones are clauses

_ALTERNATIVE = re.compile(
    r"\b(?<!more )(?<!sooner )(?<!whether )or\b(?! (?:so|not)\b)", re.IGNORECASE
)
_ITEMS = re.compile(r"[,;/]|\b(?:and|or)\b|&|\.(?= |$)|(?:^| )[-*] |\b\d{1,2}[.)] ", re.IGNORECASE)
_SENTENCE = re.compile(r"[.;!?]+(?: |$)")


def _text_faults(question: str, gold: str, answer: str, has_values: bool) -> Iterator[str | None]:
    """Why `answer` does not state what `gold` states.

    `has_values`: the gold's values have been taken out of `gold` and found in the answer.
    """
    gold_stems, asked_stems, stems = (content_stems(text) for text in (gold, question, answer))
    new = set(gold_stems) - set(asked_stems)
    beyond = new or set(gold_stems)
    hits = beyond & set(stems)
    needed = TEXT_RECALL if has_values or len(beyond) > FEW else FEW_RECALL
    # One word beside values ("Street") says too little to fail an answer for.
    if len(hits) < needed * len(beyond) and not (has_values and len(beyond) == 1):
        yield f"has {len(hits)} of the gold's {len(beyond)} content words"
    if not beyond and not has_values and gold.lower() not in answer.lower():
        yield "has other words"  # of a gold such as "A-" or "all of us"
    if len(stems) > MAX_TIMES * len(gold_stems) + MAX_STEMS:
        yield f"too long to be an answer: {len(stems)} content words"
    # A gold that only repeats words of the question chooses among them.
    is_short = not new or len(beyond) <= SHORT_GOLD
    if is_short and _ALTERNATIVE.search(answer) and not _ALTERNATIVE.search(gold):
        yield "offers alternatives"
    if other := opposed(gold, answer):
        yield f"says the opposite: {other!r}"
    if other := other_kind(question, gold, answer):
        yield f"says another kind: {other!r}"
    sentences = [text for text in _SENTENCE.split(answer) if beyond & set(content_stems(text))]
    if beyond and negated(" ; ".join(sentences)) != negated(gold):
        yield "denies what the gold affirms, or affirms what it denies"
    yield _list_fault(gold, answer, set(asked_stems), has_values)


def _list_fault(gold: str, answer: str, asked_stems: set[str], has_values: bool) -> str | None:
    """A missing item of a gold list; padding where the gold is neither list nor values."""
    wanted = [stems for item in _ITEMS.split(gold) if (stems := set(content_stems(item)))]
    given = set(content_stems(answer))
    if len(wanted) >= 2:
        if all(len(item) <= LIST_ITEM for item in wanted):
            for item in wanted:
                missing = 2 * len(item & given) < len(item) and not item <= asked_stems
                if missing and (len(item) > 1 or not has_values):
                    return f"lacks an item: {' '.join(sorted(item))}"
        return None
    if has_values:
        return None  # padding with values is a contradiction, and found as one
    known = asked_stems.union(*wanted)
    items = [stems for item in _ITEMS.split(answer) if (stems := set(content_stems(item)))]
    strange = [item for item in items if len(item) <= 3 and not item & known]
    return "lists candidates" if len(items) >= 3 and len(strange) >= 2 else None


# ---- Whether an answer puts the gold's own words together wrongly.

_TOKEN = re.compile(r"\w+(?:[-'.:&]\w+)*")
_ARTICLES = frozenset({"a", "an", "the"})
# Participles and adverbs, and words that tell no kind of thing from another.
_SKIPPED_ENDINGS = ("ly", "ed", "ing")
_UNSPECIFIC = frozenset(
    "another other current recent own same certain various new old good nice great big large small "
    "little long short extra".split()
)
_SHORTEST = 3  # words, of an answer that is its gold but for one of them
_SAME_START = 4  # letters, of two words of one family: drain and drainage
_SEGMENT_END = re.compile(r"[,;]|\.(?= |$)|\b(?:and(?! \d)|but|while)\b", re.IGNORECASE)
_PAIR = re.compile(r"(?=(?<![\w-])([a-z]{3,30}) ([a-z]{3,30})(?![\w-]))")
_HOUSE = re.compile(
    r"(?<![\w.,:/-])(\d{1,5}),? (?:(?:rue|via|calle|avenue|place|piazza|boulevard) "
    r"(?:(?:de|des|du|della|la) ){0,2})?"
    r"(?!Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)([A-Z][a-z]{2,30})\b"
)


def mixup(gold: str, answer: str) -> str | None:
    """What `answer` has put together otherwise than `gold`, in one line, or None.

    Two parts have exchanged what the gold says of them, subject and object have changed places
    around one verb, or a house number has another street.
    """
    parts = [tokens for part in _SEGMENT_END.split(gold) if (tokens := _content(part))]
    counts = Counter(token for part in parts for token in part)
    own = [{token for token in part if counts[token] == 1} for part in parts]
    joined = [
        sum(bool(tokens & part) for part in own) >= 2
        for tokens in map(_content, _SEGMENT_END.split(answer))
    ]
    if sum(joined) >= 2:
        return "says of one thing what the gold says of another"
    given = set(_triples(answer))
    for first, verb, last in _triples(gold):
        if (last, verb, first) in given:
            return f"exchanges who and whom: {first!r} and {last!r}"
    streets = dict(_HOUSE.findall(gold))
    for number, street in _HOUSE.findall(answer):
        if streets.get(number, street) != street:
            return f"has another street: {street!r}"
    return None


def _content(text: str) -> set[str]:
    return {token for token in _TOKEN.findall(text.lower()) if content_stems(token)}


def _triples(text: str) -> Iterator[tuple[str, str, str]]:
    """Three words in a row, stemmed, with a content word (no number) in the middle."""
    for sentence in _SEGMENT_END.split(text.lower()):
        words = [word for word in _TOKEN.findall(sentence) if word not in _ARTICLES]
        stems = [" ".join(content_stems(word)) or word for word in words]
        for first, verb, last in zip(stems, stems[1:], stems[2:], strict=False):
            if first != last and verb.isalpha() and content_stems(verb):
                yield first, verb, last


def other_kind(question: str, gold: str, answer: str) -> str | None:
    """The word of `answer` that stands where the gold has another, or None.

    Either the answer is the gold but for one word, or both have the same noun after it: "the
    power button" is not "the menu button". The latter only for words that one text has and
    the other (or the question) lacks; names, participles and adverbs are let be.
    """
    wanted, given = (
        [word for word in _TOKEN.findall(text.lower().replace("'s", "")) if word not in _ARTICLES]
        for text in (gold, answer)
    )
    if len(wanted) == len(given) > _SHORTEST:
        changed = [pair for pair in zip(wanted, given, strict=True) if pair[0] != pair[1]]
        stems = [content_stems(word) for pair in changed for word in pair]
        if len(changed) == 1 and all(stems) and stems[0] != stems[1]:
            return str(changed[0][1])
    known = {*content_stems(gold), *content_stems(question)}
    answered = set(content_stems(answer))
    kinds = {noun: word for word, noun in _described(answer) if word not in known}
    for word, noun in _described(gold):
        other = kinds.get(noun)
        if other and word not in answered and not _akin(word, other):
            return other
    return None


def _akin(one: str, other: str) -> bool:
    """True for words of one family (drain, drainage), and for two comparatives."""
    return one[:_SAME_START] == other[:_SAME_START] or (one[-2:] == "er" == other[-2:])


def _described(text: str) -> Iterator[tuple[str, str]]:
    """Stems of each two neighbouring content words in lower case, such as "menu button"."""
    for match in _PAIR.finditer(text):
        stems = [content_stems(word) for word in match.groups()]
        skipped = match[1].endswith(_SKIPPED_ENDINGS) or _UNSPECIFIC & {match[1], match[2]}
        if all(stems) and not skipped:
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
    if len(new & stated) < TEXT_RECALL * len(new):
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
