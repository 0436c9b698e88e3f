"""The one error class that users see.

The command line prints one line and exits with 2; any other exception is ours and exits with 1.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


class UserError(Exception):
    """Bad input or a missing prerequisite. The message is one line and names the fix."""


def fault_of(error: "ValidationError", whole: str) -> str:
    """What pydantic found first, in one line that begins with the field, or with `whole`."""
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"])) or whole
    return f"{where}: {first['msg'].removeprefix('Value error, ')}"
