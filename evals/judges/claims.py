"""Extract what a text claims and what a question asks for: values, names, denials, content words.

`clean` normalizes a text, with numbers in figures; `read_claims` parses it. All words and patterns
are in `vocabulary.txt`. Their repetitions are bounded, so that hostile text costs linear time.
"""

import datetime as dt
import re
import unicodedata
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from importlib.resources import files
from itertools import dropwhile
from typing import Any, NamedTuple

import Stemmer

from art_e.text import CLASSES

_LINES = (files("evals.judges") / "vocabulary.txt").read_text(encoding="utf-8").splitlines()


def phrases(kind: str) -> list[str]:
    """Return the lines of a kind in `vocabulary.txt`."""
    return [line.removeprefix(f"{kind} ") for line in _LINES if line.startswith(f"{kind} ")]


def _words(kind: str) -> list[list[str]]:
    return [line.split() for line in phrases(kind)]


def _by_name(kind: str) -> dict[str, str]:
    """Map every other word of a kind's lines to the first word of its line."""
    return {name.replace("_", " "): first for first, *names in _words(kind) for name in names}


def _expand(form: str) -> str:
    """Replace each kind in capitals in `form` by an alternation of its names or lines."""

    def alternatives(capitals: re.Match[str]) -> str:
        kind = capitals[0].lower()
        names = _by_name(kind) if kind in ("part", "scale", "unit", "zone") else phrases(kind)
        return f"(?:{'|'.join(names)})" if names else capitals[0]

    return re.sub("[A-Z]{3,6}", alternatives, form)


def pattern(kind: str, form: str = "{}") -> re.Pattern[str]:
    """Compile the lines of a kind, regular expressions, as alternatives within `form`."""
    return re.compile(_expand(form.format(f"(?:{'|'.join(phrases(kind))})")), re.IGNORECASE)


# ---- Plain text.

MAX_CHARS = 4000  # of an answer; the rest is ignored

_PLAINER = [
    (re.compile(_expand(form), re.IGNORECASE), plain)
    for form, plain in (line.split(" => ") for line in phrases("plain"))
]
_SIGNS = str.maketrans(_by_name("sign"))
_INVISIBLE = re.compile(rf"{CLASSES['hidden']}|\0")


@lru_cache(maxsize=4_096)
def clean(text: str, limit: int = MAX_CHARS) -> str:
    """Return `text` with plain quotes and hyphens, single spaces and figures, cut at `limit`. Line
    breaks become " ; ", because a new line starts a new statement."""
    text = unicodedata.normalize("NFKC", text[: 4 * limit].translate(_SIGNS))[: 4 * limit]
    text = _INVISIBLE.sub("", text)
    text = " ".join(re.sub(r"[\r\n]+", " ; ", text.strip()).split())[:limit]
    for form, plain in _PLAINER:
        text = form.sub(plain, text)
    return text[:limit]


# ---- Values and names.


class Value(NamedTuple):
    """A value and its character offsets. `kind` is date, weekday, time, zone, money, percent,
    duration, measure, number, phone, email, web, code, ordinal or name. `key` is (year, month, day,
    part of the month) of a date, the lower-case words of a name, and else equivalent texts."""

    kind: str
    key: tuple[Any, ...]
    start: int
    end: int


def same_value(gold: Value, answer: Value, near: dt.date | None = None) -> bool:
    """Return whether `answer` states the same as `gold`; dates without a year are near `near`."""
    one, other, kinds = gold.key, answer.key, {gold.kind, answer.kind}
    if kinds == {"name"}:
        return _same_name(one, other)
    if kinds == {"date"}:
        # The answer may omit the year, and the month of a day.
        is_same = one[2:] == other[2:] and (one[1] == other[1] or (other[2] and not other[1]))
        return bool(is_same) and not conflict(gold, answer, near)
    if kinds <= _UNIT_KINDS:
        return bool(one[0] == other[0])
    # A unit may be omitted ("12.4k" for "$12,400"), but 15 people are not 15 percent.
    return kinds.isdisjoint(("date", "name")) and not set(one).isdisjoint(other)


def conflict(one: Value, other: Value, near: dt.date | None = None) -> bool:
    """Return whether the dates contradict; one without a year must be within 9 months of `near`."""
    pairs = list(zip(one.key, other.key, strict=True))
    if any(a is not None and b is not None and a != b for a, b in pairs):
        return True
    year, month = (a or b for a, b in pairs[:2])
    if near is None or one.key[0] == other.key[0] or not year:
        return False
    return bool(abs(12 * (year - near.year) + (month or 6) - near.month) > 9)  # in months


def _same_name(gold: tuple[str, ...], answer: tuple[str, ...]) -> bool:
    """Return whether both are the same name: the answer has gold's last word, and no first name or
    a form of gold's first name; or it has only a form of gold's first word."""
    first = [word.rstrip(".") for word in answer if word != gold[-1]]
    if len(gold) == 1 or (gold[-1] not in answer and (len(first) > 1 or len(first[0]) < 3)):
        return gold[-1] in answer
    pairs = [sorted((gold[0].rstrip("."), word), key=len) for word in first]
    is_form = (b.startswith(a) or any({a, b} <= names for names in _NICKNAMES) for a, b in pairs)
    return not first or any(is_form)


_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_PARTS, _ZONES = _by_name("part"), _by_name("zone")
_UNITS = _by_name("unit") | _by_name("mark")
_SCALES = _by_name("scale") | _by_name("letter")  # "$3M" are millions, "3 m" are metres
_VALUES = [  # in the order of the search
    (kind, re.compile(_expand(form), re.NOFLAG if kind == "name" else re.IGNORECASE))
    for kind, form in (line.split(" ", 1) for line in phrases("value"))
]
_UNIT_KINDS = {"money", "percent", "duration", "measure"}
_NOT_NAMES = frozenset(word for line in _words("no-name") for word in line)
_NICKNAMES = [set(line) for line in _words("nick")]
_NAME_WORD = re.compile(r"[\w-]+(?:'(?!s\b)\w+)*")
_Read = Iterator[tuple[str, tuple[Any, ...]]]


def find_values(text: str) -> list[Value]:
    """Return the values and names of a `clean` text, in order, without overlaps."""
    values, masked = list[Value](), text
    for kind, pattern in _VALUES:
        for match in list(pattern.finditer(masked)):
            start, end = match.end() - len(match[0].lstrip()), match.end()
            keys = list(_READERS.get(kind, _label)(match, kind))
            if keys:
                values += [Value(name, key, start, end) for name, key in keys]
                masked = masked[:start] + "\0" * (end - start) + masked[end:]
    return sorted(values, key=lambda value: value.start)


def _date(match: re.Match[str], kind: str) -> _Read:
    parts = match.groupdict(default="")
    year, month = int(parts.get("year") or 0), int(parts.get("month") or 0)
    if name := parts.get("name"):
        month = _MONTHS.index(name[:3].lower()) + 1
    if weekday := parts.get("weekday"):
        yield "weekday", (weekday[:3].lower(),)
    if 0 < year < 100:
        year += 1900 if year >= 70 else 2000
    part = _PARTS.get(parts.get("part", "").lower())
    days = re.findall(r"\d{1,2}", parts.get("days") or parts.get("after") or "")
    for number in days or ["0"] * (not weekday):
        first, day = (int(number), month) if month > 12 else (month, int(number))  # 27/4/2001
        if first <= 12 and day <= 31:
            yield kind, (year or None, first or None, day or None, part)


def _time(match: re.Match[str], kind: str) -> _Read:
    hour, minutes, half = int(match["hour"]), match["min"], (match["half"] or "").lower()
    # 5.30 is a number unless am or pm says otherwise.
    if half or match["clock"] or (minutes and "." not in match[0][:3]):
        hour = hour % 12 + 12 * (half == "p") if half and hour <= 12 else hour % 24
        # Without am or pm it may be either.
        hours = [hour] if half or not 1 <= hour <= 12 else [hour % 12, hour % 12 + 12]
        yield kind, tuple(f"{each}{int(minutes or 0):02}" for each in hours)


def _amount(match: re.Match[str], kind: str) -> _Read:
    name = (match["mark"] or match["unit"] or match["sign"] or "").lower().strip()
    kind, base, factor = _UNITS.get(name, "number,,1").split(",")
    power = int(_SCALES[match["scale"].strip(" -").lower()]) if match["scale"] else 0
    number = Fraction(match["number"].replace(",", "")) * 10**power
    number += Fraction(match["cents"] or 0) / 100
    total = (number - 32 if name in ("°f", "fahrenheit") else number) * Fraction(factor)
    # Rounded, because a quarter of a year is about 13 weeks.
    text = f"{float(total):.3g}" if kind in ("duration", "measure") else str(total)
    yield kind, (f"{base} {text}", *([] if kind == "percent" else [str(number)]))


def _label(match: re.Match[str], kind: str) -> _Read:
    text = match[match.lastindex or 0].upper()
    text = _ZONES.get(text.lower(), text)
    yield kind, (text if kind == "email" else re.sub(r"^V(?=\d)|[\W_]", "", text),)


def _name(match: re.Match[str], kind: str) -> _Read:
    words = _NAME_WORD.findall(match[0].removesuffix("'s").lower())
    if key := tuple(dropwhile(_NOT_NAMES.__contains__, words)):
        yield kind, key


_READERS = {"date": _date, "time": _time, "amount": _amount, "name": _name}

# ---- Content words, denials, opposites, yes and no.

_WORD = re.compile(r"[a-z0-9]+(?:[.&][a-z0-9]+)*")
# Function words, and reporting verbs, which paraphrases exchange freely.
_STOP_WORDS = frozenset(word for line in _words("stop") for word in line)


def _stems(words: list[str]) -> list[str]:
    # A stemmer is not thread-safe; creating one takes a microsecond.
    stems: list[str] = Stemmer.Stemmer("english").stemWords(words)
    return stems


# Maps the stems of synonyms to one of them.
_SYNONYMS = {stem: line[0] for line in map(_stems, _words("same")) for stem in line}
_OPPOSITE = {one: other for line in _words("opposite") for one, other in (line, reversed(line))}
_DENIAL, _DENIES_NOTHING = pattern("denial", r"\b{}\b"), pattern("no-denial", r"\b{}\b")
# Yes-no questions begin with an auxiliary verb ("Did", "Is").
_YES, _NO, YES_NO = (pattern(kind, r"\b{}\b") for kind in ("yes", "no", "auxiliary"))


@lru_cache(maxsize=2_048)
def content_stems(text: str) -> tuple[str, ...]:
    """Return the stems of content words, in order, with repeats; synonyms share a stem."""
    words = [word for word in _WORD.findall(text.lower()) if word not in _STOP_WORDS]
    return tuple(_SYNONYMS.get(stem, stem) for stem in _stems(words))


def polarity(text: str) -> bool | None:
    """Return True if a sentence begins with yes, False for no, None for neither or both."""
    openings = [each.strip(" \"'*-:([,") for each in re.split(r"[.;:!?]+ ?", text)]
    signs = {bool(_YES.match(each)) for each in openings if _YES.match(each) or _NO.match(each)}
    return signs.pop() if len(signs) == 1 else None


def has_opposite(gold: str, answer: str) -> bool:
    """Return whether `answer` replaces a word of `gold` by its opposite."""
    texts = (_stems(_WORD.findall(text.lower())) for text in (gold, answer))
    expected, actual = ({*stems, *(_SYNONYMS.get(s, s) for s in stems)} for stems in texts)
    return any(
        {_OPPOSITE.get(stem), f"un{stem}", stem.removeprefix("un")} & (actual - expected)
        for stem in expected - actual
    )


# ---- The kinds of value that a question asks for, and the claims of a text.

_ASKED = [
    (re.compile(pattern, re.IGNORECASE), kinds.split(","))
    for kinds, pattern in (line.split(" ", 1) for line in phrases("asks"))
]
# Alternatives: "May 3 or May 4", "May 3 unless ..., then May 4".
CHOICE, _TAKEN_BACK = pattern("choice"), pattern("back")
# Not the answer itself: "moved from ... to", "the old one, 9020, ...", "her note from May 30".
_SET_ASIDE = pattern("aside")
# "Based on the emails I found, ...", "(see message 4)".
_OPENER, _CLOSER = pattern("opener", r"^[\s\"'*_;:,-]*{}"), pattern("closer")
RETRACTION = pattern("retraction")
APPEAL = pattern("appeal")  # addresses a grader or a model


class Claims(NamedTuple):
    """A text's values and names, those it takes back (`denied`), and whether it has a denial."""

    text: str
    values: tuple[Value, ...]
    denied: tuple[Value, ...]
    names: tuple[Value, ...]
    negated: bool


@lru_cache(maxsize=4_096)  # a question and its gold answer recur in each of their episodes
def read_claims(text: str, limit: int = MAX_CHARS) -> Claims:
    """Return the claims of `text`, which is first cleaned and cut at `limit`."""
    text = clean(text, limit)
    # Blank out set phrases such as "no problem", which are not denials.
    affirmed = _DENIES_NOTHING.sub(lambda phrase: " " * len(phrase[0]), text)
    spans = [match.span(match.lastgroup or 0) for match in _SET_ASIDE.finditer(text)]
    spans += [match.span() for match in _TAKEN_BACK.finditer(affirmed)]
    affirmative, denied = list[Value](), list[Value]()
    for value in find_values(text.title() if text.islower() else text):
        is_denied = any(first <= value.start < last for first, last in spans)
        (denied if is_denied else affirmative).append(value)
    values = tuple(value for value in affirmative if value.kind != "name")
    # "Ann's sister" does not name Ann.
    possessive = [value for value in affirmative if text[: value.end + 1].endswith("'s ")]
    names = tuple(value for value in affirmative if value not in (*values, *possessive))
    return Claims(text, values, tuple(denied), names, bool(_DENIAL.search(affirmed)))


def asked_kinds(question: str) -> frozenset[str]:
    """Return what `question` asks for: kinds of value, "name" or "text"; empty if unclear."""
    return frozenset(kind for form, kinds in _ASKED if form.search(question) for kind in kinds)


def strip_frame(text: str) -> str:
    """Return the `clean` text without openers, sources and politeness around the answer."""
    for pattern in (_OPENER, _CLOSER) * 4:  # several may follow each other
        text = pattern.sub("", text, count=1).strip(" \"'*_;") or text
    return text
