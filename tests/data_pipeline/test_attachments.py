"""Attachments: their text is found and read, and none takes more than its share of a machine."""

import datetime as dt
import io
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from art_e.inbox.file import InboxFile
from art_e.inbox.query import parse_query
from data_pipeline.ingest import attachments, parse
from data_pipeline.ingest.attachments import MAX_CHARS, Extractor, form_of
from data_pipeline.ingest.records import ParsedEmail, RawMessage
from tests.builders import make_inbox, raw, tries, with_files
from tests.command_line import Run
from tests.mailbox import calendar, excel, pdf, word

ME = "me@home.example"
FILES: dict[str, tuple[bytes, str]] = {
    "lease.pdf": (pdf("The quagga lease ends"), "The quagga lease ends"),
    "plan.docx": (word("A quagga plan"), "A quagga plan\n\tcell zebra"),
    "costs.XLSX": (excel("quagga"), "Sheet\nquagga\t4200"),
    "invite.ics": (calendar("Quagga day"), "Summary: Quagga day\nDtstart: 2024-03-31 09:00"),
    "notes.txt": ("caf\xe9 quagga".encode("latin-1"), "caf\xe9 quagga"),
}


def mail(files: dict[str, bytes], number: int = 1) -> RawMessage:
    return with_files(raw(f"<{number}@x>", sender="ann@x.example", to=ME, subject="Papers"), files)


@pytest.fixture
def extractor() -> Iterator[Extractor]:
    made = Extractor()
    yield made
    made.close()


def test_the_text_of_each_form(extractor: Extractor, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, (data, text) in FILES.items():
        read = extractor.text_of(name, "application/octet-stream", data)
        assert read is not None and read.startswith(text)
    assert form_of("unnamed", "application/pdf") == "pdf"
    assert extractor.text_of("photo.jpg", "image/jpeg", b"\xff\xd8") == ""
    assert extractor.text_of("a.pdf", "", b"%PDF-1.4 cut off") == ""
    cut = extractor.text_of("a.txt", "text/plain", b"x " * MAX_CHARS)
    assert cut is not None and len(cut) < MAX_CHARS
    # Without the libraries only text is read.
    monkeypatch.setattr(attachments, "find_spec", lambda _: None)
    texts = {name: extractor.text_of(name, "", data) for name, (data, _) in FILES.items()}
    assert [name for name, text in texts.items() if text] == ["notes.txt"]


def endless() -> bytes:
    """A PDF whose page tree refers to itself, millions of times over."""
    kids = b"1 0 R " * 3_000_000
    return b"%PDF-1.4\n1 0 obj<</Kids[" + kids + b"]>>endobj\ntrailer<</Root 1 0 R>>"


SHEET = "xl/worksheets/sheet1.xml"


def with_sheet(sheet: bytes) -> bytes:
    """A workbook of that sheet."""
    out, book = io.BytesIO(), zipfile.ZipFile(io.BytesIO(excel("x")))
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in book.namelist():
            packed.writestr(name, sheet if name == SHEET else book.read(name))
    return out.getvalue()


def bomb() -> bytes:
    """A spreadsheet of a few kilobytes whose strings are gigabytes."""
    cell = b'<c t="inlineStr"><is><t>' + b"A" * 300_000_000 + b"</t></is></c>"
    return with_sheet(b"<worksheet><sheetData><row>" + cell + b"</row></sheetData></worksheet>")


def endless_rows() -> bytes:
    """A spreadsheet of a kilobyte with a million empty rows of 16,384 cells."""
    return with_sheet(
        b'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">'
        b'<dimension ref="A1:XFD1048576"/><sheetData><row r="1"><c r="XFD1"/></row>'
        b'<row r="1048576"><c r="XFD1048576"/></row></sheetData></worksheet>'
    )


@pytest.mark.parametrize(("name", "made"), [("a.pdf", endless), ("a.xlsx", bomb)])
def test_a_bomb_is_not_read(name: str, made: Callable[[], bytes], extractor: Extractor) -> None:
    assert not extractor.text_of(name, "", made(), 1.0)
    # A child that dies is replaced, too.
    data, expected = FILES["lease.pdf"]
    assert extractor.text_of("lease.pdf", "", data) == expected
    assert extractor._child is not None
    extractor._child.kill()
    extractor._child.wait()
    assert extractor.text_of("lease.pdf", "", data) == expected


@pytest.mark.fire
def test_attachments_share_time(extractor: Extractor, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = {"first.pdf": FILES["lease.pdf"][0]}
    parse.parse_message(mail(lease), extractor)  # which starts the child
    seconds = tries(5, 10)
    bad = {f"{number}.xlsx": endless_rows() for number in range(20)}
    begun = time.monotonic()
    with monkeypatch.context() as patch:
        patch.setattr(parse, "ATTACHMENT_SECONDS", float(seconds))
        email = parse.parse_message(mail({**lease, **bad}), extractor)
    assert time.monotonic() - begun < seconds + 60
    assert isinstance(email, ParsedEmail)
    assert "The quagga lease ends" in email.attached
    assert email.attached.count("left out: it takes too long or too much memory]") == 19
    assert len(email.files) == 21
    after = parse.parse_message(mail(lease), extractor)
    assert isinstance(after, ParsedEmail) and "quagga lease" in after.attached


def test_mail_is_found_by_them_and_shows_them(art_e: Run, tmp_path: Path) -> None:
    db = tmp_path / "i.duckdb"
    files = {name: data for name, (data, _) in FILES.items()}
    make_inbox(db, [mail(files), mail({"photo.jpg": b"\xff"}, 2)], owner=ME)
    with InboxFile(db) as file:
        inbox = file.open_inbox(ME)
        for _ in range(2):
            [hit] = inbox.search(["quagga"])
            assert "quagga" in hit.snippet.lower()
        query = parse_query('"quagga lease" has:attachment filename:pdf', dt.date(2024, 6, 1))
        assert [each.message_id for each in inbox.search([], query=query)] == ["<1@x>"]
    shown = art_e("read", "1@x", "--db", db).stdout
    assert "[Attachment: lease.pdf (application/octet-stream, 1 KB)]" in shown
    assert "[Text of lease.pdf]\nThe quagga lease ends" in shown
    assert "[Text of" not in art_e("read", "2@x", "--db", db).stdout
    # A file that is added to keeps them.
    make_inbox(db, [mail({"more.txt": b"okapi"}, 3)], owner=ME, append=True)
    with InboxFile(db) as file:
        inbox = file.open_inbox(ME)
        assert len(inbox.search(["quagga"])) == len(inbox.search(["okapi"])) == 1
        assert {each.name: each.data for each in inbox.files("<1@x>")} == files
        assert [each.name for each in inbox.files("<3@x>")] == ["more.txt"]
