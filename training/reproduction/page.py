"""The report of a reproduction: all runs on one page, what came of each seed, and at its end the
talk's figures, published against ours.

Knows nothing of how the runs were made.
"""

import itertools
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from art_e.runs import Run
from evals.report.build import Captioned, Section, build_report
from evals.report.charts import Baseline, CurveChart
from evals.report.tables import NONE, SOURCE, Cell, Row, Table, number, percent, points
from evals.scored import load_run
from training.experiments.pages import cell, write_picture
from training.experiments.pooled import Asked, asked_alike
from training.experiments.results import WAYS, Way, episodes_of_test, metrics_of, minutes
from training.experiments.seeds import MEASURES, curves
from training.reproduction.choice import chosen_seed, compared_in
from training.reproduction.figures import Figures, Model, lines
from training.reproduction.profile import Profile

REPORT = "report.html"
FIGURES = "figures.json"
# The validations of all seeds.
PICTURE = "seeds.png"


def write_report(profile: Profile, folder: Path, made: Mapping[str, Path]) -> None:
    """Write `report.html`, `plots/`, `seeds.png` and `figures.json` into `folder`; `made` has the
    folders of all units.

    Raises `UserError` where a run can't be read.
    """
    baselines = [Run(path / "run") for name, path in made.items() if name.startswith("baseline-")]
    grpo = {seed: made[f"grpo-{seed}"] / "run" for seed in profile.training.seeds}
    starts = [made[f"sft-{seed}"] / "run" for seed in grpo if f"sft-{seed}" in made]
    seed = chosen_seed(grpo)
    served = {each: Run(made[each] / "run") for each in ("start", "trained")}
    told = Figures(
        trained=_model(served["trained"]),
        start=_model(served["start"]),
        baselines=[_model(each) for each in baselines],
        training=_training_took(profile, [*starts, *grpo.values()]),
    )
    sections = [
        *_prompts(made["prompts"]),
        _seeds(profile, starts, list(grpo.values()), told.baselines),
        _last_page(profile, told),
    ]
    build_report([*baselines, *served.values(), Run(grpo[seed])], folder, sections)
    write_picture(folder / PICTURE, _curves(profile, list(grpo.values()), told.baselines))
    Run(folder).write_json(FIGURES, _figures_row(profile, told, starts, list(grpo.values())))


def publish(folder: Path, out: Path) -> Path:
    """Copy the report of a unit's folder to `out`, where its reader looks; the page."""
    shutil.copytree(folder / "plots", out / "plots", dirs_exist_ok=True)
    for name in (FIGURES, PICTURE, REPORT):
        shutil.copyfile(folder / name, out / name)
    return out / REPORT


def _model(run: Run) -> Model:
    scored = load_run(run)
    name = scored[0].trajectory.model
    return Model(name.removeprefix("hosted_vllm/"), scored, run.metrics["models"][name])


def _training_took(profile: Profile, runs: Sequence[Path]) -> str:
    took = minutes(runs) / 60
    shown = f"{took:.1f} hours" if took >= 1 else f"{60 * took:.1f} minutes"
    price = profile.evaluation.usd_per_hour
    cost = "" if price is None else f", ${took * price:.2f} at ${price:.2f} an hour"
    seeds = len(profile.training.seeds)
    return f"{shown} for {seeds} seed{'s' if seeds > 1 else ''}{cost}"


def _prompts(folder: Path) -> list[Section]:
    chosen, rows = compared_in(folder)
    lead = f"Asked of the validation questions; gone on with: {chosen}."
    if not rows:
        lead = (
            f"No model of this profile reads a prompt, so that none were compared; {chosen} is"
            " gone on with. --baseline MODEL adds one that does."
        )
        return [Section("prompts", "Prompts compared", [lead])]
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
    return [Section("prompts", "Prompts compared", [lead], [Captioned("", table, [note])])]


def _seeds(
    profile: Profile, starts: Sequence[Path], ends: Sequence[Path], baselines: Sequence[Model]
) -> Section:
    seeds = profile.training.seeds
    lead = (
        f"{len(seeds)} of them, each trained and tested by itself on other questions than it was"
        " trained or chosen on. 95 % intervals over questions and seeds."
    )
    tables = []
    for way in WAYS:
        before, after = _asked(starts, way), _asked(ends, way)
        if after is not None:
            asked = len(after.runs[0])
            tables.append(
                Captioned(f"{way.capitalize()}, {asked:,} questions a seed", _gains(before, after))
            )
    charts = _curves(profile, ends, baselines)
    return Section("seeds", "Over seeds", [lead], tables, charts)


def _curves(profile: Profile, ends: Sequence[Path], baselines: Sequence[Model]) -> list[CurveChart]:
    labels = [f"seed {each}" for each in profile.training.seeds]
    return [_with_lines(each, baselines) for each in curves(ends, labels)]


def _asked(runs: Sequence[Path], way: Way) -> Asked | None:
    found = [episodes_of_test(each)[way] for each in runs]
    return asked_alike(found) if found else None


def _gains(before: Asked | None, after: Asked) -> Table:
    pool = after.pool
    rows = []
    for each in MEASURES:
        last = after.matrix(each)
        cells = [cell(each, pool.mean(last, share=each.share))]
        if before is not None:
            first = before.matrix(each)
            gain = pool.gain(first, last)
            cells = [
                cell(each, pool.mean(first, share=each.share)),
                *cells,
                points(gain) if each.share else number(gain),
            ]
        rows.append(Row(each.title[0].upper() + each.title[1:], cells))
    headings = ["Start", "Trained", "Gain"] if before is not None else ["Trained"]
    return Table(["", *headings], rows)


def _with_lines(chart: CurveChart, baselines: Sequence[Model]) -> CurveChart:
    """The chart with a line for each baseline that has the figure, on the test's questions."""
    lines_of = [
        Baseline(each.name, each.figures[chart.name]["value"])
        for each in baselines
        if chart.name in each.figures and each.figures[chart.name]["value"] is not None
    ]
    note = f"{chart.note} Dashed: baselines, on the test." if lines_of else chart.note
    return CurveChart(
        f"seeds-{chart.name}", chart.title, note, chart.scale, chart.curves, tuple(lines_of)
    )


def _last_page(profile: Profile, told: Figures) -> Section:
    rows: list[Row] = []
    for group, of_group in itertools.groupby(lines(told), key=lambda each: each.group):
        rows.append(Row(group, [], heading=True))
        rows += [
            Row(each.figure, [each.published, each.ours, Cell(each.of or NONE)])
            for each in of_group
        ]
    lead = [SOURCE, _ours_is(profile, told)]
    table = Table(["Figure of the talk", "Published", "Ours", "Ours is of"], rows)
    return Section("published", "Published against ours", lead, [Captioned("", table)], apart=True)


def _ours_is(profile: Profile, told: Figures) -> str:
    """What is measured here, and why it is not the same thing."""
    recipe = profile.recipe
    what = recipe.model.base or "a Qwen2 made from nothing"
    made_up = " on the mail of made-up companies" if recipe.data.worlds is not None else ""
    asked = len(told.trained.scored)
    aside = (
        " Its figures are of that task alone: compare what moves, and which way, not how high it"
        " stands."
        if made_up
        else ""
    )
    return (
        f"Ours: {what}, trained by the recipe {recipe.name}{made_up}, and asked {asked:,} held-out"
        f" questions greedily, as it is served; judged by {profile.judges[0]}. What it says"
        f" sampled, and by seed, is above.{aside} Command: art-e reproduce --profile"
        f" {profile.name}."
    )


def _figures_row(
    profile: Profile, told: Figures, starts: Sequence[Path], ends: Sequence[Path]
) -> dict[str, Any]:
    """The same as JSON. What is not `of_time` is the same whenever it is made."""
    rows = [
        {
            "figure": f"{each.group}: {each.figure}",
            "published": each.published.line,
            "ours": each.ours.line,
            "of": each.of,
            "of_time": each.of_time,
        }
        for each in lines(told)
    ]
    return {
        "profile": profile.name,
        "published_against_ours": rows,
        "over_seeds": {
            way: _gains_rows(_asked(starts, way), after)
            for way in WAYS
            if (after := _asked(ends, way)) is not None
        },
        "validation": {each.parent.name: metrics_of(each)["validation"] for each in ends},
    }


def _gains_rows(before: Asked | None, after: Asked) -> dict[str, dict[str, Any]]:
    pool = after.pool
    made: dict[str, dict[str, Any]] = {}
    for each in MEASURES:
        last = after.matrix(each)
        made[each.name] = {"trained": pool.mean(last, share=each.share)}
        if before is not None:
            first = before.matrix(each)
            made[each.name]["start"] = pool.mean(first, share=each.share)
            made[each.name]["gain"] = pool.gain(first, last)
    return made
