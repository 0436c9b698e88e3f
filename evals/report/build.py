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
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from art_e import __version__
from art_e.files import write_whole
from art_e.runs import Run
from evals.hacking import detect
from evals.report import tables
from evals.report.cells import NONE
from evals.report.charts import Chart, CurveChart
from evals.report.command import command
from evals.report.drawing import svg, write_png
from evals.report.entries import Measured, measure, prompt_name, run_names
from evals.report.pairs import pairings
from evals.report.plots import charts
from evals.report.published import SOURCE
from evals.report.section import Section
from evals.report.training import Training, read_training, step_charts, validation_charts
from evals.report.viewer import viewer_data, viewer_parts


def build_report(runs: Sequence[Run], out: Path, sections: Sequence[Section] = ()) -> list[Path]:
    """Write `report.html` and `plots/*.png` of the runs into the folder `out`; what was written.

    `sections` stand at the end of the page, in their order. Plots of an earlier report that this
    one lacks stay. Raises `UserError` where a run has no episode or can't be read.
    """
    measured = measure(runs)
    trained = read_training(runs)
    drawn = charts([entry for each in measured for entry in each.entries])
    parts: dict[str, Sequence[Chart]] = {
        "charts": [each for each in drawn if not isinstance(each, CurveChart)],
        "held_out": validation_charts(trained),
        "stepwise": step_charts(trained),
        "curves": [each for each in drawn if isinstance(each, CurveChart)],
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
    trained: Sequence[Training],
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
