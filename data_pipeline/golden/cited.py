"""The mails that questions cite, looked up in their inboxes all at once.

An id stands for the mail that `Inbox.canonical_id` finds: in the question's own inbox, sent
by its date, one of that id before a mail that this one was a copy of. Knows nothing of what
mails say and of what follows where there is none.
"""

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from art_e.inbox.file import InboxFile
from art_e.question import Question
from data_pipeline.golden.leaks import inbox_of

_FOUND = """
WITH cited AS (SELECT unnest(?::VARCHAR[]) AS address, unnest(?::VARCHAR[]) AS message_id),
ids AS (
    SELECT message_id, email_id, 0 AS preference FROM emails
    UNION ALL SELECT message_id, email_id, 1 FROM aliases
)
SELECT DISTINCT address, cited.message_id, preference, email_id, emails.message_id, sent_at
FROM cited JOIN ids USING (message_id) JOIN addresses USING (address)
    SEMI JOIN parties USING (address_id, email_id) JOIN emails USING (email_id)
ORDER BY address, cited.message_id, preference, email_id
"""


class Cited(NamedTuple):
    """What an id stands for: the id under which the inbox has the mail.

    None: it has none. `later`: it has one, sent after the question's date.
    """

    stored: str | None
    later: bool


class CitedMails:
    """What the inbox file has of the mails that `questions` cite."""

    def __init__(self, file: InboxFile, questions: Iterable[Question]) -> None:
        wanted = sorted(
            {
                (inbox_of(each), _bracketed(cited))
                for each in questions
                for cited in each.message_ids
            }
        )
        rows = file.execute(_FOUND, [[each[0] for each in wanted], [each[1] for each in wanted]])
        self._found: defaultdict[tuple[str, str], list[tuple[str, dt.datetime | None]]]
        self._found = defaultdict(list)
        for address, cited, _, _, stored, sent_at in rows.fetchall():
            self._found[address, cited].append((stored, sent_at))

    def of(self, question: Question) -> dict[str, Cited]:
        """What each of the question's message ids stands for."""
        return {
            each: _as_of(
                self._found.get((inbox_of(question), _bracketed(each)), ()), question.query_date
            )
            for each in question.message_ids
        }


def _as_of(found: Sequence[tuple[str, dt.datetime | None]], day: dt.date | None) -> Cited:
    # Mail without a date is in no inbox as of a day.
    for stored, sent_at in found:
        if day is None or (sent_at is not None and sent_at.date() <= day):
            return Cited(stored, False)
    return Cited(None, bool(found))


def _bracketed(message_id: str) -> str:
    """The id as inbox files have it."""
    wanted = message_id.strip()
    return wanted if wanted.startswith("<") else f"<{wanted}>"
