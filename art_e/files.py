"""Files that are there whole or not at all, whatever kills the process. Knows nothing of what
they hold."""

from pathlib import Path


def partial_of(path: Path) -> Path:
    """What a file is called beside its place until it is whole."""
    return path.with_name(f".{path.name}.partial")


def write_whole(path: Path, text: str, *, errors: str = "strict") -> None:
    """Put the text, in UTF-8, in place of what the file was; `errors` is that of `open`."""
    partial = partial_of(path)
    partial.write_text(text, encoding="utf-8", errors=errors)
    partial.replace(path)
