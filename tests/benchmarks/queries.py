"""Seeded queries for a file: words that stand together in one of its mails.

One to four words of middling frequency in the whole file; since they stand in one
mail, the reference's AND finds at least that. Half the queries have a date filter
that this mail passes, every fifth a sender or a recipient of it. Inboxes are of
unequal size.
"""

import datetime as dt
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from art_e.inbox.file import InboxFile
from art_e.inbox.tokenizer import STOP_WORDS, stems, words
from tests.benchmarks.reference import ReferenceInbox
from tests.builders import Query

# Shares of a file's mails between which a word's frequency is middling: the middle half
# of the 394 informative words of 73 real questions, counted in the Enron archive.
LEAST_SHARE, MOST_SHARE = 0.0033, 0.056
# Sizes that the smaller inboxes are near, where the file has such.
MEDIUM, SMALL = 1_000, 100


class InboxQuery(NamedTuple):
    """A query and the inbox that it is for."""

    address: str
    query: Query


class InboxSize(NamedTuple):
    """An inbox and how many mails it holds."""

    address: str
    emails: int


class _Mail(NamedTuple):
    sent_at: dt.datetime | None
    sender: str
    to: tuple[str, ...]
    words: tuple[str, ...]


def inbox_near(inbox_file: InboxFile, emails: int) -> InboxSize:
    """The inbox whose size is nearest to `emails`."""
    row = inbox_file.execute(
        "SELECT address, emails FROM addresses ORDER BY abs(emails - ?), address LIMIT 1", [emails]
    ).fetchone()
    assert row is not None
    return InboxSize(*row)


def largest_inboxes(inbox_file: InboxFile, count: int) -> list[InboxSize]:
    """The largest inboxes, the largest first."""
    rows = inbox_file.execute(
        "SELECT address, emails FROM addresses ORDER BY emails DESC, address LIMIT ?", [count]
    ).fetchall()
    return [InboxSize(*row) for row in rows]


def unequal_inboxes(inbox_file: InboxFile) -> list[InboxSize]:
    """The largest inbox, a medium one and a small one (fewer where two are the same)."""
    chosen = [
        *largest_inboxes(inbox_file, 1),
        inbox_near(inbox_file, MEDIUM),
        inbox_near(inbox_file, SMALL),
    ]
    return list(dict.fromkeys(chosen))


def draw_queries(
    inbox_file: InboxFile,
    reference: ReferenceInbox,
    addresses: Sequence[str],
    count: int,
    seed: int = 0,
) -> list[InboxQuery]:
    """`count` queries, spread evenly over `addresses`, in seeded order."""
    rng = Random(seed)
    drawn: list[InboxQuery] = []
    for number, address in enumerate(addresses):
        wanted = count // len(addresses) + (number < count % len(addresses))
        mails = _mails_with_words(inbox_file, reference, address, wanted, rng)
        drawn += [InboxQuery(address, _query(rng.choice(mails), rng)) for _ in range(wanted)]
    rng.shuffle(drawn)
    return drawn


def plain_words(
    inbox_file: InboxFile, reference: ReferenceInbox, address: str, count: int, seed: int = 0
) -> list[str]:
    """Words for which both designs must find the same mails of an inbox.

    ASCII words of one form (no other word of the file has their stem) that occur
    in no sender's name or address, which the reference does not index.
    """
    rng = Random(seed)
    rows = inbox_file.execute(
        "SELECT any_value(word) FROM terms GROUP BY stem HAVING count(*) = 1"
    ).fetchall()
    senders = inbox_file.execute("SELECT DISTINCT from_name, from_address FROM emails").fetchall()
    of_senders = set(stems([word for sender in senders for word in words(" ".join(sender))]))
    single = {word for (word,) in rows} - of_senders
    found: list[str] = []
    for mail in _mails_with_words(inbox_file, reference, address, 4 * count, rng, least_share=0):
        candidates = [w for w in mail.words if w in single and stems([w])[0] not in of_senders]
        found += rng.sample(candidates, min(1, len(candidates)))
    return list(dict.fromkeys(found))[:count]


def _query(mail: _Mail, rng: Random) -> Query:
    keywords = rng.sample(mail.words, min(rng.randint(1, 4), len(mail.words)))
    after = before = sender = recipient = None
    if rng.random() < 0.5 and mail.sent_at is not None:
        day = mail.sent_at.date()
        span = dt.timedelta(days=rng.randint(1, 200))
        if rng.random() < 0.5:
            after = day - span
        else:
            before = day + span
    if rng.random() < 0.2:
        if rng.random() < 0.5 or not mail.to:
            sender = mail.sender
        else:
            recipient = rng.choice(mail.to)
    return Query(keywords, sender or None, recipient, after, before)


def _mails_with_words(
    inbox_file: InboxFile,
    reference: ReferenceInbox,
    address: str,
    count: int,
    rng: Random,
    least_share: float = LEAST_SHARE,
) -> list[_Mail]:
    """About `count` mails of an inbox (all of a smaller one) that have words to search for."""
    rows = inbox_file.execute(
        "SELECT DISTINCT email_id FROM parties WHERE address_id ="
        " (SELECT address_id FROM addresses WHERE address = ?) ORDER BY email_id",
        [address],
    ).fetchall()
    ids = rng.sample([email_id for (email_id,) in rows], min(2 * count, len(rows)))
    found = inbox_file.execute(
        "SELECT sent_at, from_address, [each.address for each in to_recipients], subject, body"
        f" FROM emails WHERE email_id IN ({', '.join(map(str, ids))}) ORDER BY email_id"
    ).fetchall()
    texts = [_words_of(f"{row[3]} {row[4]}") for row in found]
    total = inbox_file.counts["stored"]
    known = reference.mails_with(sorted({word for text in texts for word in text}))
    middling = {
        word
        for word, mails in known.items()
        if max(2, least_share * total) <= mails <= max(10, MOST_SHARE * total)
    }
    mails = [
        _Mail(row[0], row[1], tuple(filter(None, row[2])), tuple(w for w in text if w in middling))
        for row, text in zip(found, texts, strict=True)
    ]
    mails = [mail for mail in mails if mail.words]
    if not mails:
        raise AssertionError(f"no mail of {address} has a word of middling frequency")
    return mails


def _words_of(text: str) -> list[str]:
    distinct = dict.fromkeys(word for word in words(text) if word.isascii() and len(word) > 2)
    return [word for word in distinct if word not in STOP_WORDS]
