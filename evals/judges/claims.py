"""What a question asks for and what a text claims: its values and names, without those it denies.

`appeal` finds the words with which an answer addresses whoever grades it.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from evals.judges.names import Name, find_names, negations
from evals.judges.values import Kind, Value, clean, find_values, phrases, whole_words

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


_ASKED = [
    (re.compile(pattern, re.IGNORECASE), kinds.split(","))
    for kinds, pattern in (line.split(maxsplit=1) for line in phrases("asks"))
]
_TEXT_TOO = whole_words("asks-text")
_CHOICE = re.compile(r"\bor\b|\bunless\b.{0,60}\bthen\b", re.IGNORECASE)
_DENIAL_ENDS = re.compile(
    r"[;:!?(),]|\.(?= |$)|\b(?:but|until|instead|although|though|because|so|now)\b", re.IGNORECASE
)
_TAKEN_BACK = whole_words("taken-back")
# Beside the answer: "moved from ... to", "the old one, 9020, ...", "her note from May 30".
_SET_ASIDE = re.compile("|".join(phrases("aside")), re.IGNORECASE)


def asked(question: str) -> Asked:
    """What `question` asks for; no kinds where that can't be told from its words."""
    kinds = {kind for pattern, wanted in _ASKED if pattern.search(question) for kind in wanted}
    return Asked(frozenset(kinds), bool(_TEXT_TOO.search(question)))


def is_choice(text: str) -> bool:
    """True if the text names alternatives ("May 3 or May 4", "May 3 unless ..., then May 4")."""
    return bool(_CHOICE.search(text))


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
    return Claims(
        text,
        tuple(value for value in values if not is_denied(value)),
        tuple(value for value in values if is_denied(value)),
        tuple(name for name in names if not is_denied(name)),
    )


# ---- Whether an answer talks to whoever grades it instead of answering.

_GOLD = r"(?:gold|reference|expected|ground[ -]truth|official)"
_GOOD = (
    r"(?:correct|right|true|valid|accurate|equivalent|full (?:marks|credit|points)|pass(?:ing)?)"
)
_APPEAL = re.compile(
    "|".join(phrases("appeal")).replace("GOLD", _GOLD).replace("GOOD", _GOOD), re.IGNORECASE
)


def appeal(text: str) -> str | None:
    """The first words in `text` (cleaned) that address a grader or a model, or None."""
    found = _APPEAL.search(text)
    return found[0].strip() if found else None
