"""The words of a world: its phrase banks, days and facts, names and people.

A bank is a tuple of format strings. Short worlds keep phrases of one or two sentences; a limited
vocabulary keeps the first few phrases of each bank."""

import calendar
import datetime as dt
import functools
import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from random import Random
from typing import Any

from art_e.errors import UserError
from art_e.text import toml_table

MONTHS, WEEKDAYS = tuple(calendar.month_name[1:]), tuple(calendar.day_name)
EPOCH = dt.date(2019, 1, 7)  # the first day of every world, a Monday
DAYS = 540  # the span of a world: about 18 months

# Banks and topics that short worlds leave out.
_IN_LONG = "greeting greeting_all closing typos filler forward_intro roles newsletter more".split()
_PAIRED = ("announce", "successor")  # banks whose sentences share a mail
_THINGS = ("purposes", "titles", "items", "causes", "faults")
_SLOT = re.compile(r"\{(\w+)\}")
_INNER_STOP = re.compile(r"[.?!] ")
_WORD = re.compile(r"[^\W_]+")

# Words that rendering adds: subject prefixes, name endings, dates, amounts and numbers.
_RENDERED = (
    f"one two room re fw and inn hotel house tower online {' '.join((*MONTHS, *WEEKDAYS))}"
    f" {' '.join(map(str, range(100)))} 00 100 200 300 400 500 600 700 800 900 2019 2020"
    " the beginning middle end of am pm"
)

Banks = dict[str, tuple[str, ...]]


def words_of(text: str) -> set[str]:
    """Return the distinct lower-cased alphanumeric words of a text: the unit of `vocabulary`."""
    return set(_WORD.findall(text.lower()))


@functools.cache
def word_list(name: str) -> tuple[str, ...]:
    """Return the lines of a word file of this package, without comments."""
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))


load_toml = functools.partial(toml_table, __package__)


@functools.cache
def slots_of(kind: str, bank: str) -> frozenset[str]:
    """Return the slots in all phrases of a story's bank."""
    return frozenset(_SLOT.findall(" ".join(load_toml(f"phrases/{kind}.toml")[bank])))


def pick(rng: Random, items: tuple[str, ...]) -> str:
    """Return one of the items, faster than `Random.choice`."""
    return items[int(rng.random() * len(items))]


class Wording:
    """Every bank of a world: `story[kind][bank]`, `chatter[topic][bank]`, `common[bank]`."""

    def __init__(self, kinds: Sequence[str], *, short: bool, cap: int | None) -> None:
        self._short, self._cap = short, cap
        self.story = {kind: self._banks(load_toml(f"phrases/{kind}.toml")) for kind in kinds}
        common, topics = map(dict, map(load_toml, ("phrases/common.toml", "phrases/chatter.toml")))
        for table in (common, topics) if short else ():
            for name in table.keys() & _IN_LONG:
                del table[name]
        self.common = self._banks(common)
        self.chatter = {name: self._banks(topic) for name, topic in topics.items()}

    def _banks(self, table: dict[str, list[str]]) -> Banks:
        banks = {}
        for name, phrases in table.items():
            stops = (0 if name in _PAIRED else 1) if self._short else math.inf
            short = [phrase for phrase in phrases if len(_INNER_STOP.findall(phrase)) <= stops]
            # Facts are about things: keep a few more of them.
            limit = self._cap and self._cap + 3 * (name in _THINGS)
            banks[name] = tuple(short[:limit])
        return banks

    def words(self) -> set[str]:
        tables = (*self.story.values(), *self.chatter.values(), self.common)
        phrases = (phrase for banks in tables for bank in banks.values() for phrase in bank)
        return words_of(_RENDERED) | words_of(_SLOT.sub(" ", "\n".join(phrases)))


# ---- Days, and the values of facts.


def workday(offset: int) -> dt.date:
    """Return the day `offset` days after the epoch, or the next Monday if that is a weekend."""
    day = EPOCH + dt.timedelta(days=offset)
    return day + dt.timedelta(days=7 - day.weekday()) if day.weekday() > 4 else day


def ordinal(number: int) -> str:
    """Return 1st, 2nd, 3rd, 4th ..."""
    last = 0 if number in (11, 12, 13) else number % 10
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(last, 'th') }"


@dataclass(frozen=True, slots=True)
class FactValue:
    """A value that a mail states, in the form of an answer and in the mail's words."""

    answer: str
    text: str

    def __str__(self) -> str:
        return self.text


def date_answer(day: dt.date) -> str:
    """Format as "March 3, 2020"."""
    return f"{MONTHS[day.month - 1]} {day.day}, {day.year}"


# ---- Names and people, made on demand from their numbers.

_CAPS = (8, 6, 5, 4, 3, 2)  # phrases of a bank, tried from the richest
_PLAIN = str.maketrans({"ł": "l", "Ł": "L", "ø": "o", "Ø": "O", "ß": "ss", "ı": "i"})
_OFFSETS = (-480, -480, -420, -360, -360, -300, -300, 0, 60, 60, 120, 330, 540)  # minutes
_FREE_HOSTS = ("postbox.example", "mailhive.example", "quickmail.example", "homenet.example")


def ascii_fold(text: str) -> str:
    """Reduce `text` to lower-case ASCII letters and digits, for addresses."""
    plain = unicodedata.normalize("NFKD", text.translate(_PLAIN))
    return re.sub(r"[^a-z0-9]", "", plain.encode("ascii", "ignore").decode().lower())


class Pairs:
    """Distinct pairs from two word lists; any `len(first)` in a row differ in their first words."""

    def __init__(self, rng: Random, first: list[str], second: list[str]) -> None:
        self.first = rng.sample(first, len(first))
        self.second = rng.sample(second, len(second))
        size = len(self.second)
        self._step = next(k for k in range(7, 7 + size) if math.gcd(len(first) * k + 1, size) == 1)

    def __getitem__(self, index: int) -> tuple[str, str]:
        turn, at = divmod(index, len(self.first))  # a turn shifts `second`, coprime to its size
        return self.first[at], self.second[(index * self._step + turn) % len(self.second)]


@dataclass(frozen=True, slots=True)
class Person:
    """`mailbox` and `other_mailbox` are (name, address); `utc_offset` is in minutes."""

    number: int
    forename: str
    family: str
    nick: str
    role: str
    mailbox: tuple[str, str]
    other_mailbox: tuple[str, str]
    utc_offset: int
    owner: bool

    @property
    def full(self) -> str:
        return f"{self.forename} {self.family}"

    @property
    def address(self) -> str:
        return self.mailbox[1]

    @property
    def signs(self) -> str:
        return self.nick if self.number % 3 else self.forename


class Company:
    """A world's wording, staff, cities, and further people and coined names ("Copper Heron"). The
    first `owners` of the staff own the inboxes. With `vocabulary`, the pools of names are as large
    as that limit on all words allows. Worlds of the same `names` share the pools and pair them
    differently. `plain`: mails have no quotes, attachments or HTML."""

    def __init__(
        self, seed: int, owners: int, staff: int, people: int, coined: int, short: bool,
        vocabulary: int | None, names: int | None, kinds: Sequence[str],
    ) -> None:  # fmt: skip
        self.owners, self.short, self.bounded = owners, short, vocabulary is not None
        self.plain = short or self.bounded
        rng = Random(f"{seed if names is None else names}/names")
        forenames = [line.split(" ") for line in word_list("given.txt")]
        family, cities = list(word_list("family.txt")), list(word_list("cities.txt"))
        parts = load_toml("coined.toml")
        firsts, nouns = list(parts["adjectives"]), list(parts["nouns"])
        if vocabulary is None:
            self.wording = Wording(kinds, short=short, cap=None)
            firsts += [head + tail for head in parts["heads"] for tail in parts["tails"]]
        else:
            forenames = [row for row in forenames if len(words_of(" ".join(row))) == len(row)]
            family = [name for name in family if len(words_of(name)) == 1]
            cities = [name for name in cities if len(words_of(name)) == 1]
            pools: list[list[Any]] = [forenames, family, cities, firsts, nouns]
            for pool in pools:
                rng.shuffle(pool)
            self.wording, sizes = _fit(kinds, people, coined, short=short, vocabulary=vocabulary)
            for pool, size in zip(pools, sizes, strict=True):
                del pool[size:]
        if names is not None:
            rng = Random(f"{seed}/pairs")
        self.short_forms = {forms[0]: forms[1] for forms in forenames if len(forms) == 2}
        self.people = Pairs(rng, [forms[0] for forms in forenames], family)
        self._coined = Pairs(rng, firsts, nouns)
        cities = rng.sample(cities, len(cities))
        self.cities = tuple(Random(f"{seed}/company").sample(cities, len(cities)))
        self._domains = [f"{ascii_fold(self.coined(number))}.example" for number in (0, 1)]
        self.name, self.staff = f"{self.coined(0)} Freight", tuple(map(self.person, range(staff)))

    def coined(self, number: int) -> str:
        return " ".join(self._coined[number])

    def person(self, number: int) -> Person:
        forename, family = self.people[number]
        nick = self.short_forms.get(forename, forename)
        plain_given, plain_family = ascii_fold(forename), ascii_fold(family)
        roles = self.wording.common.get("roles", ("Staff",))
        domain, old_domain = self._domains
        hosts = (old_domain, *_FREE_HOSTS)
        styles = (*[f"{forename} {family}"] * 2, f"{family}, {forename}", f"{nick} {family}", "")
        # The number keeps private addresses apart if people share initial and family name.
        private = f"{plain_given[0]}{plain_family}{number}@{hosts[number % len(hosts)]}"
        return Person(
            number, forename, family, nick, role=roles[number * 7 % len(roles)],
            mailbox=(styles[number % 5], f"{plain_given}.{plain_family}@{domain}"),
            other_mailbox=(styles[(number + 1) % 4], private),
            utc_offset=_OFFSETS[number * 5 % len(_OFFSETS)], owner=number < self.owners,
        )  # fmt: skip


def _sizes(room: int, people: int, coined: int) -> list[int] | None:
    """Return how many forenames, family names, cities, first words, nouns fit; None if too few."""
    cities = max(12, min(60, room // 12))
    rest = room - cities
    forenames, family = min(rest // 6, 200), min(rest * 3 // 10, 250)
    left = rest - 2 * forenames - family  # a forename may have a short form, too
    firsts = min(left * 2 // 5, 80)
    nouns = min(left - firsts, 140)
    fits = forenames * family >= people and firsts * nouns >= coined
    roomy = forenames >= 20 and family >= 20 and firsts >= 12 and nouns >= 12
    return [forenames, family, cities, firsts, nouns] if fits and roomy else None


def _fit(
    kinds: Sequence[str], people: int, coined: int, *, short: bool, vocabulary: int
) -> tuple[Wording, list[int]]:
    """Return the richest wording that leaves a third of the words for names, else the leanest."""
    for cap in _CAPS:
        wording = Wording(kinds, short=short, cap=cap)
        room = vocabulary - len(wording.words())
        sizes = _sizes(room, people, coined)
        if sizes is not None and (room * 3 >= vocabulary or cap == _CAPS[-1]):
            return wording, sizes
    minimum = vocabulary - room + next(r for r in range(100_000) if _sizes(r, people, coined))
    raise UserError(f"vocabulary={vocabulary} is too small for this world; use {minimum} or more")
