"""Text and the values in it, in one spelling.

`find_values` finds dates, times, amounts (money, percentages, durations, measures,
plain numbers), phone numbers, email addresses and codes (room EB12, invoice 4411)
in a text; `same_value` and `compatible` compare two of them. Repetitions in the
patterns are bounded, so that hostile text costs linear time.
"""

import calendar
import datetime as dt
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, NamedTuple

# ---- Numbers, times of day and lengths of time as they are spoken: in words.

_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
WORDS = {word: n for n, word in enumerate(_ONES)} | {
    word: 10 * n for n, word in enumerate(_TENS, start=2)
}
WORDS["dozen"] = 12
# Powers of ten.
SCALES = {
    "k": 3, "thousand": 3, "hundred": 2, "m": 6, "mm": 6, "mn": 6, "million": 6, "mio": 6,
    "b": 9, "bn": 9, "billion": 9,
}  # fmt: skip
# Base unit, and how many of it.
DURATIONS = {
    "minute": ("minute", 1), "min": ("minute", 1), "hour": ("minute", 60), "hr": ("minute", 60),
    "day": ("minute", 1440), "week": ("minute", 10080), "month": ("month", 1),
    "quarter": ("month", 3), "year": ("month", 12), "yr": ("month", 12),
}  # fmt: skip
WORD = "|".join(sorted(WORDS, key=len, reverse=True))
_COUNT = rf"\d{{1,3}}|{WORD}|an?"
_UNIT = r"(?:hours?|hrs?|h|days?|weeks?|months?|years?|yrs?)"
_LENGTH = re.compile(
    r"\b(?:"
    # 2 hours 45 minutes
    rf"(?P<n>{_COUNT}) ?(?P<unit>{_UNIT}),?(?: and)? (?P<n2>\d{{1,2}}|{WORD})"
    rf" ?(?P<unit2>minutes?|mins?|{_UNIT})"
    # 2h45
    r"|(?P<h>\d{1,2}) ?h ?(?P<min>[0-5]\d)(?: ?m(?:in)?)?"
    # a month and a half, one and a half hours, half an hour
    rf"|(?P<whole>{_COUNT}) (?:(?P<unit3>{_UNIT}) and a half|and a half (?P<unit4>{_UNIT}))"
    r"|half an? (?P<unit5>hour|day|year)"
    r")\b",
    re.IGNORECASE,
)
_HOURS = "one two three four five six seven eight nine ten eleven twelve".split()
_TIME = re.compile(
    r"(?<![\w:.,$/-])(?:(?P<past>half past|quarter past|quarter after|quarter to) )?"
    rf"(?P<hour>{'|'.join(_HOURS)}|(?:1[0-2]|[1-9])(?:[:.][0-5]\d)?)(?P<clock> o'?clock)?"
    r"(?: (?P<half>in the morning|in the afternoon|in the evening|at night))?(?![\w:%-]|[.,]\d)",
    re.IGNORECASE,
)
_PAST = {"half past": 30, "quarter past": 15, "quarter after": 15, "quarter to": -15}


class SpokenTime(NamedTuple):
    """`minutes` since midnight, and `either` if the half of the day is not said."""

    minutes: int
    either: bool
    start: int
    end: int


class Length(NamedTuple):
    """A length of time in minutes or months (`unit`)."""

    number: Decimal
    unit: str
    start: int
    end: int


def spelled(text: str) -> Decimal:
    """The number that `text` spells: 25 for "twenty-five"."""
    total = group = 0
    for word in re.split(r"[ -]", text.lower()):
        if word in WORDS:
            group += WORDS[word]
        elif word == "hundred":
            group = max(group, 1) * 100
        elif word in SCALES:
            total, group = total + max(group, 1) * int(10 ** SCALES[word]), 0
    return Decimal(total + group)


def find_spoken_times(text: str) -> Iterator[SpokenTime]:
    """Times such as "half past nine", "nine o'clock" and "9:30 in the morning"."""
    for match in _TIME.finditer(text):
        past, half = (match["past"] or "").lower(), (match["half"] or "").lower()
        hour, _, minutes = match["hour"].lower().replace(".", ":").partition(":")
        is_word = hour in _HOURS
        if (past and minutes) or not (past or half or (match["clock"] and is_word)):
            continue
        number = (_HOURS.index(hour) + 1 if is_word else int(hour)) % 12
        is_morning = "morning" in half or ("night" in half and number < 6)
        if half and not is_morning:
            number += 12
        elif not half and not number:
            number = 12
        total = (60 * number + int(minutes or 0) + _PAST.get(past, 0)) % 1440
        yield SpokenTime(total, not half, *match.span())


def find_lengths(text: str) -> Iterator[Length]:
    """Lengths of two parts, or with a half; none where the parts have no common unit."""
    for match in _LENGTH.finditer(text):
        if match["h"]:
            parts = [(match["h"], "hour"), (match["min"], "minute")]
        elif match["unit2"]:
            parts = [(match["n"], match["unit"]), (match["n2"], match["unit2"])]
        else:
            unit = match["unit3"] or match["unit4"] or match["unit5"]
            parts = [(match["whole"] or "0", unit), ("0.5", unit)]
        total, bases = Decimal(0), set()
        for count, unit in parts:
            name = unit.lower().removesuffix("s")
            base, factor = DURATIONS["hour" if name == "h" else name]
            bases.add(base)
            total += factor * _counted(count.lower())
        if len(bases) == 1:
            yield Length(total.normalize(), bases.pop(), *match.span())


def _counted(text: str) -> Decimal:
    if text in ("a", "an"):
        return Decimal(1)
    return spelled(text) if text in WORDS else Decimal(text)


# ---- Dates in free text: found, and compared as partly known dates.

_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_WEEKDAYS = "mon tue wed thu fri sat sun".split()
_PARTS = {
    "early": "start", "mid": "mid", "beginning": "start", "start": "start", "first half": "start",
    "middle": "mid", "late": "end", "end": "end", "latter part": "end",
    "second half": "end", "last half": "end", "first week": "week 1", "second week": "week 2",
    "third week": "week 3", "fourth week": "week 4", "last week": "last week", "week": "week",
}  # fmt: skip
_FEASTS = {
    "new year's day": (1, 1), "valentine's day": (2, 14), "fourth of july": (7, 4),
    "independence day": (7, 4), "halloween": (10, 31), "christmas eve": (12, 24),
    "christmas day": (12, 25), "new year's eve": (12, 31),
}  # fmt: skip
_PLAUSIBLE_DAYS = 270  # a date without a year is one within so many days of the question's date


@dataclass(frozen=True, slots=True)
class PartialDate:
    """What is known of a date. `weekday` is 0 (Monday) to 6.

    `part` is a part of the month or year ("start", "mid", "end", "week 2", "q3");
    `relative` is a day or period named from the day of writing ("tomorrow",
    "next week").
    """

    year: int | None = None
    month: int | None = None
    day: int | None = None
    weekday: int | None = None
    part: str | None = None
    relative: str | None = None

    def year_fits(self, year: int, near: dt.date | None) -> bool:
        """True if this date, whose year is not stated, can lie in `year`, seen from `near`."""
        if near is None:
            return True
        last = calendar.monthrange(year, self.month or 6)[1]
        date = dt.date(year, self.month or 6, min(self.day or 15, last))
        return abs((date - near).days) <= _PLAUSIBLE_DAYS

    def weekdays(self, near: dt.date | None) -> frozenset[int]:
        """The weekdays that it can be; empty where nothing is known of it."""
        if self.weekday is not None:
            return frozenset({self.weekday})
        if self.month is None or self.day is None:
            return frozenset()
        years = [self.year] if self.year else []
        if not years and near is not None:
            years = [
                year for year in range(near.year - 1, near.year + 2) if self.year_fits(year, near)
            ]
        return frozenset(
            dt.date(year, self.month, self.day).weekday()
            for year in years
            if self.day <= calendar.monthrange(year, self.month)[1]
        )


class FoundDate(NamedTuple):
    """A date and where in the text it stands."""

    date: PartialDate
    start: int
    end: int


def conflict(one: PartialDate, other: PartialDate, near: dt.date | None = None) -> bool:
    """True if no day can be both; `near` (the question's date) decides unstated years."""
    if one.relative or other.relative:
        return bool(one.relative and other.relative and one.relative != other.relative)
    for first, second in ((one, other), (other, one)):
        if (
            first.year is None
            and second.year is not None
            and not first.year_fits(second.year, near)
        ):
            return True
    if one.part != other.part and (one.month or one.year) and (other.month or other.year):
        dated, parted = (one, other) if other.part else (other, one)
        if dated.part or (dated.day is not None and not _day_is_part(dated, parted)):
            return True
    pairs = ((one.year, other.year), (one.month, other.month), (one.day, other.day))
    if any(a is not None and b is not None and a != b for a, b in pairs):
        return True
    mine, theirs = one.weekdays(near), other.weekdays(near)
    return bool(mine and theirs and not mine & theirs)


def states(gold: PartialDate, answer: PartialDate, near: dt.date | None = None) -> bool:
    """True if `answer` says all that `gold` says, apart from the year, and nothing narrower."""
    if gold.relative:
        return gold.relative == answer.relative
    if answer.relative or conflict(gold, answer, near):
        return False
    if gold.month is None and gold.day is None and gold.part is None and gold.weekday is not None:
        return answer.weekday == gold.weekday
    if gold.part != answer.part:
        return bool(gold.part and answer.day and _day_is_part(answer, gold))
    if gold.month is None and gold.day is None:
        return gold.year == answer.year and answer.month is None and answer.weekday is None
    return gold.month == answer.month and gold.day == answer.day


def _day_is_part(dated: PartialDate, parted: PartialDate) -> bool:
    """True for the very day that a part of a month names: its first, 15th or last."""
    if dated.day is None or dated.month is None or dated.month != parted.month:
        return False
    last = calendar.monthrange(dated.year or parted.year or 2001, dated.month)[1]
    return dated.day == {"start": 1, "mid": 15, "end": last}.get(parted.part or "")


_MON_ = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    r"sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b\.?"
)
_MON = rf"(?P<mon>{_MON_})"
_DAYNAME = (
    r"(?:mon(?:day)?|tue(?:s(?:day)?)?|wed(?:nesday)?|thu(?:r(?:s(?:day)?)?)?|fri(?:day)?|"
    r"sat(?:urday)?|sun(?:day)?)"
)
_W = rf"(?:\b(?P<wd>{_DAYNAME})\b\.?,? (?:the )?)?"
_W2 = rf"(?:,? ?\(?\b(?P<wd2>{_DAYNAME})\b\)?(?! ?[,.]? ?(?:{_MON_}|\d)))?"
_DAY = r"(?:[12]\d|3[01]|0?[1-9])(?:st|nd|rd|th)?(?![a-z\d])"
_NOT_A_DAY = r"(?![:%]|\.\d|,\d{3}| ?(?:a\.?m|p\.?m|o'clock)\b)"
_YEAR = (
    r"(?:,? (?:of |in )?\(?(?P<year>(?:19|20)\d\d)\b|[,-](?P<year2>(?:19|20)\d\d)\b|"
    r",? (?P<short>'\d\d)\b)?"
)
_JOIN = r"(?: ?[-/&] ?|,? (?:to|through|thru|until|till|and|or) (?:on )?(?:the )?|, ?)"
# What can follow a listed day: "May 7 and 10 people" and "May 7, 1400 Smith" are one date.
_AFTER = (
    rf"{_NOT_A_DAY}(?= ?(?:$|[^\w ])| (?:of|in|at|or|and|to|from|is|are|was|were|for|on|by|"
    r"works?|[12]\d{3})\b)"
)
_LISTED = rf"(?:{_JOIN}{_DAY}{_AFTER}){{0,12}}"
_LEADING = rf"(?:{_DAY}{_NOT_A_DAY}{_JOIN}){{0,12}}{_DAY}"
_PART = (
    r"(?P<part>early|beginning|start|mid(?:dle)?|late|end|latter part|"
    r"(?:first|second|last) half|(?:first|second|third|fourth|last) week|week)"
)
_LEAD = r"(?:in|by|until|till|since|during|before|after|of|through|thru|for|next|last|this)"
_BEFORE_YEAR = "".join(
    rf"|(?<=\b{word} )" for word in "in of by since for year until during or and to fiscal".split()
)
_PATTERNS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"{_W}\b(?P<year>(?:19|20)\d\d)(?P<sep>[-/.])(?P<m>\d\d?)(?P=sep)(?P<d>\d\d?)\b(?!-\d){_W2}",
        # 4/27, 4/27/01, 27.4.2001; with a hyphen or dot the year must be there
        rf"{_W}(?<![\w/.$-])(?!24/7\b)(?P<m>\d\d?)(?:/(?P<d>\d\d?)(?:/(?P<year>\d{{4}}|\d\d))?|"
        rf"(?P<sep>[.-])(?P<d2>\d\d?)(?P=sep)(?P<year2>\d{{4}}|\d\d))(?![\w/%]|[.,]\d){_W2}",
        rf"{_W}\b{_MON} ?(?:the )?(?P<days>{_DAY}{_NOT_A_DAY}{_LISTED}){_YEAR}{_W2}",
        rf"{_W}(?<![\w:.$,-])(?:the )?(?P<days>{_LEADING}) ?(?:day )?(?:of )?-?{_MON}{_YEAR}{_W2}",
        rf"\b(?P<edge>first|last) day (?:of|in) (?:the month of )?{_MON}{_YEAR}",
        rf"\b(?P<feast>{'|'.join(_FEASTS)})\b{_YEAR}",
        rf"\b{_PART}(?: of |[- ])(?:in )?(?:the )?(?:month of )?{_MON}{_YEAR}",
        r"\b(?:(?P<q>first|second|third|fourth|1st|2nd|3rd|4th) quarter|q(?P<q1>[1-4])|"
        r"(?P<q2>[1-4])q)\b(?: of|,)?(?: ?(?P<year>(?:19|20)\d\d)\b|(?P<short> ?'\d\d)\b)?",
        rf"\b{_MON},? (?:of )?(?:(?P<year>(?:19|20)\d\d)\b|(?P<short>'\d\d)\b)",
        rf"\b(?P<lead>{_LEAD} )?{_MON}(?! ?\d)",
        rf"\b(?:{_PART} of (?:the |this )?|(?P<which>next|this|last) )"
        r"(?P<unit>week|month|year|quarter)\b",
        r"\b(?P<word>today|tomorrow|yesterday|tonight)\b",
        rf"\b(?P<wd>{_DAYNAME})s?\b(?P<alone>)",
        r"\b(?:the|on|by) (?P<ordinal>\d{1,2})(?:st|nd|rd|th)\b(?! (?:floor|street|st|ave|avenue|"
        r"grade|quarter|century|anniversary|annual|edition|place|time|year|day|week|draft|round)\b)",
        rf"(?:^(?=\d{{4}}\W{{0,3}}$)|(?<=, )|(?<=\(){_BEFORE_YEAR})(?P<year>19[89]\d|20[0-3]\d)"
        r"(?![\w%-]|[.,/:]\d| [a-z]{1,20}s\b)",
    )
)


def find_dates(text: str) -> list[FoundDate]:
    """The dates that `text` names, in order. `text` has single spaces and plain hyphens."""
    found: list[FoundDate] = []
    for pattern in _PATTERNS:
        for match in list(pattern.finditer(text)):
            dates = list(_dates(match.groupdict(), match.group()))
            if dates:
                found.extend(FoundDate(date, match.start(), match.end()) for date in dates)
                blank = "\0" * (match.end() - match.start())
                text = text[: match.start()] + blank + text[match.end() :]
    return sorted(found, key=lambda item: item.start)


def _dates(  # noqa: PLR0912 - one branch a pattern
    groups: dict[str, str | None], text: str
) -> Iterator[PartialDate]:
    """The dates of one match; none where a number is no day or month, or a word no date."""
    year = _year(groups.get("year") or groups.get("year2") or groups.get("short"))
    name, part = groups.get("mon"), groups.get("part")
    month = _MONTHS.index(name[:3].lower()) + 1 if name else None
    weekday_name = groups.get("wd") or groups.get("wd2")
    weekday = _WEEKDAYS.index(weekday_name[:3].lower()) if weekday_name else None
    quarter = groups.get("q") or groups.get("q1") or groups.get("q2")
    if "m" in groups:
        first, second = int(groups["m"] or 0), int(groups.get("d") or groups.get("d2") or 0)
        month, day = (second, first) if first > 12 >= second else (first, second)
        if 1 <= month <= 12 and 1 <= day <= 31:
            yield PartialDate(year, month, day, weekday)
    elif groups.get("days"):
        for number in re.findall(r"\d{1,2}", groups["days"] or ""):
            yield PartialDate(year, month, int(number), weekday)
            weekday = None
    elif groups.get("feast"):
        month, day = _FEASTS[(groups["feast"] or "").lower()]
        yield PartialDate(year, month, day)
    elif groups.get("edge") and month:
        last = calendar.monthrange(year or 2001, month)[1]
        yield PartialDate(year, month, last if (groups["edge"] or "").lower() == "last" else 1)
    elif groups.get("unit"):
        which = _PARTS[part.lower()] if part else (groups.get("which") or "").lower()
        yield PartialDate(relative=f"{which} {(groups['unit'] or '').lower()}")
    elif groups.get("word"):
        yield PartialDate(relative=text.lower())
    elif groups.get("ordinal"):
        day = int(groups["ordinal"] or 0)
        if 1 <= day <= 31:
            yield PartialDate(day=day)
    elif quarter:
        number = {"f": "1", "s": "2", "t": "3"}.get(quarter[0].lower(), quarter[0])
        yield PartialDate(year, part="q" + ("4" if quarter.lower() == "fourth" else number))
    elif "alone" in groups:
        if text[0].isupper() or "day" in text.lower():
            yield PartialDate(weekday=weekday)
    elif name or year:
        is_word = name is not None and len(name.rstrip(".")) <= 5 and not name[0].isupper()
        if part or year or groups.get("lead") or not is_word:
            yield PartialDate(year, month, part=_PARTS[part.lower()] if part else None)


def _year(text: str | None) -> int | None:
    if not text:
        return None
    number = int(text.strip(" '"))
    if number >= 100:
        return number
    return number + (1900 if number >= 70 else 2000)


# ---- Text and the values in it, in one spelling.

MAX_CHARS = 4000  # of a text, the rest is not read
_MARKS = 64  # more than combine into one character

Kind = Literal[
    "date", "time", "money", "percent", "duration", "measure", "number", "phone", "email", "code",
    "ordinal",
]  # fmt: skip


class TimeOfDay(NamedTuple):
    """`minutes` since midnight; `either` if am or pm is not said; `ends` a range."""

    minutes: int
    either: bool
    zone: str
    ends: bool


class Amount(NamedTuple):
    """A number in its base unit: dollars, minutes, months, or the unit as written."""

    number: Decimal
    unit: str


@dataclass(frozen=True, slots=True)
class Value:
    """One value and where it stands in the text (character offsets)."""

    kind: Kind
    key: PartialDate | TimeOfDay | Amount | str
    start: int
    end: int


_PUNCTUATION = str.maketrans(
    "‘’‚‛“”„‟′″`´‐‑‒–—―−\u00ad", "''''\"\"\"\"'\"''-------\u200b"
)  # fmt: skip
_SIDES = re.compile(r"(?<![\w.,-])(\d{1,3}(?:x\d{1,3})?) ?[x×] ?(?=\d{1,3}(?!\d))")  # 16 x 25
_TEN_DAYS = "first second third fourth fifth sixth seventh eighth ninth".split()
_DAYS = [
    *_TEN_DAYS,
    *"tenth eleventh twelfth thirteenth fourteenth fifteenth sixteenth seventeenth".split(),
    *"eighteenth nineteenth twentieth".split(),
    *(f"twenty-{day}" for day in _TEN_DAYS),
    *"thirtieth thirty-first".split(),
]
_MONTH = (
    r"(?:January|February|March|April|May|June|July|August|September|October|November|December)\b"
)
_SPELLED_DAY = re.compile(
    rf"\b(?:{'|'.join(sorted(_DAYS, key=len, reverse=True))})\b(?= of {_MONTH})", re.IGNORECASE
)
_INVISIBLE = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\0]")


def clean(text: str) -> str:
    """`text` with plain quotes and hyphens, single spaces, its first `MAX_CHARS` characters.

    Line breaks become " ; ", since a new line is a new statement.
    """
    cleaned = _respaced(text[: MAX_CHARS + _MARKS])
    if len(cleaned) < MAX_CHARS < len(text):
        cleaned = _respaced(text[: 4 * MAX_CHARS])  # much of it was space
    text = cleaned[:MAX_CHARS]
    return _SPELLED_DAY.sub(lambda match: f"{_DAYS.index(match[0].lower()) + 1}th", text)


def _respaced(text: str) -> str:
    text = unicodedata.normalize("NFKC", text)[: 4 * MAX_CHARS]
    text = _SIDES.sub(r"\1x", _INVISIBLE.sub("", text.translate(_PUNCTUATION)))
    return " ".join(re.sub(r"[\r\n]+", " ; ", text.strip()).split())


# --- values ---------------------------------------------------------------------------------

_CURRENCIES = {
    "$": "usd", "us$": "usd", "usd": "usd", "dollar": "usd", "dollars": "usd", "bucks": "usd",
    "€": "eur", "eur": "eur", "euro": "eur", "euros": "eur",
    "£": "gbp", "gbp": "gbp", "pounds": "gbp", "¥": "jpy", "jpy": "jpy", "yen": "jpy",
}  # fmt: skip
_MEASURES = (
    "mwh|kwh|gwh|mw|kw|gw|mmbtu|btu|bcf|mcf|barrels?|bbls?|tons?|tonnes?|kg|lbs?|miles?|km|meters?|"
    "feet|ft|inch(?:es)?|mb|gb|kb|megawatts?|kilowatts?|percentage points?|basis points|bps"
)
_MEASURE_NAMES = {"megawatt": "mw", "kilowatt": "kw", "bbl": "barrel", "ft": "feet", "lb": "pound"}

_NUMBER = r"(?:\d{1,3}(?:,\d{3})+|\d{1,15})(?:\.\d{1,9})?|\.\d{1,9}"
_SCALE = r"(?:thousand|hundred|million|mio|mm|mn|billion|bn|k|m|b)"
_SPELLED = (
    rf"\b(?:(?:{WORD})|a(?=[ -](?:thousand|hundred|million|billion|dozen)))\b"
    rf"(?:[ -](?:and )?(?:{WORD}|hundred|thousand|million|billion)\b){{0,8}}"
)
_UNITS = (
    rf"(?: ?(?P<percent>%|percent\b|per cent\b|pct\b)"
    rf"|[ -]?(?P<cents>¢|cents?\b)"
    rf"|[ -]?(?P<duration>(?:minute|min|hour|hr|(?:calendar |business |working )?day|week|month|"
    rf"quarter|year|yr)s?)\b"
    rf"|[ -]?(?P<measure>{_MEASURES})\b"
    rf"|[ -]?(?P<currency>us dollars?|dollars?|bucks|usd|eur|euros?|gbp|pounds|yen|jpy|[$€£])"
    r"(?!\w))?"
)
EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,6}")
_URL = re.compile(r"\b(?:https?://|www\.)([^\s<>\"']{1,300})", re.IGNORECASE)
_PHONE = re.compile(
    r"(?<![\w.-])(?:\+?1[ .-]?)?(?:\(\d{3}\) ?|\d{3}[ .-]{1,2}|\d{3}/ ?)\d{3}[ .-]\d{4}(?!\w)"
    r"|(?<![\w.$,/-])\d{3}[-.]\d{4}(?![\w-])|(?<!\w)\+\d{1,3}(?:[ .-]?\d{2,4}){3,5}(?!\w)"
    r"|\b(?:x|ext\.? ?|extension )\.?(\d{1,2}-?\d{2,5})\b",
    re.IGNORECASE,
)
_ZONE = r"(?: ?\(?(?P<zone>[cemp][sd]?t|central|eastern|mountain|pacific|gmt|utc)\b\)?)?"
_AMPM = r"(?: ?(?P<{0}>[ap])\.? ?m\b\.?)"
_TIME_NORMALISE = re.compile(
    r"(?<![\w:.,$/-])(?P<h>[01]?\d|2[0-4])(?:[:.](?P<min>[0-5]\d)(?!\d))?"
    rf"{_AMPM.format('ap')}?(?P<clock> o'?clock)?(?![\w:%]|[.,]\d)"
    r"(?: ?(?P<join>-|to|until|till|through|or|and|/) ?(?P<h2>[01]?\d|2[0-4])"
    r"(?::(?P<min2>[0-5]\d))?"
    rf"{_AMPM.format('ap2')}?(?![\w:%]|[.,]\d))?{_ZONE}",
    re.IGNORECASE,
)
_NAMED_TIME = re.compile(r"\b(noon|midday|midnight)\b", re.IGNORECASE)
_POSTCODE = re.compile(r"\b[A-Z]{1,2}\d[A-Z\d]? ?\d[A-Z]{2}\b")
_CODED = re.compile(
    r"\b(?:room|rm|suite|invoice|inv|ticket|case|order|po|p\.o\.|flight|cost center|account|acct|"
    r"contract|deal|bill|number|no|id|code|pin|password|passcode|floor|building|gate|confirmation)\b\.?"
    r" ?(?:number |no\. ?|code |id |is |: ?|# ?){0,2}(?P<code>(?=[\w-]{0,12}\d)[A-Za-z0-9]{1,12}"
    r"(?:-[A-Za-z0-9]{1,12}){0,3})\b(?![.,]\d)|#(?P<hash>\d{2,12})\b",
    re.IGNORECASE,
)
_CODE = re.compile(
    r"(?<![\w$.])(?=[A-Za-z-]{0,12}\d)(?=[\d-]{0,12}[A-Za-z])[A-Za-z0-9]{1,20}(?:-[A-Za-z0-9]{1,20}){0,4}"
    r"(?![\w@])"
)
_SPACED_CODE = re.compile(
    r"\b(?!USD|EUR|GBP|JPY|AM|PM|A )[A-Z]{2,4} \d{2,6}[A-Z\d]{0,4}\b(?![.,]\d|[%-])"
)
_AMOUNT = re.compile(
    rf"(?P<sign>(?:us ?)?\$|[€£¥]|\b(?:usd|eur|gbp|jpy) ?)? ?(?<![\w.])(?<![A-Za-z]-)"
    rf"(?:(?P<first>{_NUMBER})(?P<scale1> ?{_SCALE}\b)? ?(?:-|to|or) ?"
    r"(?:(?:us ?)?\$|[€£])?(?=[\d.]))?"
    rf"(?:(?P<number>{_NUMBER})|(?P<spelled>{_SPELLED}))(?P<scale>[ -]?{_SCALE}\b)?{_UNITS}"
    r"(?!\w|[.,]\d)",
    re.IGNORECASE,
)
_ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth".split()
_ORDINAL = re.compile(
    rf"\b(?:(\d{{1,4}})(?:st|nd|rd|th)|({'|'.join(_ORDINALS)})(?= floor))\b", re.IGNORECASE
)
# "The old one" counts nothing.
_PRONOUN = re.compile(
    r"\b(?:the|this|that|which|old|new|other|another|any|every|each|no|first|last|next|only|"
    r"right|wrong|same) $",
    re.IGNORECASE,
)


def find_values(text: str) -> list[Value]:
    """The values of a `clean` text, in order; each stretch of text gives one kind only."""
    found: list[Value] = []

    def take(values: Iterable[Value]) -> None:
        nonlocal text
        for value in list(values):
            found.append(value)
            blank = "\0" * (value.end - value.start)
            text = text[: value.start] + blank + text[value.end :]

    take(Value("email", m.group().lower().rstrip("."), *m.span()) for m in EMAIL.finditer(text))
    take(Value("code", m[1].lower().rstrip("/.,;)"), *m.span()) for m in _URL.finditer(text))
    take(Value("phone", _digits(m[1] or m[0]), *m.span()) for m in _PHONE.finditer(text))
    take(Value("date", item.date, item.start, item.end) for item in find_dates(text))
    for time in find_spoken_times(text):
        take([Value("time", TimeOfDay(time.minutes, time.either, "", False), time.start, time.end)])
    take(
        Value("time", time, *m.span()) for m in _TIME_NORMALISE.finditer(text) for time in _times(m)
    )
    take(Value("time", _named_time(m[1]), *m.span()) for m in _NAMED_TIME.finditer(text))
    take(Value("code", _squeeze(m[0]), *m.span()) for m in _POSTCODE.finditer(text))
    take(Value("code", _squeeze(m["code"] or m["hash"]), *m.span()) for m in _CODED.finditer(text))
    take(Value("code", _squeeze(m[0]), *m.span()) for m in _SPACED_CODE.finditer(text))
    for each in find_lengths(text):
        take([Value("duration", Amount(each.number, each.unit), each.start, each.end)])
    take(value for m in _AMOUNT.finditer(text) for value in _amounts(m))
    take(Value("ordinal", _ordinal(m), *m.span()) for m in _ORDINAL.finditer(text))
    take(Value("code", _squeeze(m[0]), *m.span()) for m in _CODE.finditer(text))
    return sorted(found, key=lambda value: (value.start, value.end))


def _digits(text: str) -> str:
    return re.sub(r"\D", "", text).removeprefix("1") if len(text) > 10 else re.sub(r"\D", "", text)


def _squeeze(code: str) -> str:
    return re.sub("[ -]", "", code).upper()


def _times(match: re.Match[str]) -> Iterator[TimeOfDay]:
    hour, half, minutes = int(match["h"]), match["ap"], match["min"]
    if not (minutes or half or match["clock"] or match["ap2"] or match["min2"]):
        return
    if minutes and "." in match.group()[:3] and not (half or match["ap2"]):
        return  # 5.30 is a number unless am or pm says otherwise
    half2 = match["ap2"]
    zone = (match["zone"] or "")[:1].lower()
    if match["h2"] and half2 and not half and int(match["h2"]) % 12 >= hour % 12:
        half = half2  # 3:30 - 4:30 p.m.
    yield _time(hour, minutes, half, zone, ends=False)
    if match["h2"]:
        alternative = match["join"].lower() in ("or", "and", "/")
        yield _time(int(match["h2"]), match["min2"], half2, zone, ends=not alternative)


def _ordinal(match: re.Match[str]) -> str:
    return match[1] or str(_ORDINALS.index(match[2].lower()) + 1)


def _named_time(name: str) -> TimeOfDay:
    return TimeOfDay(0 if name.lower() == "midnight" else 720, False, "", False)


def _time(hour: int, minutes: str | None, half: str | None, zone: str, ends: bool) -> TimeOfDay:
    if half:
        hour = hour % 12 + (12 if half.lower() == "p" else 0) if hour <= 12 else hour
    return TimeOfDay(hour % 24 * 60 + int(minutes or 0), not half and 1 <= hour <= 12, zone, ends)


def _amounts(match: re.Match[str]) -> Iterator[Value]:
    start, end = match.start() + len(match[0]) - len(match[0].lstrip()), match.end()
    plain = match[0].strip()
    if plain.lower() == "one" and _PRONOUN.search(match.string, 0, start):
        return
    if re.fullmatch(r"\d{1,3}B", plain):
        return  # a room, more likely than billions of nothing
    scale = _scale(match["scale"])
    numbers = [(match["number"], match["scale"])]
    if match["first"]:
        numbers.insert(0, (match["first"], match["scale1"] or match["scale"]))
    for number, own_scale in numbers:
        if number is None:
            amount = spelled(match["spelled"]) * scale
        else:
            amount = Decimal(number.replace(",", "")) * _scale(own_scale)
        kind, unit, factor = _unit(match)
        yield Value(kind, Amount((amount * factor).normalize(), unit), start, end)


def _unit(match: re.Match[str]) -> tuple[Kind, str, Decimal]:
    if match["percent"]:
        return "percent", "%", Decimal(1)
    if match["cents"]:
        return "money", "usd", Decimal("0.01")
    if match["duration"]:
        name, factor = DURATIONS[match["duration"].lower().split()[-1].removesuffix("s")]
        return "duration", name, Decimal(factor)
    if match["measure"]:
        name = match["measure"].lower()
        name = name if name in ("bps", "feet") else name.removesuffix("s")
        return "measure", _MEASURE_NAMES.get(name, name), Decimal(1)
    sign = (match["sign"] or match["currency"] or "").lower().removeprefix("us ").strip()
    if sign:
        return "money", _CURRENCIES[sign], Decimal(1)
    return "number", "", Decimal(1)


def _scale(text: str | None) -> Decimal:
    return Decimal(10) ** SCALES[text.strip(" -").lower()] if text else Decimal(1)


def same_value(gold: Value, answer: Value, near: dt.date | None = None) -> bool:
    """True if `answer` states what `gold` states; `near` decides unstated years of dates."""
    one, other = gold.key, answer.key
    if isinstance(one, PartialDate):
        return isinstance(other, PartialDate) and states(one, other, near)
    if isinstance(one, TimeOfDay):
        return isinstance(other, TimeOfDay) and _same_time(one, other)
    if isinstance(one, Amount) and isinstance(other, Amount):
        units = {one.unit, other.unit}
        # A unit may be left out ("12.4k" for "$12,400"), but 15 people are not 15 percent.
        return one.number == other.number and (len(units) == 1 or units & {"", "%"} == {""})
    if isinstance(one, Amount) or isinstance(other, Amount):
        amount, code = (one, other) if isinstance(one, Amount) else (other, one)
        return isinstance(amount, Amount) and not amount.unit and f"{amount.number:f}" == code
    if gold.kind == "phone" == answer.kind and isinstance(one, str) and isinstance(other, str):
        short, long = sorted((one, other), key=len)
        return one == other or (len(short) >= 7 and long.endswith(short))
    return gold.kind == answer.kind and one == other


def compatible(gold: Value, answer: Value, near: dt.date | None = None) -> bool:
    """True if `answer` says the same as `gold` or less, and nothing against it."""
    if isinstance(gold.key, PartialDate) and isinstance(answer.key, PartialDate):
        return not conflict(gold.key, answer.key, near)
    return same_value(gold, answer, near)


def _same_time(one: TimeOfDay, other: TimeOfDay) -> bool:
    if one.zone and other.zone and one.zone != other.zone:
        return False
    apart = abs(one.minutes - other.minutes)
    return apart == 0 or (apart == 720 and (one.either or other.either))
