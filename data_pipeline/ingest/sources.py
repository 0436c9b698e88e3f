"""Reads sources of mail: a path and its format in, a stream of messages out.

`detect` finds the format by the content. A message's `source` is relative to the given path, and so
the same wherever the mail lies."""

import codecs
import csv
import itertools
import lzma
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
import zlib
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from email.encoders import encode_base64
from functools import lru_cache, partial
from io import BufferedReader, BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from art_e.children import plain_environment
from art_e.errors import UserError, install_command
from art_e.text import encodable
from data_pipeline.ingest import archives, records
from data_pipeline.ingest.charsets import scrub
from data_pipeline.ingest.headers import one_line, parse_date, parse_message_tree
from data_pipeline.ingest.labels import INFO, PROGRAMS, in_order, of_flags, of_maildir, of_path
from data_pipeline.ingest.records import LARGEST_MESSAGE, Format, RawMessage, Skipped
from data_pipeline.synthetic.world import INJECTION, SYNTHETIC, injection_mail, messages, world_of

_PARQUET_MAGIC, _PARQUET_ROWS = b"PAR1", 200
_ENRON_ROOT = "maildir"
_CSV_COLUMNS = ("file", "message")

Reader = Callable[[Path], Iterable[RawMessage]]

_DAMAGE = (EOFError, lzma.LZMAError, zlib.error, tarfile.TarError, zipfile.BadZipFile, csv.Error)


@contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn errors of reading `path` into `UserError`."""
    label = encodable(os.fspath(path))
    try:
        yield
    except (*_DAMAGE, OSError, MemoryError) as error:
        detail = " ".join(str(error).split()) or type(error).__name__
        what = f"{label} is damaged or cut off ({detail}): copy or download it again"
        if isinstance(error, OSError) and error.errno is not None:
            at = encodable(str(error.filename)) if error.filename else label
            what = f"can't read {at} ({error.strerror}): check the path and its permissions"
        elif isinstance(error, MemoryError):
            advice = "give its mail unpacked, or in parts"
            what = f"{label} unpacks to more than ingest's memory limit: {advice}"
        raise UserError(what) from error


# ---- Opening a source of any format.


def open_source(path: str, format: Format) -> Iterator[RawMessage]:  # noqa: A002
    """Return the messages of `path` (path, hub id or `synthetic:`), one at a time. A missing path
    raises `UserError` at once, unreadable content when the iteration gets there."""
    if format == "synthetic":
        return injection_mail() if path == INJECTION else messages(world_of(path))
    if format != "hf" or Path(path).exists():
        _check_there(path)
    return messages_of(path, *_READERS[format])


def messages_of(path: str, read: Reader, content: str) -> Iterator[RawMessage]:
    """Yield the messages that `read` finds in `path`. Raises `UserError` for none, or damage."""
    is_empty = True
    with reading(path):
        for message in read(Path(path)):
            is_empty = is_empty and not message.is_mail
            yield message
    if is_empty:
        raise UserError(f"{encodable(path)} holds no {content}")


def _check_there(path: str) -> None:
    """Raise `UserError` unless `path` is a file or folder: a pipe, say, may never end."""
    if not Path(path).exists():
        why = f"there is no file or folder {encodable(path)}: check the path"
        raise UserError(f"{why} (or give a Hugging Face id OWNER/NAME, or synthetic:SIZE)")
    if not (Path(path).is_file() or Path(path).is_dir()):
        raise UserError(f"{encodable(path)} is neither a file nor a folder: save the mail first")


# ---- Mail in files: mbox, Maildir, MH, and the files of Apple Mail, Thunderbird and Outlook.

_FAULTS = {name: Skipped("", **fault) for name, fault in PROGRAMS["faults"].items()}
_MAILDIR, _DELIVERED, _BESIDE_MAIL, _NUMBERED = map(re.compile, PROGRAMS["files"].values())
_PST_MAGIC, _PLIST, _OLM = b"!BDN", b"<?xml", "com.microsoft.__Messages/"
_IN_MSG = "__properties_version1.0".encode("utf-16-le")
_EMLX_FLAGS = re.compile(rb"<key>flags</key>\s*<integer>(\d{1,20})</integer>")


def _read_mail(path: Path, kind: str | None = None) -> Iterator[RawMessage]:
    """Yield every mail of a file (read as `kind`), archive or folder; other files have a fault."""
    # Apple Mail exports a folder INBOX.mbox with a file mbox.
    top = f"{path.name}/" if path.is_dir() and path.suffix == ".mbox" else ""
    for name, place in archives.files(path):
        part = _MAILDIR.fullmatch(name)
        if isinstance(place, str):
            yield RawMessage(name, b"", fault=Skipped("", "unread", place))
        elif part and (_DELIVERED.search(name) or _is_maildir(path / (part[1] or ""))):
            yield _maildir_message(place, name, part)
        else:
            with _open_mail(place) as stream:
                form = (kind if place == path else None) or _kind_of(name, stream)
                labels = of_path(top + name)
                if form == "pst":
                    yield from _read_pst(name, place)
                elif form == "mbox":
                    yield from _read_mbox(name, stream, labels)
                elif form == "emlx":
                    yield _read_emlx(name, stream, labels, place)
                elif form == "mail":
                    if isinstance(place, Path) and place.name.isdigit():
                        labels = in_order([*labels, *_sequence_labels(place.parent)[place.name]])
                    yield RawMessage(name, stream.read(LARGEST_MESSAGE + 1), labels=labels)
                else:
                    is_packed = place != path and name.lower().endswith(archives.ARCHIVES)
                    yield RawMessage(name, b"", fault=_FAULTS["packed" if is_packed else "other"])


@contextmanager
def _open_mail(place: Path | BufferedReader) -> Iterator[BufferedReader]:
    """Open a file of mail, without its byte order mark and with LF for an old Mac's CR."""
    with archives.decompressed(place) if isinstance(place, Path) else nullcontext(place) as stream:
        if stream.peek(3).startswith(codecs.BOM_UTF8):
            stream.read(3)
        head = stream.peek(_HEAD)
        is_old = b"\r" in head and b"\n" not in head
        translated = archives.buffered(lambda size: stream.read(size).replace(b"\r", b"\n"))
        yield translated if is_old else stream


def _kind_of(name: str, stream: BufferedReader) -> str | None:
    """Return how to read a file: "mail" means a single message, None means that it isn't mail."""
    head, base = stream.peek(_HEAD)[:_HEAD], name.rpartition("/")[2].lower()
    if _BESIDE_MAIL.fullmatch(name):
        return None
    if base.endswith(".eml"):
        return "mail"
    if advice := PROGRAMS["closed"].get("olm" if _OLM in name else head[:4].hex()):
        raise UserError(f"{name} {advice}")
    lines = BytesIO(head.lstrip(b"\r\n"))
    first = lines.readline()
    header_lines = list(_header_block(lines, deque())) if first.startswith(b"From") else []
    is_mbox = bool(_DATED.match(first)) or _is_separator(first, header_lines, True)
    # A mail starts with header lines, some of which only mail has.
    block = _BLANK_LINE.split(head.lstrip(), maxsplit=1)[0]
    names = len(set(_MAIL_HEADER.findall(block))) if _FIRST_LINE.match(block) else 0
    is_mail = names >= (1 if _NUMBERED.fullmatch(base) else 2)
    by_content = {
        "pst": head.startswith(_PST_MAGIC),
        "emlx": base.endswith(".emlx") and head.partition(b"\n")[0].strip().isdigit(),
        "mbox": is_mbox or first.startswith(_MMDF) or (is_mail and base.endswith(".mbox")),
        "mail": is_mail or base.endswith(".msg") or _IN_MSG in head,
    }
    return next((kind for kind, fits in by_content.items() if fits), None)


@lru_cache(maxsize=1)
def _is_maildir(folder: Path) -> bool:
    # Thunderbird has no `new`.
    return (folder / "cur").is_dir() and ((folder / "new").is_dir() or (folder / "tmp").is_dir())


def _maildir_message(place: Path | BufferedReader, name: str, part: re.Match[str]) -> RawMessage:
    """Return a message of a Maildir; other programs may flag, move or delete it meanwhile."""
    source = INFO.split(name, maxsplit=1)[0]  # without the flags (":2,S"), which change
    if part[2] == "tmp":
        return RawMessage(source, b"", fault=_FAULTS["other"])
    folders = [place.parent, place.parent.with_name("cur")] if isinstance(place, Path) else []
    files = itertools.chain.from_iterable(map(archives.regular_files, folders))
    unique = source.rpartition("/")[2]
    renamed = (file for file in files if INFO.split(encodable(file.name))[0] == unique)
    for now in itertools.chain([place], renamed):
        # Dovecot can compress its files.
        with suppress(FileNotFoundError), _open_mail(now) as stream:
            folder, file = now.parts[-2:] if isinstance(now, Path) else (part[2], name)
            labels = of_maildir(f"{part[1] or ''}/{folder}", encodable(file))
            return RawMessage(source, stream.read(LARGEST_MESSAGE + 1), labels=labels)
    return RawMessage(source, b"", fault=_FAULTS["gone"])


@lru_cache(maxsize=1)
def _sequence_labels(folder: Path) -> dict[str, list[str]]:
    """Return the labels by number in MH's file of sequences, such as "unseen: 1-3 7"."""
    labels, file = defaultdict[str, list[str]](list), folder / ".mh_sequences"
    text = archives.head_of(file, _HEAD).decode("utf-8", "replace") if file.is_file() else ""
    sequences = dict(line.partition(":")[::2] for line in text.splitlines())
    for name, label in PROGRAMS["sequences"].items():
        spans = re.findall(r"(\d{1,9})(?:-(\d{1,9}))?", sequences.get(name, ""))
        numbers = (range(int(first), int(last or first) + 1) for first, last in spans)
        for number in itertools.islice(itertools.chain.from_iterable(numbers), _HEAD):
            labels[str(number)].append(label)
    return labels


def _read_emlx(
    name: str, stream: BufferedReader, labels: tuple[str, ...], place: Path | BufferedReader
) -> RawMessage:
    """Return a message of Apple Mail, without the size before it and the properties after it."""
    size, data = int(stream.readline(40)), stream.read(LARGEST_MESSAGE + _HEAD)
    if not data[size:].lstrip().startswith(_PLIST):  # a wrong size
        size = data.rfind(_PLIST) if _PLIST in data else len(data)
    if flags := _EMLX_FLAGS.search(data, size):
        labels = in_order([*labels, *of_flags("emlx", int(flags[1]))])
    if ".partial." not in name:
        return RawMessage(name, data[:size], labels=labels)
    folder = place.parents[1] / "Attachments" if isinstance(place, Path) else Path(os.devnull)
    message, lacks = _with_files(data[:size], folder / name.rpartition("/")[2].partition(".")[0])
    return RawMessage(name, message, labels=labels, fault=_FAULTS["partial"] if lacks else None)


def _with_files(message: bytes, folder: Path) -> tuple[bytes, bool]:
    """Restore parts that Apple Mail keeps in files "PART/NAME"; return whether any is missing."""
    tree = parse_message_tree(message)
    lacking = sum("x-apple-content-length" in part for part in tree.walk()) or 1
    for file in archives.regular_files(folder) if folder.is_dir() else ():
        part: Any = tree
        with suppress(LookupError, TypeError, ValueError, AttributeError):
            for number in file.parent.name.split("."):
                part = part.get_payload()[int(number) - 1]
            part.replace_header("x-apple-content-length", "0")
            part.set_payload(archives.head_of(file, LARGEST_MESSAGE))
            del part["content-transfer-encoding"]
            encode_base64(part)
            lacking -= 1
    with suppress(LookupError, ValueError, RecursionError):
        return tree.as_bytes(), lacking > 0
    return message, True


def _read_pst(name: str, file: Path | BufferedReader) -> Iterator[RawMessage]:
    """Yield the mails of an Outlook data file, which libpst's `readpst` extracts."""
    if (readpst := shutil.which("readpst")) is None or not isinstance(file, Path):
        raise UserError(f"{name} {PROGRAMS['closed']['pst']}")
    with tempfile.TemporaryDirectory() as folder:
        # Include deleted items; write each mail to its own file, text in UTF-8.
        command = [readpst, "-D", "-e", "-8", "-q", "-j", "0", "-o", folder, str(file.absolute())]
        run = subprocess.run(command, capture_output=True, check=False, env=plain_environment())
        if run.returncode:
            reply = (run.stderr + run.stdout).decode("utf-8", "replace").split("\n")[0][:200]
            raise UserError(f"readpst can't read {file} ({reply}): is it whole? copy it again")
        for mail in _read_mail(Path(folder)):
            yield mail._replace(source=f"{name}/{mail.source}")


def read_enron(path: Path) -> Iterator[RawMessage]:
    """Yield the mails `maildir/<owner>/<folder...>/<number>` of a tar archive, of the folder
    `maildir`, its parent or a child."""
    root = path / _ENRON_ROOT if (path / _ENRON_ROOT).is_dir() else path
    above = root.resolve().parts[-2:] if root.is_dir() else ()
    for file in archives.regular_files(root) if root.is_dir() else archives.tar_members(path):
        if isinstance(file, Path):
            name = file.relative_to(root).as_posix()
            data = archives.head_of(file, LARGEST_MESSAGE + 1)
        else:
            name, data = file[0], file[1](LARGEST_MESSAGE + 1)
        # Paths start at `maildir`, whatever folders are above it.
        parts = [*above, *(part for part in name.split("/") if part not in ("", ".", ".."))]
        start = parts.index(_ENRON_ROOT) + 1 if _ENRON_ROOT in parts else len(above)
        yield RawMessage(encodable("/".join([_ENRON_ROOT, *parts[start:]])), data)


# ---- mbox: Gmail Takeout, Thunderbird, mutt.

_DATED, *_UNDATED = (re.compile(form.encode()) for form in PROGRAMS["separators"].values())
_DAYS = frozenset("Mon Tue Wed Thu Fri Sat Sun".split())
_HEADER = re.compile(rb"[!-9;-~]+[ \t]*:|[ \t]+\S|>From ")
_QUOTED = re.compile(rb"^>(>*From )", re.MULTILINE)
_LONGEST_READ, _LONGEST_HEADERS = 1 << 20, 1 << 18  # bytes of a line, of a header block
_MMDF = b"\1\1\1\1"  # the line before and after each message of MMDF
_LENGTH = re.compile(rb"^Content-Length:[ \t]*(\d{1,8})\s*$", re.IGNORECASE | re.MULTILINE)
# UW-IMAP and Pine keep internal data in the first message of a mailbox.
_NOTES = b"\nX-IMAP", b"\nSubject: DON'T DELETE THIS MESSAGE -- FOLDER INTERNAL DATA"


def _read_mbox(name: str, stream: BufferedReader, labels: tuple[str, ...]) -> Iterator[RawMessage]:
    """Yield the messages of a file. `source` is "<file name>#<number>"."""
    for number, (separator, data) in enumerate(_split_mbox(stream), start=1):
        source = f"{name}#{number}"
        if number == 1 and all(note in b"\n" + data[:2000] for note in _NOTES):
            yield RawMessage(source, b"", fault=_FAULTS["notes"])
            continue
        words = separator.decode("ascii", "replace").replace(" DST", "").split()
        days = [at for at, word in enumerate(words) if word.rstrip(",") in _DAYS]
        date = words[days[-1] if days else 2 :]
        if days and len(date) in (5, 6) and date[1].isalpha():  # as C writes it, zone before year
            _, month, day, time, *zone, year = date
            date = [day, month, year, time, *(zone or ["+0000"])]
        sent = parse_date(" ".join(date))
        yield RawMessage(source, _QUOTED.sub(rb"\1", data), sent, labels, in_mbox=True)


def _split_mbox(stream: BufferedReader) -> Iterator[tuple[bytes, bytes]]:
    """Yield the From_ line ("" before the first one) and the quoted bytes of each message."""
    separator, data, before = b"", bytearray(), b"\n"
    ahead = deque[bytes]()
    is_mmdf, is_counted = stream.peek(4).startswith(_MMDF), True
    while line := ahead.popleft() if ahead else stream.readline(_LONGEST_READ):
        if is_mmdf and line.strip() == _MMDF:
            if data:
                yield separator, bytes(data)
            separator, data, line = b"", bytearray(), b""
        elif line.startswith(b"From") and line[4:5].isspace() and before.endswith(b"\n"):
            block = list(_header_block(stream, ahead))
            # Strip short data only, because any line may get here.
            is_first = not separator and len(data) < 1000 and not data.strip()
            if _is_separator(line, block, not before.strip()) or (is_first and _DATED.match(line)):
                if not is_first:
                    yield separator, bytes(data)
                separator, data, line = line, bytearray(), b""
                # Some programs put their own From_ line above an existing one.
                if block[0].startswith(b"From "):
                    ahead.popleft()
                if is_counted:
                    is_counted, stream = _take_counted(stream, ahead, data)
        if len(data) <= LARGEST_MESSAGE:
            data += line
        # In MMDF only the first line can be a From_ line.
        before = b"" if is_mmdf and data else line or b"\n"
    if separator or data.strip():
        yield separator, bytes(data)


def _take_counted(
    stream: BufferedReader, ahead: deque[bytes], data: bytearray
) -> tuple[bool, BufferedReader]:
    """Move the headers `ahead` and a body of their Content-Length (mboxcl) to `data`, if the next
    message or the end follows it. Return whether it does, and the rest of the stream."""
    block = b"".join(ahead)
    if (length := _LENGTH.search(block)) is None:
        return False, stream
    body = stream.read(min(int(length[1]), LARGEST_MESSAGE))
    after = [stream.readline(_LONGEST_READ) for _ in range(2)]
    following = b"".join(after).lstrip(b"\r\n")
    if len(body) < int(length[1]) or (following and not following.startswith(b"From ")):
        rest = BytesIO(body + b"".join(after))
        return False, archives.buffered(lambda size: rest.read(size) or stream.read(size))
    data += block
    data += body
    ahead.clear()
    ahead.extend(filter(None, after))
    return True, stream


def _header_block(stream: BinaryIO, ahead: deque[bytes]) -> Iterator[bytes]:
    """Yield lines up to and including the first that isn't a header; they stay in `ahead`."""
    size, at = 0, 0
    while size < _LONGEST_HEADERS:
        if at == len(ahead):
            ahead.append(stream.readline(_LONGEST_READ))
        line = ahead[at]
        yield line
        size, at = size + len(line), at + 1
        if not _HEADER.match(line) and not (at == 1 and line.startswith(b"From ")):
            return


def _is_separator(line: bytes, block: Sequence[bytes], follows_blank: bool) -> bool:
    """Return whether a line "From ..." separates messages, by its form and the headers after it."""
    names = len(set(_MAIL_HEADER.findall(b"".join(block).lower())))
    is_whole = len(block) > 1 and not block[-1].strip()
    if _DATED.match(line):
        return names >= 3 or (is_whole and (follows_blank or names > 0))
    is_likely = is_whole and names >= (2 if follows_blank else 4)
    return is_likely and any(form.fullmatch(line.rstrip()) for form in _UNDATED)


# ---- Tables: Kaggle's emails.csv of Enron mail, data sets with the columns of corbt/enron-emails.

_NEEDED = ("message_id", "subject", "from", "to", "date", "body")


def _read_csv(path: Path) -> Iterator[RawMessage]:
    """Yield the column `message` of a CSV file, "" if missing; `source` is the column `file`."""
    # A field is a whole message; the default limit of 128 KB is far too small.
    csv.field_size_limit(2 * LARGEST_MESSAGE)
    with (
        archives.decompressed(path) as stream,
        TextIOWrapper(stream, "utf-8-sig", errors="surrogateescape", newline="") as text,
    ):
        rows = csv.reader(text, strict=True)
        header = next(rows, [])
        if not set(_CSV_COLUMNS) <= set(header):
            raise UserError(f"{path} lacks the columns {' and '.join(_CSV_COLUMNS)}: see --format")
        row = header
        for count, row in enumerate(rows, start=1):
            file, message = map(dict(zip(header, row, strict=False)).get, _CSV_COLUMNS)
            source = encodable(file or "") or f"{encodable(path.name)}#{count}"
            yield RawMessage(source, (message or "").encode("utf-8", "surrogateescape"))
        if 0 < len(row) < len(header):
            raise csv.Error("the last row lacks columns")


def _read_huggingface(path: Path) -> Iterator[RawMessage]:
    """Yield the mails of Parquet files or of a hub data set; `source` is the column file_name."""
    local = path.exists()
    rows = _parquet_rows(path) if local else _hub_rows(path.as_posix())
    name = encodable(path.name if local else path.as_posix())
    for number, row in enumerate(rows, start=1):
        if missing := [column for column in _NEEDED if column not in row]:
            why = f"{path} lacks the columns {', '.join(missing)}"
            raise UserError(f"{why}: it needs the shape of corbt/enron-emails")
        yield RawMessage(str(row.get("file_name") or f"{name}#{number}"), row_message(row))


def row_message(row: Mapping[str, Any]) -> bytes:
    """Return the message that a row of a data set holds in columns."""
    lines = []
    for name in ("message_id", "subject", "from", "to", "cc", "bcc", "date"):
        value = row.get(name)  # None and single strings occur among lists, too
        items = filter(None, value if isinstance(value, list) else [value])
        lines += [f"{name.replace('_', '-')}: {one_line(str(item))}" for item in items]
    body = "" if row["body"] is None else str(row["body"])
    return scrub("\n".join([*lines, "", body])).encode()


def _parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    # The default pool reserves a gigabyte at once, beyond any limit.
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        for file in filter(Path.is_file, files):
            with records.limited_memory():
                table = pq.ParquetFile(file)
            with table:
                # A thread that runs out of memory would end the process.
                batches = table.iter_batches(_PARQUET_ROWS, use_threads=False)
                while True:
                    with records.limited_memory():
                        if (batch := next(batches, None)) is None:
                            break
                        rows = batch.to_pylist()
                    yield from rows
    except (ValueError, RuntimeError, TypeError) as error:
        raise UserError(f"{path} isn't readable Parquet: write or download it again") from error


def _hub_rows(hub_id: str) -> Iterator[Mapping[str, Any]]:
    try:
        from datasets import load_dataset

        splits = load_dataset(hub_id, streaming=True)
        for split in sorted(splits):
            yield from splits[split]
    except ModuleNotFoundError as error:
        needs = f"data sets of the Hugging Face hub need {error.name}: {install_command('eval')}"
        raise UserError(f"there is no file or folder {hub_id}, and {needs}") from error
    except (OSError, ValueError, RuntimeError) as error:
        detail = " ".join(str(error).split())[:200]
        why = f"the Hugging Face data set of that name can't be loaded ({detail})"
        fix = "check the name and the network, or download its Parquet files and give their folder"
        raise UserError(f"there is no file or folder {hub_id}, and {why}: {fix}") from error


_NO_MAIL = "mail: give a mailbox, a folder of one, or .eml files"
_READERS: dict[Format, tuple[Reader, str]] = {
    "enron": (read_enron, "files: give the maildir folder or an archive of it"),
    "mail": (_read_mail, _NO_MAIL),
    "maildir": (_read_mail, _NO_MAIL),
    "mbox": (partial(_read_mail, kind="mbox"), _NO_MAIL),
    "eml": (partial(_read_mail, kind="mail"), _NO_MAIL),
    "csv": (_read_csv, "rows: download it again"),
    "hf": (_read_huggingface, "mail: give a Parquet file, a folder or a hub id"),
}


# ---- The format of a source, by its content.

_MAX_FILES, _HEAD = 10_000, 1 << 16  # files of a folder; bytes of a file
_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*", re.ASCII)
_BLANK_LINE = re.compile(rb"\r?\n\r?\n")
_FIRST_LINE = re.compile(rb"[!-9;-~]+[ \t]*:|From ")
_MAIL_HEADER = re.compile(rf"(?im)^(?:{PROGRAMS['headers']['mail']})[ \t]*:".encode())


def detect(path_or_id: str) -> Format:
    """Return the format of a path, hub id or `synthetic:` string; `UserError` if there is none."""
    if path_or_id.startswith(SYNTHETIC):
        return "synthetic"
    path = Path(path_or_id)
    if not path.exists() and _HUB_ID.fullmatch(path_or_id):
        return "hf"
    _check_there(path_or_id)
    with reading(path):
        for name, place in itertools.islice(archives.files(path), _MAX_FILES):
            if isinstance(place, str):
                continue
            with _open_mail(place) as stream:
                head = stream.peek(_HEAD)[:_HEAD]
                kind = _kind_of(name, stream)
            if isinstance(place, Path) and head.startswith(_PARQUET_MAGIC):
                return "hf"
            is_numbered = "/" in name and _NUMBERED.fullmatch(name.rpartition("/")[2])
            block = b"\n" + _BLANK_LINE.split(head, maxsplit=1)[0]
            headers = PROGRAMS["headers"]["enron"]
            is_enron = is_numbered and all(f"\n{name}:".encode() in block for name in headers)
            # Either a tar archive, or a folder of plain files.
            if is_enron and path.is_dir() == isinstance(place, Path):
                return "enron"
            columns = head.partition(b"\n")[0].decode("utf-8", "replace").split(",")
            if place == path and set(_CSV_COLUMNS) <= {column.strip(' "\r') for column in columns}:
                return "csv"
            if kind is not None:
                return "mail"
    named = f"name its format with --format {'|'.join(records.FORMATS)}"
    fix = f"save it as mbox, .eml or Maildir, unpack archives in it, or {named}"
    raise UserError(f"{path_or_id} holds no mail that can be recognised: {fix}")
