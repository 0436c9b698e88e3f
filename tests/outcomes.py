"""What a call comes to: the line of its error, the files that it leaves."""

from collections.abc import Callable
from pathlib import Path

import pytest

from art_e.errors import UserError


def the_error(call: Callable[[], object]) -> str:
    """The one line of the `UserError` that the call raises."""
    with pytest.raises(UserError) as raised:
        call()
    line = str(raised.value)
    assert "\n" not in line
    return line


def files_of(folder: Path) -> dict[str, bytes]:
    """What is in the files of a folder, by their paths in it."""
    files = [each for each in folder.rglob("*") if each.is_file()]
    return {each.relative_to(folder).as_posix(): each.read_bytes() for each in files}
