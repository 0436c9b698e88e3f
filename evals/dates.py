"""Dates in free text: found, and compared as partly known dates.

A `PartialDate` holds what a text says ("end of Feb", "Friday, April 27", "2001")
and no more. `find_dates` reads the spellings of English business mail; numeric
dates are month first (4/27) unless the first number is over 12. A range or a
list ("May 14-18", "May 3, 4 or 5") gives each date that it names. Bare "May",
"March" and short month and day names count only when capitalised, since they are
words too. Knows nothing of questions or verdicts.
"""

import calendar
import datetime as dt
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

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
