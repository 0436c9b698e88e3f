"""Mails as bytes: headers, encodings and MIME parts, from a template of our own.

The `email` package takes several hundred microseconds a message; worlds have
up to half a million. Most messages are plain text; a fixed share uses each of
the other forms that a parser must know. Knows nothing of people or stories.
"""

import base64
import binascii
import contextlib
import datetime as dt
import html
import re
from dataclasses import dataclass
from random import Random

_DAY = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTH = (
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
)  # fmt: skip
_SPECIAL = re.compile(r"[^\w !#$%&'*+/=?^`{|}~-]", re.ASCII)


@dataclass(frozen=True, slots=True)
class Envelope:
    """The headers of a message. Mailboxes are encoded already; `minute` is UTC since year 1.

    `utc_offset` is in minutes. `references` are message ids, oldest first.
    """

    message_id: str
    minute: int
    utc_offset: int
    sender: str
    to: list[str]
    cc: list[str]
    bcc: list[str]
    subject: str
    references: tuple[str, ...] = ()


def encoded(text: str) -> str:
    """`text` as it may stand in a header: itself, or folded RFC 2047 words."""
    if text.isascii():
        return text
    # An encoded word has at most 75 characters: 45 bytes as base64. One word where it fits,
    # since some parsers put a space between two of them in a name.
    parts = [b""]
    for letter in text:
        data = letter.encode()
        if len(parts[-1]) + len(data) > 45:
            parts.append(b"")
        parts[-1] += data
    return "\n ".join(f"=?utf-8?b?{base64.b64encode(part).decode()}?=" for part in parts)


def mailbox(name: str, address: str) -> str:
    """`Name <address>` with the name quoted or encoded as it needs."""
    if not name:
        return address
    if not name.isascii():
        return f"{encoded(name)} <{address}>"
    return f'"{name}" <{address}>' if _SPECIAL.search(name) else f"{name} <{address}>"


def date_header(minute: int, utc_offset: int) -> str:
    """Tue, 3 Mar 2020 09:15:00 -0800, with the second left at a value drawn from the minute."""
    days, rest = divmod(minute + utc_offset, 1440)
    day = dt.date.fromordinal(days)
    sign = "-" if utc_offset < 0 else "+"
    hours, minutes = divmod(abs(utc_offset), 60)
    return (
        f"{_DAY[day.weekday()]}, {day.day} {_MONTH[day.month - 1]} {day.year} "
        f"{rest // 60:02d}:{rest % 60:02d}:{minute * 37 % 60:02d} {sign}{hours:02d}{minutes:02d}"
    )


def _text_part(rng: Random, text: str, subtype: str = "plain") -> tuple[str, bytes]:
    """Content headers and encoded bytes of a text part."""
    draw = rng.random()
    ascii_only = text.isascii()
    charset = "us-ascii" if ascii_only and draw < 0.5 else "utf-8"
    data = text.encode()
    if not ascii_only and draw < 0.4:
        # Names outside Latin-1 stay in UTF-8.
        with contextlib.suppress(UnicodeEncodeError):
            data, charset = text.encode("latin-1"), "iso-8859-1"
    form = rng.random()
    if form < 0.07:
        transfer, data = "quoted-printable", binascii.b2a_qp(data, istext=True)
    elif form < 0.10:
        transfer, data = "base64", base64.encodebytes(data)
    else:
        transfer = "7bit" if ascii_only else "8bit"
    head = (
        f"Content-Type: text/{subtype}; charset={charset}\nContent-Transfer-Encoding: {transfer}\n"
    )
    return head, data


def _as_html(text: str) -> str:
    paragraphs = html.escape(text, quote=False).split("\n\n")
    body = "".join(f"<p>{part.replace(chr(10), '<br>' + chr(10))}</p>\n" for part in paragraphs)
    return f"<html><head><style>p {{ margin: 0 }}</style></head><body>\n{body}</body></html>\n"


def _multipart(kind: str, boundary: str, parts: list[tuple[str, bytes]]) -> tuple[str, bytes]:
    head = f'Content-Type: multipart/{kind}; boundary="{boundary}"\n'
    data = b"".join(
        f"--{boundary}\n{part_head}\n".encode() + part_data + b"\n"
        for part_head, part_data in parts
    )
    return head, data + f"--{boundary}--\n".encode()


def _content(
    rng: Random, text: str, attachment: str, *, html_only: bool, plain_only: bool
) -> tuple[str, bytes]:
    boundary = f"=_{rng.getrandbits(64):016x}"
    if html_only:
        return _text_part(rng, _as_html(text), "html")
    if attachment:
        file_head = (
            f'Content-Type: application/octet-stream; name="{attachment}"\n'
            f'Content-Disposition: attachment; filename="{attachment}"\n'
            "Content-Transfer-Encoding: base64\n"
        )
        file_part = (file_head, base64.encodebytes(rng.randbytes(90)))
        return _multipart("mixed", boundary, [_text_part(rng, text), file_part])
    if not plain_only and rng.random() < 0.06:
        parts = [_text_part(rng, text), _text_part(rng, _as_html(text), "html")]
        return _multipart("alternative", boundary, parts)
    return _text_part(rng, text)


def render(
    rng: Random,
    envelope: Envelope,
    text: str,
    *,
    attachment: str = "",
    html_only: bool = False,
    plain_only: bool = False,
) -> bytes:
    """The message as bytes. `plain_only` keeps to one text part (bounded worlds)."""
    content_head, data = _content(rng, text, attachment, html_only=html_only, plain_only=plain_only)
    lines = [
        f"Message-ID: {envelope.message_id}\n"
        f"Date: {date_header(envelope.minute, envelope.utc_offset)}\n"
        f"From: {envelope.sender}\n"
    ]
    for field, people in (("To", envelope.to), ("Cc", envelope.cc), ("Bcc", envelope.bcc)):
        if people:
            joined = ",\n\t".join(people)
            lines.append(f"{field}: {joined}\n")
    lines.append(f"Subject: {encoded(envelope.subject)}\n")
    if envelope.references:
        joined = "\n\t".join(envelope.references)
        lines.append(f"In-Reply-To: {envelope.references[-1]}\nReferences: {joined}\n")
    lines.append(f"MIME-Version: 1.0\n{content_head}\n")
    message = "".join(lines).encode() + data
    # Mail servers write CRLF, mail folders LF: both are met.
    return message.replace(b"\n", b"\r\n") if rng.random() < 0.25 else message
