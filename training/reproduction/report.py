"""The report of a reproduction: all runs on one page, the seeds, and the talk's figures one by one.

A prompted model stands beside the published one of its name. The trained checkpoint and its start
stand beside the talk's Qwen2.5-14B, trained and untrained, whatever they are here.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from art_e.cli.output import plural
from art_e.errors import UserError
from art_e.question import Question
from art_e.runs import Run
from art_e.trajectory import read_trajectories
from evals.metrics import HEADLINE, model_metrics
from evals.paired import compare
from evals.report import tables
from evals.report.build import Section, build_report
from evals.report.charts import CurveChart, write_picture
from evals.report.tables import COLUMNS, NONE, PUBLISHED, Cell, Entry, Row, Table, measure, percent
from evals.report.training import read_training, validation_charts
from evals.scored import Scored
from evals.statistics import UNKNOWN
from training.progress import EPISODES, by_second
from training.reproduction.chain import Profile

REPORT, FIGURES, PICTURE = "report.html", "figures.json", "seeds.png"

WAYS = ("sampled", "greedy")
# The figures over seeds, by their names in metrics.json.
MEASURES = (*HEADLINE, "turns", "effort")

# ---- The test of training runs, over seeds.


def episodes_of_test(folder: Path, seed: int = 0) -> dict[str, list[Scored]]:
    """Return the test episodes of a complete run, by the judge of validations; `seed` is their
    repeat. Raises `UserError` if they can't be read, or if the test is not whole."""
    path = folder / EPISODES
    found: dict[str, list[Scored]] = {way: [] for way in WAYS}
    try:
        for each in read_trajectories(path):
            way = "sampled" if each.policy["temperature"] > 0 else "greedy"
            question = Question.from_row(each.question or {})
            found[way].append(by_second(Scored(question, replace(each, repeat=seed))))
        if not all(found.values()):
            raise ValueError("not all of the test is there")
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{path} can't be read ({error}); make the run again") from None
    return found


def over_seeds(starts: Sequence[Path], ends: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """Return, by way of asking the test, the figures of start, trained and gain, each an estimate
    over the episodes of all seeds."""
    found: dict[str, dict[str, Any]] = {way: {} for way in WAYS}
    for way, sides in found.items():
        old, new = (
            [each for seed, run in enumerate(runs) for each in episodes_of_test(run, seed)[way]]
            for runs in (starts, ends)
        )
        figures = {"start": old, "trained": new} if old else {"trained": new}
        sides |= {name: model_metrics(scored, ["validation"]) for name, scored in figures.items()}
        if old:
            gains = compare(old, new)["figures"]
            differences = {name: row["difference"] for name, row in gains.items()}
            sides["gain"] = dict.fromkeys(MEASURES, UNKNOWN) | differences
    return found


def _seeds(pooled: Mapping[str, Any], seeds: int, charts: Sequence[CurveChart]) -> Section:
    lead = (
        f"{seeds} of them, tested on other questions than each was trained or chosen on. 95 %"
        " intervals over questions, by inbox. Gains are question by question."
    )
    made = []
    for way, sides in pooled.items():
        rows = []
        for column in map(COLUMNS.__getitem__, MEASURES):
            forms = {"gain": column.difference or column.form}
            cells = (forms.get(n, column.form)(each[column.figure]) for n, each in sides.items())
            rows.append(Row(column.heading, list(cells)))
        made.append(Table(["", *map(str.capitalize, sides)], rows, way.capitalize()))
    return Section("seeds", "Over seeds", [lead], made, charts)


# ---- The report, and the talk's figures on its last page.


def write_report(profile: Profile, names: Sequence[str], folder: Path) -> None:
    """Write `report.html`, `plots/`, `seeds.png` and `figures.json` into `folder`, about its runs
    of these names. Raises `UserError` if one can't be read."""
    runs = {
        kind: [Run(folder / name) for name in names if name.startswith(f"{kind}-")]
        for kind in ("baseline", "sft", "grpo", "start", "trained")
    }
    starts, ends = ([run.folder for run in runs[kind]] for kind in ("sft", "grpo"))
    compared = [*runs["baseline"], *runs["start"], *runs["trained"]]
    *baselines, start, trained = measure(compared)
    hours = sum(float(run.metrics["seconds"]) for run in (*runs["sft"], *runs["grpo"])) / 3600
    lines = list(talk_figures(profile, trained, start, baselines, hours))
    pooled = over_seeds(starts, ends)
    # The validations over seeds, with the baselines on the test's questions.
    charts = [
        replace(each, name=each.name.replace("validation", "seeds"))
        for each in validation_charts(read_training(runs["grpo"]), baselines)
    ]
    sections = [_seeds(pooled, len(ends), charts), _last_page(profile, lines, len(trained.scored))]
    best = folder / runs["trained"][0].id.replace("trained", "grpo")
    build_report([*compared, Run(best)], folder, sections)
    write_picture(folder / PICTURE, charts)
    keys = ("figure", "published", "ours", "of")
    cells = ([row.label, *(cell.line for cell in row.cells)] for row in lines)
    rows = [dict(zip(keys, each, strict=True)) for each in cells]
    figures = {"profile": profile.name, "published_against_ours": rows, "over_seeds": pooled}
    Run(folder).write_json(FIGURES, figures)


def talk_figures(
    profile: Profile, trained: Entry, start: Entry, baselines: Sequence[Entry], hours: float
) -> Iterator[Row]:
    """Yield the talk's figures; training took so many `hours`."""
    by_name = {each.model: each for each in baselines}
    ours = {each.model: by_name.get(each.name or "") for each in PUBLISHED}
    ours |= {tables.TRAINED.model: trained, tables.UNTRAINED.model: start}
    for name in ("accuracy", "latency_p50_s", "cost_per_1000_usd"):
        for each in PUBLISHED:
            model, usd, seconds = ours[each.model], each.cost_per_1000_usd, each.seconds
            value = percent(tables.accuracy(each)).line
            if name != "accuracy":
                value = f"${usd}" if name.startswith("cost") else f"{seconds} s"
            if name == "accuracy" or usd:
                cell = Cell(NONE) if model is None else COLUMNS[name].cell(model.figures)
                label = "not asked" if model is None else model.label
                yield _row(f"{COLUMNS[name].heading}: {each.model}", value, cell, label)
    o3 = by_name.get(str(tables.O3.name)) or max(
        baselines, key=lambda each: each.figures["accuracy"]["value"] or 0.0
    )
    from_o3, from_start = (compare(each.scored, trained.scored) for each in (o3, start))
    to_o3, to_start = (f"{trained.label} against {each.label}" for each in (o3, start))
    gained = tables.points(from_start["figures"]["accuracy"]["difference"])
    promised = f"{100 * (tables.TRAINED.accuracy - tables.UNTRAINED.accuracy):.0f} pts"
    yield _row("Accuracy gained by training", promised, gained, to_start)
    fewer = percent(from_o3["net_reduction"])
    yield _row("Net reduction of o3's errors", f"{tables.NET_REDUCTION:.0%}", fewer, to_o3)
    turns = tables.number(from_o3["figures"]["turns"]["difference"])
    yield _row("Turns, beside o3's", "almost one fewer", turns, to_o3)
    wrong, lower = percent(trained.figures["hallucination"]), "lower than any prompted model's"
    yield _row("Wrong answers, of all questions", lower, wrong, trained.label)
    price, seeds = profile.usd_per_hour, plural(len(profile.seeds), "seed")
    cost = "" if price is None else f", ${hours * price:.2f} at ${price:.2f} an hour"
    machine, took = f"1 H100, under a day, about ${tables.TRAINING_USD}", f"{hours:.1f} hours"
    yield _row("Training", machine, Cell(f"{took} for {seeds}{cost}"), profile.training.name)


def _row(figure: str, published: str, ours: Cell, model: str) -> Row:
    return Row(figure, [Cell(published), ours, Cell(model)])


def _last_page(profile: Profile, rows: list[Row], questions: int) -> Section:
    ours = (
        f"Ours: {profile.training.model.base or 'a Qwen2 made from nothing'}, trained by the recipe"
        f" {profile.recipe}, and asked {questions:,} held-out questions greedily; judged by"
        f" {profile.judges[0]}. Sampled answers, over all seeds, are above. On other mail than the"
        " talk's compare the direction of change, not the level."
    )
    table = Table(["Figure of the talk", "Published", "Ours", "Ours is of"], rows)
    texts = [tables.SOURCE, ours]
    return Section("published", "Published against ours", texts, [table], apart=True)
