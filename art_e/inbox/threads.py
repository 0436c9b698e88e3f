"""Which mails of an inbox belong together, and what each of them adds.

Mails are linked by the message ids that they name (References, In-Reply-To), by Gmail's name of
their thread, and, where no header says so, by their subject: a reply or forward follows the latest
mail of that subject, within `DAYS`, that has someone in common with it besides the inbox's owner.
Only the open inbox's own mail counts, so nothing outside it can link two mails."""

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from art_e.inbox.mail import Email, Execute
from art_e.inbox.schema import statement
from art_e.inbox.tokenizer import tokens

DAYS = 60
QUOTED_WORDS = 8  # fewer words in a row are no quotation: a greeting, a signature
LEFT_OUT = "[earlier text left out]"
_SEVERAL_LEFT_OUT = re.compile(rf"{re.escape(LEFT_OUT)}([\W_]*{re.escape(LEFT_OUT)})+")
# Of replies and forwards in the languages of mail programs, several in a row.
_PREFIX = re.compile(
    r"^((re|fw|fwd|aw|wg|sv|vs|antw|doorst|tr|rif|r|i|odp|pd|res|enc|vb)"
    r"(\[\d+\]|\(\d+\))?\s*[:：]\s*)+"
)

# What a line at the top of a quoted mail says, by its names in the languages of mail programs.
HEADERS = {
    "by": "from|von|de|da|van|från|fra",
    "at": "sent|date|gesendet|datum|enviado|fecha|envoyé|data|inviato|verzonden|skickat|sendt|dato",
    "to": "to|cc|bcc|an|kopie|para|aan|till|til|sent by|please respond to|reply-to|importance",
    "subject": "subject|betreff|asunto|assunto|objet|oggetto|onderwerp|ämne|emne",
}
HEADER = rf"\*?({'|'.join(HEADERS.values())})\*?\s?:\*?(?!//)"
WROTE = (
    r"(?:on|am|le|el|il|op|em|den)\b.{4,120}"
    r"(?:wrote|schrieb|écrit|escribió|scritto|schreef|escreveu|skrev).{0,40}:$"
)
FRAME = re.compile(rf"[\s>]*(?:$|-{{3}}|{HEADER}|{WROTE})", re.IGNORECASE)

_MANY = 200  # more mails than this are not sought one by one


def bare_subject(subject: str) -> str:
    """A subject in lower case without the prefixes of replies and forwards."""
    # The one letter whose lower case is two characters: a shorter subject had a prefix.
    return _PREFIX.sub("", subject.replace("\u0130", "i").lower())


def threads_of(
    execute: Execute, ids: list[int], mine: str, parties: str, own: str
) -> list[list[int]]:
    """The places in `ids`, the inbox's mails in order, of all mails of each one's thread. In SQL,
    `mine` is the condition of these mails, `parties` their parties, `own` the inbox's addresses."""
    if not ids:
        return []
    sql = statement("links", mine=mine, last=ids[-1], parties=parties, own=own, days=DAYS)
    place_of = {email_id: place for place, email_id in enumerate(ids)}
    first = list(range(len(ids)))

    def root(place: int) -> int:
        while first[place] != place:
            first[place] = first[first[place]]
            place = first[place]
        return place

    for email_id, other in execute(sql).fetchall():
        one, two = sorted((root(place_of[email_id]), root(place_of[other])))
        first[two] = one
    members: list[list[int]] = [[] for _ in ids]
    for place in range(len(ids)):
        members[root(place)].append(place)
    return [members[root(place)] for place in range(len(ids))]


def near(execute: Execute, ids: list[int], last: int, mine: str) -> list[int] | None:
    """The mails up to `last` that may be in the threads of `ids`; None if they are many."""
    found: list[int] = []
    while len(ids) > len(found):
        found = ids
        listed = ", ".join(map(str, ids)) or "NULL"
        sql = statement("near", ids=listed, mine=mine, last=last)
        ids = [email_id for (email_id,) in execute(sql).fetchall()]
        if len(ids) > _MANY:
            return None
    return ids


class Runs(NamedTuple):
    """Of a mail's words the numbers of their lines, and the hash of each run of `QUOTED_WORDS`."""

    numbers: list[int]
    hashes: list[int]


def runs_of(lines: Iterable[str]) -> Runs:
    """Return the runs of words of these lines."""
    listed = [tokens(line) for line in lines]
    numbers = [number for number, line in enumerate(listed) for _ in line]
    flat = list(itertools.chain.from_iterable(listed))
    runs = zip(*(flat[at:] for at in range(QUOTED_WORDS)), strict=False)
    return Runs(numbers, list(map(hash, runs)))


class Seen:
    """Text of mails, by which their quotations are known: its runs of words."""

    def __init__(self) -> None:
        self._name_of: dict[int, str] = {}

    def holding(self, runs: Runs) -> dict[int, str]:
        """Return the numbers of the lines that noted mails hold, each with such a mail's name. A
        line is held if all its words stand in such runs, wherever the mails' lines break."""
        if self._name_of.keys().isdisjoint(runs.hashes):
            return {}
        names = [""] * len(runs.numbers)
        for at, run in enumerate(runs.hashes):
            if name := self._name_of.get(run):
                names[at : at + QUOTED_WORDS] = [name] * QUOTED_WORDS
        words = list(zip(runs.numbers, names, strict=True))
        new = {number for number, name in words if not name}
        return {number: name for number, name in words if number not in new}

    def note(self, runs: Runs, name: str) -> None:
        for run in runs.hashes:
            self._name_of.setdefault(run, name)


def added_texts(bodies: Sequence[str]) -> list[str]:
    """The text of each mail of a thread, oldest first, without lines that an earlier one holds;
    `LEFT_OUT` stands for them and their frame."""
    seen, added = Seen(), []
    for body in bodies:
        lines = body.split("\n")
        held = seen.holding(runs := runs_of(lines))
        seen.note(runs, "earlier")
        lines = [LEFT_OUT if number in held else line for number, line in enumerate(lines)]
        added.append(_SEVERAL_LEFT_OUT.sub(LEFT_OUT, "\n".join(_without_frames(lines))))
    return added


def added_mails(mails: Sequence[Email]) -> list[Email]:
    """The mails of a thread, oldest first, each with the text alone that it adds."""
    texts = added_texts([each.body for each in mails])
    return [replace(mail, body=text) for mail, text in zip(mails, texts, strict=True)]


def _without_frames(lines: Sequence[str]) -> list[str]:
    """The lines without those above `LEFT_OUT` that say who wrote it, when, and to whom."""
    kept: list[str] = []
    for line in lines:
        start = len(kept)
        while line == LEFT_OUT and start and FRAME.match(kept[start - 1]):
            start -= 1
        while start < len(kept) and not kept[start].strip():
            start += 1
        kept[start:] = [line]
    return kept
