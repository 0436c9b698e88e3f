"""The query language that people type, here and in every command and page that searches.

    lease from:ann "move date" -draft after:2024-03-01 (before:"last monday", older_than:2w)

Words are ranked, and a mail needs one of them. Everything else filters: "phrases", operators, and
`-`, which excludes. Filters hold together; `OR` between two lets one of them do. An operator that
is not known is an error and never searched for as a word.
"""

import calendar
import contextlib
import datetime as dt
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from art_e.errors import UserError
from art_e.inbox.mail import Mask, Numbers
from art_e.inbox.slice import Slice
from art_e.inbox.tokenizer import MAX_WORD_CHARS, addresses, fold, is_unspaced, stems, tokens, words
from art_e.text import visible

# docs/inbox.md has a table of what each finds; those of `_CHOICES` take these values alone.
OPERATORS = (
    "from to cc subject label in is has filename after before on older_than newer_than".split()
)
_CHOICES = {
    "in": ("inbox", "sent", "drafts", "spam", "trash", "anywhere"),
    "is": ("unread", "read", "starred", "answered"),
    "has": ("attachment",),
}
# Places whose mail is in an inbox only if it is asked for.
_LEFT_OUT = frozenset({"drafts", "spam", "trash", "anywhere"})
_TOKEN = re.compile(r'(-?)(?:([A-Za-z_]+):(?!//))?("[^"]*"|[^\s"]+)')
_UNQUOTED = re.compile(r'(-?[A-Za-z_]+:)([^"]*\s[^"]*)')
_DAY = re.compile(r"\b((?:after|before|on):)(\d+ \w+ ago|last \w+|[a-z]+ \d{4})\b", re.IGNORECASE)
_NAMED_ONLY = re.compile(r"-?([A-Za-z_]+):")
_LETTER, _GAP = r"[^\W_]", r"[\W_]+"


class Term(NamedTuple):
    """A filter: an operator of `OPERATORS`, "phrase" or "word", with its value."""

    operator: str
    value: str
    excludes: bool = False


class Query(NamedTuple):
    """A parsed query: the words to rank by, and filters, of each group of which one must hold."""

    words: list[str]
    groups: list[list[Term]]

    @property
    def junk(self) -> bool:
        """Whether it asks for mail that is left out otherwise: spam, trash or drafts."""
        return any(
            each.operator == "in" and each.value in _LEFT_OUT and not each.excludes
            for group in self.groups
            for each in group
        )


def parse_query(text: str, today: dt.date) -> Query:
    """The query in `text`; relative days count from `today`. Raises `UserError` for an unknown
    operator, a value that it can't have, and `OR` beside nothing."""
    groups: list[list[Term]] = []
    terms = list(_terms(text, today))  # None: OR
    # An OR at an end stands beside another None, as two in a row do.
    for before, term in itertools.pairwise([None, *terms, None] if terms else []):
        if term is None and before is None:
            raise UserError("OR stands between two terms: from:ann OR from:bob")
        if term is not None and before is None and groups:
            groups[-1].append(term)
        elif term is not None:
            groups.append([term])
    # A mail needs one of these, so beside another filter that may hold instead there are none.
    ranked = [
        term.value
        for group in groups
        if all(each.operator in ("word", "phrase") and not each.excludes for each in group)
        for term in group
    ]
    # Words by themselves are ranked, and a mail needs only one of all.
    kept = [group for group in groups if any(each != Term("word", each.value) for each in group)]
    return Query(ranked, kept)


def joined(arguments: Sequence[str]) -> str:
    """The query of a command line's arguments, whose quotes the shell has taken: of several, what
    stands behind an operator is one value; a single one is the whole query."""
    if len(arguments) == 1:
        return arguments[0]
    return " ".join(_UNQUOTED.sub(r'\1"\2"', each) for each in arguments)


def _terms(text: str, today: dt.date) -> Iterator[Term | None]:
    """The terms in order; None for OR. A day of several words needs no quotes."""

    def quoted_day(found: re.Match[str]) -> str:
        return found[0] if day_of(found[2], today) is None else f'{found[1]}"{found[2]}"'

    for found in _TOKEN.finditer(_DAY.sub(quoted_day, visible(text))):
        minus, name, value = found.groups()
        quoted, value = value.startswith('"'), value.strip('"')
        if name is not None:
            yield Term(name.lower(), _checked(name.lower(), value, today), bool(minus))
        elif found[0] == "OR":
            yield None
        elif (empty := _NAMED_ONLY.fullmatch(found[0])) is not None:
            raise UserError(f"{empty[1]}: has no value; write {empty[1]}:VALUE without a space")
        elif words(value):
            yield Term("phrase" if quoted else "word", value, bool(minus))


def _checked(name: str, value: str, today: dt.date) -> str:
    """The value as `Term` has it: days and ages as days in ISO form."""
    if name not in OPERATORS:
        known = " ".join(f"{each}:" for each in OPERATORS)
        raise UserError(f"there is no operator {name}:; quote it to search for it, or use {known}")
    if name in _CHOICES:
        chosen = value.casefold()
        if chosen not in _CHOICES[name]:
            raise UserError(f"{name}:{value} is not one of {', '.join(_CHOICES[name])}")
        return chosen
    if name in ("older_than", "newer_than"):
        if (age := re.fullmatch(r"(\d{1,5})([dwmy])", value)) is None:
            raise UserError(f"{name}:{value} is no age; write a number with d, w, m or y: 3w")
        return _before(today, int(age[1]), age[2]).isoformat()
    if name in ("after", "before", "on"):
        if (day := day_of(value, today)) is None:
            raise UserError(
                f'{name}:{value} is no day; write 2024-03-31, 2024-03, yesterday, "last monday",'
                ' "3 days ago" or "march 2024"'
            )
        return day.isoformat()
    return value


def _before(day: dt.date, count: int, unit: str) -> dt.date:
    """The day so many days, weeks, months or years before; at the earliest the first of all."""
    if unit in "dw":
        ordinal = day.toordinal() - count * (7 if unit == "w" else 1)
        return dt.date.fromordinal(max(1, ordinal))
    months = day.year * 12 + day.month - 1 - count * (12 if unit == "y" else 1)
    if months < 12:
        return dt.date.min
    year, month = months // 12, months % 12 + 1
    return dt.date(year, month, min(day.day, calendar.monthrange(year, month)[1]))


_UNITS = "day|week|month|year"


def day_of(text: str, today: dt.date) -> dt.date | None:
    """The day that a person names, the first of a month or a year; None if it isn't one. A weekday
    is the last one before `today`, a month without a year the latest such month."""
    plain = " ".join(text.casefold().split())
    if ago := re.fullmatch(rf"(?:(\d{{1,5}}) ({_UNITS})s? ago|last ({_UNITS}))", plain):
        return _before(today, int(ago[1] or 1), (ago[2] or ago[3])[0])
    if plain in ("today", "yesterday"):
        return today - dt.timedelta(plain == "yesterday")
    if (weekday := _place(plain.removeprefix("last "), calendar.day_name)) is not None:
        return today - dt.timedelta((today.weekday() - weekday - 1) % 7 + 1)
    date = re.fullmatch(r"(\d{4})(?:[-/.](\d{1,2}))?(?:[-/.](\d{1,2}))?|(\w+?)(?: (\d{4}))?", plain)
    if date is None:
        return None
    year, month, day = (int(date[number] or 1) for number in (1, 2, 3))
    if date[1] is None:
        month = _place(date[4], calendar.month_name) or 0
        year = int(date[5] or today.year - (month > today.month))
    with contextlib.suppress(ValueError):
        return dt.date(year, month, day)
    return None


def _place(name: str, names: Iterable[str]) -> int | None:
    """The place of a name, whole or its first three letters, among `names`."""
    listed = [each.lower() for each in names]
    return next((n for n, each in enumerate(listed) if each and name in (each, each[:3])), None)


# ---- Which mails of an inbox pass.


def passing(query: Query, mail: Slice, size: int, holding: Callable[[str], Numbers]) -> Mask:
    """Which of the first `size` mails pass the filters; `holding` gives the positions of a stem."""
    passes = np.ones(size, dtype=np.bool_)
    for group in query.groups:
        one = np.zeros(size, dtype=np.bool_)
        for term in group:
            one |= _holds(term, mail, size, holding) != term.excludes
        passes &= one
    return passes


def _holds(term: Term, mail: Slice, size: int, holding: Callable[[str], Numbers]) -> Mask:
    name, value = term.operator, term.value
    every: Mask = np.ones(size, dtype=np.bool_)
    if name in ("from", "to", "cc"):
        return mail.matching(value, name, size)[:size]
    if name in ("word", "subject", "phrase"):
        return _holds_words(name, value, mail, every, holding)
    if name in ("after", "before", "on", "older_than", "newer_than"):
        day, wanted = mail.day[:size], dt.date.fromisoformat(value).toordinal()
        before: Mask = (day < wanted) & (day > 0)
        since: Mask = day == wanted if name == "on" else day >= wanted
        return before if name in ("before", "older_than") else since
    if name in ("has", "filename"):
        parts = words(value) if name == "filename" else []
        return mail.where("name", lambda file: all(p in fold(file) for p in parts), every, "files")
    if (name, value) == ("in", "anywhere"):
        return every
    # A label, or one below it.
    is_read = (name, value) == ("is", "read")
    label = f"{'unread' if is_read else value.casefold()}/"
    labelled = mail.where(
        "labels",
        lambda held: any(f"{each.casefold()}/".startswith(label) for each in held),
        every,
        mail.labelled,
    )
    if is_read:
        labelled = mail.where("labels", lambda _: True, every, mail.labelled) & ~labelled
    return labelled


def _holds_words(
    name: str, value: str, mail: Slice, every: Mask, holding: Callable[[str], Numbers]
) -> Mask:
    """Which mails hold the words of a value: anywhere, in the subject, or in a row."""
    wanted = tokens(value) if name == "phrase" else addresses(value) or tokens(value)
    stemmed = stems(wanted)
    held = every & bool(wanted)
    for word, stem in zip(wanted, stemmed, strict=True):
        # A phrase may begin with half a pair of characters; and long words are not indexed.
        if name != "phrase" or 1 < len(word) <= MAX_WORD_CHARS:
            held &= np.bincount(holding(stem), minlength=len(every)) > 0
    if name == "subject":
        return mail.where(
            "subject", lambda text: {*stemmed} <= {*stems(addresses(text) + tokens(text))}, held
        )
    return _in_a_row(words(value), mail, held) if name == "phrase" else held


def _in_a_row(named: list[str], mail: Slice, among: Mask) -> Mask:
    """Which mails have these words in a row, in the subject or the text."""
    first, *rest = map(re.escape, named)
    # What may not stand before the first word is looked for behind it, which is ten times as fast.
    # Without spaces there are no edges.
    before = "" if is_unspaced(named[0]) else rf"(?<!{_LETTER}{first})"
    after = "" if is_unspaced(named[-1][-1]) else rf"(?!{_LETTER})"
    row = re.compile(_GAP.join([first + before, *rest]) + after)
    (places,) = among.nonzero()
    holds = np.zeros_like(among)
    rows = mail.rows(places.tolist())
    holds[places] = [any(row.search(fold(text)) for text in each[-2:]) for each in rows]
    return holds
