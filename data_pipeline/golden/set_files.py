"""The files of a golden set replaced together, and read together.

`save` puts the new files into `.partial`, renames that to `.ready`, and moves them out of it.
From the rename on the new files are the ones that count. Knows nothing of what they hold.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TextIO

PARTIAL, READY = ".partial", ".ready"
# What a save replaces.
SET_FILES = (
    "manifest.json",
    "questions.jsonl",
    "questions.parquet",
    "rejected.jsonl",
    "batches.jsonl",
    "README.md",
)


def settle(folder: Path) -> None:
    """Bring a save that was killed to its end, or take it back."""
    shutil.rmtree(folder / PARTIAL, ignore_errors=True)
    ready = folder / READY
    if not ready.is_dir():
        return
    for file in sorted(ready.iterdir()):
        file.replace(folder / file.name)
    ready.rmdir()


@contextmanager
def opened(folder: Path, names: Sequence[str]) -> Iterator[list[TextIO]]:
    """The files, all of one save, while another process may make the next; nothing is changed.

    What counts changes in one rename, and what is open stays as it was: if the first file
    still counts once all are open, they are of its save. Raises `OSError`.
    """
    while True:
        with ExitStack() as stack:
            files = [stack.enter_context(_current(folder, name)) for name in names]
            with _current(folder, names[0]) as again:
                whole = os.path.sameopenfile(files[0].fileno(), again.fileno())
            if whole:
                yield files
                return


def _current(folder: Path, name: str) -> TextIO:
    try:
        return (folder / READY / name).open(encoding="utf-8")
    except FileNotFoundError:
        return (folder / name).open(encoding="utf-8")
