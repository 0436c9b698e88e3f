"""Mails of a world: their text and their bytes.

We write the bytes ourselves: the `email` package takes several hundred microseconds a message, and
worlds have up to half a million mails. Most are plain text; fixed shares have the other forms that
a parser must handle."""

import base64
import binascii
import datetime as dt
import html
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from email.charset import BASE64, Charset
from email.header import Header
from random import Random

from data_pipeline.synthetic.wording import Company, Person, pick

_WRAPPER = textwrap.TextWrapper(72, break_long_words=False, break_on_hyphens=False)
_UTF_8 = Charset("utf-8")
_UTF_8.header_encoding = BASE64
_SPECIAL = re.compile(r"[^\w !#$%&'*+/=?^`{|}~-]", re.ASCII)


@dataclass(slots=True)
class Draft:
    """A mail before rendering; `minute` counts UTC minutes since year 1, `references` are oldest
    first. With `old_addresses` owners may appear under their other address."""

    message_id: str
    minute: int
    sender: Person
    to: tuple[Person, ...]
    subject: str
    text: str
    cc: tuple[Person, ...] = ()
    bcc: tuple[Person, ...] = ()
    references: tuple[str, ...] = ()
    attachment: str = ""
    html_only: bool = False
    old_addresses: bool = False

    @property
    def utc_date(self) -> dt.date:
        return dt.date.fromordinal(self.minute // 1440)


def capital(text: str) -> str:
    """Return `text` with a capital first letter."""
    return text[0].upper() + text[1:]


def reply_subject(subject: str) -> str:
    """Prefix `subject` with "Re: ", unless it already starts with that."""
    return subject if subject[:4].lower() == "re: " else f"Re: {subject}"


def letter(
    rng: Random, company: Company, sender: Person, to: Sequence[Person], lines: list[str], *,
    filler: float = 0.5,
) -> str:  # fmt: skip
    """Return a mail's text: greeting, `lines`, filler (which alone has typos) and signature."""
    if company.short:
        return " ".join(lines)
    common = company.wording.common
    parts = []
    if rng.random() < 0.7:
        if len(to) == 1:
            name = to[0].nick if rng.random() < 0.6 else to[0].forename
            parts.append(pick(rng, common["greeting"]).format(a=name))
        else:
            parts.append(pick(rng, common["greeting_all"]))
    body = list(lines)
    if rng.random() < filler:
        body.append(pick(rng, common["typos" if rng.random() < 0.16 else "filler"]))
        if rng.random() < 0.35 and (second := pick(rng, common["filler"])) not in body:
            body.append(second)
    if len(body) > 2 and rng.random() < 0.5:
        parts += [" ".join(body[:-1]), body[-1]]
    else:
        parts.append(" ".join(body))
    text = ("\n\n" if rng.random() < 0.75 else "\n").join(parts)
    if company.bounded:
        return text
    text = f"{text}\n{_signature(rng, sender, company)}".rstrip()
    # Older mail programs send lines of at most 72 characters.
    return "\n".join(map(_WRAPPER.fill, text.split("\n"))) if sender.number % 3 else text


def _signature(rng: Random, sender: Person, company: Company) -> str:
    draw = rng.random()
    if draw < 0.45:
        return f"\n{sender.signs}"
    if draw < 0.55:
        return ""
    closing = f"\n{pick(rng, company.wording.common['closing'])}\n{sender.signs}"
    if draw < 0.75:
        return closing
    phone = f"(555) 01{sender.number % 90 + 10}-{sender.number * 7919 % 9000 + 1000}"
    return f"{closing}\n\n{sender.full}\n{sender.role}\n{company.name}\n{phone}"


def _local(minute: int, utc_offset: int) -> dt.datetime:
    zone = dt.timezone(dt.timedelta(minutes=utc_offset))
    return dt.datetime(1, 1, 1, tzinfo=zone) + dt.timedelta(minutes=minute + utc_offset - 1440)


def _clock(when: dt.datetime) -> str:
    return f"{(when.hour - 1) % 12 + 1}:{when:%M %p}"


def quoted(replier: Person, parent: Draft) -> str:
    """Quote the parent in the style of the replier's mail program, one of three."""
    when = _local(parent.minute, replier.utc_offset)
    if replier.number % 3 == 0:
        lead = f"On {when:%a, %b} {when.day}, {when.year} at {_clock(when)}"
        lines = "\n".join(f"> {line}" for line in parent.text.split("\n"))
        return f"{lead}, {parent.sender.full} wrote:\n{lines}"
    if replier.number % 3 == 1:
        return _original(parent.sender, parent.to, when, parent.subject, parent.text)
    names = ", ".join(person.full for person in parent.to[:4])
    return (
        f"\t{parent.sender.full}\n\t{when:%m/%d}/{when.year} {_clock(when)}\n\n"
        f"\tTo: {names}\n\tSubject: {parent.subject}\n\n{parent.text}"
    )


def forwarded(by: Person, via: Person, minute: int, subject: str, text: str, *, bare: bool) -> str:
    """Quote a mail that `by` sent to `via`, as `via` forwards it."""
    if bare:
        lead = f"---------- Forwarded message ----------\nFrom: {by.full}\n"
        return f"{lead}Subject: {subject}\n\n{text}"
    return _original(by, [via], _local(minute, via.utc_offset), subject, text)


def _original(by: Person, to: Sequence[Person], when: dt.datetime, subject: str, text: str) -> str:
    names = "; ".join(f"{person.family}, {person.forename}" for person in to[:4])
    sent = f"{when:%A, %B} {when.day}, {when.year} {_clock(when)}"
    return (
        f"-----Original Message-----\nFrom: {by.full} [mailto:{by.address}]\n"
        f"Sent: {sent}\nTo: {names}\nSubject: {subject}\n\n{text}"
    )


# ---- Bytes.


def render(rng: Random, draft: Draft, *, plain_only: bool) -> bytes:
    """Render the draft to bytes; `plain_only` leaves out HTML alternatives."""

    def header(person: Person) -> str:
        other = rng.random() < 0.06 and (draft.old_addresses or not person.owner)
        return mailbox(*(person.other_mailbox if other else person.mailbox))

    sender = header(draft.sender)
    recipients = [
        f"{field}: " + ",\n\t".join(map(header, people))
        for field, people in (("To", draft.to), ("Cc", draft.cc), ("Bcc", draft.bcc))
        if people
    ]
    content_head, data = _content(rng, draft, plain_only)
    joined = "\n\t".join(draft.references)
    lines = [
        f"Message-ID: {draft.message_id}",
        f"Date: {date_header(draft.minute, draft.sender.utc_offset)}",
        f"From: {sender}",
        *recipients,
        f"Subject: {encoded(draft.subject)}",
        *(f"In-Reply-To: {each}\nReferences: {joined}" for each in draft.references[-1:]),
        f"MIME-Version: 1.0\n{content_head}\n",
    ]
    message = "\n".join(lines).encode() + data
    # Mail servers write CRLF, mail folders LF.
    return message.replace(b"\n", b"\r\n") if rng.random() < 0.25 else message


def encoded(text: str) -> str:
    """Encode `text` for a header: as is, or in folded RFC 2047 words of up to 75 characters."""
    return text if text.isascii() else Header(text, _UTF_8, 75).encode()


def mailbox(name: str, address: str) -> str:
    """Return `Name <address>`, with the name quoted or encoded if necessary."""
    if not name:
        return address
    quote = '"' if name.isascii() and _SPECIAL.search(name) else ""
    return f"{quote}{encoded(name)}{quote} <{address}>"


def date_header(minute: int, utc_offset: int) -> str:
    """Format as "Tue, 3 Mar 2020 09:15:23 -0800"; the seconds are derived from the minute."""
    when = _local(minute, utc_offset).replace(second=minute * 37 % 60)
    return f"{when:%a}, {when.day} {when:%b %Y %H:%M:%S %z}"


def _content(rng: Random, draft: Draft, plain_only: bool) -> tuple[str, bytes]:
    text = f"{draft.text}\n"
    boundary = f"=_{rng.getrandbits(64):016x}"
    if draft.html_only:
        return _text_part(rng, _as_html(text), "html")
    if name := draft.attachment:
        file_head = (
            f'Content-Type: application/octet-stream; name="{name}"\n'
            f'Content-Disposition: attachment; filename="{name}"\n'
            "Content-Transfer-Encoding: base64\n"
        )
        file_part = (file_head, base64.encodebytes(rng.randbytes(90)))
        return _multipart("mixed", boundary, [_text_part(rng, text), file_part])
    if not plain_only and rng.random() < 0.06:
        parts = [_text_part(rng, text), _text_part(rng, _as_html(text), "html")]
        return _multipart("alternative", boundary, parts)
    return _text_part(rng, text)


def _text_part(rng: Random, text: str, subtype: str = "plain") -> tuple[str, bytes]:
    draw, form = rng.random(), rng.random()
    charset, data = "us-ascii" if text.isascii() and draw < 0.5 else "utf-8", text.encode()
    # Text with characters outside Latin-1 stays in UTF-8.
    if not text.isascii() and draw < 0.4 and max(text) <= "\xff":
        charset, data = "iso-8859-1", text.encode("latin-1")
    if form < 0.07:
        transfer, data = "quoted-printable", binascii.b2a_qp(data, istext=True)
    elif form < 0.10:
        transfer, data = "base64", base64.encodebytes(data)
    else:
        transfer = "7bit" if text.isascii() else "8bit"
    head = f"Content-Type: text/{subtype}; charset={charset}\n"
    return head + f"Content-Transfer-Encoding: {transfer}\n", data


def _as_html(text: str) -> str:
    paragraphs = html.escape(text, quote=False).split("\n\n")
    lines = [part.replace("\n", "<br>\n") for part in paragraphs]
    body = "".join(f"<p>{part}</p>\n" for part in lines)
    return f"<html><head><style>p {{ margin: 0 }}</style></head><body>\n{body}</body></html>\n"


def _multipart(kind: str, boundary: str, parts: list[tuple[str, bytes]]) -> tuple[str, bytes]:
    data = b"".join(f"--{boundary}\n{head}\n".encode() + content + b"\n" for head, content in parts)
    head = f'Content-Type: multipart/{kind}; boundary="{boundary}"\n'
    return head, data + f"--{boundary}--\n".encode()
