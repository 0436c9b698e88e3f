"""Enron's mail: `maildir/<owner>/<folder...>/<number>`, as a folder or a tar archive.

Archives (.tar, .tar.gz, .tar.xz) are read as a stream, never unpacked. A
message has the same `source` whether it comes from the folder or the archive.
Files of the tree that are no messages are handed on as well, so that the parser
rejects them by name and nothing vanishes.
"""

from collections.abc import Iterator
from pathlib import Path

from art_e.errors import UserError
from data_pipeline.records import LARGEST_MESSAGE, RawMessage
from data_pipeline.sources import tar
from data_pipeline.sources.files import (
    open_stream,
    printable,
    read_message,
    reading,
    regular_files,
    relative_name,
)

ROOT = "maildir"


def read(path: Path) -> Iterator[RawMessage]:
    """The messages of a tree.

    `path` is a tar archive, `maildir`, a folder that holds `maildir`, or one
    owner's folder. Raises `UserError` where there is nothing to read.
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
        for name, data in tar.files(stream, LARGEST_MESSAGE + 1):
            yield RawMessage(_source_of(name), data)


def _source_of(member_name: str) -> str:
    """The path from `maildir` on, whatever folders an archive puts above it."""
    parts = [part for part in printable(member_name).split("/") if part not in ("", ".", "..")]
    start = parts.index(ROOT) + 1 if ROOT in parts else 0
    return "/".join([ROOT, *parts[start:]])
