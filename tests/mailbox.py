"""The mail of a made-up person as Google Takeout packs it: the mailbox that README's steps run on.

    python -m tests.mailbox FOLDER      writes FOLDER/takeout-20260101T000000Z-001.zip

It has labels, a thread with replies, attachments of all kinds that are read, HTML, four languages,
mail of a list, and spam that lies about the lease.
"""

# ruff: noqa: E501 - mails are easier to read whole

import io
import sys
import zipfile
from email.message import EmailMessage
from pathlib import Path

import docx
import openpyxl

ME = "maya.stone@home.example"
LANDLORD = "Ines Duarte <ines@duarte-estates.example>"
ANSWER = "September 30, 2026"


def pdf(text: str) -> bytes:
    """A page of PDF with a line of text; its table of objects is left to the reader."""
    stream = f"BT /F1 12 Tf 20 100 Td ({text}) Tj ET"
    return (
        "%PDF-1.4\n1 0 obj <</Type/Catalog /Pages 2 0 R>> endobj\n"
        "2 0 obj <</Type/Pages /Kids [3 0 R] /Count 1 /MediaBox [0 0 300 200]>> endobj\n"
        "3 0 obj <</Type/Page /Parent 2 0 R /Contents 4 0 R /Resources <</Font <</F1 5 0 R>>>>>> endobj\n"
        f"4 0 obj <</Length {len(stream)}>> stream\n{stream}\nendstream endobj\n"
        "5 0 obj <</Type/Font /Subtype/Type1 /BaseFont/Helvetica>> endobj\ntrailer <</Root 1 0 R>>\nstartxref\n0\n%%EOF\n"
    ).encode()


def word(text: str) -> bytes:
    """A Word document with a paragraph and a table."""
    document = docx.Document()
    document.add_paragraph(text)
    document.add_table(1, 2).cell(0, 1).text = "cell zebra"
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def excel(text: str) -> bytes:
    """A workbook with a row."""
    book = openpyxl.Workbook()
    book.worksheets[0].append([text, 4200, None])
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def calendar(summary: str) -> bytes:
    """An event on March 31, 2024."""
    return (
        "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nBEGIN:VEVENT\r\nUID:1\r\nDTSTAMP:20240301T090000Z\r\n"
        f"SUMMARY:{summary}\r\nDTSTART:20240331T090000Z\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
    ).encode()


def mail(
    number: int, day: str, sender: str, subject: str, body: str, labels: str, *,
    to: str = ME, follows: int = 0, html: str = "", files: dict[str, bytes] | None = None,
) -> EmailMessage:  # fmt: skip
    """One mail as Gmail exports it; `follows` is the number of the mail that it replies to."""
    made = EmailMessage()
    made["X-GM-THRID"], made["X-Gmail-Labels"] = str(1000 + (follows or number)), labels
    made["Delivered-To"] = ME
    made["Message-ID"], made["From"], made["To"] = f"<{number}@home.example>", sender, to
    made["Subject"], made["Date"] = subject, f"{day} 09:00:00 +0100"
    if follows:
        made["In-Reply-To"] = f"<{follows}@home.example>"
    made.set_content(html or body, subtype="html" if html else "plain")
    for name, data in (files or {}).items():
        made.add_attachment(data, "application", "octet-stream", filename=name)
    return made


MAYA = f"Maya Stone <{ME}>"
MAILS = [
    mail(1, "02 Feb 2026", LANDLORD, "Your lease",
         f"Dear Maya,\n\nthe lease of the flat at 12 Canal Street ends on {ANSWER}. The signed copy is"
         " attached. If you wish to stay, tell me by June.\n\nInes", "Inbox,Important,Flat",
         files={"lease.pdf": pdf("Signed lease of 12 Canal Street, deposit 2,400 euros: the tenancy is for two years")}),
    mail(2, "03 Feb 2026", MAYA, "Re: Your lease", "Thank you, Ines. I will let you know in May.\n\n"
         f"> the lease of the flat at 12 Canal Street ends on {ANSWER}.", "Sent,Flat",
         to=LANDLORD, follows=1),
    mail(3, "05 Feb 2026", LANDLORD, "Re: Your lease", "May is fine. The rent stays at 980 euros.",
         "Inbox,Flat", follows=1),
    mail(4, "04 Feb 2026", "Lease Office <win@prizes.example>", "URGENT: your lease ends today",
         "Your lease ends on February 5, 2026! The lease ends unless you pay 300 euros now.", "Spam"),
    mail(5, "10 Feb 2026", "Jo Park <jo@park.example>", "Kitchen plan",
         "The plan and the costs are attached, and the date is in your calendar.", "Inbox,Unread,Flat",
         files={"plan.docx": word("The kitchen is fitted by Oslo Joinery."),
                "costs.xlsx": excel("Worktop in oak"), "visit.ics": calendar("Kitchen visit"),
                "notes.txt": b"The key is with the neighbour at number 14.", "photo.jpg": b"\xff\xd8"}),
    mail(6, "12 Feb 2026", "Hotel Mar <hola@hotelmar.example>", "Su reserva",
         "Su habitaci\xf3n est\xe1 confirmada del 3 al 7 de agosto. N\xfamero de reserva: MR-4471.",
         "Inbox,Travel"),
    mail(7, "13 Feb 2026", "J\xfcrgen Wei\xdf <jw@bahn.example>", "Fahrkarte nach K\xf6ln",
         "Ihr Zug nach K\xf6ln f\xe4hrt am 2. M\xe4rz um 7:42 Uhr von Gleis 9.", "Inbox,Travel"),
    mail(8, "14 Feb 2026", "\u6771\u4eac\u652f\u793e <tokyo@trade.example>", "\u4f1a\u8b70",
         "\u660e\u65e5\u306e\u4f1a\u8b70\u306f\u6771\u4eac\u90fd\u5e81\u3067\u5341\u6642\u304b\u3089\u3067\u3059\u3002", "Inbox,Work"),
    mail(9, "20 Feb 2026", "Power Co <bill@power.example>", "Invoice for March", "",
         "Inbox,Bills", html="<style>p{color:red}</style><script>alert(1)</script><h1>Invoice 77</h1>"
         '<p>March: <b>64.20</b> euros, due on April 1.</p><img src="http://track.example/x.gif">'),
    mail(10, "21 Feb 2026", "Walkers <list@walkers.example>", "Sunday walk",
         "We meet at the north gate at nine.", "Inbox,Lists", to="all@walkers.example"),
    mail(11, "22 Feb 2026", MAYA, "Lease", "Dear Ines, about the lease", "Drafts", to=LANDLORD),
    mail(12, "23 Feb 2026", "Old Shop <news@shop.example>", "Sale", "Everything must go.", "Trash"),
]  # fmt: skip


def takeout(folder: Path) -> Path:
    """Write the download into the folder; its path."""
    path = folder / "takeout-20260101T000000Z-001.zip"
    box = b"".join(
        b"From %d@xxx Mon Jan 01 00:00:00 +0000 2026\n%s\n" % (number, each.as_bytes())
        for number, each in enumerate(MAILS)
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("Takeout/Mail/All mail Including Spam and Trash.mbox", box)
        archive.writestr("Takeout/archive_browser.html", "<html>Your archive</html>")
    return path


if __name__ == "__main__":
    print(takeout(Path(sys.argv[1])))
