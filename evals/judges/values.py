"""Values in a text, each in one spelling: dates, times, amounts, phone numbers, addresses, codes.

`clean` writes a text plainly, with numbers and times of day in figures ("nine in the evening" is
9:00 pm); `find_values` finds the values of such a text; `same_value` and `compatible` compare two.
Repetitions in the patterns are bounded, so that hostile text costs linear time.
"""

import calendar
import datetime as dt
import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache, partial
from importlib.resources import files
from typing import NamedTuple

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
_NTHS = {word: int(number) for number, word in vocabulary("nth")}
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
_COUNTED = re.compile(  # "the old one" counts nothing
    r"[ -](?:(?:hour|day|week|month|year|third|quarter|fifth)s?\b|and a half|in (?:every )?\d)",
    re.IGNORECASE,
)
# Letters without which a pattern finds nothing, the pattern, and what is written instead.
_PLAINER = [
    (letters.replace("_", " ").strip("-"), re.compile(pattern, re.IGNORECASE), plain)
    for line in phrases("plain")
    for (letters, pattern), plain in [
        (before.split(" ", 1), after) for before, after in [line.split(" => ")]
    ]
]
_NTH_OF = re.compile(  # "the ninth of November", "the third floor"
    rf"(?<!-)\b({'|'.join(_NTHS)})(?= (?:(?:day )?of (?:the month\b|{_MON})|floor\b))",
    re.IGNORECASE,
)
_PUNCTUATION = str.maketrans(
    "‘’‚‛“”„‟′″`´‐‑‒–—―−\u00ad", "''''\"\"\"\"'\"''-------\u200b"
)  # fmt: skip
_FRACTION_SIGN = re.compile("([0-9]{0,4}) ?([¼-¾⅓-⅞])")
_INVISIBLE = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\0]")


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
    text = _NTH_OF.sub(lambda match: f"{_NTHS[match[1].lower()]}th", text)
    lower = text.lower()
    for letters, pattern, plain in _PLAINER:
        if letters in lower:
            text = pattern.sub(plain, text)
    return text[:limit]


def _in_figures(match: re.Match[str]) -> str:
    if match[0].lower() == "one" and not _COUNTED.match(match.string, match.end()):
        return match[0]
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

# date, time, money, percent, duration, measure, number, phone, email, web, code or ordinal
Kind = str


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
    """`minutes` since midnight; `either` if am or pm is not said; `ends` a range."""

    minutes: int
    either: bool
    zone: str
    ends: bool


class Amount(NamedTuple):
    """A number in its base unit: dollars, minutes, months, metres.

    `said` is the number in the unit in which it stands, where that is another. It is `rough` if the
    number is converted or a fraction, as of pounds, miles and thirds.
    """

    number: Decimal
    unit: str
    rough: bool = False
    said: Decimal | None = None


@dataclass(frozen=True, slots=True)
class Value:
    """One value and where it stands in the text (character offsets)."""

    kind: Kind
    key: PartialDate | TimeOfDay | Amount | str
    start: int
    end: int


Found = tuple[Kind, PartialDate | TimeOfDay | Amount | str]


def find_values(text: str) -> list[Value]:
    """The values of a `clean` text, in order; each stretch of text gives one kind only."""
    found: list[Value] = []
    masked = text
    for pattern, read in _COMPILED:
        for match in list(pattern.finditer(masked)):
            values = list(read(match))
            if values:
                start, end = match.span()
                start = end - len(match[0].lstrip())
                found += [Value(kind, key, start, end) for kind, key in values]
                masked = masked[:start] + "\0" * (end - start) + masked[end:]
    return _joined(sorted(found, key=lambda value: (value.start, value.end)), text)


def _joined(values: list[Value], text: str) -> list[Value]:
    """The values, of which "2 years, 6 months" is one, and the 5th of "5th to 9th June" in June."""
    joined: list[Value] = []
    for value in values:
        last = joined.pop() if joined else None
        total = last and _total(last, value, text[last.end : value.start])
        if last and not total:
            joined.append(in_month_of(last, value) if value.start - last.end < 12 else last)
        joined.append(total or value)
    return joined


def _total(one: Value, other: Value, between: str) -> Value | None:
    """The sum of "2 years" and "6 months"; None if they are not one value."""
    first, last = one.key, other.key
    if not (isinstance(first, Amount) and isinstance(last, Amount)) or first.unit != last.unit:
        return None
    is_joint = re.fullmatch(r",? ?(?:and )?", between) and one.kind in ("duration", "measure")
    if not is_joint or last.number >= first.number / (first.said or first.number or 1):
        return None
    total = Amount(first.number + last.number, first.unit, first.rough)
    return Value(one.kind, total, one.start, other.end)


def in_month_of(value: Value, other: Value) -> Value:
    """The value; a day without a month in the month of the other, if that has one."""
    day, date = value.key, other.key
    if not (isinstance(day, PartialDate) and isinstance(date, PartialDate)):
        return value
    if not day.day or day.month or not date.month:
        return value
    key = replace(day, month=date.month, year=day.year or date.year)
    return Value("date", key, value.start, value.end)


ROUGHLY = Decimal("0.04")  # how far apart, in shares, one amount in two units or roundings can be


def same_value(gold: Value, answer: Value, near: dt.date | None = None) -> bool:
    """True if `answer` states what `gold` states; `near` decides unstated years of dates."""
    one, other = gold.key, answer.key
    if isinstance(one, PartialDate):
        return isinstance(other, PartialDate) and states(one, other, near)
    if isinstance(one, TimeOfDay) and isinstance(other, TimeOfDay):
        return _same_time(one, other)
    if isinstance(one, Amount) and isinstance(other, Amount):
        return _same_amount(one, other)
    if isinstance(one, Amount) or isinstance(other, Amount):
        amount, label = (one, other) if isinstance(one, Amount) else (other, one)
        if isinstance(label, TimeOfDay):  # "2200"
            label = f"{label.minutes // 60}{label.minutes % 60:02}"
        return isinstance(amount, Amount) and not amount.unit and f"{amount.number:f}" == label
    return gold.kind == answer.kind and one == other


def _same_amount(one: Amount, other: Amount) -> bool:
    numbers = {one.unit: one.number, other.unit: other.number}
    units, is_rough = set(numbers), one.rough != other.rough
    if units == {"month", "minute"}:
        # A month has 30.4 days.
        return _near(numbers["month"] * 43_829, numbers["minute"])
    if units == {"", "%"} and numbers[""] < 1 and numbers[""] > 0:
        return _near(100 * numbers[""], numbers["%"])
    # A unit may be left out ("12.4k" for "$12,400"), but 15 people are not 15 percent.
    same_unit = len(units) == 1 or units & {"", "%"} == {""}
    if len(units) == 2 and (one.said or one.number) == (other.said or other.number):
        return same_unit
    is_same = one.number == other.number or (is_rough and _near(one.number, other.number))
    return same_unit and is_same


def _near(one: Decimal, other: Decimal) -> bool:
    return abs(one - other) <= ROUGHLY * max(abs(one), abs(other))


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


# ---- Dates.

_PLAUSIBLE_DAYS = 270  # a date without a year is one within so many days of the question's date


def conflict(one: PartialDate, other: PartialDate, near: dt.date | None = None) -> bool:
    """True if no day can be both; `near` (the question's date) decides unstated years."""
    pairs = [
        (getattr(one, name), getattr(other, name)) for name in ("year", "month", "day", "weekday")
    ]
    if any(a is not None and b is not None and a != b for a, b in pairs):
        return True
    year, month, day, _ = (b if a is None else a for a, b in pairs)
    if one.part and other.part and one.part != other.part:
        return True
    if near is None or one.year == other.year or not year:
        return False
    month, day = month or 6, day or 15
    nearest = dt.date(year, month, min(day, calendar.monthrange(year, month)[1]))
    return abs((nearest - near).days) > _PLAUSIBLE_DAYS


def states(gold: PartialDate, answer: PartialDate, near: dt.date | None = None) -> bool:
    """True if `answer` says all that `gold` says, apart from the year, and nothing narrower."""
    if gold.part != answer.part or conflict(gold, answer, near):
        return False
    if gold == PartialDate(weekday=gold.weekday):
        return answer.weekday == gold.weekday
    is_same = gold.month == answer.month and gold.day == answer.day
    return is_same and bool(gold.month or gold.day or gold.year == answer.year)


_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_WORDS_TOO = ("may", "march", "mar", "sep", "dec", "jan")
_WEEKDAYS = "mon tue wed thu fri sat sun".split()
_PARTS = {
    "early": "start", "beginning": "start", "start": "start", "first half": "start", "mid": "mid",
    "middle": "mid", "late": "end", "end": "end", "second half": "end", "last week": "end",
}  # fmt: skip
_DAY = r"(?:[12]\d|3[01]|0?[1-9])(?:st|nd|rd|th)?(?![a-z\d:%]|-[a-z]|,\d{3}|\.\d| ?[ap]\.?m)"
_AND_DAY = r"(?: ?[-/&] ?|,? (?:to|through|until|till|and|or) (?:on )?(?:the )?|, ?)"
_DAYS = rf"{_DAY}(?:{_AND_DAY}{_DAY}){{0,12}}"
_A_YEAR = r"(?P<year>(?:19|20)\d\d)\b"
_PART = rf"\b(?P<part>{'|'.join(sorted(_PARTS, key=len, reverse=True))})(?: of |[- ])(?:the )?"
_WEEKDAY = (
    r"(?:mon(?:day)?|tue(?:s(?:day)?)?|wed(?:nesday)?|thu(?:r(?:s(?:day)?)?)?|fri(?:day)?|"
    r"sat(?:urday)?|sun(?:day)?)s?\b"
)
_ON = rf"(?:\b(?P<on>{_WEEKDAY})(?:[,.]? )(?:the )?)?"
_SO_ON = rf"(?:,? \(?(?P<is>{_WEEKDAY}))?"
_NUMERIC_DATES = (
    rf"{_ON}\b{_A_YEAR}[-/.](?P<month>\d\d?)[-/.](?P<day>\d\d?)\b(?!-\d){_SO_ON}",
    rf"{_ON}(?<![\w/.$-])(?!24/7\b)(?P<month>\d\d?)/(?P<day>\d\d?)(?:/(?P<year>\d{{4}}|\d\d))?"
    rf"(?![\w/%]|[.,]\d){_SO_ON}",
)
_MONTH_OF_YEAR = r"(?<![\w/.-])(?P<month>0?[1-9]|1[0-2])/(?P<year>(?:19|20)\d\d)(?![\w/])"
_NAMED_DATE = (
    rf"(?:{_PART})?{_ON}(?:(?<![\w:.$,-])(?P<before>{_DAYS})(?: of |[ -]?))?\b(?P<month>{_MON})"
    rf"(?: ?(?:the )?(?P<after>{_DAYS}))?(?:(?:,? (?:of |in )?\(?|[,-]){_A_YEAR})?{_SO_ON}"
)
_DAY_ALONE = (
    rf"{_ON}\b(?:the|on|by) (?P<day>[12]\d|3[01]|[1-9])(?:st|nd|rd|th)\b"
    r"(?! (?:floor|street|st|ave|avenue|grade|quarter|century|anniversary|annual|edition|place|"
    rf"time|year|day|week|draft|round)\b)|\b(?P<is>{_WEEKDAY})(?:,? (?P<number>{_DAY})\b(?!-))?"
)


def _numeric_date(match: re.Match[str]) -> Iterator[Found]:
    parts = match.groupdict(default="")
    year, month, day = (int(parts.get(name) or 0) for name in ("year", "month", "day"))
    if month > 12 >= day:
        month, day = day, month  # 27/4/2001
    if 0 < year < 100:
        year += 1900 if year >= 70 else 2000
    if 1 <= month <= 12 and day <= 31:
        yield "date", PartialDate(year or None, month, day or None, _weekday(match))


def _named_date(match: re.Match[str]) -> Iterator[Found]:
    """The dates with the name of a month; none of "may" or "march" alone in lower case."""
    name, days = match["month"], match["before"] or match["after"]
    part, year = _PARTS.get((match["part"] or "").lower()), int(match["year"] or 0) or None
    month = _MONTHS.index(name[:3].lower()) + 1
    for day in re.findall(r"\d{1,2}", days or ""):
        yield "date", PartialDate(year, month, int(day), _weekday(match))
    if not days and (part or year or name[0].isupper() or name.lower() not in _WORDS_TOO):
        yield "date", PartialDate(year, month, part=part)


def _part_of_year(match: re.Match[str]) -> Iterator[Found]:
    yield "date", PartialDate(int(match["year"]), part=_PARTS[match["part"].lower()])


def _day_alone(match: re.Match[str]) -> Iterator[Found]:
    """A day without a month: "Friday the 27th", "Friday"; "sat" and "sun" are words too."""
    day = int(re.sub(r"\D", "", match["day"] or match["number"] or "0")) or None
    if day or match[0][0].isupper() or "day" in match[0].lower():
        yield "date", PartialDate(day=day, weekday=_weekday(match))


def _weekday(match: re.Match[str]) -> int | None:
    parts = match.groupdict()
    name = parts.get("on") or parts.get("is")
    return _WEEKDAYS.index(name[:3].lower()) if name else None


# ---- Times and amounts.

_ZONES = {name.replace("_", " "): zone for zone, *names in vocabulary("zone") for name in names}
_AMPM = r"(?: ?(?P<{0}>[ap])\.? ?m\b\.?)"
_TIME = (
    r"(?<![\w:.,$/-])(?P<h>[01]?\d|2[0-4])(?:[:.](?P<min>[0-5]\d)(?!\d)(?: ?h(?:rs?)?\b)?)?"
    rf"{_AMPM.format('ap')}?(?P<clock> o'?clock)?(?![\w:%]|[.,]\d)"
    r"(?: ?(?P<join>-|to|until|till|through|or|and|/) ?(?P<h2>[01]?\d|2[0-4])"
    r"(?:[:.](?P<min2>[0-5]\d))?"
    rf"{_AMPM.format('ap2')}?(?![\w:%]|[.,]\d))?"
    rf"(?:,? ?\(?(?P<zone>{'|'.join(_ZONES)}|(?-i:[A-Z])[a-z]{{2,12}}(?= time\b|\)))\b\)?)?"
)


def _times(match: re.Match[str]) -> Iterator[Found]:
    hour, half, minutes, half2 = int(match["h"]), match["ap"], match["min"], match["ap2"]
    if not (minutes or half or match["clock"] or half2 or match["min2"]):
        return
    if minutes and "." in match[0][:3] and not (half or half2):
        return  # 5.30 is a number unless am or pm says otherwise
    zone = (match["zone"] or "").lower()
    zone = _ZONES.get(zone, zone)
    if match["h2"] and half2 and not half and int(match["h2"]) % 12 >= hour % 12:
        half = half2  # 3:30 - 4:30 p.m.
    yield "time", _time(hour, minutes, half, zone, ends=False)
    if match["h2"]:
        alternative = match["join"].lower() in ("or", "and", "/")
        yield "time", _time(int(match["h2"]), match["min2"], half2, zone, ends=not alternative)


def _time(hour: int, minutes: str | None, half: str | None, zone: str, ends: bool) -> TimeOfDay:
    if half and hour <= 12:
        hour = hour % 12 + (12 if half.lower() == "p" else 0)
    return TimeOfDay(hour % 24 * 60 + int(minutes or 0), not half and 1 <= hour <= 12, zone, ends)


_SCALES = {name: int(power) for power, *names in vocabulary("scale") for name in names}
_UNITS = {
    name.replace("_", " "): (kind, unit, Decimal(factor))
    for kind, unit, factor, *names in vocabulary("unit")
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


def _amounts(match: re.Match[str]) -> Iterator[Found]:
    name = (match["mark"] or match["unit"] or match["sign"] or "").lower().strip()
    kind, unit, factor = _UNITS.get(name, ("number", "", Decimal(1)))
    power = _SCALES[match["scale"].strip(" -").lower()] if match["scale"] else 0
    number = Decimal(match["number"].replace(",", "")) * 10**power
    if match["cents"]:
        number += Decimal(match["cents"]) / 100
    said = number
    if unit == "fahrenheit":
        number, unit = number - 32, "celsius"
    amount = round(number * factor, 6).normalize()
    is_converted = kind == "measure" and len(factor.normalize().as_tuple().digits) > 1
    is_rough = is_converted or len(str(amount % 1)) > 7
    yield kind, Amount(amount, unit, is_rough, said if said != amount else None)


# ---- What names something: of codes and numbers only letters and digits count.

_NTH_WORDS = "|".join(word for word, nth in _NTHS.items() if nth > 2)
_RANKED = (
    r"(?:floor|edition|place|grade|quarter|draft|round|row|prize|class|year|week|half|reading)"
)
_ORDINAL = (
    rf"\b\d{{1,4}}(?:st|nd|rd|th)\b|\b(?:{_NTH_WORDS})\b|\b(?:first|second)(?=[ -]{_RANKED}\b)"
)


def _label(kind: Kind, match: re.Match[str]) -> Iterator[Found]:
    text = match[match.lastindex or 0].upper()
    if kind == "ordinal":
        text = re.sub(r"\D", "", text) or str(_NTHS[text.lower()])
    yield kind, text if kind == "email" else re.sub(r"^V(?=\d)|[\W_]", "", text)


def _labels(kind: Kind, name: str) -> tuple[str, Callable[[re.Match[str]], Iterator[Found]]]:
    return "|".join(phrases(f"label {name}")), partial(_label, kind)


# In the order in which they are looked for.
_READERS: list[tuple[str, Callable[[re.Match[str]], Iterator[Found]]]] = [
    *(_labels(kind, kind) for kind in ("email", "phone", "web")),
    (_TIME, _times),
    *((pattern, _numeric_date) for pattern in (*_NUMERIC_DATES, _MONTH_OF_YEAR)),
    (_NAMED_DATE, _named_date),
    (rf"{_PART}{_A_YEAR}", _part_of_year),
    (_DAY_ALONE, _day_alone),
    _labels("code", "code"),
    (_AMOUNT, _amounts),
    (_ORDINAL, partial(_label, "ordinal")),
    _labels("code", "word"),
]
_COMPILED = [(re.compile(pattern, re.IGNORECASE), read) for pattern, read in _READERS]
