"""Numbers, times of day and lengths of time as they are spoken: in words.

"Twenty-five", "half past three", "nine in the morning", "a month and a half",
"2 hours 45 minutes", "2h45". Expects text from `evals.normalise.clean`. Knows nothing of
questions or verdicts.
"""

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import NamedTuple

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
