"""Where things are kept when no path is given: `ART_E_HOME`, or the user's data folder.

And what a path means that begins with "~".
"""

import os
from pathlib import Path

import platformdirs

from art_e.errors import UserError


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
