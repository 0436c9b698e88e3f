"""Names in a text, the stems that carry its content, its denials, and whether it says yes or no.

Expects text from `evals.judges.values.clean`; the words that it knows are in `vocabulary.txt`.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import Stemmer

from evals.judges.values import vocabulary, whole_words

# ---- Names of people, and of other things with capitals.

_TITLES = frozenset(word for line in vocabulary("title") for word in line)
_NOT_NAMES = frozenset(word for line in vocabulary("no-name") for word in line)
_NICKNAMES = {nick: line[0] for line in vocabulary("nick") for nick in line}
_FEMININE = frozenset("a e ia ie ina ine ette ella elle".split())  # Stefan is not Stefanie
_PARTICLES = "de|la|van|von|der|den|del|di|da|bin|al|el"
_NAME = re.compile(
    rf"(?<![\w@.])[A-Z][\w'-]{{0,30}}\.?(?: (?:(?:{_PARTICLES}) ){{0,2}}"
    r"[A-Z][\w'-]{0,30}\.?(?!@)){0,4}(?![\w@])"
)
_LOWER = frozenset(f"{_PARTICLES}|to|from|with|for|of|at|in|by|via|under|near|on|about".split("|"))


class Name(NamedTuple):
    """A name's words in lower case, and where it stands."""

    words: tuple[str, ...]
    start: int
    end: int


def find_names(text: str) -> list[Name]:
    """The names in `text`, in order, without titles and initials' full stops."""
    if text == text.lower() or text == text.upper():
        text = re.sub(r"[A-Za-z][\w']*", _capitalised, text)
    names: list[Name] = []
    for match in _NAME.finditer(text):
        words = [
            (part.group().lower(), part.start(), part.end())
            for part in re.finditer(r"[\w-]+(?:'(?!s\b)\w+)*", match[0].removesuffix("'s"))
        ]
        while words and words[0][0] in _NOT_NAMES | _TITLES:
            words.pop(0)
        if not words or any(word in _NOT_NAMES for word, _, _ in words):
            continue
        start, end = match.start() + words[0][1], match.start() + words[-1][2]
        names.append(Name(tuple(word for word, _, _ in words), start, end))
    return names


def _capitalised(match: re.Match[str]) -> str:
    word = match[0].lower()
    return word if word in _NOT_NAMES | _LOWER else word.capitalize()


def same_first(one: str, other: str) -> bool:
    """True for one first name in two forms: an initial, a short form, a known nickname."""
    short, long = sorted((one.rstrip("."), other.rstrip(".")), key=len)
    if _NICKNAMES.get(short, short) == _NICKNAMES.get(long, long):
        return True
    is_start = len(short) != 2 and long.startswith(short)
    return is_start and not (len(short) > 3 and long.removeprefix(short) in _FEMININE)


def names_match(gold: tuple[str, ...], answer: tuple[str, ...]) -> bool:
    """True if the words `answer` name the person (or thing) that `gold` names.

    A gold of one word must stand in the answer. Otherwise the last word must, and the word before
    it, if any, must be a form of the gold's first word. A first name alone is not enough.
    """
    if len(gold) == 1:
        return gold[0] in answer
    if gold[-1] not in answer:
        return False
    first = [word for word in answer if word != gold[-1]]
    return not first or any(same_first(gold[0], word) for word in first)


def states_name(gold: tuple[str, ...], names: Sequence[Name]) -> Name | None:
    """The first of `names` that names `gold`."""
    return next((name for name in names if names_match(gold, name.words)), None)


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


def content_stems(text: str) -> list[str]:
    """The stems of the words that carry content, in order, with repeats; synonyms have one."""
    words = _WORD.findall(re.sub(r"'s?\b", " ", text.lower()))
    return [
        _SYNONYMS.get(stem, stem) for stem in _stems([w for w in words if w not in _STOP_WORDS])
    ]


# ---- Denials, opposites, yes and no.

_NEGATION = whole_words("denial")
_NOT_NEGATION = whole_words("no-denial")
_REFUSAL = whole_words("refusal")
_YES, _NO = whole_words("yes"), whole_words("no")
_AUXILIARY = whole_words("auxiliary")
_OPPOSITES = {
    one: other for line in vocabulary("opposite") for one, other in (line, reversed(line))
}


def negated(text: str) -> bool:
    """True if the text denies something (set phrases such as "no problem" don't)."""
    return bool(negations(text))


def negations(text: str) -> list[int]:
    """Where in `text` each denial begins (character offsets)."""
    masked = _NOT_NEGATION.sub(lambda match: "\0" * len(match[0]), text)
    return [match.start() for match in _NEGATION.finditer(masked)]


def refused(text: str) -> bool:
    """True if the text denies something, or reports a refusal."""
    return negated(text) or bool(_REFUSAL.search(text))


def asks_yes_no(text: str) -> bool:
    """True if the text opens as a question for yes or no does ("Did", "Is")."""
    return bool(_AUXILIARY.match(text))


def has_verb(text: str) -> bool:
    """True if the text has one of the verbs that open such questions."""
    return bool(_AUXILIARY.search(text))


def polarity(text: str) -> bool | None:
    """True if the text opens a sentence with yes, False with no, None with neither or both."""
    found = set()
    for sentence in re.split(r"[.;:!?]+ ?|, ?(?=(?:yes|no)\b)", text):
        opening = sentence.strip(" \"'*-:([,")
        if _YES.match(opening):
            found.add(True)
        elif _NO.match(opening):
            found.add(False)
    return found.pop() if len(found) == 1 else None


def opposed(gold: str, answer: str) -> str | None:
    """A stem of `answer` that is the opposite of one of `gold` that `answer` lacks."""
    wanted, given = (set(_stems(_WORD.findall(text.lower()))) for text in (gold, answer))
    for stem in sorted(wanted - given):
        opposites = {_OPPOSITES.get(stem), f"un{stem}" if len(stem) > 3 else None}
        if stem.startswith("un") and len(stem) > 5:
            opposites.add(stem.removeprefix("un"))
        found = [each for each in opposites if each in given and each not in wanted]
        if found:
            return found[0]
    return None
