"""Raw mails and small inbox files for the tests."""

import email.utils
import os
from collections.abc import Iterable, Sequence
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import duckdb
import pytest

from art_e.inbox.file import InboxFile
from data_pipeline.batch import Rules
from data_pipeline.ingest import IngestReport, Source, ingest
from data_pipeline.records import RawMessage


def raw(
    message_id: str | None = "<1@test>",
    *,
    subject: str = "Hello",
    body: str = "Nothing new.",
    sender: str = "Ann Alder <ann@test.example>",
    to: str | None = "bob@test.example",
    cc: str | None = None,
    bcc: str | None = None,
    date: str | None = "Mon, 6 Jan 2020 09:00:00 +0000",
    source: str | None = None,
) -> RawMessage:
    """One plain mail; None leaves a header out."""
    headers = {
        "Message-ID": message_id,
        "Date": date,
        "From": sender,
        "To": to,
        "Cc": cc,
        "Bcc": bcc,
        "Subject": subject,
    }
    message = EmailMessage()
    for name, value in headers.items():
        if value is not None:
            message[name] = value
    message.set_content(body)
    return RawMessage(source or f"mail/{message_id}", message.as_bytes())


def date_header(day: int, hour: int = 9) -> str:
    """A Date header in January 2020."""
    return email.utils.format_datetime(
        email.utils.parsedate_to_datetime(f"Mon, {day} Jan 2020 {hour:02}:00:00 +0000")
    )


def make_inbox(
    path: Path, messages: Iterable[RawMessage], rules: Rules | None = None, **options: Any
) -> IngestReport:
    """Ingest `messages` into `path`."""
    return ingest([Source(messages, rules or Rules())], path, **options)


def contents(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every table of an inbox file, its rows in the order in which they are stored."""
    with InboxFile(path) as file:
        tables = [name for (name,) in file.execute("SHOW TABLES").fetchall()]
        return {name: file.execute(f"FROM {name}").fetchall() for name in tables}


def message_ids(rows: Sequence[Any]) -> list[str]:
    """The message ids of hits, or of rows of `search_inbox`."""
    return [row[0] if isinstance(row, tuple) else row.message_id for row in rows]


def plain_connection(path: Path) -> duckdb.DuckDBPyConnection:
    """The file as any DuckDB shell opens it."""
    return duckdb.connect(str(path), read_only=True)


def real_data() -> Path:
    """The folder of real Enron mail, where the machine has one; else the test is skipped."""
    folder = os.environ.get("ART_E_REAL_DATA")
    if not folder:
        pytest.skip("ART_E_REAL_DATA names no folder of real Enron mail")
    return Path(folder)
