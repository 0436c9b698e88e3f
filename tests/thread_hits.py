"""Whether the agent would find mail sooner if hits were threads instead of mails.

    python -m tests.thread_hits enron.duckdb questions.jsonl

Each question is searched with its own words up to its date. A hit is a mail, or the first of its
thread; it is right if it is, or its thread holds, a gold mail.
"""

import sys
from pathlib import Path

import numpy as np

from art_e.inbox.file import InboxFile
from art_e.question import load_questions

LISTED = 30


def main() -> None:
    """Print how often the first hit is right, and the mean reciprocal rank, both ways."""
    ranks: list[tuple[int, int]] = []
    with InboxFile(Path(sys.argv[1])) as file:
        for question in load_questions(sys.argv[2]):
            inbox = file.inbox_of(question)
            gold = {inbox.canonical_id(each) for each in question.message_ids}
            mails = [
                hit.message_id for hit in inbox.search([question.question], max_results=LISTED)
            ]
            threads = dict.fromkeys(
                frozenset(mail.message_id for mail in inbox.thread(each)) for each in mails
            )
            by_mail = [each in gold for each in mails].index(True)
            ranks.append((by_mail, [not gold.isdisjoint(each) for each in threads].index(True)))
    reciprocal = 1 / (np.array(ranks) + 1)
    first = (np.array(ranks) == 0).astype(float)
    drawn = np.random.default_rng(0).integers(0, len(ranks), (10_000, len(ranks)))
    for name, values in (("first", first), ("reciprocal rank", reciprocal)):
        gain = (values[:, 1] - values[:, 0])[drawn].mean(axis=1)
        low, high = np.quantile(gain, [0.025, 0.975])
        mail, thread = values.mean(axis=0)
        print(f"{name}: mails {mail:.3f}, threads {thread:.3f}, gain [{low:.3f}, {high:.3f}]")
    tenth = (np.array(ranks) < 10).sum(axis=0)
    print(f"among the first ten: mails {tenth[0]}, threads {tenth[1]} of {len(ranks)}")


if __name__ == "__main__":
    main()
