"""The report of a reproduction: all runs on one page, the seeds, and the talk's figures one by one.

A prompted model stands beside the published one of its name. The trained checkpoint and its start
stand beside the talk's Qwen2.5-14B, trained and untrained, whatever they are here.
"""

import itertools
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from art_e.runs import Run
from evals.metrics import sample_of
from evals.paired import compare
from evals.report.build import Section, build_report
from evals.report.charts import Baseline, CurveChart, write_picture
from evals.report.tables import (
    COLUMNS,
    MENDED,
    NONE,
    O3,
    PUBLISHED,
    SOURCE,
    TRAINED,
    TRAINING_USD,
    UNTRAINED,
    Captioned,
    Cell,
    Published,
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
# The prompt that was chosen, and the figures of all of them.
CHOSEN, COMPARED = "chosen.json", "compared.json"
_ACCURACY, _WRONG, _TURNS = "Accuracy on answerable questions", "Hallucination", "Turns"


class TestedModel(NamedTuple):
    """A model that was asked the test: its name, episodes, and figures as in `metrics.json`."""

    name: str
    scored: Sequence[Scored]
    figures: Mapping[str, Any]


class Line(NamedTuple):
    """A figure of a `group`: as published, as measured here, and of which model.

    One that is `of_time` differs whenever it is measured.
    """

    group: str
    figure: str
    published: Cell
    ours: Cell
    of: str
    of_time: bool = False


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
    chosen = chosen_seed(dict(zip(seeds, ends, strict=True)))
    served = [Run(made[each] / "run") for each in ("start", "trained")]
    start, trained = map(_tested, served)
    models = [_tested(each) for each in baselines]
    lines = talk_figures(trained, start, models, _training_took(profile, [*starts, *ends]))
    charts = [
        _with_baselines(each, models) for each in curves(ends, [f"seed {each}" for each in seeds])
    ]
    sections = [
        _prompts(made["prompts"]),
        _seeds(starts, ends, charts),
        _last_page(profile, lines, len(trained.scored)),
    ]
    best = Run(made[f"grpo-{chosen}"] / "run")
    build_report([*baselines, *served, best], folder, sections)
    write_picture(folder / PICTURE, charts)
    Run(folder).write_json(
        FIGURES,
        {
            "profile": profile.name,
            "published_against_ours": [
                {
                    "figure": f"{each.group}: {each.figure}",
                    "published": each.published.line,
                    "ours": each.ours.line,
                    "of": each.of,
                    "of_time": each.of_time,
                }
                for each in lines
            ],
            "over_seeds": {way: over for way in WAYS if (over := _over_seeds(starts, ends, way))},
            "validation": {each.parent.name: metrics_of(each)["validation"] for each in ends},
        },
    )


def publish(folder: Path, out: Path) -> Path:
    """Copy the report of a step's folder to `out`, where its reader looks; the page."""
    shutil.copytree(folder / "plots", out / "plots", dirs_exist_ok=True)
    for name in (FIGURES, PICTURE, REPORT):
        shutil.copyfile(folder / name, out / name)
    return out / REPORT


def talk_figures(
    trained: TestedModel, start: TestedModel, baselines: Sequence[TestedModel], training: str
) -> list[Line]:
    """The figures in the order of the talk; `training` is what training took, in words."""
    o3 = next(
        (each for each in baselines if each.name == O3.name),
        max(baselines, key=lambda each: each.figures["accuracy"]["value"] or 0.0),
    )
    named = {each.name for each in PUBLISHED}
    by_name: dict[str | None, TestedModel] = {each.name: each for each in baselines}
    ours = {TRAINED.model: trained, UNTRAINED.model: start}
    models = [(each, ours.get(each.model) or by_name.get(each.name)) for each in PUBLISHED]
    from_o3, from_start = (compare(each.scored, trained.scored) for each in (o3, start))
    against_o3, against_start = (f"{trained.name} against {each.name}" for each in (o3, start))
    gain = Cell(f"{100 * (TRAINED.accuracy - UNTRAINED.accuracy):.0f} pts")
    least = min(baselines, key=lambda each: each.figures["hallucination"]["value"] or 0.0)

    def published(
        group: str, figure: str, of: Published, model: TestedModel | None, cell: Cell
    ) -> Line:
        measured = Cell(NONE) if model is None else COLUMNS[figure].cell(model.figures)
        name = "not asked" if model is None else model.name
        return Line(group, of.model, cell, measured, name, figure != "accuracy")

    lines = [
        published(_ACCURACY, "accuracy", of, model, percent(accuracy(of))) for of, model in models
    ]
    lines += [
        Line(
            _ACCURACY, "Another baseline", Cell(NONE), percent(each.figures["accuracy"]), each.name
        )
        for each in baselines
        if each.name not in named
    ]
    lines += [
        Line(_ACCURACY, f"By the judge {judge}", Cell(NONE), percent(of["accuracy"]), model.name)
        for model in (trained, start, *baselines)
        for judge, of in list(model.figures["by_judge"].items())[1:]
    ]
    gained = points(from_start["figures"]["accuracy"]["difference"])
    fixed = percent(from_o3["mended"]), percent(from_start["mended"])
    lines += [
        Line(_ACCURACY, "Gained by training", gain, gained, against_start),
        Line(
            _ACCURACY, "Errors of o3 that training mends", Cell(f"{MENDED:.0%}"), fixed[0],
            against_o3,
        ),
        Line(_ACCURACY, "Errors of the start that it mends", Cell(NONE), fixed[1], against_start),
    ]  # fmt: skip
    lines += [
        published("Latency per question", "latency_p50_s", of, model, Cell(f"{of.seconds} s"))
        for of, model in models
        if of.seconds is not None
    ]
    lines += [
        published(
            "Cost per 1,000 questions", "cost_per_1000_usd", of, model,
            Cell(f"${of.cost_per_1000_usd}"),
        )
        for of, model in models
        if of.cost_per_1000_usd is not None
    ]  # fmt: skip
    fewer = number(from_o3["figures"]["turns"]["difference"])
    both = number(_turns_where_both_right(start, trained))
    lines += [
        Line(_TURNS, "Trained, beside o3's", Cell("almost one fewer"), fewer, against_o3),
        # Where both are right: a model that gives up at once has few turns.
        Line(
            _TURNS, "Trained, beside its start's, where both are right",
            Cell("falls in training"), both, against_start,
        ),
    ]  # fmt: skip
    wrong = (
        ("Wrong answers, of all questions: trained", "lower than any prompted model's", trained),
        ("The lowest of a baseline", NONE, least),
        ("The start", NONE, start),
    )
    lines += [
        Line(_WRONG, name, Cell(cell), percent(model.figures["hallucination"]), model.name)
        for name, cell, model in wrong
    ]
    for model, which in ((start, "the start"), (trained, "trained")):
        asked = [each for each in model.scored if not each.question.answerable]
        answered = sample_of(asked).share(
            [bool(each.trajectory.rubric["answered"]) for each in asked]
        )
        name = f"Answers to unanswerable questions: {which}"
        lines.append(Line(_WRONG, name, Cell(NONE), percent(answered), model.name))
    machine = Cell(f"1 H100, under a day, about ${TRAINING_USD}")
    lines.append(
        Line("Training", "Machine, time, money", machine, Cell(training), "", of_time=True)
    )
    return lines


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
    if not pairs:
        return UNKNOWN
    gaps = [
        float(other.trajectory.rubric["turns"] - one.trajectory.rubric["turns"])
        for one, other in pairs
    ]
    return sample_of([one for one, _ in pairs]).mean(gaps)


def _tested(run: Run) -> TestedModel:
    scored = load_run(run)
    name = scored[0].trajectory.model
    return TestedModel(name.removeprefix("hosted_vllm/"), scored, run.metrics["models"][name])


def _training_took(profile: Profile, runs: Sequence[Path]) -> str:
    took = minutes(runs) / 60
    shown = f"{took:.1f} hours" if took >= 1 else f"{60 * took:.1f} minutes"
    price = profile.evaluation.usd_per_hour
    cost = "" if price is None else f", ${took * price:.2f} at ${price:.2f} an hour"
    seeds = len(profile.training.seeds)
    return f"{shown} for {seeds} seed{'s' if seeds > 1 else ''}{cost}"


def _prompts(folder: Path) -> Section:
    chosen, rows = (json.loads((folder / each).read_text("utf-8")) for each in (CHOSEN, COMPARED))
    if not rows:
        lead = (
            f"No model of this profile reads a prompt, so none were compared; {chosen['name']} is"
            " used. --baseline MODEL adds a model that does."
        )
        return Section("prompts", "Prompts compared", [lead])
    table = Table(
        ["Prompt", "Handled right", "Hallucination", "Turns"],
        [
            Row(
                each["name"],
                [percent(each["correct"]), percent(each["hallucination"]), number(each["turns"])],
            )
            for each in rows
        ],
    )
    models = ", ".join(rows[0]["models"])
    note = f"Models: {models}. Handled right: answered right, or abstained rightly."
    lead = f"Asked of the validation questions; chosen: {chosen['name']}."
    return Section("prompts", "Prompts compared", [lead], [Captioned("", table, [note])])


def _seeds(starts: Sequence[Path], ends: Sequence[Path], charts: Sequence[CurveChart]) -> Section:
    lead = (
        f"{len(ends)} of them, each trained and tested by itself on other questions than it was"
        " trained or chosen on. 95 % intervals over questions and seeds."
    )
    tables = []
    for way in WAYS:
        before, after = pooled_test(starts, way), pooled_test(ends, way)
        if after is None:
            continue
        rows = []
        for each in MEASURES:
            cells = [each.cell(after.mean(each))]
            if before is not None:
                gain = after.gain(before, each)
                cells.insert(0, each.cell(before.mean(each)))
                cells.append(points(gain) if each.share else number(gain))
            rows.append(Row(each.title[0].upper() + each.title[1:], cells))
        headings = ["Trained"] if before is None else ["Start", "Trained", "Gain"]
        title = f"{way.capitalize()}, {after.questions:,} questions a seed"
        tables.append(Captioned(title, Table(["", *headings], rows)))
    return Section("seeds", "Over seeds", [lead], tables, list(charts))


def _over_seeds(starts: Sequence[Path], ends: Sequence[Path], way: Any) -> dict[str, Any]:
    before, after = pooled_test(starts, way), pooled_test(ends, way)
    if after is None:
        return {}
    figures: dict[str, Any] = {each.name: {"trained": after.mean(each)} for each in MEASURES}
    if before is not None:
        for each in MEASURES:
            figures[each.name]["start"] = before.mean(each)
            figures[each.name]["gain"] = after.gain(before, each)
    return figures


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
    recipe = profile.recipe
    made_up = recipe.data.worlds is not None
    mail = " on the mail of made-up companies" if made_up else ""
    aside = (
        " Its figures are of that task alone: compare the direction of change, not the level."
        if made_up
        else ""
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
