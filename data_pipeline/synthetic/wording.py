"""Phrase banks, and how people write dates, sums and reference numbers.

A bank is a tuple of format strings. Short worlds keep phrases of one or two sentences; a bounded
vocabulary keeps the first few phrases of each bank.
"""

import calendar
import datetime as dt
import functools
import re
import tomllib
from dataclasses import dataclass
from importlib import resources
from random import Random
from typing import Any

MONTHS, WEEKDAYS = tuple(calendar.month_name[1:]), tuple(calendar.day_name)
EPOCH = dt.date(2019, 1, 7)  # the first day of every world, a Monday
DAYS = 540  # that a world spans: about 18 months
STORY_KINDS = ("relocation", "travel", "invoice", "interview", "approval", "project", "outage")

# Banks and topics that short worlds lack.
_IN_LONG = "greeting greeting_all closing typos filler forward_intro roles newsletter more".split()
_PAIRED = ("announce", "successor")  # Banks whose sentences share a mail.
_THINGS = ("purposes", "titles", "items", "causes", "faults")
_SLOT = re.compile(r"\{(\w+)\}")
_INNER_STOP = re.compile(r"[.?!] ")
_WORD = re.compile(r"[^\W_]+")

# Words that rendering adds: subject prefixes, name endings, dates, sums and numbers.
_RENDERED = (
    f"one two room re fw and inn hotel house tower online {' '.join((*MONTHS, *WEEKDAYS))}"
    f" {' '.join(map(str, range(100)))} 00 100 200 300 400 500 600 700 800 900 2019 2020"
    " the beginning middle end of am pm"
)

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
def load_toml(name: str) -> dict[str, Any]:
    """A TOML file of this package."""
    return tomllib.loads(resources.files(__package__).joinpath(name).read_text(encoding="utf-8"))


@functools.cache
def slots_of(kind: str, bank: str) -> frozenset[str]:
    """The slots that the phrases of a story's bank have between them."""
    return frozenset(_SLOT.findall(" ".join(load_toml(f"phrases/{kind}.toml")[bank])))


def pick(rng: Random, items: tuple[str, ...]) -> str:
    """One of the items; faster than `Random.choice`."""
    return items[int(rng.random() * len(items))]


class Wording:
    """Every bank of a world: `story[kind][bank]`, `chatter[topic][bank]`, `common[bank]`."""

    def __init__(self, *, short: bool, cap: int | None) -> None:
        self._short, self._cap = short, cap
        self.story = {kind: self._banks(load_toml(f"phrases/{kind}.toml")) for kind in STORY_KINDS}
        common, topics = map(dict, map(load_toml, ("phrases/common.toml", "phrases/chatter.toml")))
        for table in (common, topics) if short else ():
            for name in table.keys() & _IN_LONG:
                del table[name]
        self.common = self._banks(common)
        self.chatter = {name: self._banks(topic) for name, topic in topics.items()}

    def _banks(self, table: dict[str, list[str]]) -> Banks:
        banks = {}
        for name, phrases in table.items():
            kept = phrases
            if self._short:
                most = 0 if name in _PAIRED else 1
                kept = [phrase for phrase in kept if len(_INNER_STOP.findall(phrase)) <= most]
            # Facts are about things: a bounded world keeps a few more of them.
            limit = self._cap and self._cap + 3 * (name in _THINGS)
            banks[name] = tuple(kept[:limit])
        return banks

    def words(self) -> set[str]:
        """All words that may stand in a mail or a question, names aside."""
        found = words_of(_RENDERED)
        for banks in (*self.story.values(), *self.chatter.values(), self.common):
            for bank in banks.values():
                found |= words_of(_SLOT.sub(" ", "\n".join(bank)))
        return found


# ---- Days, and what mails state.


def workday(offset: int) -> dt.date:
    """The day `offset` days after the epoch, or the Monday after it where that is a weekend."""
    day = EPOCH + dt.timedelta(days=offset)
    return day + dt.timedelta(days=7 - day.weekday()) if day.weekday() > 4 else day


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th ..."""
    last = 0 if number in (11, 12, 13) else number % 10
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(last, 'th') }"


@dataclass(frozen=True, slots=True)
class FactValue:
    """What a mail states: as an answer gives it, and in the words of the mail."""

    answer: str
    text: str

    def __str__(self) -> str:
        return self.text


def date_answer(day: dt.date) -> str:
    """March 3, 2020."""
    return f"{MONTHS[day.month - 1]} {day.day}, {day.year}"
