"""`art-e reproduce`: the talk's commands from mail to report, each run once.

Each command runs in the reproduction's folder and leaves a stamp when it is done. After a kill the
chain skips commands with a stamp, and resumes the one that was killed."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

import typer
from pydantic import Field
from typer import Option

from art_e.children import run_art_e
from art_e.cli.options import JsonOption
from art_e.cli.output import note, plural, print_json, print_line, print_lines
from art_e.errors import UserError
from art_e.models.checkpoint import best_device, require_train_extra
from art_e.models.model import Model, full_name
from art_e.models.providers import ending
from art_e.privacy import load_env
from art_e.question import Question
from art_e.runs import Run, read_trajectories
from art_e.storage import expanded, home, locked, write_whole
from evals.judges import needs_model
from evals.metrics import HEADLINE, compare, model_metrics
from evals.report import tables
from evals.report.build import Section, build_report
from evals.report.charts import CurveChart, write_picture
from evals.report.tables import COLUMNS, NONE, PUBLISHED, Cell, Entry, Row, Table, measure, percent
from evals.report.training import read_training, validation_charts
from evals.scored import Scored
from evals.statistics import UNKNOWN
from training.cli import SetOption, fee_line, rough
from training.planning import plan
from training.recipe import NotNegative, Recipe, RecipeTable, load_recipe, load_toml
from training.run import EPISODES, Validation, with_second_judge

app = typer.Typer(rich_markup_mode=None, add_completion=False)

# ---- The chain of `art-e` commands.

Stage = Literal["ingest", "golden", "baselines", "sft", "grpo", "evaluation", "report"]
STAGES: tuple[Stage, ...] = get_args(Stage)
# In a reproduction's folder; each file in STAMPS holds a command that is done.
STAMPS, INBOX, GOLDEN, TEST = "done", "inbox.duckdb", "golden", "test"
# Temperature of a control: how much of the gain does a lower one give the initial model?
COOL = "0.4"
_LIMIT = re.compile(r" --max-cost \S+")


class Profile(RecipeTable):
    """The settings of a reproduction. The first of `judges` decides. `sources` go to
    `art-e ingest`, `changes` to `--set`, `preset` to `eval run` ("": whole test); `golden` has
    commands of `art-e golden`. `max_cost_usd` limits each baseline."""

    name: str
    recipe: str
    changes: tuple[str, ...] = ()
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] = (0,)
    preset: Literal["", "published-100"] = ""
    judges: Annotated[tuple[str, ...], Field(min_length=1)]
    sources: Annotated[tuple[str, ...], Field(min_length=1)]
    golden: Annotated[tuple[str, ...], Field(min_length=1)]
    baselines: Annotated[tuple[str, ...], Field(min_length=1)]
    max_cost_usd: NotNegative | None = None
    gpu: str | None = None
    usd_per_hour: NotNegative | None = None

    @cached_property
    def training(self) -> Recipe:
        return load_recipe(self.recipe, self.changes)


class Command(NamedTuple):
    """A command of the chain. If it `makes_run`, the run has its name and can be resumed."""

    stage: Stage
    name: str
    words: list[str]
    makes_run: bool = False

    @property
    def line(self) -> str:
        return shlex.join(["art-e", *self.words])

    def is_done(self, out: Path) -> bool:
        """Return True if its stamp exists. Raises `UserError` if another command left it."""
        stamp = out / STAMPS / self.name
        done = stamp.read_text("utf-8") if stamp.exists() else None
        # A cost limit decides whether a step finishes, but does not change its result.
        if done is not None and _LIMIT.sub("", done) != _LIMIT.sub("", self.line):
            raise UserError(f"{self.name} was done by another command ({done}): give another --out")
        return done is not None

    def do(self, out: Path) -> None:
        """Run or resume the command. Raises `UserError` if it fails or is cut short."""
        run = Run(out / self.name)
        if not run.complete:
            words = [*self.words, *(["--resume"] if run.started else [])]
            note(f"{self.name}: {shlex.join(['art-e', *words])}")
            if run_art_e(words, out):
                raise UserError(f"{self.name} failed, see above; run this again to resume")
        # With only some of the questions, the figures would differ.
        if (self.makes_run and not run.complete) or (self.stage == "golden" and _cut(out / GOLDEN)):
            raise UserError(f"{self.name} was cut short: run this again, with a higher --max-cost")
        write_whole(out / STAMPS / self.name, self.line)


def _cut(golden: Path) -> bool:
    done = json.loads((golden / "manifest.json").read_text("utf-8"))["steps"]
    lost = done.get("generate", {}).get("batches", {}).get("lost", {})
    unchecked = done.get("verify", {}).get("unchecked", {}).values()
    return any("budget" in reasons for reasons in (lost, *unchecked))


def steps(profile: Profile, out: Path) -> Iterator[Command]:
    """Yield the commands. Run each before taking the next, because training decides which seed is
    tested. Until then, the first seed stands in for the best."""
    # Absolute, because the commands run in another folder.
    paths = [(each, expanded(each)) for each in profile.sources]
    mail = [str(path.resolve()) if path.exists() else each for each, path in paths]
    yield Command("ingest", "ingest", ["ingest", *mail, "--db", INBOX, "--replace"])
    for line in profile.golden:
        words = ["golden", *shlex.split(line), "--db", INBOX, "--out", GOLDEN]
        yield Command("golden", f"golden-{words[1]}", words)
    changes = (*profile.changes, f"data.questions={GOLDEN}", f"data.db={INBOX}")
    recipe = ["--recipe", profile.recipe, *(word for each in changes for word in ("--set", each))]
    words = ["train", "questions", *recipe, "--split", "test", "--out", TEST]
    yield Command("golden", "questions", words)

    def evaluate(
        stage: Stage, name: str, model: str, *options: str, file: str = "questions"
    ) -> Command:
        judges = [word for each in profile.judges for word in ("--judge", each)]
        place = ["--questions", f"{TEST}/{file}.jsonl", "--db", INBOX, "--recipe", TEST]
        place += ["--preset", profile.preset] if profile.preset else []
        words = ["eval", "run", "-m", model, *place, *judges, *options, "--out", name]
        return Command(stage, name, words, makes_run=True)

    for model in map(full_name, profile.baselines):
        name = re.sub(r"[^a-z0-9.]+", "-", Path(model).name.lower()).strip("-")
        limit = profile.max_cost_usd
        limits = [] if limit is None else ["--max-cost", str(limit)]
        yield evaluate("baselines", f"baseline-{name}", model, *limits)
    warm, seeds = profile.training.sft is not None, profile.seeds
    for kind in ("sft", "grpo") if warm else ("grpo",):
        for seed in seeds:
            init = ["--init", f"sft-{seed}"] if kind == "grpo" and warm else []
            name = f"{kind}-{seed}"
            words = ["train", kind, *recipe, *init, "--seed", str(seed), "--out", name]
            yield Command(kind, name, words, makes_run=True)
    runs = {seed: out / f"grpo-{seed}" for seed in seeds}
    best = chosen_seed(runs) if all(Run(run).complete for run in runs.values()) else seeds[0]
    first = f"sft-{best}" if warm else str(profile.training.model.base)
    price = [] if (usd := profile.usd_per_hour) is None else ["--gpu-usd-per-hour", str(usd)]
    for name, model in (("start", first), ("trained", f"grpo-{best}")):
        yield evaluate("evaluation", f"{name}-{best}", f"local:{model}", *price)
    if not profile.preset:
        cool = ["--temperature", COOL, *price]
        yield evaluate("evaluation", f"cool-start-{best}", f"local:{first}", *cool)
        for name, model in (("start", first), ("trained", f"grpo-{best}")):
            control = f"swapped-{name}-{best}"
            yield evaluate("evaluation", control, f"local:{model}", *price, file="swapped")


def chosen_seed(runs: Mapping[int, Path]) -> int:
    """Return the seed whose GRPO run has the best validation; the first on a tie."""

    def score(seed: int) -> tuple[float, float]:
        rows = Run(runs[seed]).metrics["validation"]
        return max(Validation(**each).score for each in rows if each["step"])

    return max(runs, key=score)


@app.command()
def reproduce(
    profile: Annotated[str, Option(metavar="NAME|FILE", help="nano, talk, or a TOML file.")],
    changes: SetOption = None,
    until: Annotated[Stage, Option(metavar="STAGE", help=f"Last: {', '.join(STAGES)}.")] = "report",
    dry_run: Annotated[
        bool, Option("--dry-run", help="Show the commands, the plan, and what is missing.")
    ] = False,
    out: Annotated[
        Path | None,
        Option(metavar="DIR", help="Folder [default: reproduced/PROFILE in ART_E_HOME]."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Reproduce the talk: mail, questions, baselines, training, test, report.

    Run the same command again, also after a kill, to do what is missing; nothing is paid twice. The
    profile talk asks hosted models and needs a GPU: try --dry-run first."""
    load_env()
    chosen = load_toml(Profile, "profile", profile, changes or ())
    folder = (out or home() / "reproduced" / chosen.name).resolve()
    stages = STAGES[: STAGES.index(until) + 1]
    chain = [each for each in steps(chosen, folder) if each.stage in stages]
    left = [each for each in chain if not each.is_done(folder)]
    missing = _missing(chosen, left)
    paths = (str(folder / name) if until == "report" else None for name in (REPORT, FIGURES))
    report, figures = paths
    if dry_run:
        _show(chosen, folder, chain, left, missing, report, as_json)
        return
    if missing:
        raise UserError(f"{'; '.join(missing)}. --until STAGE stops before they are needed")
    (folder / STAMPS).mkdir(parents=True, exist_ok=True)
    with locked(folder / ".lock", f"another process works on {folder}; give another --out"):
        for step in steps(chosen, folder):
            if step.stage not in stages:
                break
            if not step.is_done(folder):
                step.do(folder)
        if report:
            names = [each.name for each in steps(chosen, folder) if each.makes_run]
            write_report(chosen, names, folder)
    if as_json:
        print_json({"out": str(folder), "until": until, "report": report, "figures": figures})
    else:
        print_line(f"report: {report}" if report else f"done up to {until}, in {folder}")


def _missing(profile: Profile, left: list[Command]) -> list[str]:
    grpo, judging, reasons = profile.training.grpo, profile.training.judging, set[str]()
    stages, options = {each.stage for each in left}, ("-m", "--model", "--judge")
    names = {judging.reward, judging.validation} if "grpo" in stages else set[str]()
    for words in (each.words for each in left):
        names |= {name for flag, name in pairwise(words) if flag in options}
    for model in map(Model, filter(needs_model, names)):
        try:
            if model.host is not None:
                model.policy()
                reasons |= {each for each in [ending(model.name)] if each and " ended " in each}
        except UserError as error:
            reasons.add(str(error))
    try:
        if stages & {"sft", "grpo", "evaluation"}:
            require_train_extra()
            if grpo and grpo.vllm and best_device()[0] != "cuda":
                reasons.add(f"training {profile.recipe} needs an NVIDIA GPU, and there is none")
    except UserError as error:
        reasons.add(str(error))
    return sorted(reasons)


def _show(
    profile: Profile, folder: Path, chain: list[Command], left: list[Command],
    missing: list[str], report: str | None, as_json: bool,
) -> None:  # fmt: skip
    training = plan(profile.training, profile.gpu) if profile.gpu else None
    if as_json:
        rows = [{**each._asdict(), "command": each.line, "left": each in left} for each in chain]
        print_json({"steps": rows, "plan": training and asdict(training), "missing": missing})
        return
    print_line(f"# in {folder}:")
    for command in chain:
        line = command.line.replace(" synthetic:", " \\\nsynthetic:")  # nano has 14 sources
        print_lines(*(line if command in left else f"{line}  # done").splitlines())
    if training is not None:
        usd = f"${rough(training.gpu_usd)}, {', '.join(map(fee_line, training.judges))}"
        print_lines(f"training on {training.gpu}: {rough(training.hours['total'])} h, {usd}")
        print_lines(*(f"it does not fit: {fault}" for fault in training.faults))
    print_lines(*(f"missing: {reason}" for reason in missing))
    if report:
        print_line(f"the best seed is evaluated (the first, until all are trained); last: {report}")


# ---- The report: all runs on one page, the test over seeds, and the talk's figures.

# Prompted models are compared with the published ones of the same name, our trained checkpoint and
# its start with the talk's Qwen2.5-14B, trained and untrained.

REPORT, FIGURES, PICTURE = "report.html", "figures.json", "seeds.png"
WAYS = ("sampled", "greedy")
MEASURES = (*HEADLINE, "turns", "effort")  # figures over seeds, by their names in metrics.json


def episodes_of_test(folder: Path, seed: int = 0) -> dict[str, list[Scored]]:
    """Return a run's test episodes as the judge of validations decides; `seed` is their repeat.
    Raises `UserError` if the file is unreadable or incomplete."""
    path = folder / EPISODES
    episodes: dict[str, list[Scored]] = {way: [] for way in WAYS}
    try:
        for trajectory in read_trajectories(path):
            way = "sampled" if trajectory.policy["temperature"] > 0 else "greedy"
            scored = Scored(Question.from_row(trajectory.question or {}), trajectory)
            decided = with_second_judge(scored)
            episodes[way].append(Scored(decided.question, replace(decided.trajectory, repeat=seed)))
        if not all(episodes.values()):
            raise ValueError("not all of the test is there")
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{path} can't be read ({error}); repeat the run") from None
    return episodes


def over_seeds(starts: Sequence[Path], ends: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """Return "start", "trained" and "gain" over all seeds, for each of the `WAYS` of sampling."""
    pooled: dict[str, dict[str, Any]] = {way: {} for way in WAYS}
    for way, sides in pooled.items():
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
    return pooled


def _seeds(pooled: Mapping[str, Any], seeds: int, charts: Sequence[CurveChart]) -> Section:
    lead = (
        f"{seeds} seeds, tested on questions that no run was trained or chosen on. 95 % intervals"
        " over questions, clustered by inbox. Gains are paired by question."
    )
    parts = []
    for way, sides in pooled.items():
        rows = []
        for column in map(COLUMNS.__getitem__, MEASURES):
            forms = {"gain": column.difference or column.form}
            cells = (forms.get(n, column.form)(side[column.figure]) for n, side in sides.items())
            rows.append(Row(column.heading, list(cells)))
        parts.append(Table(["", *map(str.capitalize, sides)], rows, way.capitalize()))
    return Section("seeds", "Over seeds", [lead], parts, charts)


def _controls(figures: Mapping[str, Mapping[str, Any]]) -> Section:
    lead = (
        f"The chosen seed: cool is its start at temperature {COOL}. Swapped questions are asked in"
        " an inbox without their names: all are unanswerable. Sampling is greedy."
    )
    columns = [COLUMNS[name] for name in HEADLINE]
    rows = [Row(name, [each.cell(its) for each in columns]) for name, its in figures.items()]
    table = Table(["", *(each.heading for each in columns)], rows)
    return Section("controls", "Controls", [lead], [table])


def write_report(profile: Profile, names: Sequence[str], folder: Path) -> None:
    """Write `report.html`, `plots/`, `seeds.png` and `figures.json` about the runs `names`. Raises
    `UserError` if a run can't be read."""
    runs = {
        kind: [Run(folder / name) for name in names if name.startswith(f"{kind}-")]
        for kind in ("baseline", "sft", "grpo", "start", "trained", "cool", "swapped")
    }
    starts, ends = ([run.folder for run in runs[kind]] for kind in ("sft", "grpo"))
    compared = [*runs["baseline"], *runs["start"], *runs["trained"]]
    *baselines, start, trained = measure(compared)
    hours = sum(float(run.metrics["seconds"]) for run in (*runs["sft"], *runs["grpo"])) / 3600
    lines = list(talk_figures(profile, trained, start, baselines, hours))
    pooled = over_seeds(starts, ends)
    # Validations over seeds, with the baselines on the test's questions.
    charts = [
        replace(chart, name=chart.name.replace("validation", "seeds"))
        for chart in validation_charts(read_training(runs["grpo"]), baselines)
    ]
    others = [*runs["cool"], *runs["swapped"]]
    controls = {
        run.id: {name: entry.figures[name] for name in HEADLINE}
        for run, entry in zip(others, measure(others), strict=True)
    }
    last = _last_page(profile, lines, len(trained.scored))
    middle = [_controls(controls)] if controls else []
    sections = [_seeds(pooled, len(ends), charts), *middle, last]
    best = folder / runs["trained"][0].id.replace("trained", "grpo")
    build_report([*compared, Run(best)], folder, sections, published=bool(profile.preset))
    write_picture(folder / PICTURE, charts)
    keys = ("figure", "published", "ours", "of")
    cells = ([row.label, *(cell.line for cell in row.cells)] for row in lines)
    rows = [dict(zip(keys, each, strict=True)) for each in cells]
    figures = {"profile": profile.name, "published_against_ours": rows, "over_seeds": pooled}
    figures["controls"] = controls
    Run(folder).write_json(FIGURES, figures)


def talk_figures(
    profile: Profile, trained: Entry, start: Entry, baselines: Sequence[Entry], hours: float
) -> Iterator[Row]:
    """Yield the talk's figures next to ours; training took `hours`."""
    by_name = {each.model: each for each in baselines}
    ours = {each.model: by_name.get(each.name or "") for each in PUBLISHED}
    ours |= {tables.TRAINED.model: trained, tables.UNTRAINED.model: start}
    for name in ("accuracy", "latency_p50_s", "cost_per_1000_usd"):
        for entry in PUBLISHED:
            model, usd = ours[entry.model], entry.cost_per_1000_usd
            value = f"${usd}" if name.startswith("cost") else f"{entry.seconds} s"
            if name == "accuracy":
                value = percent(tables.accuracy(entry)).line
            if name == "accuracy" or usd:
                cell = Cell(NONE) if model is None else COLUMNS[name].cell(model.figures)
                label = "not asked" if model is None else model.label
                yield _row(f"{COLUMNS[name].heading}: {entry.model}", value, cell, label)
    o3 = by_name.get(str(tables.O3.name)) or max(
        baselines, key=lambda each: each.figures["accuracy"]["value"] or 0.0
    )
    from_o3, from_start = (compare(each.scored, trained.scored) for each in (o3, start))
    to_o3, to_start = (f"{trained.label} against {each.label}" for each in (o3, start))
    gained = tables.points(from_start["figures"]["accuracy"]["difference"])
    promised = f"{100 * (tables.TRAINED.accuracy - tables.UNTRAINED.accuracy):.0f} pts"
    yield _row("Accuracy gained by training", promised, gained, to_start)
    fewer = Cell(tables.fewer_errors(from_o3["net_reduction"], o3.label))
    yield _row("Net reduction of o3's errors", f"{tables.NET_REDUCTION:.0%}", fewer, to_o3)
    turns = tables.number(from_o3["figures"]["turns"]["difference"])
    yield _row("Turns, compared with o3", "almost one fewer", turns, to_o3)
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
        f"Ours: {profile.training.model.base or 'a new Qwen2'}, trained by the recipe"
        f" {profile.recipe}, and asked {questions:,} held-out questions"
        f" {f'as in {profile.preset}' if profile.preset else 'greedily'}; judged by"
        f" {profile.judges[0]}. Sampled answers, over all seeds, are above. On mail other than the"
        " talk's, compare the direction of change, not the level."
    )
    table = Table(["Figure of the talk", "Published", "Ours", "Our model"], rows)
    texts = [tables.SOURCE, ours]
    return Section("published", "Published against ours", texts, [table], apart=True)
