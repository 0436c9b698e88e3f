"""Whether an answer is right, given the gold answer.

`Judge` is what a judge offers; `OfflineJudge` is the one without a model. Its
rules, in order:

1. On an unanswerable question (`answerable` false, or a gold answer that itself
   abstains) abstention is correct and any answer is wrong; otherwise abstention is
   not correct.
   The gold answer itself, word for word, is correct.
2. An answer that speaks of its grading, or gives orders to its reader, is wrong.
   Only its first 4,000 characters are read.
3. Yes or no: the answer must have the gold's polarity and not both, as yes or no, as a
   statement or as the gold's reason; its values must not contradict the gold's.
4. Key values: the gold's dates, times, amounts, phone numbers, addresses and codes
   of the kinds that the question asks for (all of them where its words don't tell)
   must be stated, in any spelling. Dates match in all that the gold says and say
   nothing narrower; a year or weekday that does not fit is wrong.
5. No contradiction: a value of a kind that the gold has must agree with one of the
   gold's or stand in the question. So lists of candidates are wrong, and so is a
   right value joined by "or" to something else. Values of other kinds are free.
   Values taken back ("not May 3", "instead of", "moved from ... to") don't count; a
   gold that has no others ("not above $90k") needs an answer that takes back the same.
6. Names: for "who", and where the gold is only names, each must be stated, by full
   name in any order, initial or nickname with last name, or last name; a first name
   alone only if the gold has no more. Another name in the same position in the
   sentence (subject, or after the same preposition) contradicts.
7. Text: where a gold has no key values or names, or the question asks for more (why,
   where, how), the answer must contain half of the gold's content stems that the
   question does not give away, and some of each item of a list; deny what the gold
   denies and nothing else; have no opposite word, no "or" that a short gold lacks,
   and not be many times longer (`evals.judges.offline`). Synonyms of `synonyms.txt` are one word.
8. Mix-ups: the gold's parts must not be put together otherwise, nor one word stand where
   the gold has another (`evals.judges.offline`).

Whether an answer stands in the mails that were read is `evals.judges.offline`'s rule. Knows
nothing of models or inboxes.
"""

import datetime as dt
import re
import unicodedata
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
    is_elliptic,
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

# ---- Whether a text states what a gold text states, by its content words.

TEXT_RECALL = 0.5  # share of the gold's stems, beyond the question's, that an answer must have
FEW, FEW_RECALL = 3, 0.66  # of so few stems, this share
SHORT_GOLD = 6  # stems; in longer golds an "or" of the answer is natural
MAX_TIMES, MAX_STEMS = 6, 30  # an answer has at most MAX_TIMES x the gold's stems + MAX_STEMS

LIST_ITEM = 4  # stems in an item of a list, at most; longer ones are clauses

_OR = re.compile(r"\b(?<!more )(?<!sooner )(?<!whether )or\b(?! (?:so|not)\b)", re.IGNORECASE)
_ITEMS = re.compile(r"[,;/]|\b(?:and|or)\b|&|\.(?= |$)|(?:^| )[-*] |\b\d{1,2}[.)] ", re.IGNORECASE)
_SENTENCE = re.compile(r"[.;!?]+(?: |$)")


def text_fault(question: str, gold: str, answer: str, has_values: bool = False) -> str | None:
    """Why `answer` does not state what `gold` states, in one line, or None.

    `has_values`: the gold's values have been taken out of `gold` and found in the answer.
    """
    return next(_faults(question, gold, answer, has_values), None)


def _faults(question: str, gold: str, answer: str, has_values: bool) -> Iterator[str]:
    gold_stems, asked, said = (content_stems(text) for text in (gold, question, answer))
    new = set(gold_stems) - set(asked)
    beyond = new or set(gold_stems)
    if not (beyond or has_values or _plain(gold) in _plain(answer)):
        yield "has other words"  # of a gold such as "A-" or "all of us"
    hits = beyond & set(said)
    needed = TEXT_RECALL if has_values or len(beyond) > FEW else FEW_RECALL
    # One word beside values ("Street") says too little to fail an answer for.
    if len(hits) < needed * len(beyond) and not (has_values and len(beyond) == 1):
        yield f"has {len(hits)} of the gold's {len(beyond)} content words"
    whole = set(gold_stems)
    if len(beyond) == 1 and len(said) > FEW and len(whole & set(said)) < TEXT_RECALL * len(whole):
        yield "has the gold's one new word in another context"
    if len(said) > MAX_TIMES * len(gold_stems) + MAX_STEMS:
        yield f"too long to be an answer: {len(said)} content words"
    # A gold that only repeats words of the question chooses among them.
    if (not new or len(beyond) <= SHORT_GOLD) and _OR.search(answer) and not _OR.search(gold):
        yield "offers alternatives"
    if other := opposed(gold, answer):
        yield f"says the opposite: {other!r}"
    if other := other_kind(question, gold, answer):
        yield f"says another kind: {other!r}"
    if beyond and negated(_matching(answer, beyond)) != negated(gold):
        yield "denies what the gold affirms, or affirms what it denies"
    if fault := _list_fault(gold, answer, set(asked), has_values):
        yield fault


def _plain(text: str) -> str:
    words = [word.strip(".,;:!?\"'*()[]") for word in text.lower().split()]
    return f" {' '.join(word for word in words if word)} "


def _matching(answer: str, stems: set[str]) -> str:
    """The sentences of `answer` that have one of `stems`."""
    sentences = _SENTENCE.split(answer)
    return " ; ".join(text for text in sentences if stems & set(content_stems(text)))


def _list_fault(gold: str, answer: str, asked: set[str], has_values: bool) -> str | None:
    """A missing item of a gold list; padding where the gold is neither list nor values."""
    wanted = [stems for item in _ITEMS.split(gold) if (stems := set(content_stems(item)))]
    said = set(content_stems(answer))
    if len(wanted) >= 2:
        if all(len(item) <= LIST_ITEM for item in wanted):
            for item in wanted:
                missing = 2 * len(item & said) < len(item) and not item <= asked
                if missing and (len(item) > 1 or not has_values):
                    return f"lacks an item: {' '.join(sorted(item))}"
        return None
    if has_values:
        return None  # padding with values is a contradiction, and found as one
    known = asked.union(*wanted)
    items = [stems for item in _ITEMS.split(answer) if (stems := set(content_stems(item)))]
    strange = [item for item in items if len(item) <= 3 and not item & known]
    if len(items) >= 3 and len(strange) >= 2:
        return "lists candidates"
    return None


# ---- Whether an answer puts the gold's own words together wrongly.

_TOKEN = re.compile(r"\w+(?:[-'.:&]\w+)*")
_ARTICLES = frozenset({"a", "an", "the"})
# Participles and adverbs, and words that tell no kind of thing from another.
_SKIPPED_ENDINGS = ("ly", "ed", "ing")
_VAGUE = frozenset(
    "another other current recent own same certain various new old good nice great big large small "
    "little long short extra".split()
)
_DATED = ("date", "time", "money", "duration")  # values whose numbers are no house's
_SHORTEST = 3  # words, of an answer that is its gold but for one of them
_SAME_START = 4  # letters, of two words of one family: drain and drainage
_SEGMENT_END = re.compile(r"[,;]|\.(?= |$)|\b(?:and(?! \d)|but|while)\b", re.IGNORECASE)
_PAIR = re.compile(r"(?=(?<![\w-])([a-z]{3,30}) ([a-z]{3,30})(?![\w-]))")
_HOUSE = re.compile(
    r"(?<![\w.,:/-])(\d{1,5}),? (?:(?:rue|via|calle|avenue|place|piazza|boulevard) "
    r"(?:(?:de|des|du|della|la) ){0,2})?([A-Z][a-z]{2,30})\b"
)


def mixup(question: str, gold: str, answer: str) -> str | None:
    """What `answer` has put together otherwise than `gold`, in one line, or None.

    Two parts have exchanged what the gold says of them, subject and object have
    changed places around one verb, a house number has another street, or another name
    stands after the preposition that the gold has it after ("in Queens").
    """
    return next(_mixups(question, gold, answer), None)


def _mixups(question: str, gold: str, answer: str) -> Iterator[str]:
    if _exchanged(gold, answer):
        yield "says of one thing what the gold says of another"
    said = set(_triples(answer))
    for first, verb, last in _triples(gold):
        if (last, verb, first) in said:
            yield f"exchanges who and whom: {first!r} and {last!r}"
    houses = list(_houses(gold))
    streets = {(number, street.lower()) for number, street in _houses(answer)} if houses else ()
    for number, street in houses:
        others = [other for known, other in streets if known == number]
        if others and street.lower() not in others:
            yield f"has another street: {others[0]!r}"
    known, found = set(_words(f"{question} {gold}")), set(_words(answer))
    slots = {name.slot for name in find_names(gold) if not set(name.words) <= found} - {"", "@"}
    for name in find_names(answer) if slots and not negated(answer) else ():
        if name.slot in slots and not set(name.words) <= known:
            yield f"names another: {' '.join(name.words)!r}"


def _words(text: str) -> list[str]:
    return _TOKEN.findall(text.lower().replace("'s", ""))


def _exchanged(gold: str, answer: str) -> bool:
    """True if two segments of the answer each join what the gold has in different ones."""
    parts = [tokens for part in _SEGMENT_END.split(gold) if (tokens := _content(part))]
    counts = Counter(token for part in parts for token in part)
    own = [{token for token in part if counts[token] == 1} for part in parts]
    joined = [
        sum(bool(tokens & part) for part in own) >= 2
        for tokens in map(_content, _SEGMENT_END.split(answer))
    ]
    return sum(joined) >= 2


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


def _houses(text: str) -> Iterator[tuple[str, str]]:
    """House numbers and the first words of their streets; a date's day and month is none."""
    taken = [(value.start, value.end) for value in find_values(text) if value.kind in _DATED]
    for match in _HOUSE.finditer(text):
        if not any(start <= match.start(1) < end for start, end in taken):
            yield match[1], match[2]


def other_kind(question: str, gold: str, answer: str) -> str | None:
    """The word of `answer` that stands where the gold has another, or None.

    Either the answer is the gold but for one word, or both have the same noun after it: "the
    power button" is not "the menu button". The latter only for words that one text has and
    the other (or the question) lacks; names, participles and adverbs are let be.
    """
    wanted, given = (
        [word for word in _words(text) if word not in _ARTICLES] for text in (gold, answer)
    )
    if len(wanted) == len(given):
        changed = [pair for pair in zip(wanted, given, strict=True) if pair[0] != pair[1]]
        stems = [content_stems(word) for pair in changed for word in pair]
        if len(changed) == 1 and all(stems) and stems[0] != stems[1] and len(wanted) > _SHORTEST:
            return changed[0][1]
    known = {*content_stems(gold), *content_stems(question)}
    said = set(content_stems(answer))
    kinds = {noun: word for word, noun in _described(answer) if word not in known}
    for word, noun in _described(gold):
        other = kinds.get(noun)
        if word not in said and other and not _akin(word, other):
            return other
    return None


def _akin(one: str, other: str) -> bool:
    """True for words of one family (drain, drainage), and for two comparatives."""
    return one[:_SAME_START] == other[:_SAME_START] or (one[-2:] == "er" == other[-2:])


def _described(text: str) -> Iterator[tuple[str, str]]:
    """Stems of each two neighbouring content words in lower case, such as "menu button"."""
    for match in _PAIR.finditer(text):
        stems = [content_stems(word) for word in match.groups()]
        if all(stems) and not (
            match[1].endswith(_SKIPPED_ENDINGS) or _VAGUE & {match[1], match[2]}
        ):
            yield stems[0][0], stems[1][0]


# ---- What a question asks for, and what an answer claims.

Wanted = Kind | str  # a kind of value, "name", or "price"


class Asked(NamedTuple):
    """The kinds of value that a question asks for (may be none), and whether for text too."""

    kinds: frozenset[Wanted]
    text: bool


@dataclass(frozen=True, slots=True)
class Claims:
    """A text taken apart. `denied` values are mentioned but taken back; such names are left out."""

    text: str
    values: tuple[Value, ...]
    denied: tuple[Value, ...]
    names: tuple[Name, ...]


# "What is the price and size of": all that the gold says is asked for.
_BOTH = re.compile(
    r"\bwhat(?:'s| is| are| was| were) (?:the|his|her|its|their|our|my|your) (?:[\w-]+ ){1,2}and ",
    re.IGNORECASE,
)
# What a price can be given as; a plain number only where the gold has none of the others.
_PRICES: tuple[Kind, ...] = ("money", "percent", "measure")
_ASKED: tuple[tuple[re.Pattern[str], tuple[Wanted, ...]], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), kinds)
    for pattern, kinds in (
        (r"\bwhen\b|\b(?:what|which) (?:\w+ ){0,2}(?:dates?|days?|month|year|deadline)\b"
         r"|\b(?:date|deadline|due date|dates) (?:of|for|and)\b", ("date", "time")),
        (r"\bwhat time\b|\btime (?:of|is|was|does|do|will)\b|\band time\b", ("time",)),
        (r"\bwho(?:m|se)?\b|\bwhich (?:person|employee|colleague)\b", ("name", "email")),
        (r"\bhow much\b|\b(?:costs?|price|salary|bonus|fee|budget|amount|rent|rate|total)\b"
         r"(?! (?:series|indices|index|center))", (*_PRICES, "price")),
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
_MOVED = re.compile(
    r"\b(?:moved|changed|rescheduled|postponed|pushed|shifted|delayed|extended|brought|raised|"
    r"lowered|increased|decreased|reduced|revised|corrected|updated)\b[^.;]{0,60}?"
    r"(?P<old>\bfrom [^.;]{1,60}?)(?= to\b)",
    re.IGNORECASE,
)
# Mentioned beside the answer: "the old one, 9020, ...", "$980, but in the end $1,140".
_SET_ASIDE = re.compile(
    r"(?<=[;,.(] )(?P<former>(?:the|its|his|her|our|your|their) (?:old|former|previous) \w+"
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
    denied = _denied_spans(text)

    def is_denied(start: int) -> bool:
        return any(first <= start < last for first, last in denied)

    values = find_values(text)
    names = [
        name
        for name in find_names(text)
        if not any(value.start < name.end and name.start < value.end for value in values)
    ]
    for value in values:
        if value.kind == "email":
            words = tuple(re.findall(r"[a-z]+", str(value.key).split("@", maxsplit=1)[0]))
            if len(words) > 1:
                names.append(Name(words, value.start, value.end, "@", False))
    return Claims(
        text,
        tuple(value for value in values if not is_denied(value.start)),
        tuple(value for value in values if is_denied(value.start)),
        tuple(name for name in names if not is_denied(name.start)),
    )


def _denied_spans(text: str) -> list[tuple[int, int]]:
    """Stretches whose values are denied: from a negation to the end of its clause."""
    spans = [match.span("old") for match in _MOVED.finditer(text)]
    spans += [match.span(match.lastgroup or 0) for match in _SET_ASIDE.finditer(text)]
    starts = [(start, start) for start in negations(text)]
    starts += [match.span() for match in _TAKEN_BACK.finditer(text)]
    for start, read in starts:
        end = _DENIAL_ENDS.search(text, read)
        spans.append((start, end.start() if end else len(text)))
    return spans


def key_values(gold: Claims, asking: Claims, wanted: Asked) -> list[Value]:
    """The values of `gold` that an answer must state.

    Those of the kinds asked for, before any aside, if there are any; otherwise all that
    the question does not have. The end of a time range, a bare "one", and what a number is
    "out of" are never needed.
    """
    needed = [
        value
        for value in gold.values
        if not (value.kind == "time" and getattr(value.key, "ends", False))
        and not gold.text[: value.start].lower().endswith(" out of ")
        and not (
            value.kind == "number"
            and gold.text[value.start : value.end].lower() == "one"
            and "number" not in wanted.kinds
        )
    ]
    kinds = set(wanted.kinds)
    if "price" in kinds and not any(value.kind in _PRICES for value in needed):
        kinds.add("number")
    pair = _BOTH.search(asking.text)
    both = pair is not None and not asked(asking.text[pair.end() :]).kinds
    focused = [value for value in needed if both or value.kind in kinds]
    if not focused:
        if "name" in kinds and key_names(gold, "", wanted):
            return []
        known = [] if is_choice(asking.text) else asking.values
        return [v for v in needed if all((v.kind, v.key) != (k.kind, k.key) for k in known)]
    aside = _ASIDE.search(gold.text, focused[0].end)
    return [value for value in focused if aside is None or value.start < aside.start()]


def key_names(gold: Claims, question: str, wanted: Asked) -> list[Name]:
    """The names of `gold` that an answer must state.

    For a "who" question: its subject if the next word is the question's verb ("Ann
    recommended Bob" for "Who recommended ..."), otherwise every name that the question
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
    if "name" not in wanted.kinds:
        rest = gold.text
        for name in reversed(names):
            rest = rest[: name.start] + rest[name.end :]
        return names if not content_stems(rest) else []
    names = [name for name in names if name.slot not in ("in", "at", "near", "of")] or names
    group = [names[0]]
    for name in names[1:]:
        if re.fullmatch(r",? ?(?:and|&)? ?", gold.text[group[-1].end : name.start]):
            group.append(name)
    verb = re.match(r" (\w+)", gold.text[group[-1].end :])
    if verb and set(content_stems(verb[1])) & set(content_stems(question)):
        return group
    aside = _ASIDE.search(gold.text, names[0].end)
    return [name for name in names if aside is None or name.start < aside.start()]


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
    known = _words_grounded(asking.text)
    names = [
        name
        for name in said.names
        if name.slot != "@"
        and not _words_grounded(*name.words) <= known
        and not _opens(name, said.text)
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
    words = _words_grounded(*(each.text for each in claims))
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


def _words_grounded(*texts: str) -> frozenset[str]:
    """The words of the texts in lower case, without accents: addresses have none."""
    plain = unicodedata.normalize("NFKD", " ".join(texts).lower())
    return frozenset(_WORD.findall("".join(c for c in plain if not unicodedata.combining(c))))


def _named(name: Name, mail: _Read, known: frozenset[str]) -> bool:
    if _words_grounded(*name.words) <= mail.words | known:
        return True
    return any(states_name(name.words, each.text, list(each.names)) for each in mail.claims)


def _opens(name: Name, text: str) -> bool:
    before = text[: name.start].rstrip()
    return len(name.words) == 1 and (not before or before[-1] in ".;!?:")


# ---- Whether an answer is right, given the gold answer.

MAX_VALUES = 40  # an answer with so many more values than its gold is a list of candidates
YES_NO_RECALL = 0.3  # of the gold's and question's stems, for a yes or no given as a statement


def ruled(question: Question, answer: str | None, judge: str) -> Verdict | None:
    """The verdict of `judge` by rule 1, which all judges share; None where it does not settle it.

    Raises UserError for a question without a gold answer.
    """
    gold, abstained = question.answer, is_abstention(answer)
    if question.answerable is False or (gold is not None and is_abstention(gold)):
        reason = "abstained on" if abstained else "answered"
        return Verdict(abstained, None, judge, f"{reason} an unanswerable question")
    if gold is None:
        raise UserError(
            f"question {question.id} has no answer to judge against: "
            "give it `answer`, or set `answerable` to false"
        )
    if answer is None or abstained:
        return Verdict(False, None, judge, "abstained on an answerable question")
    if _plain_judge(answer).casefold() == clean(gold).casefold():
        return Verdict(True, None, judge, "is the gold answer")
    return None


def with_grounding(
    verdict: Verdict, question: Question, answer: str | None, mails: Sequence[Email]
) -> Verdict:
    """The verdict, and whether the answer stands in `mails`; not asked of an abstention."""
    if answer is None or not mails or is_abstention(answer):
        return verdict
    grounding = grounded_in(question.question, answer, mails)
    return replace(verdict, grounded=grounding.grounded, reason=grounding.added_to(verdict.reason))


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
_OR_JUDGE = re.compile(
    r"[ ,;()\"']{0,3}(?:or|and/or|alternatively|maybe|perhaps|possibly|otherwise|if not|/|vs\.?|"
    r"versus)(?!\w)(?: (?:on|at|by|in|even|maybe|perhaps|possibly|to|for|it|is|was|from|around|"
    r"about|the|else|\w{2,6}day)\b){0,4} ?,? ?",
    re.IGNORECASE,
)
_VAGUE_JUDGE = re.compile(
    r"(?:later|earlier|another|others?|some(?:one|body|thing)|thereabouts|sooner|any\w*|next|"
    r"(?:day|week|month|one|following|previous) (?:after|before|day|week|month|one))\b",
    re.IGNORECASE,
)


class OfflineJudge:
    """The judge without a model; deterministic. Its rules stand at the top of this module."""

    name = "offline/2"

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
        fault = next(
            filter(
                None, _faults_judge(question, read_claims(question.answer), _plain_judge(answer))
            ),
            None,
        )
        return Verdict(
            fault is None, None, self.name, fault or "states what the gold answer states"
        )


def _plain_judge(answer: str) -> str:
    return _WRAPPING.sub("", clean(answer))


def _faults_judge(question: Question, gold: Claims, text: str) -> Iterator[str | None]:
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
    yield mixup(asking.text, gold.text, answer.text)
    wanted = asked(asking.text)
    values, names = key_values(gold, asking, wanted), key_names(gold, asking.text, wanted)
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
    kinds = wanted.kinds | {"number"} if "price" in wanted.kinds else wanted.kinds
    if wanted.text or not (names or any(value.kind in kinds for value in values)):
        yield text_fault(
            asking.text, _without(gold, [*values, *denied]), answer.text, bool(values or denied)
        )


def _without(gold: Claims, values: list[Value]) -> str:
    """The gold's text without those of its values that have been compared already."""
    text = gold.text
    for value in sorted(values, key=lambda value: -value.start):
        text = f"{text[: value.start]} {text[value.end :]}"
    return text


def _contact_fault(values: list[Value], names: list[Name], answer: Claims) -> str | None:
    """For "who": the gold's address or its name will do, and the address's owner by name."""
    for value in values:
        if value.kind != "email":
            continue
        owner = tuple(re.findall(r"[a-z]+", str(value.key).split("@", maxsplit=1)[0]))
        if any(other.key == value.key for other in answer.values):
            return None
        if len(owner) > 1 and states_name(owner, answer.text, list(answer.names)):
            return None
    if names and all(states_name(n.words, answer.text, list(answer.names)) for n in names):
        return None
    return "names neither the person nor the address"


def _polarity_fault(asking: Claims, gold: Claims, answer: Claims) -> str | None:
    wanted = polarity(gold.text)
    if wanted is None:
        wanted = not negated(gold.text)
    if says_both(answer.text):
        return "says yes and no"
    known = set(content_stems(f"{gold.text} {asking.text}"))
    stems = set(content_stems(answer.text))
    hits = len(known & stems)
    said = polarity(answer.text)
    beyond = set(content_stems(gold.text)) - set(content_stems(asking.text))
    if said is None and not stems and is_elliptic(answer.text):
        said = not negated(answer.text)
    elif said is None and beyond and len(beyond & stems) >= FEW_RECALL * len(beyond):
        rest = _YES_NO_GOLD.sub("", gold.text)  # the gold's reason, given alone
        said = wanted if negated(answer.text) == negated(rest) else not negated(answer.text)
    elif said is None:
        needed = 1 if stems <= known and has_auxiliary(answer.text) else YES_NO_RECALL * len(known)
        if hits < max(needed, len(stems) / 2):
            return "says neither yes nor no"
        said = not negated(answer.text)
    elif said and negated(answer.text) and not negated(gold.text):
        return "says yes, and denies it"
    elif not hits and len(stems) > FEW:
        return "says yes or no to something else"
    words = set(re.findall(r"\w+", f"{gold.text} {asking.text}".lower()))
    subject = next((name for name in answer.names if not name.slot), None)
    if subject and not is_part(subject, words, answer.text):
        return f"speaks of another: {' '.join(subject.words)!r}"
    return None if said == wanted else "says yes for no, or no for yes"


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
    stated: list[Value] = []
    for value in candidates:
        shown = answer.text[value.start : value.end]
        if not any(compatible(other, value, near) for other in known):
            return f"has another {value.kind}: {shown!r}"
        if any(_clash(other, value, near, known) for other in stated):
            return f"has alternatives of one {value.kind}: {shown!r}"
        has_or = is_choice(shown) or _followed_by_or(answer, value.end, value.kind)
        if has_or and not is_choice(gold.text):
            return f"offers an alternative to {shown!r}"
        stated.append(value)
    return None


def _clash(one: Value, other: Value, near: dt.date | None, known: list[Value]) -> bool:
    """True if two dates or times say different things of one known value."""
    if one.kind != other.kind or one.kind not in ("date", "time"):
        return False
    return not compatible(one, other, near) and any(
        same_value(value, one, near) and same_value(value, other, near) for value in known
    )


def _followed_by_or(answer: Claims, end: int, kind: str) -> bool:
    """True if "or" follows at `end` with another value of the kind, or with something vague."""
    match = _OR_JUDGE.match(answer.text, end)
    if match is None:
        return False
    family = next((kinds for kinds in _FAMILIES if kind in kinds), (kind,))
    starts = {value.start for value in answer.values if value.kind in family}
    if "name" in family:
        starts |= {name.start for name in answer.names}
    return match.end() in starts or bool(_VAGUE_JUDGE.match(answer.text, match.end()))


def _names_fault(needed: list[Name], asking: Claims, gold: Claims, answer: Claims) -> str | None:
    """A name that the answer lacks, or one that stands where the gold's should."""
    if not needed:
        return None
    stated: list[Name] = []
    for name in needed:
        found = states_name(name.words, answer.text, list(answer.names))
        is_thing = "name" not in asked(asking.text).kinds and not negated(answer.text)
        if found is None and is_thing:
            found = names_thing(name.words, answer.text)
        if found is None:
            return f"lacks the name {' '.join(name.words)!r}"
        stated.append(found)
    named = {stem for name in answer.names for stem in content_stems(" ".join(name.words))}
    stems = set(content_stems(answer.text)) - named
    if len(stems) > 2 * FEW and not stems & set(content_stems(f"{gold.text} {asking.text}")):
        return "names the person in another matter"
    slots = {name.slot for name in stated} | {"", "@"}
    words = set(re.findall(r"\w+", gold.text.lower()))
    if not is_choice(asking.text):
        words |= set(re.findall(r"\w+", asking.text.lower()))
    for name in answer.names:
        has_or = name.slot in slots and _followed_by_or(answer, name.end, "name")
        if has_or and not is_choice(gold.text):
            return f"offers an alternative to {' '.join(name.words)!r}"
        is_known = any(names_match(other.words, name.words) for other in (*gold.names, *needed))
        if name.slot in slots and not is_known and not is_part(name, words, answer.text):
            return f"names another: {' '.join(name.words)!r}"
    return None


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
