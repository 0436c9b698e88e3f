"""Charts as data, drawn by matplotlib: PNG on white, SVG in the page's colours.

matplotlib is imported when a chart is drawn, so that commands without charts start fast."""

import io
import itertools
import math
import textwrap
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pandas as pd
from markupsafe import Markup
from PIL import Image

from art_e.text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# page.css maps these colours to variables; the PNG uses them as they are.
INK, MUTED, GRID = "#1b2432", "#5d6979", "#dfe3e9"
SERIES = ("#3566b8", "#d9822b", "#2f8f6b", "#a2539c", "#b5473c", "#6f7d1e")

Scale = Literal["share", "usd", "seconds", "number"]

WIDTH, _PLOT, _LINE = 400, 240, 15  # in points; in the page, CSS pixels
_MARKERS = "os^Dv"
_STYLE: dict[Any, Any] = {
    "font.size": 10.5, "text.color": INK, "axes.labelcolor": MUTED, "grid.color": GRID,
    "legend.frameon": False, "text.parse_math": False,  # names may contain "$"
}  # fmt: skip


@cache
def _matplotlib() -> Any:
    """Import matplotlib in our folder: it would read settings from the user's working directory."""
    with chdir(Path(__file__).parent):
        import matplotlib.figure
    return matplotlib


def shorten(label: str, chars: int = 52) -> str:
    """Return the label in printable characters on one line; a long one is cut in the middle."""
    line = " ".join(printable(label).split())
    return line if len(line) <= chars else f"{line[: chars // 2 - 1]}…{line[chars // 2 - chars :]}"


@dataclass(frozen=True)
class Chart(ABC):
    """The base of all charts; `name` is the file's name without extension."""

    name: str
    title: str
    note: str
    scale: Scale

    def draw(self, *, titled: bool) -> "Figure":
        """Draw the chart as a figure, with its title and note if `titled`."""
        matplotlib = _matplotlib()
        with matplotlib.rc_context(_STYLE):
            drawn: Figure = matplotlib.figure.Figure(dpi=72, layout="constrained")
            axes = drawn.subplots()
            axes.spines[:].set_visible(False)
            axes.tick_params(which="both", colors=MUTED, length=0)
            height = self._plot(axes)
            handles, labels = axes.get_legend_handles_labels()
            if len(labels) > 1 or isinstance(self, ScatterChart):
                columns = max(1, int(WIDTH / (40 + 6 * max(map(len, labels), default=0))))
                drawn.legend(handles, labels, loc="outside lower left", ncols=columns)
                height += _LINE * math.ceil(len(labels) / columns)
            if titled:
                note = textwrap.wrap(self.note, 72)
                drawn.suptitle(self.title, x=0.02, ha="left", size=13, weight="bold")
                axes.set_title("\n".join(note), loc="left", color=MUTED, size=9)
                height += 2 * _LINE + 12 * len(note)
            drawn.set_size_inches(WIDTH / 72, height / 72)
        return drawn

    @abstractmethod
    def _plot(self, axes: "Axes") -> float:
        """Draw on the axes; return the height needed, in points."""


def _write_numbers(axis: "Axis", scale: Scale) -> None:
    def tick_label(value: float, _: float) -> str:
        if scale == "share":
            return f"{value:.0%}"
        number = f"{value:,.0f}" if value >= 10 else f"{value:g}"
        return {"usd": f"${number}", "seconds": f"{number} s"}.get(scale, number)

    if scale == "share":
        axis.set_ticks([0, 0.25, 0.5, 0.75, 1])
    axis.minorticks_off()
    axis.set_major_formatter(tick_label)


# ---- Comparing models: dots with intervals, and accuracy against cost.


class Mark(NamedTuple):
    """One dot: value, text, and interval if any. A range (with unjudged answers) has no dot."""

    value: float | None
    text: str
    low: float | None = None
    high: float | None = None
    is_range: bool = False

    @property
    def errors(self) -> list[list[float]] | None:
        """The distances from the value to the bounds, as `Axes.errorbar` takes them."""
        if self.value is None or self.low is None or self.high is None:
            return None
        return [[max(0.0, self.value - self.low)], [max(0.0, self.high - self.value)]]


class DotRow(NamedTuple):
    """A label with a dot for each series of the chart, or for the first few of them."""

    label: str
    marks: tuple[Mark, ...]
    published: bool = False


@dataclass(frozen=True)
class DotChart(Chart):
    """A dot plot; money and time have a logarithmic scale, published models hollow dots."""

    rows: tuple[DotRow, ...]
    series: tuple[str, ...] = ()

    def _plot(self, axes: "Axes") -> float:
        at, texts = 0.0, {}  # at: distance from the top, in lines
        for row in self.rows:
            label = f"{shorten(row.label)} (published)" if row.published else shorten(row.label)
            across = axes.get_yaxis_transform()  # x in widths of the plot, y in lines
            ink = MUTED if row.published else INK
            axes.text(0, at, label, color=ink, va="center", transform=across)
            for mark, colour in zip(row.marks, SERIES, strict=False):
                at += 1
                texts[at] = mark.text
                # A logarithmic scale has no 0.
                if mark.value or (mark.value is not None and self.scale in ("share", "number")):
                    fill = "none" if row.published else colour
                    axes.errorbar(
                        mark.value, at, xerr=mark.errors, fmt="none" if mark.is_range else "o",
                        color=colour, mfc=fill, capsize=3,
                    )  # fmt: skip
            at += 1.5
        for name, colour in zip(self.series, SERIES, strict=False):
            axes.plot([], [], "o", color=colour, label=shorten(name, 40))
        axes.set_ylim(at, -1)  # upside down: the first row is at the top
        axes.yaxis.tick_right()
        axes.set_yticks(list(texts), list(texts.values()))
        marks = [mark for row in self.rows for mark in row.marks]
        values = [end for mark in marks for end in (mark.value, mark.high) if end] or [1.0]
        if self.scale == "share":
            axes.set_xlim(-0.02, 1.02)
        elif self.scale == "number":
            axes.set_xlim(0, 1.1 * max(values))
        else:
            low, high = math.log10(min(values)), math.log10(max(values))
            axes.set_xscale("log")
            axes.set_xlim(10.0 ** math.floor(low - 0.1), 10.0 ** math.ceil(high + 0.1))
        _write_numbers(axes.xaxis, self.scale)
        axes.grid(axis="x")
        return _LINE * (at + 3)


@dataclass(frozen=True)
class ScatterChart(DotChart):
    """Plots each row's second mark against its first, a cost, on a logarithmic axis that has $0."""

    def _plot(self, axes: "Axes") -> float:
        paid = [row.marks[0].value for row in self.rows if row.marks[0].value] or [1.0]
        lowest, highest = math.floor(math.log10(min(paid))), math.ceil(math.log10(max(paid)) + 0.1)
        free = 10.0 ** (lowest - 1)  # place of $0, a decade below the others
        for number, row in enumerate(self.rows):
            (cost, mark), colour = row.marks, SERIES[number % len(SERIES)]
            axes.errorbar(
                cost.value or free, mark.value or 0.0, yerr=mark.errors, elinewidth=0.8,
                color=colour, mfc="none" if row.published else colour, label=shorten(row.label, 26),
                fmt="none" if mark.is_range else _MARKERS[number % len(_MARKERS)],
            )  # fmt: skip
        axes.set_xscale("log")
        axes.set_xlim(free / 3, 10.0**highest * 1.5)
        _write_numbers(axes.xaxis, "usd")
        axes.set_xticks([free, *(10.0**power for power in range(lowest, highest + 1))])
        axes.set_xticklabels(["$0", *axes.get_xticklabels()[1:]])
        axes.set_ylim(-0.02, 1.04)
        _write_numbers(axes.yaxis, self.scale)
        axes.grid()
        axes.set_xlabel("cost per 1,000 questions")
        return _PLOT


# ---- Training.


@dataclass(frozen=True)
class CurveChart(Chart):
    """Curves, indexed by training step, drawn as a moving average of `smooth` steps. `baselines`
    are dashed lines with the values of other models, by label."""

    curves: Mapping[str, pd.Series]
    baselines: Mapping[str, float] = field(default_factory=dict)
    smooth: int = 1

    def _plot(self, axes: "Axes") -> float:
        colours = itertools.cycle(SERIES)
        for (label, steps), colour in zip(self.curves.items(), colours, strict=False):
            values = steps.dropna()
            line = "o-" if len(values) <= 30 else "-"  # more dots would touch
            smoothed = values.rolling(self.smooth, center=True, min_periods=1).mean()
            drawn = axes.plot(values.index, smoothed, line, markersize=4)
            drawn[0].set(color=colour, linewidth=2, label=shorten(label, 40))
        for (label, value), colour in zip(self.baselines.items(), colours, strict=False):
            axes.axhline(value, color=colour, ls="--", label=f"{shorten(label, 34)}: {value:.0%}")
        if self.scale == "share":
            axes.set_ylim(-0.02, 1.02)
        elif axes.dataLim.ymin >= 0:
            axes.set_ylim(0, axes.get_ylim()[1] * 1.05)
        _write_numbers(axes.yaxis, self.scale)
        axes.locator_params(axis="x", nbins=6, integer=True)
        axes.set_xlabel("training step")
        axes.grid(axis="y")
        return _PLOT


# ---- Output as PNG and SVG.


def _save(figure: "Figure", file: Path | io.BytesIO | io.StringIO, **options: Any) -> None:
    with warnings.catch_warnings():
        # Characters missing from the font become boxes.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(file, **options)


def write_png(figure: "Figure", file: Path | io.BytesIO) -> None:
    """Write the figure as PNG on white."""
    _save(figure, file, format="png", dpi=200, facecolor="white", metadata={"Software": None})


def write_picture(path: Path, charts: Sequence[Chart], columns: int = 2) -> None:
    """Draw the charts in a grid, as one PNG."""
    pictures = []
    for chart in charts:
        drawn = io.BytesIO()
        write_png(chart.draw(titled=True), drawn)
        pictures.append(Image.open(drawn).convert("RGB"))
    width, height = pictures[0].width, max(each.height for each in pictures)
    rows = math.ceil(len(pictures) / columns)
    whole = Image.new("RGB", (width * min(columns, len(pictures)), height * rows), "white")
    for place, picture in enumerate(pictures):
        whole.paste(picture, (width * (place % columns), height * (place // columns)))
    whole.save(path, format="PNG")


def svg(chart: Chart) -> Markup:
    """Return the chart as an `<svg>` whose text has the page's font. Its ids contain a hash of the
    chart's name, so that several can share a page."""
    drawn = io.StringIO()
    with _matplotlib().rc_context({"svg.fonttype": "none", "svg.hashsalt": chart.name}):
        figure = chart.draw(titled=False)
        facts = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        _save(figure, drawn, format="svg", transparent=True, metadata=facts)
    # Drop the XML declaration, which is not allowed inside HTML.
    return Markup(drawn.getvalue()[drawn.getvalue().index("<svg") :])
