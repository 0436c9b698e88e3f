"""Files as every source reads them: deterministic walks, compressed streams, errors as advice.

Knows nothing of any mail format.
"""

import csv
import gzip
import lzma
import os
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from art_e.errors import UserError
from data_pipeline.records import LARGEST_MESSAGE

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
