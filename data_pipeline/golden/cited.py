"""The mails that questions cite, looked up in the inbox file all at once.

An id stands for the mail that `Inbox.canonical_id` finds: in the question's own inbox, sent
by its date, one of that id before a mail that this one was a copy of. Where that inbox has
none, only whether and how the file has it is told. Knows nothing of what mails say and of
what follows where there is none.
"""

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from art_e.inbox.file import InboxFile
from art_e.question import Question

_FOUND = """
WITH cited AS (SELECT unnest(?::VARCHAR[]) AS address, unnest(?::VARCHAR[]) AS message_id),
ids AS (
    SELECT message_id, email_id, 0 AS preference FROM emails
    UNION ALL SELECT message_id, email_id, 1 FROM aliases
)
SELECT address, cited.message_id, emails.message_id, sent_at, lower(hex(content_digest)),
    (address_id, email_id) IN (SELECT address_id, email_id FROM parties) AS own
FROM cited JOIN addresses USING (address) JOIN ids USING (message_id)
    JOIN emails USING (email_id)
ORDER BY address, cited.message_id, own DESC, preference, email_id
"""


class Cited(NamedTuple):
    """What an id stands for: the id under which the inbox has the mail.

    None: it has none. `later`: it has one, sent after the question's date, on the day `sent`
    (UTC), or without a date. `elsewhere`: only other inboxes of the file have one.
    """

    stored: str | None
    later: bool
    sent: dt.date | None = None
    elsewhere: bool = False


class FoundMail(NamedTuple):
    """A mail that an id names. `own`: it is in the asker's inbox."""

    stored: str
    sent_at: dt.datetime | None
    content: str  # its content's digest
    own: bool


class CitedMails:
    """What the inbox file has of the mails that `questions` cite.

    `found` has, by `cited_key`, the mails that an id names, those of the asker's inbox
    first. Of an inbox that the file lacks it has none.
    """

    def __init__(self, file: InboxFile, questions: Iterable[Question]) -> None:
        wanted = sorted(
            {cited_key(each, cited) for each in questions for cited in each.message_ids}
        )
        rows = file.execute(_FOUND, [[each[0] for each in wanted], [each[1] for each in wanted]])
        found: defaultdict[tuple[str, str], list[FoundMail]] = defaultdict(list)
        for address, cited, *mail in rows.fetchall():
            found[address, cited].append(FoundMail(*mail))
        self.found: Mapping[tuple[str, str], Sequence[FoundMail]] = dict(found)

    def of(self, question: Question) -> dict[str, Cited]:
        """What each of the question's message ids stands for."""
        return {
            each: _as_of(self.found.get(cited_key(question, each), ()), question.query_date)
            for each in question.message_ids
        }


def address_of(question: Question) -> str:
    """The address of the question's inbox as inbox files write it."""
    return question.inbox_address.strip().lower()


def cited_key(question: Question, message_id: str) -> tuple[str, str]:
    """The question's inbox and an id that it cites, as inbox files write them."""
    wanted = message_id.strip()
    return address_of(question), wanted if wanted.startswith("<") else f"<{wanted}>"


def _as_of(found: Sequence[FoundMail], day: dt.date | None) -> Cited:
    own = [each for each in found if each.own]
    for stored, sent_at, _, _ in own:
        # Mail without a date is in no inbox as of a day.
        if day is None or (sent_at is not None and sent_at.date() <= day):
            return Cited(stored, False)
    if not own:
        return Cited(None, False, elsewhere=bool(found))
    sent_at = own[0].sent_at
    return Cited(None, True, None if sent_at is None else sent_at.date())
