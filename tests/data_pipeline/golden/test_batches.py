"""Drawing batches: across the period, threads whole, and no mail where it must not be."""

import datetime as dt
import itertools
import random

from hypothesis import given
from hypothesis import strategies as st

from art_e.inbox.file import InboxFile
from art_e.question import Split
from data_pipeline.golden.generate import BATCH_MAILS, LEAST_CHARS, LEAST_MAILS, MOST_CHARS, draw
from data_pipeline.golden.golden_set import Batch
from data_pipeline.golden.inboxes import Mail, threads_of

START = dt.datetime(2001, 1, 1)


def mails(hours: list[int], subjects: list[int]) -> list[Mail]:
    sent = [START + dt.timedelta(hours=each) for each in itertools.accumulate(hours)]
    return [
        Mail(n, f"<{n}@test>", at, f"Matter {subject}", f"{subject} {n % 50}".encode())
        for n, (at, subject) in enumerate(zip(sent, subjects, strict=False))
    ]


MAILS = st.integers(0, 300).flatmap(
    lambda n: st.builds(
        mails,
        st.lists(st.integers(0, 100), min_size=n, max_size=n),
        st.lists(st.integers(0, 40), min_size=n, max_size=n),
    )
)


@given(MAILS, st.integers(1, 12), st.integers())
def test_each_mail_once_and_threads_whole(drawn_of: list[Mail], count: int, seed: int) -> None:
    batches = draw(drawn_of, count, random.Random(seed))
    assert batches == draw(drawn_of, count, random.Random(seed))
    assert len(batches) <= count
    everything = list(itertools.chain.from_iterable(batches))
    contents = [mail.content for mail in everything]
    assert len(contents) == len(set(contents))
    once = list({mail.content: mail for mail in reversed(drawn_of)}.values())[::-1]
    threads = {mail: thread[-BATCH_MAILS:] for thread in threads_of(once) for mail in thread}
    for batch in batches:
        assert LEAST_MAILS <= len(batch) <= BATCH_MAILS
        assert batch == sorted(batch)
        for mail in batch:
            assert set(threads[mail]) <= set(batch)


def check(file: InboxFile, splits: dict[str, Split], batches: list[Batch]) -> None:
    """By queries of their own: what may be in a batch."""
    used = [each for batch in batches for each in batch.message_ids]
    assert len(used) == len(set(used))
    assert len({each.id for each in batches}) == len(batches)
    for batch in batches:
        rows = file.execute(
            "SELECT message_id, length(body), sent_at FROM emails"
            " WHERE list_contains(?, message_id) ORDER BY email_id",
            [list(batch.message_ids)],
        ).fetchall()
        assert [row[0] for row in rows] == list(batch.message_ids)
        assert all(LEAST_CHARS <= row[1] <= MOST_CHARS and row[2] for row in rows)
        inbox = file.open_inbox(batch.inbox)
        assert all(inbox.canonical_id(each) == each for each in batch.message_ids)
    closed = {"train": ("test", "validation"), "validation": ("test",)}
    for split, others in closed.items():
        ids = [each for batch in batches if batch.split == split for each in batch.message_ids]
        theirs = [address for address, of in splits.items() if of in others]
        row = file.execute(
            "SELECT count(*) FROM emails JOIN emails AS other USING (content_digest)"
            " JOIN parties ON parties.email_id = other.email_id JOIN addresses USING (address_id)"
            " WHERE list_contains(?, emails.message_id) AND list_contains(?, address)",
            [ids, theirs],
        ).fetchone()
        assert row == (0,)
