"""The query language of every command and page that searches.

lease from:(ann OR bob) "move date" -draft after:2024-03-01 {has:attachment older_than:2w}

Words are ranked, and a mail needs one of them. The rest filters: "phrases", operators, word* and
`-`, which excludes. Filters must all hold; of those joined by `OR` or in {a b} one is enough. Text
that is not understood is an error."""

import calendar
import contextlib
import datetime as dt
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np

from art_e.errors import UserError
from art_e.inbox.mail import Mask, Numbers
from art_e.inbox.slice import Slice
from art_e.inbox.tokenizer import MAX_WORD_CHARS, addresses, fold, is_unspaced, stems, tokens, words
from art_e.text import visible

# docs/inbox.md has a table of what each one finds; those in `_CHOICES` take only its values.
OPERATORS = (
    "from to cc subject list label category in is has filename"
    " after before on older_than newer_than"
).split()
_CHOICES = {
    "in": ("inbox", "sent", "drafts", "spam", "trash", "anywhere"),
    "is": ("unread", "read", "starred", "answered", "important", "bulk"),
    "category": tuple("primary social promotions updates forums reservations purchases".split()),
    "has": ("attachment",),
}
# Places whose mail is searched only on request.
_LEFT_OUT = frozenset({"drafts", "spam", "trash", "anywhere"})
_TOKEN = re.compile(r'(-?)(?:([A-Za-z_]+):(?!//))?(?:"([^"]*)"|([({])|([^\s"(){}]+)|(?<=:))|([)}])')
_UNKNOWN = re.compile(r"AROUND\Z|\+(?=[^\W\d_])")  # Gmail's, not supported
_CLOSING = {"(": ")", "{": "}"}
_OR = "OR must be between two terms: from:ann OR from:bob"
_MOST_BRACKETS = 100  # `_read` and `passing` recurse once for each
_PREFIX, _SHORTEST_PREFIX = re.compile(r"[^*]*[^\W_]\*"), 3
_UNQUOTED = re.compile(r'\A(-?[A-Za-z_]+:)(?![({])(?!.*\sOR\s)([^"]*\s[^"]*)\Z')
_DAY = re.compile(r"\b((?:after|before|on):)(\d+ \w+ ago|last \w+|[a-z]+ \d{4})\b", re.IGNORECASE)
_LETTER, _GAP = r"[^\W_]", r"[\W_]+"


class Filter(NamedTuple):
    """An operator, "word", "phrase" or "prefix" with its value, or "and", "or", "not" of parts."""

    operator: str
    value: str = ""
    parts: tuple["Filter", ...] = ()

    @property
    def together(self) -> "Iterator[Filter]":
        if self.operator == "and" or (self.operator == "or" and len(self.parts) == 1):
            return itertools.chain(*(each.together for each in self.parts))
        return iter([self])

    @property
    def needed(self) -> list[str]:
        """Return words of which every passing mail has one; [] if a mail can pass without them."""
        if self.operator in ("word", "phrase"):
            return [self.value]
        lists = [] if self.operator == "not" else [each.needed for each in self.parts]
        return [] if self.operator == "or" and not all(lists) else [*itertools.chain(*lists)]

    @property
    def junk(self) -> bool:
        """Return True if it asks for mail that is otherwise left out: spam, trash or drafts."""
        reaches = any(each.junk for each in self.parts) and self.operator != "not"
        return reaches or (self.operator == "in" and self.value in _LEFT_OUT)


class Query(NamedTuple):
    """A parsed query: the words to rank by, the filter, and whether it asks for junk."""

    words: list[str]
    filter: Filter
    junk: bool = False


def parse_query(text: str, today: dt.date) -> Query:
    """Return the query in `text`; relative days count from `today`. A day of several words needs no
    quotes. Raises `UserError` for invalid text, such as an unknown operator."""

    def quoted_day(match: re.Match[str]) -> str:
        return match[0] if day_of(match[2], today) is None else f'{match[1]}"{match[2]}"'

    plain = " ".join(visible(text).split())
    if plain.count("(") + plain.count("{") > _MOST_BRACKETS:
        raise UserError(f"the query has more than {_MOST_BRACKETS} brackets; use fewer")
    whole = _read(_TOKEN.finditer(_DAY.sub(quoted_day, plain)), today)
    # Bare words are not filters: they are ranked, and a mail needs only one of them.
    filters = tuple(each for each in whole.together if each.operator != "word")
    return Query(whole.needed, Filter("and", parts=filters), whole.junk)


def join_arguments(arguments: Sequence[str]) -> str:
    """Join a command line's arguments, whose quotes the shell removed, into a query. If there are
    several, the text after an operator is one value; a single argument is the whole query."""
    if len(arguments) == 1:
        return arguments[0]
    return " ".join(_UNQUOTED.sub(r'\1"\2"', each) for each in arguments)


def _read(
    tokens: Iterator[re.Match[str]], today: dt.date, opening: str = "", field: str = ""
) -> Filter:
    """Return the filter up to the bracket that closes `opening`, after the operator `field`. `OR`
    binds tighter than a space or `AND`."""
    groups: list[list[Filter]] = []
    closing, after_or = None, False
    for token in tokens:
        if closing := token[6]:
            break
        if token[0] == "OR":
            if after_or or not groups:
                raise UserError(_OR)
            after_or = True
        elif token[0] != "AND" and (part := _part(token, tokens, today, field)) is not None:
            groups += [] if after_or else [[]]
            groups[-1].append(part)
            after_or = False
    if closing != _CLOSING.get(opening):
        raise UserError(f"unmatched {opening or closing}; add the other bracket, or quote it")
    if after_or:
        raise UserError(_OR)
    if opening and not groups:
        raise UserError(f"there is nothing between {opening} and {closing}")
    parts = tuple(Filter("or", parts=tuple(group)) for group in groups)
    return Filter("or" if opening == "{" else "and", parts=parts)


def _part(
    token: re.Match[str], tokens: Iterator[re.Match[str]], today: dt.date, field: str
) -> Filter | None:
    """Return a word, phrase, value or bracket, continued by `tokens`; None for punctuation."""
    minus, name, quoted, bracket, word, _ = token.groups()
    if name and field:
        raise UserError(f"brackets after {field}: may have only words; close them before {name}:")
    if (operator := (name or field).lower()) not in ("", *OPERATORS):
        raise _unknown(f"{operator}:")
    value = quoted or word or ""
    if bracket:
        part = _read(tokens, today, bracket, operator)
    elif operator:
        part = Filter(operator, _checked(operator, value, today))
    elif words(value):
        part = Filter("phrase" if quoted else _kind(word), value)
    else:
        return None
    return Filter("not", parts=(part,)) if minus else part


def _kind(word: str) -> str:
    """Return "prefix" for text that ends in "*", in scripts with spaces; else "word"."""
    if (unknown := _UNKNOWN.match(word)) is not None:
        raise _unknown(unknown[0])
    last = words(word)[-1]
    if not _PREFIX.fullmatch(word) or is_unspaced(last):
        return "word"
    if len(last) < _SHORTEST_PREFIX:
        raise UserError(f"{word} matches too many words; write three letters or more before *")
    return "prefix"


def _unknown(name: str) -> UserError:
    known = " ".join(f"{each}:" for each in OPERATORS)
    return UserError(f"there is no operator {name}; quote it to search for it, or use {known}")


def _checked(name: str, value: str, today: dt.date) -> str:
    """Return the value as `Filter` has it: days and ages as days in ISO form."""
    if not (words(value) if name == "list" else value.strip()):
        raise UserError(f"{name}: has no value; write {name}:VALUE without a space")
    if name in _CHOICES:
        chosen = value.casefold()
        if chosen not in _CHOICES[name]:
            raise UserError(f"{name}:{value} is not one of {', '.join(_CHOICES[name])}")
        return chosen
    if name in ("older_than", "newer_than"):
        if (age := re.fullmatch(r"(\d{1,5})([dwmy])", value)) is None:
            raise UserError(f"{name}:{value} is not an age; write a number with d, w, m or y: 3w")
        return _before(today, int(age[1]), age[2]).isoformat()
    if name in ("after", "before", "on"):
        if (day := day_of(value, today)) is None:
            raise UserError(
                f'{name}:{value} is not a day; write 2024-03-31, 2024-03, yesterday, "last monday",'
                ' "3 days ago" or "march 2024"'
            )
        return day.isoformat()
    return value


def _before(day: dt.date, count: int, unit: str) -> dt.date:
    """Return the day `count` units earlier, clamped to date.min."""
    if unit in "dw":
        return dt.date.fromordinal(max(1, day.toordinal() - count * (7 if unit == "w" else 1)))
    months = day.year * 12 + day.month - 1 - count * (12 if unit == "y" else 1)
    if months < 12:
        return dt.date.min
    year, month = months // 12, months % 12 + 1
    return dt.date(year, month, min(day.day, calendar.monthrange(year, month)[1]))


_UNITS = "day|week|month|year"


def day_of(text: str, today: dt.date) -> dt.date | None:
    """Parse a day as people write it; a month or a year means its first day. None if invalid. A
    weekday is the last one before `today`, a month without a year the latest such month."""
    plain = " ".join(text.casefold().split())
    if ago := re.fullmatch(rf"(?:(\d{{1,5}}) ({_UNITS})s? ago|last ({_UNITS}))", plain):
        return _before(today, int(ago[1] or 1), (ago[2] or ago[3])[0])
    if plain in ("today", "yesterday"):
        return today - dt.timedelta(plain == "yesterday")
    if (weekday := _place(plain.removeprefix("last "), calendar.day_name)) is not None:
        return today - dt.timedelta((today.weekday() - weekday - 1) % 7 + 1)  # 1 to 7 days ago
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
    """Return the index of a name, whole or its first three letters, in `names`."""
    listed = [each.lower() for each in names]
    return next((n for n, each in enumerate(listed) if each and name in (each, each[:3])), None)


# ---- Which mails of an inbox pass.


def passing(part: Filter, mail: Slice, size: int, holding: Callable[[str], Numbers]) -> Mask:
    """Return which of the first `size` mails pass; `holding` locates a stem or `stem*`."""
    name, value = part.operator, part.value
    every: Mask = np.ones(size, dtype=np.bool_)
    if name in ("and", "or", "not"):
        masks = [passing(each, mail, size, holding) for each in part.parts]
        combine = np.logical_and if name == "and" else np.logical_or
        held: Mask = reduce(combine, masks, every == (name == "and"))  # neutral: True for "and"
        return ~held if name == "not" else held
    if name in ("from", "to", "cc"):
        is_own = value.casefold() == "me"
        return mail.matching(None if is_own else value.rstrip("*"), name, size)[:size]
    if name in ("word", "subject", "phrase", "prefix"):
        return _holds_words(name, value, mail, every, holding)
    if name in ("after", "before", "on", "older_than", "newer_than"):
        day, bound = mail.day[:size], dt.date.fromisoformat(value).toordinal()
        before: Mask = (day < bound) & (day > 0)  # day 0: without a date
        since: Mask = day == bound if name == "on" else day >= bound
        return before if name in ("before", "older_than") else since
    if name in ("has", "filename", "list"):
        parts = [] if name == "has" else words(value)
        column, table = ("mailing_list", "emails") if name == "list" else ("name", "files")
        return mail.where(column, lambda text: all(p in fold(text) for p in parts), every, table)
    return _is_labelled(name, value, mail, every)


def _is_labelled(name: str, value: str, mail: Slice, every: Mask) -> Mask:
    if (name, value) == ("in", "anywhere"):
        return every
    if (name, value) == ("is", "bulk"):
        return mail.bulk[: len(every)]
    is_read = (name, value) == ("is", "read")
    prefix = "category " if name == "category" else ""
    label = f"{prefix}{'unread' if is_read else value.casefold()}/"  # "work/" begins "work/2024/"
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
    """Return which mails hold the words of a value: anywhere, in the subject, or in a row. For
    word* the file's words give candidates, and only this inbox's texts decide."""
    if value.endswith("*") and name in ("prefix", "subject") and (listed := words(value)):
        row = row_of(listed, is_open=True)
        if name == "subject":
            return mail.where("subject", lambda text: row.search(fold(text)) is not None, every)
        among = np.bincount(holding(f"{listed[-1]}*"), minlength=len(every)) > 0
        return _in_a_row(row, mail, every & among)
    named = tokens(value) if name == "phrase" else addresses(value) or tokens(value)
    stemmed = stems(named)
    held = every & bool(named)
    for word, stem in zip(named, stemmed, strict=True):
        # A phrase may begin with half a pair of characters; and long words are not indexed.
        if name != "phrase" or 1 < len(word) <= MAX_WORD_CHARS:
            held &= np.bincount(holding(stem), minlength=len(every)) > 0
    if name == "subject":
        return mail.where(
            "subject", lambda text: {*stemmed} <= {*stems(addresses(text) + tokens(text))}, held
        )
    return _in_a_row(row_of(words(value)), mail, held) if name == "phrase" else held


def row_of(named: Sequence[str], *, is_open: bool = False) -> re.Pattern[str]:
    """Return the pattern of these words in a row; if `is_open`, the last is a beginning."""
    first, *rest = map(re.escape, named)
    # The lookbehind comes after the first word, which is ten times as fast as before it. Scripts
    # without spaces have no word boundaries.
    before = "" if is_unspaced(named[0]) else rf"(?<!{_LETTER}{first})"
    after = "" if is_open or is_unspaced(named[-1][-1]) else rf"(?!{_LETTER})"
    return re.compile(_GAP.join([first + before, *rest]) + after)


def _in_a_row(row: re.Pattern[str], mail: Slice, among: Mask) -> Mask:
    (places,) = among.nonzero()
    holds = np.zeros_like(among)
    rows = mail.rows(places.tolist())
    holds[places] = [any(row.search(fold(text)) for text in each[5:7]) for each in rows]
    return holds
