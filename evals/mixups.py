"""Whether an answer puts the gold's own words together wrongly.

Word overlap can't see it: "the rear tyres now, the front ones later" has every word
of its opposite. `mixup` gives the rules. Expects texts from `evals.normalise.clean`.
Knows nothing of questions' kinds or of verdicts.
"""

import re
from collections import Counter
from collections.abc import Iterator

from evals.names import find_names
from evals.normalise import find_values
from evals.words import content_stems, negated

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
