"""The same mails from every format give the same inbox, in the fields that the format carries."""

import mailbox
from collections.abc import Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from data_pipeline.ingest.batch import Rules
from data_pipeline.ingest.build import IngestReport, Source, ingest
from data_pipeline.ingest.detect import detect, open_source
from data_pipeline.synthetic.world import WorldConfig, messages
from tests.builders import contents, plain_connection
from tests.formats import WRITERS, Write

# Undated mail is not among them: in an mbox it takes the date of its From_ line.
DATED = b"Date: Tue, 16 Jan 2001 08:%02d:00 -0600\n"
COPY = b"Message-ID: <copy@odd.example>\nFrom: ann@odd.example\nSubject: Copy\n"

ODD = [
    # no id
    b"From: Ann Alder <ann@odd.example>\nTo: bob@odd.example\nSubject: No id\n\nNo id here.\n",
    # CR LF, folded headers
    b"Message-ID: <crlf@odd.example>\r\nFrom: ann@odd.example\r\nTo: bob@odd.example,\r\n\t"
    b"Cleo Cole\r\n <cleo@odd.example>\r\nSubject: Folded\r\n twice\r\n\r\nOne.\r\n\r\nTwo.\r\n",
    # a lying charset, raw bytes in headers
    b"Message-ID: <latin@odd.example>\nFrom: Ren\xe9 <rene@odd.example>\nTo: bob@odd.example\n"
    b"Subject: Caf\xe9\nContent-Type: text/plain; charset=us-ascii\n\nAu caf\xe9, \x93soon\x94.\n",
    # encoded words, base64
    b"Message-ID: <b64@odd.example>\nFrom: =?utf-8?q?Zo=C3=AB?= <zoe@odd.example>\n"
    b"To: bob@odd.example\nSubject: =?utf-8?b?w4lsYW4=?=\nMIME-Version: 1.0\n"
    b"Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: base64\n\n"
    b"R3LDvMOfZSBhdXMgS8O2bG4uCg==\n",
    # quoted-printable
    b"Message-ID: <qp@odd.example>\nFrom: ann@odd.example\nTo: bob@odd.example\nSubject: QP\n"
    b"MIME-Version: 1.0\nContent-Type: text/plain; charset=iso-8859-1\n"
    b"Content-Transfer-Encoding: quoted-printable\n\n10 =3D ten, caf=E9, one =\nline\n",
    # HTML alone
    b"Message-ID: <html@odd.example>\nFrom: ann@odd.example\nTo: bob@odd.example\nSubject: H\n"
    b"MIME-Version: 1.0\nContent-Type: text/html; charset=utf-8\n\n"
    b"<html><body><h1>Plan</h1><p>One &amp; two</p><table><tr><td>a</td><td>b</td></tr></table>",
    # parts and an attachment
    b"Message-ID: <parts@odd.example>\nFrom: ann@odd.example\nTo: bob@odd.example\nSubject: P\n"
    b'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="b"\n\n--b\n'
    b"Content-Type: text/plain\n\nSee the sheet.\n--b\nContent-Type: application/pdf\n"
    b'Content-Disposition: attachment; filename="sheet.pdf"\n\n%PDF\n--b--\n',
    # lines that look like an mbox's separators
    b"Message-ID: <from@odd.example>\nFrom: ann@odd.example\nTo: bob@odd.example\nSubject: F\n\n"
    b"From me to you.\n\nFrom ann@odd.example Fri Jan 12 09:30:00 2001\nsaid: so.\n",
    # nothing in it, and nobody to read it
    b"Message-ID: <empty@odd.example>\nFrom: ann@odd.example\nSubject:\n\n",
    # many recipients, one of them twice
    b"Message-ID: <many@odd.example>\nFrom: ann@odd.example\nSubject: Many\nTo: "
    + b",\n ".join(b"P%d <p%d@odd.example>" % (each, each) for each in range(150))
    + b"\nCc: p3@odd.example, boss@odd.example\nBcc: boss@odd.example\n\nTo all.\n",
    # text of another language, and a CSV's own marks
    "Message-ID: <marks@odd.example>\nFrom: 山田 <yamada@odd.example>\nTo: bob@odd.example\n"
    'Subject: "quotes", commas\n\nShe said "yes, no";\n\n"",\n日本語のメール\n'.encode(),
    # the same mail twice, to different people
    COPY + b"To: bob@odd.example\n\nA copy.\n",
    COPY + b"To: cleo@odd.example, bob@odd.example\n\nA copy.\n",
]  # fmt: skip
MAILS = [each.data for each in islice(messages(WorldConfig(size=1000, seed=3)), 48)]
MAILS += [DATED % number + mail for number, mail in enumerate(ODD[:-2])]
MAILS += [DATED % 59 + mail for mail in ODD[-2:]]


def write_stdlib_mbox(folder: Path, mails: Sequence[bytes]) -> Path:
    path = folder / "mail.mbox"
    with closing(mailbox.mbox(path)) as box:
        for mail in mails:
            box.add(mail)
    return path


def write_stdlib_maildir(folder: Path, mails: Sequence[bytes]) -> Path:
    path = folder / "Maildir"
    with closing(mailbox.Maildir(path)) as box:
        sent = box.add_folder("Sent")
        for number, mail in enumerate(mails):
            (box if number % 2 else sent).add(mail)
    return path


FORMATS: dict[str, Write] = {
    **{name: write for name, (_, write) in WRITERS.items()},
    "stdlib mbox": write_stdlib_mbox,
    "stdlib maildir": write_stdlib_maildir,
}


def ingested(name: str, folder: Path) -> tuple[IngestReport, Path]:
    """The mails by way of one format, as `art-e ingest --no-filter` reads them."""
    folder.mkdir()
    path = str(FORMATS[name](folder, MAILS))
    db = folder / "inbox.duckdb"
    return ingest([Source(open_source(path, detect(path)), Rules())], db), db


def without_sources(db: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every table but for where a mail was read."""
    tables = contents(db)
    with plain_connection(db) as connection:
        for name, rows in tables.items():
            described = connection.execute(f"DESCRIBE {name}").fetchall()
            kept = [at for at, column in enumerate(described) if column[0] != "source"]
            tables[name] = [tuple(row[at] for at in kept) for row in rows]
    return tables


# What the Hugging Face set holds: no names of people.
_FIELDS = """
SELECT message_id, sent_at, subject, from_address,
    [x.address for x in to_recipients], [x.address for x in cc_recipients],
    [x.address for x in bcc_recipients], body, content_digest
FROM emails ORDER BY email_id
"""
_ALIASES = "SELECT message_id, email_id FROM aliases"
_PARTIES = "SELECT address, email_id, role FROM parties JOIN addresses USING (address_id)"


def without_names(db: Path) -> list[list[tuple[Any, ...]]]:
    with plain_connection(db) as connection:
        return [
            connection.execute(statement).fetchall()
            for statement in (_FIELDS, _PARTIES, _ALIASES, "FROM meta WHERE key <> 'counts'")
        ]


@pytest.fixture(scope="module")
def of_eml(tmp_path_factory: pytest.TempPathFactory) -> tuple[IngestReport, Path]:
    return ingested("eml", tmp_path_factory.mktemp("formats") / "eml")


def test_the_mails_are_stored_as_they_should_be(of_eml: tuple[IngestReport, Path]) -> None:
    report, db = of_eml
    assert report.counts["read"] == len(MAILS) == 61
    assert (report.counts["stored"], report.counts["duplicates"]) == (60, 1)
    assert report.counts["filtered"] == report.counts["quarantined"] == {}
    with plain_connection(db) as connection:
        rows = connection.execute("SELECT message_id, subject, body FROM emails").fetchall()
    body = {message_id.strip("<>").partition("@")[0]: body for message_id, _, body in rows}
    assert body["crlf"] == "One.\n\nTwo."
    assert body["latin"] == "Au café, \u201csoon\u201d."
    assert body["b64"] == "Grüße aus Köln."
    assert body["qp"] == "10 = ten, café, one line"
    assert "One & two" in body["html"]
    assert "sheet.pdf" in body["parts"]
    assert "\nFrom ann@odd.example Fri" in body["from"]
    assert body["empty"] == ""
    assert "日本語のメール" in body["marks"]


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in ("eml", "parquet")])
def test_the_same_inbox_from_every_format(
    name: str, of_eml: tuple[IngestReport, Path], tmp_path: Path
) -> None:
    report, db = ingested(name, tmp_path / "mail")
    expected_report, expected_db = of_eml
    assert report.counts == expected_report.counts
    assert without_sources(db) == without_sources(expected_db)


def test_the_same_inbox_from_parquet_but_for_names(
    of_eml: tuple[IngestReport, Path], tmp_path: Path
) -> None:
    report, db = ingested("parquet", tmp_path / "mail")
    expected_report, expected_db = of_eml
    assert report.counts == expected_report.counts
    assert without_names(db) == without_names(expected_db)
