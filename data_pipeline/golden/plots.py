"""Plots of a golden set: lengths, dates, kinds, and what each step dropped.

    art-e golden stats DIR

Drawn from the figures of `stats.py`, in the look of the report's charts. No screen is
needed. Knows nothing of how the figures come about.
"""

import datetime as dt
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter
from matplotlib.transforms import blended_transform_factory

from data_pipeline.golden.golden_set import GoldenSet
from data_pipeline.golden.stats import answers, used_splits
from evals.report.charts import GRID, INK, MUTED, SERIES, WIDTH, Bar, BarChart, Mark, write_png

# Points. The look is that of evals/report/charts.py.
_EDGE, _LEFT, _RIGHT = 16, 44, 16
_FONT, _SMALL, _NOTE = 11.5, 10.5, 9
_PANEL, _BETWEEN, _FOOT = 120, 62, 44
_ROW, _ROW_LABEL, _ROW_FIGURE = 17, 132, 46
_NOTE_CHARS = 74

_THOUSANDS = StrMethodFormatter("{x:,.0f}")
_MOST_BARS = 48  # a month each; over longer times a bar is a quarter, then a year
_MOST_BINS = 30
NAMES = ("lengths", "dates", "kinds", "steps")
_KEPT, _DROPPED = SERIES[0], SERIES[4]


def write_plots(golden: GoldenSet, figures: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write the plots of `draw` into `folder`, which is made; the files.

    One of an earlier state of the set that this one lacks is removed.
    """
    drawn = draw(golden, figures)
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name in NAMES:
        file = folder / f"{name}.png"
        if name in drawn:
            write_png(drawn[name], file)
            files.append(file)
        else:
            file.unlink(missing_ok=True)
    return files


def draw(golden: GoldenSet, figures: Mapping[str, Any]) -> dict[str, Figure]:
    """The plots of the set, by name; `figures` are the set's, as `stats.stats` gives them.

    A set without rows has no more to show than what its steps dropped.
    """
    drawn: dict[str, Figure] = {}
    if golden.questions:
        splits = used_splits(golden.questions)
        drawn["lengths"] = _lengths(golden)
        drawn["dates"] = _dates(figures, splits)
        drawn["kinds"] = _kinds(figures, splits)
    if any(step["in"] for step in figures["steps"]):
        drawn["steps"] = _steps(figures)
    return drawn


def _kinds(figures: Mapping[str, Any], splits: Sequence[str]) -> Figure:
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
    return BarChart("kinds", "Questions by kind", note, "number", bars, tuple(splits)).draw(
        titled=True
    )


def _lengths(golden: GoldenSet) -> Figure:
    panels = {
        "words in a question": [len(each.question.split()) for each in golden.questions],
        "words in an answer": [len(each.split()) for each in answers(golden.questions)],
    }
    note = (
        "How many rows have a question, and a gold answer, of so many words. Lines: the median,"
        " and dashed the 95th percentile."
    )
    figure, axes = _panels("Lengths of questions and answers", note, len(panels))
    for each, (label, lengths) in zip(axes, panels.items(), strict=True):
        if not lengths:
            each.set_xlabel(label, color=MUTED, size=_SMALL)
            _write_none(each)
            continue
        # The few longest share the last bar, else they would squeeze all others.
        top = max(int(np.percentile(lengths, 99)), 5)
        width = -(-top // _MOST_BINS)
        bins = Counter(min(length, top) // width for length in lengths)
        places = sorted(bins)
        each.bar(
            [(place + 0.5) * width for place in places],
            [bins[place] for place in places],
            width=width * 0.86,
            color=SERIES[0],
        )
        last = top // width
        each.set_xlim(0, (last + 1) * width)
        each.set_xticks(*_word_ticks(last, width, longer=max(lengths) > top))
        _mark_percentiles(each, label, lengths, width)
    return figure


def _word_ticks(last: int, width: int, *, longer: bool) -> tuple[list[float], list[str]]:
    """Where bars are labelled, and with which length; the last one may hold longer ones.

    A bar of one length is labelled in its middle, a bar of several where it begins.
    """
    step = max(1, -(-last // 8))
    # Too near to the last, one would touch its label.
    places = [*(place for place in range(0, last, step) if last - place > step / 2), last]
    labels = [f"{place * width:,}" for place in places]
    if longer:
        labels[-1] += "+"
    shift = 0.5 if width == 1 else 0.0
    return [(place + shift) * width for place in places], labels


def _mark_percentiles(axes: Axes, label: str, lengths: Sequence[int], width: int) -> None:
    """Lines at the median and p95, whose figures stand below, where nothing is in their way."""
    right = axes.get_xlim()[1]
    median, p95 = (float(each) for each in np.percentile(lengths, [50, 95]))
    for value, style in ((median, "-"), (p95, (0, (4, 3)))):
        # A bar of one length has it in its middle.
        at = min(value + 0.5 * (width == 1), right)
        axes.axvline(at, color=INK, linewidth=1.1, linestyle=style)
    label = f"{label}: median {median:g}, p95 {p95:g}"
    axes.set_xlabel(label, color=MUTED, size=_SMALL, labelpad=5)


def _dates(figures: Mapping[str, Any], splits: Sequence[str]) -> Figure:
    days = figures["days"]
    panels: dict[str, dict[str, Mapping[str, int]]] = {
        "questions, by the day they are asked on": {
            split: (days[split]["query"] or {}).get("by_month", {}) for split in splits
        },
        "gold mails, by the day they were sent on": {
            split: (days[split]["gold"] or {}).get("by_month", {}) for split in splits
        },
    }
    months = sorted(
        {month for panel in panels.values() for found in panel.values() for month in found}
    )
    length, bars = _timeline(months)
    unit = {1: "month", 3: "quarter", 12: "year"}.get(length, f"{length // 12} years")
    note = f"How many of them; a bar is a {unit}. A mail counts once in a split."
    undated = sum((each["gold"] or {}).get("undated", 0) for each in days.values())
    if undated:
        note += f" Without a known date: {undated:,} gold mails."
    figure, axes = _panels("Dates of questions and gold mails", note, len(panels), legend=splits)
    for each, (label, by_split) in zip(axes, panels.items(), strict=True):
        each.set_title(label, loc="left", color=INK, size=_SMALL, pad=6)
        if not any(by_split.values()):
            told = figures["leaks"] is not None or not label.startswith("gold")
            _write_none(each, "none" if told else "not told before art-e golden split")
            continue
        below = np.zeros(len(bars))
        for number, split in enumerate(splits):
            counts = np.zeros(len(bars))
            for month, count in by_split[split].items():
                counts[(_month(month) - bars[0]) // length] += count
            each.bar(range(len(bars)), counts, 0.86, below, color=SERIES[number])
            below += counts
        each.set_xlim(-0.7, len(bars) - 0.3)
        step = max(1, -(-len(bars) // 7))
        places = range(0, len(bars), step)
        each.set_xticks(list(places), [_month_label(bars[place], length) for place in places])
    return figure


def _timeline(months: Sequence[str]) -> tuple[int, list[int]]:
    """How many months a bar is, and the month with which each bar begins."""
    if not months:
        return 1, []
    first, last = _month(months[0]), _month(months[-1])
    length = 1
    for length in (1, 3, 12, 60, 120, 1200):
        if last // length - first // length < _MOST_BARS:
            break
    return length, list(range(first // length * length, last + 1, length))


def _month(text: str) -> int:
    day = dt.date.fromisoformat(f"{text}-01")
    return 12 * day.year + day.month - 1


def _month_label(month: int, length: int) -> str:
    year, place = divmod(month, 12)
    if length >= 12:
        return f"{year}"
    return f"{year}-{place + 1:02}" if length == 1 else f"{year} Q{place // 3 + 1}"


def _steps(figures: Mapping[str, Any]) -> Figure:
    """A row a step with what it kept, and one for each check with what it took away."""
    rows: list[tuple[str, str, int, int]] = []  # label, colour, from, to
    for step in figures["steps"]:
        left = step["in"]
        if not rows or rows[-1][-1] != left:
            rows.append((f"{step['step']}: in", MUTED, 0, left))
        for check, count in sorted(step["dropped"].items(), key=lambda item: (-item[1], item[0])):
            rows.append((f"   {check}", _DROPPED, left - count, left))
            left -= count
        rows.append((f"{step['step']}: kept", _KEPT, 0, step["kept"]))
    note = (
        "Rows that came in (grey), that each check dropped (red), and that each step kept (blue)."
    )
    figure, axes = _canvas("What each step dropped", note, len(rows) * _ROW + 8, _ROW_LABEL)
    axes.set_ylim(len(rows), 0)
    axes.set_yticks([])
    top = max((to for *_, to in rows), default=1) or 1
    axes.set_xlim(0, top)
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.xaxis.set_major_formatter(_THOUSANDS)
    axes.grid(axis="x", color=GRID, linewidth=0.8)
    across = blended_transform_factory(figure.dpi_scale_trans, axes.transData)
    for place, (label, colour, start, end) in enumerate(rows):
        at = place + 0.5
        axes.barh(at, end - start, 0.62, start, color=colour)
        how: dict[str, Any] = {"va": "center", "transform": across, "parse_math": False}
        ink = MUTED if colour == _DROPPED else INK
        axes.text(_EDGE / 72, at, label, color=ink, size=_SMALL, **how)
        shown = f"-{end - start:,}" if colour == _DROPPED else f"{end - start:,}"
        axes.text((WIDTH - 4) / 72, at, shown, color=ink, size=_SMALL, ha="right", **how)
    return figure


def _panels(
    title: str, note: str, count: int, legend: Sequence[str] = ()
) -> tuple[Figure, list[Axes]]:
    """A figure with panels one below the other; their y axes count rows."""
    notes = textwrap.wrap(note, _NOTE_CHARS)
    head = 26 + 13 * len(notes) + (18 if legend else 0)
    height = head + count * (_BETWEEN + _PANEL) - _BETWEEN + 26 + _FOOT
    figure = _titled(title, notes, height)
    if legend:
        at, y = float(_EDGE), 1 - (head - 2) / height
        for number, name in enumerate(legend):
            figure.text(at / WIDTH, y, "■", color=SERIES[number], size=_FONT, va="center")
            figure.text((at + 14) / WIDTH, y, name, color=INK, size=_SMALL, va="center")
            at += 28 + 6.4 * len(name)
    axes = []
    for place in range(count):
        top = head + 26 + place * (_PANEL + _BETWEEN)
        box = (_LEFT, height - top - _PANEL, WIDTH - _LEFT - _RIGHT, _PANEL)
        each = _axes(figure, box, height)
        each.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        each.yaxis.set_major_formatter(_THOUSANDS)
        each.grid(axis="y", color=GRID, linewidth=0.8)
        axes.append(each)
    return figure, axes


def _canvas(title: str, note: str, plot: float, left: float) -> tuple[Figure, Axes]:
    """A figure with one plot, room for labels on its left and for figures on its right."""
    notes = textwrap.wrap(note, _NOTE_CHARS)
    head = 32 + 13 * len(notes)
    height = head + plot + 28
    figure = _titled(title, notes, height)
    return figure, _axes(figure, (left, 28, WIDTH - left - _ROW_FIGURE, plot), height)


def _titled(title: str, notes: Sequence[str], height: float) -> Figure:
    figure = Figure(figsize=(WIDTH / 72, height / 72), dpi=72)
    left = _EDGE / WIDTH
    figure.text(left, 1 - 20 / height, title, color=INK, size=13, weight="bold")
    for number, line in enumerate(notes, start=1):
        figure.text(left, 1 - (22 + 13 * number) / height, line, color=MUTED, size=_NOTE)
    return figure


def _axes(figure: Figure, box: tuple[float, float, float, float], height: float) -> Axes:
    left, bottom, wide, high = box
    axes = figure.add_axes((left / WIDTH, bottom / height, wide / WIDTH, high / height))
    axes.set_axisbelow(True)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.tick_params(colors=MUTED, labelsize=_SMALL, length=0)
    axes.tick_params(axis="x", pad=9)
    return axes


def _write_none(axes: Axes, why: str = "none") -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    axes.text(0.5, 0.5, why, color=MUTED, size=_SMALL, ha="center", transform=axes.transAxes)
