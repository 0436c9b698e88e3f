"""Tar streams: what `tarfile` finds in any archive, and damage that is not passed over."""

import io
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_pipeline.ingest import sources as tar

LIMIT = 5_000
FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
KINDS = [tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE,
         tarfile.LNKTYPE, tarfile.FIFOTYPE]  # fmt: skip

names = st.sampled_from(["maildir/a/1.", "b", "caf\u00e9", "d/" * 40 + "x", "e/" * 90 + "y"])
# Python takes an old-style file whose long name is cut behind a "/" for a folder, and
# its content for a header: damage for us, the archive's end for `tarfile`.
misread = (tarfile.AREGTYPE, "e/" * 90 + "y")
members = st.lists(
    st.tuples(
        names, st.sampled_from([b"0", *KINDS]), st.integers(0, 1_200) | st.just(6_000)
    ).filter(lambda each: (each[1], each[0]) != misread),
    max_size=6,
)


def archive(listed: list[tuple[str, bytes, int]], form: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as file:
        for name, kind, size in listed:
            member = tarfile.TarInfo(name)
            member.type = kind
            member.linkname = "elsewhere" if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
            member.size = size if member.isreg() else 0
            file.addfile(member, io.BytesIO(bytes(range(256)) * 24) if member.isreg() else None)
    return buffer.getvalue()


def found(data: bytes) -> list[tuple[str, bytes]]:
    return [(name, content) for name, content in tar.files(io.BytesIO(data), LIMIT)]


def by_tarfile(data: bytes) -> list[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as file:
        return [
            (member.name, content.read(LIMIT))
            for member in file
            if member.isreg() and (content := file.extractfile(member)) is not None
        ]


@given(members, st.sampled_from(FORMATS))
def test_the_files_that_tarfile_finds(listed: list[tuple[str, bytes, int]], form: int) -> None:
    data = archive(listed, form)
    assert found(data) == by_tarfile(data)


FILES = [("a", b"0", 100), ("b", b"0", 6_000), ("c", b"0", 512)]


@pytest.mark.parametrize("form", FORMATS)
def test_an_archive_cut_anywhere_is_damaged(form: int) -> None:
    data = archive(FILES, form)
    blocks = [at for at in range(0, len(data), tarfile.BLOCKSIZE) if data[at : at + 2] == b"b\0"]
    for end in (0, 100, 600, blocks[0] + 511, blocks[0] + 600, blocks[0] + 6_500):
        with pytest.raises(tarfile.TarError):
            found(data[:end])


def test_a_damaged_header_is_no_end_of_the_archive() -> None:
    data = bytearray(archive(FILES, tarfile.USTAR_FORMAT))
    second = data.index(b"b\0", tarfile.BLOCKSIZE)
    while second % tarfile.BLOCKSIZE:
        second = data.index(b"b\0", second + 1)
    data[second] = ord("x")
    with pytest.raises(tarfile.TarError):
        found(bytes(data))


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("spoil", [b"\0" * tarfile.BLOCKSIZE, b"x", b""])
def test_no_damage_after_a_long_name_ends_an_archive_in_silence(form: int, spoil: bytes) -> None:
    """From a long name on `tarfile` reads, which would take any later damage for the end."""
    data = archive([("d/" * 55 + "x", b"0", 10), *FILES], form)
    last = next(at for at in range(0, len(data), tarfile.BLOCKSIZE) if data[at : at + 2] == b"c\0")
    # A header of zeros, one with a wrong checksum, an archive cut where a file ends.
    damaged = data[:last] + spoil + data[last + len(spoil) :] if spoil else data[:last]
    with pytest.raises(tarfile.TarError):
        found(damaged)
