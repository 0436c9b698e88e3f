"""Whether the mails that were read state what an answer states, without a model."""

import datetime as dt
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from art_e.abstention import is_abstention
from art_e.inbox.mail import Email
from art_e.question import Question
from art_e.tools import MAX_BODY_CHARS
from evals.judges.claims import (
    Claims,
    Name,
    asked,
    content_stems,
    opens_sentence,
    read_claims,
    same_name,
)
from evals.judges.values import PartialDate, Value, conflict, same_value
from evals.verdict import Verdict

# A mail is read in pieces that overlap, so that a value on an edge is whole in one of them.
PIECE_CHARS, OVERLAP_CHARS = 3_000, 200
WEEKS_AHEAD = 2  # "Friday" in a mail may be the one of the next week

_WORD = re.compile(r"\w+")
_DAYS_FROM = {"today": 0, "tonight": 0, "tomorrow": 1, "yesterday": -1}


class Grounding(NamedTuple):
    """Whether an answer is grounded (None: can't be told), and in one line why not."""

    grounded: bool | None
    reason: str


class _Read(NamedTuple):
    """What a mail states: the claims of its pieces, its values, words and date."""

    claims: tuple[Claims, ...]
    values: tuple[Value, ...]
    words: frozenset[str]
    day: dt.date | None


def grounded_in(question: str, answer: str, mails: Sequence[Email]) -> Grounding:
    """Whether `mails` state what `answer`, which is no abstention, states."""
    asking, given = read_claims(question), read_claims(answer)
    read = [_read(mail) for mail in mails]
    kinds = asked(asking.text).kinds
    counted = "number" in kinds and "money" not in kinds
    values = [
        value
        for value in given.values
        if not (counted and value.kind == "number")
        and not any(_covers(other, value, None) for other in asking.values)
    ]
    known = _words(asking.text)
    names = [
        name
        for name in given.names
        if not _words(*name.words) <= known and not opens_sentence(name, given.text)
    ]
    for value in values:
        shown = given.text[value.start : value.end]
        if not any(_states(mail, value, shown) for mail in read):
            return Grounding(False, f"no mail read has the {value.kind} {shown!r}")
    for name in names:
        if not any(_named(name, mail, known) for mail in read):
            return Grounding(False, f"no mail read has the name {' '.join(name.words)!r}")
    if values or names:
        return Grounding(True, "")
    new = set(content_stems(given.text)) - set(content_stems(asking.text))
    if not new or (counted and given.values):
        return Grounding(None, "")
    stated = {stem for mail in read for each in mail.claims for stem in content_stems(each.text)}
    if 2 * len(new & stated) < len(new):
        return Grounding(False, f"the mails read have {len(new & stated)} of {len(new)} new words")
    return Grounding(True, "")


def with_grounding(
    verdict: Verdict, question: Question, answer: str | None, mails: Sequence[Email]
) -> Verdict:
    """The verdict, and whether the answer stands in `mails`; not asked of an abstention."""
    if answer is None or not mails or is_abstention(answer):
        return verdict
    grounded, why = grounded_in(question.question, answer, mails)
    return replace(
        verdict, grounded=grounded, reason=f"{verdict.reason}; {why}" if why else verdict.reason
    )


def _read(mail: Email) -> _Read:
    people = ", ".join(str(each) for each in (mail.sender, *mail.to, *mail.cc, *mail.bcc))
    text = f"{mail.subject}\n{mail.body[:MAX_BODY_CHARS]}\n{people}"
    step = PIECE_CHARS - OVERLAP_CHARS
    pieces = (text[start : start + PIECE_CHARS] for start in range(0, len(text), step))
    claims = tuple(read_claims(piece) for piece in pieces)
    day = None if mail.date is None else mail.date.date()
    # What a mail takes back it still states; which of them holds is not asked here.
    stated = [value for each in claims for value in (*each.values, *each.denied)]
    if day is not None:
        days = [each for value in stated for each in _days(value, day)]
        dates = [PartialDate(each.year, each.month, each.day) for each in (day, *days)]
        stated += [Value("date", date, 0, 0) for date in dates]
    return _Read(claims, tuple(stated), _words(*(each.text for each in claims)), day)


def _days(value: Value, day: dt.date) -> list[dt.date]:
    """The days that a word such as "tomorrow", "Friday" or "the 16th" can be in a mail of `day`."""
    date = value.key
    if not isinstance(date, PartialDate) or date.month is not None or date.year is not None:
        return []
    if date.relative in _DAYS_FROM:
        return [day + dt.timedelta(_DAYS_FROM[date.relative])]
    if date.day is None and date.weekday is None:
        return []
    ahead = (day + dt.timedelta(number) for number in range(31 if date.day else 7 * WEEKS_AHEAD))
    return [
        each
        for each in ahead
        if date.day in (None, each.day) and date.weekday in (None, each.weekday())
    ]


def _states(mail: _Read, value: Value, shown: str) -> bool:
    """True if the mail has the value, or its very words where only context tells its kind."""
    if any(_covers(other, value, mail.day) for other in mail.values):
        return True
    words = re.compile(rf"(?<![\w.,:/$-]){re.escape(shown)}(?![\w%]|[.,:/-]\w)", re.IGNORECASE)
    return any(words.search(each.text) for each in mail.claims)


def _covers(stated: Value, given: Value, day: dt.date | None) -> bool:
    """True if `stated`, in a mail of `day`, says all that `given` says, and nothing against it."""
    one, other = stated.key, given.key
    if not isinstance(one, PartialDate) or not isinstance(other, PartialDate):
        return same_value(given, stated)
    # The mail's date tells a year that it leaves out; what the answer leaves out may be any.
    near = day if one.year is None else None
    if same_value(given, stated, near):
        return True
    if one.relative or other.relative or conflict(one, other, near):
        return False
    is_day = bool(one.month and one.day)
    return all(
        getattr(other, name) is None or getattr(one, name) is not None or is_day
        for name in ("month", "day", "weekday", "part")
    )


def _words(*texts: str) -> frozenset[str]:
    """The words of the texts in lower case, without accents: addresses have none."""
    plain = unicodedata.normalize("NFKD", " ".join(texts).lower())
    return frozenset(_WORD.findall("".join(c for c in plain if not unicodedata.combining(c))))


def _named(name: Name, mail: _Read, known: frozenset[str]) -> bool:
    if _words(*name.words) <= mail.words | known:
        return True
    return any(same_name(name.words, other.words) for each in mail.claims for other in each.names)
