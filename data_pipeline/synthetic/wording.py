"""The phrase banks of a world, cut to its mode, and the words that they bring.

A bank is a tuple of format strings. Short mode keeps phrases of one or two
sentences; a bounded vocabulary keeps the first few of each bank. Knows nothing of people,
dates or mail.
"""

import datetime as dt
import functools
import re
import tomllib
from importlib import resources
from random import Random
from typing import NamedTuple

# ---- How people write dates, sums and reference numbers, in plain or bounded wording.

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


# ---- The phrase banks of a world, cut to its mode, and the words that they bring.

STORY_KINDS = (
    "relocation",
    "travel",
    "invoice",
    "interview",
    "approval",
    "project",
    "outage",
)
_LONG_ONLY = ("greeting", "greeting_all", "closing", "typos", "filler", "forward_intro", "roles")
_SLOT = re.compile(r"\{\w+\}")
_INNER_STOP = re.compile(r"[.?!] ")
_PAIRED = ("announce", "successor")  # Banks whose sentences share a mail.
_WORD = re.compile(r"[^\W_]+")

Banks = dict[str, tuple[str, ...]]


def words_of(text: str) -> set[str]:
    """The distinct lower-cased alphanumeric words of a text: the unit of `vocabulary`."""
    return set(_WORD.findall(text.lower()))


@functools.cache
def word_list(name: str) -> tuple[str, ...]:
    """The lines of a word file of this package, without comments."""
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))


@functools.cache
def load_toml(name: str) -> dict[str, object]:
    """A TOML file of this package."""
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    return tomllib.loads(text)


def pick(rng: Random, items: tuple[str, ...]) -> str:
    """One of the items; faster than `Random.choice`."""
    return items[int(rng.random() * len(items))]


class Absent(NamedTuple):
    """An unanswerable question, and the words for the detail that no mail states."""

    text: str
    detail: str


def read_absent(entry: str) -> Absent:
    """Split "Which seat number|seat number|does {p} have?" at the detail's name."""
    before, detail, after = entry.split("|")
    return Absent(f"{before} {after}".replace(" ?", "?"), detail)


class Wording:
    """Every bank of a world: `story[kind][bank]`, `chatter[topic][bank]`, `common[bank]`."""

    def __init__(self, *, short: bool, cap: int | None) -> None:
        self.short = short
        self.cap = cap
        self.story = {
            kind: self._banks(load_toml(f"phrases/{kind}.toml"), cap) for kind in STORY_KINDS
        }
        common = self._banks(load_toml("phrases/common.toml"), cap)
        if short:
            common = {name: bank for name, bank in common.items() if name not in _LONG_ONLY}
        self.common = common
        topics = load_toml("phrases/chatter.toml")
        self.chatter = {
            name: self._banks(topic, cap)
            for name, topic in topics.items()
            if isinstance(topic, dict) and not (short and name in ("newsletter", "more"))
        }

    def _banks(self, table: dict[str, object], cap: int | None) -> Banks:
        banks = {}
        for name, entries in table.items():
            if not isinstance(entries, list):
                raise TypeError(f"bank {name} is not a list")
            kept = [str(entry) for entry in entries]
            if self.short:
                most = 0 if name in _PAIRED else 1
                kept = [entry for entry in kept if len(_INNER_STOP.findall(entry)) <= most]
            # Lists of things are what facts are about: a bounded world keeps a few more.
            things = name in ("purposes", "titles", "items", "causes", "faults")
            limit = None if cap is None else cap + 3 if things else cap
            banks[name] = tuple(kept[:limit])
        return banks

    def words(self) -> set[str]:
        """All words that the banks can bring into a mail or a question, slots aside."""
        found: set[str] = set()
        for banks in (*self.story.values(), *self.chatter.values(), self.common):
            for bank in banks.values():
                for entry in bank:
                    found |= words_of(_SLOT.sub(" ", entry))
        return found


class Deck:
    """Draws from banks without repeating a sentence before its bank is used up."""

    def __init__(self, rng: Random, banks: Banks) -> None:
        self._rng = rng
        self._banks = banks
        self._left: dict[str, list[str]] = {}

    def draw(self, bank: str) -> str:
        """A phrase of the bank, with its slots."""
        left = self._left.get(bank)
        if not left:
            left = list(self._banks[bank])
            self._rng.shuffle(left)
            self._left[bank] = left
        return left.pop()
