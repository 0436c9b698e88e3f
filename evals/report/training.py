"""A training run's own rows as charts: what `steps.jsonl` and `metrics.json` of its folder say.

Each line of `steps.jsonl` is a step, each entry of "validation" in `metrics.json` the held-out
questions at a step, each of "alarms" what was raised. A figure that a row lacks, or that is no
number, is not drawn; one that is not known here is ignored, so that older and newer runs can be
read. Knows nothing of how training is done, nor of how charts are drawn.
"""

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from art_e.errors import UserError
from art_e.runs import Run
from art_e.storage import whole_lines
from evals.report.charts import SERIES, Curve, CurveChart, Mark, Scale, cut
from evals.report.entries import run_names

STEPS, METRICS = "steps.jsonl", "metrics.json"
# Steps around each that its bold line is the mean of; a run of fewer than so many is not smoothed.
SMOOTH, LEAST_SMOOTHED = 10, 30

Row = Mapping[str, Any]
Figure = Callable[[Row], float | None]


@dataclass(frozen=True, slots=True)
class Training:
    """A run's rows, by step; `label` tells it from the other runs of the report."""

    label: str
    steps: dict[int, Row]
    validations: dict[int, Row]
    alarms: list[dict[str, Any]]


class _Wanted(NamedTuple):
    """A figure that is drawn: what it is called in files, on charts and in legends."""

    name: str
    title: str
    legend: str
    of: Figure


class _Group(NamedTuple):
    """Figures that share a chart where one run is shown, and have one each where several are."""

    name: str
    title: str
    scale: Scale
    note: str
    figures: tuple[_Wanted, ...]


def read_training(runs: Sequence[Run]) -> list[Training]:
    """The rows of those runs that have any, in the order given.

    Raises `UserError` for a file that can't be read.
    """
    found = [(run, _steps(run), _metrics(run)) for run in runs]
    names = run_names(runs)
    return [
        Training(
            cut(names[run]),
            _by_step(steps),
            _by_step(_rows(metrics, "validation")),
            _rows(metrics, "alarms"),
        )
        for run, steps, metrics in found
        if steps or _rows(metrics, "validation")
    ]


def validation_charts(trained: Sequence[Training]) -> list[CurveChart]:
    """Curves over the validations: the held-out questions."""
    rows = [(each.label, each.validations) for each in trained]
    return [
        chart
        for group in _HELD_OUT
        for chart in _charts(group, rows, smoothed=False, note=f"{group.note} {_asked(trained)}")
    ]


def step_charts(trained: Sequence[Training]) -> list[CurveChart]:
    """Curves over the steps: reward by component, and how training itself went."""
    rows = [(each.label, _with_speed(each)) for each in trained]
    return [
        *itertools.chain.from_iterable(
            _components(each, number, alone=len(trained) == 1)
            for number, each in enumerate(trained, start=1)
        ),
        *itertools.chain.from_iterable(
            _charts(group, rows, smoothed=True, note=group.note) for group in _STEPWISE
        ),
    ]


def _field(name: str) -> Figure:
    return lambda row: _number(row.get(name))


def _flat_share(row: Row) -> float | None:
    flat, groups = _number(row.get("flat_groups")), _number(row.get("groups"))
    return flat / groups if flat is not None and groups else None


def _one(name: str, title: str, scale: Scale, note: str, of: Figure) -> _Group:
    return _Group(name, title, scale, note, (_Wanted(name, title, title, of),))


_HELD_OUT = (
    _Group(
        "validation",
        "Held-out questions",
        "share",
        "Answers by a judge that is not the reward's.",
        (
            _Wanted("accuracy", "Accuracy", "accuracy", _field("accuracy")),
            _Wanted(
                "hallucination-unanswerable",
                "Hallucination on unanswerable questions",
                "hallucination (unanswerable)",
                _field("hallucination_unanswerable"),
            ),
            _Wanted("abstention", "Abstention", "abstention", _field("abstention")),
        ),
    ),
    _Group(
        "validation-work",
        "Turns and effort on held-out questions",
        "number",
        "Means an episode; effort counts every call.",
        (
            _Wanted(
                "turns-when-correct",
                "Turns when correct",
                "turns when correct",
                _field("turns_when_correct"),
            ),
            _Wanted(
                "effort-when-correct",
                "Effort when correct",
                "effort when correct",
                _field("effort_when_correct"),
            ),
            _Wanted("effort", "Effort", "effort", _field("effort")),
        ),
    ),
    _one(
        "validation-reward",
        "Reward on held-out questions",
        "number",
        "By the reward's own judge.",
        _field("reward"),
    ),
)

_STEPWISE = (
    _one("steps-entropy", "Entropy", "number", "In nats a token.", _field("entropy")),
    _one("steps-kl", "KL", "number", "From the start, a token.", _field("kl")),
    _one(
        "steps-flat-groups",
        "Groups without spread",
        "share",
        "Of the groups trained on: all rollouts of the question earned the same.",
        _flat_share,
    ),
    _one(
        "steps-format-errors",
        "Format errors",
        "number",
        "Malformed calls an episode.",
        _field("format_errors"),
    ),
    _one(
        "steps-tokens-per-second",
        "Tokens a second",
        "number",
        "Generated and trained on; steps beside a validation are left out.",
        _field("tokens_per_second"),
    ),
    _one("steps-loss", "Loss", "number", "What the optimizer was given.", _field("loss")),
)


def _charts(
    group: _Group, rows: Sequence[tuple[str, Mapping[int, Row]]], *, smoothed: bool, note: str
) -> list[CurveChart]:
    """One chart with all figures of a single run, or one a figure with all runs."""
    smooth = _smooth([steps for _, steps in rows]) if smoothed else 1
    note = f"{note} {_SMOOTHED}" if smooth > 1 else note
    if len(rows) == 1:
        curves = [
            curve
            for wanted in group.figures
            if (curve := _curve(wanted.legend, rows[0][1], wanted.of)) is not None
        ]
        found = [(group.name, group.title, curves)]
    else:
        found = [
            (
                group.name if len(group.figures) == 1 else f"validation-{wanted.name}",
                wanted.title if len(group.figures) == 1 else f"{wanted.title}, held out",
                [
                    curve
                    for label, steps in rows
                    if (curve := _curve(label, steps, wanted.of)) is not None
                ],
            )
            for wanted in group.figures
        ]
    return [
        CurveChart(name, title, note.strip(), group.scale, tuple(curves), smooth=smooth)
        for name, title, curves in found
        if curves
    ]


def _components(training: Training, number: int, *, alone: bool) -> list[CurveChart]:
    """The reward with its largest components, then the smaller ones on a scale of their own."""
    rows = {step: parts for step, row in training.steps.items() if (parts := _parts(row))}
    names = dict.fromkeys(name for parts in rows.values() for name in parts)
    sizes = {name: max(abs(parts.get(name, 0.0)) for parts in rows.values()) for name in names}
    ordered = sorted(names, key=lambda name: -sizes[name])
    curves = [
        # A step in which no episode earned it does not have it.
        Curve(
            name.replace("_", " "),
            tuple(rows),
            tuple(Mark(parts.get(name, 0.0), "") for parts in rows.values()),
        )
        for name in ordered
    ]
    total = _curve("reward", training.steps, _field("reward"))
    curves = [*([total] if total else []), *curves]
    smooth = _smooth([training.steps])
    note = "Means an episode." if alone else f"{training.label}: means an episode."
    note = f"{note} {_SMOOTHED_ONLY}" if smooth > 1 else note
    charts = []
    for place, start in enumerate(range(0, len(curves), len(SERIES))):
        chosen = tuple(curves[start : start + len(SERIES)])
        name = "steps-reward" + ("" if alone else f"-{number}") + (f"-{place + 1}" if place else "")
        title = "Reward: the smaller components" if place else "Reward by component"
        charts.append(CurveChart(name, title, note, "number", chosen, smooth=smooth))
    return charts


_SMOOTHED = f"Bold: the mean of the {SMOOTH} steps around."
_SMOOTHED_ONLY = f"Each point is the mean of the {SMOOTH} steps around."


def _smooth(runs: Sequence[Mapping[int, Row]]) -> int:
    return SMOOTH if max(map(len, runs), default=0) >= LEAST_SMOOTHED else 1


def _curve(label: str, rows: Mapping[int, Row], of: Figure) -> Curve | None:
    """None where no row has the figure."""
    marks = tuple(Mark(of(row), "") for row in rows.values())
    known = any(mark.value is not None for mark in marks)
    return Curve(label, tuple(rows), marks) if known else None


def _with_speed(training: Training) -> dict[int, Row]:
    """The rows with `tokens_per_second`, from sums over the run.

    Not the first one, whose sums hold what came before training, nor those beside a
    validation, whose time is in one of them.
    """
    made = dict(training.steps)
    for (_, before), (step, row) in itertools.pairwise(training.steps.items()):
        new, took = _growth(before, row, "tokens"), _growth(before, row, "seconds")
        if new is not None and took and not {step - 1, step} & training.validations.keys():
            made[step] = {**row, "tokens_per_second": new / took}
    return made


def _growth(before: Row, row: Row, name: str) -> float | None:
    first, last = _number(before.get(name)), _number(row.get(name))
    return None if first is None or last is None else last - first


def _asked(trained: Sequence[Training]) -> str:
    """How many questions the validations asked."""
    sizes = sorted(
        {
            int(n)
            for each in trained
            for row in each.validations.values()
            if (n := _number(row.get("n")))
        }
    )
    if not sizes:
        return ""
    several = f"{sizes[0]:,} to {sizes[-1]:,}" if len(sizes) > 1 else f"{sizes[0]:,}"
    return f"{several} questions each."


def _parts(row: Row) -> dict[str, float]:
    components = row.get("components")
    parts = components.items() if isinstance(components, dict) else ()
    return {name: value for name, told in parts if (value := _number(told)) is not None}


def _number(value: Any) -> float | None:
    """A finite number as it is; None for anything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None


def _by_step(rows: Sequence[Row]) -> dict[int, Row]:
    """The rows in order of their steps; the last one where a step was made again."""
    found = {row["step"]: row for row in rows if isinstance(row.get("step"), int)}
    return dict(sorted(found.items()))


def _steps(run: Run) -> list[dict[str, Any]]:
    path = run.folder / STEPS
    try:
        rows = [json.loads(line) for line in whole_lines(path)]
        if not all(isinstance(row, dict) for row in rows):
            raise ValueError("a line is no JSON object")
    except (OSError, ValueError) as error:
        raise UserError(f"{path} can't be read ({error}); make the run again") from None
    return rows


def _metrics(run: Run) -> Any:
    """What `metrics.json` holds; nothing where the run has not written it yet."""
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
