"""The report of runs: `report.html`, which needs nothing beside it, and its charts as PNGs.

    art-e eval report RUN...

The page takes no script but its own: a Content-Security-Policy in it names each by its
hash. What others wrote (mail, models, file names) gets in through Jinja's escaping, or as
JSON in which no tag can begin.
"""

import base64
import datetime as dt
import hashlib
import itertools
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from art_e import __version__
from art_e.errors import UserError
from art_e.runs import Run
from art_e.storage import write_whole
from evals.benchmark import kept_by
from evals.hacking import detect
from evals.judges import option_of
from evals.paired import compare
from evals.report import tables
from evals.report.charts import Chart, CurveChart, svg, write_png
from evals.report.entries import Entry, Measured, measure, prompt_name, run_names
from evals.report.tables import (
    NONE,
    SOURCE,
    Cell,
    Row,
    Table,
    milliseconds,
    number,
    percent,
    plain_seconds,
    points,
    seconds,
    usd,
)
from evals.report.training import TrainingRows, read_training, step_charts, validation_charts
from evals.report.viewer import viewer_data, viewer_parts
from evals.statistics import Estimate

# ---- A part of the report that whoever builds it brings along: tables, charts and lines of text.


class Captioned(NamedTuple):
    """A table with its heading, and what is said below it."""

    heading: str
    table: Table
    notes: Sequence[str] = ()


class Section(NamedTuple):
    """A part of the page. `name` is its anchor and begins the names of no other chart; `lead`
    stands under the title; a section that is `apart` begins a new page where it is printed."""

    name: str
    title: str
    lead: Sequence[str]
    tables: Sequence[Captioned] = ()
    charts: Sequence[Chart] = ()
    apart: bool = False


# ---- The command that made a run, read from its `config.json`.

# Options of `art-e eval run` that take one value, by their names in the configuration.
_OPTIONS = {
    "questions": "--questions",
    "split": "--split",
    "limit": "--limit",
    "repeat": "--repeat",
    "recipe": "--recipe",
    "max_turns": "--max-turns",
    "reasoning_effort": "--reasoning-effort",
    "temperature": "--temperature",
    "max_cost_usd": "--max-cost",
    "tool_calls": "--tool-calls",
    "gpu_usd_per_hour": "--gpu-usd-per-hour",
    "gpus": "--gpus",
    "db": "--db",
}


def command(config: dict[str, Any]) -> str | None:
    """The `art-e eval run` of that configuration, fit for a shell; None for other runs."""
    if not {"models", "questions", "judges"} <= config.keys():
        return None
    words = ["art-e", "eval", "run"]
    for model in config["models"]:
        words += ["-m", model]
    for judge in config["judges"]:
        words += ["--judge", option_of(judge)]
    said = set()
    if (recipe := config.get("recipe")) is not None:
        said = {"max_turns"}  # the recipe's
        if config["questions"] == kept_by(recipe, config.get("split")):
            said |= {"questions", "db"}  # what is asked where none of these is given
    for name, option in _OPTIONS.items():
        if config.get(name) is not None and name not in said:
            words += [option, str(config[name])]
    if path := (config.get("prompt") or {}).get("path"):  # else the package's own
        words += ["--prompt", path]
    at_once = set((config.get("concurrency") or {}).values())
    if len(at_once) == 1:  # else each model had its own default
        words += ["--concurrency", str(at_once.pop())]
    return shlex.join([*words, "--cache"] if config.get("cache") else words)


# ---- Two models side by side: what sets them apart, and the questions that flipped.


class Flip(NamedTuple):
    """A question that one of two models has right; `fragment` is where the viewer shows both."""

    question: str
    right: str
    fragment: str


class Pairing(NamedTuple):
    """Two models side by side: a table of differences, a summary, the questions that flipped."""

    title: str
    table: Table
    summary: list[str]
    flips: list[Flip]


def pairings(measured: Sequence[Measured]) -> list[Pairing]:
    """Every two models that were asked the same questions, the later against the earlier."""
    entries = [(entry, each.timed) for each in measured for entry in each.entries]
    made = []
    for place, (b, b_timed) in enumerate(entries):
        for a, a_timed in entries[:place]:
            try:
                made.append(_pairing(a, b, timed=a_timed and b_timed))
            except UserError:
                continue  # they have no question in common, or several rollouts of one
    return made


class _Difference(NamedTuple):
    """A figure's heading, how a side of it is written, how a difference."""

    heading: str
    side: Callable[[Estimate], Cell]
    difference: Callable[[Estimate], Cell]


_DIFFERENCES = {
    "accuracy": _Difference("Accuracy", percent, points),
    "unanswerable_accuracy": _Difference("Right to abstain", percent, points),
    "hallucination": _Difference("Hallucination", percent, points),
    "abstention": _Difference("Abstention", percent, points),
    "turns": _Difference("Turns", number, number),
    "effort": _Difference("Effort", number, number),
    "cost_per_1000_usd": _Difference("Cost per 1,000", usd, usd),
    "latency_mean_s": _Difference("Latency, mean", seconds, plain_seconds),
}


def differences(figures: Mapping[str, Any]) -> list[Row]:
    """A row for each figure of `evals.paired.compare`: A, B, and B - A with its sign."""
    rows = []
    for name, figure in figures.items():
        written = _DIFFERENCES[name]
        sides = [written.side(_bare(figure[side])) for side in ("a", "b")]
        # A difference of milliseconds is shown as such.
        few = all(cell.value.endswith(" ms") for cell in sides)
        difference = (milliseconds if few else written.difference)(figure["difference"])
        rows.append(Row(written.heading, [*sides, _signed(difference)]))
    return rows


def _pairing(a: Entry, b: Entry, *, timed: bool) -> Pairing:
    compared = compare(a.scored, b.scored, timed=timed)
    mended, broken = (percent(compared[name]) for name in ("mended", "broken"))
    left_out = sum(compared["left_out"].values())
    summary = [
        f"McNemar's exact p = {compared['p']:.3g}: {compared['only_a']} questions right only in"
        f" {a.label}, {compared['only_b']} only in {b.label}.",
        f"{b.label} mends {mended.line} of {a.label}'s errors; {a.label} has right"
        f" {broken.line} of {b.label}'s.",
    ]
    if compared["needed"] is not None:
        summary.append(
            f"To tell accuracies so far apart (80 % power, 5 % level) takes about"
            f" {compared['needed']:,} questions; {compared['n']:,} episodes were paired."
        )
    sources = [
        f"Cost of {each.label}: {each.figures['cost_source']}."
        for each in (a, b)
        if each.figures["throughput"] is not None
    ]
    if "cost_per_1000_usd" in compared["figures"]:
        summary += sources
    if left_out:
        summary.append(f"{left_out:,} episodes that only one of them has are left out.")
    flips = [_flip(flip, a, b) for flip in compared["flipped"]]
    return Pairing(
        f"{b.label} against {a.label}",
        Table(["Figure", a.label, b.label, "Difference"], differences(compared["figures"])),
        summary,
        flips,
    )


def _flip(flip: dict[str, Any], a: Entry, b: Entry) -> Flip:
    """The viewer knows an episode by its id, and the one beside it as "with"."""
    ids = [_episode_id(each, flip["question_id"], flip["repeat"]) for each in (a, b)]
    fragment = "episode={}&with={}".format(*(quote(each, safe="") for each in ids))
    return Flip(flip["question"], (a if flip["right"] == "a" else b).label, fragment)


def _episode_id(entry: Entry, question_id: str, repeat: int) -> str:
    return next(
        each.trajectory.episode_id
        for each in entry.scored
        if (each.question.id, each.trajectory.repeat) == (question_id, repeat)
    )


def _bare(value: float) -> Estimate:
    return Estimate(value=value, low=None, high=None, n=0, method=None)


def _signed(cell: Cell) -> Cell:
    return cell if cell.value.startswith(("-", NONE)) else cell._replace(value=f"+{cell.value}")


# ---- The report of runs: `report.html`, which needs nothing beside it, and its charts as PNGs.


def build_report(runs: Sequence[Run], out: Path, sections: Sequence[Section] = ()) -> list[Path]:
    """Write `report.html` and `plots/*.png` of the runs into the folder `out`; what was written.

    `sections` stand at the end of the page, in their order. Plots of an earlier report that this
    one lacks stay. Raises `UserError` where a run has no episode or can't be read.
    """
    measured = measure(runs)
    trained = read_training(runs)
    entries = [entry for each in measured for entry in each.entries]
    untrained = [each for each in entries if each.run.folder not in {one.folder for one in trained}]
    parts: dict[str, Sequence[Chart]] = {
        "charts": tables.comparison_charts(entries),
        "held_out": validation_charts(trained, untrained),
        "stepwise": step_charts(trained),
    }
    brought = [chart for each in sections for chart in each.charts]
    plots = out / "plots"
    plots.mkdir(parents=True, exist_ok=True)
    written = []
    for chart in itertools.chain(*parts.values(), brought):
        file = plots / f"{chart.name}.png"
        write_png(chart.draw(titled=True), file)
        written.append(file)
    figures = {part: [_figure(each) for each in chosen] for part, chosen in parts.items()}
    page = out / "report.html"
    # A lone surrogate that a mail or a model came with can't be written.
    write_whole(page, _page(measured, figures, trained, sections), errors="replace")
    return [page, *written]


def _figure(chart: Chart) -> dict[str, Any]:
    return {
        "over_steps": isinstance(chart, CurveChart),
        "title": chart.title,
        "note": chart.note,
        "svg": svg(chart.draw(titled=False), chart.name, chart.title),
    }


def _page(
    measured: Sequence[Measured],
    figures: Mapping[str, Sequence[dict[str, Any]]],
    trained: Sequence[TrainingRows],
    sections: Sequence[Section],
) -> str:
    entries = [entry for each in measured for entry in each.entries]
    scored = [episode for each in measured for episode in each.scored]
    names = run_names(each.run for each in measured)
    viewer = viewer_parts()
    scripts = [_file("page.js"), viewer.js]
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, loader=FunctionLoader(_file), trim_blocks=True
    )
    environment.filters["thousands"] = lambda count: f"{count:,}"
    return environment.get_template("page.html.j2").render(
        title=_title(measured),
        made_at=_minute(dt.datetime.now(dt.UTC)),
        version=__version__,
        policy=content_security_policy(scripts),
        styles=[Markup(_file("page.css")), Markup(viewer.css)],
        scripts=[Markup(each) for each in scripts],
        runs=[_run_facts(each, names[each.run]) for each in measured],
        headline=tables.headline(entries),
        sources=tables.details(entries, tables.SOURCES),
        tokens_and_time=tables.details(entries, tables.TOKENS_AND_TIME),
        throughput=tables.throughput(entries),
        cost_sources=tables.cost_sources(entries),
        judged=tables.judged(entries),
        labelled=tables.labelled(measured),
        funnel=tables.funnel(entries),
        kinds=tables.by_label(entries, "by_kind", "Kind"),
        difficulties=tables.by_label(entries, "by_difficulty", "Difficulty"),
        pairings=pairings(measured),
        alarms=detect(scored),
        raised=[each for each in trained if each.alarms],
        **figures,
        sections=[(each, [_figure(chart) for chart in each.charts]) for each in sections],
        methods=tables.methods([each.figures for each in entries]),
        published=SOURCE,
        viewer=Markup(viewer.html),
        viewer_data=Markup(script_json(viewer_data(scored))),
    )


def script_json(value: Any) -> str:
    """`value` as JSON that can stand in a `<script>`: it has no "<" and is plain ASCII."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


def content_security_policy(scripts: Sequence[str]) -> str:
    """The policy under which these inline scripts run and nothing else, nor is fetched."""
    hashes = [base64.b64encode(hashlib.sha256(each.encode()).digest()) for each in scripts]
    allowed = " ".join(f"'sha256-{each.decode()}'" for each in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline';"
        " base-uri 'none'; form-action 'none'"
    )


def _run_facts(measured: Measured, name: str) -> dict[str, Any]:
    config = measured.run.config
    questions = {each.question.id for each in measured.scored}
    return {
        "id": name,
        "complete": measured.run.complete,
        "command": command(config),
        "facts": {
            "Models": ", ".join(each.model for each in measured.entries),
            "Prompt": ", ".join(_prompts(measured)),
            "Started": _started(config),
            "Questions": f"{len(questions):,} of {config.get('questions', 'the run')}"
            + (f", split {config['split']}" if config.get("split") else ""),
            "Episodes": f"{len(measured.scored):,}",
            "Judge": ", ".join(measured.judges) or NONE,
            "At a time": _at_once(config.get("concurrency")),
            "Not asked": _not_asked(measured.run) or NONE,
            "Commit": (config.get("commit") or NONE)[:12],
        },
    }


def _not_asked(run: Run) -> str:
    """How many episodes a refused key or a limit on cost left out, of each model, and why."""
    known = (run.folder / "metrics.json").exists()
    models: dict[str, Any] = run.metrics.get("models", {}) if known else {}
    return "; ".join(
        f"{model}: {figures['not_asked']:,} ({figures['stopped']['message']})"
        for model, figures in models.items()
        if figures.get("not_asked")
    )


def _started(config: dict[str, Any]) -> str:
    """When the run began, to the minute in UTC; as the run tells it where that is no time."""
    told = str(config.get("started_at", NONE))
    try:
        return _minute(dt.datetime.fromisoformat(told).astimezone(dt.UTC))
    except (ValueError, OverflowError):
        return told


def _minute(moment: dt.datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M UTC")


def _prompts(measured: Measured) -> list[str]:
    """The prompts' hashes, with the name where the run tells one."""
    name = prompt_name(measured.run)
    hashes = [each.trajectory.policy.get("prompt_hash") for each in measured.scored]
    found = [str(each) for each in dict.fromkeys(hashes) if each]
    return [f"{name} ({each})" if name else each for each in found] or [NONE]


def _at_once(concurrency: dict[str, int] | None) -> str:
    """How many questions each model was asked at a time."""
    if not concurrency:
        return NONE
    if len(set(concurrency.values())) == 1:
        return str(next(iter(concurrency.values())))
    return ", ".join(f"{model} {number}" for model, number in concurrency.items())


def _title(measured: Sequence[Measured]) -> str:
    models = [entry.model for each in measured for entry in each.entries]
    shown = list(dict.fromkeys(models))
    return " against ".join(shown) if len(shown) < 4 else f"{len(shown)} models compared"


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
