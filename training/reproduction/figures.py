"""The talk's figures one by one: what was published, and what this reproduction measured.

A prompted model stands beside the published one of its name. The trained checkpoint and its
start stand beside the talk's Qwen2.5-14B, trained and untrained, whatever they are here. Knows
nothing of pages.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from evals.metrics import sample_of
from evals.paired import compare
from evals.report.tables import (
    MENDED,
    NONE,
    O3,
    PUBLISHED,
    TRAINED,
    TRAINING_USD,
    UNTRAINED,
    Cell,
    Published,
    accuracy,
    number,
    percent,
    points,
    seconds,
    usd,
)
from evals.scored import Scored
from evals.statistics import UNKNOWN, Estimate

_ACCURACY, _WRONG = "Accuracy on answerable questions", "Hallucination"


class Model(NamedTuple):
    """A model that was asked the test's questions: its name, episodes, and its figures as in
    `metrics.json`."""

    name: str
    scored: Sequence[Scored]
    figures: Mapping[str, Any]


class Figures(NamedTuple):
    """What the report's last page is made from. `baselines` are prompted models and the floor;
    `training` tells what training took, in words."""

    trained: Model
    start: Model
    baselines: Sequence[Model]
    training: str

    @property
    def best_baseline(self) -> Model:
        """The baseline with most answerable questions right, the first of equals."""
        return max(self.baselines, key=lambda each: each.figures["accuracy"]["value"] or 0.0)


class Line(NamedTuple):
    """A figure: what it is, of its `group`, as published, and as measured here, of what. One that
    is `of_time` is another whenever it is measured."""

    group: str
    figure: str
    published: Cell
    ours: Cell
    of: str
    of_time: bool = False


def lines(told: Figures) -> list[Line]:
    """The figures in the order of the talk."""
    models = [(each, _ours(told, each)) for each in PUBLISHED]
    return [
        *(_accuracy(each, model) for each, model in models),
        *_floor(told),
        *_by_second_judge(told),
        _gain(told),
        *_mended(told),
        *(_latency(each, model) for each, model in models if each.seconds is not None),
        *(_cost(each, model) for each, model in models if each.cost_per_1000_usd is not None),
        *_turns(told),
        *_hallucination(told),
        _training(told),
    ]


def _training(told: Figures) -> Line:
    published = Cell(f"1 H100, under a day, about ${TRAINING_USD}")
    return Line(
        "Training", "Machine, time, money", published, Cell(told.training), "", of_time=True
    )


def _ours(told: Figures, published: Published) -> Model | None:
    if published is TRAINED:
        return told.trained
    if published is UNTRAINED:
        return told.start
    return next((each for each in told.baselines if each.name == published.name), None)


def _of(model: Model | None) -> str:
    return "not asked" if model is None else model.name


def _accuracy(published: Published, model: Model | None) -> Line:
    ours = Cell(NONE) if model is None else percent(model.figures["accuracy"])
    return Line(_ACCURACY, published.model, percent(accuracy(published)), ours, _of(model))


def _floor(told: Figures) -> list[Line]:
    """Baselines that nothing was published of."""
    known = {each.name for each in PUBLISHED}
    return [
        Line(
            _ACCURACY, "Another baseline", Cell(NONE), percent(each.figures["accuracy"]), each.name
        )
        for each in told.baselines
        if each.name not in known
    ]


def _by_second_judge(told: Figures) -> list[Line]:
    """Accuracies by the judge that does not decide, where there is one."""
    made = []
    for model in (told.trained, told.start, *told.baselines):
        for judge, figures in list(model.figures["by_judge"].items())[1:]:
            ours = percent(figures["accuracy"])
            made.append(Line(_ACCURACY, f"By the judge {judge}", Cell(NONE), ours, model.name))
    return made


def _gain(told: Figures) -> Line:
    published = Cell(f"{100 * (TRAINED.accuracy - UNTRAINED.accuracy):.0f} pts")
    found = compare(told.start.scored, told.trained.scored)["figures"]["accuracy"]
    return Line(
        _ACCURACY,
        "Gained by training",
        published,
        points(found["difference"]),
        _pair(told.start, told.trained),
    )


def _mended(told: Figures) -> list[Line]:
    o3 = next((each for each in told.baselines if each.name == O3.name), told.best_baseline)
    rows = (
        ("Errors of o3 that training mends", f"{MENDED:.0%}", o3),
        ("Errors of the start that it mends", NONE, told.start),
    )
    return [
        Line(
            _ACCURACY,
            figure,
            Cell(published),
            percent(compare(other.scored, told.trained.scored)["mended"]),
            _pair(other, told.trained),
        )
        for figure, published, other in rows
    ]


def _latency(published: Published, model: Model | None) -> Line:
    ours = Cell(NONE) if model is None else seconds(model.figures["latency_p50_s"])
    told = Cell(f"{published.seconds} s")
    return Line("Latency per question", published.model, told, ours, _of(model), of_time=True)


def _cost(published: Published, model: Model | None) -> Line:
    ours = Cell(NONE) if model is None else usd(model.figures["cost_per_1000_usd"])
    told = Cell(f"${published.cost_per_1000_usd}")
    return Line("Cost per 1,000 questions", published.model, told, ours, _of(model), of_time=True)


def _turns(told: Figures) -> list[Line]:
    """Turns of the trained model beside another's. Beside its start, where both are right: one
    that gives up at once has few turns."""
    other = next((each for each in told.baselines if each.name == O3.name), told.best_baseline)
    found = compare(other.scored, told.trained.scored)["figures"]["turns"]
    both = _both_right(told.start, told.trained)
    return [
        Line(
            "Turns",
            "Trained, beside o3's",
            Cell("almost one fewer"),
            number(found["difference"]),
            _pair(other, told.trained),
        ),
        Line(
            "Turns",
            "Trained, beside its start's, where both are right",
            Cell("falls in training"),
            number(both),
            _pair(told.start, told.trained),
        ),
    ]


def _both_right(a: Model, b: Model) -> Estimate:
    """How many turns more B takes, on answerable questions that both have right."""
    by_id = {
        each.question.id: each for each in a.scored if each.question.answerable and each.correct
    }
    pairs = [
        (by_id[each.question.id], each)
        for each in b.scored
        if each.question.id in by_id and each.correct
    ]
    if not pairs:
        return UNKNOWN
    gaps = [
        float(other.trajectory.rubric["turns"] - one.trajectory.rubric["turns"])
        for one, other in pairs
    ]
    return sample_of([one for one, _ in pairs]).mean(gaps)


def _hallucination(told: Figures) -> list[Line]:
    least = min(told.baselines, key=lambda each: each.figures["hallucination"]["value"] or 0.0)
    rows = (
        (
            "Wrong answers, of all questions: trained",
            "lower than any prompted model's",
            told.trained,
        ),
        ("The lowest of a baseline", NONE, least),
        ("The start", NONE, told.start),
    )
    made = [
        Line(_WRONG, figure, Cell(published), percent(model.figures["hallucination"]), model.name)
        for figure, published, model in rows
    ]
    for model, which in ((told.start, "the start"), (told.trained, "trained")):
        asked = [each for each in model.scored if not each.question.answerable]
        given = [bool(each.trajectory.rubric["answered"]) for each in asked]
        ours = percent(sample_of(asked).share(given))
        figure = f"Answers to what nothing answers: {which}"
        made.append(Line(_WRONG, figure, Cell(NONE), ours, model.name))
    return made


def _pair(a: Model, b: Model) -> str:
    return f"{b.name} against {a.name}"
