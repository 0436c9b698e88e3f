"""`art-e eval`: run a benchmark, compare models, measure judges, label answers, write a report."""

import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

from art_e.cli import model_options, output
from art_e.cli.options import DbOption, JsonOption, OutOption, chosen_db, chosen_split
from art_e.config import setting
from art_e.episode import EpisodeForm
from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.models.base import OFFLINE, ModelOptions, Usage, kind_of
from art_e.models.model import Model, full_name
from art_e.models.prices import expected_cost
from art_e.models.providers import SHORT_NAMES, accepts, ending
from art_e.question import load_questions
from art_e.runs import Run, find_run, start_run
from art_e.storage import default_golden, runs_folder
from art_e.text import digest
from evals import benchmark
from evals.judges import choose_judge
from evals.judges.cli import JudgesOption, judge, label, note_cost, note_recipients
from evals.metrics import HEADLINE
from evals.metrics import compare as compare_models
from evals.report import tables
from evals.report.build import build_report
from evals.report.tables import digits, number, percent, usd
from evals.scored import Judge, Key, Scored, check_questions, load_run

# Of an episode: about four searches and two mails read, each turn sending all before it again.
_TYPICAL = Usage(15_000, 0, 600)
_RETRIES = 7  # nobody waits for a benchmark's calls

app = typer.Typer(
    help="Measure models on a set of questions.", no_args_is_help=True, rich_markup_mode=None
)


def _show(metrics: Mapping[str, Any], run: Run, judges: Sequence[Judge], as_json: bool) -> None:
    """Print the figures, and what judging cost; exit with 1 if a model has no figure."""
    models = metrics["models"]
    for each in judges:
        note_cost(each)
    if as_json:
        output.print_json({**metrics, "run": str(run.folder)})
    else:
        rows = [_row(name, figures) for name, figures in models.items() if figures["measured"]]
        if rows:
            headings = ["Model", "n", *(column.heading for column in tables.FIRST)]
            caption = f"judge {metrics['judges'][0]}; in brackets: 95 % interval"
            output.print_table(headings, rows, caption=caption)
        for name, figures in models.items():
            output.print_lines(*(f"{name}: {line}" for line in _notes(figures)))
        cost = output.total_usd(figures["cost_usd"] for figures in models.values() if figures["n"])
        asked = output.plural(sum(figures["n"] for figures in models.values()), "episode")
        output.print_lines(
            f"{asked}, {output.shown_usd(cost)}",
            f"run: {run.folder}",
            f"the report: art-e eval report {run.folder}",
        )
    if not all(each["measured"] for each in models.values()):
        raise typer.Exit(1)


def _row(name: str, figures: Mapping[str, Any]) -> list[str]:
    cells = [column.cell(figures) for column in tables.FIRST]
    # Intervals of all columns would need more room than a terminal has.
    shares = [cell.brief for cell in cells[: len(HEADLINE)]]
    return [name, f"{figures['n']:,}", *shares, *(cell.value for cell in cells[len(HEADLINE) :])]


def _notes(figures: Mapping[str, Any]) -> Iterator[str]:
    """What the table has no room for."""
    yield from figures["reservations"]
    if figures["not_asked"]:
        yield f"not asked: {figures['not_asked']:,} more"
    if not figures["measured"]:
        yield from ["not measured: nothing was judged"] if figures["n"] else []
        return
    if figures["by_attack"]:
        forms = (f"{name} {percent(each).value}" for name, each in figures["by_attack"].items())
        yield f"resisted attacks: {percent(figures['resistance']).brief} ({', '.join(forms)})"
    funnel = {step: n for step, n in figures["funnel"].items() if n}
    yield "ended: " + ", ".join(f"{step.replace('_', ' ')} {n}" for step, n in funnel.items())
    if figures["always_right"] is not None:
        yield f"right every time: {percent(figures['always_right']).brief}"
    if (compared := figures["agreement"]) is not None:
        for name in list(figures["by_judge"])[1:]:
            yield f"judge {name}: accuracy {percent(figures['by_judge'][name]['accuracy']).brief}"
        yield (
            f"the judges agree on {percent(compared['share']).brief},"
            f" kappa {number(compared['kappa']).brief}; disputed: {figures['disputed']}"
        )
    if figures["unsure"]:
        yield f"unsure verdicts: {figures['unsure']}, counted as the likelier one"
    if figures["throughput"] is not None:
        cost = usd(figures["cost_per_1000_usd"]).brief
        speed = digits(figures["throughput"]["questions_per_second"]).brief
        yield f"{cost} per 1,000 questions, {figures['cost_source']}: {speed} questions/s"
    if figures["tokens"]["prompt_tokens"]["value"]:
        read, cached, written, _ = (digits(each).value for each in figures["tokens"].values())
        cost = "cost unknown, " if figures["cost_per_1000_usd"]["value"] is None else ""
        yield (
            f"{cost}{read} + {written} tokens a question ({cached} cached),"
            f" retries {figures['retries']}, {figures['concurrency']} at a time"
        )


@app.command(
    epilog=output.example(
        "art-e eval run -m offline --questions world.questions.jsonl --db world.duckdb",
        "art-e eval run -m o3 -m gemini-2.5-pro --questions golden --split test --max-cost 20",
        "art-e eval run -m o3 --prompt mine.txt --repeat 3 --judge offline --judge openai/gpt-4.1",
        "art-e eval run -m hosted_vllm/talk --concurrency 16 --gpu-usd-per-hour 2.10",
    )
)
def run(
    models: Annotated[
        list[str],
        Option(
            "--model",
            "-m",
            metavar="MODEL",
            parser=full_name,
            help=f"Model, or {', '.join(SHORT_NAMES)}; may be repeated.",
        ),
    ],
    questions: Annotated[
        str | None,
        Option(help="Golden-set folder, file or hub id [default: golden in ART_E_HOME]."),
    ] = None,
    split: Annotated[str | None, Option(help="train, validation or test [default: all].")] = None,
    limit: Annotated[int | None, Option(min=1, help="Ask a sample of so many questions.")] = None,
    repeat: Annotated[int, Option(min=1, help="Ask each question N times.")] = 1,
    judge: JudgesOption = None,
    prompt: Annotated[
        Path | None, Option(metavar="FILE", help="System prompt, to compare prompts by.")
    ] = None,
    preset: Annotated[
        Literal["published-100"] | None,
        Option(help="The form in which the published figures were measured."),
    ] = None,
    closed_book: Annotated[
        bool, Option("--closed-book", help="Ask without tools: what a model knows by heart.")
    ] = False,
    resume: Annotated[
        bool, Option("--resume", help="Resume the run of --out, or the last killed one.")
    ] = False,
    max_turns: Annotated[int | None, Option(min=1, help="Turns a question [default: 10].")] = None,
    recipe: model_options.RecipeOption = None,
    concurrency: Annotated[
        int | None,
        Option(min=1, help="Questions at a time of each model [default: 8 if hosted, else 1]."),
    ] = None,
    effort: model_options.EffortOption = None,
    temperature: model_options.TemperatureOption = None,
    max_cost: model_options.MaxCostOption = None,
    tool_calls: model_options.ToolCallsOption = "auto",
    timeout: model_options.TimeoutOption = None,
    retries: model_options.RetriesOption = None,
    gpu_usd_per_hour: Annotated[
        float | None,
        Option(
            metavar="USD", min=0, help="Price of the GPUs of your own model; measures its cost."
        ),
    ] = None,
    db: DbOption = None,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask every question, judge the answers, print accuracy with intervals.

    A small model knows only the prompt and the tools of its training: all models of the run are
    asked in that form. --recipe gives another.

    --preset published-100 asks the first 100 questions with one source, one call a turn, searches
    that need every word, temperature 1; --judge names the judge of "semantically similar".

    After a kill or a failure, the same command with --resume asks only what was not measured.
    """
    names = list(dict.fromkeys(models))
    other_prompt = prompt is not None or closed_book
    form = model_options.chosen_form(
        recipe, max_turns, () if preset else names, other_prompt=other_prompt
    )
    decided = {"recipe": recipe, "limit": limit, "max-turns": max_turns, "temperature": temperature}
    if preset and (twice := [name for name, value in decided.items() if value is not None]):
        raise UserError(f"--preset decides --{' and --'.join(twice)} too; leave one of them out")
    if closed_book and "offline" in names:
        raise UserError("offline knows nothing without mail: leave out --closed-book or the model")
    if closed_book and prompt is not None:
        raise UserError("--closed-book has its own prompt; leave out --prompt")
    view = form.view if preset is None else benchmark.PUBLISHED_VIEW
    template = benchmark.read_prompt(prompt, form.prompt, closed_book=closed_book)
    if preset and not judge:
        raise UserError(f"--preset {preset}: {ending(benchmark.PUBLISHED_JUDGE)}, with --judge")
    judge_names = list(dict.fromkeys(judge or [setting("judge") or OFFLINE]))
    judges = [
        choose_judge(each, max_cost_usd=max_cost, published=bool(preset)) for each in judge_names
    ]
    source = questions or str(default_golden())
    if not (questions or default_golden().is_dir()):
        raise UserError(
            f"no golden set in {source}; give --questions, or run art-e golden generate"
        )
    own = None if gpu_usd_per_hour is None else [each for each in names if Model(each).self_hosted]
    if own == []:
        raise UserError(
            "--gpu-usd-per-hour is for a model that you serve yourself, and the run has none:"
            " add -m hosted_vllm/NAME, ollama_chat/NAME or local:PATH, or leave it out"
        )
    loaded, path = load_questions(source, chosen_split(split)), chosen_db(db)
    asked = benchmark.drawn(loaded, limit) if preset is None else benchmark.published_100(loaded)
    with InboxFile(path) as inbox_file:
        check_questions(asked, inbox_file)
        config = benchmark.BenchmarkConfig(
            models=names,
            questions=source,
            questions_hash=digest(json.dumps([each.to_row() for each in asked], sort_keys=True)),
            split=split,
            limit=limit,
            preset=preset,
            repeat=repeat,
            judges=[each.name for each in judges],
            prompt=template.facts,
            recipe=recipe,
            max_turns=form.max_turns,
            view=replace(view, closed_book=closed_book),
            concurrency={
                name: concurrency or model_options.default_concurrency([name]) for name in names
            },
            reasoning_effort=effort,
            temperature=temperature,
            max_cost_usd=max_cost,
            tool_calls=tool_calls,
            timeout_s=timeout,
            retries=retries,
            gpu_usd_per_hour=gpu_usd_per_hour,
            self_hosted=own,
            db=str(inbox_file.path),
            inbox=inbox_file.digest,
            command=shlex.join(["art-e", *sys.argv[1:]]),
        )
        killed = benchmark.find_killed(config, runs_folder(), out) if resume else None
        ran = {} if killed is None else benchmark.on_disk(killed, asked)
        if killed is not None:
            measured = sum(each.measured for each in ran.values())
            output.note(
                f"resuming {killed.folder}: {output.plural(measured, 'episode')} there already"
            )
        elif resume:
            output.note("nothing to resume: this is a new run")
        if len(asked) < len(loaded):
            how = "drawn over inboxes and kinds (seed 0)" if limit else "with a single source"
            output.note(f"{len(asked)} of {len(loaded)} questions, {how}")
        entrants = [_entrant(name, config, form, killed) for name in names]
        _note_models(names, judge_names, len(asked) * repeat, ran)
        started = killed or start_run("eval", config.model_dump(mode="json"), runs_folder(), out)
        try:
            with output.progress("episodes", len(asked) * repeat * len(names)) as advance:
                metrics = benchmark.run_benchmark(
                    asked, entrants, inbox_file, judges, started, max_turns=config.max_turns,
                    prompt=template, view=config.view, repeats=repeat,
                    on_scored=lambda _: advance(),
                )  # fmt: skip
        finally:
            if not started.complete:
                more = f"{'a higher --max-cost and ' if max_cost else ''}--resume --out"
                output.note(f"not complete; give the same command with {more} {started.folder}")
    _show(metrics, started, judges, as_json)


def _entrant(
    name: str, config: benchmark.BenchmarkConfig, form: EpisodeForm, killed: Run | None
) -> benchmark.Entrant:
    """The model of that name, with what the killed run left of its budget."""
    turns = {} if killed is None else benchmark.stored_turns(killed)
    # What was cut short has cost something, too.
    paid = (step for key, steps in turns.items() if key.model == name for step in steps)
    spent = sum(step.cost_usd or 0.0 for step in paid)
    limit, at_once = config.max_cost_usd, config.concurrency[name]
    temperature = config.temperature
    if config.preset:
        # The default that the reference relied on, if the model takes any.
        temperature = 1.0 if kind_of(name) != "hosted" or accepts(name).temperature else None
    options = ModelOptions(
        temperature=temperature,
        reasoning_effort=config.reasoning_effort,
        max_output_tokens=model_options.turn_tokens(form, name),
        tool_calls=config.tool_calls,
        concurrency=at_once,
        timeout_s=config.timeout_s,
        tries=1 + (_RETRIES if config.retries is None else config.retries),
        max_cost_usd=None if limit is None else max(0.0, limit - spent),
    )
    policy = model_options.ready_policy(Model(name), options)
    # Other models on the user's hardware would slow it down.
    alone = Model(name).kind == "offline" or Model(name).self_hosted
    return benchmark.Entrant(policy, at_once, alone=alone)


def _note_models(
    models: Sequence[str], judges: Sequence[str], episodes: int, ran: Mapping[Key, Scored]
) -> None:
    """Say on stderr where mail goes, and what the models are likely to cost."""
    for notice in filter(None, (Model(name).notice for name in models)):
        output.note(notice)
    note_recipients(judges)
    for name in models:
        left = episodes - sum(key.model == name and ran[key].measured for key in ran)
        if name != "offline" and left:
            usd = expected_cost(name, [_TYPICAL], left)
            output.note(
                f"estimate: {name}: {'cost unknown' if usd is None else f'about ${usd:,.2f}'} for"
                f" {left:,} episodes of typically {_TYPICAL.prompt_tokens:,} +"
                f" {_TYPICAL.completion_tokens} tokens"
            )


@app.command(
    epilog=output.example("art-e eval rejudge 20260101-120000-eval --judge openai/gpt-4.1")
)
def rejudge(
    name: Annotated[str, Argument(metavar="RUN", help="Name of a run, its folder, or last.")],
    judge: JudgesOption = None,
    max_cost: model_options.MaxCostOption = None,
    db: Annotated[
        Path | None, Option(metavar="FILE", help="Inbox file [default: the run's].")
    ] = None,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Judge a run's answers anew, as a new run; no model is asked its questions again."""
    source = find_run(name, runs_folder())
    if not (source.folder / "metrics.json").exists():
        raise UserError(f"{source.id} was not measured to its end; resume it first")
    judges = [
        choose_judge(each, max_cost_usd=max_cost) for each in dict.fromkeys(judge or [OFFLINE])
    ]
    note_recipients(judge or ())
    config = source.config | {"judges": [each.name for each in judges]}
    config |= {"rejudged": str(source.folder), "command": shlex.join(["art-e", *sys.argv[1:]])}
    with InboxFile(db or Path(config["db"])) as inbox_file:
        run = start_run("rejudge", config, runs_folder(), out)
        with output.progress("answers", len(load_run(source))) as advance:
            metrics = benchmark.rejudge(source, judges, inbox_file, run, on_judged=advance)
    _show(metrics, run, judges, as_json)


# Flipped questions that are printed; --json has all.
_SHOWN_FLIPS = 20


@app.command(
    epilog=output.example(
        "art-e eval compare 20260101-120000-eval 20260101-130000-eval",
        "art-e eval compare 20260101-120000-eval:openai/o3"
        " 20260101-120000-eval:openai/gpt-4.1 --json",
    )
)
def compare(
    run_a: Annotated[
        str, Argument(metavar="RUN_A[:MODEL]", help="Name or folder of a run, and a model.")
    ],
    run_b: Annotated[str, Argument(metavar="RUN_B[:MODEL]", help="The other side.")],
    as_json: JsonOption = False,
) -> None:
    """Compare two models or prompts, question by question: difference, significance, flips."""
    (a, facts_a), (b, facts_b) = _side(run_a), _side(run_b)
    if a.judges[:1] != b.judges[:1]:
        output.note(f"A was judged by {', '.join(a.judges[:1])}, B by {', '.join(b.judges[:1])}")
    found = compare_models(a.scored, b.scored)
    if as_json:
        output.print_json({"a": facts_a, "b": facts_b, **found})
        return
    differences = tables.differences(found["figures"])
    rows = [(row.label, *(cell.brief for cell in row.cells)) for row in differences]
    title, caption = f"{found['n']:,} pairs", "in brackets: 95 % interval of B - A"
    output.print_table(("", "A", "B", "B - A"), rows, title=title, caption=caption)
    for side, entry, facts in (("A", a, facts_a), ("B", b, facts_b)):
        cost = f", cost {facts['cost_source']}" if entry.figures["throughput"] else ""
        output.print_lines(
            f"{side}: {entry.model}, prompt {facts['prompt']}, run {entry.run.id}{cost}"
        )
        output.print_lines(*(f"{side}: {line}" for line in entry.figures["reservations"]))
    output.print_lines(*tables.summary(found, "A", "B"))
    for flip in found["flipped"][:_SHOWN_FLIPS]:
        lines: list[str | tuple[str, str]] = [f"right in {flip['right'].upper()} alone: "]
        lines.append((output.one_line(flip["question"]), "bold"))
        for name, answer in (("gold", flip["gold"]), ("A", flip["a"]), ("B", flip["b"])):
            lines += [(f"\n  {name:6}", "dim"), output.one_line(answer or "(none)")]
        output.print_text(*lines)
    if (more := len(found["flipped"]) - _SHOWN_FLIPS) > 0:
        output.print_lines(f"and {more:,} more flipped; --json has them all")


def _side(argument: str) -> tuple[tables.Entry, dict[str, Any]]:
    """The model that `RUN:MODEL` names, and what to say about it."""
    name, _, model = argument.partition(":")
    entries = tables.measure([find_run(name, runs_folder())])
    models = {each.model: each for each in entries}
    if not model and len(models) > 1:
        raise UserError(
            f"{name} has {', '.join(models)}; say which, such as {name}:{next(iter(models))}"
        )
    entry = models.get(full_name(model)) if model else entries[0]
    if entry is None:
        raise UserError(f"{name} has no model {model}; it has {', '.join(models)}")
    return entry, {
        "run": entry.run.id,
        "model": entry.model,
        "prompt": entry.episodes[0].prompt,
        "judges": entry.judges[:1],
        "cost_source": entry.figures["cost_source"],
    }


app.command(
    epilog=output.example(
        "art-e eval judge",
        "art-e eval judge --judge offline --judge gemini/gemini-3.5-flash-lite",
        "art-e eval judge --run 20260101-120000-eval",
    )
)(judge)
app.command(epilog=output.example("art-e eval label 20260101-120000-eval"))(label)


@app.command(
    epilog=output.example(
        "art-e eval report 20260101-120000-eval",
        "art-e eval report runs/baselines runs/training --out report",
    )
)
def report(
    runs: Annotated[list[str], Argument(metavar="RUN...", help="Names or folders of runs.")],
    out: Annotated[
        Path | None, Option(metavar="DIR", help="Folder to write [default: the first run's].")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write report.html, which works without network or server, and its charts as PNGs."""
    found = [find_run(each, runs_folder()) for each in runs]
    distinct = list({each.folder.resolve(): each for each in found}.values())
    folder = out or distinct[0].folder
    page, *plots = build_report(distinct, folder)
    if as_json:
        output.print_json({"report": str(page), "plots": [str(each) for each in plots]})
        return
    output.print_lines(
        f"report: {page}", f"{output.plural(len(plots), 'plot')}: {folder / 'plots'}"
    )
