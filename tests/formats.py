"""Writes the same mails in every format of `art-e ingest`."""

import csv
import io
import re
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from data_pipeline.ingest.attachments import Extractor
from data_pipeline.ingest.parse import parse_within
from data_pipeline.ingest.records import Format, ParsedEmail, RawMessage, Skipped
from data_pipeline.ingest.sources import row_message

Write = Callable[[Path, Sequence[bytes]], Path]


def parse_message(message: RawMessage, extractor: Extractor | None = None) -> ParsedEmail | Skipped:
    return parse_within(message, extractor, lambda email: email)


def parsed(message: RawMessage, extractor: Extractor | None = None) -> ParsedEmail:
    """Parse a message, which must be a valid mail."""
    email = parse_message(message, extractor)
    assert isinstance(email, ParsedEmail), email
    return email


def of_row(
    message_id: str, subject: str, sender: str, to: list[str], cc: list[str], bcc: list[str],
    date: object, body: str,
) -> RawMessage:  # fmt: skip
    """Return the mail of a data set's row."""
    people: dict[str, object] = {"from": sender, "to": to, "cc": cc, "bcc": bcc}
    row = {"message_id": message_id, "subject": subject, **people, "date": date, "body": body}
    return RawMessage("test", row_message(row))


def zipped(files: dict[str, bytes], times: int = 1) -> bytes:
    """Return a zip of these files; its directory lists each of them `times` times."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        archive.filelist *= times
    return buffer.getvalue()


def write_enron(folder: Path, mails: Sequence[bytes]) -> Path:
    """Write a tree like Enron's, with three owners."""
    for number, mail in enumerate(mails):
        place = folder / "maildir" / f"owner-{number % 3}" / "inbox"
        place.mkdir(parents=True, exist_ok=True)
        headers = b"X-Folder: \\Owner\\Inbox\nX-Origin: OWNER-O\nX-FileName: owner.pst\n"
        (place / f"{number}.").write_bytes(headers + mail)
    return folder / "maildir"


def write_archive(folder: Path, mails: Sequence[bytes]) -> Path:
    """Write a tree like Enron's, packed as the real archive."""
    write_enron(folder, mails)
    with tarfile.open(folder / "mail.tar.xz", "w:xz") as file:
        file.add(folder / "maildir", "./maildir")
    return folder / "mail.tar.xz"


def write_mbox(folder: Path, mails: Sequence[bytes]) -> Path:
    """Write a file as Gmail Takeout does, with quoted From_ lines in bodies."""
    file = folder / "All mail.mbox"
    folder.mkdir(exist_ok=True)
    quoted = [re.sub(rb"^(>*From )", rb">\1", mail, flags=re.MULTILINE) for mail in mails]
    from_line = b"From 16%d@xxx Mon Apr 03 12:00:00 +0000 2017\n"
    pieces = [from_line % number + mail + b"\n\n" for number, mail in enumerate(quoted)]
    file.write_bytes(b"".join(pieces))
    return file


def packed(write: Write, ending: str) -> Write:
    """Return a writer that packs the files of `write` as Google Takeout does: in parts, with other
    files."""

    def write_parts(folder: Path, mails: Sequence[bytes]) -> Path:
        download = folder / "download"
        download.mkdir()
        half = len(mails) // 2
        for part, chosen in enumerate((mails[:half], mails[half:])):
            inner = folder / f"part-{part}"
            (inner / "Takeout" / "Mail").mkdir(parents=True)
            (inner / "Takeout" / "archive_browser.html").write_text("<p>From: nobody")
            write(inner / "Takeout" / "Mail", chosen)
            archive = str(download / f"takeout-20260101T000000Z-00{part}")
            shutil.make_archive(archive, "zip" if ending == "zip" else "gztar", inner)
            shutil.rmtree(inner)
        return download

    return write_parts


def write_maildir(folder: Path, mails: Sequence[bytes]) -> Path:
    """Write a Maildir with subfolders of both layouts, flags, and files that aren't mail."""
    root = folder / "Mail"
    for number, mail in enumerate(mails):
        sub = [root, root / ".Sent", root / "Lists" / "cats"][number % 3]
        for name in ("cur", "new", "tmp"):
            (sub / name).mkdir(parents=True, exist_ok=True)
        name = f"cur/{number}.host:2,RS" if number % 2 else f"new/{number}.host"
        (sub / name).write_bytes(mail)
    (root / "tmp" / "half").write_bytes(b"From: half@written")
    (root / "dovecot-uidlist").write_bytes(b"3 V1")
    return root


def write_eml(folder: Path, mails: Sequence[bytes]) -> Path:
    """Write a folder of .eml files with a subfolder, and a file that isn't mail."""
    root = folder / "saved"
    (root / "2001").mkdir(parents=True)
    for number, mail in enumerate(mails):
        place = root / "2001" if number % 2 else root
        (place / f"{number}.{'eml' if number % 3 else 'EML'}").write_bytes(mail)
    (root / "notes.txt").write_text("not mail")
    return root


def write_csv(folder: Path, mails: Sequence[bytes]) -> Path:
    """Write Kaggle's CSV."""
    file = folder / "emails.csv"
    with file.open("w", encoding="utf-8", errors="surrogateescape", newline="") as text:
        rows = csv.writer(text)
        rows.writerow(["file", "message"])
        for number, mail in enumerate(mails):
            rows.writerow([f"owner/inbox/{number}.", mail.decode("utf-8", "surrogateescape")])
    return file


def write_parquet(folder: Path, mails: Sequence[bytes]) -> Path:
    """Write two Parquet files with the columns of `corbt/enron-emails`: addresses without names."""
    rows = []
    for number, email in enumerate(parsed(RawMessage("x", mail)) for mail in mails):
        row = {role: [box.address for box in getattr(email, role)] for role in ("to", "cc", "bcc")}
        row["bcc"] = row["bcc"] or None  # type: ignore[assignment]
        rows.append({
            "message_id": email.message_id, "subject": email.subject, "from": email.sender.address,
            **row, "date": email.sent_at, "body": email.body, "file_name": f"owner/{number}.",
        })  # fmt: skip
    (folder / "data").mkdir()
    half = len(rows) // 2
    for part, chosen in enumerate((rows[:half], rows[half:])):
        pq.write_table(pa.Table.from_pylist(chosen), folder / "data" / f"part-{part}.parquet")
    return folder / "data"


WRITERS: dict[str, tuple[Format, Write]] = {
    "enron": ("enron", write_enron),
    "tar.xz": ("enron", write_archive),
    "mbox": ("mail", write_mbox),
    "mbox.zip": ("mail", packed(write_mbox, "zip")),
    "mbox.tgz": ("mail", packed(write_mbox, "tgz")),
    "eml.zip": ("mail", packed(write_eml, "zip")),
    "maildir": ("mail", write_maildir),
    "eml": ("mail", write_eml),
    "csv": ("csv", write_csv),
    "parquet": ("hf", write_parquet),
}
