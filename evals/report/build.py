"""Write the report of runs: a self-contained `report.html`, and its charts as PNG.

    art-e eval report RUN...

A Content-Security-Policy allows only the page's own scripts, by their hashes. Untrusted text (mail,
models, file names) is escaped by Jinja, or embedded as gzip in base64."""

import base64
import datetime as dt
import gzip
import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from art_e import __version__
from art_e.errors import UserError
from art_e.message import compact_json
from art_e.publish import public_name
from art_e.runs import Run
from art_e.storage import write_whole
from art_e.text import visible
from art_e.trajectory import Exchange, exchanges
from evals.hacking import detect
from evals.metrics import STEPS, compare, ending_of
from evals.report import tables
from evals.report.charts import Chart, svg, write_png
from evals.report.tables import NONE, Entry, Table, differences, measure, run_names, summary
from evals.report.training import TrainingRows, read_training, step_charts, validation_charts
from evals.scored import Scored
from evals.statistics import holm


class Section(NamedTuple):
    """A part of the page that the caller adds. `name` is its anchor; `lead` has the lines below the
    title; `apart` starts a new page in print."""

    name: str
    title: str
    lead: Sequence[str]
    tables: Sequence[Table] = ()
    charts: Sequence[Chart] = ()
    apart: bool = False


class Pairing(NamedTuple):
    """A comparison of two models: a table of differences, flipped questions, and both labels."""

    table: Table
    flipped: list[dict[str, Any]]
    labels: dict[str, str]


def pairings(entries: Sequence[Entry]) -> list[Pairing]:
    """Compare every two models that share questions, the later against the earlier."""
    comparisons = []
    for a, b in itertools.combinations(entries, 2):
        with suppress(UserError):  # no question in common, or several rollouts of one
            comparisons.append((a, b, compare(a.scored, b.scored)))
    pairs = []
    corrected = holm([each["p"] for *_, each in comparisons])
    for (a, b, compared), p in zip(comparisons, corrected, strict=True):
        headings = ["Figure", a.label, b.label, "Difference"]
        rows, notes = differences(compared["figures"]), summary(compared, a.label, b.label, p)
        table = Table(headings, rows, f"{b.label} against {a.label}", notes)
        pairs.append(Pairing(table, compared["flipped"], {"a": a.label, "b": b.label}))
    return pairs


# ---- The data of the page's episode viewer: the turns of each trajectory.

TEXT_CHARS = 100_000  # longer texts are cut, so that a huge mail does not make a huge page
# Control characters, unusual line ends, and lone surrogates.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def make_visible(text: str) -> str:
    """Replace invisible and direction-changing characters by "[U+202E]" and the like, and cut a
    long text. The result can be encoded, and "\\n" is its only line end."""
    left = len(text) - TEXT_CHARS
    if left > 0:
        text = f"{text[:TEXT_CHARS]}\n[cut here: {left:,} more characters in trajectories.jsonl]"
    text = visible(text.replace("\r\n", "\n"), _code_point)
    return _CONTROLS.sub(lambda match: _code_point(match[0]), text)


def _code_point(character: str) -> str:
    return f"[U+{ord(character):04X}]"


def page_json(value: Any) -> Any:
    """Return a JSON value with visible texts, and NaN and infinities as text."""
    if isinstance(value, str):
        return make_visible(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {make_visible(str(key)): page_json(each) for key, each in value.items()}
    return [page_json(each) for each in value] if isinstance(value, list | tuple) else value


class _Shared(dict[str, int]):
    """Numbers the JSON values that several episodes share, such as mails, to store them once."""

    def add(self, value: Any) -> int:
        return self.setdefault(compact_json(value), len(self))

    def rows(self) -> list[Any]:
        return list(map(json.loads, self))


def _turn(exchange: Exchange, handles: Mapping[str, str], shared: _Shared) -> dict[str, Any]:
    """Return a turn of the model: `{"says", "calls", "notes"}`. A call is `{"tool", "arguments",
    "results"}`; arguments are strings, lists of strings or None, or one text if they are not a JSON
    object. Results and notes are `{"hits"}`, `{"mail", "handle"}`, `{"error"}`, `{"note"}` or
    `{"text"}`. Texts, mails and heads are numbers in `shared`; handles become message ids."""

    def parts(results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        return [part for each in results for part in _result(each, handles, shared)]

    says = shared.add(exchange.says) if exchange.says else None
    calls = [
        {"tool": call.tool, "arguments": _arguments(call.arguments), "results": parts(call.results)}
        for call in exchange.calls
    ]
    return {"says": says, "calls": calls, "notes": parts(exchange.replies)}


def _arguments(value: Any, depth: int = 0) -> Any:
    """Keep strings, lists of strings and None as arguments; other values become JSON."""
    if isinstance(value, dict) and depth == 0:
        return {name: _arguments(each, 1) for name, each in value.items()}
    if isinstance(value, list) and depth == 1:
        return [_arguments(each, 2) for each in value]
    return value if value is None or isinstance(value, str) else compact_json(value)


def _result(
    result: Mapping[str, Any], handles: Mapping[str, str], shared: _Shared
) -> Iterator[dict[str, Any]]:
    if isinstance(hits := result.get("hits"), list):
        rows = [
            {
                "handle": _text(hit.get("message_id")), "head": shared.add(_head(hit, handles)),
                "snippet": shared.add(_text(hit.get("snippet", hit.get("body")))),
                "missing": hit.get("missing"), "whole": "body" in hit,
            }
            for hit in hits if isinstance(hit, dict)
        ]  # fmt: skip
        yield {"hits": rows}
    if "body" in result:
        parts = {name: result[name] for name in ("to", "cc", "bcc") if name in result}
        mail = {**_head(result, handles), **parts, "body": _text(result["body"])}
        yield {"mail": shared.add(mail), "handle": _text(result.get("message_id"))}
    for name in ("error", "note", "text"):
        if name in result:
            yield {name: shared.add(_text(result[name]))}
    if "shown" in result:
        handle = _text(result.get("message_id"))
        yield {"note": shared.add(f"{handle} is shown {_text(result['shown'])}")}


def _head(mail: Mapping[str, Any], handles: Mapping[str, str]) -> dict[str, str]:
    handle = _text(mail.get("message_id"))
    fields = {name: _text(mail.get(name)) for name in ("date", "from", "subject")}
    return {"id": handles.get(handle, handle), **fields}


def _text(value: Any) -> str:
    return "" if value is None else str(value)


# Ends of the funnel without an answer that could be right or wrong.
_UNDECIDED = {"out_of_turns": "out of turns", "lost_to_format": "lost"}
_UNDECIDED |= {"failed": "failed", "unjudged": "unjudged"}
# The outcomes of episodes, in the order of the page's filter.
OUTCOMES = ("right", "wrong", "abstained", *_UNDECIDED.values())


def viewer_data(scored: Sequence[Scored]) -> dict[str, Any]:
    """Return the page's episodes as JSON; they refer to rows of "questions" and "shared"."""
    shared, questions = _Shared(), _Shared()
    rows = [(questions.add(each.question.to_row()), _episode(each, shared)) for each in scored]
    episodes = [{"question": number, **fields} for number, fields in rows]
    data = {
        "outcomes": OUTCOMES, "wheres": [each.replace("_", " ") for each in STEPS],
        "questions": questions.rows(), "shared": shared.rows(), "episodes": episodes,
    }  # fmt: skip
    return {name: page_json(value) for name, value in data.items()}


def outcome(scored: Scored) -> str:
    """Return one of `OUTCOMES`; a right abstention counts as right."""
    decided = "right" if scored.correct else "wrong" if scored.wrong else "abstained"
    return _UNDECIDED.get(ending_of(scored), decided)


def _episode(scored: Scored, shared: _Shared) -> dict[str, Any]:
    trajectory = scored.trajectory
    reward = trajectory.reward or {}
    # The prompts: messages before the model's first.
    first = itertools.takewhile(lambda each: each.get("role") != "assistant", trajectory.messages)
    opening = {str(each.get("role")): str(each.get("content") or "") for each in first}
    turns = [_turn(each, trajectory.handles, shared) for each in exchanges(trajectory.messages)]
    names = ("model", "repeat", "sources", "error", "call_seconds", "policy", "usage", "seconds")
    return {
        **{name: getattr(trajectory, name) for name in (*names, "retries")},
        "id": trajectory.episode_id, "run": trajectory.run_id,
        "step": _finite(trajectory.policy.get("step")),
        "outcome": outcome(scored), "where": ending_of(scored).replace("_", " "),
        "reward": _finite(reward.get("total")), "components": reward.get("components") or {},
        "answer": trajectory.final_answer, "abstained": bool(trajectory.rubric.get("abstained")),
        "gold": _gold(scored), "verdicts": scored.verdicts, "turns": turns,
        "system": shared.add(opening.get("system", "")),
        "asked": shared.add(opening.get("user", "")),
        "facts": trajectory.rubric, "cost": _finite(trajectory.cost_usd),
        "started": trajectory.started_at,
    }  # fmt: skip


def _gold(scored: Scored) -> list[dict[str, Any]]:
    """Return whether each gold mail of an answerable question was found, read and cited. The rubric
    comes first, because the inbox may show another copy of the mail, with another id."""
    if scored.question.answerable is False:
        return []
    facts, trajectory = scored.trajectory.rubric, scored.trajectory
    hits = {name for each in trajectory.events for name in each.get("found", ())}
    return [
        {
            "id": gold, "found": bool(facts.get("found_gold")) or gold in hits,
            "read": bool(facts.get("read_gold")) or gold in trajectory.mails_read,
            "cited": bool(facts.get("sources_correct")) or gold in trajectory.sources,
        }
        for gold in scored.question.message_ids
    ]  # fmt: skip


def _finite(value: Any) -> float | None:
    return value if isinstance(value, int | float) and math.isfinite(value) else None


# ---- The page and its charts.


def build_report(
    runs: Sequence[Run], out: Path, sections: Sequence[Section] = (), *, published: bool = False
) -> list[Path]:
    """Write `report.html`, `table.md` and `plots` of the runs into `out`, without deleting other
    plots; return the page and the PNGs. `sections` are added to the end of the page; `published`
    adds the published models to the charts. Raises `UserError` for a run without an episode."""
    entries, trained = measure(runs), read_training(runs)
    untrained = [each for each in entries if each.run.folder not in {run.folder for run in trained}]
    models = tables.PUBLISHED if published else ()
    charts: dict[str, Sequence[Chart]] = {
        "first": tables.first_charts(entries, models),
        "charts": tables.comparison_charts(entries, models),
        "held_out": validation_charts(trained, untrained),
        "stepwise": step_charts(trained),
    }
    plots = out / "plots"
    plots.mkdir(parents=True, exist_ok=True)
    written = []
    for chart in itertools.chain(*charts.values(), *(each.charts for each in sections)):
        written.append(plots / f"{chart.name}.png")
        written[-1].unlink(missing_ok=True)  # don't follow a symlink in the run's folder
        write_png(chart.draw(titled=True), written[-1])
    by_run = {run: list(group) for run, group in itertools.groupby(entries, lambda each: each.run)}
    names = run_names(by_run)
    facts = [_run_facts(run, names[run], of_run) for run, of_run in by_run.items()]
    page = out / "report.html"
    # "replace", because a mail or a model may contain a lone surrogate.
    write_whole(page, _page(entries, facts, charts, trained, sections), errors="replace")
    write_whole(out / "table.md", _markdown(entries, facts), errors="replace")
    return [page, *written]


def _markdown(entries: Sequence[Entry], runs: Sequence[Mapping[str, Any]]) -> str:
    headings, all_rows, *_ = tables.headline(entries)
    rows = [[row.label, *(cell.line for cell in row.cells)] for row in all_rows[: len(entries)]]
    rows = [headings, ["---", *["---:"] * (len(headings) - 1)], *rows]
    cells = ([make_visible(cell).replace("|", "/") for cell in row] for row in rows)
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return "\n".join([*lines, "", *dict.fromkeys(make_visible(run["basis"]) for run in runs), ""])


def _page(
    entries: Sequence[Entry], runs: Sequence[Mapping[str, Any]],
    charts: Mapping[str, Sequence[Chart]], trained: Sequence[TrainingRows],
    sections: Sequence[Section],
) -> str:  # fmt: skip
    scored = [episode for each in entries for episode in each.episodes]
    models = list(dict.fromkeys(each.model for each in entries))
    viewer = "\n".join(map(_file, ("links.js", "finding.js", "conversation.js", "viewer.js")))
    scripts = [_file("page.js"), f'(() => {{\n"use strict";\n{viewer}}})();\n']
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, loader=FunctionLoader(_file), trim_blocks=True
    )
    # A lone surrogate of an episode's id becomes "?".
    environment.filters["urlencode"] = partial(quote, safe="", errors="replace")
    environment.filters["svg"] = svg
    # Mails repeat each other, so compression reduces a real page to a third of its size.
    data = gzip.compress(json.dumps(viewer_data(scored), separators=(",", ":")).encode(), mtime=0)
    return environment.get_template("page.html.j2").render(
        title=" against ".join(models) if len(models) < 4 else f"{len(models)} models compared",
        made_at=f"{dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M} UTC", version=__version__,
        policy=content_security_policy(scripts), scripts=[Markup(each) for each in scripts],
        styles=[Markup(_file(each)) for each in ("page.css", "viewer.css")],
        runs=runs, entries=entries, sections=sections, **charts,
        tables=tables, pairings=pairings(entries), alarms=detect(scored),
        raised=[each for each in trained if each.alarms],
        viewer_data=base64.b64encode(data).decode(),
    )  # fmt: skip


def content_security_policy(scripts: Sequence[str]) -> str:
    """Return a policy that allows these inline scripts only, and no requests."""
    hashes = [base64.b64encode(hashlib.sha256(each.encode()).digest()) for each in scripts]
    allowed = " ".join(f"'sha256-{each.decode()}'" for each in hashes)
    inline = f"script-src {allowed}; style-src 'unsafe-inline'"
    return f"default-src 'none'; {inline}; base-uri 'none'; form-action 'none'"


_FOLDERS = re.compile(r"(?<![\w.~/-])~?/[^\s'\"]+")


def _run_facts(run: Run, name: str, entries: Sequence[Entry]) -> dict[str, Any]:
    config, scored = run.config, [episode for each in entries for episode in each.episodes]
    split = f", split {config['split']}" if config.get("split") else ""
    questions = len({each.question.id for each in scored})
    source = config.get("questions", "the run")
    judge = ", ".join(dict.fromkeys(name for each in entries for name in each.judges)) or NONE
    on = f"{public_name(str(source))}{split}"
    models = run.metrics.get("models", {}) if (run.folder / "metrics.json").exists() else {}
    preset = [config["preset"], *config["differences"]] if config.get("preset") else []
    # Hide the folders of the user's machine.
    command = re.sub(_FOLDERS, lambda path: public_name(path[0]), config.get("command") or "")
    counts = {model: figures.get("not_asked") for model, figures in models.items()}
    return {
        "id": name, "complete": run.complete, "command": command,
        "basis": f"n = {questions:,} questions of {on}, judged by"
        f" {judge.replace(', ', '; also by ', 1)}; in brackets 95 %"
        f" intervals{tables.scopes(entries)}",
        "facts": {
            "Models": ", ".join(each.model for each in entries),
            "Prompt": ", ".join(dict.fromkeys(each.prompt for each in scored)),
            "Started": str(config.get("started_at", NONE)), "Questions": f"{questions:,} of {on}",
            "Episodes": f"{sum(each.measured for each in scored):,}", "Judge": judge,
            "Preset": "; not as published: ".join(preset) or NONE,
            "Not asked": "; ".join(f"{model}: {n:,}" for model, n in counts.items() if n) or NONE,
            "Commit": (config.get("commit") or NONE)[:12],
        },
    }  # fmt: skip


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
