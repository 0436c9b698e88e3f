"""Plots of a golden set: lengths, dates, kinds, and what each step dropped.

    art-e golden stats DIR

They show the figures of `stats.py` in the look of the report's charts.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from data_pipeline.golden.golden_set import GoldenSet
from data_pipeline.golden.stats import frame, used_splits
from evals.report.charts import GRID, INK, MUTED, SERIES, WIDTH, Bar, BarChart, Mark, write_png

NAMES = ("lengths", "dates", "kinds", "steps")
_MOST_BINS = 30
_FONT = 9
# How long a bar of the dates is: the first that gives at most so many bars.
_PERIODS = ("M", "Q", "Y")
_MOST_BARS = 48


def write_plots(golden: GoldenSet, figures: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write the plots of `draw` into `folder`; outdated ones are removed."""
    drawn = draw(golden, figures)
    folder.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        file = folder / f"{name}.png"
        if name in drawn:
            write_png(drawn[name], file)
        else:
            file.unlink(missing_ok=True)
    return [folder / f"{name}.png" for name in NAMES if name in drawn]


def draw(golden: GoldenSet, figures: Mapping[str, Any]) -> dict[str, Figure]:
    """The plots of the set by name; `figures` are those of `stats.stats`.

    A set without rows has only the plot of its steps.
    """
    drawn: dict[str, Figure] = {}
    if golden.questions:
        rows = frame(golden)
        drawn["lengths"] = _lengths(rows)
        drawn["dates"] = _dates(figures, used_splits(rows))
        drawn["kinds"] = _kinds(figures, used_splits(rows))
    if any(step["in"] for step in figures["steps"]):
        drawn["steps"] = _steps(figures)
    return drawn


def _kinds(figures: Mapping[str, Any], splits: list[str]) -> Figure:
    totals = {split: sum(counts[split] for counts in figures["kinds"].values()) for split in splits}
    bars = tuple(
        Bar(
            kind,
            tuple(
                Mark(counts[split], f"{counts[split]:,} ({counts[split] / totals[split]:.0%})")
                for split in splits
            ),
        )
        for kind, counts in figures["kinds"].items()
    )
    note = "Rows of each kind; in brackets the share of the split's rows."
    chart = BarChart("kinds", "Questions by kind", note, "number", bars, tuple(splits))
    return chart.draw(titled=True)


def _lengths(rows: pd.DataFrame) -> Figure:
    figure, panels = _panels("Lengths of questions and answers", 2)
    for axes, name in zip(panels, ("question", "answer"), strict=True):
        words = rows[name].dropna().str.split().str.len()
        if words.empty:
            _empty(axes, f"words in the {name}: none")
            continue
        median, p95 = words.quantile(0.5), words.quantile(0.95)
        # The longest share the last bar, because they would squeeze all others.
        top = max(int(words.quantile(0.99)), 5)
        axes.hist(words.clip(upper=top), bins=min(top, _MOST_BINS), color=SERIES[0], rwidth=0.86)
        axes.axvline(min(median, top), color=INK, linewidth=1.1)
        axes.axvline(min(p95, top), color=INK, linewidth=1.1, linestyle=(0, (4, 3)))
        longer = f"; longer than {top:,} in the last bar" if words.max() > top else ""
        label = f"words in the {name}: median {median:g}, dashed p95 {p95:g}{longer}"
        axes.set_xlabel(label, color=MUTED, size=_FONT)
    return figure


def _dates(figures: Mapping[str, Any], splits: list[str]) -> Figure:
    titles = {"query": "questions by the day asked", "gold": "gold mails by the day sent"}
    by_month = {
        (what, split): (figures["days"][split][what] or {}).get("by_month", {})
        for what in titles
        for split in splits
    }
    months = sorted({month for found in by_month.values() for month in found})
    periods = pd.PeriodIndex(months, freq="M")
    length = next((each for each in _PERIODS if _count(periods, each) <= _MOST_BARS), _PERIODS[-1])
    figure, panels = _panels("Dates of questions and gold mails", 2, splits)
    for axes, (what, title) in zip(panels, titles.items(), strict=True):
        axes.set_title(title, loc="left", color=INK, size=_FONT)
        table = pd.DataFrame({split: by_month[what, split] for split in splits}, index=months)
        if not months or table.isna().all(axis=None):
            run = figures["leaks"] is not None or what == "query"
            _empty(axes, "none" if run else "unknown before art-e golden split")
            continue
        table = table.fillna(0).groupby(periods.asfreq(length)).sum()
        table = table.reindex(pd.period_range(table.index.min(), table.index.max(), freq=length))
        below = np.zeros(len(table))
        for number, split in enumerate(splits):
            counts = table[split].fillna(0).to_numpy()
            axes.bar(range(len(table)), counts, 0.86, below, color=SERIES[number])
            below += counts
        places = range(0, len(table), max(1, -(-len(table) // 7)))
        axes.set_xticks(list(places), [str(table.index[place]) for place in places])
    return figure


def _count(periods: pd.PeriodIndex, length: str) -> int:
    if periods.empty:
        return 0
    longer = periods.asfreq(length)
    return len(pd.period_range(longer.min(), longer.max(), freq=length))


def _steps(figures: Mapping[str, Any]) -> Figure:
    """A bar for what each step kept, and one for what each check dropped."""
    rows: list[tuple[str, str, int, int]] = []  # label, colour, from, to
    for step in figures["steps"]:
        left = step["in"]
        if not rows or rows[-1][-1] != left:
            rows.append((f"{step['step']}: in", MUTED, 0, left))
        for check, count in sorted(step["dropped"].items(), key=lambda item: (-item[1], item[0])):
            rows.append((f"   {check}", SERIES[4], left - count, left))
            left -= count
        rows.append((f"{step['step']}: kept", SERIES[0], 0, step["kept"]))
    figure, (axes,) = _panels("What each step dropped", 1, height=80 + 17 * len(rows))
    places = range(len(rows))
    sizes = [end - start for *_, start, end in rows]
    bars = axes.barh(places, sizes, 0.62, [row[2] for row in rows], color=[row[1] for row in rows])
    shown = [
        f"{'-' if row[1] == SERIES[4] else ''}{size:,}"
        for row, size in zip(rows, sizes, strict=True)
    ]
    axes.bar_label(bars, shown, padding=3, color=INK, size=_FONT, parse_math=False)
    axes.set_yticks(places, [row[0] for row in rows], parse_math=False)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.12 * max((row[3] for row in rows), default=1))
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    return figure


def _panels(
    title: str, count: int, legend: list[str] | None = None, height: float | None = None
) -> tuple[Figure, list[Axes]]:
    """A figure with panels one below the other."""
    size = (WIDTH / 72, (height or 60 + 190 * count) / 72)
    figure = Figure(figsize=size, dpi=72, layout="constrained")
    figure.suptitle(title, color=INK, size=13, weight="bold", x=0.02, ha="left")
    panels = list(figure.subplots(count, 1, squeeze=False)[:, 0])
    for axes in panels:
        axes.spines[:].set_visible(False)
        axes.set_axisbelow(True)
        axes.tick_params(colors=MUTED, labelsize=_FONT, length=0)
        if height is None:
            axes.grid(axis="y", color=GRID, linewidth=0.8)
            axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    if legend:
        handles = [Axes.bar(panels[0], 0, 0, color=SERIES[n])[0] for n in range(len(legend))]
        figure.legend(
            handles, legend, loc="outside lower left", ncols=len(legend), fontsize=_FONT,
            frameon=False, labelcolor=INK,
        )  # fmt: skip
    return figure, panels


def _empty(axes: Axes, why: str) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    axes.text(0.5, 0.5, why, color=MUTED, size=_FONT, ha="center", transform=axes.transAxes)
