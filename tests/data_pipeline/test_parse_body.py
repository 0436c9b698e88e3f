"""What becomes of bodies: charsets, MIME trees, HTML, stray quoted-printable, attachments."""

import time
from email.message import EmailMessage

import pytest

from data_pipeline.ingest.body import html_to_text, plain_text
from data_pipeline.ingest.parse import parse_message
from data_pipeline.ingest.records import ParsedEmail, RawMessage
from data_pipeline.ingest.text import decode_bytes

HEAD = b"From: ann@x.com\nSubject: s\n"


def body_of(data: bytes) -> str:
    email = parse_message(RawMessage("test", data))
    assert isinstance(email, ParsedEmail), email
    return email.body


def message() -> EmailMessage:
    made = EmailMessage()
    made["From"] = "ann@x.com"
    made["Subject"] = "s"
    return made


@pytest.mark.parametrize(
    ("charset", "data", "text"),
    [
        ("us-ascii", b"caf\xe9 \x93x\x94", "café “x”"),
        ("us-ascii", "café".encode(), "café"),
        ("iso-8859-1", "naïve café".encode(), "naïve café"),
        ("utf-8", b"caf\xe9", "café"),
        ("no-such-charset", "日本".encode(), "日本"),
        ("big5", "圖書".encode("big5"), "圖書"),
        ("koi8-r", "привет".encode("koi8-r"), "привет"),
        ("iso-2022-jp", "日本語".encode("iso-2022-jp"), "日本語"),
        ("utf-16", "hello".encode("utf-16"), "hello"),
        ("utf-16", b"plain after all", "plain after all"),
        ("unicode-escape", rb"\ud800 x", r"\ud800 x"),
        ("utf-7", b"+2AA-", "\ufffd"),
        ("base64", b"aGk=", "aGk="),
        ("", b"\x81\x8d", "\x81\x8d"),
    ],
)
def test_charsets_that_tell_the_truth_and_that_lie(charset: str, data: bytes, text: str) -> None:
    assert decode_bytes(data, charset) == text


def test_transfer_encodings() -> None:
    quoted = HEAD + b"Content-Transfer-Encoding: quoted-printable\n\na=3Db so=\r\nft caf=C3=A9\n"
    assert body_of(quoted) == "a=b soft café"
    base64 = HEAD + b"Content-Transfer-Encoding: base64\n\nSGVsbG8s\r\nIHdvcmxk\r\n"
    assert body_of(base64) == "Hello, world"
    broken = HEAD + b"Content-Transfer-Encoding: base64\n\n!!! no base64 ?"
    assert isinstance(body_of(broken), str)


def test_plain_text_is_preferred_and_attachments_are_named() -> None:
    made = message()
    made.set_content("The plain text.")
    made.add_alternative("<p>The HTML.</p>", subtype="html")
    made.add_attachment(b"x" * 12_345, "application", "pdf", filename="Büro plan.pdf")
    made.add_attachment(b"a,b\n", "text", "csv", filename="a.csv")
    assert body_of(made.as_bytes()) == (
        "The plain text.\n\n[Attachment: Büro plan.pdf (application/pdf, 12 KB)]\n"
        "[Attachment: a.csv (text/csv, 1 KB)]"
    )


def test_html_is_read_where_plain_text_is_blank_or_missing() -> None:
    made = message()
    made.set_content("  \n")
    made.add_alternative("<p>Dear Ann,</p><p>see <a href='http://x.com'>this</a></p>", "html")
    assert body_of(made.as_bytes()) == "Dear Ann,\n\nsee this"
    alone = HEAD + b"Content-Type: text/html; charset=utf-8\n\n<b>caf\xc3\xa9</b>&nbsp;&amp; more"
    assert body_of(alone) == "café & more"


def test_all_texts_of_a_mixed_message_are_joined() -> None:
    data = (
        HEAD + b"Content-Type: multipart/mixed; boundary=b\n\npreamble\n"
        b"--b\n\nfirst\n--b\nContent-Type: text/html\n\n<i>second</i>\n"
        b"--b\nContent-Type: image/png\n\nxx\n--b--\nepilogue"
    )
    assert body_of(data) == "first\n\nsecond\n\n[Attachment: unnamed (image/png, 1 KB)]"


def test_an_attached_mail_is_read() -> None:
    inner = message()
    inner.replace_header("Subject", "Old news")
    inner.set_content("It was so.")
    inner.add_attachment(b"zip", "application", "zip", filename="old.zip")
    made = message()
    made.set_content("See attached.")
    made.add_attachment(inner)
    assert body_of(made.as_bytes()) == (
        "See attached.\n\n[Attached message: Old news]\nIt was so.\n\n"
        "[Attachment: old.zip (application/zip, 1 KB)]"
    )


@pytest.mark.parametrize("charset", [b"charset*=utf-8''utf-8", b"charset=utf\0-8"])
@pytest.mark.parametrize("kind", [b"text/csv", b"application/pdf"])
def test_a_charset_that_email_stumbles_over_costs_no_mail(charset: bytes, kind: bytes) -> None:
    data = (
        HEAD + b"Content-Type: multipart/mixed; boundary=b\n\n"
        b"--b\n\nThe text.\n"
        b"--b\nContent-Type: " + kind + b"; name=a.x; " + charset + b"\n\ncaf\xc3\xa9\n--b--\n"
    )
    assert body_of(data) == f"The text.\n\n[Attachment: a.x ({kind.decode()}, 1 KB)]"


def test_a_multipart_without_parts_is_text() -> None:
    assert body_of(HEAD + b"Content-Type: multipart/mixed\n\nwords") == "words"
    assert body_of(HEAD + b"Content-Type: multipart/mixed; boundary=zz\n\nwords") == "words"


def test_a_text_that_calls_itself_an_attachment_is_the_body_if_it_is_all_there_is() -> None:
    assert body_of(HEAD + b"Content-Disposition: attachment; filename=a.txt\n\nwords") == "words"


def test_a_file_name_cannot_break_the_line() -> None:
    data = HEAD + b"Content-Type: application/x; name==?utf-8?q?a=0A=5D_b=1B?=\n\nwords"
    assert body_of(data) == "[Attachment: a ] b (application/x, 1 KB)]"


def test_html_sent_as_plain_text_is_converted() -> None:
    page = "<! >\n<!DOCTYPE HTML PUBLIC>\n<html><head><title>t</title><style>p{}</style></head>"
    assert plain_text(f"{page}<body><p>One</p><p>Two</p></body></html>") == "One\n\nTwo"


def test_a_page_inside_a_text_is_converted_and_the_text_around_it_kept() -> None:
    page = "<html>" + "<b>word</b><br>" * 12 + "</html>"
    text = plain_text(f"Look:\n-- from Bob\n{page}\nplan.pdf\nend")
    assert text.startswith("Look:\n-- from Bob\nword\nword\n")
    assert text.endswith("word\nplan.pdf\nend")


@pytest.mark.parametrize(
    "text",
    [
        "Reply to <ann@x.com>, <bob@x.com>, <carol@x.com>, <dan@x.com>, <eve@x.com>",
        "if a < b and c > d: <b>no</b>\n" * 3 + "long text goes on. " * 30,
        ' <A HREF="http://x.com/1">One</A>\n <A HREF="http://x.com/2">Two</A>\n'
        ' <A HREF="http://x.com/3">Three</A>',
        "Write <html> in the first line, and <p> for each paragraph.",
    ],
)
def test_text_that_mentions_tags_stays(text: str) -> None:
    assert plain_text(text) == text.rstrip()


def test_rows_of_tables_stay_rows() -> None:
    table = "<table><tr><td>Total</td><td>$72.00</td></tr><tr><td></td><td>Tax</td></tr></table>"
    assert html_to_text(table) == "Total  $72.00\nTax"


@pytest.mark.parametrize(
    "source",
    [
        "<div>" * 100_000 + "end",
        "<table><tr><td>" * 10_000 + "end",
        "<table><tr><td>" + "x" * 50_000 + "</td></tr>" + "<tr><td>y</td></tr>" * 10_000 + "end",
        '<p style="margin-top: 99999999em">end',
        "<p>" + "word " * 300_000 + "end",
        "&#0;&#xD800;end",
    ],
    ids=["deep", "tables", "wide-and-long", "margin", "long", "surrogate"],
)
def test_hostile_html_is_bounded_and_loses_no_text(source: str) -> None:
    started = time.process_time()
    email = parse_message(RawMessage("t", HEAD + b"Content-Type: text/html\n\n" + source.encode()))
    assert time.process_time() - started < 5
    assert isinstance(email, ParsedEmail)
    assert email.body.endswith("end")
    assert len(email.body) < len(source) + 100
    email.body.encode()


def nested_multiparts(depth: int) -> bytes:
    head = b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n"
    return b"".join(head % (number, number) for number in range(depth))


@pytest.mark.parametrize(
    "data",
    [
        nested_multiparts(400),
        nested_multiparts(30),
        b"Content-Type: message/rfc822\n\n" * 3_000,
        b"Content-Type: text/plain; " + b"a=b;" * 500_000 + b"\n\n",
        b"Content-Type: multipart/mixed; boundary=b;" + b"a=b;" * 500_000 + b"\n\n--b\n\n",
    ],
    ids=["multiparts", "beyond-the-bound", "messages", "parameters", "multipart-parameters"],
)  # fmt: skip
def test_hostile_structure_is_bounded(data: bytes) -> None:
    started = time.process_time()
    assert isinstance(body_of(HEAD + data + b"end"), str)
    assert time.process_time() - started < 5


STRAY = (
    "The first line of this mail is long enough to have been cut by the mailer=\n"
    " and so it goes on here, with caf=C3=A9 and an equals sign: a=3Db, =\n"
    "to the end of it.=20\nSee http://x.com/?id=27946744\n"
)


def test_stray_quoted_printable_is_decoded() -> None:
    assert plain_text(STRAY) == (
        "The first line of this mail is long enough to have been cut by the mailer"
        " and so it goes on here, with café and an equals sign: a=b, to the end of it.\n"
        "See http://x.com/?id=27946744"
    )


@pytest.mark.parametrize(
    "text",
    [
        "http://x.com/?a=3D&b=3D\n" * 4,  # no soft breaks
        "=" * 60 + "\nTotal: a=20, b=3D\n" + "=" * 60 + "\nhttp://x.com/?q=20\n" + "=" * 60,
        "This line ends in an equals sign, and it is long enough to be one, x =\n" * 5,
    ],
)
def test_text_that_only_looks_like_quoted_printable_stays(text: str) -> None:
    assert plain_text(text) == text.strip("\n")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["base64", "quoted-printable"])
def test_the_last_header_counts_whatever_the_line_ends(end: str, encoding: str) -> None:
    text = {"base64": "SGVsbG8gd29ybGQ9", "quoted-printable": "Hello world=3D"}[encoding]
    lines = ["From: a@x.com", "Content-Transfer-Encoding: " + encoding, "", text, ""]
    email = parse_message(RawMessage("test", end.join(lines).encode()))
    assert isinstance(email, ParsedEmail)
    assert email.body == "Hello world="
