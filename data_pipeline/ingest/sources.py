"""Where mail comes from: a path and its format in, a stream of messages out.

`detect` finds the format by looking at the content. A message's `source` is the same wherever
the same mail lies.
"""

import contextlib
import csv
import datetime as dt
import gzip
import io
import itertools
import lzma
import os
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter, ValidationError

from art_e.errors import UserError
from art_e.question import Question, Split
from art_e.text import encodable
from data_pipeline.ingest import archives, records
from data_pipeline.ingest.headers import parse_date
from data_pipeline.ingest.imap import is_account, read_spool
from data_pipeline.ingest.labels import BEFORE_FLAGS, of_file, of_maildir
from data_pipeline.ingest.records import FORMATS, LARGEST_MESSAGE, Format, MailFields, RawMessage
from data_pipeline.synthetic.world import WORLD as INJECTED
from data_pipeline.synthetic.world import WorldConfig, attacks, injection_mail, messages, questions

_PARQUET_MAGIC, _PARQUET_ROWS = b"PAR1", 200
_ENRON_ROOT = "maildir"
_MAILDIR_FOLDERS = frozenset({"cur", "new"})
_CSV_COLUMNS = ("file", "message")
_SYNTHETIC = "synthetic:"
_INJECTION = "synthetic:injection"
_WORLD: TypeAdapter[WorldConfig] = TypeAdapter(WorldConfig)
_SPLIT: TypeAdapter[Split] = TypeAdapter(Split)

Reader = Callable[[Path], Iterable[RawMessage | MailFields]]

_DAMAGE = (
    EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile, tarfile.TarError, zipfile.BadZipFile,
    csv.Error,
)  # fmt: skip


@contextlib.contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn what goes wrong while `path` is read into a `UserError`."""
    shown = encodable(os.fspath(path))
    try:
        yield
    except _DAMAGE as error:
        detail = " ".join(str(error).split()) or type(error).__name__
        what = f"{shown} is damaged or cut off ({detail}): copy or download it again"
        raise UserError(what) from error
    except MemoryError as error:
        what = f"{shown} unpacks to more than ingest may hold: give its mail unpacked, or in parts"
        raise UserError(what) from error
    except OSError as error:
        at = encodable(str(error.filename)) if error.filename else shown
        why = error.strerror or str(error)
        raise UserError(f"can't read {at} ({why}): check the path and its permissions") from error


def _message(path: Path, folder: Path, prefix: str = "") -> RawMessage:
    """The message in a file of a folder, cut one byte beyond what the parser accepts."""
    source = f"{prefix}{encodable(path.relative_to(folder).as_posix())}"
    return RawMessage(source, archives.head_of(path, LARGEST_MESSAGE + 1))


# ---- Opening a source of any format.


def open_source(path: str, format: Format) -> Iterator[RawMessage | MailFields]:  # noqa: A002
    """The messages of `path` (a path, a hub id, or `synthetic:...`), one at a time. A path that
    doesn't exist raises `UserError` at once, what can't be read when the reading gets there."""
    if format == "synthetic":
        return injection_mail() if path == _INJECTION else messages(described(path).config)
    if format != "hf" or Path(path).exists():
        _check_there(path)
    return _read(path, *_READERS[format])


def _read(path: str, read: Reader, nothing: str) -> Iterator[RawMessage | MailFields]:
    is_empty = True
    with reading(path):
        for message in read(Path(path)):
            is_empty = False
            yield message
    if is_empty:
        raise UserError(f"{encodable(path)} holds no {nothing}")


def _check_there(path: str) -> None:
    """Raise `UserError` unless `path` is a file or folder: a pipe, say, may never end."""
    if not Path(path).exists():
        raise UserError(
            f"there is no file or folder {encodable(path)}: check the path "
            "(or give a Hugging Face id OWNER/NAME, or synthetic:SIZE)"
        )
    if not (Path(path).is_file() or Path(path).is_dir()):
        raise UserError(f"{encodable(path)} is no file or folder: save the mail in one first")


# ---- Files with one message each: .eml, Maildir, Enron's tree.


def _read_eml(path: Path) -> Iterator[RawMessage]:
    """One message in a file, or all .eml files of a folder or an archive."""
    for name, stream in archives.files_with(path, ".eml"):
        if isinstance(stream, str):
            yield RawMessage(name, b"", unread=stream)
        else:
            yield RawMessage(name, stream.read(LARGEST_MESSAGE + 1))


def _read_maildir(path: Path) -> Iterator[RawMessage]:
    """A Maildir and its subfolders of either layout (`.Sent`, `Sent/`); `tmp` isn't mail yet."""
    for file in archives.regular_files(path):
        if file.parent.name in _MAILDIR_FOLDERS and not file.name.startswith("."):
            # Without the flags (":2,S"), which change when a mail is read.
            source = BEFORE_FLAGS.split(encodable(file.relative_to(path).as_posix()), maxsplit=1)[0]
            now, message = _live_message(file, path)
            labels = of_maildir(encodable(now.parent.relative_to(path).as_posix()), now.name)
            yield message._replace(source=source, labels=labels)


def _live_message(file: Path, folder: Path) -> tuple[Path, RawMessage]:
    """The message of a file that another program may move or delete meanwhile, and where it was."""
    with contextlib.suppress(FileNotFoundError):
        return file, _message(file, folder)
    # It was flagged, or moved on to `cur`.
    name = BEFORE_FLAGS.split(file.name, maxsplit=1)[0]
    folders = (file.parent, file.parent.with_name("cur"))
    files = (each for folder in folders for each in archives.regular_files(folder))
    same = (each for each in files if BEFORE_FLAGS.split(each.name, maxsplit=1)[0] == name)
    with contextlib.suppress(FileNotFoundError):
        now = next(same, file)
        return now, _message(now, folder)
    return file, RawMessage("", b"", gone=True)


def read_enron(path: Path) -> Iterator[RawMessage]:
    """A tar archive of `maildir/<owner>/<folder...>/<number>`, `maildir`, a folder that holds it,
    or one owner's folder."""
    if not path.is_dir():
        with archives.decompressed(path) as stream:
            for name, member in archives.tar_members(stream):
                data = member.take(LARGEST_MESSAGE + 1)
                # From `maildir` on, whatever folders an archive puts above it.
                parts = [part for part in encodable(name).split("/") if part not in ("", ".", "..")]
                start = parts.index(_ENRON_ROOT) + 1 if _ENRON_ROOT in parts else 0
                yield RawMessage("/".join([_ENRON_ROOT, *parts[start:]]), data)
        return
    root = path / _ENRON_ROOT if (path / _ENRON_ROOT).is_dir() else path
    owner = root.resolve()
    is_owner = owner.parent.name == _ENRON_ROOT
    prefix = f"{_ENRON_ROOT}/{encodable(owner.name)}" if is_owner else _ENRON_ROOT
    for file in archives.regular_files(root):
        yield _message(file, root, f"{prefix}/")


# ---- mbox: Gmail Takeout, Thunderbird, mutt.

# A From_ line has a time and a year; in the middle of a file a header must follow.
_SEPARATOR = re.compile(rb"From (?=.{0,1000}$)(?=.*\b\d{1,2}:\d\d)(?=.*\b\d{4}\b)")
_HEADER = re.compile(rb"[!-9;-~]+[ \t]*:|>?From ")
_QUOTED = re.compile(rb"^>(>*From )", re.MULTILINE)
_LONGEST_READ = 1 << 20


def _read_mbox(path: Path) -> Iterator[RawMessage]:
    """A file, or all .mbox files of a folder or an archive. `source` is "<file name>#<number>"."""
    for name, stream in archives.files_with(path, ".mbox"):
        if isinstance(stream, str):
            yield RawMessage(name, b"", unread=stream)
            continue
        for number, (separator, data) in enumerate(_pieces(stream), start=1):
            source = f"{name.rpartition('/')[2]}#{number}"
            date = parse_date(" ".join(separator.decode("ascii", "replace").split()[2:]))
            yield RawMessage(source, _QUOTED.sub(rb"\1", data), date, of_file(name), in_mbox=True)


def _pieces(stream: BinaryIO) -> Iterator[tuple[bytes, bytes]]:
    """From_ line and quoted bytes of each message, holding one message at a time."""
    current = b""  # the From_ line of the message being read
    candidate = b""  # a From_ line on which the next line decides
    data = bytearray()
    at_line_start = True
    for line in iter(lambda: stream.readline(_LONGEST_READ), b""):
        if candidate:
            if not current or _HEADER.match(line):
                if current:
                    yield current, bytes(data)
                current, data = candidate, bytearray()
            else:
                data += candidate
            candidate = b""
        if at_line_start and _SEPARATOR.match(line):
            candidate = line
        elif current and len(data) <= LARGEST_MESSAGE:
            data += line
        at_line_start = line.endswith(b"\n")
    if current:
        yield current, bytes(data + candidate)


# ---- Tables: Kaggle's emails.csv of Enron's mail, and data sets of the shape of
# corbt/enron-emails.

_NEEDED = ("message_id", "subject", "from", "to", "date", "body")


def _read_csv(path: Path) -> Iterator[RawMessage]:
    """The column `message` of a CSV file, "" if a row lacks it; `source` is the column `file`."""
    # A field is a whole message; the default limit of 128 KB is far too small.
    csv.field_size_limit(2 * LARGEST_MESSAGE)
    with (
        archives.decompressed(path) as stream,
        io.TextIOWrapper(stream, "utf-8-sig", errors="surrogateescape", newline="") as text,
    ):
        rows = csv.reader(text, strict=True)
        header = next(rows, [])
        if not set(_CSV_COLUMNS) <= set(header):
            raise UserError(f"{path} lacks the columns {' and '.join(_CSV_COLUMNS)}: see --format")
        columns = [header.index(name) for name in _CSV_COLUMNS]
        row = header
        for count, row in enumerate(rows, start=1):
            file, message = (row[column] if column < len(row) else "" for column in columns)
            source = encodable(file) or f"{encodable(path.name)}#{count}"
            yield RawMessage(source, message.encode("utf-8", "surrogateescape"))
        if 0 < len(row) < len(header):
            raise csv.Error("the last row lacks columns")


def _read_huggingface(path: Path) -> Iterator[MailFields]:
    """Parquet files, or all splits of a data set of the hub; `source` is the column file_name."""
    local = path.exists()
    rows = _parquet_rows(path) if local else _hub_rows(path.as_posix())
    name = encodable(path.name if local else path.as_posix())
    for number, row in enumerate(rows, start=1):
        if missing := [column for column in _NEEDED if column not in row]:
            raise UserError(
                f"{path} lacks the columns {', '.join(missing)}: "
                "it needs the shape of corbt/enron-emails"
            )
        source = _text(row.get("file_name")) or f"{name}#{number}"
        message_id, subject, sender, body = (
            _text(row[column]) for column in ("message_id", "subject", "from", "body")
        )
        to, cc, bcc = (_texts(row.get(role)) for role in ("to", "cc", "bcc"))
        date = row["date"]
        if not isinstance(date, dt.datetime):
            date = parse_date(_text(date))
        yield MailFields(source, message_id, subject, sender, to, cc, bcc, date, body)


def _parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    found = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    files = [file for file in found if file.is_file()]
    # The default pool has a gigabyte before it starts, beyond any limit.
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        for file in files:
            with records.limited_memory():
                table = pq.ParquetFile(file)
            with table:
                # A thread that lacks memory would end the process.
                batches = table.iter_batches(_PARQUET_ROWS, use_threads=False)
                while rows := _next_rows(batches):
                    yield from rows
    except (ValueError, RuntimeError, TypeError) as error:
        raise UserError(f"{path} isn't readable Parquet: write or download it again") from error


def _next_rows(batches: Iterator[Any]) -> list[dict[str, Any]]:
    with records.limited_memory():
        return [row for batch in itertools.islice(batches, 1) for row in batch.to_pylist()]


def _hub_rows(hub_id: str) -> Iterator[Mapping[str, Any]]:
    from datasets import load_dataset

    try:
        splits = load_dataset(hub_id, streaming=True)
        for split in sorted(splits):
            yield from splits[split]
    except (OSError, ValueError, RuntimeError) as error:
        detail = " ".join(str(error).split())[:200]
        raise UserError(
            f"there is no file or folder {hub_id}, and the Hugging Face data set of that name can't"
            f" be loaded ({detail}): check the name and the network, or download its Parquet files"
            " and give their folder"
        ) from error


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _texts(value: object) -> list[str]:
    """A list of addresses; None and single strings occur, too."""
    values = value if isinstance(value, Iterable) and not isinstance(value, str) else [value]
    return [_text(item) for item in values if item]


_READERS: dict[Format, tuple[Reader, str]] = {
    "enron": (read_enron, "files: give the maildir folder or an archive of it"),
    "maildir": (_read_maildir, "mail in cur or new: give a Maildir folder"),
    "mbox": (_read_mbox, 'mbox mail: messages start with a "From " line there'),
    "eml": (_read_eml, ".eml files: give a folder that does"),
    "csv": (_read_csv, "rows: download it again"),
    "hf": (_read_huggingface, "mail: give a Parquet file, a folder or a hub id"),
    "imap": (read_spool, "mail: the account is empty"),
}


# ---- Synthetic worlds.

_USAGE = (
    "synthetic:SIZE[,seed=N][,short][,vocabulary=N][,names=N][,split=NAME],"
    " such as synthetic:5000,seed=1, or synthetic:injection"
)


class Described(NamedTuple):
    """A world, and the split of all its questions; None: they have several."""

    config: WorldConfig
    split: Split | None


def described(text: str) -> Described:
    """The world of a source string. Raises `UserError` for any other spelling."""
    if text == _INJECTION:
        return Described(INJECTED, None)
    size, *options = text.removeprefix(_SYNTHETIC).replace("_", "").split(",")
    parts = [option.strip().partition("=") for option in options]
    settings: dict[str, str] = {name: value or "true" for name, _, value in parts}
    split = settings.pop("split", None)
    try:
        config = _WORLD.validate_python({"size": size, **settings})
        named = None if split is None else _SPLIT.validate_python(split)
    except ValidationError:
        raise UserError(f"{text} describes no world: write {_USAGE}") from None
    return Described(config, named)


def questions_of(text: str) -> list[Question]:
    """The questions of the world that `text` describes, in the split that it names."""
    if text == _INJECTION:
        return [attack.question for attack in attacks()]
    config, split = described(text)
    return [each if split is None else replace(each, split=split) for each in questions(config)]


# ---- Which format a source has, by its content.

_LOOKED_AT = 1_000  # files of a folder

_NUMBERED = re.compile(r"\d+\.?")
_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*", re.ASCII)
_BLANK_LINE = re.compile(rb"\r?\n\r?\n")
_FIRST_LINE = re.compile(rb"[!-9;-~]+[ \t]*:|From ")
_MAIL_HEADER = re.compile(
    rb"^(?:from|to|subject|date|message-id|received|return-path|mime-version|delivered-to)[ \t]*:",
    re.IGNORECASE | re.MULTILINE,
)


def detect(path_or_id: str) -> Format:
    """The format of a path, a hub id, an IMAP account or a `synthetic:` string; `UserError` where
    there is nothing, and where no format is recognised."""
    if path_or_id.startswith(_SYNTHETIC):
        return "synthetic"
    if is_account(path_or_id):
        return "imap"
    path = Path(path_or_id)
    if not path.exists() and _HUB_ID.fullmatch(path_or_id):
        return "hf"
    _check_there(path_or_id)
    with reading(path):
        found = _format_of_folder(path) if path.is_dir() else _format_of_file(path)
    if found is None:
        raise UserError(
            f"{path_or_id} is empty, or its format can't be detected: "
            f"name it with --format {'|'.join(FORMATS)}"
        )
    return found


def _format_of_folder(folder: Path) -> Format | None:
    folders = [folder, *(child for child in folder.iterdir() if child.is_dir())]
    if any(all((each / name).is_dir() for name in _MAILDIR_FOLDERS) for each in folders):
        return "maildir"
    for file in itertools.islice(archives.regular_files(folder), _LOOKED_AT):
        if file.name.lower().endswith(archives.ARCHIVES):
            format_name = _format_of_file(file)
            is_read = format_name in ("mbox", "eml")
        else:
            format_name = _format_by_name(file.relative_to(folder).as_posix())
            is_read = format_name != "enron" or _looks_like_mail(_head(file))
        if is_read and format_name is not None:
            return format_name
    return None


def _format_of_file(file: Path) -> Format | None:
    head = _head(file)
    if head.startswith(_PARQUET_MAGIC):
        return "hf"
    if (inside := archives.members(file)) is not None:
        return next(filter(None, (_format_by_name(name) for name, _ in inside)), None)
    first_line = head.partition(b"\n")[0]
    if _SEPARATOR.match(first_line):
        return "mbox"
    names = first_line.decode("utf-8-sig", "replace").split(",")
    if set(_CSV_COLUMNS) <= {name.strip(' "\r') for name in names}:
        return "csv"
    return "eml" if _looks_like_mail(head) else None


def _format_by_name(name: str) -> Format | None:
    """The format of a folder or an archive that holds a file of that name."""
    folder, _, base = name.rpartition("/")
    if _NUMBERED.fullmatch(base) and folder:
        return "enron"
    by_ending: dict[str, Format] = {".mbox": "mbox", ".eml": "eml", ".parquet": "hf"}
    return by_ending.get(Path(base).suffix.lower())


def _head(file: Path) -> bytes:
    with archives.decompressed(file) as stream:
        return stream.read(1 << 16)


def _looks_like_mail(head: bytes) -> bool:
    """Whether a text starts with header lines, one of which only mail has."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    block = _BLANK_LINE.split(text, maxsplit=1)[0]
    return bool(_FIRST_LINE.match(block) and _MAIL_HEADER.search(block))
