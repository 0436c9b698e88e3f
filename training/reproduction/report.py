"""The report of a reproduction: all runs on one page, the seeds, and the talk's figures one by one.

A prompted model stands beside the published one of its name. The trained checkpoint and its start
stand beside the talk's Qwen2.5-14B, trained and untrained, whatever they are here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple

from art_e.cli.output import plural
from art_e.errors import UserError
from art_e.question import Question
from art_e.runs import Run
from art_e.trajectory import read_trajectories
from evals.metrics import HEADLINE, model_metrics, sample_of
from evals.paired import compare, paired
from evals.report.build import Section, build_report
from evals.report.charts import CurveChart, write_picture
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
    measure,
    number,
    percent,
    points,
)
from evals.report.training import read_training, validation_charts
from evals.scored import Scored, load_run
from evals.statistics import UNKNOWN, Estimate
from training.progress import EPISODES, Validation, by_second
from training.reproduction.profile import Profile

REPORT, FIGURES, PICTURE = "report.html", "figures.json", "seeds.png"

Way = Literal["sampled", "greedy"]
WAYS: tuple[Way, ...] = ("sampled", "greedy")
# The figures over seeds, by their names in metrics.json.
MEASURES = (*HEADLINE, "turns", "effort")

# ---- The test of training runs, over seeds.


def episodes_of_test(folder: Path, seed: int = 0) -> dict[Way, list[Scored]]:
    """The test episodes of a complete run, by the judge of validations; `seed` is their repeat.
    Raises `UserError` if they can't be read, or if the test is not whole."""
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
    """By way of asking the test, the figures of start, trained and gain, each an estimate over the
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
    """The figures of all seeds together, and of each the values of the lowest and highest seed."""
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


# ---- The report.


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

    `runs` has the folder of each seed's GRPO run.
    """

    def merit(seed: int) -> tuple[float, float]:
        metrics = Run(runs[seed]).metrics
        step = int(str(metrics["best_checkpoint"]).rpartition("-")[2])
        validations = [Validation(**each) for each in metrics["validation"]]
        return next(each.merit for each in validations if each.step == step)

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
    took = sum(float(Run(run).metrics["seconds"]) for run in (*starts, *ends)) / 3600
    lines = talk_figures(profile, trained, start, [_tested(each) for each in baselines], took)
    pooled, charts = over_seeds(starts, ends), _curves(ends, baselines)
    sections = [_seeds(pooled, len(seeds), charts), _last_page(profile, lines, len(trained.scored))]
    best = chosen_seed(dict(zip(seeds, ends, strict=True)))
    build_report([*baselines, *served, Run(made[f"grpo-{best}"])], folder, sections)
    write_picture(folder / PICTURE, charts)
    figures = {
        "profile": profile.name,
        "published_against_ours": [each.row() for each in lines],
        "over_seeds": pooled,
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
    o3 = by_name.get(str(O3.name)) or max(
        baselines, key=lambda each: each.figures["accuracy"]["value"] or 0.0
    )
    from_o3, from_start = (compare(each.scored, trained.scored) for each in (o3, start))
    against_o3, against_start = (f"{trained.name} against {each.name}" for each in (o3, start))
    gained = f"{100 * (TRAINED.accuracy - UNTRAINED.accuracy):.0f} pts"
    gain = points(from_start["figures"]["accuracy"]["difference"])
    add(right, "Gained by training", gained, gain, against_start)
    fewer = percent(from_o3["net_reduction"])
    add(right, "Net reduction of o3's errors", f"{NET_REDUCTION:.0%}", fewer, against_o3)

    waits = {each.model: f"{each.seconds} s" for each in PUBLISHED if each.seconds}
    beside("Latency per question", "latency_p50_s", waits)
    costs = {each.model: each.cost_per_1000_usd for each in PUBLISHED if each.cost_per_1000_usd}
    shown = {name: f"${usd}" for name, usd in costs.items()}
    beside("Cost per 1,000 questions", "cost_per_1000_usd", shown)

    turns = number(from_o3["figures"]["turns"]["difference"])
    add("Turns", "Trained, beside o3's", "almost one fewer", turns, against_o3)
    # Where both are right: a model that gives up at once has few turns.
    both = "Trained, beside its start's, where both are right"
    add("Turns", both, "falls in training", number(_gained_turns(start, trained)), against_start)

    wrong = percent(trained.figures["hallucination"])
    lower = "lower than any prompted model's"
    add("Hallucination", "Wrong answers, of all questions", lower, wrong, trained.name)

    price, seeds = profile.evaluation.usd_per_hour, plural(len(profile.training.seeds), "seed")
    took = f"{hours:.1f} hours" if hours >= 1 else f"{60 * hours:.1f} minutes"
    cost = "" if price is None else f", ${hours * price:.2f} at ${price:.2f} an hour"
    machine = f"1 H100, under a day, about ${TRAINING_USD}"
    add("Training", "Machine, time, money", machine, Cell(f"{took} for {seeds}{cost}"), "")
    return lines


def _gained_turns(start: TestedModel, trained: TestedModel) -> Estimate:
    """How many turns more the trained model takes, where both answers are right."""
    pairs = [
        each
        for each in paired(start.scored, trained.scored)
        if each.a.question.answerable and each.a.correct and each.b.correct
    ]
    turns = [[one.trajectory.rubric["turns"] for one in each] for each in pairs]
    return sample_of([each.a for each in pairs]).mean([after - before for before, after in turns])


# ---- The page's sections.


def _curves(ends: Sequence[Path], baselines: Sequence[Run]) -> list[CurveChart]:
    """The validations over seeds, with the baselines on the test's questions."""
    trained = read_training([Run(each) for each in ends])
    return [
        replace(each, name=each.name.replace("validation", "seeds"))
        for each in validation_charts(trained, measure(baselines))
    ]


def _seeds(pooled: Mapping[str, Any], seeds: int, charts: Sequence[CurveChart]) -> Section:
    lead = (
        f"{seeds} of them, each trained and tested by itself on other questions than it was"
        " trained or chosen on. 95 % intervals over questions, by inbox; behind them the lowest and"
        " the highest seed. Gains are question by question."
    )
    tables = []
    for way, sides in pooled.items():
        names = [each for each in ("start", "trained", "gain") if each in sides]
        rows = []
        for figure in MEASURES:
            column = COLUMNS[figure]
            forms = {"gain": column.difference or column.form}
            cells = [
                _with_seeds(forms.get(name, column.form), sides[name][figure]) for name in names
            ]
            rows.append(Row(column.heading, cells))
        tables.append(Table(["", *map(str.capitalize, names)], rows, way.capitalize()))
    return Section("seeds", "Over seeds", [lead], tables, list(charts))


def _with_seeds(shown: Callable[[Estimate], Cell], pooled: Any) -> Cell:
    """The pooled estimate, and behind its interval the span of the seeds."""
    cell, span = shown(pooled), pooled["seeds"]
    if span is None or span[0] == span[1]:
        return cell
    low, high = (shown({**UNKNOWN, "value": each}).value for each in span)
    return cell._replace(interval=f"{cell.interval} seeds {low} to {high}".strip())


def _last_page(profile: Profile, lines: Sequence[Line], questions: int) -> Section:
    rows: list[Row] = []
    for group, of_group in groupby(lines, key=lambda each: each.group):
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
