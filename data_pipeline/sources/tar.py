"""The regular files of a tar stream, in order, at little more than the cost of reading it.

Headers without extensions are read here. At the first of another kind (long
names, extended attributes, damage) `tarfile` takes over for the rest: alone it
would take three times as long as decompressing the archive. Knows nothing of
compression and of mail.
"""

import tarfile
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple, Protocol, Self, cast

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
