"""Mails as a model that works on a golden set is shown them. Knows nothing of models."""

from collections.abc import Sequence
from typing import Any

from art_e.inbox.mail import Email, format_date
from art_e.tools import MAX_BODY_CHARS, MAX_RECIPIENTS


def handles(mails: Sequence[object]) -> list[str]:
    """What the mails, or those of these ids, are called: "m1", "m2", ... in their order."""
    return [f"m{number}" for number in range(1, len(mails) + 1)]


def shown_mails(mails: Sequence[Email]) -> list[dict[str, Any]]:
    """The mails as far as an episode could see them."""
    return [
        {
            "id": handle,
            "date": format_date(mail.date),
            "from": str(mail.sender),
            "to": [str(each) for each in (*mail.to, *mail.cc, *mail.bcc)][:MAX_RECIPIENTS],
            "subject": mail.subject,
            "body": mail.body[:MAX_BODY_CHARS],
        }
        for handle, mail in zip(handles(mails), mails, strict=True)
    ]
