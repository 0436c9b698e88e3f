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
    while _COMMENT.search(text):  # comments nest
        text = _COMMENT.sub(" ", text)
    try:
        fields = parsedate_tz(text)
        if fields is None:
            return None
        year, month, day, hour, minute, second = fields[:6]
        # A leap second has no place in datetime.
        local = dt.datetime(year, month, day, hour, minute, min(second, 59))
        zone = dt.timedelta(seconds=fields[9] or 0)
        return local if abs(zone) > _FURTHEST_ZONE else local - zone
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


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
