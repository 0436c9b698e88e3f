"""Kaggle's `emails.csv` of Enron's mail: columns `file` and `message`, read as a stream."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from art_e.errors import UserError
from data_pipeline.records import RawMessage
from data_pipeline.sources.files import open_stream, printable, reading

COLUMNS = ("file", "message")

# A field is a whole message; the default limit of 128 KB is far too small.
_LONGEST_FIELD = 2**31 - 1


def read(path: Path) -> Iterator[RawMessage]:
    """The messages of a CSV file (or .csv.gz); `source` is the column `file` as it is.

    Rows without a message are handed on empty. Raises `UserError` for other columns, and for a
    file that is damaged or cut off.
    """
    csv.field_size_limit(_LONGEST_FIELD)
    count = 0
    with (
        reading(path),
        open_stream(path) as stream,
        io.TextIOWrapper(stream, "utf-8-sig", errors="surrogateescape", newline="") as text,
    ):
        rows = csv.reader(text, strict=True)
        header = next(rows, [])
        if not set(COLUMNS) <= set(header):
            raise UserError(f"{path} lacks the columns {' and '.join(COLUMNS)}: see --format")
        file_column, message_column = (header.index(name) for name in COLUMNS)
        row: list[str] = header
        for count, row in enumerate(rows, start=1):
            file = row[file_column] if file_column < len(row) else ""
            message = row[message_column] if message_column < len(row) else ""
            yield RawMessage(
                printable(file) or f"{printable(path.name)}#{count}",
                message.encode("utf-8", "surrogateescape"),
            )
        if 0 < len(row) < len(header):
            raise csv.Error("the last row lacks columns")
    if count == 0:
        raise UserError(f"{path} has no rows: download it again")
