"""Charts of a training run, from the `steps.jsonl` and `metrics.json` of its folder.

A line of `steps.jsonl` is a step. In `metrics.json`, "validation" has the figures on held-out
questions by step, and "alarms" the alarms raised. A figure that is missing or not finite leaves a
gap, so that runs of other versions can be read."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from art_e.errors import UserError
from art_e.runs import Run
from art_e.storage import whole_lines
from evals.metrics import FIGURES
from evals.report.charts import SERIES, CurveChart, shorten
from evals.report.tables import Entry, run_names

SMOOTH, LEAST_SMOOTHED = 10, 30  # steps of the moving average; shorter runs are not smoothed


@dataclass(frozen=True, slots=True)
class TrainingRows:
    """A run's rows, indexed by step; `label` is unique within the report."""

    label: str
    folder: Path
    steps: pd.DataFrame
    validations: pd.DataFrame
    alarms: list[dict[str, Any]]


def read_training(runs: Sequence[Run]) -> list[TrainingRows]:
    """Return the rows of runs that have any. Raises `UserError` for a file that can't be read."""
    names = run_names(runs)
    trained = []
    for run in runs:
        path = run.folder / "steps.jsonl"
        try:
            steps = _frame([json.loads(line) for line in whole_lines(path)])
            path = run.folder / "metrics.json"
            metrics = run.metrics if path.exists() else {}
        except (OSError, ValueError) as error:
            raise UserError(f"{path} can't be read ({error}); repeat the run") from None
        rows = _frame(metrics.get("validation") or [])
        if len(steps) or len(rows):
            steps["flat_share"] = _numbers(steps, "flat_groups") / _numbers(steps, "groups")
            alarms = metrics.get("alarms") or []
            trained.append(TrainingRows(names[run], run.folder, steps, rows, alarms))
    return trained


def validation_charts(
    trained: Sequence[TrainingRows], entries: Sequence[Entry] = ()
) -> list[CurveChart]:
    """Return curves over the validations, with the report's other models as baselines."""
    sizes = sorted({int(n) for each in trained for n in _numbers(each.validations, "n").dropna()})
    counts = " to ".join(f"{n:,}" for n in dict.fromkeys([*sizes[:1], *sizes[-1:]]))
    rows, charts = [(each, each.validations) for each in trained], []
    for column, chart in FIGURES["validation"].items():
        others = entries if chart.get("measured") else ()
        values = {each.label: each.figures[column]["value"] for each in others}
        baselines = {label: value for label, value in values.items() if value is not None}
        note = f" {counts} questions each." if counts else ""
        note += " Dashed: the other models, on their questions." if baselines else ""
        charts += _charts("validation", column, chart, note, rows, baselines=baselines)
    return charts


def step_charts(trained: Sequence[TrainingRows]) -> list[CurveChart]:
    """Return curves over the steps: reward by component, and figures of training itself."""
    charts: list[CurveChart] = []
    for number, run in enumerate(trained, start=1):
        charts += _components(run, "" if len(trained) == 1 else f"-{number}")
    smooth, rows = _smooth(trained), [(each, each.steps) for each in trained]
    around = f" Each point is the mean of the {SMOOTH} steps around." if smooth > 1 else ""
    for column, chart in FIGURES["stepwise"].items():
        charts += _charts("steps", column, chart, around, rows, smooth=smooth)
    return charts


def _charts(
    kind: str, column: str, chart: Mapping[str, Any], more: str,
    rows: Sequence[tuple[TrainingRows, pd.DataFrame]], **options: Any,
) -> list[CurveChart]:  # fmt: skip
    """Return a chart with a curve per run and `more` added to its note; empty without curves."""
    numbers = {each.label: _numbers(frame, column) for each, frame in rows}
    curves = {label: values for label, values in numbers.items() if values.notna().any()}
    name, scale = f"{kind}-{column.replace('_', '-')}", chart.get("scale", "number")
    drawn = CurveChart(name, chart["title"], chart["note"] + more, scale, curves, **options)
    return [drawn] if curves else []


def _components(training: TrainingRows, suffix: str) -> list[CurveChart]:
    rows = training.steps.get("components", pd.Series(dtype=object)).dropna()
    # A step lacks the components that no episode earned.
    parts = pd.DataFrame(rows.tolist(), index=rows.index, dtype=float).fillna(0.0)
    reward = _numbers(training.steps, "reward")
    curves = {"reward": reward} if reward.notna().any() else {}
    by_size = parts.abs().max().sort_values(ascending=False, kind="stable").index
    curves |= {name.replace("_", " "): parts[name] for name in by_size[: len(SERIES) - 1]}
    smooth = _smooth([training])
    note = f"{shorten(training.label)}: means per episode." if suffix else "Means per episode."
    note += f" Each point is the mean of the {SMOOTH} steps around." if smooth > 1 else ""
    name, title = f"steps-reward{suffix}", "Reward by component"
    return [CurveChart(name, title, note, "number", curves, smooth=smooth)] if curves else []


def _smooth(trained: Sequence[TrainingRows]) -> int:
    longest = max((len(each.steps) for each in trained), default=0)
    return SMOOTH if longest >= LEAST_SMOOTHED else 1


def _numbers(rows: pd.DataFrame, column: str) -> pd.Series:
    values = rows.get(column, pd.Series(index=rows.index, dtype=float))
    return values.astype(float).replace([math.inf, -math.inf], math.nan)


def _frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    by_step = {row["step"]: row for row in rows}
    index = pd.Index(sorted(by_step), dtype=int)
    return pd.DataFrame([by_step[step] for step in index], index=index)
