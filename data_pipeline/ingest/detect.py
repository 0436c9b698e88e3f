"""One door to all sources: a path and its format in, messages out."""

import csv
import itertools
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

from art_e.errors import UserError
from data_pipeline.ingest import sources
from data_pipeline.ingest.records import FORMATS, Format, MailFields, RawMessage
from data_pipeline.ingest.sources import open_stream, printable, reading, regular_files

# ---- Which format a source has, found by looking at its content.

_PARQUET_MAGIC = b"PAR1"
_HEAD = 1 << 16
_FILES_LOOKED_AT = 1_000
_MEMBERS_LOOKED_AT = 1_000

_NUMBERED = re.compile(r"\d+\.?")
_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*", re.ASCII)
_BLANK_LINE = re.compile(rb"\r?\n\r?\n")
_FIRST_LINE = re.compile(rb"[!-9;-~]+[ \t]*:|From ")
_MAIL_HEADER = re.compile(
    rb"^(?:from|to|subject|date|message-id|received|return-path|mime-version|delivered-to)[ \t]*:",
    re.IGNORECASE | re.MULTILINE,
)


def detect(path_or_id: str) -> Format:
    """The format of a path, a hub id or a `synthetic:` string.

    Raises `UserError` where there is nothing, and where nothing known is seen.
    """
    if path_or_id.startswith(sources.PREFIX):
        return "synthetic"
    path = Path(path_or_id)
    if not path.exists():
        if _HUB_ID.fullmatch(path_or_id):
            return "hf"
        raise missing(path_or_id)
    with reading(path):
        found = _of_folder(path) if path.is_dir() else _of_file(path)
    if found is None:
        raise UserError(
            f"{path_or_id} isn't mail in a format that is known by its looks: "
            f"say which with --format {'|'.join(FORMATS)}"
        )
    return found


def missing(path_or_id: str) -> UserError:
    """The error for a path that leads nowhere."""
    return UserError(
        f"there is no file or folder {printable(path_or_id)}: check the path "
        "(or give a Hugging Face id OWNER/NAME, or synthetic:SIZE)"
    )


def _of_folder(folder: Path) -> Format | None:
    if _is_maildir(folder) or any(
        _is_maildir(child) for child in folder.iterdir() if child.is_dir()
    ):
        return "maildir"
    looked_at = 0
    for file in itertools.islice(regular_files(folder), _FILES_LOOKED_AT):
        looked_at += 1
        found = _of_tree_file(file, folder)
        if found:
            return found
    if looked_at == 0:
        raise UserError(f"{folder} holds no files: give a folder with mail in it")
    return None


def _is_maildir(folder: Path) -> bool:
    return all((folder / name).is_dir() for name in sources.MAIL_FOLDERS)


def _of_tree_file(file: Path, folder: Path) -> Format | None:
    """What a file says about the folder that it was found in."""
    head = _head(file)
    if head.startswith(_PARQUET_MAGIC):
        return "hf"
    if file.suffix == ".mbox" and sources.is_separator(head.partition(b"\n")[0]):
        return "mbox"
    if not _looks_like_mail(head):
        return None
    if file.suffix.lower() == ".eml":
        return "eml"
    numbered = _NUMBERED.fullmatch(file.name) is not None
    return "enron" if numbered and len(file.relative_to(folder).parts) >= 2 else None


def _of_file(file: Path) -> Format | None:
    head = _head(file)
    if not head:
        raise UserError(f"{file} is empty: give a file with mail in it")
    if head.startswith(_PARQUET_MAGIC):
        return "hf"
    if _is_tar(head):
        return "enron" if _holds_numbered_files(file) else None
    first_line = head.partition(b"\n")[0]
    if sources.is_separator(first_line):
        return "mbox"
    if set(sources.COLUMNS) <= set(_columns(first_line)):
        return "csv"
    return "eml" if _looks_like_mail(head) else None


def _head(file: Path) -> bytes:
    with open_stream(file) as stream:
        return stream.read(_HEAD)


def _is_tar(head: bytes) -> bool:
    try:
        tarfile.TarInfo.frombuf(head[: tarfile.BLOCKSIZE], "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def _holds_numbered_files(archive: Path) -> bool:
    with open_stream(archive) as stream, tarfile.open(fileobj=stream, mode="r|") as members:
        for member in itertools.islice(members, _MEMBERS_LOOKED_AT):
            name = Path(member.name)
            if member.isreg() and len(name.parts) >= 2 and _NUMBERED.fullmatch(name.name):
                return True
    return False


def _columns(line: bytes) -> list[str]:
    try:
        return next(csv.reader([line.decode("utf-8-sig", "replace")]), [])
    except csv.Error:
        return []


def _looks_like_mail(head: bytes) -> bool:
    """Whether a text starts with header lines, one of which only mail has."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    block = _BLANK_LINE.split(text, maxsplit=1)[0]
    return bool(_FIRST_LINE.match(block) and _MAIL_HEADER.search(block))


# ---- One door to all sources: a path and its format in, messages out.


def open_source(path: str, format: Format) -> Iterator[RawMessage | MailFields]:  # noqa: A002
    """The messages of `path` (a path, a hub id, or `synthetic:...`), one at a time.

    Raises `UserError` for a path that doesn't exist at once, and for what can't
    be read when the reading gets there.
    """
    if format == "synthetic":
        return sources.read_synthetic(path)
    if format == "hf":
        return sources.read_huggingface(path)
    place = Path(path)
    if not place.exists():
        raise missing(path)
    readers = {
        "enron": sources.read_enron,
        "maildir": sources.read_maildir,
        "mbox": sources.read_mbox,
        "eml": sources.read,
        "csv": sources.read_kaggle,
    }
    return readers[format](place)
