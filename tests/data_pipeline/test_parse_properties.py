"""Whatever the bytes, the parser returns clean text and never raises."""

import random
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from data_pipeline.ingest.body import html_to_text
from data_pipeline.ingest.headers import decode_words
from data_pipeline.ingest.parse import from_fields, parse_message
from data_pipeline.ingest.records import MailFields, ParsedEmail, RawMessage, Rejected
from data_pipeline.ingest.text import tidy

REASONS = {"empty", "not-mail", "too-large"}
UNCLEAN = re.compile("[\x00\ud800-\udfff]")

WELL_FORMED = (
    b"Received: from a by b; Fri, 12 Jan 2001 09:31:00 -0800\r\n"
    b"Message-ID: <1.2@x.com>\r\nDate: Fri, 12 Jan 2001 09:30:00 -0800 (PST)\r\n"
    b'From: "Lee, Ann" <ann@x.com>\r\nTo: Team: bob@x.com, =?utf-8?q?Jos=C3=A9?= <j@x.com>;\r\n'
    b"Subject: =?utf-8?b?Q2Fmw6k=?= \r\n tomorrow\r\nMime-Version: 1.0\r\n"
    b'Content-Type: multipart/mixed; boundary="b1"\r\n\r\n'
    b"--b1\r\nContent-Type: text/plain; charset=iso-8859-1\r\n"
    b"Content-Transfer-Encoding: quoted-printable\r\n\r\ncaf=E9 at=\r\n noon\r\n"
    b"--b1\r\nContent-Type: text/html\r\n\r\n<table><tr><td>a<td>b</table>\r\n"
    b"--b1\r\nContent-Type: application/pdf; name*0*=utf-8''a%20; name*1=b.pdf\r\n"
    b"Content-Transfer-Encoding: base64\r\n\r\nAAAA\r\n"
    b"--b1\r\nContent-Type: message/rfc822\r\n\r\nSubject: inner\r\n\r\nold\r\n--b1--\r\n"
)


def check(email: ParsedEmail | Rejected) -> None:
    """What holds for every result."""
    if isinstance(email, Rejected):
        assert email.reason in REASONS, email
        return
    boxes = [*email.to, *email.cc, *email.bcc]
    texts = [email.source, email.message_id, email.subject, email.body]
    texts += [text for box in [email.sender, *boxes] for text in box]
    assert not any(UNCLEAN.search(text) for text in texts)
    assert re.fullmatch(r"<[^\s<>]+>", email.message_id)
    addresses = [box.address for box in boxes]
    assert len(addresses) == len(set(addresses))
    assert all("@" in address and not re.search(r"[\s<>\"]", address) for address in addresses)
    assert all(address == address.lower() for address in addresses)
    assert email.sent_at is None or (email.sent_at.tzinfo is None and email.sent_at.year >= 1970)
    assert "\r" not in email.body
    assert email.body == email.body.strip("\n")
    assert "\n" not in email.subject


@given(st.binary(max_size=2_000))
def test_any_bytes(data: bytes) -> None:
    check(parse_message(RawMessage("any", data)))


@given(st.sampled_from([b"Subject", b"From", b"To", b"Date", b"Message-ID", b"X-From"]),
       st.binary(max_size=300), st.binary(max_size=300))  # fmt: skip
def test_any_bytes_in_a_header(name: bytes, value: bytes, rest: bytes) -> None:
    check(parse_message(RawMessage("any", b"From: a@x.com\n" + name + b": " + value + rest)))


TYPES = [b"text/plain; charset=", b"text/html; charset=", b"multipart/mixed; boundary=",
         b"message/rfc822; x=", b"application/x; name*="]  # fmt: skip
ENCODINGS = [b"base64", b"quoted-printable", b"x-uuencode", b"8bit", b"\xff"]


@given(st.sampled_from(TYPES), st.binary(max_size=20), st.sampled_from(ENCODINGS),
       st.binary(max_size=500))  # fmt: skip
def test_any_body_of_any_type(kind: bytes, value: bytes, encoding: bytes, body: bytes) -> None:
    head = b"From: a@x.com\nContent-Type: " + kind + value + b"\nContent-Transfer-Encoding: "
    check(parse_message(RawMessage("any", head + encoding + b"\n\n" + body)))


SPLINTERS = [b"\n\n", b"\0", b"\r", b"=?", b"<", b'"', b"\xff(", b";"]


@settings(max_examples=300)
@given(st.integers(0, 2**32), st.integers(1, 12))
def test_a_mutated_message(seed: int, changes: int) -> None:
    chosen = random.Random(seed)
    data = bytearray(WELL_FORMED)
    for _ in range(changes):
        at = chosen.randrange(len(data))
        end = at + chosen.randrange(1, 30)
        match chosen.randrange(4):
            case 0:
                data[at] = chosen.randrange(256)
            case 1:
                del data[at:end]
                data += b"\n"
            case 2:
                data[at:at] = data[chosen.randrange(len(data)) :][:40]
            case _:
                data[at:at] = chosen.choice(SPLINTERS)
    check(parse_message(RawMessage("mutated", bytes(data))))


words = st.text(max_size=60)


@given(words, words, words, st.lists(words, max_size=3), st.datetimes() | st.none(), st.text())
def test_any_fields(
    message_id: str, subject: str, sender: str, to: list[str], date: object, body: str
) -> None:
    fields = MailFields("any", message_id, subject, sender, to, to, to, date, body)  # type: ignore[arg-type]
    check(from_fields(fields))


@given(st.text(alphabet="=?utf-8bBqQ_ \t\nA9é\ud800", max_size=80))
def test_encoded_words_of_any_kind(value: str) -> None:
    decoded = decode_words(value)
    assert not UNCLEAN.search(decoded)
    assert "\n" not in decoded


@given(st.text(alphabet="<>/!-&;=\"' \nabdhilprtu0x", max_size=300))
def test_any_html(source: str) -> None:
    assert isinstance(html_to_text(source), str)


@given(st.text())
def test_tidying_twice_changes_nothing(text: str) -> None:
    assert tidy(tidy(text)) == tidy(text)


def test_the_well_formed_message_itself() -> None:
    email = parse_message(RawMessage("whole", WELL_FORMED))
    assert isinstance(email, ParsedEmail)
    assert email.subject == "Café tomorrow"
    assert [box.name for box in email.to] == ["", "José"]
    assert email.body == (
        "café at noon\n\na  b\n\n[Attached message: inner]\nold\n\n"
        "[Attachment: a b.pdf (application/pdf, 1 KB)]"
    )
