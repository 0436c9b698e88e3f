"""The one error class that users see, and the install command that a missing extra needs.

The command line prints one line and exits with 2; any other exception is a bug and exits with 1."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError

# Packages of the extra `eval`; only commands that need it import them.
EVAL_EXTRA = ("datasets", "matplotlib", "pandas", "scipy")


class UserError(Exception):
    """Bad input or a missing prerequisite. The message is one line and names the fix."""


@contextmanager
def explained(what: str, fix: str) -> Iterator[None]:
    """Turn an error about a file into a `UserError` that says `what` failed, why, and the `fix`."""
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UserError(f"{what}: {reason}; {fix}") from None


def fault_of(error: "ValidationError", whole: str) -> str:
    """Return pydantic's first error in one line, with the field, or `whole`, in front."""
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"])) or whole
    return f"{where}: {first['msg'].removeprefix('Value error, ')}"


def install_command(extras: str) -> str:
    """Return the command that installs `extras` here, from the source that art-e came from."""
    root = Path(__file__).parent.parent
    checkout = (root / "pyproject.toml").is_file()
    source = f"-e '{root}[{extras}]'" if checkout else f"'art-e[{extras}]'"
    # pip and uv write this file for packages that don't come from an index.
    for record in root.glob("art_e-*.dist-info/direct_url.json"):
        origin = json.loads(record.read_text("utf-8"))
        scheme = "git+" if "vcs_info" in origin else ""
        source = f"'art-e[{extras}] @ {scheme}{origin['url']}'"
    if find_spec("pip"):
        return f"{sys.executable} -m pip install {source}"
    return f"uv pip install --python {sys.executable} {source}"  # uv's environments lack pip
