"""Charts as data, drawn by matplotlib: PNG on white, SVG in the page's own colours.

matplotlib is imported when a chart is drawn, so that commands which draw none start fast.
"""

import io
import itertools
import math
import re
import textwrap
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import pandas as pd
from markupsafe import Markup

from art_e.text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Transform

# Each stands for a CSS variable of the page; the PNG shows it as it is.
INK, MUTED, GRID = "#1b2432", "#5d6979", "#dfe3e9"
SERIES = ("#3566b8", "#d9822b", "#2f8f6b", "#a2539c", "#b5473c", "#6f7d1e")

Scale = Literal["share", "usd", "seconds", "number"]
Rows = TypeVar("Rows", pd.Series, pd.DataFrame)

# Points, which are CSS pixels in the page.
WIDTH, _EDGE = 400, 16
_TEXT_WIDTH = 160  # the column of figures on the right of dots
_BAR, _LABEL, _GAP, _HEAD = 15, 17, 9, 6
_CURVE_HEIGHT, _BASELINE_WIDTH, _SCATTER_HEIGHT = 200, 142, 240
_LINE = 0.06  # the height of a line of text there, as a part of it
_FONT, _SMALL, _CHAR, _LEGEND_LINE = 11.5, 10.5, 6.4, 18
# A longer name is cut in the middle, so that it fits its place.
_LABEL_CHARS, _NAME_CHARS, _BASELINE_CHARS, _POINT_CHARS = 52, 40, 23, 30
# Curves of more steps have no dots; behind more curves no single steps are drawn.
_FEW_STEPS, _FEW_CURVES = 30, 3


def cut(label: str, chars: int = _LABEL_CHARS) -> str:
    """A label of printable characters on one line, cut in the middle where it is long."""
    line = _on_a_line(label)
    return line if len(line) <= chars else f"{line[: chars // 2 - 1]}…{line[chars // 2 - chars :]}"


def _on_a_line(label: str) -> str:
    return " ".join(printable(label).split())


# ---- Charts as data: dots with intervals, and curves over training steps.


@dataclass(frozen=True, slots=True)
class Mark:
    """One dot: its value, its interval if any, and the text written beside it."""

    value: float | None
    text: str
    low: float | None = None
    high: float | None = None

    def figures(self) -> dict[str, float | None]:
        """Its numbers by name."""
        return {"value": self.value, "low": self.low, "high": self.high}


@dataclass(frozen=True, slots=True)
class DotRow:
    """A label with a dot for each of the chart's series, or for its first ones."""

    label: str
    marks: tuple[Mark, ...]
    published: bool = False


@dataclass(frozen=True)
class Chart(ABC):
    """What charts have in common; `name` is a file's name without its ending."""

    name: str
    title: str
    note: str
    scale: Scale

    @abstractmethod
    def draw(self, *, titled: bool) -> "Figure":
        """The chart as a figure, with its title and note if `titled`."""

    @abstractmethod
    def frame(self) -> pd.DataFrame:
        """What it shows, for a CSV file."""


@dataclass(frozen=True)
class DotChart(Chart):
    """A dot plot, of money and time on a logarithmic scale; what is published is hollow."""

    rows: tuple[DotRow, ...]
    series: tuple[str, ...] = ()

    def draw(self, *, titled: bool) -> "Figure":
        """The chart as a figure, with its title and note if `titled`."""
        from matplotlib.transforms import blended_transform_factory

        marks = sum(len(row.marks) for row in self.rows)
        plot = len(self.rows) * (_LABEL + _GAP) + marks * _BAR
        names = self.series if len(self.series) > 1 else ()
        figure, axes = _open(self, plot, names, titled, left=_EDGE, right=_TEXT_WIDTH, below=24)
        across = blended_transform_factory(figure.dpi_scale_trans, axes.transData)
        axes.set_ylim(plot, 0)
        axes.set_yticks([])
        self._scale_x(axes)
        at = 0.0
        for row in self.rows:
            label = cut(row.label) + (" (published)" if row.published else "")
            ink = MUTED if row.published else INK
            _write(axes, _EDGE / 72, at + _LABEL - 5, label, ink, _FONT, transform=across)
            at += _LABEL
            for mark, colour in zip(row.marks, SERIES, strict=False):
                self._draw_mark(axes, across, mark, colour, row.published, at + _BAR / 2)
                at += _BAR
            at += _GAP
        return figure

    def frame(self) -> pd.DataFrame:
        """A row for each dot."""
        return pd.DataFrame(
            [
                {
                    "label": _on_a_line(row.label),
                    "figure": name,
                    **mark.figures(),
                    "published": row.published,
                }
                for row in self.rows
                for name, mark in zip(self.series or (self.name,), row.marks, strict=False)
            ]
        )

    def _draw_mark(
        self, axes: "Axes", across: "Transform", mark: Mark, colour: str, published: bool, at: float
    ) -> None:
        if mark.low is not None and mark.high is not None:
            ends: dict[str, Any] = {"marker": "|", "markersize": 6, "markeredgewidth": 1.1}
            axes.plot([mark.low, mark.high], [at, at], color=colour, linewidth=1.1, **ends)
        if mark.value is not None and mark.value >= axes.get_xlim()[0]:
            axes.plot([mark.value], [at], **_dot(colour, hollow=published))
        ink = MUTED if published else INK
        right = {"transform": across, "ha": "right", "va": "center"}
        _write(axes, (WIDTH - 2) / 72, at, mark.text, ink, _SMALL, **right)

    def _scale_x(self, axes: "Axes") -> None:
        marks = [mark for row in self.rows for mark in row.marks]
        tops = [top for mark in marks for top in (mark.value, mark.high) if top is not None]
        if self.scale == "share":
            axes.set_xlim(0, 1)
            axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
        elif self.scale in ("usd", "seconds"):
            lowest = min((mark.value for mark in marks if mark.value), default=1.0)
            axes.set_xscale("log")
            axes.set_xlim(
                10.0 ** math.floor(math.log10(lowest) - 0.3), (max(tops, default=0) or 1.0) * 1.6
            )
            axes.locator_params(axis="x", numticks=5)
            axes.minorticks_off()
        else:
            axes.set_xlim(0, max([*tops, 1e-9]) * 1.05)
            axes.locator_params(axis="x", nbins=4, min_n_ticks=3)
        axes.xaxis.set_major_formatter(_tick(self.scale))
        axes.grid(axis="x", color=GRID, linewidth=0.8)


@dataclass(frozen=True)
class CurveChart(Chart):
    """Curves over training steps, and values of untrained models as horizontal lines, by label.

    A curve's index holds its steps, or what `along` names. With `smooth` above 1 it is drawn as the
    mean of so many steps around each; where there are few curves the steps themselves are drawn
    thinly behind. A curve that is the mean of seeds has a band between the columns "low" and "high"
    of `bands`.
    """

    curves: Mapping[str, pd.Series]
    bands: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    baselines: Mapping[str, float] = field(default_factory=dict)
    smooth: int = 1
    along: str = "training step"

    def draw(self, *, titled: bool) -> "Figure":
        """The chart as a figure, with its title and note if `titled`."""
        names = list(self.curves) if len(self.curves) > 1 else ()
        right = _BASELINE_WIDTH if self.baselines else _EDGE
        figure, axes = _open(self, _CURVE_HEIGHT, names, titled, left=44, right=right, below=40)
        for (label, values), colour in zip(
            self.curves.items(), itertools.cycle(SERIES), strict=False
        ):
            if (band := self.bands.get(label)) is not None:
                ends = self._smoothed(band.dropna())
                how: dict[str, Any] = {"color": colour, "alpha": 0.18, "linewidth": 0}
                axes.fill_between(ends.index, ends["low"], ends["high"], **how)
            self._draw_curve(axes, values.dropna(), colour, thin=band is None)
        for value in self.baselines.values():
            axes.axhline(value, color=MUTED, linewidth=1.1, linestyle=(0, (5, 4)))
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
        axes.set_xlabel(self.along, color=MUTED, size=_SMALL)
        axes.grid(axis="y", color=GRID, linewidth=0.8)
        self._label_baselines(axes)
        return figure

    def frame(self) -> pd.DataFrame:
        """A row for each step, with a column for each curve and line, unsmoothed."""
        columns: dict[str, Any] = {**self.curves, **self.baselines}
        for label, band in self.bands.items():
            columns |= {f"{label}, {end}": band[end] for end in ("low", "high")}
        found = pd.DataFrame({_on_a_line(name): column for name, column in columns.items()})
        return found.rename_axis(self.along).reset_index()

    def _smoothed(self, values: Rows) -> Rows:
        return values.rolling(self.smooth, center=True, min_periods=1).mean()

    def _draw_curve(self, axes: "Axes", values: pd.Series, colour: str, *, thin: bool) -> None:
        if thin and self.smooth > 1 and len(self.curves) <= _FEW_CURVES:
            axes.plot(values.index, values, color=colour, linewidth=0.8, alpha=0.35)
        smoothed = self._smoothed(values)
        dots = "o" if len(values) <= _FEW_STEPS else ""
        axes.plot(values.index, smoothed, color=colour, linewidth=2, marker=dots, markersize=4)

    def _label_baselines(self, axes: "Axes") -> None:
        """Write each label at the end of its line, or higher where another one is in the way."""
        low, high = axes.get_ylim()
        taken = low
        how: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "va": "center"}
        for label, value in sorted(self.baselines.items(), key=lambda item: item[1]):
            at = max(value, taken)
            taken = at + (high - low) * 14 / _CURVE_HEIGHT
            _write(axes, 1.02, at, cut(label, _BASELINE_CHARS), MUTED, _SMALL, **how)


class Point(NamedTuple):
    """A model in a `ScatterChart`: its cost in US dollars, and its accuracy with an interval."""

    label: str
    usd: float
    accuracy: Mark
    published: bool = False


@dataclass(frozen=True)
class ScatterChart(Chart):
    """Accuracy against cost, which is on a logarithmic scale with a place of its own for nothing;
    what is published is hollow."""

    points: tuple[Point, ...]

    def draw(self, *, titled: bool) -> "Figure":
        """The chart as a figure, with its title and note if `titled`."""
        figure, axes = _open(self, _SCATTER_HEIGHT, (), titled, left=44, right=_EDGE, below=40)
        paid = [each.usd for each in self.points if each.usd] or [1.0]
        lowest = math.floor(math.log10(min(paid)))
        highest = max(math.ceil(math.log10(max(paid))), lowest + 1)
        free = 10.0 ** (lowest - 1)
        axes.set_xscale("log")
        axes.set_xlim(free / 3, 10.0**highest * 1.5)
        decades = [10.0**power for power in range(lowest, highest + 1)]
        axes.set_xticks([free, *decades], ["$0", *(_tick("usd")(each, 0) for each in decades)])
        axes.minorticks_off()
        axes.set_ylim(-0.02, 1.04)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
        axes.yaxis.set_major_formatter(_tick("share"))
        axes.grid(color=GRID, linewidth=0.8)
        axes.set_xlabel("cost per 1,000 questions", color=MUTED, size=_SMALL)
        taken: list[tuple[float, float]] = []
        for each in sorted(self.points, key=lambda point: -(point.accuracy.value or 0)):
            at, mark, colour = each.usd or free, each.accuracy, SERIES[0]
            if mark.value is None:
                continue
            if mark.low is not None and mark.high is not None:
                axes.plot([at, at], [mark.low, mark.high], color=colour, linewidth=1, alpha=0.5)
            axes.plot([at], [mark.value], **_dot(colour, hollow=each.published))
            # A label is on the side where there is room, and below those that it would cover.
            left = math.log10(at) > (lowest - 1 + highest) / 2
            y = mark.value
            while any(abs(y - other) < _LINE and left == side for other, side in taken):
                y -= _LINE / 4
            taken.append((y, left))
            how: dict[str, Any] = {"va": "center", "ha": "right" if left else "left"}
            ink = MUTED if each.published else INK
            text = cut(each.label, _POINT_CHARS)
            _write(axes, at * (0.82 if left else 1.22), y, text, ink, _SMALL, **how)
        return figure

    def frame(self) -> pd.DataFrame:
        """A row for each model."""
        return pd.DataFrame(
            [
                {"label": _on_a_line(each.label), "usd": each.usd, **each.accuracy.figures()}
                | {"published": each.published}
                for each in self.points
            ]
        )


def _dot(colour: str, *, hollow: bool) -> dict[str, Any]:
    return {
        "marker": "o",
        "markersize": 7,
        "color": colour,
        "markerfacecolor": "none" if hollow else colour,
        "markeredgewidth": 1.4,
    }


def _open(
    chart: Chart,
    plot: float,
    names: Sequence[str],
    titled: bool,
    *,
    left: float,
    right: float,
    below: float,
) -> "tuple[Figure, Axes]":
    """A figure with an empty plot of that height, under its title, note and legend."""
    from matplotlib.figure import Figure

    names = [cut(name, _NAME_CHARS) for name in names]
    column = max((22 + _CHAR * len(name) for name in names), default=WIDTH)
    columns = max(1, int((WIDTH - _EDGE) / column))
    legend = _LEGEND_LINE * math.ceil(len(names) / columns)
    notes = textwrap.wrap(chart.note, 78) if titled else []
    title = 26 + 13 * len(notes) if titled else 0
    height = title + _HEAD + legend + plot + below
    figure = Figure(figsize=(WIDTH / 72, height / 72), dpi=72)
    axes = figure.add_axes(
        (left / WIDTH, below / height, (WIDTH - left - right) / WIDTH, plot / height)
    )
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    axes.tick_params(colors=MUTED, labelsize=_SMALL, length=0)
    axes.patch.set_visible(False)
    if titled:
        _write(figure, _EDGE / WIDTH, 1 - 20 / height, chart.title, INK, 13, weight="bold")
    for number, line in enumerate(notes, start=1):
        _write(figure, _EDGE / WIDTH, 1 - (22 + 13 * number) / height, line, MUTED, 9)
    for number, name in enumerate(names):
        x = _EDGE + column * (number % columns)
        y = 1 - (title + _HEAD + _LEGEND_LINE * (number // columns + 0.5)) / height
        colour = SERIES[number % len(SERIES)]
        _write(figure, x / WIDTH, y, "■", colour, _FONT, va="center")
        _write(figure, (x + 14) / WIDTH, y, name, INK, _SMALL, va="center")
    return figure, axes


def _write(
    on: "Axes | Figure", x: float, y: float, text: str, colour: str, size: float, **how: Any
) -> None:
    """Write text as it is: a "$" in a model's name begins no formula."""
    on.text(x, y, text, color=colour, size=size, parse_math=False, **how)


def _tick(scale: Scale) -> Callable[[float, float], str]:
    def shown(value: float, _: float) -> str:
        if scale == "share":
            return f"{value:.0%}"
        number = f"{value:,.0f}" if value >= 10 else f"{value:g}"
        return {"usd": f"${number}", "seconds": f"{number} s"}.get(scale, number)

    return shown


# ---- A drawn chart as a file and as markup.

_VARIABLES = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--line)",
    **{colour: f"var(--series-{number})" for number, colour in enumerate(SERIES, start=1)},
}
_COLOUR = re.compile("|".join(_VARIABLES))
_ID = re.compile(r'(\bid="|\burl\(#|href="#)')
_UNWANTED = re.compile(r"<(style|metadata)\b.*?</\1>", re.DOTALL)
_DPI = 200


def write_png(figure: "Figure", file: Path | io.BytesIO) -> None:
    """Write the figure as a picture on white."""
    with _quiet():
        figure.savefig(file, format="png", dpi=_DPI, facecolor="white", metadata={"Software": None})


def write_picture(path: Path, charts: "Sequence[Chart]", columns: int = 2) -> None:
    """Draw the charts in a grid, as one PNG."""
    from PIL import Image

    pictures, tops = [], [0]
    for chart in charts:
        drawn = io.BytesIO()
        write_png(chart.draw(titled=True), drawn)
        pictures.append(Image.open(drawn).convert("RGB"))
    for at in range(0, len(pictures), columns):
        tops.append(tops[-1] + max(each.height for each in pictures[at : at + columns]))
    # All charts have the same width.
    width = pictures[0].width
    whole = Image.new("RGB", (width * min(columns, len(pictures)), tops[-1]), "white")
    for number, each in enumerate(pictures):
        whole.paste(each, (width * (number % columns), tops[number // columns]))
    whole.save(path, format="PNG")


def svg(chart: Chart) -> Markup:
    """The chart as one `<svg>`, labelled with its title.

    Text stays text, in the page's font; colours are the page's variables; ids begin with the
    chart's name, so that several charts can share a page.
    """
    import matplotlib

    drawn = io.StringIO()
    with _quiet(), matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": chart.name}):
        chart.draw(titled=False).savefig(
            drawn, format="svg", transparent=True, metadata={"Date": None}
        )
    head, _, body = drawn.getvalue().partition("<svg")[2].partition(">")
    box = re.search(r'viewBox="([^"]*)"', head)
    if box is None:
        raise ValueError("matplotlib wrote an <svg> without a viewBox")

    def replaced(tag: re.Match[str]) -> str:
        coloured = _COLOUR.sub(lambda found: _VARIABLES[found[0]], tag[0])
        return _ID.sub(rf"\g<1>{chart.name}-", coloured)

    # Only in tags: a model may be named like a colour or an id.
    body = re.sub(r"<[^>]*>", replaced, _UNWANTED.sub("", body))
    # No width or height: the page decides on them.
    return Markup(
        '<svg viewBox="{}" role="img" aria-label="{}" xmlns:xlink="http://www.w3.org/1999/xlink">{}'
    ).format(box[1], chart.title, Markup(body.strip()))


@contextmanager
def _quiet() -> Iterator[None]:
    """Draw characters that the PNG's font lacks as boxes, without a warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield
