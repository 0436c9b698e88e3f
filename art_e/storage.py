"""Writes, appends to and locks files, and returns their default paths.

`write_whole` replaces a file, `AppendLog` adds lines, and `locked` keeps other processes out."""

import contextlib
import mmap
import os
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import platformdirs

from art_e.errors import UserError, fault_of
from art_e.privacy import without_keys

if TYPE_CHECKING:
    from pydantic import BaseModel

Form = TypeVar("Form", bound="BaseModel")


def partial_of(path: Path) -> Path:
    """Return the temporary name, in the same folder, of an incomplete file or folder."""
    return path.with_name(f".{path.name}.partial")


def write_whole(path: Path, text: str, *, errors: str = "strict") -> None:
    """Write `text` to a file in UTF-8; after a kill the file has its old content or the new."""
    partial = partial_of(path)
    partial.unlink(missing_ok=True)  # it may be a symlink, in a folder from elsewhere
    partial.write_text(text, encoding="utf-8", errors=errors)
    partial.replace(path)


class AppendLog:
    """A log that survives a kill: each line is on disk before `append` returns. One process at a
    time may have it open. Opening it removes a torn last line; a symlink raises `OSError`."""

    def __init__(self, path: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        self._file = os.fdopen(os.open(path, flags, 0o600), "ab+")
        if whole := self._file.seek(0, os.SEEK_END):
            with mmap.mmap(self._file.fileno(), whole, access=mmap.ACCESS_READ) as content:
                whole = content.rfind(b"\n") + 1
        self._file.truncate(whole)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def append(self, line: str) -> None:
        """Append `line`, with API keys redacted, and fsync. Lone surrogates become JSON escapes."""
        self._file.write(without_keys(line).encode("utf-8", "backslashreplace") + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def append_line(path: Path, line: str) -> None:
    """Open a log, append one line, and close it."""
    with AppendLog(path) as log:
        log.append(line)


def whole_lines(path: Path) -> Iterator[bytes]:
    """Yield a log's complete lines, without newlines; nothing if the file is missing."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as lines:
        for line in lines:
            if line.endswith(b"\n"):
                yield line[:-1]


def parsed_lines(form: type[Form], file: object, lines: Iterable[str | bytes]) -> list[Form]:
    """Return the rows of a JSONL file. Raises `UserError` for the first invalid line."""
    from pydantic import ValidationError

    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            if line.strip():
                rows.append(form.model_validate_json(line, strict=True))
        except ValidationError as error:
            fault = fault_of(error, "line")
            raise UserError(f"{file}, line {number}: {fault}; correct or remove it") from None
    return rows


def toml_content(path: Path) -> dict[str, Any]:
    """Return a user's TOML file, {} if it is missing. Raises `UserError` if it is not valid."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UserError(f"can't read {path} as TOML: {error}; fix or delete it") from None


@contextlib.contextmanager
def locked(path: Path, busy: str | None = None) -> Iterator[None]:
    """Hold the lock file `path`, whose folder must exist; the system releases it after a kill. If
    another process holds it, this raises `UserError(busy)`, or waits if `busy` is None."""
    from filelock import FileLock, Timeout

    try:
        held = FileLock(path).acquire(timeout=-1 if busy is None else 0)
    except Timeout:
        raise UserError(busy or "") from None
    with held:
        yield


def home() -> Path:
    """Return the default folder of inbox, golden set and runs: `ART_E_HOME`, or the user's data."""
    chosen = os.environ.get("ART_E_HOME")
    return Path(chosen) if chosen else Path(platformdirs.user_data_dir("art-e"))


def expanded(name: str) -> Path:
    """Return the path `name` with "~" expanded. Raises `UserError` if the ~user home is missing."""
    try:
        return Path(name).expanduser()
    except RuntimeError:
        raise UserError(f"{name}: no such user; write the full path") from None


def default_db() -> Path:
    """Return the inbox file that commands use without `--db`."""
    return home() / "inbox.duckdb"


def default_golden() -> Path:
    """Return the golden set's folder that commands use without `--out` or `--questions`."""
    return home() / "golden"


def runs_folder() -> Path:
    """Return the folder of runs that commands make without `--out`."""
    return home() / "runs"
