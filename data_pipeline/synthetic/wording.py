"""The phrase banks of a world, cut to its mode, and the words that they bring.

A bank is a tuple of format strings. Short mode keeps phrases of one or two
sentences; a bounded vocabulary keeps the first few of each bank. Knows nothing of people,
dates or mail.
"""

import functools
import re
import tomllib
from importlib import resources
from random import Random
from typing import NamedTuple

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
