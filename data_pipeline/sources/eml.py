"""A folder of .eml files, with subfolders, or one message in a file."""

from collections.abc import Iterator
from pathlib import Path

from art_e.errors import UserError
from data_pipeline.records import RawMessage
from data_pipeline.sources.files import (
    printable,
    read_message,
    reading,
    regular_files,
    relative_name,
)

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
