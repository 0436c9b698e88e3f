"""A training run's own rows as charts: `steps.jsonl` and `metrics.json` of its folder.

Each line of `steps.jsonl` is a step. In `metrics.json`, each entry of "validation" is the held-out
questions at a step, each of "alarms" one that was raised. A missing figure, or one that is not a
finite number, leaves a gap, so that older and newer runs can be read.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from art_e.errors import UserError
from art_e.runs import Run
from art_e.storage import whole_lines
from art_e.text import printable
from evals.report.charts import SERIES, Baseline, Curve, CurveChart, Mark, Scale, cut
from evals.report.entries import Entry, run_names

# A bold line averages so many steps; runs of fewer steps than the second are not smoothed.
SMOOTH, LEAST_SMOOTHED = 10, 30


@dataclass(frozen=True, slots=True)
class TrainingRows:
    """A run's rows, indexed by step; `label` tells it from the other runs of the report."""

    label: str
    folder: Path
    steps: pd.DataFrame
    validations: pd.DataFrame
    alarms: list[dict[str, Any]]


class _RowFigure(NamedTuple):
    """A figure of the rows: the name of its chart and its column there."""

    name: str
    title: str
    scale: Scale
    note: str
    column: str


_OTHER_JUDGE = "Answers by a judge that is not the reward's."
_MEANS = "Means an episode; effort counts every call."
_HELD_OUT = (
    _RowFigure("accuracy", "Accuracy", "share", _OTHER_JUDGE, "accuracy"),
    _RowFigure(
        "hallucination", "Hallucination on unanswerable questions", "share", _OTHER_JUDGE,
        "hallucination_unanswerable",
    ),
    _RowFigure("abstention", "Abstention", "share", _OTHER_JUDGE, "abstention"),
    _RowFigure("turns", "Turns when correct", "number", _MEANS, "turns_when_correct"),
    _RowFigure("effort", "Effort when correct", "number", _MEANS, "effort_when_correct"),
    _RowFigure("reward", "Reward", "number", "By the reward's own judge.", "reward"),
)  # fmt: skip
# Validation figures that a benchmark measures in the same way.
_ALSO_MEASURED = ("accuracy", "abstention")
_STEPWISE = (
    _RowFigure("accuracy", "Accuracy in training", "share", "By the reward's judge.", "accuracy"),
    _RowFigure("turns", "Turns in training", "number", "Means an episode.", "turns"),
    _RowFigure("entropy", "Entropy", "number", "In nats a token.", "entropy"),
    _RowFigure("kl", "KL", "number", "From the start, a token.", "kl"),
    _RowFigure(
        "flat-groups", "Groups without spread", "share",
        "Groups trained on whose rollouts all earned the same.", "flat_share",
    ),
    _RowFigure(
        "format-errors", "Format errors", "number", "Malformed calls an episode.", "format_errors",
    ),
    _RowFigure(
        "tokens-per-second", "Tokens a second", "number",
        "Generated and trained on; without the steps beside a validation.", "tokens_per_second",
    ),
    _RowFigure("loss", "Loss", "number", "Of the optimizer.", "loss"),
)  # fmt: skip


def read_training(runs: Sequence[Run]) -> list[TrainingRows]:
    """The rows of those runs that have any, in the order given.

    Raises `UserError` for a file that can't be read.
    """
    names = run_names(runs)
    found = []
    for run in runs:
        try:
            lines = whole_lines(run.folder / "steps.jsonl")
            steps = _frame([json.loads(line) for line in lines])
        except (OSError, ValueError) as error:
            raise UserError(
                f"{run.folder / 'steps.jsonl'} can't be read ({error}); make the run again"
            ) from None
        metrics = _metrics(run)
        validations = _frame(metrics.get("validation"))
        if len(steps) or len(validations):
            alarms = [each for each in metrics.get("alarms") or () if isinstance(each, dict)]
            steps = _with_shares(steps, validations)
            found.append(TrainingRows(cut(names[run]), run.folder, steps, validations, alarms))
    return found


def validation_charts(
    trained: Sequence[TrainingRows], entries: Sequence[Entry] = ()
) -> list[CurveChart]:
    """Curves over the validations, with the other models of the report as baselines."""
    charts = []
    sizes = sorted({int(n) for each in trained for n in _numbers(each.validations, "n").dropna()})
    asked = " to ".join(f"{n:,}" for n in dict.fromkeys([*sizes[:1], *sizes[-1:]]))
    for figure in _HELD_OUT:
        baselines = tuple(
            Baseline(each.label, value)
            for each in entries
            if figure.name in _ALSO_MEASURED
            and (value := each.figures[figure.name]["value"]) is not None
        )
        note = f"{figure.note} {asked} questions each." if asked else figure.note
        note += " Dashed: the other models, on their questions." if baselines else ""
        curves = _curves(figure, [(each.label, each.validations) for each in trained])
        if curves:
            name = f"validation-{figure.name}"
            charts.append(CurveChart(name, figure.title, note, figure.scale, curves, baselines))
    return charts


def step_charts(trained: Sequence[TrainingRows]) -> list[CurveChart]:
    """Curves over the steps: reward by component, and how training itself went."""
    charts: list[CurveChart] = []
    for number, each in enumerate(trained, start=1):
        charts += _components(each, "" if len(trained) == 1 else f"-{number}")
    smooth = _smooth(trained)
    for figure in _STEPWISE:
        bold = f" Bold: the mean of the {SMOOTH} steps around." if smooth > 1 else ""
        if curves := _curves(figure, [(each.label, each.steps) for each in trained]):
            name, note = f"steps-{figure.name}", figure.note + bold
            charts.append(CurveChart(name, figure.title, note, figure.scale, curves, smooth=smooth))
    return charts


def _curves(figure: _RowFigure, rows: Iterable[tuple[str, pd.DataFrame]]) -> tuple[Curve, ...]:
    """A curve for each run that has the figure."""
    numbers = [(label, _numbers(frame, figure.column)) for label, frame in rows]
    return tuple(_curve(label, values) for label, values in numbers if values.notna().any())


def _components(training: TrainingRows, suffix: str) -> list[CurveChart]:
    """The reward with its largest components, then the smaller ones on their own scale."""
    rows = {
        step: {printable(name): value for name, value in parts.items()}
        for step, parts in training.steps.get("components", pd.Series()).items()
        if isinstance(parts, dict)
    }
    numbers = pd.DataFrame.from_dict(rows, orient="index").apply(pd.to_numeric, errors="coerce")
    # A step in which no episode earned a component lacks it.
    parts = numbers.dropna(axis="columns", how="all").fillna(0.0)
    reward = _numbers(training.steps, "reward")
    curves = [_curve("reward", reward)] if reward.notna().any() else []
    by_size = parts.abs().max().sort_values(ascending=False, kind="stable").index
    curves += [_curve(name.replace("_", " "), parts[name]) for name in by_size]
    smooth = _smooth([training])
    note = f"{training.label}: means an episode." if suffix else "Means an episode."
    note += f" Each point is the mean of the {SMOOTH} steps around." if smooth > 1 else ""
    charts = []
    for place, start in enumerate(range(0, len(curves), len(SERIES))):
        chosen = tuple(curves[start : start + len(SERIES)])
        name = f"steps-reward{suffix}" + (f"-{place + 1}" if place else "")
        title = "Reward: the smaller components" if place else "Reward by component"
        charts.append(CurveChart(name, title, note, "number", chosen, smooth=smooth))
    return charts


def _curve(label: str, values: pd.Series) -> Curve:
    known = [None if pd.isna(value) else float(value) for value in values]
    return Curve(label, tuple(values.index), tuple(Mark(value, "") for value in known))


def _smooth(trained: Sequence[TrainingRows]) -> int:
    longest = max((len(each.steps) for each in trained), default=0)
    return SMOOTH if longest >= LEAST_SMOOTHED else 1


def _with_shares(steps: pd.DataFrame, validations: pd.DataFrame) -> pd.DataFrame:
    """The steps with `flat_share` and, from sums over the run, `tokens_per_second`.

    The first step lacks the speed, because its sums hold what came before training, and so do those
    beside a validation, whose time is in one of them.
    """
    beside = steps.index.isin(validations.index) | (steps.index - 1).isin(validations.index)
    speed = _numbers(steps, "tokens").diff() / _numbers(steps, "seconds").diff()
    flat = _numbers(steps, "flat_groups") / _numbers(steps, "groups")
    return steps.assign(tokens_per_second=speed.mask(beside), flat_share=flat)


def _numbers(rows: pd.DataFrame, column: str) -> pd.Series:
    """The column's finite numbers; NaN for anything else."""
    values = rows.get(column, pd.Series(index=rows.index, dtype=float))
    numbers = pd.to_numeric(values, errors="coerce").astype(float)
    return numbers.where(numbers.abs() < float("inf"))


def _frame(rows: Any) -> pd.DataFrame:
    """The rows in order of their steps; the last one if a step was made again."""
    by_step = {
        row["step"]: row
        for row in rows or ()
        if isinstance(row, dict) and isinstance(row.get("step"), int)
    }
    index = pd.Index(sorted(by_step), dtype=int)
    return pd.DataFrame([by_step[step] for step in index], index=index)


def _metrics(run: Run) -> dict[str, Any]:
    """The content of `metrics.json`; empty before the run wrote it."""
    path = run.folder / "metrics.json"
    try:
        metrics: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return metrics
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UserError(f"{path} can't be read ({error}); resume the run") from None
