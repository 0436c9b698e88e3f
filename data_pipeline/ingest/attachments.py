"""The text of attachments, and mail that is packed into one.

Libraries read all but plain text in a child process with limits of memory and time, because a file
can be made to use up both: this module run as a program is that process. It serves its parent until
that closes the pipe."""

import atexit
import contextlib
import io
import json
import os
import re
import resource
import select
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from email.message import EmailMessage
from subprocess import Popen
from typing import IO, Any, TypeAlias

from lxml import etree
from python_calamine import CalamineWorkbook
from striprtf.striprtf import rtf_to_text
from tnefparse import TNEF
from tnefparse.properties import MAPI_ATTACH_LONG_FILENAME

from art_e.children import start_reader
from art_e.inbox.mail import AttachedFile
from art_e.text import toml_table
from data_pipeline.ingest import outlook
from data_pipeline.ingest.charsets import decode_bytes, scrub
from data_pipeline.ingest.headers import BINARY, PartType, one_line
from data_pipeline.ingest.records import LARGEST_FILE

MAX_CHARS = 50_000  # of the text of one attachment
MEMORY_BYTES = 330_000_000  # of address space, of which the libraries take 200 MB
_MAX_PACKED = 20  # files of an archive that are read

# Why the text of a file is not read, or not whole.
PICTURE, OLD, UNKNOWN = "image or sound", "of an old Office format", "of unknown format"
LOCKED, DAMAGED, NO_TEXT = "encrypted or password-protected", "damaged", "without text"
CUT, LARGE = f"longer than {MAX_CHARS:,} characters", f"larger than {LARGEST_FILE // 10**6} MB"
HEAVY = "too slow or too large to read"

_MAIL, _PARTS = "message/rfc822", "multipart/mixed"
PACKED = {"mail": _MAIL, "msg": _MAIL, "pkcs7": _PARTS, "winmail": _PARTS}
READ = (*PACKED, "pdf", "rtf", "ole", "zip")
_FORMS: dict[str, dict[str, str]] = toml_table(__package__, "forms.toml")
_STARTS = {start.encode("latin-1"): form for start, form in _FORMS["starts"].items()}
_NAMES = {name: form for form, names in _FORMS["names"].items() for name in names.split()}
_STREAMS = {name.encode("utf-16-le"): form for name, form in _FORMS["ole"].items()}

Reading: TypeAlias = tuple[str, str]  # a text, and why it is not read or not whole, or ""
_Ask: TypeAlias = Callable[[str, bytes], Reading]


def form_of(file: AttachedFile) -> str:
    """Return the form of a file, see forms.toml."""
    start = (file.data or b"")[:4096]
    lower = start.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    names = file.kind, file.name.rpartition(".")[2].lower(), file.kind.partition("/")[0]
    forms = [form for signature, form in _STARTS.items() if lower.startswith(signature)]
    forms += [_NAMES[name] for name in names if name in _NAMES]
    forms += [file.kind] if file.kind.startswith("text/") else []
    binary = "pdf" if b"%pdf-" in lower else UNKNOWN
    form = (*forms, binary if BINARY.search(start) else "text/plain")[0]
    inside = (_STREAMS[name] for name in _STREAMS if name in (file.data or b""))
    return next(inside, form) if form == "ole" else form


def read(file: AttachedFile, ask: _Ask, decode: Callable[[bytes, PartType], str]) -> Reading:
    """Return the text of a file, cut. `decode` reads plain text, `ask` all other forms."""
    form, data = form_of(file), file.data
    if data is None:
        return "", LARGE
    if form.startswith("text/"):
        text = decode(data, PartType(form, file.charset))
        return text[:MAX_CHARS], CUT if len(text) > MAX_CHARS else ""
    if form not in READ or not data:
        return "", form if data else ""
    return ask(form, data)


class Extractor:
    """Reads attachments until the time `ends`, in a child that is replaced if it dies or hangs."""

    _child: Popen[bytes] | None = None
    ends = 0.0

    def ask(self, form: str, data: bytes) -> Reading:
        """Return the child's reading of a file of this form."""
        if (seconds := self.ends - time.monotonic()) <= 0:
            return "", HEAVY
        if self._child is None or self._child.poll() is not None:
            self.close()
            self._child = start_reader("data_pipeline.ingest.attachments")
            atexit.register(self.close)
        child = self._child
        assert child.stdin is not None and child.stdout is not None
        with contextlib.suppress(OSError, ValueError):
            child.stdin.write(f"{form} {len(data)}\n".encode() + data)
            child.stdin.flush()
            if select.select([child.stdout], [], [], seconds)[0]:
                text, unread = json.loads(child.stdout.readline())
                return text, unread
        self.close()
        return "", HEAVY

    def close(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
        self._child = None
        atexit.unregister(self.close)


# ---- The child.


def _parts(form: str, file: io.BytesIO) -> Iterator[str]:
    """Yield the text of a file part by part; for packed mail, its MIME bytes as Latin-1."""
    match form:
        case "pdf":
            from pypdf import PdfReader

            reader = PdfReader(file)
            yield from (page.extract_text() for page in reader.pages)
            fields = reader.get_form_text_fields() or {}
            yield from (f"{name}: {value}" for name, value in fields.items() if value)
        case "rtf":
            yield rtf_to_text(file.read().decode("latin-1"), errors="replace")
        case "zip":
            yield from _zip(file)
        case "ole":
            yield from _sheets(file)  # Excel before 2007
        case "mail":
            yield file.read().decode("latin-1")
        case "msg":
            yield outlook.convert_msg(file.read()).decode("latin-1")
        case "pkcs7":
            from asn1crypto.cms import ContentInfo

            message = ContentInfo.load(file.read())
            if message["content_type"].native != "signed_data":
                raise ValueError(LOCKED)
            yield message["content"]["encap_content_info"]["content"].native.decode("latin-1")
        case "winmail":
            data = file.read()
            packed = TNEF(data[:6] + _CODE_PAGE + data[6:], do_checksum=False)
            if packed.has_body() or packed.attachments:
                yield _mime(packed).as_bytes().decode("latin-1")


_OFFICE = _FORMS["office"]
_TEXTS, _FIRST = re.compile(_OFFICE["texts"]), re.compile("document|content")
# An attribute that sets Latin-1, by which tnefparse decodes unless another one follows.
_CODE_PAGE = bytes.fromhex("010790060004000000af6f00001e01")


def _zip(file: io.BytesIO) -> Iterator[str]:
    archive = zipfile.ZipFile(file)
    names = [name for name in archive.namelist() if not name.endswith("/")]
    if any(name.startswith("xl/workbook.") for name in names):
        yield from _sheets(file)
    elif texts := [name for name in names if _TEXTS.fullmatch(name)]:
        for name in sorted(texts, key=lambda name: (not _FIRST.search(name), len(name))):
            yield "".join(_paragraphs(archive.open(name))).strip()
    else:
        for name in names[:_MAX_PACKED]:
            packed = AttachedFile(name, "", archive.read(name))
            text, unread = read(packed, extract, lambda data, _: decode_bytes(data))
            yield f"[{name}]\n{text or unread}"
        if more := len(names[_MAX_PACKED:]):
            yield f"[{more:,} more files, which are not read]"


def _paragraphs(part: IO[bytes]) -> Iterator[str]:
    parser = etree.XMLParser(resolve_entities=False, no_network=True)  # entities could name files
    root = etree.parse(part, parser).getroot()
    etree.strip_elements(root, *_OFFICE["hidden"].split(), with_tail=False)
    for gap in root.iter("{*}tab", "{*}br", "{*}s", "{*}line-break"):
        gap.text = " "
    for inner in root.findall(".//{*}p//{*}p"):  # a footnote, a box of text
        inner.tag, inner.text = "inner", f" {inner.text or ''}"
    for element in root.iter("{*}p", "{*}h", "{*}tr", "{*}table-row"):
        cell = next(element.iterancestors("{*}tc", "{*}table-cell", "{*}body"), root)
        yield "\t" if cell.tag.endswith(("}tc", "cell")) else "\n"
        yield "" if element.tag.endswith(("}tr", "row")) else "".join(map(str, element.itertext()))


def _sheets(file: io.BytesIO) -> Iterator[str]:
    file.seek(0)
    book = CalamineWorkbook.from_filelike(file)
    for name in book.sheet_names:
        yield name
        for row in book.get_sheet_by_name(name).iter_rows():
            cells = [f"{cell:.15g}" if isinstance(cell, float) else str(cell) for cell in row]
            if any(cells):
                yield "\t".join(cells).rstrip()


def _mime(packed: Any, subject: str = "") -> EmailMessage:
    """Return the mail that Outlook packed: its body, then its files."""

    def text(value: str | bytes) -> str:
        return scrub(value if isinstance(value, str) else decode_bytes(value, packed.codepage))

    mail = EmailMessage()
    mail["Subject"] = subject
    rtf = "".join(_parts("rtf", io.BytesIO(packed.rtfbody or b"")))
    body = text(packed.htmlbody or packed.body or rtf)
    mail.set_content(body, "html" if packed.htmlbody else "plain")
    mail.make_mixed()
    for file in packed.attachments:
        names = [each.data for each in file.mapi_attrs if each.name == MAPI_ATTACH_LONG_FILENAME]
        name = one_line(text([*names, file._name][0]))
        if hasattr(file, "embed"):
            mail.add_attachment(_mime(file.embed, name))
        else:
            mail.add_attachment(bytes(file.data), "application", "octet-stream", filename=name)
    return mail


# Patterns of the libraries' errors, and the reasons; other errors mean a damaged file.
_ERRORS = {"memory": HEAVY, "password|crypt": LOCKED, "cannot detect file format": OLD}


def extract(form: str, data: bytes) -> Reading:
    """Return the text of a file as far as it can be read, or the MIME of packed mail."""
    limit = 2 * LARGEST_FILE if form in PACKED else MAX_CHARS
    text = ""
    try:
        for part in _parts(form, io.BytesIO(data)):
            text += f"\n{part}" if text else part
            if len(text) > limit:
                return text[:limit], CUT
    except Exception as error:  # noqa: BLE001 - the libraries raise many kinds over damaged files
        words = f"{type(error).__name__} {error}"
        reasons = (_ERRORS[word] for word in _ERRORS if re.search(word, words, re.IGNORECASE))
        return text, next(reasons, DAMAGED)
    return text, "" if text.strip() else NO_TEXT


def main() -> None:
    """Answer requests ("FORM SIZE", then that many bytes) with a `Reading` as a line of JSON."""
    os.environ["OMP_NUM_THREADS"] = "1"  # each thread of NumPy takes address space
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    requests: Any = sys.stdin.buffer
    while line := requests.readline():
        form, size = line.split()
        sys.stdout.write(json.dumps(extract(form.decode(), requests.read(int(size)))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
