"""A TOML file by its name or path, with what `--set` changes in it.

A name is that of a file that comes with the package, in the folder of its kind; anything else
is a path. Knows nothing of what may stand in the file.
"""

import tomllib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from art_e.errors import UserError

_PACKAGE = "training"

_Model = TypeVar("_Model", bound=BaseModel)


class Kind(NamedTuple):
    """What the file is, in words, and the folder of those that come with the package."""

    word: str
    folder: str

    def names(self) -> list[str]:
        """Those that come with the package."""
        files = resources.files(_PACKAGE).joinpath(self.folder).iterdir()
        return sorted(Path(each.name).stem for each in files if each.name.endswith(".toml"))


class Content(NamedTuple):
    """What a file says, and what it is called in errors."""

    table: dict[str, Any]
    called: str


def read_content(kind: Kind, name: str, changes: Sequence[str] = ()) -> Content:
    """The content of the file of that name or path, with `changes` such as "reward.effort=0.1".

    Its `name` is the file's where it does not say. Raises `UserError` for what is no such file
    and for a change that is none.
    """
    text, called = _read(kind, name)
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{called} is no TOML: {error}; mend it") from None
    table.setdefault("name", Path(called).stem)
    for change in changes:
        _change(table, change, kind)
    return Content(table, called)


def validated(model: type[_Model], content: Content, kind: Kind) -> _Model:
    """The content as `model`. Raises `UserError`, naming the field, for what it does not take."""
    try:
        return model.model_validate(content.table)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or f"the {kind.word}"
        said = first["msg"].removeprefix("Value error, ")
        raise UserError(
            f"{content.called}: {where}: {said}; mend the {kind.word} or --set"
        ) from None


def _read(kind: Kind, name: str) -> tuple[str, str]:
    """The file's text, and what it is called in errors."""
    own = resources.files(_PACKAGE).joinpath(f"{kind.folder}/{name}.toml")
    path = Path(name)
    try:
        if path.name == name and path.suffix != ".toml" and own.is_file():
            return own.read_text("utf-8"), f"{name}.toml"
        return path.read_text("utf-8"), str(path)
    except (OSError, UnicodeDecodeError):
        known = ", ".join(kind.names())
        raise UserError(
            f"no {kind.word} {name!r}; there are {known}, or give a TOML file"
        ) from None


def _change(content: dict[str, Any], change: str, kind: Kind) -> None:
    """Put one `table.field=value` into the content; the value is TOML, or else plain text."""
    key, has_value, value = change.partition("=")
    *tables, last = key.strip().split(".")
    if not has_value or not last or not all(tables):
        raise UserError(f"--set {change!r} is no change; write it as table.field=value")
    place: Any = content
    for name in tables:
        place = place.setdefault(name, {})
        if not isinstance(place, dict):
            raise UserError(f"--set {change!r}: {name} is no table of the {kind.word}")
    try:
        place[last] = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        place[last] = value.strip()
