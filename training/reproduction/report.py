"""The report of a reproduction: all runs on one page, the seeds, and the talk's figures one by one.

A prompted model stands beside the published one of its name. The trained checkpoint and its start
stand beside the talk's Qwen2.5-14B, trained and untrained, whatever they are here.
"""

import itertools
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from art_e.cli.output import plural
from art_e.runs import Run
from evals.metrics import sample_of
from evals.paired import compare
from evals.report.build import Section, build_report
from evals.report.charts import Baseline, CurveChart, write_picture
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
    Captioned,
    Cell,
    Row,
    Table,
    accuracy,
    number,
    percent,
    points,
)
from evals.scored import Scored, load_run
from evals.statistics import UNKNOWN, Estimate
from training.pooled import MEASURES, WAYS, curves, metrics_of, minutes, pooled_test
from training.reproduction.profile import Profile

REPORT, FIGURES, PICTURE = "report.html", "figures.json", "seeds.png"


class TestedModel(NamedTuple):
    """A model that was asked the test: its name, episodes, and figures as in `metrics.json`."""

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


def write_report(profile: Profile, folder: Path, made: Mapping[str, Path]) -> None:
    """Write `report.html`, `plots/`, `seeds.png` and `figures.json` into `folder`.

    `made` has the folders of all steps by name. Raises `UserError` if a run can't be read.
    """
    baselines = [Run(path / "run") for name, path in made.items() if name.startswith("baseline-")]
    seeds = profile.training.seeds
    ends = [made[f"grpo-{seed}"] / "run" for seed in seeds]
    starts = [made[f"sft-{seed}"] / "run" for seed in seeds if f"sft-{seed}" in made]
    served = [Run(made[each] / "run") for each in ("start", "trained")]
    start, trained = map(_tested, served)
    models = [_tested(each) for each in baselines]
    lines = talk_figures(trained, start, models, _training_took(profile, [*starts, *ends]))
    labels = [f"seed {each}" for each in seeds]
    charts = [_with_baselines(each, models) for each in curves(ends, labels)]
    over_seeds = _over_seeds(starts, ends)
    sections = [
        _seeds(over_seeds, len(ends), charts),
        _last_page(profile, lines, len(trained.scored)),
    ]
    best = chosen_seed(dict(zip(seeds, ends, strict=True)))
    build_report([*baselines, *served, Run(made[f"grpo-{best}"] / "run")], folder, sections)
    write_picture(folder / PICTURE, charts)
    figures = {
        "profile": profile.name,
        "published_against_ours": [
            {
                "figure": f"{each.group}: {each.figure}",
                "published": each.published.line,
                "ours": each.ours.line,
                "of": each.of,
            }
            for each in lines
        ],
        "over_seeds": over_seeds,
    }
    Run(folder).write_json(FIGURES, figures)


def publish(folder: Path, out: Path) -> Path:
    """Copy the report of a step's folder to `out`, where its reader looks; the page."""
    shutil.copytree(folder / "plots", out / "plots", dirs_exist_ok=True)
    for name in (FIGURES, PICTURE, REPORT):
        shutil.copyfile(folder / name, out / name)
    return out / REPORT


# ---- The talk's figures.


def talk_figures(
    trained: TestedModel, start: TestedModel, baselines: Sequence[TestedModel], training: str
) -> list[Line]:
    """The figures in the order of the talk; `training` is what training took, in words."""
    by_name: dict[str | None, TestedModel] = {each.name: each for each in baselines}
    ours = {TRAINED.model: trained, UNTRAINED.model: start}
    models = [(each, ours.get(each.model) or by_name.get(each.name)) for each in PUBLISHED]
    named = {each.name for each in PUBLISHED}
    most = max(baselines, key=lambda each: each.figures["accuracy"]["value"] or 0.0)
    least = min(baselines, key=lambda each: each.figures["hallucination"]["value"] or 0.0)
    o3 = by_name.get(O3.name, most)
    from_o3, from_start = (compare(each.scored, trained.scored) for each in (o3, start))
    against_o3, against_start = (f"{trained.name} against {each.name}" for each in (o3, start))
    gain = points(from_start["figures"]["accuracy"]["difference"])
    fixed, fixed_start = (percent(each["net_reduction"]) for each in (from_o3, from_start))
    fewer = number(from_o3["figures"]["turns"]["difference"])
    # Where both are right: a model that gives up at once has few turns.
    both = number(_turns_where_both_right(start, trained))
    right, wrong = "Accuracy on answerable questions", "Hallucination"
    gained = f"{100 * (TRAINED.accuracy - UNTRAINED.accuracy):.0f} pts"
    machine = f"1 H100, under a day, about ${TRAINING_USD}"
    rows: list[tuple[str, str, str | Cell, Cell, str]] = [
        *(
            (right, of.model, percent(accuracy(of)), _cell(model, "accuracy"), _name(model))
            for of, model in models
        ),
        *(
            (right, "Another baseline", NONE, percent(each.figures["accuracy"]), each.name)
            for each in baselines
            if each.name not in named
        ),
        *(
            (right, f"By the judge {judge}", NONE, percent(of["accuracy"]), model.name)
            for model in (trained, start, *baselines)
            for judge, of in list(model.figures["by_judge"].items())[1:]
        ),
        (right, "Gained by training", gained, gain, against_start),
        (right, "Net reduction of o3's errors", f"{NET_REDUCTION:.0%}", fixed, against_o3),
        (right, "Net reduction of the start's errors", NONE, fixed_start, against_start),
        *(
            ("Latency per question", of.model, f"{of.seconds} s", _cell(model, "latency_p50_s"),
             _name(model))
            for of, model in models
            if of.seconds is not None
        ),
        *(
            ("Cost per 1,000 questions", of.model, f"${of.cost_per_1000_usd}",
             _cell(model, "cost_per_1000_usd"), _name(model))
            for of, model in models
            if of.cost_per_1000_usd is not None
        ),
        ("Turns", "Trained, beside o3's", "almost one fewer", fewer, against_o3),
        ("Turns", "Trained, beside its start's, where both are right", "falls in training", both,
         against_start),
        *(
            (wrong, figure, published, percent(model.figures["hallucination"]), model.name)
            for figure, published, model in (
                ("Wrong answers, of all questions: trained", "lower than any prompted model's",
                 trained),
                ("The lowest of a baseline", NONE, least),
                ("The start", NONE, start),
            )
        ),
        *(
            (wrong, f"Answers to unanswerable questions: {which}", NONE, _invented(model),
             model.name)
            for model, which in ((start, "the start"), (trained, "trained"))
        ),
        ("Training", "Machine, time, money", machine, Cell(training), ""),
    ]  # fmt: skip
    return [
        Line(group, figure, Cell(published) if isinstance(published, str) else published, ours, of)
        for group, figure, published, ours, of in rows
    ]


def _cell(model: TestedModel | None, figure: str) -> Cell:
    return Cell(NONE) if model is None else COLUMNS[figure].cell(model.figures)


def _name(model: TestedModel | None) -> str:
    return "not asked" if model is None else model.name


def _invented(model: TestedModel) -> Cell:
    """The share of unanswerable questions that it answered."""
    scored = [each for each in model.scored if not each.question.answerable]
    answered = [each.answered_by(0) for each in scored]
    return percent(sample_of(scored).share(answered))


def _turns_where_both_right(a: TestedModel, b: TestedModel) -> Estimate:
    """How many turns more B takes on answerable questions that both have right."""
    right = {
        each.question.id: each for each in a.scored if each.question.answerable and each.correct
    }
    pairs = [
        (right[each.question.id], each)
        for each in b.scored
        if each.question.id in right and each.correct
    ]
    turns = [[float(each.trajectory.rubric["turns"]) for each in pair] for pair in pairs]
    gaps = [other - one for one, other in turns]
    return sample_of([one for one, _ in pairs]).mean(gaps) if pairs else UNKNOWN


def _tested(run: Run) -> TestedModel:
    scored = load_run(run)
    name = scored[0].trajectory.model
    return TestedModel(name.removeprefix("hosted_vllm/"), scored, run.metrics["models"][name])


def _training_took(profile: Profile, runs: Sequence[Path]) -> str:
    took = minutes(runs) / 60
    shown = f"{took:.1f} hours" if took >= 1 else f"{60 * took:.1f} minutes"
    price = profile.evaluation.usd_per_hour
    cost = "" if price is None else f", ${took * price:.2f} at ${price:.2f} an hour"
    return f"{shown} for {plural(len(profile.training.seeds), 'seed')}{cost}"


# ---- The page's sections.


def _over_seeds(starts: Sequence[Path], ends: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """By way of asking the test, and by measure: the estimates of start, trained and gain."""
    figures: dict[str, dict[str, Any]] = {}
    for way in WAYS:
        before, after = pooled_test(starts, way), pooled_test(ends, way)
        if after is None:
            continue
        figures[way] = {each.name: {"trained": after.mean(each)} for each in MEASURES}
        if before is not None:
            for each in MEASURES:
                gain = {"start": before.mean(each), "gain": after.gain(before, each)}
                figures[way][each.name] |= gain
    return figures


def _seeds(
    over_seeds: Mapping[str, Mapping[str, Any]], seeds: int, charts: Sequence[CurveChart]
) -> Section:
    lead = (
        f"{seeds} of them, each trained and tested by itself on other questions than it was"
        " trained or chosen on. 95 % intervals over questions and seeds."
    )
    tables = []
    for way, figures in over_seeds.items():
        rows, headings = [], ["Trained"]
        for each in MEASURES:
            of = figures[each.name]
            cells = [each.cell(of["trained"])]
            if "gain" in of:
                headings = ["Start", "Trained", "Gain"]
                cells = [each.cell(of["start"]), *cells, each.change(of["gain"])]
            rows.append(Row(each.heading, cells))
        tables.append(Captioned(way.capitalize(), Table(["", *headings], rows)))
    return Section("seeds", "Over seeds", [lead], tables, list(charts))


def _with_baselines(chart: CurveChart, models: Sequence[TestedModel]) -> CurveChart:
    """The chart with a line for each baseline that has the figure, on the test's questions."""
    lines = tuple(
        Baseline(each.name, each.figures[chart.name]["value"])
        for each in models
        if chart.name in each.figures and each.figures[chart.name]["value"] is not None
    )
    note = f"{chart.note} Dashed: baselines, on the test." if lines else chart.note
    return replace(chart, name=f"seeds-{chart.name}", note=note, baselines=lines)


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
        aside = (
            " Its figures are of that task alone: compare the direction of change, not the level."
        )
    ours = (
        f"Ours: {recipe.model.base or 'a Qwen2 made from nothing'}, trained by the recipe"
        f" {recipe.name}{mail}, served, and asked {questions:,} held-out questions greedily; judged"
        f" by {profile.judges[0]}. Sampled answers, and each seed, are above.{aside} Command:"
        f" art-e reproduce --profile {profile.name}."
    )
    table = Table(["Figure of the talk", "Published", "Ours", "Ours is of"], rows)
    captioned = [Captioned("", table)]
    return Section("published", "Published against ours", [SOURCE, ours], captioned, apart=True)
