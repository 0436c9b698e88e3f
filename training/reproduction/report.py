"""The report of a reproduction: all runs on one page, the seeds, and the talk's figures one by one.

A prompted model stands beside the published one of its name. The trained checkpoint and its start
stand beside the talk's Qwen2.5-14B, trained and untrained, whatever they are here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

from art_e.cli.output import plural
from art_e.errors import UserError
from art_e.question import Question
from art_e.runs import Run
from art_e.trajectory import read_trajectories
from evals.metrics import HEADLINE, model_metrics, sample_of
from evals.paired import compare, paired
from evals.report import tables
from evals.report.build import Section, build_report
from evals.report.charts import CurveChart, write_picture
from evals.report.entries import Entry, measure
from evals.report.tables import COLUMNS, NONE, PUBLISHED, Cell, Row, Table, percent
from evals.report.training import read_training, validation_charts
from evals.scored import Scored
from evals.statistics import UNKNOWN, Estimate
from training.progress import EPISODES, by_second
from training.reproduction.chain import Profile, chosen_seed

REPORT, FIGURES, PICTURE = "report.html", "figures.json", "seeds.png"

Way = Literal["sampled", "greedy"]
WAYS: tuple[Way, ...] = ("sampled", "greedy")
# The figures over seeds, by their names in metrics.json.
MEASURES = (*HEADLINE, "turns", "effort")

# ---- The test of training runs, over seeds.


def episodes_of_test(folder: Path, seed: int = 0) -> dict[Way, list[Scored]]:
    """Return the test episodes of a complete run, by the judge of validations; `seed` is their
    repeat. Raises `UserError` if they can't be read, or if the test is not whole."""
    path = folder / EPISODES
    found: dict[Way, list[Scored]] = {way: [] for way in WAYS}
    try:
        for each in read_trajectories(path):
            way: Way = "sampled" if each.policy["temperature"] > 0 else "greedy"
            question = Question.from_row(each.question or {})
            found[way].append(by_second(Scored(question, replace(each, repeat=seed))))
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{path} can't be read ({error}); make the run again") from None
    if not all(found.values()):
        raise UserError(f"{path} has not all of the test; make the run again")
    return found


def over_seeds(starts: Sequence[Path], ends: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """Return, by way of asking the test, the figures of start, trained and gain: estimates over the
    episodes of all seeds, with the values of the lowest and the highest seed as `seeds`."""
    before, after = (
        [episodes_of_test(each, seed) for seed, each in enumerate(runs)] for runs in (starts, ends)
    )
    found: dict[str, dict[str, Any]] = {}
    for way in WAYS:
        old, new = ([each[way] for each in tests] for tests in (before, after))
        found[way] = {"trained": _pooled(_means, new)}
        if old:
            found[way] |= {"start": _pooled(_means, old), "gain": _pooled(_gains, old, new)}
    return found


def _pooled(
    figures: Callable[..., Mapping[str, Any]], *sides: Sequence[list[Scored]]
) -> dict[str, Any]:
    pooled = figures(*(list(chain.from_iterable(each)) for each in sides))
    alone = [figures(*each) for each in zip(*sides, strict=True)]
    made = {}
    for name in MEASURES:
        values = [value for each in alone if (value := each[name]["value"]) is not None]
        span = [min(values), max(values)] if values else None
        made[name] = {**pooled[name], "seeds": span}
    return made


def _means(scored: Sequence[Scored]) -> dict[str, Any]:
    return model_metrics(scored, ["validation"])


def _gains(start: Sequence[Scored], trained: Sequence[Scored]) -> dict[str, Estimate]:
    rows = compare(start, trained)["figures"]
    return {name: rows[name]["difference"] if name in rows else UNKNOWN for name in MEASURES}


def _seeds(pooled: Mapping[str, Any], seeds: int, charts: Sequence[CurveChart]) -> Section:
    lead = (
        f"{seeds} of them, each trained and tested by itself on other questions than it was"
        " trained or chosen on. 95 % intervals over questions, by inbox; behind them the lowest and"
        " the highest seed. Gains are question by question."
    )
    made = []
    for way, sides in pooled.items():
        names = [each for each in ("start", "trained", "gain") if each in sides]
        rows = []
        for figure in MEASURES:
            column = COLUMNS[figure]
            forms = {"gain": column.difference or column.form}
            cells = [_spanned(forms.get(name, column.form), sides[name][figure]) for name in names]
            rows.append(Row(column.heading, cells))
        made.append(Table(["", *map(str.capitalize, names)], rows, way.capitalize()))
    return Section("seeds", "Over seeds", [lead], made, list(charts))


def _spanned(shown: Callable[[Estimate], Cell], pooled: Any) -> Cell:
    """The pooled estimate, and behind its interval the span of the seeds."""
    cell, span = shown(pooled), pooled["seeds"]
    if span is None or span[0] == span[1]:
        return cell
    low, high = (shown({**UNKNOWN, "value": each}).value for each in span)
    return cell._replace(interval=f"{cell.interval} seeds {low} to {high}".strip())


# ---- The report, and the talk's figures on its last page.


class Line(NamedTuple):
    """A figure as published, as measured here, and of which model."""

    figure: str
    published: str
    ours: Cell
    of: str


def write_report(profile: Profile, made: Mapping[str, Path], folder: Path) -> None:
    """Write `report.html`, `plots/`, `seeds.png` and `figures.json` into `folder`.

    `made` has the folders of all runs by the names of their steps. Raises `UserError` if one can't
    be read.
    """
    runs = {
        kind: [Run(run) for name, run in made.items() if name.startswith(f"{kind}-")]
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
    best = chosen_seed(dict(zip(profile.seeds, ends, strict=True)))
    build_report([*compared, Run(made[f"grpo-{best}"])], folder, sections)
    write_picture(folder / PICTURE, charts)
    rows = [{**line._asdict(), "ours": line.ours.line} for line in lines]
    figures = {"profile": profile.name, "published_against_ours": rows, "over_seeds": pooled}
    Run(folder).write_json(FIGURES, figures)


def talk_figures(
    profile: Profile, trained: Entry, start: Entry, baselines: Sequence[Entry], hours: float
) -> Iterator[Line]:
    """Yield the talk's figures; training took so many `hours`."""
    by_name = {each.model: each for each in baselines}
    ours = {each.model: by_name.get(each.name or "") for each in PUBLISHED}
    ours |= {tables.TRAINED.model: trained, tables.UNTRAINED.model: start}
    for published in PUBLISHED:
        model, usd = ours[published.model], published.cost_per_1000_usd
        values = {
            "accuracy": percent(tables.accuracy(published)).line,
            "latency_p50_s": f"{published.seconds} s" if published.seconds else None,
            "cost_per_1000_usd": f"${usd}" if usd else None,
        }
        for name, value in values.items():
            if value is not None:
                cell = Cell(NONE) if model is None else COLUMNS[name].cell(model.figures)
                label = "not asked" if model is None else model.label
                yield Line(f"{COLUMNS[name].heading}: {published.model}", value, cell, label)
    o3 = by_name.get(str(tables.O3.name)) or max(
        baselines, key=lambda each: each.figures["accuracy"]["value"] or 0.0
    )
    from_o3, from_start = (compare(each.scored, trained.scored) for each in (o3, start))
    to_o3, to_start = (f"{trained.label} against {each.label}" for each in (o3, start))
    gained = tables.points(from_start["figures"]["accuracy"]["difference"])
    promised = f"{100 * (tables.TRAINED.accuracy - tables.UNTRAINED.accuracy):.0f} pts"
    yield Line("Accuracy gained by training", promised, gained, to_start)
    fewer = percent(from_o3["net_reduction"])
    yield Line("Net reduction of o3's errors", f"{tables.NET_REDUCTION:.0%}", fewer, to_o3)
    turns = tables.number(from_o3["figures"]["turns"]["difference"])
    yield Line("Turns, beside o3's", "almost one fewer", turns, to_o3)
    # Where both are right: a model that gives up at once has few turns.
    turns = tables.number(_gained_turns(start, trained))
    yield Line("Turns, beside its start's, where both are right", "fewer", turns, to_start)
    wrong, lower = percent(trained.figures["hallucination"]), "lower than any prompted model's"
    yield Line("Wrong answers, of all questions", lower, wrong, trained.label)
    price, seeds = profile.usd_per_hour, plural(len(profile.seeds), "seed")
    cost = "" if price is None else f", ${hours * price:.2f} at ${price:.2f} an hour"
    machine = f"1 H100, under a day, about ${tables.TRAINING_USD}"
    took = Cell(f"{hours:.1f} hours for {seeds}{cost}")
    yield Line("Training: machine, time, money", machine, took, profile.training.name)


def _gained_turns(start: Entry, trained: Entry) -> Estimate:
    """How many turns more the trained model takes, where both answers are right."""
    pairs = [
        each
        for each in paired(start.scored, trained.scored)
        if each.a.question.answerable and each.a.correct and each.b.correct
    ]
    turns = [[one.trajectory.rubric["turns"] for one in each] for each in pairs]
    return sample_of([each.a for each in pairs]).mean([after - before for before, after in turns])


def _last_page(profile: Profile, lines: Sequence[Line], questions: int) -> Section:
    rows = [Row(each.figure, [Cell(each.published), each.ours, Cell(each.of)]) for each in lines]
    recipe, mail, aside = profile.training, "", ""
    if recipe.data.worlds is not None:
        mail = " on the mail of made-up companies"
        aside = " Compare the direction of change, not the level: the task is another one."
    ours = (
        f"Ours: {recipe.model.base or 'a Qwen2 made from nothing'}, trained by the recipe"
        f" {recipe.name}{mail}, and asked {questions:,} held-out questions greedily; judged by"
        f" {profile.judges[0]}. Sampled answers, and each seed, are above.{aside} Command:"
        f" art-e reproduce --profile {profile.name}."
    )
    table = Table(["Figure of the talk", "Published", "Ours", "Ours is of"], rows)
    lead = [tables.SOURCE, ours]
    return Section("published", "Published against ours", lead, [table], apart=True)
