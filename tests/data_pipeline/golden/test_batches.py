"""Drawing batches: each mail once, and threads whole."""

import datetime as dt
import itertools
import random

from hypothesis import given
from hypothesis import strategies as st

from data_pipeline.golden.generate import BATCH_MAILS, LEAST_MAILS, draw
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
