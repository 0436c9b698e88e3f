"""Reimplement the reference design, the baseline of the benchmarks.

    python -m bench.reference SOURCE DB

It parses with mail-parser, fills SQLite tables `emails` and `recipients` row by row in one
transaction, and then creates indexes and an FTS5 table over subject and body. A search is an FTS5
match of quoted keywords in one inbox, newest first, with a snippet. It drops bodies over 5,000
characters, mails to more than 30 recipients, and copies by subject, body and sender. Our reader
unpacks the archive, because it is faster than the reference's.
"""

import contextlib
import datetime as dt
import json
import sqlite3
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import mailparser

from data_pipeline.ingest.records import RawMessage
from data_pipeline.ingest.sources import open_source

MAX_BODY_CHARS = 5_000
MAX_RECIPIENTS = 30

_TABLES = """
PRAGMA synchronous = OFF;
PRAGMA journal_mode = MEMORY;
CREATE TABLE emails (
    id INTEGER PRIMARY KEY AUTOINCREMENT, message_id TEXT UNIQUE, subject TEXT, from_address TEXT,
    date TEXT, body TEXT, file TEXT
);
CREATE TABLE recipients (
    email_id INTEGER, address TEXT, type TEXT,
    FOREIGN KEY (email_id) REFERENCES emails(id) ON DELETE CASCADE
);
"""

_INDEXES = """
CREATE INDEX emails_from ON emails(from_address);
CREATE INDEX emails_date ON emails(date);
CREATE INDEX emails_message_id ON emails(message_id);
CREATE INDEX recipients_address ON recipients(address);
CREATE INDEX recipients_type ON recipients(type);
CREATE INDEX recipients_email_id ON recipients(email_id);
CREATE INDEX recipients_address_email ON recipients(address, email_id);
CREATE VIRTUAL TABLE emails_fts USING fts5(subject, body, content='emails', content_rowid='id');
INSERT INTO emails_fts (rowid, subject, body) SELECT id, subject, body FROM emails;
"""

_INBOX = """(e.from_address = ? OR EXISTS (
    SELECT 1 FROM recipients AS r WHERE r.address = ? AND r.email_id = e.id))"""
_TO = "EXISTS (SELECT 1 FROM recipients AS r_to WHERE r_to.address = ? AND r_to.email_id = e.id)"


class ReferenceMail(NamedTuple):
    """A mail as the reference stores it; `recipients` has pairs of address and type."""

    message_id: str
    subject: str
    from_address: str
    date: str | None
    body: str
    file: str
    recipients: list[tuple[str, str]]


class ReferenceInbox:
    """An open reference file, with a connection per thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._local = threading.local()
        self._opened: list[sqlite3.Connection] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._opened:
            connection.close()

    def search(
        self,
        address: str,
        keywords: list[str],
        from_addr: str | None = None,
        to_addr: str | None = None,
        sent_after: dt.date | None = None,
        sent_before: dt.date | None = None,
        max_results: int = 10,
    ) -> list[str]:
        """Return the ids of an address's mails with all keywords as phrases, newest first."""
        quoted = " ".join('"{}"'.format(word.replace('"', '""')) for word in keywords)
        conditions = ["emails_fts MATCH ?", _INBOX]
        parameters: list[Any] = [quoted, address, address]
        filters = {
            "e.from_address = ?": from_addr,
            _TO: to_addr,
            "e.date >= ?": sent_after and f"{sent_after} 00:00:00",
            "e.date < ?": sent_before and f"{sent_before} 00:00:00",
        }
        for condition, value in filters.items():
            if value is not None:
                conditions.append(condition)
                parameters.append(value)
        sql = f"""
            SELECT e.message_id, snippet(emails_fts, -1, '<b>', '</b>', ' ... ', 15)
            FROM emails AS e JOIN emails_fts ON e.id = emails_fts.rowid
            WHERE {" AND ".join(conditions)} ORDER BY e.date DESC LIMIT ?
        """
        rows = self._connection().execute(sql, [*parameters, max_results]).fetchall()
        return [message_id for message_id, _ in rows]

    def mails_with(self, words: Iterable[str]) -> dict[str, int]:
        """Return the document frequency of each word that occurs in the file."""
        connection = self._connection()
        connection.execute(
            "CREATE VIRTUAL TABLE IF NOT EXISTS temp.vocabulary"
            " USING fts5vocab('main', 'emails_fts', 'row')"
        )
        counts = "SELECT doc FROM temp.vocabulary WHERE term = ?"
        rows = ((word, connection.execute(counts, [word]).fetchone()) for word in words)
        return {word: int(row[0]) for word, row in rows if row is not None}

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            uri = f"{self.path.resolve().as_uri()}?mode=ro"
            connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
            self._local.connection = connection
            self._opened.append(connection)
        return connection


def build(path: Path, mails: Iterable[ReferenceMail]) -> int:
    """Write a reference file, first all rows and then indexes; return the number of mails."""
    path.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(_TABLES)
        stored = 0
        for mail in mails:
            cursor = connection.execute(
                "INSERT OR IGNORE INTO emails"
                " (message_id, subject, from_address, date, body, file) VALUES (?, ?, ?, ?, ?, ?)",
                mail[:6],
            )
            if cursor.rowcount:
                stored += 1
                recipients = [(cursor.lastrowid, *each) for each in mail.recipients]
                connection.executemany("INSERT INTO recipients VALUES (?, ?, ?)", recipients)
        connection.commit()
        connection.executescript(_INDEXES)
        connection.commit()
        return stored


def parse(message: RawMessage) -> ReferenceMail | None:
    """Parse a mail with mail-parser; return None if that fails."""
    try:
        mail = mailparser.parse_from_bytes(message.data)
        return ReferenceMail(
            message_id=mail.message_id or message.source,
            subject=mail.subject,
            from_address=mail.from_[0][1].lower() if mail.from_ else "",
            date=mail.date.strftime("%Y-%m-%d %H:%M:%S") if mail.date else None,
            body="\n".join(mail.text_plain),
            file=message.source,
            recipients=[
                (address.lower(), kind)
                for kind, listed in (("to", mail.to), ("cc", mail.cc), ("bcc", mail.bcc))
                for _, address in listed
                if address
            ],
        )
    except Exception:  # noqa: BLE001 - the reference skips mail that its parser can't read
        return None


def parse_all(messages: Iterable[RawMessage], counts: Counter[str]) -> Iterator[ReferenceMail]:
    """Yield the mails that the reference keeps; count all messages in `counts["read"]`."""
    seen: set[tuple[str, str, str]] = set()
    for message in messages:
        assert isinstance(message, RawMessage)
        counts["read"] += 1
        mail = parse(message)
        if mail is None or len(mail.body) > MAX_BODY_CHARS:
            continue
        key = (mail.subject, mail.body, mail.from_address)
        if len(mail.recipients) <= MAX_RECIPIENTS and key not in seen:
            seen.add(key)
            yield mail


def main(source: str, db: str) -> None:
    """Ingest a source in Enron's layout; print the counts as one JSON object."""
    counts = Counter[str]()
    stored = build(Path(db), parse_all(open_source(source, "enron"), counts))
    print(json.dumps({**counts, "stored": stored}))


if __name__ == "__main__":
    main(*sys.argv[1:])
