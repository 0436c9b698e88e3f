"""Whether the mails that were read state what an answer states, without a model."""

import datetime as dt
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from typing import NamedTuple

from art_e.inbox.mail import Email
from art_e.tools import MAX_BODY_CHARS
from evals.judges.claims import (
    Claims,
    PartialDate,
    Value,
    asked,
    conflict,
    content_stems,
    opens_sentence,
    read_claims,
    same_name,
    same_value,
)

WEEKS_AHEAD = 2  # "Friday" in a mail may be the one of the next week

_DAYS_FROM = {"today": 0, "tonight": 0, "tomorrow": 1, "yesterday": -1}


class Grounding(NamedTuple):
    """Whether an answer is grounded (None: can't be told), and in one line why not."""

    grounded: bool | None
    reason: str


# An answer given without reading has no support, whatever it says.
UNREAD = Grounding(False, "no mail was read")


class _Read(NamedTuple):
    """What a mail of `day` states; the values include its date and the days that it names."""

    claims: Claims
    values: list[Value]
    words: frozenset[str]
    day: dt.date | None


def grounded_in(question: str, answer: str, mails: Sequence[Email]) -> Grounding:
    """Whether `mails` state what `answer`, which is no abstention, states."""
    asking, given = read_claims(question), read_claims(answer)
    read = [_read(mail) for mail in mails]
    kinds, known = asked(asking.text), _words(asking.text)
    is_count = "number" in kinds and "money" not in kinds
    values = [
        value
        for value in given.values
        if not (is_count and value.kind == "number")
        and not any(_covers(other, value, None) for other in asking.values)
    ]
    names = [
        name.words
        for name in given.names
        if not _words(*name.words) <= known and not opens_sentence(name, given.text)
    ]
    for value in values:
        shown = given.text[value.start : value.end]
        if not any(_states(mail, value, shown) for mail in read):
            return Grounding(False, f"no mail read has the {value.kind} {shown!r}")
    for words in names:
        if not any(
            _words(*words) <= mail.words | known
            or any(same_name(words, other.words) for other in mail.claims.names)
            for mail in read
        ):
            return Grounding(False, f"no mail read has the name {' '.join(words)!r}")
    if values or names:
        return Grounding(True, "")
    new = set(content_stems(given.text)) - set(content_stems(asking.text))
    if not new or (is_count and given.values):
        return Grounding(None, "")
    stated = {stem for mail in read for stem in content_stems(mail.claims.text)} & new
    if 2 * len(stated) < len(new):
        return Grounding(False, f"the mails read have {len(stated)} of {len(new)} new words")
    return Grounding(True, "")


def _read(mail: Email) -> _Read:
    people = ", ".join(str(each) for each in (mail.sender, *mail.to, *mail.cc, *mail.bcc))
    text = f"{mail.subject}\n{mail.body[:MAX_BODY_CHARS]}\n{people}"
    claims = read_claims(text, limit=2 * MAX_BODY_CHARS)
    # What a mail takes back it still states; which of them holds is not asked here.
    values, words = [*claims.values, *claims.denied], _words(claims.text)
    day = None if mail.date is None else mail.date.date()
    if day is not None:
        dates = [PartialDate(each.year, each.month, each.day) for each in _days(values, words, day)]
        values += [Value("date", date, 0, 0) for date in dates]
    return _Read(claims, values, words, day)


def _days(values: Sequence[Value], words: frozenset[str], day: dt.date) -> Iterator[dt.date]:
    """The day of a mail, and those that "tomorrow", "Friday" or "the 16th" can be in it."""
    yield day
    yield from (day + dt.timedelta(ahead) for word, ahead in _DAYS_FROM.items() if word in words)
    for date in (value.key for value in values):
        if not isinstance(date, PartialDate) or date.month or date.year:
            continue
        for ahead in range(31 if date.day else 7 * WEEKS_AHEAD):
            other = day + dt.timedelta(ahead)
            if date.day in (None, other.day) and date.weekday in (None, other.weekday()):
                yield other


def _states(mail: _Read, value: Value, shown: str) -> bool:
    """True if the mail has the value, or its very words where only context tells its kind."""
    if any(_covers(other, value, mail.day) for other in mail.values):
        return True
    words = rf"(?<![\w.,:/$-]){re.escape(shown)}(?![\w%]|[.,:/-]\w)"
    return bool(re.search(words, mail.claims.text, re.IGNORECASE))


def _covers(stated: Value, given: Value, day: dt.date | None) -> bool:
    """True if `stated`, in a mail of `day`, says all that `given` says, and nothing against it."""
    one, other = stated.key, given.key
    if not isinstance(one, PartialDate) or not isinstance(other, PartialDate):
        return same_value(given, stated)
    # The mail's date tells a year that it leaves out, and a day its weekday.
    if conflict(one, other, day if one.year is None else None):
        return False
    parts = list(zip(astuple(one), astuple(other), strict=True))[1:]
    return bool(one.month and one.day) or all(b is None or a is not None for a, b in parts)


def _words(*texts: str) -> frozenset[str]:
    """The words of the texts in lower case, without accents: addresses have none."""
    plain = unicodedata.normalize("NFKD", " ".join(texts).lower())
    return frozenset(re.findall(r"\w+", re.sub(r"[\u0300-\u036f]", "", plain)))
