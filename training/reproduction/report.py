"""The report of a reproduction: all runs on one page, the seeds, and the talk's figures one by one.

A prompted model stands beside the published one of its name. The trained checkpoint and its start
stand beside the talk's Qwen2.5-14B, trained and untrained, whatever they are here.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from art_e.cli.output import plural
from art_e.runs import Run
from evals.metrics import sample_of
from evals.paired import compare, paired
from evals.report.build import Section, build_report
from evals.report.charts import CurveChart, write_picture
from evals.report.entries import measure
from evals.report.tables import (
    COLUMNS,
    NET_REDUCTION,
    NONE,
    O3,
    PUBLISHED,
    SOURCE,
    TRAINED,
    TRAINING_USD,
    UNTRAINED,
    Cell,
    Row,
    Table,
    accuracy,
    number,
    percent,
    points,
)
from evals.report.training import read_training, validation_charts
from evals.scored import Scored, load_run
from evals.statistics import UNKNOWN
from training.pooled import MEASURES, WAYS, metrics_of, pooled_test
from training.reproduction.profile import Profile

REPORT, FIGURES, PICTURE = "report.html", "figures.json", "seeds.png"


class TestedModel(NamedTuple):
    """A model that answered the test: its name, episodes, and figures as in `metrics.json`."""

    name: str
    scored: Sequence[Scored]
    figures: Mapping[str, Any]


class Line(NamedTuple):
    """A figure of a `group`: as published, as measured here, and of which model."""

    group: str
    figure: str
    published: Cell
    ours: Cell
    of: str

    def row(self) -> dict[str, str]:
        """The line as `figures.json` has it."""
        cells = {"published": self.published.line, "ours": self.ours.line}
        return {"figure": f"{self.group}: {self.figure}", **cells, "of": self.of}


def chosen_seed(runs: Mapping[int, Path]) -> int:
    """The seed whose best checkpoint handled most of its validation right, the first of equals.

    `runs` has the folder of each seed's GRPO run. Raises `UserError` if one can't be read.
    """

    def merit(seed: int) -> tuple[float, float]:
        metrics = metrics_of(runs[seed])
        step = int(str(metrics["best_checkpoint"]).rpartition("-")[2])
        best = next(each for each in metrics["validation"] if each["step"] == step)
        return best["correct"] or 0.0, -(best["hallucination"] or 0.0)

    return max(runs, key=merit)


def write_report(profile: Profile, made: Mapping[str, Path], folder: Path) -> None:
    """Write `report.html`, `plots/`, `seeds.png` and `figures.json` into `folder`.

    `made` has the folders of all runs by the names of their steps. Raises `UserError` if one can't
    be read.
    """
    seeds = profile.training.seeds
    baselines = [Run(run) for name, run in made.items() if name.startswith("baseline-")]
    served = [Run(made[name]) for name in ("start", "trained")]
    ends = [made[f"grpo-{seed}"] for seed in seeds]
    starts = [made[f"sft-{seed}"] for seed in seeds if f"sft-{seed}" in made]
    start, trained = map(_tested, served)
    took = sum(float(metrics_of(run)["seconds"]) for run in (*starts, *ends)) / 3600
    lines = talk_figures(profile, trained, start, [_tested(each) for each in baselines], took)
    over_seeds, charts = _over_seeds(starts, ends), _curves(profile, ends, baselines)
    sections = [
        _seeds(over_seeds, len(seeds), charts),
        _last_page(profile, lines, len(trained.scored)),
    ]
    best = chosen_seed(dict(zip(seeds, ends, strict=True)))
    build_report([*baselines, *served, Run(made[f"grpo-{best}"])], folder, sections)
    write_picture(folder / PICTURE, charts)
    figures = {
        "profile": profile.name,
        "published_against_ours": [each.row() for each in lines],
        "over_seeds": over_seeds,
    }
    Run(folder).write_json(FIGURES, figures)


def _tested(run: Run) -> TestedModel:
    scored = load_run(run)
    name = scored[0].trajectory.model
    return TestedModel(name.removeprefix("hosted_vllm/"), scored, run.metrics["models"][name])


# ---- The talk's figures.


def talk_figures(
    profile: Profile,
    trained: TestedModel,
    start: TestedModel,
    baselines: Sequence[TestedModel],
    hours: float,
) -> list[Line]:
    """The figures in the order of the talk; training took so many `hours`."""
    lines: list[Line] = []

    def add(group: str, figure: str, published: str | Cell, ours: Cell, of: str) -> None:
        cell = Cell(published) if isinstance(published, str) else published
        lines.append(Line(group, figure, cell, ours, of))

    by_name = {each.name: each for each in baselines}
    ours = {each.model: by_name.get(each.name or "") for each in PUBLISHED}
    ours |= {TRAINED.model: trained, UNTRAINED.model: start}

    def beside(group: str, figure: str, published: Mapping[str, str | Cell]) -> None:
        for name, cell in published.items():
            if (model := ours[name]) is None:
                add(group, name, cell, Cell(NONE), "not asked")
            else:
                add(group, name, cell, COLUMNS[figure].cell(model.figures), model.name)

    right = "Accuracy on answerable questions"
    beside(right, "accuracy", {each.model: percent(accuracy(each)) for each in PUBLISHED})
    for model in (trained, start, *baselines):
        if model.name not in {each.name for each in PUBLISHED} and model in baselines:
            add(right, "Another baseline", NONE, percent(model.figures["accuracy"]), model.name)
        # The first judge decides.
        for judge, figures in list(model.figures["by_judge"].items())[1:]:
            figure = percent(figures["accuracy"])
            add(right, f"By the judge {judge}", NONE, figure, model.name)
    o3 = by_name.get(str(O3.name)) or max(
        baselines, key=lambda each: each.figures["accuracy"]["value"] or 0.0
    )
    from_o3, from_start = (compare(each.scored, trained.scored) for each in (o3, start))
    against_o3, against_start = (f"{trained.name} against {each.name}" for each in (o3, start))
    gained = f"{100 * (TRAINED.accuracy - UNTRAINED.accuracy):.0f} pts"
    gain = points(from_start["figures"]["accuracy"]["difference"])
    add(right, "Gained by training", gained, gain, against_start)
    for name, compared, published, of in (
        ("o3", from_o3, f"{NET_REDUCTION:.0%}", against_o3),
        ("the start", from_start, NONE, against_start),
    ):
        fewer = percent(compared["net_reduction"])
        add(right, f"Net reduction of {name}'s errors", published, fewer, of)

    waits = {each.model: f"{each.seconds} s" for each in PUBLISHED if each.seconds}
    beside("Latency per question", "latency_p50_s", waits)
    costs = {each.model: each.cost_per_1000_usd for each in PUBLISHED if each.cost_per_1000_usd}
    shown = {name: f"${usd}" for name, usd in costs.items()}
    beside("Cost per 1,000 questions", "cost_per_1000_usd", shown)

    turns = number(from_o3["figures"]["turns"]["difference"])
    add("Turns", "Trained, beside o3's", "almost one fewer", turns, against_o3)
    # Where both are right: a model that gives up at once has few turns.
    both = "Trained, beside its start's, where both are right"
    add("Turns", both, "falls in training", _turns_where_both_right(start, trained), against_start)

    wrong, invented = "Wrong answers, of all questions", "Answers to unanswerable questions"
    lower = "lower than any prompted model's"
    for model in (trained, start, *baselines):
        figure = percent(model.figures["hallucination"])
        add("Hallucination", wrong, lower if model is trained else NONE, figure, model.name)
    for model in (trained, start):
        scored = [each for each in model.scored if not each.question.answerable]
        share = sample_of(scored).share([each.answered_by(0) for each in scored])
        add("Hallucination", invented, NONE, percent(share), model.name)

    price, seeds = profile.evaluation.usd_per_hour, plural(len(profile.training.seeds), "seed")
    took = f"{hours:.1f} hours" if hours >= 1 else f"{60 * hours:.1f} minutes"
    cost = "" if price is None else f", ${hours * price:.2f} at ${price:.2f} an hour"
    machine = f"1 H100, under a day, about ${TRAINING_USD}"
    add("Training", "Machine, time, money", machine, Cell(f"{took} for {seeds}{cost}"), "")
    return lines


def _turns_where_both_right(a: TestedModel, b: TestedModel) -> Cell:
    """How many more turns B takes on answerable questions that both have right."""
    pairs = [
        each
        for each in paired(a.scored, b.scored)
        if each.a.question.answerable and each.a.correct and each.b.correct
    ]
    turns = [[float(one.trajectory.rubric["turns"]) for one in each] for each in pairs]
    more = sample_of([each.a for each in pairs]).mean([after - before for before, after in turns])
    return number(more if pairs else UNKNOWN)


# ---- The page's sections.


def _over_seeds(starts: Sequence[Path], ends: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """By way of asking the test, and by measure: the estimates of start, trained and gain."""
    figures: dict[str, dict[str, Any]] = {way: {} for way in WAYS}
    for way in WAYS:
        before, after = pooled_test(starts, way), pooled_test(ends, way)
        assert after is not None
        for each in MEASURES:
            figures[way][each.name] = {"trained": after.mean(each)}
            if before is not None:
                gain = {"start": before.mean(each), "gain": after.gain(before, each)}
                figures[way][each.name] |= gain
    return figures


def _curves(profile: Profile, ends: Sequence[Path], baselines: Sequence[Run]) -> list[CurveChart]:
    """The validations of all seeds, with the baselines on the test's questions."""
    trained = read_training([Run(each) for each in ends])
    labelled = [
        replace(each, label=f"seed {seed}")
        for seed, each in zip(profile.training.seeds, trained, strict=True)
    ]
    return [
        replace(each, name=each.name.replace("validation", "seeds"))
        for each in validation_charts(labelled, measure(baselines))
    ]


def _seeds(
    over_seeds: Mapping[str, Mapping[str, Any]], seeds: int, charts: Sequence[CurveChart]
) -> Section:
    lead = (
        f"{seeds} of them, each trained and tested by itself on other questions than it was"
        " trained or chosen on. 95 % intervals over questions and seeds."
    )
    tables = []
    for way, figures in over_seeds.items():
        rows = []
        for each in MEASURES:
            of = figures[each.name]
            cells = [each.cell(of[name]) for name in ("start", "trained") if name in of]
            cells += [each.change(of["gain"])] if "gain" in of else []
            rows.append(Row(each.title.capitalize(), cells))
        headings = ["", "Start", "Trained", "Gain"] if len(cells) == 3 else ["", "Trained"]
        tables.append(Table(headings, rows, way.capitalize()))
    return Section("seeds", "Over seeds", [lead], tables, list(charts))


def _last_page(profile: Profile, lines: Sequence[Line], questions: int) -> Section:
    rows: list[Row] = []
    for group, of_group in itertools.groupby(lines, key=lambda each: each.group):
        rows.append(Row(group, [], heading=True))
        rows += [
            Row(each.figure, [each.published, each.ours, Cell(each.of or NONE)])
            for each in of_group
        ]
    recipe, mail, aside = profile.recipe, "", ""
    if recipe.data.worlds is not None:
        mail = " on the mail of made-up companies"
        aside = " Compare the direction of change, not the level: the task is another one."
    ours = (
        f"Ours: {recipe.model.base or 'a Qwen2 made from nothing'}, trained by the recipe"
        f" {recipe.name}{mail}, served, and asked {questions:,} held-out questions greedily; judged"
        f" by {profile.judges[0]}. Sampled answers, and each seed, are above.{aside} Command:"
        f" art-e reproduce --profile {profile.name}."
    )
    table = Table(["Figure of the talk", "Published", "Ours", "Ours is of"], rows)
    return Section("published", "Published against ours", [SOURCE, ours], [table], apart=True)
