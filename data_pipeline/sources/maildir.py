"""Maildir folders: mail in `cur` and `new`, subfolders of either layout (`.Sent`, `Sent/`)."""

from collections.abc import Iterator
from pathlib import Path

from art_e.errors import UserError
from data_pipeline.records import RawMessage
from data_pipeline.sources.files import read_message, reading, regular_files, relative_name

MAIL_FOLDERS = frozenset({"cur", "new"})


def read(path: Path) -> Iterator[RawMessage]:
    """The messages of a Maildir and its subfolders; what stands in `tmp` isn't mail yet.

    `source` is the path within the Maildir, without the flags (":2,S"), which
    change when a mail is read. Raises `UserError` where there is no mail.
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
