"""The owner of an inbox, and whether a question names the owner like somebody else.

Vince would not ask "What did Vince ask for?" about his own mail. A name that may be another
person's ("Vince" if a gold mail also names Vince Strickler) is not held against a question.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from art_e.inbox.file import InboxFile
from art_e.inbox.mail import Email
from evals.judges.names import content_stems, find_names
from evals.judges.values import clean

_IGNORED = frozenset("jr sr ii iii iv phd md esq mr mrs ms miss dr prof professor sir".split())
_WORD = re.compile(r"[^\W\d_](?:[\w'-]*\w)?")


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
        forms = [rf"(?<![\w.+-]){re.escape(self.address)}(?![\w-])"]
        for name in self.names:
            first, last = map(re.escape, name)
            forms += [
                rf"\b{first} (?:\w\.? )?{last}\b",
                rf"\b{last}, {first}\b",
                rf"\b(?:mr|mrs|ms|miss|dr|prof|professor|sir)\.? {last}\b",
            ]
        if found := re.search("|".join(forms), text, re.IGNORECASE):
            return Mention(found[0], True)
        words = [match for match in _WORD.finditer(text) if len(match[0]) > 1]
        alone = [
            (place, word)
            for place, word in enumerate(words)
            if any(_plain(word) in name for name in self.names)
            # "Will" or "May" at the start of a question is no name.
            and (place or content_stems(_plain(word)))
        ]
        for place, word in alone:
            # Not the first word, which always has a capital.
            neighbours = words[place + 1 : place + 2] + words[max(1, place - 1) : place]
            of_another = any(each[0][0].isupper() for each in neighbours)
            is_first = any(_plain(word) == name.first for name in self.names)
            shown = word[0].removesuffix("'s")
            if is_first and word[0][0].isupper() and not of_another:
                return Mention(shown, not self._shared(_plain(word), mails()))
            if not of_another:
                return Mention(shown, False)
        return None

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
            if any(each.first == first and each.last not in lasts for each in named):
                return True
        return False


def _plain(word: re.Match[str]) -> str:
    return word[0].lower().removesuffix("'s")


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
    found = _WORD.findall(f"{first} {last}" if comma else text.lower())
    words = [word for word in found if len(word) > 1 and word not in _IGNORED]
    return FullName(words[0], words[-1]) if len(words) > 1 else None
