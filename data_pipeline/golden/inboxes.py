"""The inboxes that a golden set asks about, their splits, their threads and cited mails."""

import datetime as dt
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.inbox.inbox import Inbox
from art_e.inbox.mail import Email
from art_e.inbox.tokenizer import words
from art_e.question import SPLITS, Question, Split

# ---- The mails that questions cite, looked up together.

_FOUND = """
WITH cited AS (SELECT unnest(?::VARCHAR[]) AS address, unnest(?::VARCHAR[]) AS message_id),
ids AS (
    SELECT message_id, email_id, 0 AS preference FROM emails
    UNION ALL SELECT message_id, email_id, 1 FROM aliases
)
SELECT address, cited.message_id, emails.message_id, sent_at, lower(hex(content_digest)),
    (address_id, email_id) IN (SELECT address_id, email_id FROM parties)
    AND (address_id, email_id) NOT IN (SELECT address_id, email_id FROM others_copies) AS own
FROM cited JOIN addresses USING (address) JOIN ids USING (message_id)
    JOIN emails USING (email_id)
ORDER BY address, cited.message_id, own DESC, preference, email_id
"""
# The mail of the inbox of an address.
OWN_MAIL = "FROM emails SEMI JOIN mail_of(?, false) USING (email_id)"


class Cited(NamedTuple):
    """The mail of a cited id: the id under which the question's inbox has it, or why it has not.
    `contents` are digests: several if other inboxes have mails of that id, the id if none has."""

    stored: str | None
    fault: str = ""
    contents: tuple[str, ...] = ()


def cited_mails(file: InboxFile, questions: Sequence[Question]) -> dict[str, dict[str, Cited]]:
    """The mail of each message id that a question cites, by the question's id."""
    keys = sorted({_key(each, name) for each in questions for name in each.message_ids})
    rows = file.execute(_FOUND, [[address for address, _ in keys], [name for _, name in keys]])
    mails: defaultdict[tuple[str, str], list[_Mail]] = defaultdict(list)
    for address, name, *mail in rows.fetchall():
        mails[address, name].append(tuple(mail))
    return {
        each.id: {
            name: _as_of(each.query_date, name, mails[_key(each, name)])
            for name in each.message_ids
        }
        for each in questions
    }


# The stored id of a mail, when it was sent, the digest of its content, whether its inbox is meant.
_Mail = tuple[str, dt.datetime | None, str, bool]


def _as_of(day: dt.date | None, message_id: str, mails: Sequence[_Mail]) -> Cited:
    own = [mail for mail in mails if mail[3]]
    for stored, sent_at, content, _ in own:
        # Mail without a date is in no inbox as of a day.
        if day is None or (sent_at is not None and sent_at.date() <= day):
            return Cited(stored, contents=(content,))
    contents = tuple(dict.fromkeys(mail[2] for mail in own[:1] or mails)) or (message_id,)
    if not own:
        place = "in the file, but not in this inbox" if mails else "not in the inbox file"
        return Cited(None, f"is {place}", contents)
    if (sent_at := own[0][1]) is None:
        return Cited(None, "has no date, so that it is in no inbox as of a day", contents)
    return Cited(None, f"was sent on {sent_at:%Y-%m-%d}, after the query date {day}", contents)


def address_of(question: Question) -> str:
    """The address of the question's inbox as inbox files write it."""
    return question.inbox_address.strip().lower()


def _key(question: Question, message_id: str) -> tuple[str, str]:
    """The question's inbox and an id that it cites, as inbox files write them."""
    wanted = message_id.strip()
    return address_of(question), wanted if wanted.startswith("<") else f"<{wanted}>"


# ---- Threads, by subject.

# After such a gap the same subject is another matter ("Expense report").
LONGEST_GAP = dt.timedelta(days=60)

# English, German and Swedish programs', also counted as in "Re[2]:".
_PREFIX = re.compile(r"^(?:\s*(?:re|fwd?|aw|wg|sv|vb)\s*(?:\[\d+\]|\(\d+\))?\s*:)+", re.IGNORECASE)


class Mail(NamedTuple):
    """A mail that may be drawn; `email_id` is in date order."""

    email_id: int
    message_id: str
    sent_at: dt.datetime
    subject: str
    content: bytes


def threads_of(mails: Iterable[Mail]) -> list[list[Mail]]:
    """The threads of mails in date order. A mail without a subject is a thread of its own."""
    threads: list[list[Mail]] = []
    last: dict[str, list[Mail]] = {}
    for mail in mails:
        subject = " ".join(_PREFIX.sub("", mail.subject).split()).casefold()
        thread = last.get(subject) if subject else None
        if thread is not None and mail.sent_at - thread[-1].sent_at <= LONGEST_GAP:
            thread.append(mail)
        else:
            threads.append([mail])
            last[subject] = threads[-1]
    return threads


# ---- Inboxes and splits.

# The reference has 28 inboxes; two of its 20 for training are for validation here.
TRAIN, VALIDATION, TEST = 18, 2, 8
# The splits that get an inbox first if there are too few.
_FIRST: tuple[Split, ...] = ("test", "train", "validation")
MIN_MAILS = 500
# Mailing lists send 1 mail at most, persons with 500 mails of Enron 52 or more.
MIN_SENT = 20


class Counts(NamedTuple):
    """How many inboxes each split should have."""

    train: int = TRAIN
    validation: int = VALIDATION
    test: int = TEST


def choose_inboxes(file: InboxFile, wanted: Counts, seed: int, min_mails: int) -> dict[str, Split]:
    """The splits of the largest inboxes, of at least `min_mails` mails: those of a file's owners,
    or of persons, who unlike mailing lists write mail. Raises `UserError` if there is none."""
    owners = file.owners()
    rows = file.execute(
        """
        SELECT address, any_value(names)
        FROM (SELECT * FROM addresses WHERE emails >= ?) JOIN parties USING (address_id)
        WHERE len(?) = 0 OR list_contains(?, address)
        GROUP BY address
        HAVING len(?) > 0 OR (
            count(DISTINCT email_id) FILTER (role = 'from') >= ?
            AND bool_or(role IN ('to', 'cc', 'bcc'))
        )
        ORDER BY any_value(emails) DESC, address
        """,
        [min_mails, owners, owners, owners, MIN_SENT],
    ).fetchall()
    if not rows:
        raise UserError(
            f"no inbox of {'an owner' if owners else 'a person'} holds {min_mails:,} mails; lower"
            " --min-mails, or name some with --inbox (art-e inboxes lists them)"
        )
    return draw(_persons(rows, sum(wanted)), seed, wanted)


def draw(inboxes: Sequence[str], seed: int, wanted: Counts) -> dict[str, Split]:
    """A split for each inbox, drawn by `seed` in about the wanted proportions, whatever the order
    of `inboxes`. Each wanted split gets one if there are enough, test first."""
    weights = {name: weight for name in _FIRST if (weight := getattr(wanted, name)) > 0}
    if not weights:
        raise UserError("no inbox is wanted; give --train, --validation or --test a number above 0")
    shares = {name: len(inboxes) * each / sum(weights.values()) for name, each in weights.items()}
    counts = {name: int(place < len(inboxes)) for place, name in enumerate(weights)}
    while sum(counts.values()) < len(inboxes):
        counts[max(weights, key=lambda name: shares[name] - counts[name])] += 1
    shuffled = sorted(inboxes)
    random.Random(f"{seed}/inboxes").shuffle(shuffled)
    splits = [name for name in SPLITS for _ in range(counts.get(name, 0))]
    drawn = dict(zip(shuffled, splits, strict=True))
    return {inbox: drawn[inbox] for inbox in inboxes}


def _persons(rows: Iterable[tuple[str, str]], most: int) -> list[str]:
    """The first address of up to `most` people, so that nobody is in two splits: "Kaminski, Vince
    J" is "Vince Kaminski", and a single word ("legal", "jeff") names nobody."""
    persons: list[str] = []
    taken: set[frozenset[str]] = set()
    for address, given in rows:
        names = {frozenset(w for w in words(name) if len(w) > 1) for name in given.split(" | ")}
        names = {each for each in names if len(each) > 1}
        if len(persons) < most and names.isdisjoint(taken):
            persons.append(address)
            taken |= names
    return persons


def mails_of(inbox: Inbox, message_ids: Iterable[str]) -> list[Email]:
    """The mails that the inbox has, each once, in the given order."""
    found = inbox.read_many(list(message_ids))
    return list({each.message_id: each for each in found if each is not None}.values())
