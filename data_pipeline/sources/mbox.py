"""mbox files: Gmail Takeout, Thunderbird, mutt.

Splits the file itself, as a stream: `mailbox.mbox` reads a file of many
gigabytes once only to index it, can't read .gz, and takes every line that
starts with "From " for a new message, of which bodies are full.
"""

import datetime as dt
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from art_e.errors import UserError
from data_pipeline.mail.dates import parse_date
from data_pipeline.records import LARGEST_MESSAGE, RawMessage
from data_pipeline.sources.files import open_stream, printable, reading, regular_files

# A separator has a time and a year, and a header in the next line.
_SEPARATOR = re.compile(rb"From (?=.*\b\d{1,2}:\d\d)(?=.*\b\d{4}\b)")
_LONGEST_SEPARATOR = 1_000
_HEADER = re.compile(rb"[!-9;-~]+[ \t]*:|>?From ")
_QUOTED = re.compile(rb"^>(>*From )", re.MULTILINE)
_LONGEST_READ = 1 << 20

# asctime, with a zone before or after the year: "Mon Apr 03 12:00:00 +0000 2017".
_ASCTIME = re.compile(
    r"([A-Z][a-z]{2})\s+(\d{1,2})\s+(\d{1,2}:\d\d(?::\d\d)?)"
    r"(?:\s+([+-]\d{4}|[A-Z]{1,5}))?\s+(\d{4})(?:\s+([+-]\d{4}))?"
)


class _Piece(NamedTuple):
    """One message of a file: its From_ line, its bytes still quoted."""

    separator: bytes
    data: bytes


def is_separator(line: bytes) -> bool:
    """Whether a line can be a From_ line; in the middle of a file, a header must follow."""
    return len(line) < _LONGEST_SEPARATOR and _SEPARATOR.match(line) is not None


def read(path: Path) -> Iterator[RawMessage]:
    """The messages of an mbox file (also compressed), or of all .mbox files of a folder.

    `source` is "<file name>#<number>", `envelope_date` the From_ line's date.
    Raises `UserError` where there are none.
    """
    count = 0
    with reading(path):
        for file in _files(path):
            for number, message in enumerate(_messages(file), start=1):
                count += 1
                yield message._replace(source=f"{message.source}#{number}")
    if count == 0:
        raise UserError(f'{path} holds no mbox mail: messages start with a "From " line there')


def envelope_date(separator: str) -> dt.datetime | None:
    """The date of a From_ line, UTC and naive; None where it has none."""
    match = _ASCTIME.search(separator)
    if match is None:
        return parse_date(" ".join(separator.split()[2:]))
    month, day, time, zone, year, late_zone = match.groups()
    return parse_date(f"{day} {month} {year} {time} {zone or late_zone or '+0000'}")


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for file in regular_files(path):
        if file.suffix == ".mbox":
            yield file


def _messages(path: Path) -> Iterator[RawMessage]:
    name = printable(path.name)
    with open_stream(path) as stream:
        for piece in _pieces(stream):
            separator = piece.separator.decode("ascii", "replace")
            data = _QUOTED.sub(rb"\1", piece.data)
            yield RawMessage(name, data, envelope_date(separator))


def _pieces(stream: BinaryIO) -> Iterator[_Piece]:
    """Cut a stream at its From_ lines, holding one message at a time."""
    current = b""  # the From_ line of the message being read
    candidate = b""  # a From_ line of which the next line decides
    lines: list[bytes] = []
    size = 0
    at_line_start = True
    for line in iter(lambda: stream.readline(_LONGEST_READ), b""):
        if candidate:
            if not current or _HEADER.match(line):
                if current:
                    yield _Piece(current, b"".join(lines))
                current, lines, size = candidate, [], 0
            else:
                lines.append(candidate)
            candidate = b""
        if at_line_start and is_separator(line):
            candidate = line
        elif current and size <= LARGEST_MESSAGE:
            lines.append(line)
            size += len(line)
        at_line_start = line.endswith(b"\n")
    if current:
        yield _Piece(current, b"".join([*lines, candidate]))
