"""What a user has chosen once for all: `config.toml` in `ART_E_HOME`, which `art-e config` writes.

A command's option comes before it. `inbox` counts only if no other file than that of `db` is named.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from art_e.errors import UserError
from art_e.storage import home, toml_content, write_whole

# Each with what it is the default of.
SETTINGS = {
    "model": "the model that art-e ask asks",
    "db": "the inbox file of all commands",
    "inbox": "whose inbox it is, in that file",
    "judge": "the judge of art-e eval run",
}


def config_file() -> Path:
    """The file; it need not exist."""
    return home() / "config.toml"


def settings() -> Mapping[str, str]:
    """What is set. Raises `UserError` for a file that can't be read, or holds something else."""
    path = config_file()
    found = toml_content(path)
    for name, value in found.items():
        if name not in SETTINGS or not isinstance(value, str):
            known = ", ".join(SETTINGS)
            raise UserError(f"{path}: {name} is no setting; there are {known}, each a text")
    return found


def setting(name: str) -> str | None:
    """The value of a setting; None if it is not set. Raises as `settings`."""
    return settings().get(name)


def change(name: str, value: str | None) -> None:
    """Set a setting, or with None remove it."""
    kept = {**settings(), name: value}
    # A JSON string without lone surrogates is one of TOML.
    lines = [f"{key} = {json.dumps(each)}" for key, each in kept.items() if each is not None]
    config_file().parent.mkdir(parents=True, exist_ok=True)
    write_whole(config_file(), "".join(f"{line}\n" for line in lines))
