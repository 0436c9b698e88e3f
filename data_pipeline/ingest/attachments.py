"""The text of attachments: PDF, Word, Excel, calendars and plain text.

Text is decoded here. Other forms are read by libraries (the extra `attachments`) in a child process
with limits of memory and time, because a file can be made to use up both: this module run as a
program is that process. It serves its parent until that closes the pipe.
"""

import atexit
import contextlib
import io
import json
import os
import resource
import select
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from subprocess import Popen
from typing import Any

from art_e.children import start_reader
from data_pipeline.ingest.headers import decode_bytes
from data_pipeline.ingest.records import ATTACHMENT_SECONDS

LARGEST_BYTES = 20_000_000  # of a file that is kept and read
MAX_CHARS = 50_000  # of the text of one attachment
MEMORY_BYTES = 330_000_000  # of address space, of which the libraries take 200 MB

# The form of an attachment by the ending of its name, or by its type.
_ENDINGS = {"pdf": "pdf", "docx": "docx", "xlsx": "xlsx", "ics": "ics"} | dict.fromkeys(
    ("txt", "md", "csv", "tsv", "json", "log"), "text"
)
_TYPES = {
    "application/pdf": "pdf",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "text/calendar": "ics",
}
_PACKAGES = {"pdf": "pypdf", "docx": "docx", "xlsx": "openpyxl", "ics": "icalendar"}


def form_of(name: str, kind: str) -> str | None:
    """The form of an attachment whose text can be read; None for any other."""
    by_type = _TYPES.get(kind) or ("text" if kind.startswith("text/") else None)
    return _ENDINGS.get(name.rpartition(".")[2].lower()) or by_type


class Extractor:
    """Reads attachments; starts its child when it needs one, and anew when one has failed."""

    def __init__(self) -> None:
        self._child: Popen[bytes] | None = None

    def text_of(
        self, name: str, kind: str, data: bytes, seconds: float = ATTACHMENT_SECONDS
    ) -> str | None:
        """The text, cut; "" if it has none or is damaged, None if reading it takes longer than
        `seconds` or more than its share of memory."""
        form = form_of(name, kind)
        if form is None or (form != "text" and find_spec(_PACKAGES[form]) is None):
            return ""
        text = decode_bytes(data) if form == "text" else self._asked(form, data, seconds)
        return None if text is None else text[:MAX_CHARS].strip()

    def _asked(self, form: str, data: bytes, seconds: float) -> str | None:
        if seconds <= 0:
            return None
        if self._child is not None and self._child.poll() is not None:
            self.close()
        if self._child is None:
            self._child = start_reader("data_pipeline.ingest.attachments")
            atexit.register(self.close)
        child = self._child
        assert child.stdin is not None and child.stdout is not None
        with contextlib.suppress(OSError, ValueError):
            child.stdin.write(f"{form} {len(data)}\n".encode() + data)
            child.stdin.flush()
            if select.select([child.stdout], [], [], seconds)[0]:
                text: str | None = json.loads(child.stdout.readline())
                return text
        self.close()
        return None

    def close(self) -> None:
        """End the child, if there is one."""
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
        self._child = None
        atexit.unregister(self.close)


# ---- The child.


def _pdf(file: io.BytesIO) -> Iterator[str]:
    from pypdf import PdfReader

    yield from (page.extract_text() for page in PdfReader(file).pages)


def _docx(file: io.BytesIO) -> Iterator[str]:
    from docx import Document

    document = Document(file)
    yield from (each.text for each in document.paragraphs)
    for table in document.tables:
        for row in table.rows:
            yield "\t".join(cell.text for cell in row.cells)


def _xlsx(file: io.BytesIO) -> Iterator[str]:
    from openpyxl import load_workbook

    for sheet in load_workbook(file, read_only=True, data_only=True).worksheets:
        yield sheet.title
        for row in sheet.iter_rows(values_only=True):
            if any(cell is not None for cell in row):
                yield "\t".join("" if cell is None else str(cell) for cell in row)


def _ics(file: io.BytesIO) -> Iterator[str]:
    from icalendar import Calendar

    for event in Calendar.from_ical(file.read()).walk("VEVENT"):
        for name in ("SUMMARY", "DTSTART", "DTEND", "LOCATION", "ORGANIZER", "DESCRIPTION"):
            if (value := event.get(name)) is not None:
                yield f"{name.capitalize()}: {getattr(value, 'dt', value)}"


_READERS = {"pdf": _pdf, "docx": _docx, "xlsx": _xlsx, "ics": _ics}


def extracted(form: str, data: bytes) -> str | None:
    """The text of a file of that form, as far as it can be read; None if the memory ends before."""
    parts: list[str] = []
    length = 0
    # The libraries raise many kinds over damaged files.
    with contextlib.suppress(Exception):
        try:
            for part in _READERS[form](io.BytesIO(data)):
                parts.append(part[:MAX_CHARS])
                length += len(part)
                if length >= MAX_CHARS:
                    break
        except MemoryError:
            return "\n".join(parts)[:MAX_CHARS] or None
    return "\n".join(parts)[:MAX_CHARS]


def main() -> None:
    """Answer requests ("FORM SIZE", then so many bytes) with the text as a line of JSON."""
    os.environ["OMP_NUM_THREADS"] = "1"  # of NumPy, for which each takes address space
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    requests: Any = sys.stdin.buffer
    while line := requests.readline():
        form, size = line.split()
        text = extracted(form.decode(), requests.read(int(size)))
        sys.stdout.write(json.dumps(text) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
