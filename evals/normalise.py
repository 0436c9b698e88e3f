"""Text and the values in it, in one spelling.

`find_values` finds dates, times, amounts (money, percentages, durations, measures,
plain numbers), phone numbers, email addresses and codes (room EB12, invoice 4411)
in a text; `same_value` and `compatible` compare two of them. Repetitions in the
patterns are bounded, so that hostile text costs linear time.
Knows nothing of questions or verdicts.
"""

import datetime as dt
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, NamedTuple

from evals.dates import PartialDate, conflict, find_dates, states
from evals.spoken import DURATIONS, SCALES, WORD, find_lengths, find_spoken_times, spelled

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
_UNIT = (
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
_TIME = re.compile(
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
    rf"(?:(?P<number>{_NUMBER})|(?P<spelled>{_SPELLED}))(?P<scale>[ -]?{_SCALE}\b)?{_UNIT}"
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
    take(Value("time", time, *m.span()) for m in _TIME.finditer(text) for time in _times(m))
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
