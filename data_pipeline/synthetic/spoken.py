"""How people write dates, sums and reference numbers, in plain or bounded wording.

Each function gives the text as a mail has it; `*_answer` gives the plain form
of a gold answer. Knows nothing of mail.
"""

import datetime as dt
from random import Random
from typing import NamedTuple

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August",
    "September", "October", "November", "December",
)  # fmt: skip
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
EPOCH = dt.date(2019, 1, 7)
"""The first day of every world, a Monday."""
DAYS = 540
"""Days that a world spans: about 18 months."""


def workday(offset: int) -> dt.date:
    """The day `offset` days after the epoch, or the Monday after it where that is a weekend."""
    day = EPOCH + dt.timedelta(days=offset)
    return day + dt.timedelta(days=max(0, 7 - day.weekday()) if day.weekday() > 4 else 0)


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th ..."""
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


def date_answer(day: dt.date) -> str:
    """March 3, 2020."""
    return f"{MONTHS[day.month - 1]} {day.day}, {day.year}"


def say_date(rng: Random, day: dt.date, told: dt.date, *, bounded: bool) -> str:
    """`day` as a mail written on `told` would put it. Forms without a year stay near `told`."""
    month, weekday = MONTHS[day.month - 1], WEEKDAYS[day.weekday()]
    if bounded:
        return rng.choice((f"{month} {day.day}", f"{weekday}, {month} {day.day}"))
    if abs((day - told).days) > 150:
        return rng.choice((date_answer(day), day.isoformat(), f"{day.month}/{day.day}/{day.year}"))
    forms = [
        f"{month} {day.day}",
        f"{month} {ordinal(day.day)}",
        f"{weekday}, {month} {day.day}",
        f"{month[:3]} {day.day}",
        f"{day.day} {month}",
        f"{day.month}/{day.day}",
        f"{weekday[:3]} {day.month}/{day.day}",
        day.isoformat(),
        date_answer(day),
    ]
    if 0 < (day - told).days <= 24:
        forms += [f"{weekday} the {ordinal(day.day)}"] * 2
    return rng.choice(forms)


class Target(NamedTuple):
    """A vague date: the beginning, middle or end of a month."""

    year: int
    month: int
    part: int

    def answer(self) -> str:
        """The end of February 2020."""
        part = ("The beginning", "The middle", "The end")[self.part]
        return f"{part} of {MONTHS[self.month - 1]} {self.year}"

    def say(self, rng: Random, *, bounded: bool) -> str:
        """End of Feb, the end of February, mid-April ..."""
        month = MONTHS[self.month - 1]
        part = ("the beginning", "the middle", "the end")[self.part]
        if bounded:
            return f"{part} of {month}"
        short = ("early", "mid", "end of")[self.part]
        gap = "-" if self.part == 1 else " "
        return rng.choice(
            (f"{part} of {month}", f"{part} of {month[:3]}", f"{short}{gap}{month}",
             f"{short}{gap}{month[:3]}")
        )  # fmt: skip


def target_near(day: dt.date) -> Target:
    """The vague date into which `day` falls."""
    return Target(day.year, day.month, min(2, (day.day - 1) // 10))


def amount_answer(amount: int) -> str:
    """$12,400."""
    return f"${amount:,}"


def draw_amount(rng: Random, *, bounded: bool, low: int = 12, high: int = 480) -> int:
    """A sum of dollars in hundreds; now and then an odd one where words are free."""
    if bounded:
        return rng.randrange(1, 60) * 1000 + rng.randrange(1, 10) * 100
    amount = rng.randrange(low, high) * 100
    return amount + rng.choice((0, 0, 0, 50, 25, 80))


def say_amount(rng: Random, amount: int, *, bounded: bool) -> str:
    """$12,400, 12.4k, USD 12,400 ..."""
    if bounded:
        return amount_answer(amount)
    forms = [f"${amount:,}", f"${amount}", f"USD {amount:,}", f"{amount:,} dollars"]
    if amount % 100 == 0 and amount >= 2000:
        forms += [f"{amount / 1000:g}k", f"${amount / 1000:g}k"]
    return rng.choice(forms)


def reference(rng: Random, prefix: str, *, bounded: bool) -> str:
    """A number for an invoice, a flight or a ticket, with its prefix where words are free."""
    if bounded:
        return "-".join(str(rng.randrange(10, 100)) for _ in range(2 if prefix == "flight" else 3))
    if prefix == "flight":
        return f"{rng.choice(('KX', 'BN', 'TQ', 'WZ', 'NJ'))}{rng.randrange(100, 9999)}"
    if prefix == "ticket":
        return rng.choice((f"INC{rng.randrange(10**6, 10**7)}", f"#{rng.randrange(10**5, 10**6)}"))
    number = rng.randrange(10_000, 10**6)
    return rng.choice((f"INV-{number}", f"RE{number}", f"{number // 1000}-{number % 1000:03d}"))


def spoken_words() -> set[str]:
    """The words that dates, sums and numbers can bring into a bounded world."""
    words = {name.lower() for name in (*MONTHS, *WEEKDAYS)}
    words |= {str(number) for number in range(100)} | {"00", "15", "30", "45"}
    words |= {f"{hundred}00" for hundred in range(1, 10)} | {"2019", "2020"}
    return words | set("the beginning middle end of am pm".split())
