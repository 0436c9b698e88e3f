"""Charts as data, drawn by matplotlib: PNG on white, SVG in the page's own colours.

matplotlib is imported when a chart is drawn, so that commands which draw none start fast.
"""

import io
import math
import re
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from markupsafe import Markup

from art_e.text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Transform

# ---- Where the names of a chart's series stand, and names cut to what can be drawn.

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


# ---- Charts as data, drawn by matplotlib: bars with intervals, and curves over training steps.

# Each stands for a CSS variable of the page (evals/report/charts.py); the PNG shows it as it is.
INK, MUTED, GRID = "#1b2432", "#5d6979", "#dfe3e9"
SERIES = ("#3566b8", "#d9822b", "#2f8f6b", "#a2539c", "#b5473c", "#6f7d1e")

Scale = Literal["share", "usd", "seconds", "number"]

# Points, which are CSS pixels in the page.
WIDTH = 400
_TEXT_WIDTH = 160  # the column of figures on the right of bars
_BAR, _LABEL, _GAP, _HEAD, _FOOT = 15, 17, 9, 6, 24
_CURVE_HEIGHT, _BASELINE_WIDTH, _BASELINE_CHARS = 200, 142, 23
_FONT, _SMALL = 11.5, 10.5
# Curves of more steps have no dots; behind more curves no single steps are drawn.
_FEW_STEPS, _FEW_CURVES = 30, 3


@dataclass(frozen=True, slots=True)
class Mark:
    """One bar: its value, its interval where it has one, and the figures written beside it."""

    value: float | None
    text: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Bar:
    """What has a label: a bar for each of the chart's series, or for its first ones."""

    label: str
    marks: tuple[Mark, ...]
    published: bool = False


@dataclass(frozen=True, slots=True)
class BarChart:
    """Horizontal bars; `name` is a file's name without its ending."""

    name: str
    title: str
    note: str
    scale: Scale
    bars: tuple[Bar, ...]
    series: tuple[str, ...] = ()
    log: bool = False

    def draw(self, *, titled: bool) -> "Figure":
        """The chart as a figure; with its title and note where nothing else says them."""
        from matplotlib.transforms import blended_transform_factory

        legend = legend_height(self.series, WIDTH)
        marks = sum(len(bar.marks) for bar in self.bars)
        plot = len(self.bars) * (_LABEL + _GAP) + marks * _BAR
        frame = _Frame(plot, self.title, self.note, titled, left=EDGE, right=_TEXT_WIDTH)
        figure, axes = frame.open(above=_HEAD + legend, below=_FOOT)
        across = blended_transform_factory(figure.dpi_scale_trans, axes.transData)
        axes.set_ylim(plot, 0)
        axes.set_yticks([])
        self._scale_x(axes)
        at = 0.0
        for bar in self.bars:
            label = cut(bar.label) + (" (published)" if bar.published else "")
            ink = MUTED if bar.published else INK
            _write(axes, EDGE / 72, at + _LABEL - 5, label, ink, _FONT, transform=across)
            at += _LABEL
            for number, mark in enumerate(bar.marks):
                self._draw_mark(axes, across, bar, mark, number, at + _BAR / 2)
                at += _BAR
            at += _GAP
        if legend:
            frame.legend(figure, self.series)
        return figure

    def _draw_mark(
        self, axes: "Axes", across: "Transform", of: Bar, mark: Mark, number: int, at: float
    ) -> None:
        colour = SERIES[number]
        left = axes.get_xlim()[0]
        if mark.value is not None and mark.value > left:
            look = (
                {"facecolor": "none", "edgecolor": colour, "hatch": "//////", "linewidth": 0.8}
                if of.published
                else {"facecolor": colour, "edgecolor": "none"}
            )
            axes.barh(at, mark.value - left, left=left, height=_BAR - 5, **look)
        if mark.low is not None and mark.high is not None:
            axes.plot([mark.low, mark.high], [at, at], color=INK, linewidth=1.1)
            for end in (mark.low, mark.high):
                axes.plot([end, end], [at - 3, at + 3], color=INK, linewidth=1.1)
        _write(
            axes,
            (WIDTH - 2) / 72,
            at,
            mark.text,
            MUTED if of.published else INK,
            _SMALL,
            transform=across,
            ha="right",
            va="center",
        )

    def _scale_x(self, axes: "Axes") -> None:
        marks = [mark for bar in self.bars for mark in bar.marks]
        tops = [top for mark in marks for top in (mark.value, mark.high) if top is not None]
        if self.scale == "share":
            axes.set_xlim(0, 1)
            axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
        elif self.log:
            positive = [top for top in tops if top > 0] or [1.0]
            lowest = min(mark.value for mark in marks if mark.value) if any(tops) else 1.0
            axes.set_xscale("log")
            axes.set_xlim(10.0 ** math.floor(math.log10(lowest) - 0.3), max(positive) * 1.6)
            axes.locator_params(axis="x", numticks=5)
            axes.minorticks_off()
        else:
            axes.set_xlim(0, max([*tops, 1e-9]) * 1.05)
            axes.locator_params(axis="x", nbins=4, min_n_ticks=3)
        axes.xaxis.set_major_formatter(_tick(self.scale))
        axes.grid(axis="x", color=GRID, linewidth=0.8)


@dataclass(frozen=True, slots=True)
class Curve:
    """One training run's figure over its steps; bounds are None where there is no interval."""

    label: str
    steps: tuple[int, ...]
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True)
class Baseline:
    """A model that was not trained: a line across the chart."""

    label: str
    value: float


@dataclass(frozen=True, slots=True)
class CurveChart:
    """Curves over training steps, with baselines as horizontal lines.

    With `smooth` above 1 a curve is the mean of so many steps around each; where there are
    few curves the steps themselves are drawn thinly behind.
    """

    name: str
    title: str
    note: str
    scale: Scale
    curves: tuple[Curve, ...]
    baselines: tuple[Baseline, ...] = ()
    smooth: int = 1

    def draw(self, *, titled: bool) -> "Figure":
        """The chart as a figure; with its title and note where nothing else says them."""
        names = tuple(curve.label for curve in self.curves) if len(self.curves) > 1 else ()
        legend = legend_height(names, WIDTH)
        right = _BASELINE_WIDTH if self.baselines else EDGE
        frame = _Frame(_CURVE_HEIGHT, self.title, self.note, titled, left=44, right=right)
        figure, axes = frame.open(above=_HEAD + legend, below=40)
        for number, curve in enumerate(self.curves):
            colour = SERIES[number % len(SERIES)]
            known = [
                (step, mark.value, mark.low, mark.high)
                for step, mark in zip(curve.steps, curve.marks, strict=True)
                if mark.value is not None
            ]
            banded = [
                (step, low, high)
                for step, _, low, high in known
                if low is not None and high is not None
            ]
            if banded:
                steps, lows, highs = zip(*banded, strict=True)
                axes.fill_between(steps, lows, highs, color=colour, alpha=0.16, linewidth=0)
            self._draw_curve(
                axes, [step for step, *_ in known], [value for _, value, *_ in known], colour
            )
        self._draw_baselines(axes)
        if self.scale == "share":
            axes.set_ylim(-0.02, 1.02)
            axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
        else:
            axes.margins(y=0.12)
            if axes.dataLim.ymin >= 0:
                axes.set_ylim(0, axes.get_ylim()[1] * 1.05)
            elif axes.dataLim.ymax > 0:
                axes.axhline(0, color=MUTED, linewidth=0.8)
            axes.locator_params(axis="y", nbins=5, steps=[1, 2, 2.5, 5, 10])
        axes.yaxis.set_major_formatter(_tick(self.scale))
        axes.locator_params(axis="x", nbins=6, integer=True)
        axes.set_xlabel("training step", color=MUTED, size=_SMALL)
        axes.grid(axis="y", color=GRID, linewidth=0.8)
        self._label_baselines(axes)
        if legend:
            frame.legend(figure, names)
        return figure

    def _draw_curve(
        self, axes: "Axes", steps: Sequence[int], values: Sequence[float], colour: str
    ) -> None:
        if self.smooth > 1 and len(self.curves) <= _FEW_CURVES:
            axes.plot(steps, values, color=colour, linewidth=0.8, alpha=0.35)
        axes.plot(
            steps,
            _smoothed(values, self.smooth),
            color=colour,
            linewidth=2,
            # Dots tell steps apart where there are few.
            marker="o" if len(steps) <= _FEW_STEPS else "",
            markersize=4,
        )

    def _draw_baselines(self, axes: "Axes") -> None:
        for baseline in self.baselines:
            axes.axhline(baseline.value, color=MUTED, linewidth=1.1, linestyle=(0, (5, 4)))

    def _label_baselines(self, axes: "Axes") -> None:
        """Each label at the end of its line, or higher where another one is in the way."""
        low, high = axes.get_ylim()
        line = (high - low) / (_CURVE_HEIGHT / 14)
        taken = low
        for baseline in sorted(self.baselines, key=lambda each: each.value):
            at = max(baseline.value, taken)
            taken = at + line
            _write(
                axes,
                1.02,
                at,
                cut(baseline.label, _BASELINE_CHARS),
                MUTED,
                _SMALL,
                transform=axes.get_yaxis_transform(),
                va="center",
            )


Chart = BarChart | CurveChart


@dataclass(frozen=True, slots=True)
class _Frame:
    """A plot of that height in points, and what stands around it."""

    plot: float
    title: str
    note: str
    titled: bool
    left: float
    right: float

    def open(self, *, above: float, below: float) -> "tuple[Figure, Axes]":
        """The figure and its empty plot, with so much room above it and below."""
        from matplotlib.figure import Figure

        notes = textwrap.wrap(self.note, 78) if self.titled else []
        title = 26 + 13 * len(notes) if self.titled else 0
        height = title + above + self.plot + below
        figure = Figure(figsize=(WIDTH / 72, height / 72), dpi=72)
        axes = figure.add_axes(
            (
                self.left / WIDTH,
                below / height,
                (WIDTH - self.left - self.right) / WIDTH,
                self.plot / height,
            )
        )
        axes.set_axisbelow(True)
        for side in ("top", "right", "left", "bottom"):
            axes.spines[side].set_visible(False)
        axes.tick_params(colors=MUTED, labelsize=_SMALL, length=0)
        axes.patch.set_visible(False)
        if self.titled:
            self._write_title(figure, notes, height)
        return figure, axes

    def legend(self, figure: "Figure", names: tuple[str, ...]) -> None:
        """The series' names and colours above the plot, in as many lines as they need."""
        axes = figure.axes[0]
        height = figure.get_figheight() * 72
        places = legend_places(names, WIDTH)
        lines = places[-1].line + 1
        for number, (name, at, line) in enumerate(places):
            above = _HEAD + LEGEND_LINE * (lines - line - 0.5) - 2
            y = axes.get_position().y1 + above / height
            colour = SERIES[number % len(SERIES)]
            _write(figure, at / WIDTH, y, "■", colour, _FONT, va="center")
            _write(figure, (at + 14) / WIDTH, y, name, INK, _SMALL, va="center")

    def _write_title(self, figure: "Figure", notes: list[str], height: float) -> None:
        _write(figure, EDGE / WIDTH, 1 - 20 / height, self.title, INK, 13, weight="bold")
        for number, line in enumerate(notes, start=1):
            y = 1 - (22 + 13 * number) / height
            _write(figure, EDGE / WIDTH, y, line, MUTED, 9)


def _smoothed(values: Sequence[float], steps: int) -> list[float]:
    """The means of so many values around each, of fewer at the ends."""
    before, after = (steps - 1) // 2, steps // 2
    return [fmean(values[max(0, at - before) : at + after + 1]) for at in range(len(values))]


def _write(
    on: "Axes | Figure", x: float, y: float, text: str, colour: str, size: float, **how: Any
) -> None:
    """Text as it is: a "$" in a model's name begins no formula."""
    on.text(x, y, text, color=colour, size=size, parse_math=False, **how)


def _tick(scale: Scale) -> Callable[[float, float], str]:
    def shown(value: float, _: float) -> str:
        if scale == "share":
            return f"{value:.0%}"
        if scale == "seconds" and 0 < value < 1:
            return f"{1000 * value:g} ms"
        number = f"{value:,.0f}" if value >= 10 else f"{value:g}"
        return {"usd": f"${number}", "seconds": f"{number} s"}.get(scale, number)

    return shown


# ---- A drawn chart as a file and as markup: PNG on white, SVG in the page's own colours.

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


def write_png(figure: "Figure", file: Path | io.BytesIO) -> None:
    """Write the figure as a picture on white."""
    with _quiet():
        figure.savefig(file, format="png", dpi=_DPI, facecolor="white", metadata={"Software": None})


def write_picture(path: Path, charts: "Sequence[Chart]", columns: int = 2) -> None:
    """Draw the charts in a grid, as one PNG."""
    from PIL import Image

    pictures = []
    for chart in charts:
        drawn = io.BytesIO()
        write_png(chart.draw(titled=True), drawn)
        pictures.append(Image.open(drawn).convert("RGB"))
    rows = [pictures[at : at + columns] for at in range(0, len(pictures), columns)]
    heights = [max(each.height for each in row) for row in rows]
    width = max(sum(each.width for each in row) for row in rows)
    whole = Image.new("RGB", (width, sum(heights)), "white")
    for number, row in enumerate(rows):
        left = 0
        for each in row:
            whole.paste(each, (left, sum(heights[:number])))
            left += each.width
    whole.save(path, format="PNG")


def svg(figure: "Figure", name: str, title: str) -> Markup:
    """The figure as markup for a page: one `<svg>` that is named `title` to who can't see it.

    Text stays text, in the page's font; colours are the page's variables; ids begin with
    `name`, so that several charts can share a page.
    """
    import matplotlib

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
