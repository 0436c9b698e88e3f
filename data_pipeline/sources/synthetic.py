"""The synthetic world as a source:

    synthetic:SIZE[,seed=N][,short][,vocabulary=N][,names=N][,split=NAME]

A world's questions are parted by inbox; with a split named all of them are of that one, so that
whole companies are held out. Knows the spelling of the source, nothing of the world itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from art_e.errors import UserError
from art_e.question import SPLITS, Question, Split
from data_pipeline.records import RawMessage

if TYPE_CHECKING:
    from data_pipeline.synthetic.world import WorldConfig

PREFIX = "synthetic:"

_USAGE = (
    "synthetic:SIZE[,seed=N][,short][,vocabulary=N][,names=N][,split=NAME],"
    " such as synthetic:5000,seed=1"
)
_NUMBER = re.compile(r"[0-9]{1,9}")
_NUMBERED = ("seed", "vocabulary", "names")


class Described(NamedTuple):
    """A world, and the split of all its questions; None: they have several."""

    config: WorldConfig
    split: Split | None


def read(text: str) -> Iterator[RawMessage]:
    """The mails of the world that `text` describes."""
    from data_pipeline.synthetic.world import messages

    return iter(messages(described(text).config))


def questions_of(text: str) -> list[Question]:
    """The questions of the world that `text` describes, in the split that it names."""
    from data_pipeline.synthetic.world import questions

    told = described(text)
    asked = questions(told.config)
    return asked if told.split is None else [replace(each, split=told.split) for each in asked]


def described(text: str) -> Described:
    """The world of a source string. Raises `UserError` for any other spelling."""
    from data_pipeline.synthetic.world import WorldConfig

    size, *options = text.removeprefix(PREFIX).replace("_", "").split(",")
    settings: dict[str, Any] = {"size": _number(size, text)}
    split: Split | None = None
    for option in options:
        name, has_value, value = option.strip().partition("=")
        if name == "short" and not has_value:
            settings["short"] = True
        elif name in _NUMBERED and has_value:
            settings[name] = _number(value, text)
        elif name == "split" and value in SPLITS:
            split = value
        else:
            raise UserError(f"{text} has an unknown option {option!r}: write {_USAGE}")
    return Described(WorldConfig(**settings), split)


def _number(digits: str, text: str) -> int:
    if not _NUMBER.fullmatch(digits.strip()):
        raise UserError(f"{text} has {digits!r} where a number belongs: write {_USAGE}")
    return int(digits)
