"""The owner of an inbox, and whether a question names the owner like somebody else.

Vince would not ask "What did Vince ask for?" about his own mail. A name that may be another
person's ("Vince" if a gold mail also names Vince Strickler) is not held against a question.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from art_e.inbox.file import InboxFile
from art_e.inbox.mail import Email
from evals.judges.names import content_stems, find_names, same_first
from evals.judges.values import clean

_SUFFIXES = frozenset("jr sr ii iii iv phd md esq".split())
_TITLES = frozenset("mr mrs ms miss dr prof professor sir".split())
_WORD = re.compile(r"[^\W\d_](?:[\w'-]*\w)?")
# Between the words of one name: a space, or initials.
_INSIDE_NAME = re.compile(r"\.? (?:[A-Za-z]\.? )?")


class FullName(NamedTuple):
    """First and last name, lower case."""

    first: str
    last: str


class Mention(NamedTuple):
    """The owner's name as it stands in a text; `sure` if it can be nobody else's."""

    text: str
    sure: bool


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of an inbox: the address and the names that mail gives it."""

    address: str
    names: tuple[FullName, ...]

    def mention(self, text: str, mails: Callable[[], Iterable[Email]]) -> Mention | None:
        """Where `text` names the owner, a sure mention first; None if it does not.

        `mails` reads the gold mails, in which others may have the owner's first name. It is called
        only if that matters.
        """
        text = clean(text)
        if re.search(rf"(?<![\w.+-]){re.escape(self.address)}(?![\w-])", text, re.IGNORECASE):
            return Mention(self.address, True)
        mentions = list(self._mentions(text))
        certain = next((each for each in mentions if each.sure), None)
        if certain is None:
            return next(iter(mentions), None)
        if " " not in certain.text and self._shared(certain.text, mails()):
            return Mention(certain.text, False)
        return certain

    def _mentions(self, text: str) -> Iterator[Mention]:
        firsts = {name.first for name in self.names}
        lasts = {name.last for name in self.names}
        # Initials are parts of names.
        words = [_Word(match) for match in _WORD.finditer(text) if len(match[0]) > 1]
        # Without capitals, or with capitals only, case says nothing.
        plain = text.isupper() or not any(word.capital for word in words[1:])
        for at, word in enumerate(words):
            if word.name not in firsts | lasts or not (plain or word.capital):
                continue
            before = words[at - 1] if at and words[at - 1].joins(word, text) else None
            after = (
                words[at + 1] if at + 1 < len(words) and word.joins(words[at + 1], text) else None
            )
            if word.name in firsts and after and after.name in lasts:
                yield Mention(text[word.start : after.end].removesuffix("'s"), True)
            elif word.name in lasts:
                yield from self._by_last(text, word, before, words[at + 1 : at + 2], plain)
            elif at == 0 and not content_stems(word.text):
                continue  # "Will" or "May" at the start of a question
            elif plain:
                yield Mention(word.text, False)
            elif not (
                (after and after.capital) or (before and before.capital and before is not words[0])
            ):
                yield Mention(word.text, True)

    def _by_last(
        self, text: str, word: "_Word", before: "_Word | None", after: "list[_Word]", plain: bool
    ) -> Iterator[Mention]:
        """Mentions by last name: with a first name or a title, or alone."""
        firsts = {name.first for name in self.names if name.last == word.name}
        if after and text[word.end : after[0].start] == ", " and after[0].name in firsts:
            yield Mention(text[word.start : after[0].end], True)
        elif before is None:
            yield Mention(word.text, False)
        elif before.name in _TITLES or (
            len(before.name) > 2 and any(same_first(first, before.name) for first in firsts)
        ):
            yield Mention(text[before.start : word.end].removesuffix("'s"), True)
        elif plain or not before.capital or before.start == 0:
            yield Mention(word.text, False)

    def _shared(self, first: str, mails: Iterable[Email]) -> bool:
        """Whether the mails name somebody else of that first name."""
        lasts = {name.last for name in self.names}
        for mail in mails:
            boxes = (mail.sender, *mail.to, *mail.cc, *mail.bcc)
            named = [name for box in boxes for name in _names(box.address, [box.name or "@"])]
            named += [
                FullName(name.words[0], name.words[-1])
                for name in find_names(clean(mail.body))
                if len(name.words) > 1
            ]
            if any(each.first == first.lower() and each.last not in lasts for each in named):
                return True
        return False


class _Word:
    """A word of a text; `name` is its form for comparisons."""

    def __init__(self, match: re.Match[str]) -> None:
        self.text = match[0].removesuffix("'s").removesuffix("'S")
        self.name = self.text.lower()
        self.capital = match[0][0].isupper()
        self.owns = self.text != match[0]
        self.start, self.end = match.span()

    def joins(self, following: "_Word", text: str) -> bool:
        """Whether both may be words of one name ("Vince J. Kaminski")."""
        between = text[self.end : following.start]
        return not self.owns and _INSIDE_NAME.fullmatch(between) is not None


def owner_of(file: InboxFile, address: str) -> Owner | None:
    """The owner of the inbox; None if the file has no such inbox."""
    wanted = address.strip().lower()
    row = file.execute("SELECT names FROM addresses WHERE address = ?", [wanted]).fetchone()
    return None if row is None else Owner(wanted, _names(wanted, row[0].split(" | ")))


def _names(address: str, given: Iterable[str]) -> tuple[FullName, ...]:
    local = address.partition("@")[0]
    names = [name for each in given if (name := _full_name(each)) is not None]
    # Mail may also give the names of those who write for the owner.
    fitting = [name for name in names if name.first in local or name.last in local]
    if (own := _full_name(re.sub(r"[._-]+", " ", local))) is not None:
        # Such as vince.kaminski for "vincent kaminski"; not all.employees.
        fitting += [own] * (not names or any(own.last == name.last for name in names))
    return tuple(sorted(set(fitting or names)))


def _full_name(text: str) -> FullName | None:
    """First and last name of "vince j kaminski" or "kaminski, vince j."; None otherwise."""
    if "@" in text or any(char.isdigit() for char in text):
        return None
    last, comma, first = text.lower().partition(",")
    parts = [_name_words(part) for part in ((first, last) if comma else (text.lower(),))]
    if not all(parts):
        return None
    words = [word for part in parts for word in part]
    return FullName(words[0], words[-1]) if len(words) > 1 else None


def _name_words(text: str) -> list[str]:
    """Words of a name without initials, titles and suffixes."""
    words = [match[0].lower() for match in _WORD.finditer(text)]
    return [word for word in words if len(word) > 1 and word not in _SUFFIXES | _TITLES]
