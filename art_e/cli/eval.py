"""`art-e eval`: put a set of questions to models and measure the answers."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from art_e.cli import eval_compare, eval_judge, eval_report
from art_e.cli.eval_gpu import GpuPriceOption, GpusOption, note_entries, priced
from art_e.cli.forms import RecipeOption, chosen_form, of_recipe
from art_e.cli.models import (
    CacheOption,
    EffortOption,
    MaxCostOption,
    TemperatureOption,
    ToolCallsOption,
    choose,
    default_concurrency,
    model_options,
    shares_a_machine,
)
from art_e.cli.options import (
    DbOption,
    JsonOption,
    OutOption,
    chosen_db,
    chosen_split,
    example,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from art_e.runs import Run
    from evals.judge import Judge

app = typer.Typer(
    help="Measure models on a set of questions.", no_args_is_help=True, rich_markup_mode=None
)


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

    from art_e.cli.eval_progress import live
    from art_e.cli.output import note, plural
    from art_e.home import runs_folder
    from art_e.inbox.file import InboxFile
    from art_e.question import load_questions
    from art_e.runs import start_run
    from evals.benchmark import (
        Entrant,
        Prompt,
        check_questions,
        drawn,
        fingerprint,
        kept_by,
        read_prompt,
        run_benchmark,
    )
    from evals.estimate import estimate_cost
    from evals.judges import choose_judge
    from evals.presets import model_name
    from evals.resume import find_killed, on_disk

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
        chosen = [
            choose(
                name,
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
        ]
        if resume:
            note(
                "nothing to resume: this is a new run"
                if started is None
                else f"going on with {started.folder}: {plural(len(done), 'episode')} there already"
            )
        if len(asked) < len(kept):
            note(f"{len(asked)} of {len(kept)} questions, drawn over inboxes and kinds (seed 0)")
        for notice in filter(None, [each.notice for each in chosen] + list(map(_notice, judges))):
            note(notice)
        for name in names:
            left = len(asked) * repeat - sum(each.trajectory.model == name for each in done)
            if name != "offline" and left:
                note(f"estimate: {estimate_cost(name, left, runs_folder())}")
        entrants = [
            Entrant(each.policy, at_once[each.name], alone=shares_a_machine(each.name))
            for each in chosen
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
    from art_e.cli.eval_tables import print_tables
    from art_e.cli.output import note, print_json
    from evals.report.command import command

    for judge in judges:
        eval_judge.note_cost(judge)
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
    from art_e.errors import UserError
    from art_e.home import default_golden

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
    from art_e.trajectory import read_trajectories

    if run is None or not run.trajectories.exists():
        return 0.0
    episodes = read_trajectories(run.trajectories)
    return sum(each.cost_usd or 0.0 for each in episodes if each.model == model)


def _notice(judge: str) -> str | None:
    """One line on where a judge's model gets what it judges."""
    from art_e.policies.host import receiving_host
    from evals.judges import needs_model

    if not needs_model(judge):
        return None

    return f"answers and the mails they rest on go to {receiving_host(judge)} (judge {judge})"


eval_compare.register(app)
eval_judge.register(app)
eval_report.register(app)
