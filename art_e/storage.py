"""Where things are kept when no path is given: `ART_E_HOME`, or the user's data folder.

And what a path means that begins with "~".
"""

import os
from pathlib import Path

import platformdirs

from art_e.errors import UserError

# ---- Files that are there whole or not at all, whatever kills the process. Knows nothing of what


def partial_of(path: Path) -> Path:
    """What a file is called beside its place until it is whole."""
    return path.with_name(f".{path.name}.partial")


def write_whole(path: Path, text: str, *, errors: str = "strict") -> None:
    """Put the text, in UTF-8, in place of what the file was; `errors` is that of `open`."""
    partial = partial_of(path)
    partial.write_text(text, encoding="utf-8", errors=errors)
    partial.replace(path)


# ---- A file to which a person's word is added line by line, each safe on disk at once.


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


# ---- Where things are kept when no path is given: `ART_E_HOME`, or the user's data folder.


def home() -> Path:
    """The folder of the default inbox, golden set and runs; it need not exist yet."""
    chosen = os.environ.get("ART_E_HOME")
    return Path(chosen) if chosen else Path(platformdirs.user_data_dir("art-e"))


def expanded(name: str) -> Path:
    """The path `name`, with "~" as shells read it. Raises `UserError` where that is nobody's."""
    try:
        return Path(name).expanduser()
    except RuntimeError:
        raise UserError(f"{name} is in the home of nobody here; write the whole path") from None


def default_db() -> Path:
    """The inbox file that commands use without `--db`."""
    return home() / "inbox.duckdb"


def default_golden() -> Path:
    """The folder of the golden set that commands use without `--out` or `--questions`."""
    return home() / "golden"


def runs_folder() -> Path:
    """Where runs are made without `--out`."""
    return home() / "runs"
