"""What is split by hand is what `email` makes of the same bytes.

Set ART_E_REAL_DATA to a folder with `enron-maildir.tar.xz` to test it on all real mail.
"""

import datetime as dt
import os
import random
from email.utils import format_datetime, parsedate_to_datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_pipeline.ingest import sources as enron
from data_pipeline.ingest.body import PlainMessage, plain_message
from data_pipeline.ingest.headers import mailboxes, parse_date, sender_mailbox
from data_pipeline.ingest.parse import compose, message_by_email, parse_message
from data_pipeline.ingest.records import LARGEST_MESSAGE, ParsedEmail, RawMessage

REAL_DATA = os.environ.get("ART_E_REAL_DATA")

NAMES = ("message-id date from to cc bcc subject x-from received content-type mime-version"
         " content-transfer-encoding content-disposition x-note").split()  # fmt: skip

PLAIN = (
    b"Message-ID: <7.plain@example.com>\nDate: Fri, 12 Jan 2001 09:30:00 -0800 (PST)\n"
    b"From: ann.lee@example.com\nTo: bob@example.com, \n\tJo <jo@example.com>\n"
    b"Subject: Plan =?utf-8?q?caf=C3=A9?=\n tomorrow\nMime-Version: 1.0\n"
    b"Content-Type: text/plain; charset=us-ascii\nContent-Transfer-Encoding: 7bit\n"
    b"X-From: Lee, Ann\nX-To: \n\nHello Bob,  \r\n\n> 1 = 2\nBye\n"
)


def everything(message: PlainMessage) -> tuple[object, ...]:
    """What a message says: every header, its body, and the mail that it becomes."""
    values = [message.headers.every(name) for name in NAMES]
    return values, message.body, compose("any", message.headers, message.body, None)


def check(data: bytes) -> bool:
    """Whether the message was split by hand; if it was, `email` finds the same."""
    by_hand = plain_message(data)
    if by_hand is None:
        return False
    assert everything(by_hand) == everything(message_by_email(data))
    return True


TYPES = ["", "text/plain", "text/plain; charset=utf-8", 'Text/Plain; charset="iso-8859-1"', "text",
         "text/html; charset=cp1252", "text/plain; charset*=utf-8''x",
         "text/plain;\n\tx=1"]  # fmt: skip
ENCODINGS = ["", "7bit", "8BIT", "binary", "quoted-printable", "Quoted-Printable"]
BODIES = ["", "plain  \n\n text\n", "caf=E9_at=\n noon =3D\n", "caf\u00e9 \u20ac\r\nnext",
          "<html><body><p>Hi<br>there</p></body></html>", "\n\n\n", "--b\n\nx\n--b--"]  # fmt: skip


@st.composite
def well_formed(draw: st.DrawFn) -> bytes:
    text = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=30)
    value = st.lists(text, min_size=1, max_size=3).map("\n\t".join)
    fields = draw(st.lists(st.tuples(st.sampled_from(NAMES[:9]), value), max_size=8))
    fields.append(("Content-Type", draw(st.sampled_from(TYPES))))
    fields.append(("CONTENT-TRANSFER-ENCODING", draw(st.sampled_from(ENCODINGS))))
    shuffled = draw(st.permutations(fields))
    lines = [f"{name}:{draw(st.sampled_from(['', ' ', chr(9)]))}{text}" for name, text in shuffled]
    body = draw(st.sampled_from(BODIES))
    end = draw(st.sampled_from(["\n", "\r\n"]))
    charset = draw(st.sampled_from(["utf-8", "cp1252", "utf-16"]))
    head = end.join(lines).replace("\n\t", f"{end}\t") + end + end
    return head.encode() + body.encode(charset, "replace")


@given(well_formed())
def test_a_well_formed_message_is_split_by_hand_and_the_same(data: bytes) -> None:
    assert check(data)


@given(st.binary(max_size=500), st.booleans())
def test_any_bytes(data: bytes, in_a_header: bool) -> None:
    check(b"From: a@x.com\nSubject: " + data if in_a_header else data)


SPLINTERS = [b"\n", b"\n\n", b"\r\n\r\n", b"\r", b"\0", b" :", b":", b"\nFrom x\n", b"\n ",
             b"\nContent-Type: multipart/mixed; boundary=b\n", b"\nMIME-Version : 1.0", b"\xff",
             b"\ncontent-type:text/html", b"\nContent-Transfer-Encoding: base64\n", b"\x0b",
             b"\x85", b"\nContent-Transfer-Encoding: quoted-printable \n",
             b"\xef\xbb\xbf", b"text/"]  # fmt: skip


@settings(max_examples=400)
@given(st.integers(0, 2**32), st.integers(0, 6))
def test_a_mutated_message(seed: int, changes: int) -> None:
    chosen = random.Random(seed)
    data = bytearray(PLAIN)
    for _ in range(changes):
        at = chosen.randrange(len(data))
        match chosen.randrange(4):
            case 0:
                data[at] = chosen.randrange(256)
            case 1:
                del data[at : at + chosen.randrange(1, 30)]
                data += b"\n"
            case 2:
                data[at:at] = data[chosen.randrange(len(data)) :][:40]
            case _:
                data[at:at] = chosen.choice(SPLINTERS)
    check(bytes(data))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"Subject:", b"Subject :"),
        (b"Subject:", b"not a header\nSubject:"),
        (b"Message-ID:", b"From someone\nMessage-ID:"),
        (b"text/plain", b"multipart/mixed; boundary=b"),
        (b"text/plain", b"message/rfc822"),
        (b"text/plain", b"application/pdf"),
        (b"text/plain", b"text/\xff"),
        (b"7bit", b"base64"),
        (b"7bit", b"x-uuencode"),
        (b"charset=us-ascii", b"; x=1" * 5_000),
    ],
)
def test_what_needs_more_than_a_split_is_left_to_email(old: bytes, new: bytes) -> None:
    assert check(PLAIN)
    assert plain_message(PLAIN.replace(old, new, 1)) is None
    assert isinstance(parse_message(RawMessage("any", PLAIN.replace(old, new, 1))), ParsedEmail)


@given(
    st.datetimes(dt.datetime(1902, 1, 1), dt.datetime(2100, 1, 1)),
    st.integers(-14 * 60, 14 * 60),
    st.sampled_from(["", " (PST)", " (Pacific (Standard) Time)", "\t"]),
)
def test_dates_are_what_the_standard_library_says(
    date: dt.datetime, minutes: int, comment: str
) -> None:
    zone = dt.timezone(dt.timedelta(minutes=minutes))
    text = format_datetime(date.replace(tzinfo=zone)) + comment
    expected = parsedate_to_datetime(text).astimezone(dt.UTC).replace(tzinfo=None)
    assert parse_date(text) == expected
    assert parse_date(text.partition(", ")[2]) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Fri, 31 Feb 2001 09:30:00 -0800", None),
        ("Fri, 12 Jan 2001 24:30:00 -0800", None),
        ("Fri, 12 Jan 2001 09:30:60 +0000", dt.datetime(2001, 1, 12, 9, 30, 59)),
        ("Fri, 12 Jan 2001 09:30:00 +9900", dt.datetime(2001, 1, 12, 9, 30)),
        ("Fri, 12 Jan 2001 09:30:00 -0000", dt.datetime(2001, 1, 12, 9, 30)),
    ],
)
def test_odd_dates_in_the_usual_form(text: str, expected: dt.datetime | None) -> None:
    assert parse_date(text) == expected
    assert parse_date(text.replace("Jan", "jan").replace("Feb", "feb")) == expected  # by `email`


def test_what_was_seen_before_is_read_the_same() -> None:
    for value in ("Ann <Ann@Example.com>", "ann@example.com, " + "x" * 1_000 + "@example.com"):
        assert mailboxes([value]) == mailboxes([value])
        assert sender_mailbox(value, "Lee, Ann") == sender_mailbox(value, "Lee, Ann")
    assert sender_mailbox("ann@example.com", "Lee, Ann").name == "Lee, Ann"
    assert sender_mailbox("ann@example.com").name == ""


@pytest.mark.skipif(REAL_DATA is None, reason="ART_E_REAL_DATA names no folder with real mail")
def test_all_real_mail() -> None:
    count = by_hand = 0
    for raw in enron.read_enron(Path(REAL_DATA or "") / "enron-maildir.tar.xz"):
        assert len(raw.data) <= LARGEST_MESSAGE
        count += 1
        by_hand += check(raw.data)
    assert by_hand > 0.99 * count > 0
