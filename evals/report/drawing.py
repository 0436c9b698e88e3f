"""A drawn chart as a file and as markup: PNG on white, SVG in the page's own colours.

Knows nothing of what is drawn.
"""

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure

from evals.report.charts import GRID, INK, MUTED, SERIES

_VARIABLES = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--line)",
    **{colour: f"var(--series-{number})" for number, colour in enumerate(SERIES, start=1)},
}
_COLOUR = re.compile("|".join(_VARIABLES))
_ID = re.compile(r'(\bid="|\burl\(#|href="#)')
_STYLE_SHEET = re.compile(r"<style\b.*?</style>", re.DOTALL)
_METADATA = re.compile(r"<metadata\b.*?</metadata>", re.DOTALL)
_XLINK = "http://www.w3.org/1999/xlink"
_DPI = 200


def write_png(figure: Figure, file: Path) -> None:
    """Write the figure as a picture on white."""
    with _quiet():
        figure.savefig(file, format="png", dpi=_DPI, facecolor="white", metadata={"Software": None})


def svg(figure: Figure, name: str, title: str) -> Markup:
    """The figure as markup for a page: one `<svg>` that is named `title` to who can't see it.

    Text stays text, in the page's font; colours are the page's variables; ids begin with
    `name`, so that several charts can share a page.
    """
    drawn = io.StringIO()
    with _quiet(), matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(drawn, format="svg", transparent=True, metadata={"Date": None})
    text = drawn.getvalue()
    start = text.index("<svg")
    head, _, body = text[start:].partition(">")
    box = re.search(r'viewBox="([^"]*)"', head)
    if box is None:
        raise ValueError("matplotlib wrote an <svg> without a viewBox")
    for part in (_STYLE_SHEET, _METADATA):
        body = part.sub("", body, count=1)
    # No width or height: the page decides on them.
    return Markup('<svg viewBox="{}" role="img" aria-label="{}" xmlns:xlink="{}">{}').format(
        box[1], title, _XLINK, Markup(_outside_text(body, name).strip())
    )


def _outside_text(body: str, name: str) -> str:
    """Colours and ids replaced in tags alone: a model may be named like either."""

    def replaced(tag: re.Match[str]) -> str:
        coloured = _COLOUR.sub(lambda found: _VARIABLES[found[0]], tag[0])
        return _ID.sub(rf"\g<1>{name}-", coloured)

    return re.sub(r"<[^>]*>", replaced, body)


@contextmanager
def _quiet() -> Iterator[None]:
    """A name in a script that the font lacks is drawn as boxes in the PNG; that is no news."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield
