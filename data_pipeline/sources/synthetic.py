"""The synthetic world as a source: `synthetic:SIZE[,seed=N][,short][,vocabulary=N][,names=N]`.

Knows the spelling of the source, nothing of the world itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from art_e.errors import UserError
from data_pipeline.records import RawMessage

if TYPE_CHECKING:
    from data_pipeline.synthetic.world import WorldConfig

PREFIX = "synthetic:"

_USAGE = "synthetic:SIZE[,seed=N][,short][,vocabulary=N][,names=N], such as synthetic:5000,seed=1"
_NUMBER = re.compile(r"[0-9]{1,9}")
_NUMBERED = ("seed", "vocabulary", "names")


def read(text: str) -> Iterator[RawMessage]:
    """The mails of the world that `text` describes."""
    from data_pipeline.synthetic.world import messages

    return iter(messages(config_of(text)))


def config_of(text: str) -> WorldConfig:
    """The world of a source string. Raises `UserError` for any other spelling."""
    from data_pipeline.synthetic.world import WorldConfig

    size, *options = text.removeprefix(PREFIX).replace("_", "").split(",")
    settings: dict[str, Any] = {"size": _number(size, text)}
    for option in options:
        name, has_value, value = option.strip().partition("=")
        if name == "short" and not has_value:
            settings["short"] = True
        elif name in _NUMBERED and has_value:
            settings[name] = _number(value, text)
        else:
            raise UserError(f"{text} has an unknown option {option!r}: write {_USAGE}")
    return WorldConfig(**settings)


def _number(digits: str, text: str) -> int:
    if not _NUMBER.fullmatch(digits.strip()):
        raise UserError(f"{text} has {digits!r} where a number belongs: write {_USAGE}")
    return int(digits)
