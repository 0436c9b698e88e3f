"""Draw seeded queries for a file: words that occur together in one of its mails.

A query has one to four words of medium frequency in the whole file. Half the queries have a date
filter that the mail passes, every fifth the mail's sender or one of its recipients.
"""

import datetime as dt
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

from art_e.inbox.file import InboxFile, InboxSummary
from art_e.inbox.tokenizer import STOP_WORDS, words
from bench.reference import ReferenceInbox
from tests.queries import Query

# Medium: the middle half of the 394 informative words of 73 real questions, by the share of mails
# in the Enron archive that have them.
LEAST_SHARE, MOST_SHARE = 0.0033, 0.056
MEDIUM, SMALL = 1_000, 100


class InboxQuery(NamedTuple):
    """A query and the inbox to search."""

    address: str
    query: Query


class _Mail(NamedTuple):
    sent_at: dt.datetime | None
    sender: str
    to: list[str]
    words: list[str]


def unequal_inboxes(inbox_file: InboxFile) -> list[InboxSummary]:
    """Return the largest inbox, a medium one and a small one, without duplicates."""
    inboxes = inbox_file.inboxes()
    sizes = (inboxes[0].emails, MEDIUM, SMALL)
    return list(
        dict.fromkeys(min(inboxes, key=lambda each: abs(each.emails - size)) for size in sizes)
    )


def draw_queries(
    inbox_file: InboxFile,
    reference: ReferenceInbox,
    addresses: Sequence[str],
    count: int,
    seed: int = 0,
) -> list[InboxQuery]:
    """Draw `count` queries, divided evenly among `addresses`, in seeded order."""
    rng = Random(seed)
    queries: list[InboxQuery] = []
    for number, address in enumerate(addresses):
        share = count // len(addresses) + (number < count % len(addresses))
        mails = _mails_with_words(inbox_file, reference, address, share, rng)
        queries += [InboxQuery(address, _query(rng.choice(mails), rng)) for _ in range(share)]
    rng.shuffle(queries)
    return queries


def _query(mail: _Mail, rng: Random) -> Query:
    filters: dict[str, Any] = {}
    if rng.random() < 0.5 and mail.sent_at is not None:
        day, span = mail.sent_at.date(), dt.timedelta(days=rng.randint(1, 200))
        bounds = {"sent_after": day - span}, {"sent_before": day + span}
        filters |= rng.choice(bounds)
    if rng.random() < 0.2:
        people: list[dict[str, Any]] = [
            {"from_addr": mail.sender or None},
            *({"to_addr": each} for each in mail.to[:1]),
        ]
        filters |= rng.choice(people)
    keywords = rng.sample(mail.words, min(rng.randint(1, 4), len(mail.words)))
    return Query(keywords, **filters)


def _mails_with_words(
    inbox_file: InboxFile, reference: ReferenceInbox, address: str, count: int, rng: Random
) -> list[_Mail]:
    """Return up to `2 * count` mails of an inbox with words to search for."""
    rows = inbox_file.execute(
        "SELECT DISTINCT email_id FROM parties WHERE address_id ="
        " (SELECT address_id FROM addresses WHERE address = ?) ORDER BY email_id",
        [address],
    ).fetchall()
    ids = rng.sample([email_id for (email_id,) in rows], min(2 * count, len(rows)))
    rows = inbox_file.execute(
        "SELECT sent_at, from_address, [each.address for each in to_recipients], subject, body"
        f" FROM emails WHERE email_id IN ({', '.join(map(str, ids))}) ORDER BY email_id"
    ).fetchall()
    texts = [_words_of(f"{subject} {body}") for *_, subject, body in rows]
    total = inbox_file.counts["stored"]
    frequencies = reference.mails_with(sorted({word for text in texts for word in text}))
    low, high = max(2, LEAST_SHARE * total), max(10, MOST_SHARE * total)
    medium = {word for word, mails in frequencies.items() if low <= mails <= high}
    mails = [
        _Mail(sent_at, sender, list(filter(None, to)), [word for word in text if word in medium])
        for (sent_at, sender, to, *_), text in zip(rows, texts, strict=True)
    ]
    mails = [mail for mail in mails if mail.words]
    if not mails:
        raise AssertionError(f"no mail of {address} has a word of medium frequency")
    return mails


def _words_of(text: str) -> list[str]:
    distinct = dict.fromkeys(word for word in words(text) if word.isascii() and len(word) > 2)
    return [word for word in distinct if word not in STOP_WORDS]
