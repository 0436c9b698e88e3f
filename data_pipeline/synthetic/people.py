"""The people of a world: names, nicknames, roles and two addresses each.

People are made on demand from their number, so a world of any size holds only
those it needs. Knows nothing of mail or stories.
"""

import math
import re
import unicodedata
from dataclasses import dataclass
from random import Random

from art_e.errors import UserError
from data_pipeline.synthetic.rfc822 import mailbox
from data_pipeline.synthetic.wording import Wording, load_toml, spoken_words, word_list, words_of

# ---- Names made by the thousands: pairs of parts that never repeat, cut to a vocabulary.

_CAPS: tuple[int, ...] = (8, 6, 5, 4, 3, 2)
_PLAIN = str.maketrans({"ł": "l", "Ł": "L", "ø": "o", "Ø": "O", "ß": "ss", "ı": "i"})
# Words that rendering adds by itself in a bounded world: subject prefixes and name endings.
_FIXED = "one two room re fw and inn hotel house tower online 0 1 2 3 4 5 6 7 8 9"


def ascii_fold(text: str) -> str:
    """`text` in lower-case ASCII letters and digits, for addresses."""
    plain = unicodedata.normalize("NFKD", text.translate(_PLAIN))
    return re.sub(r"[^a-z0-9]", "", plain.encode("ascii", "ignore").decode().lower())


class Pairs:
    """The pairs of two word lists in an order where no pair comes twice.

    `self[i]` for 0 <= i < len(self); any `len(first)` pairs in a row have
    different first parts.
    """

    def __init__(self, rng: Random, first: list[str], second: list[str]) -> None:
        self.first = rng.sample(first, len(first))
        self.second = rng.sample(second, len(second))
        size = len(self.second)
        self._step = next(k for k in range(7, 7 + size) if math.gcd(len(first) * k + 1, size) == 1)

    def __len__(self) -> int:
        return len(self.first) * len(self.second)

    def __getitem__(self, index: int) -> tuple[str, str]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        turn, at = divmod(index, len(self.first))
        return self.first[at], self.second[(index * self._step + turn) % len(self.second)]


@dataclass(frozen=True, slots=True)
class Need:
    """How many distinct names a world uses up."""

    people: int
    coined: int
    cities: int = 12


class NamePools:
    """The names of one world: people, coined pairs ("Copper Heron"), cities.

    With `vocabulary`, the pools are the largest for which all words of the
    world's phrases, numbers and names stay within it.

    Worlds of the same `names` draw from the same pools, and pair them otherwise.
    """

    def __init__(
        self,
        seed: int,
        need: Need,
        *,
        short: bool,
        vocabulary: int | None,
        names: int | None = None,
    ) -> None:
        rng = Random(f"{seed if names is None else names}/names")
        self.bounded = vocabulary is not None
        given = [line.split(" ") for line in word_list("given.txt")]
        family = list(word_list("family.txt"))
        cities = list(word_list("cities.txt"))
        coined = load_toml("coined.toml")
        firsts = _strings(coined["adjectives"])
        nouns = _strings(coined["nouns"])
        if vocabulary is None:
            self.wording = Wording(short=short, cap=None)
            firsts += [h + t for h in _strings(coined["heads"]) for t in _strings(coined["tails"])]
        else:
            given = [parts for parts in given if len(words_of(" ".join(parts))) == len(parts)]
            family = [name for name in family if len(words_of(name)) == 1]
            cities = [name for name in cities if len(words_of(name)) == 1]
            rng.shuffle(given)
            for pool in (family, cities, firsts, nouns):
                rng.shuffle(pool)
            self.wording, sizes = _fit(need, short=short, vocabulary=vocabulary)
            given, family = given[: sizes[0]], family[: sizes[1]]
            cities, firsts, nouns = cities[: sizes[2]], firsts[: sizes[3]], nouns[: sizes[4]]
        if names is not None:
            rng = Random(f"{seed}/pairs")
        self.short_forms = {parts[0]: parts[1] for parts in given if len(parts) == 2}
        self.people = Pairs(rng, [parts[0] for parts in given], family)
        self.coined = Pairs(rng, firsts, nouns)
        self.cities = tuple(rng.sample(cities, len(cities)))


def _strings(value: object) -> list[str]:
    if not isinstance(value, list):
        raise TypeError("a word list of coined.toml is not a list")
    return [str(item) for item in value]


def _sizes(room: int, need: Need) -> tuple[int, int, int, int, int] | None:
    """How a room of that many words is shared out; None where it does not reach.

    A given name may cost two words (its short form); cities cost one each.
    """
    cities = max(need.cities, min(60, room // 12))
    rest = room - cities
    given = min(rest // 6, 200)
    family = min(rest * 3 // 10, 250)
    left = rest - 2 * given - family
    firsts = min(left * 2 // 5, 80)
    nouns = min(left - firsts, 140)
    fits = given * family >= need.people and firsts * nouns >= need.coined
    roomy = given >= 20 and family >= 20 and firsts >= 12 and nouns >= 12
    return (given, family, cities, firsts, nouns) if fits and roomy else None


def _fit(
    need: Need, *, short: bool, vocabulary: int
) -> tuple[Wording, tuple[int, int, int, int, int]]:
    """The richest wording that leaves a third of the vocabulary to names, or the leanest."""
    least = 0
    for cap in _CAPS:
        wording = Wording(short=short, cap=cap)
        static = len(wording.words() | spoken_words() | words_of(_FIXED))
        room = vocabulary - static
        sizes = _sizes(room, need)
        if sizes is not None and (room * 3 >= vocabulary or cap == _CAPS[-1]):
            return wording, sizes
        least = static + next(r for r in range(100_000) if _sizes(r, need) is not None)
    raise UserError(f"--vocabulary {vocabulary} is too small for this world; use {least} or more")


# ---- The people of a world: names, nicknames, roles and two addresses each.

_OFFSETS = (-480, -480, -420, -360, -360, -300, -300, 0, 60, 60, 120, 330, 540)
_FREE_HOSTS = ("postbox.example", "mailhive.example", "quickmail.example", "homenet.example")


@dataclass(frozen=True, slots=True)
class Person:
    """One person. `utc_offset` is in minutes; `header` and `other_header` are encoded mailboxes."""

    number: int
    given: str
    family: str
    nick: str
    role: str
    primary: str
    header: str
    other_header: str
    utc_offset: int
    owner: bool

    @property
    def full(self) -> str:
        """Given and family name."""
        return f"{self.given} {self.family}"

    @property
    def signs(self) -> str:
        """What the person writes under a mail."""
        return self.nick if self.number % 3 else self.given


class Directory:
    """Makes person number `i`; the first `owners` are those whose inboxes are asked about."""

    def __init__(self, pools: NamePools, *, domain: str, old_domain: str, owners: int) -> None:
        self._pools = pools
        self._domain = domain
        self._old_domain = old_domain
        self._owners = owners
        self._roles = pools.wording.common.get("roles", ("Staff",))

    def person(self, number: int, *, domain: str | None = None) -> Person:
        """Person `number`; with `domain`, an outsider who writes from there."""
        given, family = self._pools.people[number]
        nick = self._pools.short_forms.get(given, given)
        folded_given, folded_family = ascii_fold(given), ascii_fold(family)
        # The number keeps private addresses apart where people share an initial.
        hosts = (self._old_domain, *_FREE_HOSTS)
        host = hosts[number % len(hosts)]
        other = f"{folded_given[0]}{folded_family}{number}@{host}"
        primary = f"{folded_given}.{folded_family}@{domain or self._domain}"
        styles = (
            f"{given} {family}",
            f"{given} {family}",
            f"{family}, {given}",
            f"{nick} {family}",
            "",
        )
        return Person(
            number=number,
            given=given,
            family=family,
            nick=nick,
            role=self._roles[number * 7 % len(self._roles)],
            primary=primary,
            header=mailbox(styles[number % 5], primary),
            other_header=mailbox(styles[(number + 1) % 4], other),
            utc_offset=_OFFSETS[number * 5 % len(_OFFSETS)],
            owner=number < self._owners,
        )
