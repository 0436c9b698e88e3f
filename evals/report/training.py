"""A training run's own rows as charts: `steps.jsonl` and `metrics.json` of its folder.

Each line of `steps.jsonl` is a step. In `metrics.json`, each entry of "validation" is the held-out
questions at a step, each of "alarms" one that was raised. A missing figure, or one that is not a
finite number, leaves a gap, and unknown ones are ignored, so that older and newer runs can be read.
"""

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from art_e.errors import UserError
from art_e.runs import Run
from art_e.storage import whole_lines
from evals.report.charts import SERIES, Baseline, Curve, CurveChart, Mark, Scale, cut
from evals.report.entries import Entry, run_names

STEPS, METRICS = "steps.jsonl", "metrics.json"
# A bold line averages so many steps; runs of fewer steps than the second are not smoothed.
SMOOTH, LEAST_SMOOTHED = 10, 30

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TrainingRows:
    """A run's rows, by step; `label` tells it from the other runs of the report."""

    label: str
    folder: Path
    steps: dict[int, Row]
    validations: dict[int, Row]
    alarms: list[dict[str, Any]]


class _RowFigure(NamedTuple):
    """A figure of a row; `field` is its name there, or calculates it."""

    name: str
    title: str
    scale: Scale
    note: str
    field: str | Callable[[Row], float | None]

    def of(self, row: Row) -> float | None:
        return _number(row.get(self.field)) if isinstance(self.field, str) else self.field(row)


def _flat_share(row: Row) -> float | None:
    flat, groups = _number(row.get("flat_groups")), _number(row.get("groups"))
    return flat / groups if flat is not None and groups else None


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
        "Groups trained on whose rollouts all earned the same.", _flat_share,
    ),
    _RowFigure("format-errors", "Format errors", "number", "Malformed calls an episode.",
            "format_errors"),
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
        steps, metrics = _steps(run), _metrics(run)
        validations = _by_step(_rows(metrics, "validation"))
        if steps or validations:
            alarms = _rows(metrics, "alarms")
            found.append(
                TrainingRows(cut(names[run]), run.folder, _by_step(steps), validations, alarms)
            )
    return found


def validation_charts(
    trained: Sequence[TrainingRows], entries: Sequence[Entry] = ()
) -> list[CurveChart]:
    """Curves over the validations, with the other models of the report as baselines."""
    charts = []
    rows = [(each.label, each.validations) for each in trained]
    for figure in _HELD_OUT:
        baselines = tuple(
            Baseline(each.label, value)
            for each in entries
            if figure.name in _ALSO_MEASURED
            and (value := each.figures[figure.name]["value"]) is not None
        )
        note = f"{figure.note} {_questions(trained)}"
        note += " Dashed: the other models, on their questions." if baselines else ""
        charts += _chart(f"validation-{figure.name}", figure, rows, note, baselines=baselines)
    return charts


def step_charts(trained: Sequence[TrainingRows]) -> list[CurveChart]:
    """Curves over the steps: reward by component, and how training itself went."""
    rows = [(each.label, _with_speed(each)) for each in trained]
    charts: list[CurveChart] = []
    for number, each in enumerate(trained, start=1):
        charts += _components(each, "" if len(trained) == 1 else f"-{number}")
    smooth = _smooth([steps for _, steps in rows])
    for figure in _STEPWISE:
        bold = f" Bold: the mean of the {SMOOTH} steps around." if smooth > 1 else ""
        note = figure.note + bold
        charts += _chart(f"steps-{figure.name}", figure, rows, note, smooth=smooth)
    return charts


def _chart(
    name: str,
    figure: _RowFigure,
    rows: Sequence[tuple[str, Mapping[int, Row]]],
    note: str,
    *,
    smooth: int = 1,
    baselines: tuple[Baseline, ...] = (),
) -> list[CurveChart]:
    """The figure with a curve for each run that has it; no chart if none has."""
    curves = []
    for label, steps in rows:
        curve = _curve(label, {step: figure.of(row) for step, row in steps.items()})
        if any(mark.value is not None for mark in curve.marks):
            curves.append(curve)
    chart = CurveChart(
        name, figure.title, note.strip(), figure.scale, tuple(curves), baselines, smooth
    )
    return [chart] if curves else []


def _components(training: TrainingRows, suffix: str) -> list[CurveChart]:
    """The reward with its largest components, then the smaller ones on their own scale."""
    rows = {step: parts for step, row in training.steps.items() if (parts := _parts(row))}
    names = dict.fromkeys(name for parts in rows.values() for name in parts)
    sizes = {name: max(abs(parts.get(name, 0.0)) for parts in rows.values()) for name in names}
    rewards = {step: _number(row.get("reward")) for step, row in training.steps.items()}
    curves = (
        [_curve("reward", rewards)] if any(each is not None for each in rewards.values()) else []
    )
    # A step in which no episode earned a component lacks it.
    curves += [
        _curve(name.replace("_", " "), {step: parts.get(name, 0.0) for step, parts in rows.items()})
        for name in sorted(names, key=lambda name: -sizes[name])
    ]
    smooth = _smooth([training.steps])
    note = f"{training.label}: means an episode." if suffix else "Means an episode."
    note += f" Each point is the mean of the {SMOOTH} steps around." if smooth > 1 else ""
    charts = []
    for place, start in enumerate(range(0, len(curves), len(SERIES))):
        chosen = tuple(curves[start : start + len(SERIES)])
        name = f"steps-reward{suffix}" + (f"-{place + 1}" if place else "")
        title = "Reward: the smaller components" if place else "Reward by component"
        charts.append(CurveChart(name, title, note, "number", chosen, smooth=smooth))
    return charts


def _curve(label: str, values: Mapping[int, float | None]) -> Curve:
    return Curve(label, tuple(values), tuple(Mark(value, "") for value in values.values()))


def _smooth(runs: Sequence[Mapping[int, Row]]) -> int:
    return SMOOTH if max(map(len, runs), default=0) >= LEAST_SMOOTHED else 1


def _with_speed(training: TrainingRows) -> dict[int, Row]:
    """The rows with `tokens_per_second`, from sums over the run.

    The first row lacks it, because its sums hold what came before training, and so do those beside
    a validation, whose time is in one of them.
    """
    rows = dict(training.steps)
    for (_, before), (step, row) in itertools.pairwise(training.steps.items()):
        new, took = _growth(before, row, "tokens"), _growth(before, row, "seconds")
        if new is not None and took and not {step - 1, step} & training.validations.keys():
            rows[step] = {**row, "tokens_per_second": new / took}
    return rows


def _growth(before: Row, row: Row, name: str) -> float | None:
    first, last = _number(before.get(name)), _number(row.get(name))
    return None if first is None or last is None else last - first


def _questions(trained: Sequence[TrainingRows]) -> str:
    """How many questions the validations asked."""
    rows = [row for each in trained for row in each.validations.values()]
    sizes = sorted({int(n) for row in rows if (n := _number(row.get("n")))})
    if not sizes:
        return ""
    several = f"{sizes[0]:,} to {sizes[-1]:,}" if len(sizes) > 1 else f"{sizes[0]:,}"
    return f"{several} questions each."


def _parts(row: Row) -> dict[str, float]:
    components = row.get("components")
    parts = components.items() if isinstance(components, dict) else ()
    return {name: number for name, value in parts if (number := _number(value)) is not None}


def _number(value: Any) -> float | None:
    """A finite number; None for anything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None


def _by_step(rows: Sequence[Row]) -> dict[int, Row]:
    """The rows in order of their steps; the last one if a step was made again."""
    return dict(
        sorted({row["step"]: row for row in rows if isinstance(row.get("step"), int)}.items())
    )


def _steps(run: Run) -> list[dict[str, Any]]:
    path = run.folder / STEPS
    try:
        rows = [json.loads(line) for line in whole_lines(path)]
        if not all(isinstance(row, dict) for row in rows):
            raise ValueError("a line is not a JSON object")
    except (OSError, ValueError) as error:
        raise UserError(f"{path} can't be read ({error}); make the run again") from None
    return rows


def _metrics(run: Run) -> Any:
    """The content of `metrics.json`; empty before the run wrote it."""
    path = run.folder / METRICS
    try:
        return json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UserError(f"{path} can't be read ({error}); resume the run") from None


def _rows(metrics: Any, name: str) -> list[dict[str, Any]]:
    rows = metrics.get(name) if isinstance(metrics, dict) else None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
