"""Which mails of an inbox belong to one conversation, told by their subjects.

Enron's mail lost the headers that link a reply to what it replies to. Mails whose
subjects are the same but for their prefixes are a thread, until nothing is said under
that subject for a while. Knows nothing of bodies.
"""

import datetime as dt
import re
from collections.abc import Iterable
from typing import NamedTuple

# What is said under the same subject later than that is another matter ("Expense report").
LONGEST_GAP = dt.timedelta(days=60)

# English, German and Swedish programs', also counted as in "Re[2]:".
_PREFIXES = re.compile(r"(?:\s*(?:re|fwd?|aw|wg|sv|vb)\s*(?:\[\d+\]|\(\d+\))?\s*:)+", re.IGNORECASE)


class Mail(NamedTuple):
    """What is to be known of a mail to draw it; `email_id` is in date order."""

    email_id: int
    message_id: str
    sent_at: dt.datetime
    subject: str
    content: bytes


def plain_subject(subject: str) -> str:
    """The subject without its prefixes, in lower case with single spaces."""
    prefixes = _PREFIXES.match(subject)
    rest = subject[prefixes.end() :] if prefixes else subject
    return " ".join(rest.split()).casefold()


def threads_of(mails: Iterable[Mail]) -> list[list[Mail]]:
    """The threads of mails, which come in date order; each mail is in one.

    A thread's mails are in date order, and threads in that of their first mails. A mail
    without a subject is a thread of its own.
    """
    threads: list[list[Mail]] = []
    last: dict[str, list[Mail]] = {}
    for mail in mails:
        subject = plain_subject(mail.subject)
        thread = last.get(subject) if subject else None
        if thread is not None and mail.sent_at - thread[-1].sent_at <= LONGEST_GAP:
            thread.append(mail)
        else:
            threads.append([mail])
            last[subject] = threads[-1]
    return threads
