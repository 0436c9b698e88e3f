"""Where mail comes from: one module a format, found by looking (`detect.py`), opened by `open.py`.

Each reads as a stream and gives a message with a `source` that is the same wherever the same mail
lies. `files.py` and `tar.py` are what they share. Knows nothing of what a message says.
"""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import io
import lzma
import os
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol, Self, cast

from art_e.errors import UserError
from art_e.question import SPLITS, Question, Split
from data_pipeline.ingest.headers import parse_date
from data_pipeline.ingest.records import LARGEST_MESSAGE, MailFields, RawMessage

if TYPE_CHECKING:
    from data_pipeline.synthetic.world import WorldConfig


# ---- Files as every source reads them: deterministic walks, compressed streams, errors as advice.

_GZIP_MAGIC = b"\x1f\x8b"
_XZ_MAGIC = b"\xfd7zXZ\0"

_DAMAGE = (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile, tarfile.TarError, csv.Error)


@contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn what goes wrong while `path` is read into a `UserError`."""
    shown = printable(os.fspath(path))
    try:
        yield
    except _DAMAGE as error:
        detail = " ".join(str(error).split()) or type(error).__name__
        raise UserError(
            f"{shown} is damaged or cut off ({detail}): copy or download it again"
        ) from error
    except OSError as error:
        at = printable(str(error.filename)) if error.filename else shown
        reason = error.strerror or str(error)
        raise UserError(
            f"can't read {at} ({reason}): check the path and its permissions"
        ) from error


def open_stream(path: Path) -> BinaryIO:
    """The bytes of a file, decompressed where it is gzip or xz (by content, not by name)."""
    with path.open("rb") as file:
        magic = file.read(len(_XZ_MAGIC))
    if magic.startswith(_GZIP_MAGIC):
        return cast(BinaryIO, gzip.open(path))
    if magic == _XZ_MAGIC:
        return cast(BinaryIO, lzma.open(path))
    return path.open("rb")


def read_message(path: Path) -> bytes:
    """The bytes of a message file, cut one byte beyond what the parser accepts."""
    with path.open("rb") as file:
        return file.read(LARGEST_MESSAGE + 1)


def regular_files(folder: Path) -> Iterator[Path]:
    """All regular files under `folder`, in the order of their names; links aren't followed."""
    with os.scandir(folder) as entries:
        in_order = sorted(entries, key=lambda entry: entry.name)
    for entry in in_order:
        if entry.is_dir(follow_symlinks=False):
            yield from regular_files(Path(entry.path))
        elif entry.is_file(follow_symlinks=False):
            yield Path(entry.path)


def printable(name: str) -> str:
    """A file name as text: bytes that are not UTF-8 become U+FFFD."""
    return name if name.isascii() else name.encode("utf-8", "replace").decode("utf-8")


def relative_name(path: Path, folder: Path) -> str:
    """The path of a file within `folder`, with forward slashes, printable."""
    return printable(path.relative_to(folder).as_posix())


# ---- The regular files of a tar stream, in order, at little more than the cost of reading it.

_BLOCK = tarfile.BLOCKSIZE
_END = bytes(_BLOCK)
_WITHOUT_DATA = (b"1", b"2", b"3", b"4", b"5", b"6")  # links, devices, folders, pipes

# tarfile slices its whole buffer for every member: at 1 MB reading takes twice as
# long as at 64 KB, and `tarfile.open("r|xz")` with its own decompression far longer.
_BUFFER = 1 << 16


class File(NamedTuple):
    """A regular file of an archive; its name may hold surrogates."""

    name: str
    data: bytes


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _Stream:
    """What is left of a stream after a block that was read from it already."""

    def __init__(self, block: bytes, rest: BinaryIO) -> None:
        self._block = block
        self._rest = rest

    def read(self, size: int) -> bytes:
        """The next bytes, perhaps fewer than `size`; b"" at the end."""
        block, self._block = self._block, b""
        return block or self._rest.read(size)


def files(stream: BinaryIO, limit: int) -> Iterator[File]:
    """The regular files of the archive in `stream`, each cut after `limit` bytes.

    Raises `tarfile.TarError` where the archive is damaged or cut off: it has to end with an
    empty header, and with zeros behind that.
    """
    while (header := stream.read(_BLOCK)) != _END:
        size = _plain_size(header)
        if size is None:
            yield from _read_by_tarfile(_Stream(header, stream), limit)
            return
        if header[156:157] == b"0":
            data = stream.read(min(size, limit))
            _skip(stream, size - len(data) + -size % _BLOCK)
            yield File(_name(header), data)
    _check_end(stream)


def _check_end(rest: _Readable) -> None:
    """Raise `tarfile.ReadError` where something stands behind an archive's end."""
    while block := rest.read(_BUFFER):
        if block.strip(b"\0"):
            raise tarfile.ReadError("an empty header amid the archive")


def _plain_size(header: bytes) -> int | None:
    """The size of the file or folder that a header starts; None where it needs `tarfile`."""
    kind = header[156:157]
    if kind != b"0" and kind not in _WITHOUT_DATA:
        return None
    checksum = sum(header) - sum(header[148:156]) + 8 * ord(" ")
    if _octal(header[148:156]) != checksum:
        return None
    return _octal(header[124:136])


def _octal(field: bytes) -> int | None:
    digits = field.strip(b"\0 ")
    return int(digits, 8) if digits.isdigit() and not digits.strip(b"01234567") else None


def _name(header: bytes) -> str:
    name, prefix = (part.partition(b"\0")[0] for part in (header[:100], header[345:500]))
    return (prefix + b"/" + name if prefix else name).decode("utf-8", "surrogateescape")


def _skip(stream: BinaryIO, size: int) -> None:
    while size > 0:
        read = len(stream.read(min(size, _BUFFER)))
        if read == 0:
            raise tarfile.ReadError("unexpected end of data")
        size -= read


def _read_by_tarfile(stream: _Stream, limit: int) -> Iterator[File]:
    with tarfile.open(
        fileobj=cast(BinaryIO, stream), mode="r|", bufsize=_BUFFER, tarinfo=_StrictHeader
    ) as archive:
        while (member := archive.next()) is not None:
            # tarfile keeps them all: half a gigabyte for 500,000 mails.
            archive.members = []  # type: ignore[attr-defined]
            file = archive.extractfile(member) if member.isreg() else None
            if file is not None:
                yield File(member.name, file.read(limit))
        _check_end(cast(_Readable, archive.fileobj))


class _StrictHeader(tarfile.TarInfo):
    """Does not take a damaged header for the archive's end, as `tarfile` does after the first."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if bytes(buf) == _END:
                raise
            raise tarfile.ReadError(str(error)) from None


# ---- A folder of .eml files, with subfolders, or one message in a file.

SUFFIX = ".eml"


def read(path: Path) -> Iterator[RawMessage]:
    """The message in the file `path`, or those in all .eml files under the folder `path`.

    `source` is the path within the folder. Raises `UserError` for a folder without any.
    """
    count = 0
    with reading(path):
        if not path.is_dir():
            yield RawMessage(printable(path.name), read_message(path))
            return
        for file in regular_files(path):
            if file.suffix.lower() == SUFFIX:
                count += 1
                yield RawMessage(relative_name(file, path), read_message(file))
    if count == 0:
        raise UserError(f"{path} holds no {SUFFIX} files: give a folder that does")


# ---- Maildir folders: mail in `cur` and `new`, subfolders of either layout (`.Sent`, `Sent/`).

MAIL_FOLDERS = frozenset({"cur", "new"})


def read_maildir(path: Path) -> Iterator[RawMessage]:
    """The messages of a Maildir and its subfolders; what stands in `tmp` isn't mail yet.

    `source` is the path within the Maildir, without the flags (":2,S"), which
    change when a mail is read_maildir. Raises `UserError` where there is no mail.
    """
    count = 0
    with reading(path):
        for file in regular_files(path):
            if file.parent.name in MAIL_FOLDERS and not file.name.startswith("."):
                count += 1
                yield RawMessage(_without_flags(relative_name(file, path)), read_message(file))
    if count == 0:
        raise UserError(f"{path} holds no mail in cur or new: give a Maildir folder")


def _without_flags(name: str) -> str:
    # Where ":" isn't allowed in file names, "!" or ";" stands for it.
    for mark in (":2,", "!2,", ";2,"):
        name = name.partition(mark)[0]
    return name


# ---- mbox files: Gmail Takeout, Thunderbird, mutt.

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


def read_mbox(path: Path) -> Iterator[RawMessage]:
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
    current = b""  # the From_ line of the message being read_mbox
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


# ---- Enron's mail: `maildir/<owner>/<folder...>/<number>`, as a folder or a tar archive.

ROOT = "maildir"


def read_enron(path: Path) -> Iterator[RawMessage]:
    """The messages of a tree.

    `path` is a tar archive, `maildir`, a folder that holds `maildir`, or one
    owner's folder. Raises `UserError` where there is nothing to read_enron.
    """
    count = 0
    with reading(path):
        for message in _of_folder(path) if path.is_dir() else _of_archive(path):
            count += 1
            yield message
    if count == 0:
        raise UserError(f"{path} holds no files: give the maildir folder or an archive of it")


def _of_folder(path: Path) -> Iterator[RawMessage]:
    root = path / ROOT if (path / ROOT).is_dir() else path
    owner = root.resolve()
    prefix = f"{ROOT}/{printable(owner.name)}" if owner.parent.name == ROOT else ROOT
    for file in regular_files(root):
        yield RawMessage(f"{prefix}/{relative_name(file, root)}", read_message(file))


def _of_archive(path: Path) -> Iterator[RawMessage]:
    with open_stream(path) as stream:
        for name, data in files(stream, LARGEST_MESSAGE + 1):
            yield RawMessage(_source_of(name), data)


def _source_of(member_name: str) -> str:
    """The path from `maildir` on, whatever folders an archive puts above it."""
    parts = [part for part in printable(member_name).split("/") if part not in ("", ".", "..")]
    start = parts.index(ROOT) + 1 if ROOT in parts else 0
    return "/".join([ROOT, *parts[start:]])


# ---- Kaggle's `emails.csv` of Enron's mail: columns `file` and `message`, read_kaggle as a stream.

COLUMNS = ("file", "message")

# A field is a whole message; the default limit of 128 KB is far too small.
_LONGEST_FIELD = 2**31 - 1


def read_kaggle(path: Path) -> Iterator[RawMessage]:
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


# ---- Mail as a Hugging Face data set of the shape of `corbt/enron-emails`.

_NEEDED = ("message_id", "subject", "from", "to", "date", "body")
_BATCH = 1_000


def read_huggingface(path_or_id: str) -> Iterator[MailFields]:
    """The mails of a data set, all its splits. `source` is file_name, else name and row.

    Raises `UserError` where it can't be loaded or has other columns.
    """
    path = Path(path_or_id)
    batches = _local_batches(path) if path.exists() else _hub_batches(path_or_id)
    name = printable(path.name if path.exists() else path_or_id)
    count = 0
    for batch in batches:
        missing = [column for column in _NEEDED if column not in batch]
        if missing:
            raise UserError(
                f"{path_or_id} lacks the columns {', '.join(missing)}: "
                "it needs the shape of corbt/enron-emails"
            )
        for row in _rows(batch):
            count += 1
            yield _mail(row, f"{name}#{count}")
    if count == 0:
        raise UserError(f"{path_or_id} holds no mail: give a Parquet file, a folder or a hub id")


def _local_batches(path: Path) -> Iterator[Mapping[str, Sequence[Any]]]:
    from datasets import load_dataset

    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise UserError(f"{path} holds no .parquet files: give a folder that does")
    names = [str(file) for file in files]
    with reading(path):
        try:
            rows = load_dataset("parquet", data_files=names, split="train", streaming=True)
            yield from rows.iter(batch_size=_BATCH)
        except (ValueError, RuntimeError, TypeError) as error:
            raise UserError(f"{path} isn't readable Parquet: write or download it again") from error


def _hub_batches(hub_id: str) -> Iterator[Mapping[str, Sequence[Any]]]:
    from datasets import load_dataset

    try:
        splits = load_dataset(hub_id, streaming=True)
        for split in sorted(splits):
            yield from splits[split].iter(batch_size=_BATCH)
    except (OSError, ValueError, RuntimeError) as error:
        detail = " ".join(str(error).split())[:200]
        raise UserError(
            f"there is no file or folder {hub_id}, and the Hugging Face data set of that name "
            f"can't be loaded ({detail}): check the name and the network, "
            "or download its Parquet files and give their folder"
        ) from error


def _rows(batch: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    names = list(batch)
    for values in zip(*(batch[name] for name in names), strict=True):
        yield dict(zip(names, values, strict=True))


def _mail(row: Mapping[str, Any], fallback_source: str) -> MailFields:
    return MailFields(
        source=_text(row.get("file_name")) or fallback_source,
        message_id=_text(row["message_id"]),
        subject=_text(row["subject"]),
        sender=_text(row["from"]),
        to=_texts(row["to"]),
        cc=_texts(row.get("cc")),
        bcc=_texts(row.get("bcc")),
        date=_date(row["date"]),
        body=_text(row["body"]),
    )


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _texts(value: object) -> list[str]:
    """A list of addresses; None and single strings occur, too."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_text(item) for item in value if item]
    return [_text(value)] if value else []


def _date(value: object) -> dt.datetime | None:
    if isinstance(value, dt.datetime):
        return value
    return parse_date(value) if isinstance(value, str) else None


# ---- The synthetic world as a source:

PREFIX = "synthetic:"

_USAGE = (
    "synthetic:SIZE[,seed=N][,short][,vocabulary=N][,names=N][,split=NAME],"
    " such as synthetic:5000,seed=1"
)
_NUMBER = re.compile(r"[0-9]{1,9}")
_NUMBERED = ("seed", "vocabulary", "names")


class Described(NamedTuple):
    """A world, and the split of all its questions; None: they have several."""

    config: WorldConfig
    split: Split | None


def read_synthetic(text: str) -> Iterator[RawMessage]:
    """The mails of the world that `text` describes."""
    from data_pipeline.synthetic.world import messages

    return iter(messages(described(text).config))


def questions_of(text: str) -> list[Question]:
    """The questions of the world that `text` describes, in the split that it names."""
    from data_pipeline.synthetic.world import questions

    told = described(text)
    asked = questions(told.config)
    return asked if told.split is None else [replace(each, split=told.split) for each in asked]


def described(text: str) -> Described:
    """The world of a source string. Raises `UserError` for any other spelling."""
    from data_pipeline.synthetic.world import WorldConfig

    size, *options = text.removeprefix(PREFIX).replace("_", "").split(",")
    settings: dict[str, Any] = {"size": _number(size, text)}
    split: Split | None = None
    for option in options:
        name, has_value, value = option.strip().partition("=")
        if name == "short" and not has_value:
            settings["short"] = True
        elif name in _NUMBERED and has_value:
            settings[name] = _number(value, text)
        elif name == "split" and value in SPLITS:
            split = value
        else:
            raise UserError(f"{text} has an unknown option {option!r}: write {_USAGE}")
    return Described(WorldConfig(**settings), split)


def _number(digits: str, text: str) -> int:
    if not _NUMBER.fullmatch(digits.strip()):
        raise UserError(f"{text} has {digits!r} where a number belongs: write {_USAGE}")
    return int(digits)
