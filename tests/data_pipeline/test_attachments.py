"""Attachments: their text is read and searched, within limits of time and memory."""

import datetime as dt
import io
import re
import struct
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from asn1crypto import cms
from pypdf import PdfWriter

from art_e.inbox.mail import AttachedFile
from art_e.inbox.query import parse_query
from data_pipeline.ingest import attachments, parse, records
from data_pipeline.ingest.attachments import MAX_CHARS, Extractor, Reading
from data_pipeline.ingest.records import RawMessage
from data_pipeline.ingest.sources import open_source
from tests.builders import new_file, raw, tries, with_files
from tests.command_line import Run
from tests.formats import parsed, zipped
from tests.mailbox import calendar, excel, pdf, word


def locked(data: bytes) -> bytes:
    """Encrypt a PDF with a password."""
    writer, out = PdfWriter(), io.BytesIO()
    writer.append(io.BytesIO(data))
    writer.encrypt("secret", algorithm="AES-256")
    writer.write(out)
    return out.getvalue()


ME = "me@home.example"
SLIDE = b"<s xmlns:a='a'><a:p><a:r><a:t>A quagga</a:t></a:r><a:br/><a:t>talk</a:t></a:p></s>"
LETTER = b"<d xmlns:t='t'><t:h>Letter</t:h><t:p>A<t:s/>quagga <t:span>letter</t:span></t:p></d>"
BOX = b"<d xmlns:w='w'><w:p><w:t>A quagga</w:t><w:posOffset/><w:positionH>9</w:positionH><w:box>"
BOX += b"<w:p><w:t>box</w:t></w:p></w:box></w:p></d>"
NOTE = b"<d xmlns:w='w'><w:p><w:t>and note</w:t></w:p></d>"
BOOK = {"word/footnotes.xml": NOTE, "word/header1.xml": NOTE, "word/document.xml": BOX}
FILES: dict[str, tuple[bytes, str]] = {
    "lease.pdf": (pdf("The quagga lease ends"), "The quagga lease ends"),
    "plan.docx": (word("A quagga plan"), "A quagga plan\n\t\tcell zebra"),
    "costs.XLSX": (excel("quagga"), "Sheet\nquagga\t4200"),
    "invite.ics": (calendar("Quagga day"), "What: Quagga day\nWhen: Sunday 31 March 2024, 09:00"),
    "notes.txt": ("caf\xe9 quagga".encode("latin-1"), "caf\xe9 quagga"),
    "excel.txt": ("quagga \u0434\u043e\u043c".encode("utf-16"), "quagga \u0434\u043e\u043c"),
    "page.html": (b"<html><style>p{}</style><p>The quagga page", "The quagga page"),
    "memo.rtf": (rb"{\rtf1\ansi The quagga memo\par}", "The quagga memo"),
    "talk.pptx": (zipped({"ppt/slides/slide1.xml": SLIDE}), "A quagga talk"),
    "letter.odt": (zipped({"content.xml": LETTER}), "Letter\nA quagga letter"),
    "box.docx": (zipped(BOOK), "A quagga box\nand note\nand note"),
    "all.zip": (zipped({"b.txt": b"A key", "c.pdf": pdf("Z")}), "[b.txt]\nA key\n[c.pdf]\nZ"),
}  # fmt: skip
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512)
UNREAD = [
    ("photo.jpg", b"\xff\xd8\xff", attachments.PICTURE),
    ("a.pdf", b"%PDF-1.4 cut off", attachments.DAMAGED),
    ("scan.pdf", pdf(""), attachments.NO_TEXT),
    ("secret.pdf", locked(pdf("quagga")), attachments.LOCKED),
    ("old.doc", OLE, attachments.OLD),
    ("new.docx", OLE + "EncryptedPackage".encode("utf-16-le"), attachments.LOCKED),
    ("song.mp3", b"ID3\3\0", attachments.PICTURE),
    ("a.bin", b"\0\1", attachments.UNKNOWN),
    ("encrypted.asc", b"-----BEGIN PGP MESSAGE-----", attachments.LOCKED),
    ("smime.p7m", bytes.fromhex("300b06092a864886f70d010703"), attachments.LOCKED),
    ("smime.p7s", b"\0", ""), ("winmail.dat", b'x\x9f>"', attachments.NO_TEXT),
]  # fmt: skip


def mail(files: dict[str, bytes], number: int = 1) -> RawMessage:
    return with_files(raw(f"<{number}@x>", sender="ann@x.example", to=ME, subject="Papers"), files)


@pytest.fixture(scope="module")
def extractor() -> Iterator[Extractor]:
    extractor = Extractor()
    yield extractor
    extractor.close()


def read(extractor: Extractor, file: AttachedFile, seconds: float = 10) -> Reading:
    extractor.ends = time.monotonic() + seconds
    return attachments.read(file, extractor.ask, parse.leaf_text)


def test_forms_are_read_whatever_their_label(extractor: Extractor) -> None:
    for name, (data, text) in FILES.items():
        for label, kind in ((name, ""), ("data", "text/plain"), ("x.xls", "application/zip")):
            reading = read(extractor, AttachedFile(label, kind, data))
            assert (reading[0].lstrip("\ufeff").startswith(text), reading[1]) == (True, ""), name
    files = zipped({f"{number}.txt": b"x" for number in range(23)})
    for labelled, end in (
        (AttachedFile("a.html", "text/html", b"<p>\xcd\xc1\xca", "koi8-r"), "\u043c\u0430\u0439"),
        (AttachedFile("a.xhtml", "", b"<?xml version='1.0'?><html><p>An okapi"), "An okapi"),
        (AttachedFile("a.pdf", "", b"\r\n\0" + pdf("An okapi")), "An okapi"),
        (AttachedFile("many.zip", "", files), "[3 more files, which are not read]"),
    ):
        reading = read(extractor, labelled)
        assert (reading[0].endswith(end), reading[1]) == (True, "")
    cut = read(extractor, AttachedFile("a.txt", "text/plain", b"x " * MAX_CHARS))
    assert cut == ("x " * (MAX_CHARS // 2), attachments.CUT)
    for name, data, reason in UNREAD:
        assert read(extractor, AttachedFile(name, "application/x", data)) == ("", reason), name


def endless() -> bytes:
    """Return a PDF whose page tree refers to itself millions of times."""
    kids = b"1 0 R " * 3_000_000
    return b"%PDF-1.4\n1 0 obj<</Kids[" + kids + b"]>>endobj\ntrailer<</Root 1 0 R>>"


def bomb() -> bytes:
    """Return a spreadsheet of a few kilobytes whose strings are gigabytes."""
    cell = b'<c t="inlineStr"><is><t>' + b"A" * 300_000_000 + b"</t></is></c>"
    sheet = b"<worksheet><sheetData><row>" + cell + b"</row></sheetData></worksheet>"
    book = zipfile.ZipFile(io.BytesIO(excel("x")))
    files = {name: book.read(name) for name in book.namelist()}
    return zipped(files | {"xl/worksheets/sheet1.xml": sheet})


def slow() -> bytes:
    """Return a PDF of 35 KB whose page has 300,000 lines."""
    lines = zlib.compress(b"BT /F1 12 Tf 20 100 Td (a quagga) Tj ET\n" * 300_000)
    stream = b"/Length %d /Filter/FlateDecode>> stream\n%b\nendstream" % (len(lines), lines)
    return re.sub(rb"/Length.*?endstream", lambda _: stream, pdf(""), flags=re.DOTALL)


@pytest.mark.parametrize("make", [endless, bomb, slow])
def test_a_bomb_is_not_read(make: Callable[[], bytes], extractor: Extractor) -> None:
    text, unread = read(extractor, AttachedFile("", "", make()), 1)
    assert text == "" and unread in (attachments.HEAVY, attachments.DAMAGED)
    # A child that dies is replaced, too.
    data, expected = FILES["lease.pdf"]
    lease = AttachedFile("lease.pdf", "", data)
    assert read(extractor, lease)[0] == expected
    assert extractor._child is not None
    extractor._child.kill()
    extractor._child.wait()
    assert read(extractor, lease)[0] == expected


@pytest.mark.fire
def test_attachments_share_one_limit(extractor: Extractor, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = {"first.pdf": FILES["lease.pdf"][0]}
    parsed(mail(lease), extractor)  # starts the child
    seconds = tries(5, 10)
    bad = {f"{number}.pdf": slow() for number in range(20)}
    started = time.monotonic()
    with monkeypatch.context() as patch:
        patch.setattr(records, "ATTACHMENT_SECONDS", float(seconds))
        email = parsed(mail({**lease, **bad}), extractor)
    assert time.monotonic() - started < seconds + 60
    assert "The quagga lease ends" in email.attached
    assert email.attached.count(f".pdf: {attachments.HEAVY}]") == 20
    assert len(email.files) == 21
    assert "quagga lease" in parsed(mail(lease), extractor).attached


def test_attachment_texts_are_searched_and_shown(art_e: Run, tmp_path: Path) -> None:
    db = tmp_path / "i.duckdb"
    files = {name: data for name, (data, _) in FILES.items()}
    mails = [mail(files), mail({"photo.jpg": b"\xff\xd8\xff"}, 2)]
    with new_file(db, mails, owner=ME) as file:
        inbox = file.open_inbox(ME)
        for _ in range(2):
            [hit] = inbox.search(["quagga"])
            assert "quagga" in hit.snippet.lower()
        query = parse_query('"quagga lease" has:attachment filename:pdf', dt.date(2024, 6, 1))
        assert [each.message_id for each in inbox.search([], query=query)] == ["<1@x>"]
    text = art_e("read", "1@x", "--db", db).stdout
    assert "[Attachment: lease.pdf (application/octet-stream, 1 KB)]" in text
    assert "[Text of lease.pdf]\nThe quagga lease ends" in text
    assert "[Text of" not in art_e("read", "2@x", "--db", db).stdout
    # They stay when mail is added to the file.
    with new_file(db, [mail({"more.txt": b"okapi"}, 3)], owner=ME, append=True) as file:
        inbox = file.open_inbox(ME)
        assert len(inbox.search(["quagga"])) == len(inbox.search(["okapi"])) == 1
        assert {each.name: each.data for each in inbox.files("<1@x>")} == files
        assert [each.name for each in inbox.files("<3@x>")] == ["more.txt"]


def test_unread_attachments_are_reported(art_e: Run, tmp_path: Path) -> None:
    db, unread = tmp_path / "i.duckdb", [locked(pdf("a")), b"\xff\xd8\xff", b"x " * MAX_CHARS]
    files = dict(zip(("secret.pdf", "photo.jpg", "long.txt"), unread, strict=True))
    (tmp_path / "a.eml").write_bytes(mail(files).data)
    note = "3 attachments (1 encrypted or password-protected, 1 image or sound, 1 longer than 50,0"
    assert note in art_e("ingest", tmp_path / "a.eml", "--db", db, "--owner", ME).stdout
    assert note in art_e("search", "zebra", "--db", db).stderr
    assert note in art_e("doctor", "--db", db).stdout
    text = art_e("read", "1@x", "--db", db).stdout
    assert "[Text of secret.pdf: encrypted or password-protected]\n" in text
    assert "[Text of long.txt: longer than 50,000 characters]\nx x" in text


def winmail(body: bytes) -> bytes:
    """Return a TNEF file with a body and an attachment."""
    packed, name = struct.pack("<IH", 0x223E9F78, 1), b"caf\xe9.txt"
    file = ((2, 0x9002, 6, bytes(14)), (2, 0x8010, 1, name), (2, 0x800F, 6, b"An okapi note"))
    for level, tag, kind, data in ((1, 0x800C, 2, body), *file):
        packed += struct.pack("<BHHI", level, tag, kind, len(data)) + data + bytes(2)
    return packed


def signed(part: bytes) -> bytes:
    """Return a signed S/MIME message of the part."""
    content = {"content_type": "data", "content": part}
    rest = {"version": "v1", "digest_algorithms": [], "signer_infos": []}
    data = {"content_type": "signed_data", "content": {**rest, "encap_content_info": content}}
    return bytes(cms.ContentInfo(data).dump())


def test_packed_mail_is_read_as_the_mails_body(extractor: Extractor) -> None:
    parts = b"Content-Type: multipart/mixed; boundary=b\n\n--b\n\nAn okapi page\n--b\n"
    parts += b"Content-Disposition: attachment; filename=n.txt\n\nAn okapi note\n--b--\n"
    inner = raw("<2@x>", subject="Water", body="An okapi page").data
    samples = open_source(str(Path(__file__).parents[1] / "data/outlook.tar.xz"), "mail")
    outlook, page = next(iter(samples)), "An okapi page"
    assert isinstance(outlook, RawMessage)
    for name, data, texts in (
        ("winmail.dat", winmail(page.encode()), f"{page}, [Text of caf\xe9.txt]\nAn okapi note"),
        ("winmail.dat", winmail(b"Nothing\nnew."), "[Text of caf\xe9.txt]\nAn okapi note"),
        ("smime.p7m", signed(parts), "An okapi page, [Text of n.txt]\nAn okapi note"),
        ("smime.p7m", signed(b"Content-Type: text/plain\n\nAn okapi page"), "An okapi page"),
        ("old.eml", inner, "[Attached message: Water]\nAn okapi page"),
        ("page.mht", b"From: <Saved>\n" + inner, "[Attached message: Water]\nAn okapi page"),
        ("a.msg", outlook.data, "[Attached message: "),
    ):  # fmt: skip
        email = parsed(mail({name: data}), extractor)
        text = email.body + email.attached
        assert all(each in text for each in texts.split(", ")), text
        assert text.count("Nothing") == 1 and name not in text
