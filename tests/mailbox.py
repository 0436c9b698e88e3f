"""The mail of a fictional person as Google Takeout packs it: the mailbox of README's steps.

    python -m tests.mailbox FOLDER      writes FOLDER/takeout-20260101T000000Z-001.zip

It has labels, a thread with replies, all kinds of readable attachments, HTML, four languages, mail
of a list, and spam that lies about the lease."""

import io
import sys
import tomllib
import zipfile
from email.message import EmailMessage
from pathlib import Path
from string import Template
from typing import Any

import docx
import openpyxl

ME = "maya.stone@home.example"
ANSWER = "September 30, 2026"


TABLE = tomllib.loads(Path(__file__).with_name("data").joinpath("takeout.toml").read_text("utf-8"))


def pdf(text: str) -> bytes:
    """Return a PDF page with a line of text."""
    length = len("BT /F1 12 Tf 20 100 Td () Tj ET") + len(text)
    return Template(TABLE["pdf"]).substitute(text=text, length=length).encode()


def word(text: str) -> bytes:
    """Return a Word document with a paragraph and a table."""
    document = docx.Document()
    document.add_paragraph(text)
    document.add_table(1, 2).cell(0, 1).text = "cell zebra"
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def excel(text: str) -> bytes:
    """Return a workbook with a row."""
    book = openpyxl.Workbook()
    book.worksheets[0].append([text, 4200, None])
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def calendar(summary: str) -> bytes:
    """Return an event on March 31, 2024."""
    return Template(TABLE["ics"]).substitute(text=summary).encode()


MAKERS = {"pdf": pdf, "docx": word, "xlsx": excel, "ics": calendar}


def mail(number: int, fields: dict[str, Any]) -> EmailMessage:
    """Return a mail as Gmail exports it."""
    mail, follows, html = EmailMessage(), fields.get("follows", 0), fields.get("html")
    mail["X-GM-THRID"], mail["X-Gmail-Labels"] = str(1000 + (follows or number)), fields["labels"]
    mail["Delivered-To"], mail["Message-ID"] = ME, f"<{number}@home.example>"
    mail["From"], mail["To"] = fields["sender"], fields.get("to", ME)
    mail["Subject"], mail["Date"] = fields["subject"], f"{fields['day']} 09:00:00 +0100"
    if follows:
        mail["In-Reply-To"] = f"<{follows}@home.example>"
    mail.set_content(html or fields["body"], subtype="html" if html else "plain")
    for name, text in fields.get("files", {}).items():
        maker = MAKERS.get(name.partition(".")[2])
        data = maker(text) if maker else text.encode("latin-1")
        mail.add_attachment(data, "application", "octet-stream", filename=name)
    return mail


MAILS = [mail(number, fields) for number, fields in enumerate(TABLE["mail"], start=1)]


def takeout(folder: Path) -> Path:
    """Write the download into the folder, and return its path."""
    path = folder / "takeout-20260101T000000Z-001.zip"
    box = b"".join(
        b"From %d@xxx Mon Jan 01 00:00:00 +0000 2026\n%s\n" % (number, message.as_bytes())
        for number, message in enumerate(MAILS)
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("Takeout/Mail/All mail Including Spam and Trash.mbox", box)
        archive.writestr("Takeout/archive_browser.html", "<html>Your archive</html>")
    return path


if __name__ == "__main__":
    print(takeout(Path(sys.argv[1])))
