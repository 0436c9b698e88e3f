"""`art-e eval judge`: how far can a judge be believed? `art-e eval label`: what a person says.

Judges are measured on the labelled pairs that come with the package, on a file of one's
own, or on the labels that a person gave to a run. Heavy imports are made inside the
functions.
"""

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from art_e.cli.forms import RecipeOption, chosen_form, of_recipe
from art_e.cli.options import (
    HOSTED_CONCURRENCY,
    CacheOption,
    DbOption,
    EffortOption,
    JsonOption,
    MaxCostOption,
    OutOption,
    TemperatureOption,
    ToolCallsOption,
    chosen_db,
    chosen_split,
    default_concurrency,
    model_options,
    ready_policy,
)
from art_e.cli.output import (
    console,
    example,
    note,
    one_line,
    plural,
    print_json,
    progress,
    shown_usd,
    text,
)
from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.models.model import Model
from art_e.models.prices import gpu_entry, prices_file
from art_e.question import load_questions
from art_e.runs import Run, find_run, start_run
from art_e.storage import default_golden, runs_folder
from art_e.trajectory import read_trajectories
from evals import paired
from evals.benchmark import (
    Entrant,
    Prompt,
    check_questions,
    drawn,
    estimate_cost,
    find_killed,
    fingerprint,
    kept_by,
    model_name,
    on_disk,
    read_prompt,
    run_benchmark,
)
from evals.gpu_time import servings
from evals.judges import choose_judge, needs_model, spent_by
from evals.judges.labels import (
    Case,
    Rated,
    agreement,
    labelled_cases,
    load_pairs,
    rate,
    read_labels,
    stored_ratings,
)
from evals.judges.offline import Judge
from evals.labelling import label
from evals.scored import Scored, load_run
from evals.statistics import Estimate

if TYPE_CHECKING:
    from collections.abc import Iterable


app = typer.Typer(
    help="Measure models on a set of questions.", no_args_is_help=True, rich_markup_mode=None
)


# ---- What `art-e eval run` prints for people: the figures of `metrics.json` in tables.

_SHARES = ("accuracy", "unanswerable_accuracy", "hallucination", "abstention")
_HEADINGS = ("n", "accuracy", "right to abstain", "hallucination", "abstention")


def print_tables(metrics: dict[str, Any], folder: Path) -> None:
    """Print a table a model, with lines on what it took, and the run's folder last."""
    for model, figures in metrics["models"].items():
        _print_model(model, figures, metrics["judges"])
    console().print(text(f"run: {one_line(str(folder))}"), soft_wrap=True)


def percent(share: "Estimate") -> str:
    """A share with its interval in brackets; "-" where it is not known."""
    if share["value"] is None:
        return "-"
    if share["low"] is None:
        return f"{share['value']:.1%}"
    return f"{share['value']:.1%} [{share['low']:.1%}, {share['high']:.1%}]"


def _print_model(model: str, figures: dict[str, Any], judges: list[str]) -> None:
    from rich.table import Table

    if not figures["n"]:
        words = figures["stopped"]["message"]
        console().print(text(one_line(f"{model}: not measured: {words}")), soft_wrap=True)
        return
    methods = {figures[name]["method"] for name in _SHARES} - {None}
    table = Table(
        title=text(one_line(f"{model}: {figures['n']} episodes, judge {judges[0]}")),
        caption=f"in brackets: 95 % interval, {' and '.join(sorted(methods))}",
    )
    for number, heading in enumerate(("kind", *_HEADINGS)):
        table.add_column(heading, justify="right" if number else "left")
    for name_, shares in [
        *_labelled(figures["by_kind"]),
        *_labelled(figures["by_difficulty"]),
        ("all", figures),
    ]:
        cells = (percent(shares[name]) for name in _SHARES)
        table.add_row(text(one_line(name_)), str(shares["n"]), *cells)
    console().print(table)
    for line in _lines(figures):
        console().print(text(one_line(line)), soft_wrap=True)


def _labelled(groups: dict[str, Any]) -> Iterable[tuple[str, dict[str, Any]]]:
    """The groups with their figures; none where no question has a label to tell them by."""
    return groups.items() if groups.keys() - {"unlabelled"} else ()


def _lines(figures: dict[str, Any]) -> list[str]:
    went_wrong = ", ".join(
        f"{step.replace('_', ' ')} {count}" for step, count in figures["funnel"].items() if count
    )
    lines = [
        f"gold read {percent(figures['read_gold'])},"
        f" sources right {percent(figures['sources_correct'])},"
        f" turns {figures['turns']['value']:.2f},"
        f" p50 {_milliseconds(figures['latency_p50_s'])},"
        f" p95 {_milliseconds(figures['latency_p95_s'])}, errors {figures['errors']}"
        + "".join(f", {kind} {n}" for kind, n in figures["errors_by_kind"].items()),
        f"where episodes ended: {went_wrong}",
    ]
    if figures["always_right"] is not None:
        lines.append(f"right every time: {percent(figures['always_right'])}")
    if figures["not_asked"]:
        lines.append(f"not asked: {figures['not_asked']} more ({figures['stopped']['message']})")
    if figures["unjudged"]:
        lines.append(f"without a verdict, counted as not right: {figures['unjudged']}")
    agreement = figures["agreement"]
    if agreement is not None:
        one, other = agreement["judges"]
        kappa = agreement["kappa"]["value"]
        lines.append(
            f"judge {other}: accuracy {percent(figures['by_judge'][other]['accuracy'])}; it agrees"
            f" with {one} on {percent(agreement['share'])},"
            f" kappa {'-' if kappa is None else f'{kappa:.2f}'}"
        )
    measured = figures["throughput"]
    if measured is not None:
        lines.append(_throughput(measured, figures))
    tokens = {name: each["value"] for name, each in figures["tokens"].items()}
    if tokens["prompt_tokens"]:
        cost = figures["cost_per_1000_usd"]["value"]
        told = "cost unknown, " if cost is None else f"${cost:.2f} per 1,000 questions, "
        lines.append(
            f"{told if measured is None else ''}"
            f"{tokens['prompt_tokens']:,.0f} + {tokens['completion_tokens']:,.0f}"
            f" tokens a question ({tokens['cached_prompt_tokens']:,.0f} cached),"
            f" retries {figures['retries']}, {figures['concurrency']} at a time"
        )
    return lines


def _throughput(measured: dict[str, Any], figures: dict[str, Any]) -> str:
    from evals.report.tables import usd

    if measured["left_out"] is not None:
        return f"cost not measured: {measured['left_out']}"
    cost = usd(figures["cost_per_1000_usd"])
    questions, prompts, completions = (
        measured[f"{name}_per_second"]["value"]
        for name in ("questions", "prompt_tokens", "completion_tokens")
    )
    return (
        f"{f'{cost.value} {cost.interval}'.strip()} per 1,000 questions,"
        f" {figures['cost_source']}: {questions:.3g} questions/s,"
        f" {prompts:,.0f} + {completions:,.0f} tokens/s over {measured['seconds']:,.1f} s,"
        f" {measured['at_once']:.1f} under way at a time"
    )


def _milliseconds(seconds: "Estimate") -> str:
    return "-" if seconds["value"] is None else f"{1000 * seconds['value']:.0f} ms"


# ---- How far a benchmark is, model by model, with accuracy and cost so far.


@dataclass(slots=True)
class Tally:
    """What is known so far of one model; `measured`: its cost is, when the run ends."""

    measured: bool = False
    answerable: int = 0
    right: int = 0
    cost_usd: float | None = 0.0
    errors: int = 0

    def count(self, scored: "Scored") -> None:
        """Add an episode."""
        if scored.question.answerable:
            self.answerable += 1
            self.right += scored.correct
        cost = scored.trajectory.cost_usd
        self.cost_usd = None if self.cost_usd is None or cost is None else self.cost_usd + cost
        self.errors += scored.trajectory.error is not None

    def __str__(self) -> str:
        said = [f"{self.right / self.answerable:.1%} right" if self.answerable else "no answer yet"]
        said.append("cost measured at the end" if self.measured else shown_usd(self.cost_usd))
        if self.errors:
            said.append(f"{self.errors} failed")
        return ", ".join(said)


@contextmanager
def live(
    models: Sequence[str], episodes: int, measured: Sequence[str] = ()
) -> "Iterator[Callable[[Scored], None]]":
    """A bar for each model, of `episodes` to come; gives a function to call with each episode.

    What those of `measured` cost is known when all have ended.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = [
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[tally]}", markup=False),
        TimeElapsedColumn(),
    ]
    with Progress(*columns, console=console(to_stderr=True), transient=True) as bars:
        tallies = {model: Tally(model in measured) for model in models}
        tasks = {
            model: bars.add_task(one_line(model), total=episodes, tally="") for model in models
        }

        def show(scored: "Scored") -> None:
            model = scored.trajectory.model
            tallies[model].count(scored)
            bars.update(tasks[model], advance=1, tally=str(tallies[model]))

        yield show


# ---- The GPU's price in `art-e eval run`: whose cost it measures, and what to write down of it.

GpuPriceOption = Annotated[
    float | None,
    typer.Option(
        "--gpu-usd-per-hour",
        metavar="USD",
        min=0,
        help="What the GPU of a model that you serve costs: its cost a question is measured.",
    ),
]
GpusOption = Annotated[
    int | None,
    typer.Option("--gpus", metavar="N", min=1, help="GPUs at that price that serve [default: 1]."),
]


def priced(
    gpu_usd_per_hour: float | None, gpus: int | None, models: Sequence[str], *, cache: bool
) -> dict[str, Any]:
    """What the run's configuration holds of the options. Raises `UserError` for what can't be
    measured."""
    if gpu_usd_per_hour is None:
        if gpus is not None:
            raise UserError("--gpus says how many have a price; add --gpu-usd-per-hour")
        return {"gpu_usd_per_hour": None, "gpus": None, "self_hosted": None}
    if not math.isfinite(gpu_usd_per_hour):
        raise UserError(f"--gpu-usd-per-hour {gpu_usd_per_hour} is no sum; write USD, such as 2.10")
    self_hosted = [each for each in models if Model(each).self_hosted]
    if not self_hosted:
        raise UserError(
            "--gpu-usd-per-hour is for a model that you serve yourself, and none of the run's is"
            " one: add -m hosted_vllm/NAME, ollama_chat/NAME or local:PATH, or leave it out"
        )
    if cache:
        raise UserError(
            "--gpu-usd-per-hour measures time, which is none where --cache answers; leave one out"
        )
    return {
        "gpu_usd_per_hour": gpu_usd_per_hour,
        "gpus": gpus or 1,
        "self_hosted": self_hosted,
    }


def note_entries(metrics: Mapping[str, Any]) -> None:
    """Say on stderr what to write into `prices.toml`, so that estimates know the measurement."""

    for model, figures in metrics["models"].items():
        measured = figures["throughput"]
        if measured is None:
            continue
        if measured["left_out"] is not None:
            note(f"{model}: its cost was not measured, for {measured['left_out']}")
            continue
        try:
            lines = gpu_entry(
                model,
                measured["gpu_usd_per_hour"] * measured["gpus"],
                measured["seconds"],
                measured["prompt_tokens"],
                measured["completion_tokens"],
            )
        except ValueError:
            note(f"{model}: its server tells no tokens, so prices.toml can't have its cost")
            continue
        note(f"for estimates and --max-cost, {prices_file()} may have of this measurement:")
        for line in lines.splitlines():
            note(line)


# ---- `art-e eval`: put a set of questions to models and measure the answers.


@app.command(
    epilog=example(
        "art-e eval run -m offline --questions world.questions.jsonl --split test"
        " --db world.duckdb",
        "art-e eval run -m o3 -m gemini-2.5-pro --questions golden --split test --max-cost 20",
        "art-e eval run -m o3 --questions golden --split validation --prompt mine.txt"
        " --repeat 3 --judge offline --judge gemini/gemini-2.5-flash",
        "art-e eval run -m offline -m hosted_vllm/mine --recipe nano",
        "art-e eval run -m hosted_vllm/talk --questions golden --split test --concurrency 16"
        " --gpu-usd-per-hour 2.10",
    )
)
def run(
    models: Annotated[
        list[str],
        typer.Option(
            "--model",
            "-m",
            help="Model, or o3, o4-mini, gpt-4.1, gemini-2.5-pro, qwen2.5-14b; may be repeated.",
        ),
    ],
    questions: Annotated[
        str | None,
        typer.Option(
            "--questions",
            help="Golden-set folder, JSONL or Parquet file, or hub id"
            " [default: golden in ART_E_HOME].",
        ),
    ] = None,
    split: Annotated[
        str | None, typer.Option("--split", help="train, validation or test; default: all rows.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, help="N questions, drawn over inboxes and kinds."),
    ] = None,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="Ask each question N times.")] = 1,
    judge: Annotated[
        list[str] | None,
        typer.Option(
            "--judge",
            help="offline, f1 or a model; may be repeated, the first decides [default: offline].",
        ),
    ] = None,
    prompt: Annotated[
        Path | None,
        typer.Option("--prompt", metavar="FILE", help="System prompt, to compare prompts by."),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with the run of --out, or the last killed one."),
    ] = False,
    max_turns: Annotated[
        int | None,
        typer.Option("--max-turns", min=1, help="Turns a question [default: 10]."),
    ] = None,
    recipe: RecipeOption = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency",
            metavar="N",
            min=1,
            help="Questions at a time for each model [default: 8 where it is hosted, else 1].",
        ),
    ] = None,
    effort: EffortOption = None,
    temperature: TemperatureOption = None,
    max_cost: MaxCostOption = None,
    tool_calls: ToolCallsOption = "auto",
    cache: CacheOption = False,
    gpu_usd_per_hour: GpuPriceOption = None,
    gpus: GpusOption = None,
    db: DbOption = None,
    out: OutOption = None,
    json_output: JsonOption = False,
) -> None:
    """Ask every question, judge the answers, print accuracy with intervals.

    A small model knows only the prompt and the tools that it was trained with: --recipe
    gives these to all models of the run, and asks the questions that the recipe keeps for
    its test, or of its --split, where no others are named.

    The cost of a model that you serve yourself is measured, where its GPU has a price: by the
    time in which it was being asked. Throughput, and so the cost, depend on --concurrency.

    A run that was killed is taken up by the same command with --resume: no question that
    it has an answer to is asked again.
    """
    import dataclasses

    of_split = chosen_split(split)
    names = list(dict.fromkeys(map(model_name, models)))
    judges = list(dict.fromkeys(judge or ["offline"]))
    form = chosen_form(recipe, max_turns, other_prompt=prompt is not None)
    chosen_prompt = read_prompt(prompt) if form.prompt is None else Prompt("recipe", form.prompt)
    at_once = {name: concurrency or default_concurrency([name]) for name in names}
    deciding = [choose_judge(name, max_cost_usd=max_cost) for name in judges]
    if recipe is not None and questions is None and db is None:
        source = kept_by(recipe, of_split)
        kept, path = of_recipe(recipe, of_split or "test")
    else:
        source = _questions(questions)
        kept, path = load_questions(source, of_split), chosen_db(db)
    asked = kept if limit is None else drawn(kept, limit)
    with InboxFile(path) as inbox_file:
        check_questions(asked, inbox_file)
        config = {
            "models": names,
            "questions": source,
            "questions_hash": fingerprint(asked),
            "split": split,
            "limit": limit,
            "repeat": repeat,
            "judges": [each.name for each in deciding],
            "prompt": {
                "name": chosen_prompt.name,
                "hash": chosen_prompt.hash,
                **({} if prompt is None else {"path": str(prompt)}),
            },
            "recipe": recipe,
            "max_turns": form.max_turns,
            "view": dataclasses.asdict(form.view),
            "concurrency": at_once,
            "reasoning_effort": effort,
            "temperature": temperature,
            "max_cost_usd": max_cost,
            "tool_calls": tool_calls,
            "cache": cache,
            **priced(gpu_usd_per_hour, gpus, names, cache=cache),
            "db": str(inbox_file.path),
        }
        started = find_killed(config, runs_folder(), out) if resume else None
        done = [] if started is None else list(on_disk(started, asked).values())
        policies = {
            name: ready_policy(
                Model(name),
                model_options(
                    effort,
                    temperature,
                    None if max_cost is None else max(0.0, max_cost - _spent(name, started)),
                    tool_calls,
                    cache,
                    at_once[name],
                    form.turn_tokens_of(name),
                ),
            )
            for name in names
        }
        if resume:
            note(
                "nothing to resume: this is a new run"
                if started is None
                else f"going on with {started.folder}: {plural(len(done), 'episode')} there already"
            )
        if len(asked) < len(kept):
            note(f"{len(asked)} of {len(kept)} questions, drawn over inboxes and kinds (seed 0)")
        for notice in filter(
            None, [*(Model(name).notice for name in names), *map(_notice, judges)]
        ):
            note(notice)
        for name in names:
            left = len(asked) * repeat - sum(each.trajectory.model == name for each in done)
            if name != "offline" and left:
                note(f"estimate: {estimate_cost(name, left, runs_folder())}")
        entrants = [
            Entrant(policy, at_once[name], alone=Model(name).shares_machine)
            for name, policy in policies.items()
        ]
        started = started or start_run("eval", config, runs_folder(), out)
        with live(names, len(asked) * repeat, config["self_hosted"] or ()) as show:
            metrics = run_benchmark(
                asked,
                entrants,
                inbox_file,
                deciding,
                started,
                max_turns=form.max_turns,
                prompt=chosen_prompt,
                view=form.view,
                repeats=repeat,
                timed=not cache,
                on_scored=show,
            )
    _show(metrics, config, started, deciding, json_output)


def _show(
    metrics: dict[str, Any],
    config: dict[str, Any],
    run: "Run",
    judges: "Iterable[Judge]",
    as_json: bool,
) -> None:
    """Print the figures, and how a run that is not complete goes on; leave with 1 where a model
    was not measured."""
    from evals.report.build import command

    for judge in judges:
        note_cost(judge)
    note_entries(metrics)
    if as_json:
        print_json({**metrics, "run": str(run.folder)})
    else:
        print_tables(metrics, run.folder)
    if not run.complete:
        again = command({**config, "max_cost_usd": None})
        higher = "" if config["max_cost_usd"] is None else " --max-cost USD"
        note(f"not complete; to go on: {again}{higher} --resume --out {run.folder}")
    if not all(each["n"] for each in metrics["models"].values()):
        raise typer.Exit(1)


def _questions(given: str | None) -> str:
    """What `--questions` names, or the default golden set. Raises `UserError` for neither."""

    if given is not None:
        return given
    default = default_golden()
    if not default.is_dir():
        raise UserError(
            f"which questions? there is no golden set in {default}: give --questions, or make"
            " one with: art-e golden generate"
        )
    return str(default)


def _spent(model: str, run: "Run | None") -> float:
    """USD that the model's episodes on disk have cost, as far as is known, cut short or not."""

    if run is None or not run.trajectories.exists():
        return 0.0
    episodes = read_trajectories(run.trajectories)
    return sum(each.cost_usd or 0.0 for each in episodes if each.model == model)


def _notice(judge: str) -> str | None:
    """One line on where a judge's model gets what it judges."""

    if not needs_model(judge):
        return None

    return f"answers and the mails they rest on go to {Model(judge).host} (judge {judge})"


# ---- `art-e eval compare`: two models, or two prompts, on the same questions.

# The flipped questions that people are shown; --json has all.
_SHOWN_FLIPS = 20


class _Side(NamedTuple):
    run: str
    model: str
    prompt: str
    judges: tuple[str, ...]
    timed: bool
    cost_source: str | None
    scored: "Sequence[Scored]"

    def __str__(self) -> str:
        return f"{self.model}, prompt {self.prompt}, run {self.run}"


@app.command(
    epilog=example(
        "art-e eval compare 20260101-120000-eval 20260101-130000-eval",
        "art-e eval compare 20260101-120000-eval:openai/o3"
        " 20260101-120000-eval:openai/gpt-4.1 --json",
    )
)
def compare(
    run_a: Annotated[
        str, typer.Argument(metavar="RUN_A[:MODEL]", help="Name or folder of a run, and a model.")
    ],
    run_b: Annotated[str, typer.Argument(metavar="RUN_B[:MODEL]", help="What to hold against it.")],
    json_output: JsonOption = False,
) -> None:
    """Compare two models or prompts, question by question: difference, significance, flips."""

    a, b = _side(run_a), _side(run_b)
    if a.judges != b.judges:
        note(f"A was judged by {', '.join(a.judges)}, B by {', '.join(b.judges)}")
    found = paired.compare(a.scored, b.scored, timed=a.timed and b.timed)
    if json_output:
        sides = {
            name: {
                "run": side.run,
                "model": side.model,
                "prompt": side.prompt,
                "judges": list(side.judges),
                "cost_source": side.cost_source,
            }
            for name, side in (("a", a), ("b", b))
        }
        print_json({**sides, **found})
    else:
        _print(a, b, found)


def _side(argument: str) -> _Side:

    name, model = _parted(argument)
    run = find_run(name, runs_folder())
    scored = load_run(run)
    models = list(dict.fromkeys(each.trajectory.model for each in scored))
    if model is None and len(models) > 1:
        raise UserError(f"{name} has {', '.join(models)}; say which, such as {name}:{models[0]}")
    chosen = models[0] if model is None else _model(model, models, name)
    of_model = [each for each in scored if each.trajectory.model == chosen]
    policy = of_model[0].trajectory.policy
    judges = dict.fromkeys(each.verdicts[0]["judge"] for each in of_model if each.verdicts)
    return _Side(
        run.id,
        chosen,
        f"{policy.get('prompt', 'default')} ({policy['prompt_hash']})",
        tuple(judges),
        not run.config.get("cache", False),
        str(served[chosen]) if chosen in (served := servings(run.config)) else None,
        of_model,
    )


def _parted(argument: str) -> tuple[str, str | None]:
    """The run and the model of `RUN:MODEL`; a name of either may have colons of its own."""

    parts = argument.split(":")
    for end in range(len(parts), 0, -1):
        name = ":".join(parts[:end])
        if any(Run(folder).begun for folder in (runs_folder() / name, Path(name))):
            return name, ":".join(parts[end:]) or None
    return parts[0], None


def _model(model: str, models: Sequence[str], run: str) -> str:

    name = model_name(model)
    if name not in models:
        raise UserError(f"{run} has no model {model}; it has {', '.join(models)}")
    return name


def _print(a: _Side, b: _Side, found: dict[str, Any]) -> None:
    from rich.table import Table

    from evals.report.build import differences

    table = Table(title=f"{found['n']:,} pairs", caption="in brackets: 95 % interval of B - A")
    for number, heading in enumerate(("", "A", "B", "B - A")):
        table.add_column(heading, justify="right" if number else "left")
    for row in differences(found["figures"]):
        table.add_row(row.label, *(f"{cell.value} {cell.interval}".strip() for cell in row.cells))
    left_out = [f"{plural(found['left_out'][side], 'episode')} of {side.upper()}" for side in "ab"]
    needed = found["needed"]
    lines = [
        f"A: {a}",
        f"B: {b}",
        *(
            f"cost of {name}: {side.cost_source}"
            for name, side in (("A", a), ("B", b))
            if side.cost_source is not None
        ),
        f"left out, for the other was not asked: {' and '.join(left_out)}",
        f"right in A alone {found['only_a']}, in B alone {found['only_b']},"
        f" exact McNemar p = {found['p']:.3g}"
        f" ({'significant' if found['p'] < 0.05 else 'may be chance'})",
        f"of A's errors B mends {percent(found['mended'])},"
        f" of B's errors A has right {percent(found['broken'])}",
    ]
    if needed is not None:
        lines.append(f"questions that would show such a difference 4 times of 5: {needed:,}")
    console().print(table)
    for line in lines:
        console().print(text(one_line(line)), soft_wrap=True)
    for flip in found["flipped"][:_SHOWN_FLIPS]:
        answers = (
            one_line("(none)" if flip[side] is None else flip[side]) for side in ("gold", "a", "b")
        )
        gold, of_a, of_b = answers
        console().print(
            text(
                f"right in {flip['right'].upper()} alone: ",
                (one_line(flip["question"]), "bold"),
                f"\n  gold {gold}\n  A    {of_a}\n  B    {of_b}",
            ),
            soft_wrap=True,
        )
    more = len(found["flipped"]) - _SHOWN_FLIPS
    if more > 0:
        console().print(f"and {more:,} more flipped; --json has them all")


# ---- `art-e eval judge`: how far can a judge be believed? `art-e eval label`: what a person says.

Half = Literal["tuning", "reporting", "all"]


@app.command(
    epilog=example(
        "art-e eval judge",
        "art-e eval judge --judge offline --judge gemini/gemini-2.5-flash --show-wrong",
        "art-e eval judge --run 20260101-120000-eval",
    )
)
def judge(
    names: Annotated[
        list[str] | None,
        typer.Option(
            "--judge",
            metavar="NAME",
            help="offline or a litellm name; may be repeated [default: offline].",
        ),
    ] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(
            "--pairs", metavar="FILE", help="Labelled pairs [default: the project's own]."
        ),
    ] = None,
    half: Annotated[
        Half | None, typer.Option("--half", help="Half of the pairs [default: reporting].")
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(
            "--run",
            metavar="RUN",
            help="The answers of this run that art-e eval label has labels for;"
            " without --judge, its own verdicts.",
        ),
    ] = None,
    show_wrong: Annotated[
        bool, typer.Option("--show-wrong", help="Each answer that a judge gets wrong, and why.")
    ] = False,
    max_cost: MaxCostOption = None,
    json_output: JsonOption = False,
) -> None:
    """Measure judges on answers that people labelled: agreement, kappa, confusion."""

    if run is not None and (pairs is not None or half is not None):
        raise UserError("--run has answers of its own; leave out --pairs and --half")
    if run is not None:
        measured = _on_run(run, names, max_cost)
        on = f"answers of {run}"
    else:
        chosen = half or "reporting"
        measured = _asked(names or ["offline"], _pairs(pairs, chosen), max_cost)
        on = f"{pairs or 'the labelled set'}, {chosen if chosen == 'all' else f'{chosen} half'}"
    figures = {name: agreement(rated) for name, rated in measured.items()}
    if json_output:
        if show_wrong:
            for name, rated in measured.items():
                figures[name]["wrong"] = [_facts(each) for each in rated if not each.agrees]
        print_json({"on": on, "judges": figures})
        return
    for name, rated in measured.items():
        _print_figures(name, on, figures[name])
        if show_wrong:
            _print_wrong([each for each in rated if not each.agrees])


def _pairs(path: Path | None, half: Half) -> "list[Case]":

    chosen = [each for each in load_pairs(path) if half in ("all", each.half)]
    if not chosen:
        raise UserError(f"{path} has no pair of the {half} half; choose another --half")
    return [
        Case(each.asked, each.answer, each.label, each.category, each.adversarial)
        for each in chosen
    ]


def _on_run(
    name: str, judges: list[str] | None, max_cost: float | None
) -> "dict[str, list[Rated]]":

    run = find_run(name, runs_folder())
    scored, labels = load_run(run), read_labels(run)
    cases = labelled_cases(scored, labels)
    if not cases:
        raise UserError(f"nobody has labelled answers of {run.id} yet; art-e eval label {name}")
    return _asked(judges, cases, max_cost) if judges else stored_ratings(scored, labels)


def _asked(
    names: list[str], cases: "Sequence[Case]", max_cost: float | None
) -> "dict[str, list[Rated]]":
    """The verdicts of judges that are asked now, by their names."""
    import asyncio

    judges = [choose_judge(each, max_cost_usd=max_cost) for each in dict.fromkeys(names)]
    for name in dict.fromkeys(names):
        if (where := _receiver(name)) is not None:
            note(f"questions and answers go to {where} ({name})")
    measured = {}
    for each in judges:
        with progress("answers", len(cases)) as advance:
            measured[each.name] = asyncio.run(
                rate(each, cases, concurrency=HOSTED_CONCURRENCY, on_rated=advance)
            )
        note_cost(each)
    return measured


def _receiver(name: str) -> str | None:

    if not needs_model(name):
        return None

    return Model(name).host


def note_cost(judge: "Judge") -> None:
    """Say on stderr what a judge's calls have cost; nothing of one that makes none."""

    spent = spent_by(judge)
    if spent is not None:
        tokens = spent.usage.prompt_tokens + spent.usage.completion_tokens
        cost = shown_usd(spent.cost_usd)
        note(f"{judge.name}: {plural(spent.calls, 'call')}, {plural(tokens, 'token')}, {cost}")


def _facts(rated: "Rated") -> dict[str, Any]:
    return {
        "category": rated.case.category,
        "question": rated.case.question.question,
        "gold": rated.case.question.answer,
        "answer": rated.case.answer,
        "label": rated.case.label,
        "verdict": rated.verdict.correct,
        "reason": rated.verdict.reason,
    }


def _print_figures(name: str, on: str, figures: dict[str, Any]) -> None:
    from rich.table import Table

    hostile = f"{figures['adversarial_judged_correct']} of {figures['adversarial']}"
    table = Table(
        title=text(one_line(f"{name} on {on}")),
        caption="in brackets: 95 % interval; a missing verdict counts as a wrong one",
    )
    table.add_column("category")
    for heading in (
        "n", "agreement", "right as right", "right as wrong", "wrong as right", "wrong as wrong",
        "unjudged",
    ):  # fmt: skip
        table.add_column(heading, justify="right")
    for category, shares in [*sorted(figures["by_category"].items()), ("all", figures)]:
        cells = [*map(str, shares["confusion"].values()), str(shares["unjudged"])]
        agreed = _estimate(shares["agreement"], percent=True)
        table.add_row(text(one_line(category)), str(shares["n"]), agreed, *cells)
    console().print(table)
    summary = f"kappa {_estimate(figures['kappa'], percent=False)}"
    if figures["adversarial"]:
        summary += f", adversarial answers judged correct: {hostile}"
    console().print(summary, soft_wrap=True)


def _estimate(estimate: dict[str, Any], *, percent: bool) -> str:
    if estimate["value"] is None:
        return "-"
    form = ".1%" if percent else ".2f"
    shown = format(estimate["value"], form)
    if estimate["low"] is None:
        return shown
    return f"{shown} [{estimate['low']:{form}}, {estimate['high']:{form}}]"


def _print_wrong(wrong: "Sequence[Rated]") -> None:

    words = {True: "right", False: "wrong", None: "no verdict"}
    for each in wrong:
        facts = _facts(each)
        gold, answer = (
            "(none)" if facts[name] is None else one_line(facts[name])
            for name in ("gold", "answer")
        )
        console().print(
            text(
                (one_line(facts["question"]), "bold"),
                ("\n  gold    ", "dim"), gold,
                ("\n  answer  ", "dim"), answer,
                ("\n  label   ", "dim"), words[facts["label"]],
                ("\n  judge   ", "dim"),
                f"{words[facts['verdict']]}: {one_line(facts['reason'])}\n",
            ),
            soft_wrap=True,
        )  # fmt: skip


app.command(epilog=example("art-e eval label 20260101-120000-eval --sample 50"))(label)
# ---- `art-e eval report`: runs as one page that can be read, sent and kept.


@app.command(
    epilog=example(
        "art-e eval report 20260101-120000-eval",
        "art-e eval report runs/baselines runs/training --out report",
    )
)
def report(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Names or folders of runs.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Where to write [default: the first run]."),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Write report.html, which works without network or server, and its charts as PNGs."""
    from evals.report.build import build_report

    found = [find_run(each, runs_folder()) for each in runs]
    distinct = list({each.folder.resolve(): each for each in found}.values())
    folder = out or distinct[0].folder
    page, *plots = build_report(distinct, folder)
    if json_output:
        print_json({"report": str(page), "plots": [str(each) for each in plots]})
        return
    screen = console()
    screen.print(text(f"report: {page}"), soft_wrap=True)
    screen.print(text(f"{plural(len(plots), 'plot')}: {folder / 'plots'}"), soft_wrap=True)
