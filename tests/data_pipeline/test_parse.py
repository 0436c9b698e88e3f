"""The parser on whole messages: headers, bodies, rejections, and its limits."""

import codecs
import datetime as dt
import re
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from email.message import EmailMessage
from multiprocessing import get_context
from typing import Any
from unittest import mock

import pytest

from art_e.inbox.mail import Mailbox
from data_pipeline.ingest import batch, parse, records
from data_pipeline.ingest.attachments import Extractor
from data_pipeline.ingest.charsets import decode_bytes
from data_pipeline.ingest.parse import derived_message_id, html_to_text, plain_text
from data_pipeline.ingest.records import ParsedEmail, RawMessage, Skipped
from tests import formats
from tests.builders import raw, table, tries
from tests.formats import of_row, parse_message
from tests.processes import peak_of

MAIL = table(__file__, "mail.toml")
HEAD = b"From: ann@x.com\nSubject: s\n"


def parsed(data: bytes, *origin: Any, **options: Any) -> ParsedEmail:
    return formats.parsed(RawMessage("test", data, *origin, **options))


def headers(*lines: str, body: str = "Hello.") -> ParsedEmail:
    return parsed("\n".join([*lines, "", body]).encode("latin-1"))


def body_of(data: bytes) -> str:
    return parsed(data).body


def rejected(message: RawMessage) -> str:
    email = parse_message(message)
    assert isinstance(email, Skipped) and email.detail
    return email.reason


@pytest.mark.parametrize(("data", "subject", "body"), MAIL["headers"]["rows"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_broken_header_blocks_are_repaired(data: str, subject: str, body: str, end: bytes) -> None:
    email = parsed(f"From: ann@x.com\n{data}".encode().replace(b"\n", end))
    assert (email.subject, email.body) == (subject, body)


DERIVED = derived_message_id(None, Mailbox("z@x.com", ""), "", "Hello.")
SUBJECTS = {subject.encode("latin-1"): text for subject, text in MAIL["subjects"].items()}
SUBJECTS |= {
    b"=?utf-8?b?" + b"YWFh" * 300 + b"?=": "aaa" * 300,
    "Договор".encode("koi8-r") + b"\nContent-Type: text/plain; charset=koi8-r": "Договор",
    "Договор".encode("cp1251") + b"\nContent-Type: text/html\n\n<meta charset=cp1251>": "Договор",
}
LONG = f"{'a' * 120}@x.com"
RECIPIENTS = {**MAIL["recipients"], LONG: [[LONG, ""]]}
DATES = {form: date for date, forms in MAIL["dates"].items() for form in forms}
DATES["(" * 5000] = "None"
MESSAGE_IDS = {
    "<a@b>": "<a@b>", "a@b": "<a@b>", " <a\n b@c> (comment)": "<ab@c>",
    "<" + "a" * 996 + ">": "<" + "a" * 996 + ">",
    **dict.fromkeys(("", "<>", "< >", "<" + "a" * 997 + ">"), DERIVED),
}  # fmt: skip


@pytest.mark.parametrize(
    ("read", "forms"),
    [
        (lambda value: parsed(b"From: a@x.com\nSubject: " + value + b"\n\nx").subject, SUBJECTS),
        (lambda value: [*map(list, headers("From: z@x.com", f"To: {value}").to)], RECIPIENTS),
        (lambda value: [*headers("To: bob@x.com", f"From: {value}").sender], MAIL["senders"]),
        (lambda value: str(parsed(f"To: a@x.com\nDate: {value}\n\n".encode()).sent_at), DATES),
        (lambda value: headers("From: z@x.com", f"Message-ID: {value}").message_id, MESSAGE_IDS),
    ],
    ids=["subjects", "recipients", "senders", "dates", "message ids"],
)
def test_any_header_form_is_read(read: Callable[[Any], object], forms: dict[Any, object]) -> None:
    assert {value: read(value) for value in forms} == forms


def test_a_message_in_utf_16_is_read() -> None:
    whole = "\n\ufeffFrom: ann@x.com\nSubject: s\n\nÜber"
    for charset, start in (("utf-8", b""), ("utf-16-le", codecs.BOM_UTF16_LE)):
        assert body_of(start + whole.encode(charset)) == "Über"


def test_ids_are_derived_and_gmail_threads_read() -> None:
    data = b"X-GM-THRID: " + b"1" * 41 + b"\n" + HEAD + b"\nHello."
    assert parsed(data, in_mbox=True).gmail_thread == "1" * 40
    assert parsed(data).gmail_thread == ""
    assert re.fullmatch(r"<.{32}@derived\.art-e\.invalid>", DERIVED)
    assert derived_message_id(None, Mailbox("z@x.com", ""), "", "Hello!") != DERIVED


def test_an_address_keeps_its_strongest_role_only() -> None:
    names = [f"person{number}@x.com" for number in range(880)]
    to = ",\n\t".join(["a@x.com, A@x.com", *names])
    email = headers("From: z@x.com", f"To: {to}", "Cc: b@x.com, a@x.com", "Bcc: b@x.com, c@x.com")
    roles = [[box.address for box in boxes] for boxes in (email.to, email.cc, email.bcc)]
    assert roles == [["a@x.com", *names], ["b@x.com"], ["c@x.com"]]


def test_received_or_envelope_replaces_an_absurd_date() -> None:
    envelope = dt.datetime(2003, 3, 3, 3, tzinfo=dt.timezone(dt.timedelta(hours=3)))
    for enveloped, head, sent_at in MAIL["days"]["rows"]:
        data = f"From: a@x.com\n{head}\nx".encode()
        mail = parsed(data, envelope) if enveloped else parsed(data)
        assert str(mail.sent_at) == sent_at, head


def test_unusable_mail_is_rejected_with_a_reason() -> None:
    reasons = {text.encode("latin-1"): reason for text, reason in MAIL["rejections"].items()}
    reasons[b"Subject: big\n\n" + b"x" * records.LARGEST_MESSAGE] = "too-large"
    cases: list[tuple[Any, str]] = [*reasons.items(), ("not bytes", "parse-error")]
    assert [(data, rejected(RawMessage("test", data))) for data, _ in cases] == cases


def test_rows_of_fields_are_parsed_like_mail() -> None:
    date = dt.datetime(2001, 1, 12, 9, 30, tzinfo=dt.timezone(dt.timedelta(hours=-8)))
    fields = of_row(
        "1@x.com", "=?utf-8?q?Caf=C3=A9?=\ud800", "Ann <ANN@x.com>",
        ["bob@x.com", "Carol <carol@x.com>"], ["bob@x.com", "dan@x.com"], ["dan@x.com"],
        date, "Hi \r\nthere\n\n",
    )  # fmt: skip
    assert parse_message(fields) == headers(
        "Message-ID: <1@x.com>", "Subject: =?utf-8?q?Caf=C3=A9=EF=BF=BD?=", "From: Ann <ann@x.com>",
        "To: bob@x.com, Carol <carol@x.com>", "Cc: dan@x.com",
        "Date: Fri, 12 Jan 2001 09:30:00 -0800", body="Hi\nthere",
    )  # fmt: skip
    assert rejected(of_row("", "", "", [], [], [], None, "")) == "empty"
    assert rejected(of_row("", "", "", [], [], [], None, "words")) == "not-mail"


CHARSETS = [(label, data.encode("latin-1"), text) for label, data, text in MAIL["lies"]["rows"]]
CHARSETS += [(label, text.encode(codec), text) for label, codec, text in MAIL["charsets"]["rows"]]


@pytest.mark.parametrize(("charset", "data", "text"), CHARSETS)
def test_right_and_wrong_charsets_are_decoded(charset: str, data: bytes, text: str) -> None:
    assert decode_bytes(data, charset) == text


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("case", MAIL["bodies"], ids=lambda case: case["heads"][0])
def test_bodies_are_read_as_text(case: dict[str, Any], end: bytes) -> None:
    for head in case["heads"]:
        data = HEAD + f"{head}\n\n{case['text']}".encode()
        assert body_of(data.replace(b"\n", end)) == case["body"]


def message(text: str) -> EmailMessage:
    mail = EmailMessage()
    mail["From"], mail["Subject"] = "ann@x.com", "s"
    mail.set_content(text)
    return mail


def test_plain_text_is_preferred_and_attachments_are_listed() -> None:
    mail = message("The plain text.")
    mail.add_alternative("<p>The <b>plain</b> text.</p>", subtype="html")
    mail.add_attachment(b"x" * 12_345, "application", "pdf", filename="Büro plan.pdf")
    mail.add_attachment(b"a,b\n", "text", "csv", filename="a.csv")
    assert body_of(mail.as_bytes()) == (
        "The plain text.\n\n[Attachment: Büro plan.pdf (application/pdf, 12 KB)]\n"
        "[Attachment: a.csv (text/csv, 1 KB)]"
    )
    blank = message("  \n")
    blank.add_alternative("<p>Dear Ann,</p><p>see <a href='http://x.com'>this</a></p>", "html")
    assert body_of(blank.as_bytes()) == "Dear Ann,\n\nsee this (http://x.com)"


def test_the_fuller_alternative_is_the_body() -> None:
    [invitation] = (case for case in MAIL["bodies"] if "BEGIN:VTIMEZONE" in case["text"])
    mail = message("We meet.")
    mail.add_alternative("<p>We meet.</p>", subtype="html")
    mail.add_alternative(invitation["text"], subtype="calendar")
    assert body_of(mail.as_bytes()) == f"We meet.\n\n{invitation['body']}"
    folded = b"BEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY:\xc3\n \xbcber\n\t all\nEND:VEVENT"
    assert body_of(HEAD + b"\n" + folded) == "What: über all"
    for plain, page, body in MAIL["alternatives"]["rows"]:
        mail = message(plain)
        mail.add_alternative(f"<p>{page}</p>", subtype="html")
        assert body_of(mail.as_bytes()) == body


def test_a_large_attachment_is_listed_but_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "LARGEST_FILE", 5)
    mail = message("The text.")
    for name, data in (("a", b"12345"), ("b", b"123456")):
        mail.add_attachment(data, "application", "pdf", filename=name)
    files = {file.name: file.data for file in parsed(mail.as_bytes()).files}
    assert files == {"a": b"12345", "b": None}


def test_html_in_plain_text_is_converted() -> None:
    page = "<! >\n<!DOCTYPE HTML PUBLIC>\n<html><head><title>t</title><style>p{}</style></head>"
    assert plain_text(f"{page}<body><p>One</p><p>Two</p></body></html>") == "One\n\nTwo"
    page = "<html>" + "<b>word</b><br>" * 12 + "</html>"
    text = plain_text(f"Look:\n-- from Bob\n{page}\nplan.pdf\nend")
    assert text.startswith("Look:\n-- from Bob\nword\nword\n")
    assert text.endswith("word\nplan.pdf\nend")
    # A document needs at least 20 tags, a text made of tags 5.
    for tags, is_page in ((17, False), (18, True)):
        text = "Look:\n<html>" + "<p>word" * tags + "." * 400 + "</html>"
        assert ("<p>" not in plain_text(text)) is is_page
    assert plain_text("<b>one</b><i>two</i><u>three") == "onetwothree"
    assert plain_text("<b>one</b><i>two</i>") == "<b>one</b><i>two</i>"


TABLE = "<table><tr><td>Total</td><td>$72.00</td></tr><tr><td></td><td>Tax</td></tr></table>"


@pytest.mark.parametrize(("length", "gap"), [(0, "  "), (1_000_000, "  "), (1_000_001, " ")])
def test_tables_of_up_to_a_million_characters_are_laid_out(length: int, gap: str) -> None:
    assert html_to_text(TABLE.ljust(length)).splitlines()[0] == f"Total{gap}$72.00"
    assert html_to_text(TABLE).endswith("\nTax")


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
    body = body_of(HEAD + b"Content-Type: text/html\n\n" + source.encode())
    assert body.endswith("end")
    assert len(body.encode()) < len(source) + 100


def test_a_slow_message_is_quarantined(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = HEAD + b"Content-Type: text/html\n\n" + b"<p>word" * 3_000_000
    monkeypatch.setattr(records, "CPU_SECONDS", 0.1)
    started, extractor = time.process_time(), mock.Mock(Extractor)
    email = parse_message(RawMessage("slow", slow), extractor)
    # Its child might answer the next mail with the text for this one.
    extractor.close.assert_called_once()
    assert time.process_time() - started < 1
    assert email == Skipped("slow", "too-slow", "more than 0.1 s of CPU time")
    while time.process_time() - started < 1:  # longer than the limit: no timer is left behind
        assert body_of(HEAD + b"\nHello.") == "Hello."


def test_long_html_keeps_all_visible_text() -> None:
    text = "<!-- no --> one<!-- <b> no --><p>two <SCRIPT>no <b> </style> no</script> three"
    text += "<style>no</STYLE>"
    assert html_to_text(text + " " * 1_000_000 + "&amp; <i>end</i>") == "one\ntwo three & end"


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
)
def test_hostile_structure_takes_bounded_time(data: bytes) -> None:
    assert isinstance(body_of(HEAD + data + b"end"), str)


@pytest.mark.parametrize(("levels", "is_read"), [(20, True), (21, False)])
def test_parts_are_read_to_a_fixed_depth(levels: int, is_read: bool) -> None:
    body = body_of(HEAD + b"Content-Type: message/rfc822\n\n" * levels + b"Subject: s\n\nend")
    assert body.endswith("end") is is_read
    assert ("[Attachment: unnamed (message/rfc822" in body) is not is_read


def test_stray_quoted_printable_is_decoded() -> None:
    assert plain_text(MAIL["stray"]["quoted"]) == MAIL["stray"]["plain"]


@pytest.mark.parametrize("text", MAIL["stays"]["texts"])
def test_text_that_resembles_html_or_quoted_printable_stays(text: str) -> None:
    assert plain_text(text) == text.rstrip()


# ---- Memory: text beyond a mail's limit is left out, and the mail says so.

HEADS = b"From: a@x\nSubject: s\n"
MIXED = b"MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n"
HTML, WIDE = b"Content-Type: text/html; charset=utf-8\n\n", "\U0001f600".encode()
# The beginning of a mail, and the filling that repeats.
LARGE = {
    "words": (b"\n", b"".join(b"%05x " % number for number in range(1 << 20))),
    "words with @": (b"\n", b"a" * 60 + b"@" + b"b" * 60 + b".example\n"),
    "syllables": (b"\n", "\uac01\uac02 ".encode()),
    "marks": (b"\n", "a\u0301\u0323".encode()),
    "lines": (MIXED + b"--b\n\n", b"a\n"),
    "parts": (MIXED, b"--b\n\n"),
    "html parts": (MIXED, b"--b\nContent-Type: text/html\n\n<p>x\n"),
    "headers": (b"", b"a:\n"),
    "headers of a part": (MIXED + b"--b\n", b"a:\n"),
    "tags": (HTML + WIDE, b"<p>a "),
    "text": (b"\n" + WIDE, b"a b\n"),
    "surrogates": (b"\n", b"\xed\xa0\xbd\xed\xb8\x80"),
    "files": (b"\n", b"begin 644 a\n" + b"`" * 4_000 + b"\nend\n\n"),
}


def measured(name: str, size: int) -> tuple[list[dict[str, str]], list[str], float, int]:
    """Process a large mail in this new process, so that its peak is not its parent's. Return the
    skipped rows, the bodies, and the seconds and kilobytes that it took."""
    begin, filling = LARGE[name]
    data = HEADS + begin + filling * (size // len(filling))
    before, started = peak_of("self"), time.process_time()
    [tables] = batch.process(batch.Job([RawMessage("large", data)], batch.Rules()))
    seconds, kilobytes = time.process_time() - started, peak_of("self") - before
    return tables.skipped.to_pylist(), tables.mails["body"].to_pylist(), seconds, kilobytes


@pytest.mark.fire
@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured by /proc")
@pytest.mark.parametrize("name", list(LARGE)[:: tries(6, 1)])
def test_large_mails_are_stored_in_bounded_memory_and_time(name: str) -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        result = pool.submit(measured, name, tries(10_000_000, 49_000_000)).result()
    [skipped], [body], seconds, kilobytes = result
    assert seconds < records.CPU_SECONDS and kilobytes < 500_000
    assert (skipped["source"], skipped["stage"], skipped["reason"]) == ("large", "cut", "long-text")
    assert len(body) <= parse.MAX_TEXT_CHARS + 100 and "rest is left out" in body


def test_a_mail_that_takes_too_much_memory_is_quarantined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MEMORY_BYTES", 1_000_000)
    data = HEADS + b"\n" + b"long " * 9_000_000
    assert rejected(RawMessage("large", data)) == "too-much-memory"
    monkeypatch.undo()
    assert len(body_of(data)) == parse.MAX_TEXT_CHARS


def test_indexing_counts_towards_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mail that blocks the tokenizer is quarantined, and the next mail is read."""
    monkeypatch.setattr(records, "CPU_SECONDS", 0.2)

    def endless(_: str) -> list[str]:
        while True:
            pass

    monkeypatch.setattr(batch, "tokens", endless)
    slow, quick = raw("<slow@t>", body="\u00e9 " * 30_000), raw("<quick@t>")
    [tables] = batch.process(batch.Job([slow, quick], batch.Rules()))
    assert tables.skipped["reason"].to_pylist() == ["too-slow"]
    assert tables.mails["message_id"].to_pylist() == ["<quick@t>"]
