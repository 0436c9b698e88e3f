"""Dates of mail: RFC 2822 with all its dialects, ISO 8601, and which of several to believe.

Knows nothing of messages. Every date that leaves here is UTC, without tzinfo,
to the second.
"""

import datetime as dt
import re
from collections.abc import Iterable
from email.utils import parsedate_tz

# Mail is older than 1981 only by a clock that was never set.
PLAUSIBLE_YEARS = range(1981, 2101)
# Placeholders such as Enron's 1979 are kept where nothing better is known.
POSSIBLE_YEARS = range(1970, 2101)

_LONGEST_DATE = 200
_FURTHEST_ZONE = dt.timedelta(hours=14)
_COMMENT = re.compile(r"\([^()]*\)")
_MONTHS = {name: number for number, name in enumerate(
    "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), start=1
)}  # fmt: skip
# As RFC 2822 writes it, with a name of the zone behind.
_USUAL = re.compile(
    rf"(?:[A-Z][a-z][a-z], +)?(\d\d?) ({'|'.join(_MONTHS)}) ([12]\d\d\d)"
    r" (\d\d):(\d\d):(\d\d) ([+-])(\d\d)(\d\d)(?: \([A-Za-z]{1,5}\))?",
    re.ASCII,
)
_ISO = re.compile(r"\d{4}-\d\d-\d\d")


def parse_date(text: str) -> dt.datetime | None:
    """The date that `text` says, UTC and naive; None where it says none.

    A missing zone, and one further than 14 hours from UTC, count as UTC.
    """
    text = text.strip()[:_LONGEST_DATE]
    if not text:
        return None
    if _ISO.match(text):
        return _iso_date(text)
    usual = _USUAL.fullmatch(text)
    if usual is not None:
        return _usual_date(usual)
    while _COMMENT.search(text):  # comments nest
        text = _COMMENT.sub(" ", text)
    try:
        fields = parsedate_tz(text)
        if fields is None:
            return None
        year, month, day, hour, minute, second = fields[:6]
        return _utc(year, month, day, hour, minute, second, zone=fields[9] or 0)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _usual_date(usual: re.Match[str]) -> dt.datetime | None:
    """The date in the form that nearly all mail has; `parsedate_tz` gives the same, slower."""
    day, month, year, hour, minute, second, sign, hours, minutes = usual.groups()
    zone = int(hours) * 3600 + int(minutes) * 60
    try:
        return _utc(
            int(year), _MONTHS[month], int(day), int(hour), int(minute), int(second),
            zone=-zone if sign == "-" else zone,
        )  # fmt: skip
    except (ValueError, OverflowError):
        return None


def _utc(
    year: int, month: int, day: int, hour: int, minute: int, second: int, *, zone: int
) -> dt.datetime:
    """A local time in UTC; `zone` is its distance from UTC in seconds."""
    # A leap second has no place in datetime.
    local = dt.datetime(year, month, day, hour, minute, min(second, 59))
    distance = dt.timedelta(seconds=zone)
    return local if abs(distance) > _FURTHEST_ZONE else local - distance


def _iso_date(text: str) -> dt.datetime | None:
    try:
        return naive_utc(dt.datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        return None


def naive_utc(date: dt.datetime) -> dt.datetime | None:
    """`date` as UTC without tzinfo, to the second; naive dates count as UTC."""
    try:
        if date.tzinfo is not None:
            date = date.astimezone(dt.UTC)
        return date.replace(tzinfo=None, microsecond=0)
    except (ValueError, OverflowError):
        return None


def most_plausible(candidates: Iterable[dt.datetime | None]) -> dt.datetime | None:
    """The first candidate of a plausible year, else the first of a possible one, else None."""
    fallback: dt.datetime | None = None
    for date in candidates:
        if date is None:
            continue
        if date.year in PLAUSIBLE_YEARS:
            return date
        if fallback is None and date.year in POSSIBLE_YEARS:
            fallback = date
    return fallback
