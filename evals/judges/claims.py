"""What a text claims and what a question asks for: values and names, denials, yes or no, content.

`clean` writes a text plainly, with numbers and times of day in figures ("nine in the evening" is
9:00 pm); `read_claims` takes it apart. `find_values` finds dates, times, amounts, phone numbers,
addresses and codes, each in one spelling; `same_value` and `compatible` compare two. All words are
in `vocabulary.txt`. Repetitions in the patterns are bounded, so that hostile text costs linear
time.
"""

import calendar
import datetime as dt
import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial
from importlib.resources import files
from itertools import dropwhile
from typing import NamedTuple

import Stemmer

from art_e.text import HIDDEN

_VOCABULARY = (files("evals.judges") / "vocabulary.txt").read_text(encoding="utf-8").splitlines()


def phrases(kind: str) -> list[str]:
    """The lines of a kind in `vocabulary.txt`, without the kind."""
    return [line.removeprefix(f"{kind} ") for line in _VOCABULARY if line.startswith(f"{kind} ")]


def vocabulary(kind: str) -> list[list[str]]:
    """The lines of a kind in `vocabulary.txt`, as words."""
    return [line.split() for line in phrases(kind)]


def whole_words(kind: str) -> re.Pattern[str]:
    """Finds the lines of a kind in `vocabulary.txt`, which are regular expressions of words."""
    return re.compile(rf"\b(?:{'|'.join(phrases(kind))})\b", re.IGNORECASE)


# ---- Plain text.

MAX_CHARS = 4000  # of an answer; the rest is not read

_NUMBERS = {word: int(number) for number, *words in vocabulary("number") for word in words}
_NTHS = {word: number for number, word in vocabulary("nth")}
_BIG = {"dozen": 12, "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9}
_BIGS = "|".join(_BIG)
_TENS = "|".join(word for word, number in _NUMBERS.items() if number >= 20)
_SMALL = rf"(?:(?:{_TENS})[ -](?:{'|'.join(list(_NUMBERS)[1:10])})\b|(?:{'|'.join(_NUMBERS)})\b)"
_SPELLED = re.compile(
    rf"\b(?:{_SMALL}|an?(?= (?:{_BIGS})\b))(?:[ -](?:{_BIGS})\b(?: (?:and )?{_SMALL})?){{0,4}}"
    r"(?![\w'])",
    re.IGNORECASE,
)
_MON = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    r"sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b\.?"
)
# Letters without which a pattern finds nothing, the pattern, and what is written instead.
_PLAINER = [
    (letters.replace("_", " ").strip("-"), re.compile(pattern, re.IGNORECASE), plain)
    for line in phrases("plain")
    for (letters, pattern), plain in [
        (before.split(" ", 1), after) for before, after in [line.split(" => ")]
    ]
]
_PUNCTUATION = str.maketrans(
    "‘’‚‛“”„‟′″`´‐‑‒–—―−\u00ad", "''''\"\"\"\"'\"''-------\u200b"
)  # fmt: skip
_FRACTION_SIGN = re.compile("([0-9]{0,4}) ?([¼-¾⅓-⅞])")
_INVISIBLE = re.compile(rf"[{HIDDEN}\0]")


@lru_cache(maxsize=512)
def clean(text: str, limit: int = MAX_CHARS) -> str:
    """`text` with plain quotes and hyphens, single spaces and figures; at most `limit` characters.

    Line breaks become " ; ", since a new line is a new statement.
    """
    text = _FRACTION_SIGN.sub(
        lambda sign: f"{int(sign[1] or 0) + unicodedata.numeric(sign[2]):.6g}", text[: 4 * limit]
    )
    text = unicodedata.normalize("NFKC", text[: 4 * limit])[: 4 * limit]
    text = _INVISIBLE.sub("", text.translate(_PUNCTUATION))
    text = " ".join(re.sub(r"[\r\n]+", " ; ", text.strip()).split())[:limit]
    text = _SPELLED.sub(_in_figures, text)
    lower = text.lower()
    for letters, pattern, plain in _PLAINER:
        if letters in lower:
            text = pattern.sub(plain, text)
    return text[:limit]


def _in_figures(match: re.Match[str]) -> str:
    if match[0].lower() == "one":
        return match[0]  # "the old one"
    total = group = 0
    for word in re.split(r"[ -]", match[0].lower()):
        if word in ("hundred", "dozen"):
            group = max(group, 1) * _BIG[word]
        elif word in _BIG:
            total, group = total + max(group, 1) * _BIG[word], 0
        else:
            group += _NUMBERS.get(word, 0)
    return str(total + group)


# ---- Values.


@dataclass(frozen=True, slots=True)
class PartialDate:
    """What is known of a date. `weekday` is 0 (Monday) to 6.

    `part` is a part of the month or year ("start", "mid", "end").
    """

    year: int | None = None
    month: int | None = None
    day: int | None = None
    weekday: int | None = None
    part: str | None = None


class TimeOfDay(NamedTuple):
    """`minutes` since midnight; `either` if am or pm is not said."""

    minutes: int
    either: bool
    zone: str


class Amount(NamedTuple):
    """A number of a unit, which is `factor` times the base unit: dollars, minutes, metres."""

    number: Fraction
    base: str = ""
    factor: Fraction = Fraction(1)

    @property
    def total(self) -> Fraction:
        return self.number * self.factor


Key = PartialDate | TimeOfDay | Amount | str
_Reader = Callable[[re.Match[str]], Iterator[tuple[str, Key]]]


@dataclass(frozen=True, slots=True)
class Value:
    """One value and where it stands in the text (character offsets).

    `kind` is date, time, money, percent, duration, measure, number, phone, email, web, code or
    ordinal.
    """

    kind: str
    key: Key
    start: int
    end: int


def find_values(text: str) -> list[Value]:
    """The values of a `clean` text, in order; each stretch of text gives one kind only."""
    found: list[Value] = []
    masked = text
    for pattern, read in _READERS:
        for match in list(pattern.finditer(masked)):
            values = list(read(match))
            if values:
                start, end = match.span()
                start = end - len(match[0].lstrip())
                found += [Value(kind, key, start, end) for kind, key in values]
                masked = masked[:start] + "\0" * (end - start) + masked[end:]
    joined: list[Value] = []
    for value in sorted(found, key=lambda value: (value.start, value.end)):
        whole = joined and _whole(joined[-1], value, text[joined[-1].end : value.start])
        joined[-1:] = [whole] if whole else [*joined[-1:], value]
    return joined


def _whole(one: Value, other: Value, between: str) -> Value | None:
    """The value of which both are parts, as of "2 years, 6 months" and "Friday, May 4"."""
    first, last = one.key, other.key
    key: Key | None = None
    if isinstance(first, PartialDate) and isinstance(last, PartialDate):
        weekday, date = (first, last) if last.weekday is None else (last, first)
        is_weekday = weekday == PartialDate(weekday=weekday.weekday) and date.weekday is None
        if is_weekday and re.fullmatch(r"[,.]? ?\(?(?:the )?", between):
            key = replace(date, weekday=weekday.weekday)
    elif isinstance(first, Amount) and isinstance(last, Amount):
        is_joint = re.fullmatch(r",? ?(?:and )?", between) and one.kind in ("duration", "measure")
        if is_joint and first.base == last.base and last.total < first.factor:
            key = first._replace(number=first.number + last.total / first.factor)
    return None if key is None else Value(one.kind, key, one.start, other.end)


ROUGHLY = Fraction("0.04")  # how far apart, in shares, one amount in two units can be


def same_value(gold: Value, answer: Value, near: dt.date | None = None) -> bool:
    """True if `answer` states what `gold` states; `near` decides unstated years of dates."""
    one, other = gold.key, answer.key
    if isinstance(one, PartialDate):
        return isinstance(other, PartialDate) and states(one, other, near)
    if isinstance(one, TimeOfDay) and isinstance(other, TimeOfDay):
        is_far = one.zone and other.zone and one.zone != other.zone
        apart = abs(one.minutes - other.minutes)
        return not is_far and (apart == 0 or (apart == 720 and (one.either or other.either)))
    if isinstance(one, Amount) and isinstance(other, Amount):
        if one.base != other.base:
            # A unit may be left out ("12.4k" for "$12,400"), but 15 people are not 15 percent.
            is_bare = "" in (one.base, other.base) and "percent" not in (gold.kind, answer.kind)
            return is_bare and one.number == other.number
        # A week has 7 days; but a month has some 30.4, and two thirds are some 67 %.
        ratio = max(one.factor, other.factor) / min(one.factor, other.factor)
        is_exact = ratio.denominator == 1 and gold.kind == answer.kind
        roughly = 0 if is_exact else ROUGHLY * max(one.total, other.total)
        return abs(one.total - other.total) <= roughly
    if isinstance(one, Amount) or isinstance(other, Amount):
        amount, label = (one, other) if isinstance(one, Amount) else (other, one)
        if isinstance(label, TimeOfDay):  # "2200"
            label = f"{label.minutes // 60}{label.minutes % 60:02}"
        return isinstance(amount, Amount) and not amount.base and str(amount.number) == label
    return gold.kind == answer.kind and one == other


def compatible(gold: Value, answer: Value, near: dt.date | None = None) -> bool:
    """True if `answer` says the same as `gold` or less, or a time in another zone."""
    one, other = gold.key, answer.key
    if isinstance(one, PartialDate) and isinstance(other, PartialDate):
        return not conflict(one, other, near)
    zones = {each.zone for each in (one, other) if isinstance(each, TimeOfDay) and each.zone}
    return len(zones) == 2 or same_value(gold, answer, near)


# ---- Dates.

_PLAUSIBLE_DAYS = 270  # a date without a year is one within so many days of the question's date


def conflict(one: PartialDate, other: PartialDate, near: dt.date | None = None) -> bool:
    """True if no day can be both; `near` (the question's date) decides unstated years."""
    pairs = list(zip(astuple(one), astuple(other), strict=True))
    if any(a is not None and b is not None and a != b for a, b in pairs):
        return True
    year, month, day, *_ = (b if a is None else a for a, b in pairs)
    if near is None or one.year == other.year or not year:
        return False
    month, day = month or 6, day or 15
    nearest = dt.date(year, month, min(day, calendar.monthrange(year, month)[1]))
    return abs((nearest - near).days) > _PLAUSIBLE_DAYS


def states(gold: PartialDate, answer: PartialDate, near: dt.date | None = None) -> bool:
    """True if `answer` says what `gold` says, and nothing narrower.

    It may leave out the year, and the month of a day.
    """
    if gold.part != answer.part or conflict(gold, answer, near):
        return False
    if gold == PartialDate(weekday=gold.weekday):
        return answer.weekday == gold.weekday
    is_bare_day = answer.day is not None and answer.month is None
    is_same = gold.day == answer.day and (is_bare_day or gold.month == answer.month)
    return is_same and bool(gold.month or gold.day or gold.year == answer.year)


_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_WEEKDAYS = "mon tue wed thu fri sat sun".split()
_WORDS_TOO = frozenset("may march mar mon wed sat sun".split())  # in lower case
_PARTS = {
    "early": "start", "beginning": "start", "start": "start", "first half": "start", "mid": "mid",
    "middle": "mid", "late": "end", "end": "end", "second half": "end", "last week": "end",
}  # fmt: skip
_DAY = r"(?:[12]\d|3[01]|0?[1-9])(?:st|nd|rd|th)?(?![a-z\d:%]|-[a-z]|,\d{3}|\.\d| ?[ap]\.?m)"
_AND_DAY = r"(?: ?[-/&] ?|,? (?:to|through|until|till|and|or) (?:on )?(?:the )?|, ?)"
_DAYS = rf"{_DAY}(?:{_AND_DAY}{_DAY}){{0,12}}"
_YEAR = r"(?P<year>(?:19|20)\d\d)\b"
_PART = rf"\b(?P<part>{'|'.join(sorted(_PARTS, key=len, reverse=True))})(?: of |[- ])(?:the )?"
_DATES = (
    rf"\b{_YEAR}[-/.](?P<month>\d\d?)[-/.](?P<day>\d\d?)\b(?!-\d)",
    r"(?<![\w/.$-])(?!24/7\b)(?P<month>\d\d?)/(?P<day>\d\d?)(?:/(?P<year>\d{4}|\d\d))?"
    r"(?![\w/%]|[.,]\d)",
    r"(?<![\w/.-])(?P<month>0?[1-9]|1[0-2])/(?P<year>(?:19|20)\d\d)(?![\w/])",
    rf"(?:{_PART})?(?:(?<![\w:.$,-])(?P<before>{_DAYS})(?: of |[ -]?))?\b(?P<name>{_MON})"
    rf"(?: ?(?:the )?(?P<after>{_DAYS}))?(?:(?:,? (?:of |in )?\(?|[,-]){_YEAR})?",
    rf"{_PART}{_YEAR}",
    r"\b(?:the|on|by) (?P<day>[12]\d|3[01]|[1-9])(?:st|nd|rd|th)\b"
    r"(?! (?:floor|street|st|ave|avenue|grade|quarter|century|anniversary|annual|edition|place|"
    r"time|year|day|week|draft|round)\b)",
    r"\b(?P<weekday>mon(?:day)?|tue(?:s(?:day)?)?|wed(?:nesday)?|thu(?:r(?:s(?:day)?)?)?|"
    rf"fri(?:day)?|sat(?:urday)?|sun(?:day)?)s?\b(?:,? (?P<after>{_DAY})\b(?!-))?",
)


def _dates(match: re.Match[str]) -> Iterator[tuple[str, Key]]:
    """The dates of any of the patterns."""
    parts = match.groupdict(default="")
    year, month = int(parts.get("year") or 0), int(parts.get("month") or 0)
    days = parts.get("day") or parts.get("before") or parts.get("after") or "0"
    name, weekday = parts.get("name"), parts.get("weekday")
    if match[0].strip(" .") in _WORDS_TOO:
        return
    if name:
        month = _MONTHS.index(name[:3].lower()) + 1
    if 0 < year < 100:
        year += 1900 if year >= 70 else 2000
    for found in re.findall(r"\d{1,2}", days):
        first, day = (int(found), month) if month > 12 else (month, int(found))  # 27/4/2001
        if first <= 12 and day <= 31:
            of_week = _WEEKDAYS.index(weekday[:3].lower()) if weekday else None
            part = _PARTS.get(parts.get("part", "").lower())
            yield "date", PartialDate(year or None, first or None, day or None, of_week, part)


# ---- Times and amounts.

_ZONES = {name.replace("_", " "): zone for zone, *names in vocabulary("zone") for name in names}
_AMPM = r"(?: ?(?P<{0}>[ap])\.? ?m\b\.?)"
_TIME = (
    r"(?<![\w:.,$/-])(?P<h>[01]?\d|2[0-4])(?:[:.](?P<min>[0-5]\d)(?!\d)(?: ?h(?:rs?)?\b)?)?"
    rf"{_AMPM.format('ap')}?(?P<clock> o'?clock)?(?![\w:%]|[.,]\d)"
    r"(?: ?(?:-|to|until|till|through|or|and|/) ?(?P<h2>[01]?\d|2[0-4])"
    r"(?:[:.](?P<min2>[0-5]\d))?"
    rf"{_AMPM.format('ap2')}?(?![\w:%]|[.,]\d))?"
    rf"(?:,? ?\(?(?P<zone>{'|'.join(_ZONES)}|(?-i:[A-Z])[a-z]{{2,12}}(?= time\b|\)))\b\)?)?"
)


def _times(match: re.Match[str]) -> Iterator[tuple[str, Key]]:
    hour, half, minutes, half2 = int(match["h"]), match["ap"], match["min"], match["ap2"]
    if not (minutes or half or match["clock"] or half2 or match["min2"]):
        return
    if minutes and "." in match[0][:3] and not (half or half2):
        return  # 5.30 is a number unless am or pm says otherwise
    zone = (match["zone"] or "").lower()
    if match["h2"] and half2 and not half and int(match["h2"]) % 12 >= hour % 12:
        half = half2  # 3:30 - 4:30 p.m.
    for number, minute, part in ((hour, minutes, half), (match["h2"], match["min2"], half2)):
        if number is not None:
            since = int(number) % 24
            is_either = not part and 1 <= int(number) <= 12
            if part and since <= 12:
                since = since % 12 + (12 if part.lower() == "p" else 0)
            key = TimeOfDay(since * 60 + int(minute or 0), is_either, _ZONES.get(zone, zone))
            yield "time", key


_SCALES = {name: int(power) for power, *names in vocabulary("scale") for name in names}
_UNITS = {
    name.replace("_", " "): (kind, base.strip("-"), Fraction(factor))
    for kind, base, factor, *names in vocabulary("unit")
    for name in names
}
_UNIT_NAMES = "|".join(name for name in sorted(_UNITS, key=len, reverse=True) if name[-1].isalpha())
_NUMBER = r"(?:\d{1,3}(?:,\d{3})+|\d{1,15})(?:\.\d{1,9})?|\.\d{1,9}"
# "$3M" are millions, "3 m" are metres.
_SCALE = rf"(?:(?:mm?|b)|[ -]?(?:{'|'.join(scale for scale in _SCALES if scale not in 'mmb')}))"
_AMOUNT = (
    rf"(?P<sign>(?:us)?\$|[€£¥]|\b(?:usd|eur|gbp|jpy) ?)? ?(?<![\w.])(?<![A-Za-z]-)"
    rf"(?P<number>{_NUMBER})(?P<scale>{_SCALE}\b)?"
    r"(?: ?(?P<mark>[%$€£¥¢])|[ -]?(?:us |calendar |business |working )?"
    rf"(?P<unit>{_UNIT_NAMES})(?:e?s)?\b"
    r"(?:(?:(?<=dollars)|(?<=pounds)|(?<=euros)) (?P<cents>\d\d)\b(?! ?[\w%]))?)?(?!\w|[.,]\d)"
)


def _amounts(match: re.Match[str]) -> Iterator[tuple[str, Key]]:
    name = (match["mark"] or match["unit"] or match["sign"] or "").lower().strip()
    kind, base, factor = _UNITS.get(name, ("number", "", Fraction(1)))
    power = _SCALES[match["scale"].strip(" -").lower()] if match["scale"] else 0
    number = Fraction(match["number"].replace(",", "")) * 10**power
    if match["cents"]:
        number += Fraction(match["cents"]) / 100
    if name.removeprefix("°") in ("f", "fahrenheit"):
        number -= 32
    yield kind, Amount(number, base, factor)


# ---- What names something: of codes and numbers only letters and digits count.


def _label(kind: str, match: re.Match[str]) -> Iterator[tuple[str, Key]]:
    text = match[match.lastindex or 0].upper()
    if kind == "ordinal":
        text = re.sub(r"\D", "", text) or _NTHS.get(text.lower(), "")
    if text:
        yield kind, text if kind == "email" else re.sub(r"^V(?=\d)|[\W_]", "", text)


def _labels(kind: str, name: str) -> tuple[str, _Reader]:
    return "|".join(phrases(f"label {name}")), partial(_label, kind)


# In the order in which they are looked for.
_READERS = [
    (re.compile(pattern, re.IGNORECASE), read)
    for pattern, read in (
        *(_labels(kind, kind) for kind in ("email", "phone", "web")),
        (_TIME, _times),
        *((pattern, _dates) for pattern in _DATES),
        _labels("code", "code"),
        (_AMOUNT, _amounts),
        _labels("ordinal", "ordinal"),
        _labels("code", "word"),
    )
]


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
_OPPOSITE = {one: other for line in vocabulary("opposite") for one, other in (line, reversed(line))}


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
        {_OPPOSITE.get(stem), f"un{stem}", stem.removeprefix("un")} & (given - wanted)
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
    return frozenset(kind for form, kinds in _ASKED if form.search(question) for kind in kinds)


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

    values: tuple[list[Value], list[Value]] = [], []
    for value in find_values(text):
        values[any(first <= value.start < last for first, last in spans)].append(value)
    spans += [(value.start, value.end) for value in (*values[0], *values[1])]
    names = [
        name
        for name in find_names(text)
        if not any(first <= name.start < last for first, last in spans)
    ]
    return Claims(text, tuple(values[0]), tuple(values[1]), tuple(names), bool(denials))


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
