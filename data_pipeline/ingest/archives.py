"""Opens files of mail in folders, compressed files and archives, without unpacking to disk."""

import bz2
import contextlib
import gzip
import itertools
import lzma
import os
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from io import BufferedReader, FileIO, RawIOBase
from pathlib import Path
from typing import Any

from art_e.errors import UserError
from art_e.text import encodable
from data_pipeline.ingest.records import limited_memory

ZIP = b"PK\x03\x04"
_PACKERS: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"\xfd7zXZ\0": lzma.open, b"BZh": bz2.open}
# A file that unpacks to more than both limits is a bomb: real mail compresses to a tenth.
_MAX_RATIO, _ALWAYS_FINE = 200, 200_000_000
_LOCAL_HEADER = 30  # bytes of a zip's entry before its name
# .olm is Outlook's for Mac; the last three are not opened.
ARCHIVES = tuple(".zip .olm .tar .tgz .txz .tbz2 .tar.gz .tar.xz .tar.bz2 .7z .rar .zst".split())


@contextlib.contextmanager
def decompressed(path: Path) -> Iterator[BufferedReader]:
    """Open a file, decompressed if it is gzip, xz or bzip2 (by content, not by name)."""
    file: BufferedReader = BufferedReader(FileIO(path), 1 << 16)
    with file:
        head = file.peek(6)
        unpack = next((_PACKERS[magic] for magic in _PACKERS if head.startswith(magic)), None)
        if unpack is None:
            yield file
            return

        def take(limit: int) -> bytes:
            data: bytes = unpacked.read(limit)
            _check_unpacked(path, unpacked.tell())
            return data

        with unpack(file) as unpacked:
            yield buffered(take)


def _check_unpacked(path: Path, size: int) -> None:
    """Raise `UserError` if `size`, the unpacked size of a file, is too large for real mail."""
    if size > max(path.stat().st_size * _MAX_RATIO, _ALWAYS_FINE):
        why = f"{encodable(str(path))} unpacks to over {_MAX_RATIO} times its size"
        raise UserError(f"{why}, unlike mail; if you trust it, unpack it and give the folder")


class _Stream(RawIOBase):
    def __init__(self, take: Callable[[int], bytes]) -> None:
        self._take = take

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview[int]", /) -> int:  # type: ignore[override]
        data = self._take(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def buffered(take: Callable[[int], bytes]) -> BufferedReader:
    """Return a file that reads its bytes with `take(limit)`, which returns at most `limit`."""
    return BufferedReader(_Stream(take), 1 << 16)


def head_of(path: Path, size: int) -> bytes:
    """Return the first bytes of a file."""
    with path.open("rb") as file:
        return file.read(size)


def regular_files(folder: Path) -> Iterator[Path]:
    """Yield all regular files under `folder`, in the order of their names; don't follow links."""
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_dir(follow_symlinks=False):
            yield from regular_files(Path(entry.path))
        elif entry.is_file(follow_symlinks=False):
            yield Path(entry.path)


def files(path: Path) -> Iterator[tuple[str, Path | BufferedReader | str]]:
    """Yield name and path of each file in the folder `path`, or of the file `path`. Archives yield
    their members instead, each with its name and a stream (or why it can't be read)."""
    for file in regular_files(path) if path.is_dir() else [path]:
        is_archive = file == path or file.name.lower().endswith(ARCHIVES)
        if (packed := members(file) if is_archive else None) is not None:
            yield from packed
        else:
            inside = file.relative_to(path).as_posix() if file != path else path.name
            yield encodable(inside), file


def members(path: Path) -> Iterator[tuple[str, BufferedReader | str]] | None:
    """Return the members of a zip or tar archive, to be read in order; None for other files."""
    if head_of(path, len(ZIP)) == ZIP:
        return _zip_members(path)
    with decompressed(path) as stream:
        try:
            _tar_header(stream.read(_BLOCK))
        except tarfile.HeaderError:
            return None
    return ((encodable(name), buffered(take)) for name, take in tar_members(path))


def _zip_members(path: Path) -> Iterator[tuple[str, BufferedReader | str]]:
    label, end = encodable(str(path)), 0
    with limited_memory():
        archive = zipfile.ZipFile(path)
    with archive:
        # Overlapping entries are a sign of a zip bomb.
        for info in sorted(archive.infolist(), key=lambda info: info.header_offset):
            if info.header_offset < end:
                raise UserError(f"{label} has overlapping entries, which no mail program writes")
            end = info.header_offset + _LOCAL_HEADER + info.compress_size
        # These sizes can be trusted: `zipfile` reads no entry beyond its own.
        _check_unpacked(path, sum(info.file_size for info in archive.infolist()))
        for info in itertools.filterfalse(zipfile.ZipInfo.is_dir, archive.infolist()):
            if info.flag_bits & 1:
                raise UserError(f"{label} is encrypted; unpack it, and give the folder")
            try:
                with archive.open(info) as stream:
                    yield encodable(info.filename), buffered(stream.read)
            except NotImplementedError:
                why = f"packed by a method that isn't read (number {info.compress_type})"
                yield encodable(info.filename), why


# ---- Tar archives, at little more than the cost of reading them.

_BLOCK, _END = tarfile.BLOCKSIZE, bytes(tarfile.BLOCKSIZE)
_LONGEST_EXTENDED = 1 << 20  # bytes of a long name or extended header; real ones have about 100
_WITHOUT_DATA = b"123456"  # links, devices and folders have no data, whatever their size field
_OCTAL = re.compile(rb"[ \0]*([0-7]+)[ \0]*")


def tar_members(path: Path) -> Iterator[tuple[str, Callable[[int], bytes]]]:
    """Yield the name of each regular file of a tar archive, and a function that reads at most N of
    its bytes until the next file is yielded. `tarfile` would take three times as long, and mistakes
    some damage for the end. Raises `tarfile.TarError` for any damage: an archive must end
    with an empty header and zeros."""
    left = 0  # unread bytes of the member

    def take(limit: int) -> bytes:
        nonlocal left
        size = min(limit, left)
        if len(data := stream.read(size)) < size:
            raise tarfile.ReadError("unexpected end of data")
        left -= size
        return data

    with decompressed(path) as stream:
        extended: dict[str, str] = {}
        while (header := stream.read(_BLOCK)) != _END:
            name, size, kind = _tar_header(header)
            is_extension = kind in (tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME)
            if not is_extension:
                name, size = extended.get("path", name), int(extended.get("size", size))
                extended = {}
            if kind == tarfile.GNUTYPE_SPARSE or (is_extension and size > _LONGEST_EXTENDED):
                what = "an extended header" if is_extension else "stored as a sparse file"
                raise tarfile.ReadError(f"{encodable(name)} is {what} of {size:,} bytes")
            left = size = 0 if kind in _WITHOUT_DATA else size
            if is_extension:
                data = take(size)
                name = data.rstrip(b"\0").decode("utf-8", "surrogateescape")
                extended.update(_pax_records(data) if kind == tarfile.XHDTYPE else {"path": name})
            elif kind in tarfile.REGULAR_TYPES:
                yield name, take
            left += -size % _BLOCK  # up to the next header
            while left:
                take(1 << 16)
        while block := stream.read(1 << 16):
            if block.strip(b"\0"):
                raise tarfile.ReadError("an empty header amid the archive")


def _tar_header(header: bytes) -> tuple[str, int, bytes]:
    """Return name, size and kind; reads usual headers eight times as fast as `tarfile`."""
    kind = header[156:157]  # offsets of POSIX ustar
    size, checksum = _OCTAL.fullmatch(header[124:136]), _OCTAL.fullmatch(header[148:156])
    actual = sum(header) - sum(header[148:156]) + 8 * ord(" ")  # its own field counts as blanks
    if kind == tarfile.REGTYPE and size and checksum and int(checksum[1], 8) == actual:
        name, prefix = (part.partition(b"\0")[0] for part in (header[:100], header[345:500]))
        path = prefix + b"/" + name if prefix else name
        return path.decode("utf-8", "surrogateescape"), int(size[1], 8), kind
    info = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
    return info.name, info.size, info.type


def _pax_records(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield the records of an extended header: lines of `<length> <name>=<value>`."""
    start, end = 0, len(data.rstrip(b"\0"))
    while start < end:
        digits = data[start : start + 20].partition(b" ")[0]  # 20 digits exceed any file
        if not digits.isdigit() or not len(digits) < int(digits) <= len(data) - start:
            raise tarfile.ReadError("damaged extended header")
        record = data[start + len(digits) + 1 : start + int(digits) - 1]
        start += int(digits)
        name, _, value = record.decode("utf-8", "surrogateescape").partition("=")
        yield name, value
