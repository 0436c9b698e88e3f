"""The report of a reproduction: all runs on one page, the seeds, and the talk's figures one by one.

A prompted model stands beside the published one of its name. The trained checkpoint and its start
stand beside the talk's Qwen2.5-14B, trained and untrained, whatever they are here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from art_e.cli.output import plural
from art_e.errors import UserError
from art_e.question import Question
from art_e.runs import Run
from art_e.trajectory import read_trajectories
from evals.metrics import sample_of
from evals.paired import Pair, compare, paired
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
from evals.statistics import UNKNOWN, Estimate
from training.progress import EPISODES, by_second
from training.reproduction.profile import Profile
from training.reward import malformed_calls

REPORT, FIGURES, PICTURE = "report.html", "figures.json", "seeds.png"

Way = Literal["sampled", "greedy"]
WAYS: tuple[Way, ...] = ("sampled", "greedy")

# ---- Measures of the test of a training run.


class Measure(NamedTuple):
    """`of` gives an episode's value, None where it is undefined; a `share` is 0 or 1."""

    name: str
    title: str
    of: Callable[[Scored], float | None]
    share: bool = False

    def mean(self, scored: Sequence[Scored]) -> Estimate:
        """The mean of the episodes for which it is defined."""
        values = [(each, value) for each in scored if (value := self.of(each)) is not None]
        sample = sample_of([each for each, _ in values])
        if self.share:
            return sample.share([value > 0 for _, value in values])
        return sample.mean([value for _, value in values])

    def gain(self, pairs: Sequence[Pair]) -> Estimate:
        """How much larger it is of B than of A: the mean difference of the pairs for which it is
        defined on both sides."""
        values = [
            (pair.a, after - before)
            for pair in pairs
            if (before := self.of(pair.a)) is not None and (after := self.of(pair.b)) is not None
        ]
        return sample_of([each for each, _ in values]).mean([value for _, value in values])

    def cell(self, estimate: Estimate) -> Cell:
        """A mean as the report writes it."""
        return percent(estimate) if self.share else number(estimate)

    def change(self, gain: Estimate) -> Cell:
        """A gain as the report writes it."""
        return points(gain) if self.share else number(gain)


def _when_correct(fact: str) -> Callable[[Scored], float | None]:
    def of(scored: Scored) -> float | None:
        defined = scored.question.answerable and scored.correct
        return float(scored.trajectory.rubric[fact]) if defined else None

    return of


TURNS_RIGHT = Measure("turns-when-correct", "turns, answer right", _when_correct("turns"))
MEASURES = (
    Measure(
        "accuracy",
        "accuracy",
        lambda each: float(each.correct) if each.question.answerable else None,
        share=True,
    ),
    Measure(
        "hallucination-unanswerable",
        "hallucination on unanswerable questions",
        lambda each: None if each.question.answerable else float(each.answered_by(0)),
        share=True,
    ),
    Measure("hallucination", "hallucination, all questions", lambda x: float(x.wrong), share=True),
    Measure("abstention", "abstention, all questions", lambda x: float(x.abstained), share=True),
    Measure(
        "format-errors",
        "format errors an episode",
        lambda each: float(malformed_calls(each.trajectory.rubric)),
    ),
    TURNS_RIGHT,
    Measure("effort-when-correct", "effort, answer right", _when_correct("effort")),
)


def episodes_of_test(folder: Path) -> dict[Way, list[Scored]]:
    """The test episodes of a complete run, by the judge of validations. Raises `UserError` if they
    can't be read, or if the test is not whole."""
    path = folder / EPISODES
    found: dict[Way, list[Scored]] = {way: [] for way in WAYS}
    try:
        for each in read_trajectories(path):
            way: Way = "sampled" if each.policy["temperature"] > 0 else "greedy"
            question = Question.from_row(each.question or {})
            found[way].append(by_second(Scored(question, each)))
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{path} can't be read ({error}); make the run again") from None
    if not all(found.values()):
        raise UserError(f"{path} has not all of the test; make the run again")
    return found


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
    took = sum(float(Run(run).metrics["seconds"]) for run in (*starts, *ends)) / 3600
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
    fewer_turns = number(TURNS_RIGHT.gain(paired(start.scored, trained.scored)))
    add("Turns", both, "falls in training", fewer_turns, against_start)

    wrong = percent(trained.figures["hallucination"])
    lower = "lower than any prompted model's"
    add("Hallucination", "Wrong answers, of all questions", lower, wrong, trained.name)

    price, seeds = profile.evaluation.usd_per_hour, plural(len(profile.training.seeds), "seed")
    took = f"{hours:.1f} hours" if hours >= 1 else f"{60 * hours:.1f} minutes"
    cost = "" if price is None else f", ${hours * price:.2f} at ${price:.2f} an hour"
    machine = f"1 H100, under a day, about ${TRAINING_USD}"
    add("Training", "Machine, time, money", machine, Cell(f"{took} for {seeds}{cost}"), "")
    return lines


# ---- The page's sections.


_T = TypeVar("_T")


def _over_seeds(starts: Sequence[Path], ends: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """By way of asking the test, and by measure: start, trained and gain, each the estimate over
    the episodes of all seeds, with the values of the lowest and the highest seed as `seeds`."""
    before, after = ([episodes_of_test(each) for each in runs] for runs in (starts, ends))
    figures: dict[str, dict[str, Any]] = {}
    for way in WAYS:
        old, new = ([each[way] for each in tests] for tests in (before, after))
        pairs = [paired(*each) for each in zip(old, new, strict=True)] if old else []
        figures[way] = {
            each.name: {
                **({"start": _pooled(each.mean, old)} if old else {}),
                "trained": _pooled(each.mean, new),
                **({"gain": _pooled(each.gain, pairs)} if pairs else {}),
            }
            for each in MEASURES
        }
    return figures


def _pooled(estimate: Callable[[Sequence[_T]], Estimate], seeds: Sequence[list[_T]]) -> Any:
    values = [value for each in seeds if (value := estimate(each)["value"]) is not None]
    span = [min(values), max(values)] if values else None
    return {**estimate(list(chain.from_iterable(seeds))), "seeds": span}


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
        " trained or chosen on. 95 % intervals over questions, by inbox; behind them the lowest and"
        " the highest seed. Gains are question by question; of turns and effort where both answers"
        " are right."
    )
    tables = []
    for way, figures in over_seeds.items():
        rows = []
        for each in MEASURES:
            of = figures[each.name]
            shown = {"start": each.cell, "trained": each.cell, "gain": each.change}
            cells = [_with_seeds(shown[name], of[name]) for name in of]
            rows.append(Row(each.title.capitalize(), cells))
        headings = ["", "Start", "Trained", "Gain"] if len(cells) == 3 else ["", "Trained"]
        tables.append(Table(headings, rows, way.capitalize()))
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
