"""A file to which a person's word is added line by line, each safe on disk at once.

A line that a crash cut off is left out when the file is read, and taken away when the
next one is written. Knows nothing of what the lines say.
"""

import os
from pathlib import Path


def append_line(path: Path, line: str) -> None:
    """Add a line, given without its end; it is safe on disk when this returns.

    A lone surrogate becomes the JSON escape that it may have come from.
    """
    with path.open("ab+") as file:
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
        file.write(line.encode("utf-8", "backslashreplace") + b"\n")
        file.flush()
        os.fsync(file.fileno())


def whole_lines(path: Path) -> list[bytes]:
    """The lines of the file without their ends; none where there is no file."""
    try:
        return path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
