"""What share of replies finds the mail that they answer, by subject and by quoted text.

    python -m tests.thread_parents enron.duckdb

A reply is a mail whose subject begins with "Re:" and the like. Its parent is looked for in its
writer's inbox, where it must have been: by subject as threads do it (an earlier mail in its
thread), and by quoted text (a line of an earlier mail that the reply repeats). The second reads
every line of the inbox, so threads don't do it; it says what they miss.
"""

import sys
from collections import defaultdict
from pathlib import Path

from art_e.inbox.file import InboxFile
from art_e.inbox.threads import DAYS
from evals.statistics import Sample

LEAST_CHARS = 40  # of a line that is told from others
INBOXES = 150  # the largest


def main() -> None:
    """Print both shares, and of those that only one way finds."""
    found: list[tuple[str, bool, bool]] = []
    with InboxFile(Path(sys.argv[1])) as file:
        for summary in file.inboxes(INBOXES):
            inbox = file.open_inbox(summary.address)
            ids = [hit.message_id for hit in inbox.search([], max_results=len(inbox))][::-1]
            mails = [each for each in inbox.read_many(ids) if each is not None]
            lines = [
                {
                    line
                    for each in mail.body.split("\n")
                    if len(line := each.strip(" >")) >= LEAST_CHARS
                }
                for mail in mails
            ]
            first: defaultdict[str, list[int]] = defaultdict(list)
            for place, mail in enumerate(mails):
                is_reply = mail.subject.lower().startswith(("re:", "fw:", "fwd:"))
                if is_reply and mail.sender.address == summary.address and mail.date:
                    thread = [each.message_id for each in inbox.thread(mail.message_id)]
                    earlier = {other for line in lines[place] for other in first[line]}
                    near = [
                        other
                        for other in earlier
                        if (date := mails[other].date) and (mail.date - date).days <= DAYS
                    ]
                    by_subject = thread.index(mail.message_id) > 0
                    found.append((summary.address, by_subject, bool(near)))
                for line in lines[place]:
                    first[line].append(place)
    addresses = [address for address, _, _ in found]
    sample = Sample(addresses, [str(place) for place in range(len(found))])
    for name, hits in {
        "by subject": [each[1] for each in found],
        "by quoted text": [each[2] for each in found],
        "by either": [each[1] or each[2] for each in found],
        "by quoted text alone": [each[2] and not each[1] for each in found],
    }.items():
        share = sample.share(hits)
        print(f"{name}: {share['value']:.1%} [{share['low']:.1%}, {share['high']:.1%}]")
    print(f"{len(found):,} replies of {len(set(addresses))} people")


if __name__ == "__main__":
    main()
