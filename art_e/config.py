"""The user's defaults: `config.toml` in `ART_E_HOME`, which `art-e config` writes.

A command's option wins over it. `inbox` applies only to the file that `db` names."""

import json
from collections.abc import Mapping
from pathlib import Path

from art_e.errors import UserError
from art_e.storage import home, toml_content, write_whole

# The settings, each with what it is the default for.
SETTINGS = {
    "model": "the model that art-e ask asks",
    "db": "the inbox file of all commands",
    "inbox": "whose inbox it is, in that file",
    "judge": "the judge of art-e eval run",
}


def config_file() -> Path:
    """Return the path of the settings file, which may not exist."""
    return home() / "config.toml"


def settings() -> Mapping[str, str]:
    """Return all settings. Raises `UserError` if the file can't be read or has another setting."""
    path = config_file()
    content = toml_content(path)
    for name, value in content.items():
        if name not in SETTINGS or not isinstance(value, str):
            names = ", ".join(SETTINGS)
            raise UserError(f"{path}: unknown setting {name}; use {names} (strings)")
    return content


def setting(name: str) -> str | None:
    """Return the value of a setting, or None if it is not set. Raises as `settings`."""
    return settings().get(name)


def change(name: str, value: str | None) -> None:
    """Store a setting, or remove it if `value` is None."""
    changed = {**settings(), name: value}
    # A JSON string without lone surrogates is a valid TOML string.
    lines = [f"{key} = {json.dumps(each)}" for key, each in changed.items() if each is not None]
    config_file().parent.mkdir(parents=True, exist_ok=True)
    write_whole(config_file(), "".join(f"{line}\n" for line in lines))
