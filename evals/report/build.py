"""The report of runs: `report.html`, which needs nothing beside it, and its charts as PNG.

    art-e eval report RUN...

The page takes no script but its own: a Content-Security-Policy in it names each by its hash. What
others wrote (mail, models, file names) gets in through Jinja's escaping, or as gzip in base64."""

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
from evals.metrics import STEPS, compare, ended_at
from evals.report import tables
from evals.report.charts import Chart, svg, write_png
from evals.report.tables import NONE, Entry, Table, differences, measure, run_names, summary
from evals.report.training import TrainingRows, read_training, step_charts, validation_charts
from evals.scored import Scored
from evals.statistics import holm


class Section(NamedTuple):
    """A part of the page that the caller brings along. `name` is its anchor and begins the names of
    no other chart; `lead` stands under the title; one that is `apart` begins a new printed page."""

    name: str
    title: str
    lead: Sequence[str]
    tables: Sequence[Table] = ()
    charts: Sequence[Chart] = ()
    apart: bool = False


class Pairing(NamedTuple):
    """Two models side by side: a table of differences, flipped questions, and each side's label."""

    table: Table
    flipped: list[dict[str, Any]]
    labels: dict[str, str]


def pairings(entries: Sequence[Entry]) -> list[Pairing]:
    """Every two models that were asked the same questions, the later against the earlier."""
    found = []
    for a, b in itertools.combinations(entries, 2):
        with suppress(UserError):  # no question in common, or several rollouts of one
            found.append((a, b, compare(a.scored, b.scored)))
    pairs = []
    for (a, b, compared), p in zip(found, holm([each["p"] for *_, each in found]), strict=True):
        headings = ["Figure", a.label, b.label, "Difference"]
        rows, notes = differences(compared["figures"]), summary(compared, a.label, b.label, p)
        table = Table(headings, rows, f"{b.label} against {a.label}", notes)
        pairs.append(Pairing(table, compared["flipped"], {"a": a.label, "b": b.label}))
    return pairs


# ---- The data of the page's episode viewer: a trajectory's messages as turns that a page can draw.

KEPT_CHARS = 100_000  # of a text; more is cut: a mail of a gigabyte must not make such a page
# Controls, ends of lines that are none, and lone surrogates.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def marked(text: str) -> str:
    """`text` with "[U+202E]" for each character that hides or turns round what is read, cut if
    long. The result can be encoded and has no line ends but "\\n"."""
    left = len(text) - KEPT_CHARS
    if left > 0:
        text = f"{text[:KEPT_CHARS]}\n[cut here: {left:,} more characters in trajectories.jsonl]"
    text = visible(text.replace("\r\n", "\n"), _named)
    return _CONTROLS.sub(lambda found: _named(found[0]), text)


def _named(character: str) -> str:
    return f"[U+{ord(character):04X}]"


def plain(value: Any) -> Any:
    """`value`, which JSON gave, with texts made visible and numbers that JSON lacks as text."""
    if isinstance(value, str):
        return marked(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {marked(str(key)): plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


class _Shared(dict[str, int]):
    """The numbers of values that several episodes have, such as mails; each is kept once."""

    def add(self, value: Any) -> int:
        """The number of `value`, which JSON can hold."""
        return self.setdefault(compact_json(value), len(self))

    def rows(self) -> list[Any]:
        return list(map(json.loads, self))


def _turn(exchange: Exchange, handles: Mapping[str, str], shared: _Shared) -> dict[str, Any]:
    """A turn of the model: `{"says", "calls", "notes"}`. A call is `{"tool", "arguments",
    "results"}`; arguments are strings, lists of strings or None, or one text if they are not a JSON
    object. Results and notes are `{"hits"}`, `{"mail", "handle"}`, `{"error"}`, `{"note"}` or
    `{"text"}`. Texts, mails, heads are numbers of shared values, with message ids for handles."""

    def shown(results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        return [part for each in results for part in _result(each, handles, shared)]

    says = shared.add(exchange.says) if exchange.says else None
    calls = [
        {"tool": each.tool, "arguments": _words(each.arguments), "results": shown(each.results)}
        for each in exchange.calls
    ]
    return {"says": says, "calls": calls, "notes": shown(exchange.replies)}


def _words(value: Any, depth: int = 0) -> Any:
    """Arguments with strings, lists of strings and None in them; other values become JSON."""
    if isinstance(value, dict) and depth == 0:
        return {name: _words(each, 1) for name, each in value.items()}
    if isinstance(value, list) and depth == 1:
        return [_words(each, 2) for each in value]
    return value if value is None or isinstance(value, str) else compact_json(value)


def _result(
    result: Mapping[str, Any], handles: Mapping[str, str], shared: _Shared
) -> Iterator[dict[str, Any]]:
    if isinstance(hits := result.get("hits"), list):
        shown = [
            {
                "handle": _text(each.get("message_id")), "head": shared.add(_head(each, handles)),
                "snippet": shared.add(_text(each.get("snippet", each.get("body")))),
                "missing": each.get("missing"), "whole": "body" in each,
            }
            for each in hits if isinstance(each, dict)
        ]  # fmt: skip
        yield {"hits": shown}
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


# The ends, as the funnel names them, that leave nothing to be right or wrong.
_UNDECIDED = {"out_of_turns": "out of turns", "lost_to_format": "lost"}
_UNDECIDED |= {"failed": "failed", "unjudged": "unjudged"}
# Each is a way for an episode to end, in the order in which the page offers them.
OUTCOMES = ("right", "wrong", "abstained", *_UNDECIDED.values())


def viewer_data(scored: Sequence[Scored]) -> dict[str, Any]:
    """The episodes for the page as JSON can hold them, with rows of "questions" and "shared"."""
    shared, questions = _Shared(), _Shared()
    episodes = [
        {"question": questions.add(each.question.to_row()), **_episode(each, shared)}
        for each in scored
    ]
    data = {
        "outcomes": OUTCOMES, "wheres": [each.replace("_", " ") for each in STEPS],
        "questions": questions.rows(), "shared": shared.rows(), "episodes": episodes,
    }  # fmt: skip
    return {name: plain(value) for name, value in data.items()}


def outcome(scored: Scored) -> str:
    """How an episode ended, one of `OUTCOMES`; an abstention that is right counts as right."""
    decided = "right" if scored.correct else "wrong" if scored.wrong else "abstained"
    return _UNDECIDED.get(ended_at(scored), decided)


def _episode(scored: Scored, shared: _Shared) -> dict[str, Any]:
    trajectory = scored.trajectory
    reward = trajectory.reward or {}
    # The prompts that stand before the model's first message.
    first = itertools.takewhile(lambda each: each.get("role") != "assistant", trajectory.messages)
    opening = {str(each.get("role")): str(each.get("content") or "") for each in first}
    turns = [_turn(each, trajectory.handles, shared) for each in exchanges(trajectory.messages)]
    names = ("model", "repeat", "sources", "error", "call_seconds", "policy", "usage", "seconds")
    return {
        **{name: getattr(trajectory, name) for name in (*names, "retries")},
        "id": trajectory.episode_id, "run": trajectory.run_id,
        "step": _finite(trajectory.policy.get("step")),
        "outcome": outcome(scored), "where": ended_at(scored).replace("_", " "),
        "reward": _finite(reward.get("total")), "components": reward.get("components") or {},
        "answer": trajectory.final_answer, "abstained": bool(trajectory.rubric.get("abstained")),
        "gold": _gold(scored), "verdicts": scored.verdicts, "turns": turns,
        "system": shared.add(opening.get("system", "")),
        "asked": shared.add(opening.get("user", "")),
        "facts": trajectory.rubric, "cost": _finite(trajectory.cost_usd),
        "started": trajectory.started_at,
    }  # fmt: skip


def _gold(scored: Scored) -> list[dict[str, Any]]:
    """What became of each gold mail of an answerable question. Its id may be another copy's than
    the one that the inbox shows; if the rubric says that all were found (read, cited), each was."""
    if scored.question.answerable is False:
        return []
    facts, trajectory = scored.trajectory.rubric, scored.trajectory
    found = {name for each in trajectory.events for name in each.get("found", ())}
    return [
        {
            "id": each, "found": bool(facts.get("found_gold")) or each in found,
            "read": bool(facts.get("read_gold")) or each in trajectory.mails_read,
            "cited": bool(facts.get("sources_correct")) or each in trajectory.sources,
        }
        for each in scored.question.message_ids
    ]  # fmt: skip


def _finite(value: Any) -> float | None:
    return value if isinstance(value, int | float) and math.isfinite(value) else None


# ---- The page and its charts.


def build_report(
    runs: Sequence[Run], out: Path, sections: Sequence[Section] = (), *, published: bool = False
) -> list[Path]:
    """Write `report.html`, `table.md` and `plots` of the runs into `out`, where other plots stay;
    return the page and the PNGs. `sections` stand at the end of the page; with `published` the
    charts have the published models too. Raises `UserError` for a run without an episode."""
    entries, trained = measure(runs), read_training(runs)
    untrained = [each for each in entries if each.run.folder not in {one.folder for one in trained}]
    theirs = tables.PUBLISHED if published else ()
    charts: dict[str, Sequence[Chart]] = {
        "first": tables.first_charts(entries, theirs),
        "charts": tables.comparison_charts(entries, theirs),
        "held_out": validation_charts(trained, untrained),
        "stepwise": step_charts(trained),
    }
    plots = out / "plots"
    plots.mkdir(parents=True, exist_ok=True)
    written = []
    for chart in itertools.chain(*charts.values(), *(each.charts for each in sections)):
        written.append(plots / f"{chart.name}.png")
        written[-1].unlink(missing_ok=True)  # a link that came with the run
        write_png(chart.draw(titled=True), written[-1])
    by_run = {run: list(group) for run, group in itertools.groupby(entries, lambda each: each.run)}
    names = run_names(by_run)
    facts = [_run_facts(run, names[run], of_run) for run, of_run in by_run.items()]
    page = out / "report.html"
    # A lone surrogate of a mail or a model can't be written.
    write_whole(page, _page(entries, facts, charts, trained, sections), errors="replace")
    write_whole(out / "table.md", _markdown(entries, facts), errors="replace")
    return [page, *written]


def _markdown(entries: Sequence[Entry], runs: Sequence[Mapping[str, Any]]) -> str:
    """Return the first table, without published rows, in Markdown for a paper."""
    headings, all_rows, *_ = tables.headline(entries)
    rows = [[row.label, *(cell.line for cell in row.cells)] for row in all_rows[: len(entries)]]
    rows = [headings, ["---", *["---:"] * (len(headings) - 1)], *rows]
    lines = [f"| {' | '.join(marked(cell).replace('|', '/') for cell in row)} |" for row in rows]
    bases = dict.fromkeys(marked(run["basis"]) for run in runs)
    return "\n".join([*lines, "", *bases, ""])


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
    # As mails repeat themselves, a page of real ones gets a third of its size.
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
    """A policy that lets these inline scripts run, and nothing else run or be fetched."""
    hashes = [base64.b64encode(hashlib.sha256(each.encode()).digest()) for each in scripts]
    allowed = " ".join(f"'sha256-{each.decode()}'" for each in hashes)
    inline = f"script-src {allowed}; style-src 'unsafe-inline'"
    return f"default-src 'none'; {inline}; base-uri 'none'; form-action 'none'"


_FOLDERS = re.compile(r"(?<![\w.~/-])~?/[^\s'\"]+")


def _run_facts(run: Run, name: str, entries: Sequence[Entry]) -> dict[str, Any]:
    config, scored = run.config, [episode for each in entries for episode in each.episodes]
    split = f", split {config['split']}" if config.get("split") else ""
    questions = len({each.question.id for each in scored})
    asked = config.get("questions", "the run")
    judge = ", ".join(dict.fromkeys(one for each in entries for one in each.judges)) or NONE
    on = f"{public_name(str(asked))}{split}"
    models = run.metrics.get("models", {}) if (run.folder / "metrics.json").exists() else {}
    preset = [config["preset"], *config["differences"]] if config.get("preset") else []
    # Without the folders of the machine that it ran on.
    command = re.sub(_FOLDERS, lambda path: public_name(path[0]), config.get("command") or "")
    left = (f"{name}: {of['not_asked']:,}" for name, of in models.items() if of.get("not_asked"))
    return {
        "id": name, "complete": run.complete, "command": command,
        "basis": f"n = {questions:,} questions of {on}, judged by"
        f" {judge.replace(',', ', beside it', 1)}; in brackets 95 %"
        f" intervals{tables.scopes(entries)}",
        "facts": {
            "Models": ", ".join(each.model for each in entries),
            "Prompt": ", ".join(dict.fromkeys(each.prompt for each in scored)),
            "Started": str(config.get("started_at", NONE)), "Questions": f"{questions:,} of {on}",
            "Episodes": f"{sum(each.measured for each in scored):,}", "Judge": judge,
            "Preset": "; not as published: ".join(preset) or NONE,
            "Not asked": "; ".join(left) or NONE,
            "Commit": (config.get("commit") or NONE)[:12],
        },
    }  # fmt: skip


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
