"""What a text claims and what a question asks for: values and names, denials, yes or no, content.

`read_claims` takes a text apart. The other functions expect text from `evals.judges.values.clean`.
The words that they know are in `vocabulary.txt`.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import dropwhile
from typing import NamedTuple

import Stemmer

from evals.judges.values import (
    MAX_CHARS,
    Value,
    clean,
    find_values,
    phrases,
    vocabulary,
    whole_words,
)

# ---- Names of people, and of other things with capitals.

_NOT_NAMES = frozenset(word for line in vocabulary("no-name") for word in line)
_NICKNAMES = [frozenset(line) for line in vocabulary("nick")]
_FEMININE = frozenset("a e ia ie ina ine ette ella elle".split())  # Stefan is not Stefanie
_PARTICLES = "de|la|van|von|der|den|del|di|da|bin|al|el"
# A word with a capital; a full stop only after an initial or a title.
_CAPITAL = r"[A-Z](?:(?:r|rs|s|t)?\.|[\w'-]{0,30})"
_NAME = re.compile(
    rf"(?<![\w@.]){_CAPITAL}"
    rf"(?: (?:(?:{_PARTICLES}|of(?: the)?) ){{0,2}}{_CAPITAL}(?!@)){{0,4}}(?![\w@])"
)
_LOWER = f"{_PARTICLES}|to|from|with|for|of|at|in|by|via|under|near|on|about|{'|'.join(_NOT_NAMES)}"
_LOWER_WORD = re.compile(rf"(?<![\w'])(?!(?:{_LOWER})(?![\w']))[a-z][\w']*")
_NAME_WORD = re.compile(r"[\w-]+(?:'(?!s\b)\w+)*")


class Name(NamedTuple):
    """A name's words in lower case, and where it stands."""

    words: tuple[str, ...]
    start: int
    end: int


def find_names(text: str) -> list[Name]:
    """The names in `text`, in order, without titles and initials' full stops."""
    if text == text.lower():
        text = _LOWER_WORD.sub(lambda word: word[0].capitalize(), text)
    names: list[Name] = []
    for match in _NAME.finditer(text):
        words = list(_NAME_WORD.finditer(match[0].removesuffix("'s").lower()))
        words = list(dropwhile(lambda word: word[0] in _NOT_NAMES, words))
        if words:
            kept = (word[0] for word in words if word[0] not in ("of", "the"))
            start, end = (match.start() + each for each in (words[0].start(), words[-1].end()))
            names.append(Name(tuple(kept), start, end))
    return names


def _same_first(one: str, other: str) -> bool:
    """True for one first name in two forms: an initial, a short form, a known nickname."""
    short, long = sorted((one.rstrip("."), other.rstrip(".")), key=len)
    if short == long or any({short, long} <= names for names in _NICKNAMES):
        return True
    is_feminine = len(short) > 3 and long.removeprefix(short) in _FEMININE
    return long.startswith(short) and not is_feminine


def same_name(gold: tuple[str, ...], answer: tuple[str, ...]) -> bool:
    """True if the words `answer` name the person (or thing) that `gold` names.

    Initials do. Else a gold of one word must stand in the answer. Of more words the last must, and
    the word before it, if any, must be a form of the gold's first; a first name alone does, too.
    """
    short, long = sorted((gold, answer), key=lambda words: len("".join(words)))
    initials = "".join(word[0] for word in " ".join(long).replace("-", " ").split())
    if len(initials) > 1 and "".join(short).replace(".", "") == initials:
        return True
    if len(gold) == 1:
        return gold[0] in answer
    first = [word for word in answer if word != gold[-1]]
    if gold[-1] not in answer:
        return len(first) == 1 and len(first[0]) > 2 and _same_first(gold[0], first[0])
    return not first or any(_same_first(gold[0], word) for word in first)


def opens_sentence(name: Name, text: str) -> bool:
    """True if the name is one word that opens a sentence of `text`."""
    before = text[: name.start].rstrip()
    return len(name.words) == 1 and (not before or before[-1] in ".!?:")


# ---- The words that carry a text's content.

_WORD = re.compile(r"[a-z0-9]+(?:[.&][a-z0-9]+)*")
# Function words, and the verbs of reporting, which paraphrases exchange freely.
_STOP_WORDS = frozenset(word for line in vocabulary("stop") for word in line)


def _stems(words: list[str]) -> list[str]:
    # A stemmer is not safe to share between threads; making one costs a microsecond.
    stems: list[str] = Stemmer.Stemmer("english").stemWords(words)
    return stems


# The stem that stands for the stems of words that everyday mail exchanges freely.
_SYNONYMS = {
    stem: stems[0] for line in vocabulary("same") for stems in [_stems(line)] for stem in stems
}


@lru_cache(maxsize=2_048)
def content_stems(text: str) -> tuple[str, ...]:
    """The stems of the words that carry content, in order, with repeats; synonyms have one."""
    words = [word for word in _WORD.findall(text.lower()) if word not in _STOP_WORDS]
    return tuple(_SYNONYMS.get(stem, stem) for stem in _stems(words))


# ---- Denials, opposites, yes and no.

_NEGATION = re.compile(
    rf"\b(?:(?:{'|'.join(phrases('no-denial'))})\b|(?P<denial>{'|'.join(phrases('denial'))})\b)",
    re.IGNORECASE,
)
_KIN = re.compile(rf"'s (?:{'|'.join(phrases('kin'))})\b", re.IGNORECASE)
_BEFORE_OTHER = re.compile(
    rf"\b(?:{'|'.join(phrases('than'))}) (?:the )?(?:\w{{1,4}}\.? )?$", re.IGNORECASE
)
_YES, _NO = whole_words("yes"), whole_words("no")
_AUXILIARY = whole_words("auxiliary")
_OPPOSITES = {
    one: other for line in vocabulary("opposite") for one, other in (line, reversed(line))
}


def negations(text: str) -> list[int]:
    """Where in `text` each denial begins; set phrases such as "no problem" don't count."""
    return [match.start() for match in _NEGATION.finditer(text) if match["denial"]]


def asks_yes_no(text: str) -> bool:
    """True if the text opens as a question for yes or no does ("Did", "Is")."""
    return bool(_AUXILIARY.match(text))


def beside(text: str, name: Name) -> bool:
    """True if `text` only relates another to the name: "older than Ann", "Ann's sister"."""
    before, after = text[max(0, name.start - 40) : name.start], text[name.end : name.end + 20]
    return bool(_BEFORE_OTHER.search(before) or _KIN.match(after))


def polarity(text: str) -> bool | None:
    """True if the text opens a sentence with yes, False with no, None with neither or both."""
    openings = [each.strip(" \"'*-:([,") for each in re.split(r"[.;:!?]+ ?", text)]
    found = {bool(_YES.match(each)) for each in openings if _YES.match(each) or _NO.match(each)}
    return found.pop() if len(found) == 1 else None


def opposed(gold: str, answer: str) -> bool:
    """True if `answer` has the opposite of a word of `gold`, and lacks the word."""
    wanted, given = (set(_stems(_WORD.findall(text.lower()))) for text in (gold, answer))
    return any(
        {_OPPOSITES.get(stem), f"un{stem}", stem.removeprefix("un")} & (given - wanted)
        for stem in wanted - given
    )


# ---- What a question asks for.

_ASKED = [
    (re.compile(pattern, re.IGNORECASE), kinds.split(","))
    for kinds, pattern in (line.split(maxsplit=1) for line in phrases("asks"))
]
_CHOICE = re.compile(
    r"\b(?!(?<=more )or less)or\b(?! so\b)|\bunless\b.{0,60}\bthen\b", re.IGNORECASE
)


def asked(question: str) -> frozenset[str]:
    """What `question` asks for: kinds of value, "name", "text"; empty if its words don't tell."""
    return frozenset(
        kind for pattern, kinds in _ASKED if pattern.search(question) for kind in kinds
    )


def is_choice(text: str) -> bool:
    """True if the text names alternatives ("May 3 or May 4", "May 3 unless ..., then May 4")."""
    return bool(_CHOICE.search(text))


# ---- What a text claims.

_DENIAL_ENDS = re.compile(r"[;:!?(),]|\.(?= |$)|\bbut\b", re.IGNORECASE)
_TAKEN_BACK = whole_words("taken-back")
# Beside the answer: "moved from ... to", "the old one, 9020, ...", "her note from May 30".
_SET_ASIDE = re.compile("|".join(phrases("aside")), re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Claims:
    """A text taken apart, without the values and names that it takes back.

    `denied` are the values that it takes back; `negated` says whether it denies anything.
    """

    text: str
    values: tuple[Value, ...]
    denied: tuple[Value, ...]
    names: tuple[Name, ...]
    negated: bool


# A question and its gold answer are read for each of their episodes.
@lru_cache(maxsize=4_096)
def read_claims(text: str, limit: int = MAX_CHARS) -> Claims:
    """The claims of `text`, which is cleaned (and cut at `limit`) first."""
    text = clean(text, limit)
    spans = [match.span(match.lastgroup or 0) for match in _SET_ASIDE.finditer(text)]
    denials = negations(text)
    covered = -1
    for start in sorted([*denials, *(match.start() for match in _TAKEN_BACK.finditer(text))]):
        if start >= covered:  # else it stands in the last denial, which ends where this one does
            end = _DENIAL_ENDS.search(text, start)
            covered = end.start() if end else len(text)
            spans.append((start, covered))

    def is_denied(part: Value | Name) -> bool:
        return any(first <= part.start < last for first, last in spans)

    values = find_values(text)
    names = [
        name
        for name in find_names(text)
        if not any(value.start <= name.start < value.end for value in values)
    ]
    return Claims(
        text,
        tuple(value for value in values if not is_denied(value)),
        tuple(value for value in values if is_denied(value)),
        tuple(name for name in names if not is_denied(name)),
        bool(denials),
    )


# ---- Whether an answer talks to whoever grades it instead of answering.


_APPEAL = re.compile(
    re.sub(
        "GOLD|GOOD|WELL|REPLY|MARKER|DEAR",
        lambda kind: f"(?:{'|'.join(phrases(kind[0].lower()))})",
        "|".join(phrases("appeal")),
    ),
    re.IGNORECASE,
)


def appeal(text: str) -> str | None:
    """The first words in `text` (cleaned) that address a grader or a model, or None."""
    found = _APPEAL.search(text)
    return found[0].strip() if found else None
