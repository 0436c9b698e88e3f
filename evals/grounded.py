"""Whether the mails that were read state what an answer states, without a model.

The rule, in order; what the question says needs no support:

1. Each date, time, amount, number, phone number, address and code that the answer
   asserts must be stated in one of the mails, in any spelling, or say less than what
   is ("in May" of "May 3"). A day counted from a mail's own date counts ("tomorrow",
   "Friday", "the 16th"), and so does that date. A plain number needs no support where
   the question asks how many or how often: it is counted, not read.
2. Each name must be named in a mail, its headers included. A single word that opens a
   sentence is not taken for a name.
3. An answer without any of these must have half of its content stems, beyond the
   question's, in the mails.

None where there is nothing to look up ("Yes."). A sum, or any other figure that is
worked out, is not found and called ungrounded; and values that stand in the mails may
be put together wrongly: whether the answer is right is the judge's to say. Knows
nothing of gold answers and verdicts.
"""

import datetime as dt
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from art_e.inbox.mail import Email
from art_e.tools import MAX_BODY_CHARS
from evals.claims import Claims, asked, read_claims
from evals.dates import PartialDate, conflict
from evals.names import Name, states_name
from evals.normalise import Value, same_value
from evals.overlap import TEXT_RECALL
from evals.words import content_stems

# A mail is read in pieces that overlap, so that a value on an edge is whole in one of them.
PIECE_CHARS, OVERLAP_CHARS = 3_000, 200
WEEKS_AHEAD = 2  # "Friday" in a mail may be the one of the next week

_WORD = re.compile(r"\w+")
_HOW_OFTEN = re.compile(r"\bhow often\b", re.IGNORECASE)
_DAYS_FROM = {"today": 0, "tonight": 0, "tomorrow": 1, "yesterday": -1}


class Grounding(NamedTuple):
    """Whether an answer is grounded (None: can't be told), and in one line why not."""

    grounded: bool | None
    reason: str

    def added_to(self, reason: str) -> str:
        """The reason of a verdict with this one behind it, where there is one."""
        return f"{reason}; {self.reason}" if self.reason else reason


class _Read(NamedTuple):
    """What a mail states: the claims of its pieces, its values, words and date."""

    claims: tuple[Claims, ...]
    values: tuple[Value, ...]
    words: frozenset[str]
    day: dt.date | None


def grounded_in(question: str, answer: str, mails: Sequence[Email]) -> Grounding:
    """Whether `mails` state what `answer`, which is no abstention, states."""
    asking, said = read_claims(question), read_claims(answer)
    read = [_read(mail) for mail in mails]
    counted = "number" in asked(asking.text).kinds or _HOW_OFTEN.search(asking.text) is not None
    values = [
        value
        for value in said.values
        if not (counted and value.kind == "number")
        and not any(_covers(other, value, None) for other in asking.values)
    ]
    known = _words(asking.text)
    names = [
        name
        for name in said.names
        if name.slot != "@" and not _words(*name.words) <= known and not _opens(name, said.text)
    ]
    for value in values:
        shown = said.text[value.start : value.end]
        if not any(_states(mail, value, shown) for mail in read):
            return Grounding(False, f"no mail read has the {value.kind} {shown!r}")
    for name in names:
        if not any(_named(name, mail, known) for mail in read):
            return Grounding(False, f"no mail read has the name {' '.join(name.words)!r}")
    if values or names:
        return Grounding(True, "")
    new = set(content_stems(said.text)) - set(content_stems(asking.text))
    if not new or (counted and said.values):
        return Grounding(None, "")
    stated = {stem for mail in read for each in mail.claims for stem in content_stems(each.text)}
    if len(new & stated) < TEXT_RECALL * len(new):
        return Grounding(False, f"the mails read have {len(new & stated)} of {len(new)} new words")
    return Grounding(True, "")


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
        stated += [counted for value in stated for counted in _counted_from(value, day)]
        stated.append(Value("date", PartialDate(day.year, day.month, day.day), 0, 0))
    words = _words(*(each.text for each in claims))
    return _Read(claims, tuple(stated), words, day)


def _counted_from(value: Value, day: dt.date) -> Iterator[Value]:
    """The days that a word such as "tomorrow", "Friday" or "the 16th" can be in a mail of `day`."""
    date = value.key
    if not isinstance(date, PartialDate) or date.month is not None or date.year is not None:
        return
    days: list[dt.date] = []
    if date.relative in _DAYS_FROM:
        days = [day + dt.timedelta(_DAYS_FROM[date.relative])]
    elif date.day is not None or date.weekday is not None:
        ahead = (
            day + dt.timedelta(number) for number in range(31 if date.day else 7 * WEEKS_AHEAD)
        )
        days = [
            each
            for each in ahead
            if date.day in (None, each.day) and date.weekday in (None, each.weekday())
        ]
    for each in days:
        yield replace(value, key=PartialDate(each.year, each.month, each.day))


def _states(mail: _Read, value: Value, shown: str) -> bool:
    """True if the mail has the value, or its very words where only context tells its kind."""
    if any(_covers(other, value, mail.day) for other in mail.values):
        return True
    words = re.compile(rf"(?<![\w.,:/$-]){re.escape(shown)}(?![\w%]|[.,:/-]\w)", re.IGNORECASE)
    return any(words.search(each.text) for each in mail.claims)


def _covers(stated: Value, said: Value, day: dt.date | None) -> bool:
    """True if `stated`, in a mail of `day`, says all that `said` says, and nothing against it."""
    one, other = stated.key, said.key
    if not isinstance(one, PartialDate) or not isinstance(other, PartialDate):
        return same_value(said, stated)
    # The mail's date tells a year that it leaves out; what the answer leaves out may be any.
    near = day if one.year is None else None
    if same_value(said, stated, near):
        return True
    if one.relative or other.relative or conflict(one, other, near):
        return False
    return (
        (other.month is None or one.month is not None)
        and (other.day is None or one.day is not None)
        and (other.weekday is None or bool(one.weekdays(day)))
        and (other.part is None or one.day is not None)
    )


def _words(*texts: str) -> frozenset[str]:
    """The words of the texts in lower case, without accents: addresses have none."""
    plain = unicodedata.normalize("NFKD", " ".join(texts).lower())
    return frozenset(_WORD.findall("".join(c for c in plain if not unicodedata.combining(c))))


def _named(name: Name, mail: _Read, known: frozenset[str]) -> bool:
    if _words(*name.words) <= mail.words | known:
        return True
    return any(states_name(name.words, each.text, list(each.names)) for each in mail.claims)


def _opens(name: Name, text: str) -> bool:
    before = text[: name.start].rstrip()
    return len(name.words) == 1 and (not before or before[-1] in ".;!?:")
