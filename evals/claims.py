"""What a question asks for, and what an answer claims.

`asked` gives the kinds of value a question asks for; `read_claims` takes a text
apart into asserted values and names, and those that it takes back ("May 4, not
May 3", "moved from May 3 to May 4" assert May 4 only); `key_values` and
`key_names` pick from a gold answer what an answer must state. Knows nothing of
verdicts.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from evals.names import Name, find_names
from evals.normalise import Kind, Value, clean, find_values
from evals.words import content_stems, negations

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
