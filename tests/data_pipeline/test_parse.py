"""What the parser makes of whole messages: headers, addresses, dates, ids, rejections."""

import datetime as dt

import pytest

from art_e.inbox.mail import Mailbox
from data_pipeline.ingest.parse import derived_message_id, from_fields, parse_message
from data_pipeline.ingest.records import (
    LARGEST_MESSAGE,
    MailFields,
    ParsedEmail,
    RawMessage,
    Rejected,
)


def parsed(data: bytes, envelope_date: dt.datetime | None = None) -> ParsedEmail:
    email = parse_message(RawMessage("test", data, envelope_date))
    assert isinstance(email, ParsedEmail), email
    return email


def headers(*lines: str, body: str = "Hello.") -> ParsedEmail:
    return parsed("\n".join([*lines, "", body]).encode("latin-1"))


def rejected(data: bytes) -> Rejected:
    email = parse_message(RawMessage("test", data))
    assert isinstance(email, Rejected), email
    return email


def test_a_plain_message() -> None:
    email = headers(
        "Message-ID: <1@x.com>",
        "Date: Fri, 12 Jan 2001 09:30:00 -0800 (PST)",
        'From: "Ann Lee" <Ann.Lee@X.com>',
        "To: bob@x.com,\n\tcarol@x.com",
        "Subject: Budget\n for March",
        body="Hi Bob,  \r\n\r\nyes.\r\n\r\n",
    )
    assert email == ParsedEmail(
        source="test",
        message_id="<1@x.com>",
        sent_at=dt.datetime(2001, 1, 12, 17, 30),
        subject="Budget for March",
        sender=Mailbox("ann.lee@x.com", "Ann Lee"),
        to=(Mailbox("bob@x.com", ""), Mailbox("carol@x.com", "")),
        cc=(),
        bcc=(),
        body="Hi Bob,\n\nyes.",
    )


def test_a_time_at_the_start_of_a_continued_line_is_no_header() -> None:
    email = headers("From: ann@x.com", "Subject: Talk", "9:40 - 12:00", "Mime-Version: 1.0")
    assert (email.subject, email.body) == ("Talk 9:40 - 12:00", "Hello.")


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
def test_a_header_continued_without_indentation_is_mended(ending: bytes) -> None:
    lines = [
        b"From: ann@x.com",
        b"Subject: Meeting (not",
        b"confirmed) w/",
        b" Carol &",
        b"Dan",
        b"Mime-Version: 1.0",
        b"X-Folder: inbox",
    ]
    email = parsed(ending.join([*lines, b"", b"The body."]))
    assert email.subject == "Meeting (not confirmed) w/ Carol & Dan"
    assert email.body == "The body."


def test_a_bare_newline_inside_crlf_headers_is_mended() -> None:
    email = parsed(b"From: ann@x.com\r\nSubject: one\ntwo &\r\nTo: bob@x.com\r\n\r\nBody\r\n")
    assert (email.subject, email.to[0].address, email.body) == ("one two &", "bob@x.com", "Body")


def test_a_body_without_blank_line_that_quotes_headers_stays_a_body() -> None:
    email = headers(
        "From: ann@x.com",
        "To: bob@x.com",
        "Subject: FW: plan",
        "See below.",
        "From: carol@x.com",
        "Subject: plan",
    )
    assert email.subject == "FW: plan"
    assert email.body.startswith("See below.\nFrom: carol@x.com\nSubject: plan\n\nHello.")


@pytest.mark.parametrize(
    ("value", "subject"),
    [
        (b"=?utf-8?q?Caf=C3=A9?=", "Café"),
        (b"=?utf-8?b?Q2Fmw6k=?= at =?iso-8859-1?Q?=E9t=E9?=", "Café at été"),
        (b"=?utf-8?b?Q2Fmw6k?=", "Café"),  # no padding
        (b"=?utf-8?b?w?= =?utf-8?q?x?=", "=?utf-8?b?w?=x"),  # beyond repair: kept
        (b"=?utf-8?q?a=C3?= =?utf-8?q?=A9b?=", "aéb"),  # a character cut in two
        (b"=?nonsense-8?q?Caf=C3=A9?=", "Café"),
        (b"=?us-ascii?Q?what??=", "what?"),
        (b"Caf\xc3\xa9", "Café"),
        (b"Caf\xe9 \x93x\x94", "Café “x”"),
        (b"\xbfm \xb2\xa1", "¿m ²¡"),
        (b"nul\x00l and \x1b[31mred", "null and [31mred"),
    ],
)
def test_subjects_in_any_encoding(value: bytes, subject: str) -> None:
    assert parsed(b"From: ann@x.com\nSubject: " + value + b"\n\nx").subject == subject


@pytest.mark.parametrize(
    ("value", "boxes"),
    [
        ('"Lee, Ann" <ANN@x.com>, b@x.com', [("ann@x.com", "Lee, Ann"), ("b@x.com", "")]),
        ("undisclosed-recipients:;", []),
        ("Team: a@x.com, b@x.com;", [("a@x.com", ""), ("b@x.com", "")]),
        ("Lay, Kenneth, bob@x.com", [("bob@x.com", "")]),
        ("/o=enron/ou=na/cn=recipients/cn=klay", []),
        ("'bob@x.com', <'ann@x.com'>", [("bob@x.com", ""), ("ann@x.com", "")]),
        ("=?utf-8?q?Jos=C3=A9?= <jose@x.com>", [("jose@x.com", "José")]),
        ("=?utf-8?q?Bob_=3Cbob=40x=2Ecom=3E?=", [("bob@x.com", "")]),
        ("ren\xe9.b@x.com", [("rené.b@x.com", "")]),
        ("bob@x.com (Bob at work)", [("bob@x.com", "Bob at work")]),
        ('"bob@x.com, <<ann@x.com', [("bob@x.com", ""), ("ann@x.com", "")]),
        (f"{'a' * 120}@x.com", [(f"{'a' * 120}@x.com", "")]),
        ("@x.com, bob@, @", []),
    ],
)  # fmt: skip
def test_recipients(value: str, boxes: list[tuple[str, str]]) -> None:
    email = headers("From: z@x.com", f"To: {value}")
    assert [tuple(box) for box in email.to] == boxes


def test_an_address_has_one_role_the_strongest() -> None:
    email = headers(
        "From: z@x.com",
        "To: a@x.com, A@x.com",
        "Cc: b@x.com, a@x.com",
        "Bcc: b@x.com, c@x.com",
    )
    roles = [[box.address for box in boxes] for boxes in (email.to, email.cc, email.bcc)]
    assert roles == [["a@x.com"], ["b@x.com"], ["c@x.com"]]


def test_880_recipients_keep_their_order() -> None:
    names = [f"person{number}@x.com" for number in range(880)]
    email = headers("From: z@x.com", "To: " + ",\n\t".join(names))
    assert [box.address for box in email.to] == names


@pytest.mark.parametrize(
    ("lines", "sender"),
    [
        (["From: ann@x.com", "X-From: Ann Lee <Ann Lee/NA/Enron@ENRON>"], ("ann@x.com", "Ann Lee")),
        (["From: ann@x.com", "X-From: Ann Lee/HOU/ECT@ECT"], ("ann@x.com", "Ann Lee")),
        (["From: ann@x.com", "X-From: Enron News@ENRON"], ("ann@x.com", "Enron News")),
        (["From: ann@x.com", "X-From: Lee, Ann </O=ENRON/CN=ALEE>"], ("ann@x.com", "Lee, Ann")),
        (["From: ann@x.com", 'X-From: "Ann Lee" <a@x.com>@ENRON'], ("ann@x.com", "Ann Lee")),
        (["From: ann@x.com", "X-From: shop@x.com@ENRON"], ("ann@x.com", "")),
        (["From: Ann <ann@x.com>", "X-From: Somebody Else"], ("ann@x.com", "Ann")),
        (["From: Lee, Ann <ann@x.com>"], ("ann@x.com", "Lee, Ann")),
        (["From: Lay, Kenneth"], ("", "Lay, Kenneth")),
        (["To: bob@x.com"], ("", "")),
    ],
)
def test_sender(lines: list[str], sender: tuple[str, str]) -> None:
    assert tuple(headers(*lines).sender) == sender


@pytest.mark.parametrize(
    ("date", "utc"),
    [
        ("Fri, 12 Jan 2001 09:30:00 -0800 (PST)", "2001-01-12T17:30:00"),
        ("12 Jan 01 09:30 EST", "2001-01-12T14:30:00"),
        ("Fri, 12 Jan 2001 (the (12th)) 09:30:00", "2001-01-12T09:30:00"),
        ("2001-01-12T09:30:00.5+01:00", "2001-01-12T08:30:00"),
        ("2001-01-12 09:30:00Z", "2001-01-12T09:30:00"),
        ("Fri, 12 Jan 2001 09:30:00 +9900", "2001-01-12T09:30:00"),
        ("Fri, 12 Jan 2001 09:30:60 +0000", "2001-01-12T09:30:59"),
        ("Mon, 31 Dec 1979 16:00:00 -0800 (PST)", "1980-01-01T00:00:00"),
    ],
)
def test_dates_are_utc(date: str, utc: str) -> None:
    assert headers("From: a@x.com", f"Date: {date}").sent_at == dt.datetime.fromisoformat(utc)


@pytest.mark.parametrize(
    "date", ["", "soon", "Fri, 99 Jan 2001 09:30:00", "1 Jan 1850 00:00:00 +0000", "(" * 5000]
)
def test_without_a_date_there_is_none(date: str) -> None:
    assert headers("From: a@x.com", f"Date: {date}").sent_at is None


def test_an_absurd_date_gives_way_to_received_and_envelope() -> None:
    envelope = dt.datetime(2003, 3, 3, 3, tzinfo=dt.timezone(dt.timedelta(hours=3)))
    absurd = b"From: a@x.com\nDate: Mon, 31 Dec 1979 16:00:00 -0800\n"
    received = (
        b"Received: from a by b; Sat, 2 Feb 2002 02:00:00 +0000\nReceived: older; 1 Jan 2001\n"
    )
    assert parsed(absurd + received + b"\nx", envelope).sent_at == dt.datetime(2002, 2, 2, 2)
    assert parsed(absurd + b"\nx", envelope).sent_at == dt.datetime(2003, 3, 3)
    assert parsed(absurd + b"\nx").sent_at == dt.datetime(1980, 1, 1)


@pytest.mark.parametrize(
    ("value", "message_id"),
    [
        ("<a@b>", "<a@b>"),
        ("a@b", "<a@b>"),
        (" <a\n b@c> (comment)", "<ab@c>"),
        ("<" + "a" * 996 + ">", "<" + "a" * 996 + ">"),
    ],
)
def test_message_ids(value: str, message_id: str) -> None:
    assert headers("From: a@x.com", f"Message-ID: {value}").message_id == message_id


@pytest.mark.parametrize("value", ["", "<>", "< >", "<" + "a" * 997 + ">"])
def test_a_message_id_that_is_none_is_derived(value: str) -> None:
    email = headers("From: a@x.com", f"Message-ID: {value}", "Subject: s")
    derived = derived_message_id(None, Mailbox("a@x.com", ""), "s", "Hello.")
    assert email.message_id == derived
    assert derived.endswith("@derived.art-e.invalid>")
    assert len(derived.partition("@")[0]) == 33
    assert derived != derived_message_id(None, Mailbox("a@x.com", ""), "s", "Hello!")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b" \r\n\t ", "empty"),
        (b"\x00\x00\x00\x01Bud1\x00\x00\x10\x00", "not-mail"),
        (b"Just some text\nSubject: not a header\n\nof mine", "not-mail"),
        (b"X-Folder: inbox\n\nbody", "not-mail"),
        (b"Subject: big\n\n" + b"x" * LARGEST_MESSAGE, "too-large"),
    ],
    ids=["nothing", "blank", "binary", "text", "no-essential-header", "huge"],
)
def test_rejections(data: bytes, reason: str) -> None:
    assert rejected(data).reason == reason


def test_an_unforeseen_failure_is_a_rejection_that_names_it() -> None:
    broken = RawMessage("test", "not bytes")  # type: ignore[arg-type]
    email = parse_message(broken)
    assert isinstance(email, Rejected)
    assert email.reason == "parse-error"
    assert email.detail


def test_an_empty_body_is_a_mail() -> None:
    assert parsed(b"Subject: call me\n\n").body == ""
    assert parsed(b"Subject: call me").subject == "call me"


def test_fields_follow_the_same_rules() -> None:
    fields = MailFields(
        source="set#1",
        message_id="1@x.com",
        subject="=?utf-8?q?Caf=C3=A9?=\ud800",
        sender="Ann <ANN@x.com>",
        to=["bob@x.com", "Carol <carol@x.com>"],
        cc=["bob@x.com", "dan@x.com"],
        bcc=["dan@x.com"],
        date=dt.datetime(2001, 1, 12, 9, 30, tzinfo=dt.timezone(dt.timedelta(hours=-8))),
        body="Hi \r\nthere\n\n",
    )
    email = from_fields(fields)
    assert email == ParsedEmail(
        source="set#1",
        message_id="<1@x.com>",
        sent_at=dt.datetime(2001, 1, 12, 17, 30),
        subject="Café\ufffd",
        sender=Mailbox("ann@x.com", "Ann"),
        to=(Mailbox("bob@x.com", ""), Mailbox("carol@x.com", "Carol")),
        cc=(Mailbox("dan@x.com", ""),),
        bcc=(),
        body="Hi\nthere",
    )


def test_fields_without_anything_are_rejected() -> None:
    nothing = MailFields("set#1", "", "", "", [], [], [], None, "")
    email = from_fields(nothing)
    assert isinstance(email, Rejected)
    assert email.reason == "empty"
    email = from_fields(nothing._replace(body="words"))
    assert isinstance(email, Rejected)
    assert email.reason == "not-mail"
