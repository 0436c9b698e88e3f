"""Which charts a report has: the figures of its models, as data for `evals.report.charts`.

Knows nothing of how charts are drawn.
"""

from collections.abc import Callable, Sequence
from typing import Any

from evals.report.charts import Bar, BarChart, Baseline, Chart, Curve, CurveChart, Mark, Scale
from evals.report.entries import Entry, Step
from evals.report.tables import (
    PUBLISHED,
    Cell,
    accuracy,
    cost_sources,
    number,
    percent,
    seconds,
    usd,
)
from evals.statistics import Estimate

_Shown = Callable[[Estimate], Cell]
_PUBLISHED_NOTE = "Hatched: published by ART-E's authors, on other questions."


def charts(entries: Sequence[Entry]) -> list[Chart]:
    """The charts of these models, in the order of the page."""
    return [*_comparisons(entries), *_curves(entries)]


def _comparisons(entries: Sequence[Entry]) -> list[Chart]:
    figures = [(each.label, each.figures) for each in entries]
    return [
        BarChart(
            "accuracy",
            "Accuracy",
            f"Answerable questions answered right; 95 % intervals. {_PUBLISHED_NOTE}",
            "share",
            (
                *_bars(figures, ["accuracy"], percent),
                *(
                    Bar(each.model, (_mark(accuracy(each), percent),), published=True)
                    for each in PUBLISHED
                ),
            ),
        ),
        BarChart(
            "mistakes",
            "Hallucination and abstention",
            "Wrong answers given, and answers withheld, of all questions; 95 % intervals.",
            "share",
            tuple(_bars(figures, ["hallucination", "abstention"], percent)),
            series=("hallucination", "abstention"),
        ),
        BarChart(
            "cost",
            "Cost per 1,000 questions",
            " ".join(
                filter(
                    None,
                    (
                        "US dollars, logarithmic; 95 % intervals.",
                        cost_sources(entries),
                        _PUBLISHED_NOTE,
                    ),
                )
            ),
            "usd",
            (
                *_bars(figures, ["cost_per_1000_usd"], usd),
                *(
                    _published_bar(each.model, each.cost_per_1000_usd, f"${each.cost_per_1000_usd}")
                    for each in PUBLISHED
                    if each.cost_per_1000_usd is not None
                ),
            ),
            log=True,
        ),
        BarChart(
            "latency",
            "Latency per question",
            "Half of the questions took no longer than p50, 95 % no longer than p95;"
            " logarithmic; 95 % intervals. Hatched: published, one figure a model, without"
            " saying which.",
            "seconds",
            (
                *_bars(figures, ["latency_p50_s", "latency_p95_s"], seconds),
                *(
                    _published_bar(each.model, each.seconds, f"{each.seconds} s")
                    for each in PUBLISHED
                    if each.seconds is not None
                ),
            ),
            series=("p50", "p95"),
            log=True,
        ),
        BarChart(
            "turns",
            "Turns and effort",
            "A turn is a message of the model; effort counts every call of it. Means a"
            " question; 95 % intervals.",
            "number",
            tuple(_bars(figures, ["turns", "effort"], number)),
            series=("turns", "effort"),
        ),
    ]


def _curves(entries: Sequence[Entry]) -> list[Chart]:
    """Charts over training steps; none where no model was in training."""
    trained = [each for each in entries if each.steps]
    if not trained:
        return []
    baselines = [each for each in entries if not each.steps]
    wanted: list[tuple[str, str, Scale, Callable[[Step], Estimate]]] = [
        ("accuracy", "Accuracy in training", "share", lambda step: step.figures["accuracy"]),
        ("hallucination", "Hallucination in training", "share",
         lambda step: step.figures["hallucination"]),
        ("abstention", "Abstention in training", "share", lambda step: step.figures["abstention"]),
        ("turns", "Turns in training", "number", lambda step: step.figures["turns"]),
        ("effort", "Effort in training", "number", lambda step: step.figures["effort"]),
        ("reward", "Reward in training", "number", lambda step: step.reward),
    ]  # fmt: skip
    made: list[Chart] = []
    for name, title, scale, of in wanted:
        curves = [_curve(each, of) for each in trained]
        if all(mark.value is None for curve in curves for mark in curve.marks):
            continue
        lines = [
            Baseline(each.label, each.figures[name]["value"])
            for each in baselines
            if name in each.figures and each.figures[name]["value"] is not None
        ]
        note = f"The band is the 95 % interval; {_sizes(trained)} a step."
        if lines:
            note += " Dashed: models that were not in training."
        made.append(CurveChart(f"training-{name}", title, note, scale, tuple(curves), tuple(lines)))
    return made


def _bars(
    figures: Sequence[tuple[str, dict[str, Any]]], names: Sequence[str], shown: _Shown
) -> list[Bar]:
    return [Bar(label, tuple(_mark(of[name], shown) for name in names)) for label, of in figures]


def _mark(estimate: Estimate, shown: _Shown) -> Mark:
    text = "not known" if estimate["value"] is None else shown(estimate).line
    return Mark(estimate["value"], text, estimate["low"], estimate["high"])


def _published_bar(model: str, value: float | None, text: str) -> Bar:
    return Bar(model, (Mark(value, text),), published=True)


def _curve(entry: Entry, of: Callable[[Step], Estimate]) -> Curve:
    marks = tuple(_mark(of(step), number) for step in entry.steps.values())
    return Curve(entry.label, tuple(entry.steps), marks)


def _sizes(trained: Sequence[Entry]) -> str:
    sizes = sorted({step.figures["n"] for each in trained for step in each.steps.values()})
    several = f"{sizes[0]:,} to {sizes[-1]:,}" if len(sizes) > 1 else f"{sizes[0]:,}"
    return f"{several} episodes"
