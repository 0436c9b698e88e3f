"""Drawing the batches of mails that a model writes questions about.

An inbox's threads, in date order, are parted into as many stretches as there are batches,
so that the whole period is asked about, and each batch is drawn from one of them. A mail
is in one batch of the whole set at most, and no batch of a split that has to be without
it: what is in a test inbox is read by no training question. Knows nothing of models.
"""

import datetime as dt
import itertools
import random
from collections.abc import Mapping, Sequence

from art_e.inbox.file import InboxFile
from art_e.question import Split
from data_pipeline.golden.golden_set import Batch
from data_pipeline.golden.threads import Mail, threads_of

BATCHES = 25
BATCH_MAILS = 20
# Fewer are no batch: hardly a question needs more than one of them.
LEAST_MAILS = 5
# Characters of a body: shorter ones tell nothing, longer ones are mostly newsletters.
LEAST_CHARS, MOST_CHARS = 200, 5_000

# Mail of inboxes of these splits is in no batch of the split.
_CLOSED: dict[Split, tuple[Split, ...]] = {
    "test": (),
    "validation": ("test",),
    "train": ("test", "validation"),
}


def draw_batches(
    file: InboxFile, splits: Mapping[str, Split], count: int, seed: int
) -> list[Batch]:
    """Up to `count` batches of each inbox, in the order of `splits`.

    An inbox that has not enough mail that may be used gives fewer, and smaller ones.
    """
    contents: dict[Split, set[bytes]] = {
        split: set().union(*(_contents(file, each) for each in _of(splits, split)))
        for split in ("test", "validation")
    }
    used: set[bytes] = set()
    batches: dict[str, list[Batch]] = {}
    # Test inboxes choose first: they have the fewest mails to choose from.
    for split, closed_to in _CLOSED.items():
        closed = set().union(*(contents[each] for each in closed_to))
        for address in _of(splits, split):
            mails = [
                each
                for each in _mails(file, address)
                if each.content not in closed and each.content not in used
            ]
            name = f"i{list(splits).index(address) + 1}"
            drawn = draw(mails, count, random.Random(f"{seed}/batches/{address}"))
            used.update(mail.content for batch in drawn for mail in batch)
            batches[address] = [
                Batch(f"{name}-b{number}", address, split, tuple(m.message_id for m in batch))
                for number, batch in enumerate(drawn, start=1)
            ]
    return [batch for address in splits for batch in batches[address]]


def draw(mails: Sequence[Mail], count: int, rng: random.Random) -> list[list[Mail]]:
    """Up to `count` batches of mails that come in date order; in each they are in it too.

    No two mails of them have the same content, and a thread is in one batch whole, or if it
    is longer than that its newest mails.
    """
    once = list({mail.content: mail for mail in reversed(mails)}.values())[::-1]
    threads = [thread[-BATCH_MAILS:] for thread in threads_of(once)]
    total = sum(map(len, threads))
    stretches: list[list[list[Mail]]] = [[] for _ in range(min(count, -(-total // BATCH_MAILS)))]
    before = 0
    for thread in threads:
        stretches[before * len(stretches) // total].append(thread)
        before += len(thread)
    drawn = [_batch(stretch, rng) for stretch in stretches]
    return [batch for batch in drawn if len(batch) >= LEAST_MAILS]


def _batch(threads: Sequence[list[Mail]], rng: random.Random) -> list[Mail]:
    """Threads that fit in a batch. Mails are drawn and bring their threads: long ones come
    more often than if threads were, and questions about several mails need them.
    """
    tickets = list(itertools.chain.from_iterable([n] * len(each) for n, each in enumerate(threads)))
    rng.shuffle(tickets)
    batch: list[Mail] = []
    for number in dict.fromkeys(tickets):
        if len(batch) + len(threads[number]) <= BATCH_MAILS:
            batch += threads[number]
    return sorted(batch, key=lambda mail: mail.email_id)


def _of(splits: Mapping[str, Split], wanted: Split) -> list[str]:
    return [address for address, split in splits.items() if split == wanted]


def _mails(file: InboxFile, address: str) -> list[Mail]:
    """The mails of an inbox that may be asked about, in date order."""
    rows = file.execute(
        f"""
        SELECT email_id, message_id, sent_at, subject, content_digest
        FROM emails SEMI JOIN ({_HIS}) USING (email_id)
        WHERE sent_at IS NOT NULL AND length(body) BETWEEN ? AND ?
        ORDER BY email_id
        """,
        [address, LEAST_CHARS, MOST_CHARS],
    ).fetchall()
    return [Mail(*row) for row in rows]


def _contents(file: InboxFile, address: str) -> set[bytes]:
    """The contents of all mails of an inbox."""
    rows = file.execute(
        f"SELECT content_digest FROM emails SEMI JOIN ({_HIS}) USING (email_id)", [address]
    ).fetchall()
    return {content for (content,) in rows}


def days_of(file: InboxFile, address: str) -> dict[str, dt.date]:
    """The day (UTC) of each dated mail of an inbox, by message id."""
    rows = file.execute(
        f"""
        SELECT message_id, sent_at::DATE FROM emails SEMI JOIN ({_HIS}) USING (email_id)
        WHERE sent_at IS NOT NULL
        """,
        [address],
    ).fetchall()
    return dict(rows)


_HIS = "SELECT email_id FROM parties JOIN addresses USING (address_id) WHERE address = ?"
