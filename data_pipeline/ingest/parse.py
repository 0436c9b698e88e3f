"""A message made into what the inbox stores: raw bytes in, `ParsedEmail` or `Rejected` out.

Never an exception: mail is hostile, and what can't be read is guessed, left out or rejected.
Reasons for rejection: "empty" (no bytes, or only white space), "not-mail" (none of From, To,
Date, Message-ID, Subject), "too-large" (over 50 MB), "parse-error" (unforeseen; the detail names
the exception).
"""

import datetime as dt
import hashlib
import re
from collections.abc import Callable, Iterable
from typing import TypeVar

from art_e.inbox.mail import Mailbox
from data_pipeline.ingest.body import PlainMessage, message_body, plain_message, plain_text
from data_pipeline.ingest.headers import (
    Headers,
    decode_words,
    headers_of,
    mailboxes,
    most_plausible,
    naive_utc,
    parse_date,
    parse_message_tree,
    sender_mailbox,
    split_message,
)
from data_pipeline.ingest.records import (
    LARGEST_MESSAGE,
    MailFields,
    ParsedEmail,
    RawMessage,
    Rejected,
)
from data_pipeline.ingest.text import one_line, scrub

_LONGEST_ID = 998  # characters, the longest line of RFC 5322

# Gmail exports labels in the language of the account: English, German, French, Spanish, Italian,
# Dutch, Portuguese, Polish, Danish and Norwegian, Swedish. Spam is "Spam" in all of them.
_JUNK_LABELS = frozenset(
    "spam trash bin papierkorb corbeille papelera cestino prullenbak lixeira lixo kosz papirkurv"
    " papperskorg papperskorgen".split()
)

_ESSENTIAL = ("from", "to", "date", "message-id", "subject")
_USUAL_ID = re.compile(rf"<[!-;=?-~]{{1,{_LONGEST_ID - 2}}}>")
_BRACKETED = re.compile(r"<([^<>]+)>")
_LONGEST_DETAIL = 200

_Message = TypeVar("_Message", RawMessage, MailFields)


def parse_message(raw: RawMessage) -> ParsedEmail | Rejected:
    """The mail in `raw.data`, or why it can't be stored. Never raises."""
    return _guarded(_parse_message, raw)


def from_fields(fields: MailFields) -> ParsedEmail | Rejected:
    """The mail whose parts a container already holds, by the same rules. Never raises."""
    return _guarded(_from_fields, fields)


def _guarded(
    parse: Callable[[_Message], ParsedEmail | Rejected], message: _Message
) -> ParsedEmail | Rejected:
    try:
        return parse(message)
    except Exception as error:  # noqa: BLE001 - the one place that promises "never raises"
        detail = one_line(f"{type(error).__name__}: {error}")[:_LONGEST_DETAIL]
        return Rejected(scrub(message.source), "parse-error", detail)


def _parse_message(raw: RawMessage) -> ParsedEmail | Rejected:
    source = scrub(raw.source)
    if len(raw.data) > LARGEST_MESSAGE:
        return Rejected(source, "too-large", f"more than {LARGEST_MESSAGE:,} bytes")
    if not raw.data or raw.data.isspace():
        return Rejected(source, "empty", f"{len(raw.data):,} bytes")
    headers, body = plain_message(raw.data) or message_by_email(raw.data)
    if not any(name in headers for name in _ESSENTIAL):
        return Rejected(source, "not-mail", "no From, To, Date, Message-ID or Subject")
    return compose(source, headers, body, raw.envelope_date)


def message_by_email(data: bytes) -> PlainMessage:
    """The header fields and the readable body of any message, by the standard library."""
    tree = parse_message_tree(split_message(data))
    return PlainMessage(headers_of(tree), message_body(tree))


def compose(
    source: str, headers: Headers, body: str, envelope_date: dt.datetime | None
) -> ParsedEmail:
    """The mail of a header block and a body that is text already."""
    dates = (
        parse_date(headers.first("date")),
        parse_date(headers.first("received").rpartition(";")[2]),
        envelope_date and naive_utc(envelope_date),
    )
    return _email(
        source,
        message_id=headers.first("message-id"),
        sent_at=most_plausible(dates),
        subject=headers.first("subject"),
        sender=sender_mailbox(headers.first("from"), headers.first("x-from")),
        recipients=[headers.every(role) for role in ("to", "cc", "bcc")],
        body=body,
        junk=_is_junk(headers.first("x-gmail-labels")),
    )


def _from_fields(fields: MailFields) -> ParsedEmail | Rejected:
    source = scrub(fields.source)
    if not any((fields.message_id, fields.subject, fields.sender, fields.date, *fields.to)):
        if not fields.body.strip():
            return Rejected(source, "empty", "no fields and no body")
        return Rejected(source, "not-mail", "no sender, recipient, date, message id or subject")
    return _email(
        source,
        message_id=fields.message_id,
        sent_at=most_plausible([fields.date and naive_utc(fields.date)]),
        subject=fields.subject,
        sender=sender_mailbox(one_line(fields.sender)),
        recipients=[fields.to, fields.cc, fields.bcc],
        body=plain_text(fields.body),
    )


def _email(
    source: str,
    *,
    message_id: str,
    sent_at: dt.datetime | None,
    subject: str,
    sender: Mailbox,
    recipients: Iterable[Iterable[str]],
    body: str,
    junk: bool = False,
) -> ParsedEmail:
    # An address has one role, the strongest: to before cc before bcc.
    seen: set[str] = set()
    roles: list[tuple[Mailbox, ...]] = []
    for values in recipients:
        boxes: dict[str, Mailbox] = {}
        for box in mailboxes(values):
            if box.address not in seen:
                boxes.setdefault(box.address, box)
        seen.update(boxes)
        roles.append(tuple(boxes.values()))
    subject = decode_words(subject)
    clean_id = _clean_message_id(message_id) or derived_message_id(sent_at, sender, subject, body)
    to, cc, bcc = roles
    return ParsedEmail(source, clean_id, sent_at, subject, sender, to, cc, bcc, body, junk)


def _clean_message_id(value: str) -> str:
    """The id in its angle brackets and without white space; "" if there is no usable one."""
    if _USUAL_ID.fullmatch(value):
        return value
    value = "".join(one_line(value).split())
    bracketed = _BRACKETED.search(value)
    inner = bracketed[1] if bracketed else value.replace("<", "").replace(">", "")
    return f"<{inner}>" if inner and len(inner) + 2 <= _LONGEST_ID else ""


def derived_message_id(
    sent_at: dt.datetime | None, sender: Mailbox, subject: str, body: str
) -> str:
    """A stable id for a mail that has none: a hash of date, sender, subject and body.

    Copies of one mail get the same id from any source. The sender counts by address, or by name
    where there is no address.
    """
    date = sent_at.isoformat() if sent_at else ""
    content = "\0".join((date, sender.address or sender.name, subject, body))
    return f"<{hashlib.sha256(content.encode()).hexdigest()[:32]}@derived.art-e.invalid>"


def _is_junk(labels: str) -> bool:
    """Whether Gmail's export has the mail in spam or trash; commas separate labels."""
    names = decode_words(labels).split(",") if labels else ()
    return any(each.strip(' "').casefold() in _JUNK_LABELS for each in names)
