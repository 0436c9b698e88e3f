"""`art-e eval`: run a benchmark, compare models, measure judges, label answers, write a report."""

import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from typer import Argument, Exit, Option, Typer

from art_e.cli import model_options, output
from art_e.cli.model_options import HOSTED_CONCURRENCY
from art_e.cli.options import DbOption, JsonOption, OutOption, RunArgument, chosen_db
from art_e.config import setting
from art_e.episode import EpisodeForm
from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.models.base import OFFLINE, ModelOptions, Usage, kind_of
from art_e.models.model import Model, full_name
from art_e.models.prices import expected_cost
from art_e.models.providers import SHORT_NAMES, capabilities
from art_e.question import Question, load_questions
from art_e.runs import Run, find_run, start_run
from art_e.storage import default_golden, runs_folder
from art_e.text import digest
from evals import benchmark
from evals.judges import choose_judge, needs_model
from evals.judges.cli import JudgesOption, choose_judges, judge, label, note_cost, note_recipients
from evals.metrics import HEADLINE
from evals.metrics import compare as compare_models
from evals.report import tables
from evals.report.build import build_report
from evals.report.tables import digits, number, percent, usd
from evals.scored import Judge, Key, Scored, check_questions, load_run

# A typical episode: four searches and two mails read; each turn sends the whole conversation.
_TYPICAL, _TURNS = Usage(15_000, 0, 600), 5
_VERDICT = Usage(2_340, 0, 180)  # of two calls: is the answer right, and do two mails support it?
_RETRIES = 7  # more than for `art-e ask`, because nobody waits for a single call
_MODELS = f"Model, or {', '.join(SHORT_NAMES)}; may be repeated."

app = Typer(rich_markup_mode=None)


def _show(metrics: Mapping[str, Any], run: Run, judges: Sequence[Judge], as_json: bool) -> None:
    """Print the figures and the cost of judging; exit with 1 if a model was not measured."""
    models = metrics["models"]
    for one in judges:
        note_cost(one)
    if as_json:
        output.print_json({**metrics, "run": str(run.folder)})
    else:
        rows = [_row(name, figures) for name, figures in models.items() if figures["measured"]]
        if rows:
            headings = ["Model", "n", *(column.heading for column in tables.FIRST)]
            answerable = metrics["questions"]["answerable"]
            scopes = tables.distinct_scopes(models.values())
            caption = f"judge {metrics['judges'][0]}; accuracy over {answerable:,} answerable"
            caption += ", ".join([" questions; in brackets: 95 % interval", *scopes])
            columns, *lines = zip(headings, *rows, strict=True)  # a line per figure: 80 columns do
            output.print_table(columns, lines)
            output.print_lines(caption)
        for name, figures in models.items():
            output.print_lines(*(f"{name}: {line}" for line in _notes(figures)))
        cost = output.total_usd(figures["cost_usd"] for figures in models.values() if figures["n"])
        episodes = output.plural(sum(figures["n"] for figures in models.values()), "episode")
        report = f"the report: art-e eval report {run.folder}"
        output.print_lines(f"{episodes}, {output.format_usd(cost)}", f"run: {run.folder}", report)
    if not all(each["measured"] for each in models.values()):
        raise Exit(1)


def _row(name: str, figures: Mapping[str, Any]) -> list[str]:
    cells = [column.cell(figures) for column in tables.FIRST]
    # Shares alone have their intervals here; the report has all.
    shares = [cell.brief for cell in cells[: len(HEADLINE)]]
    return [name, f"{figures['n']:,}", *shares, *(cell.value for cell in cells[len(HEADLINE) :])]


def _notes(figures: Mapping[str, Any]) -> Iterator[str]:
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
    ends = ", ".join(f"{step.replace('_', ' ')} {n}" for step, n in funnel.items())
    yield f"outcomes, with right abstentions as right: {ends}"
    if figures["always_right"] is not None:
        yield f"right every time: {percent(figures['always_right']).brief}"
    if (compared := figures["agreement"]) is not None:
        for name in list(figures["by_judge"])[1:]:
            yield f"judge {name}: accuracy {percent(figures['by_judge'][name]['accuracy']).brief}"
        share, kappa = percent(compared["share"]).brief, number(compared["kappa"]).brief
        yield f"the judges agree on {share}, kappa {kappa}; disputed: {figures['disputed']}"
    if figures["unsure"]:
        yield f"unsure verdicts: {figures['unsure']}, counted as the likelier one"
    if figures["throughput"] is not None:
        cost = usd(figures["cost_per_1000_usd"]).brief
        speed = digits(figures["throughput"]["questions_per_second"]).brief
        yield f"{cost} per 1,000 questions, {figures['cost_source']}: {speed} questions/s"
    if figures["tokens"]["prompt_tokens"]["value"]:
        read, cached, written, _ = (digits(each).value for each in figures["tokens"].values())
        cost = "cost unknown, " if figures["cost_per_1000_usd"]["value"] is None else ""
        calls = f"retries {figures['retries']}, {figures['concurrency']} at a time"
        yield f"{cost}{read} + {written} tokens a question ({cached} cached), {calls}"


@app.command()
def run(
    models: Annotated[list[str], model_options.model_option(_MODELS)],
    questions: Annotated[
        str | None,
        Option(help="Folder, file or hub id, enron, enron-hard [default: golden in ART_E_HOME]."),
    ] = None,
    split: Annotated[str | None, Option(help="train, validation or test [default: all].")] = None,
    limit: Annotated[int | None, Option(min=1, help="Ask a sample of N questions.")] = None,
    repeat: Annotated[int, Option(min=1, help="Ask each question N times.")] = 1,
    judge: JudgesOption = None,
    prompt: Annotated[Path | None, Option(metavar="FILE", help="System prompt to compare.")] = None,
    preset: Annotated[
        Literal["published-100"] | None,
        Option(help="Ask as in the published measurement."),
    ] = None,
    closed_book: Annotated[
        bool, Option("--closed-book", help="Ask without tools, to see what a model has memorized.")
    ] = False,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Show the planned calls and their cost; ask nothing.")
    ] = False,
    resume: Annotated[bool, Option("--resume", help="Resume --out, or an unfinished run.")] = False,
    max_turns: Annotated[int | None, Option(min=1, help="Turns a question [default: 10].")] = None,
    recipe: model_options.RecipeOption = None,
    concurrency: Annotated[
        int | None,
        Option(min=1, help="Concurrent questions of each model [default: 8 if hosted, else 1]."),
    ] = None,
    effort: model_options.EffortOption = None, temperature: model_options.TemperatureOption = None,
    max_cost: model_options.MaxCostOption = None,
    tool_calls: model_options.ToolCallsOption = "auto", timeout: model_options.TimeoutOption = None,
    retries: model_options.RetriesOption = None,
    gpu_usd_per_hour: Annotated[
        float | None,
        Option(metavar="USD", min=0, help="Price of your own model's GPUs; measures its cost."),
    ] = None,
    db: DbOption = None, out: OutOption = None, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Ask every question, judge the answers, print accuracy with intervals.

    A small model works only with the prompt and tools that it was trained with, so all models of
    the run get these. --recipe chooses others.

    --preset published-100 asks the first 100 test questions with one source as the reference did:
    its prompt, one call a turn, searches that need every word, temperature 1, and a judge that
    asks for "semantically similar". The run lists what differs from the published measurement.

    After a kill or a failure, repeat the command with --resume to ask the remaining questions."""
    names = list(dict.fromkeys(models))
    form = model_options.chosen_form(
        recipe, max_turns, () if preset else names, other_prompt=closed_book or prompt is not None
    )
    decided = {
        "max-turns": max_turns, "temperature": temperature, "prompt": prompt,
        "closed-book": closed_book or None, "split": None if split == "test" else split,
    }  # fmt: skip
    _check_options(decided if preset else {}, names, prompt, closed_book, questions)
    if dry_run and resume:
        raise UserError("--dry-run estimates a whole run; leave out --resume")
    view, template = form.view, benchmark.read_prompt(prompt, form, closed_book=closed_book)
    if preset:
        judge = judge or [benchmark.PUBLISHED_JUDGE.followed_by]
        if recipe is None:
            view, template = benchmark.PUBLISHED_VIEW, benchmark.PUBLISHED_PROMPT
    judge_names = list(dict.fromkeys(judge or [setting("judge") or OFFLINE]))
    served = None if gpu_usd_per_hour is None else [n for n in names if Model(n).self_hosted]
    if served == []:
        raise UserError(
            "--gpu-usd-per-hour is for a model that you serve yourself, and the run has none:"
            " add -m hosted_vllm/NAME, ollama_chat/NAME or local:PATH, or leave it out"
        )
    source, path = questions or str(default_golden()), chosen_db(db)
    loaded, differences = load_questions(source, split), list[str]()
    if preset is None:
        sample, basis = benchmark.sample_questions(loaded, limit), "stratified by inbox and kind"
    else:
        sample, basis = benchmark.published_100(loaded, source, limit), "test, one source each"
        differences = benchmark.published_differences(source, len(sample), judge_names[0], recipe)
    fewer = preset and len(sample) < benchmark.PUBLISHED_N
    notes = [f"{len(sample)} of {len(loaded)} questions, {basis}"] * (len(sample) < len(loaded))
    notes += [f"not as published: {line}" for line in differences]
    with InboxFile(path) as inbox_file:
        check_questions(sample, inbox_file)
        if dry_run:
            _check_judge(judge, names)
            _show_fees(_fees(names, judge_names, len(sample) * repeat), notes, as_json)
            return
        judges = [
            choose_judge(name, max_cost_usd=max_cost, published=bool(preset))
            for name in judge_names
        ]
        config = benchmark.BenchmarkConfig(
            models=names, questions=source,
            questions_hash=digest(json.dumps([each.to_row() for each in sample], sort_keys=True)),
            split="test" if preset else split, limit=limit,
            preset=f"{len(sample)} as in {preset}" if fewer else preset, differences=differences,
            repeat=repeat, judges=[each.name for each in judges], prompt=template.facts,
            recipe=recipe, max_turns=form.max_turns, view=replace(view, closed_book=closed_book),
            concurrency={
                name: concurrency or (HOSTED_CONCURRENCY if Model(name).leaves_machine else 1)
                for name in names
            },
            reasoning_effort=effort, temperature=temperature,
            max_cost_usd=max_cost, tool_calls=tool_calls, timeout_s=timeout, retries=retries,
            gpu_usd_per_hour=gpu_usd_per_hour, self_hosted=served, db=str(inbox_file.path),
            inbox=inbox_file.digest, command=shlex.join(["art-e", *sys.argv[1:]]),
        )  # fmt: skip
        unfinished, episodes = _unfinished(config, sample, out) if resume else (None, {})
        entrants = [_entrant(name, config, form, unfinished) for name in names]
        _check_judge(judge, names)  # after `_entrant`, which rejects an unknown model
        note_recipients(judge_names)
        fees = _fees(names, judge_names, len(sample) * repeat, episodes)
        notices = filter(None, (Model(name).notice for name in names))
        for line in [*notices, *notes, *(f"estimate: {fee.line}" for fee in fees)]:
            output.note(line)
        run = unfinished or start_run("eval", config.model_dump(mode="json"), runs_folder(), out)
        total = len(sample) * repeat * len(names)
        try:
            with output.progress("episodes", total) as advance:
                metrics = benchmark.run_benchmark(
                    sample, entrants, inbox_file, judges, run, max_turns=config.max_turns,
                    prompt=template, view=config.view, repeats=repeat,
                    on_scored=lambda _: advance(),
                )  # fmt: skip
        finally:
            if not run.complete:
                _note_unfinished(run, benchmark.stored_episodes(run, sample), total, max_cost)
    _show(metrics, run, judges, as_json)


def _check_options(
    decided: Mapping[str, object], models: Sequence[str], prompt: Path | None, closed_book: bool,
    questions: str | None,
) -> None:  # fmt: skip
    """Raise `UserError` for options that exclude each other, or a missing golden set."""
    if extra := [name for name, value in decided.items() if value is not None]:
        raise UserError(f"--preset already sets --{' and --'.join(extra)}; drop one of them")
    if closed_book and "offline" in models:
        raise UserError("offline can't answer without mail: leave out --closed-book or the model")
    if closed_book and prompt is not None:
        raise UserError("--closed-book has its own prompt; leave out --prompt")
    if questions is None and not default_golden().is_dir():
        why = f"no golden set in {default_golden()}"
        raise UserError(f"{why}; give --questions, or run art-e golden generate")


def _unfinished(
    config: benchmark.BenchmarkConfig, questions: Sequence[Question], out: Path | None
) -> tuple[Run | None, dict[Key, Scored]]:
    run = benchmark.find_unfinished(config, runs_folder(), out)
    if run is None:
        output.note("nothing to resume: this is a new run")
        return None, {}
    episodes = benchmark.stored_episodes(run, questions)
    measured = sum(each.measured for each in episodes.values())
    output.note(f"resuming {run.folder}: {output.plural(measured, 'episode')} there already")
    return run, episodes


def _note_unfinished(
    run: Run, episodes: Mapping[Key, Scored], total: int, max_cost: float | None
) -> None:
    what = "stopped by Ctrl-C" if output.interrupted() else "not complete"
    measured = sum(each.measured for each in episodes.values())
    more = f"{'a higher --max-cost and ' if max_cost else ''}--resume --out {run.folder}"
    progress = f"{measured:,} of {output.plural(total, 'episode')} measured and kept"
    output.note(f"{what}: {progress}; to ask the rest give the same command with {more}")


def _entrant(
    name: str, config: benchmark.BenchmarkConfig, form: EpisodeForm, unfinished: Run | None
) -> benchmark.Entrant:
    """Return the model with the part of its budget that the unfinished run did not spend."""
    turns = {} if unfinished is None else benchmark.stored_turns(unfinished)
    # Unfinished episodes have cost something, too.
    paid = (step for key, steps in turns.items() if key.model == name for step in steps)
    spent = sum(step.cost_usd or 0.0 for step in paid)
    limit, at_once = config.max_cost_usd, config.concurrency[name]
    temperature = config.temperature
    if config.preset:
        # The API's default, on which the reference relied; None if the model takes no temperature.
        temperature = 1.0 if kind_of(name) != "hosted" or capabilities(name).temperature else None
    options = ModelOptions(
        temperature=temperature, reasoning_effort=config.reasoning_effort,
        max_output_tokens=model_options.turn_tokens(form, name), tool_calls=config.tool_calls,
        concurrency=at_once, timeout_s=config.timeout_s,
        tries=1 + (_RETRIES if config.retries is None else config.retries),
        max_cost_usd=None if limit is None else max(0.0, limit - spent),
    )  # fmt: skip
    policy = Model(name).policy(options)
    # Models on the user's own hardware would compete for it, so each runs alone.
    return benchmark.Entrant(policy, at_once, alone=name == OFFLINE or Model(name).self_hosted)


def _check_judge(judge: Sequence[str] | None, models: Sequence[str]) -> None:
    """Raise UserError if hosted models would be ranked by the offline judge without --judge."""
    if not (judge or setting("judge")) and "hosted" in map(kind_of, models):
        why = "without a model as judge, right answers in other words count as wrong"
        fix = "give --judge MODEL, or --judge offline to rank hosted models all the same"
        raise UserError(f"{why}: {fix}")


class _Fee(NamedTuple):
    """The expected cost of a model or judge; `usd` is None for an unknown price."""

    name: str
    questions: int
    calls: int
    usd: float | None

    @property
    def line(self) -> str:
        cost = "cost unknown" if self.usd is None else f"about ${self.usd:,.2f}"
        what = "answer" if self.name.startswith("judge ") else "question"
        count = output.plural(self.questions, what)
        return f"{self.name}: {cost} for {count}, about {self.calls:,} calls"


def _fees(
    models: Sequence[str], judges: Sequence[str], total: int, episodes: Mapping[Key, Scored] = {}
) -> list[_Fee]:
    """Estimate the cost of what remains to be asked, for each model and judge."""
    left = dict.fromkeys(models, total)
    for key, scored in episodes.items():
        left[key.model] -= scored.measured
    work = [(name, n, _TYPICAL, _TURNS) for name, n in left.items()]
    work += [(f"judge {name}", sum(left.values()), _VERDICT, 2) for name in judges]
    return [
        _Fee(label, n, n * calls, expected_cost(name, [usage], n))
        for label, n, usage, calls in work
        if n and needs_model(name := label.removeprefix("judge "))
    ]


def _show_fees(fees: Sequence[_Fee], notes: Sequence[str], as_json: bool) -> None:
    for line in notes:
        output.note(line)
    total = output.total_usd(fee.usd for fee in fees)
    if as_json:
        output.print_json({"asked": [fee._asdict() for fee in fees], "usd": total})
        return
    lines = [fee.line for fee in fees] or ["no model is asked"]
    output.print_lines(*lines, f"total: {output.format_usd(total, 2)}; nothing was asked yet")


@app.command()
def rejudge(
    name: RunArgument,
    judge: JudgesOption = None, max_cost: model_options.MaxCostOption = None,
    db: Annotated[
        Path | None, Option(metavar="FILE", help="Inbox file [default: the run's].")
    ] = None,
    out: OutOption = None, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Judge a run's answers again, as a new run; the models are not asked again."""
    source = find_run(name, runs_folder())
    if not (source.folder / "metrics.json").exists():
        raise UserError(f"{source.id} is not complete; resume it first")
    judges = choose_judges(judge or [OFFLINE], max_cost)
    config = source.config | {"judges": [each.name for each in judges]}
    config |= {"rejudged": str(source.folder), "command": shlex.join(["art-e", *sys.argv[1:]])}
    with InboxFile(db or Path(config["db"])) as inbox_file:
        run = start_run("rejudge", config, runs_folder(), out)
        with output.progress("answers", len(load_run(source))) as advance:
            metrics = benchmark.rejudge(source, judges, inbox_file, run, on_judged=advance)
    _show(metrics, run, judges, as_json)


_SHOWN_FLIPS = 20  # flipped questions that are printed; --json has all


@app.command()
def compare(
    run_a: Annotated[str, Argument(metavar="RUN_A[:MODEL]", help="Name or folder of a run.")],
    run_b: Annotated[str, Argument(metavar="RUN_B[:MODEL]", help="The other side.")],
    as_json: JsonOption = False,
) -> None:
    """Compare two models or prompts, question by question: difference, significance, flips."""
    (a, facts_a), (b, facts_b) = _side(run_a), _side(run_b)
    if a.judges[:1] != b.judges[:1]:
        output.note(f"A was judged by {', '.join(a.judges[:1])}, B by {', '.join(b.judges[:1])}")
    comparison = compare_models(a.scored, b.scored)
    if as_json:
        output.print_json({"a": facts_a, "b": facts_b, **comparison})
        return
    differences = tables.differences(comparison["figures"])
    rows = [(row.label, *(cell.brief for cell in row.cells)) for row in differences]
    title, caption = f"{comparison['n']:,} pairs", "in brackets: 95 % interval of B - A"
    if comparison["scope"]:
        caption += f", {comparison['scope']}"
    output.print_table(("", "A", "B", "B - A"), rows, title=title, caption=caption)
    for side, entry, facts in (("A", a, facts_a), ("B", b, facts_b)):
        cost = f", cost {facts['cost_source']}" if entry.figures["throughput"] else ""
        head = f"{entry.model}, prompt {facts['prompt']}, run {entry.run.id}{cost}"
        notes = (head, *entry.figures["reservations"])
        output.print_lines(*(f"{side}: {line}" for line in notes))
    output.print_lines(*tables.summary(comparison, "A", "B"))
    for flip in comparison["flipped"][:_SHOWN_FLIPS]:
        lines: list[str | tuple[str, str]] = [f"right only in {flip['right'].upper()}: "]
        lines.append((output.one_line(flip["question"]), "bold"))
        for name, answer in (("gold", flip["gold"]), ("A", flip["a"]), ("B", flip["b"])):
            lines += [(f"\n  {name:6}", "dim"), output.one_line(answer or "(none)")]
        output.print_text(*lines)
    if (more := len(comparison["flipped"]) - _SHOWN_FLIPS) > 0:
        output.print_lines(f"and {more:,} more flipped; --json has them all")


def _side(argument: str) -> tuple[tables.Entry, dict[str, Any]]:
    name, _, model = argument.partition(":")
    entries = tables.measure([find_run(name, runs_folder())])
    models = {each.model: each for each in entries}
    if not model and len(models) > 1:
        which = f"say which, such as {name}:{next(iter(models))}"
        raise UserError(f"{name} has {', '.join(models)}; {which}")
    entry = models.get(full_name(model)) if model else entries[0]
    if entry is None:
        raise UserError(f"{name} has no model {model}; it has {', '.join(models)}")
    return entry, {
        "run": entry.run.id, "model": entry.model, "prompt": entry.episodes[0].prompt,
        "judges": entry.judges[:1], "cost_source": entry.figures["cost_source"],
    }  # fmt: skip


app.command()(judge)
app.command()(label)


@app.command()
def report(
    runs: Annotated[list[str], Argument(metavar="RUN...", help="Names or folders of runs.")],
    out: Annotated[
        Path | None, Option(metavar="DIR", help="Folder to write [default: the first run's].")
    ] = None,
    published: Annotated[
        bool, Option("--published", help="Draw the published figures in the same charts.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write report.html, which works without network or server, its charts as PNGs, and its first
    table as Markdown (table.md)."""
    chosen = [find_run(each, runs_folder()) for each in runs]
    distinct = list({each.folder.resolve(): each for each in chosen}.values())
    folder = out or distinct[0].folder
    page, *plots = build_report(distinct, folder, published=published)
    if as_json:
        table = str(folder / "table.md")
        output.print_json({"report": str(page), "table": table, "plots": [*map(str, plots)]})
        return
    markdown = f"its first table in Markdown: {folder / 'table.md'}"
    pictures = f"{output.plural(len(plots), 'plot')}: {folder / 'plots'}"
    output.print_lines(f"report: {page}", markdown, pictures)
