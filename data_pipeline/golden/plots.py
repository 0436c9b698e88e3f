"""Plots of a golden set: lengths, dates, kinds, and what each step dropped.

    art-e golden stats DIR

They show the figures of `stats.py` as bar charts of the report.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from data_pipeline.golden.golden_set import GoldenSet
from data_pipeline.golden.stats import frame, used_splits
from evals.report.charts import Bar, BarChart, Mark, write_png

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = ("lengths", "dates", "kinds", "steps")
_BINS = 10
_MOST_PERIODS = 8


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


def draw(golden: GoldenSet, figures: Mapping[str, Any]) -> dict[str, "Figure"]:
    """The plots of the set by name; `figures` are those of `stats.stats`.

    A set without rows has only the plot of its steps.
    """
    drawn = {}
    if golden.questions:
        rows = frame(golden)
        splits = used_splits(rows)
        drawn["lengths"] = _lengths(rows)
        drawn["dates"] = _dates(figures["days"], splits)
        kinds = pd.DataFrame.from_dict(figures["kinds"], orient="index")[splits]
        drawn["kinds"] = _chart("Questions by kind", "Rows of each kind.", kinds)
    if any(step["in"] for step in figures["steps"]):
        drawn["steps"] = _steps(figures["steps"])
    return drawn


def _chart(title: str, note: str, table: pd.DataFrame) -> "Figure":
    """Bars of a table of counts: a row is a label, a column a series."""
    bars = tuple(
        Bar(str(label), tuple(Mark(count, f"{int(count):,}") for count in counts))
        for label, counts in zip(table.index, table.fillna(0).to_numpy(), strict=True)
    )
    series: Sequence[str] = [] if len(table.columns) == 1 else list(table.columns)
    return BarChart("golden", title, note, "number", bars, tuple(series)).draw(titled=True)


def _lengths(rows: pd.DataFrame) -> "Figure":
    words = {name: rows[name].dropna().str.split().str.len() for name in ("question", "answer")}
    # The longest share the last bin, because they would squeeze all others.
    top = max(int(pd.concat(list(words.values())).quantile(0.98)), _BINS)
    width = -(-top // _BINS)
    starts = range(0, top + 1, width)
    table = pd.DataFrame(
        {
            name: (found.clip(upper=top) // width * width).value_counts().reindex(starts)
            for name, found in words.items()
        }
    )
    table.index = [f"{start} to {start + width - 1} words" for start in starts]
    note = (
        "Rows whose question, or gold answer, has so many words; the last bar has longer ones too."
    )
    return _chart("Lengths of questions and answers", note, table)


def _dates(days: Mapping[str, Any], splits: Iterable[str]) -> "Figure":
    tables = []
    for what, label in (("query", "asked"), ("gold", "gold mail")):
        months = {split: (days[split][what] or {}).get("by_month", {}) for split in splits}
        table = pd.DataFrame(
            {split: pd.Series(found, dtype=float) for split, found in months.items()}
        )
        if table.empty:
            continue
        periods = pd.PeriodIndex(list(table.index), freq="M")
        lengths = (periods.asfreq(length) for length in ("M", "Q", "Y"))
        shown = next((each for each in lengths if each.nunique() <= _MOST_PERIODS), periods.year)
        table = table.fillna(0).groupby(shown).sum()
        table.index = [f"{label} in {period}" for period in table.index]
        tables.append(table)
    note = "Questions by the day asked, and gold mails by the day sent, as golden split found them."
    return _chart("Dates of questions and gold mails", note, pd.concat([*tables, pd.DataFrame()]))


def _steps(steps: Sequence[Mapping[str, Any]]) -> "Figure":
    counts: dict[str, int] = {f"{steps[0]['step']}: in": steps[0]["in"]}
    for step in steps:
        for check, count in step["dropped"].items():
            counts[f"{step['step']} dropped: {check}"] = count
        counts[f"{step['step']}: kept"] = step["kept"]
    note = "Rows that came in, that each check dropped, and that each step kept."
    return _chart("What each step dropped", note, pd.DataFrame({"rows": counts}))
