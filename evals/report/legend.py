"""Where the names of a chart's series stand, and names cut to what can be drawn.

Lengths are points. Knows nothing of what is drawn and in which colours.
"""

from collections.abc import Sequence
from typing import NamedTuple

from art_e.text import printable

# How far from the left a line begins, and how high it is.
EDGE, LEGEND_LINE = 16, 18

_SQUARE, _CHAR, _APART = 14, 6.4, 14
_LABEL_CHARS, _NAME_CHARS = 52, 40


class Place(NamedTuple):
    """Where a name stands, with the square of its colour: how far from the left, and on which
    line from the top."""

    name: str
    at: float
    line: int


def legend_places(names: Sequence[str], width: float) -> list[Place]:
    """The places of all names, in as many lines of that width as they need."""
    places: list[Place] = []
    at, line = float(EDGE), 0
    for name in names:
        shown = cut(name, _NAME_CHARS)
        length = _SQUARE + _CHAR * len(shown)
        if at > EDGE and at + length > width:
            at, line = float(EDGE), line + 1
        places.append(Place(shown, at, line))
        at += length + _APART
    return places


def legend_height(names: Sequence[str], width: float) -> int:
    """How high a legend of these names is; a single one needs none."""
    return LEGEND_LINE * (legend_places(names, width)[-1].line + 1) if len(names) > 1 else 0


def cut(label: str, chars: int = _LABEL_CHARS) -> str:
    """A label on one line, cut in the middle where it is long, of what can be drawn alone."""
    line = " ".join(printable(label).split())
    return line if len(line) <= chars else f"{line[: chars // 2 - 1]}…{line[chars // 2 - chars :]}"
