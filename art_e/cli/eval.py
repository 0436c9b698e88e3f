"""`art-e eval`: put a set of questions to a model and measure the answers."""

from pathlib import Path
from typing import Annotated, Any

import typer

from art_e.cli.models import (
    CacheOption,
    EffortOption,
    MaxCostOption,
    TemperatureOption,
    ToolCallsOption,
    choose,
    default_concurrency,
    model_options,
)
from art_e.cli.options import DbOption, JsonOption, OutOption, chosen_db, example

app = typer.Typer(help="Measure models on a set of questions.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Keep `run` a command of its own while it is the only one."""


@app.command(
    epilog=example(
        "art-e eval run -m offline --questions world.questions.jsonl --split test"
        " --db world.duckdb",
        "art-e eval run -m openai/o3 -m gemini/gemini-2.5-pro --questions golden --max-cost 20",
    )
)
def run(
    models: Annotated[list[str], typer.Option("--model", "-m", help="Model; may be repeated.")],
    questions: Annotated[
        str, typer.Option("--questions", help="Golden-set folder, JSONL file or hub id.")
    ],
    split: Annotated[
        str | None, typer.Option("--split", help="train, validation or test; default: all rows.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="First N questions.")] = None,
    max_turns: Annotated[int, typer.Option("--max-turns", min=1, help="Turns a question.")] = 10,
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency",
            metavar="N",
            min=1,
            help="Questions at a time [default: 8 where all models are hosted, else 1].",
        ),
    ] = None,
    effort: EffortOption = None,
    temperature: TemperatureOption = None,
    max_cost: MaxCostOption = None,
    tool_calls: ToolCallsOption = "auto",
    cache: CacheOption = False,
    db: DbOption = None,
    out: OutOption = None,
    json_output: JsonOption = False,
) -> None:
    """Ask every question, judge the answers, print accuracy by kind."""
    from art_e.cli.output import note, print_json, progress
    from art_e.errors import UserError
    from art_e.home import runs_folder
    from art_e.inbox.file import InboxFile
    from art_e.question import SPLITS, load_questions
    from art_e.runs import start_run
    from evals.benchmark import check_questions, run_benchmark
    from evals.judge import OfflineJudge

    chosen_split = next((each for each in SPLITS if each == split), None)
    if split is not None and chosen_split is None:
        raise UserError(f"no split {split!r}; there are {', '.join(SPLITS)}")
    names = list(dict.fromkeys(models))
    at_once = concurrency or default_concurrency(names)
    options = model_options(effort, temperature, max_cost, tool_calls, cache, at_once)
    chosen = [choose(name, options) for name in names]
    asked = load_questions(questions, chosen_split)[:limit]
    with InboxFile(chosen_db(db)) as inbox_file:
        check_questions(asked, inbox_file)
        config = {
            "models": models,
            "questions": questions,
            "split": split,
            "limit": limit,
            "max_turns": max_turns,
            "concurrency": at_once,
            "reasoning_effort": effort,
            "temperature": temperature,
            "max_cost_usd": max_cost,
            "tool_calls": tool_calls,
            "cache": cache,
            "db": str(inbox_file.path),
        }
        started = start_run("eval", config, runs_folder(), out)
        for notice in filter(None, (each.notice for each in chosen)):
            note(notice)
        with progress("questions", len(asked) * len(chosen)) as advance:
            metrics = run_benchmark(
                asked,
                [each.policy for each in chosen],
                inbox_file,
                OfflineJudge(),
                started,
                max_turns=max_turns,
                concurrency=at_once,
                timed=not cache,
                on_scored=lambda _: advance(),
            )
    if json_output:
        print_json({**metrics, "run": str(started.folder)})
    else:
        _print_tables(metrics, started.folder)


def _print_tables(metrics: dict[str, Any], folder: Path) -> None:
    from rich.table import Table

    from art_e.cli.output import console

    for model, figures in metrics["models"].items():
        table = Table(
            title=f"{model}: {figures['n']} questions, judge {metrics['judge']}",
            caption="in brackets: 95 % Wilson interval",
        )
        table.add_column("kind")
        for name in ("n", "accuracy", "right to abstain", "hallucination", "abstention"):
            table.add_column(name, justify="right")
        for kind, shares in [*figures["by_kind"].items(), ("all", figures)]:
            table.add_row(
                kind,
                str(shares["hallucination"]["n"]),
                *(
                    _percent(shares[each])
                    for each in ("accuracy", "unanswerable_accuracy", "hallucination", "abstention")
                ),
            )
        console().print(table)
        console().print(
            f"gold read {_percent(figures['read_gold'])}, sources right"
            f" {_percent(figures['sources_correct'])}, turns {figures['turns']:.2f},"
            f" p50 {_milliseconds(figures['latency_p50_s'])}, errors {figures['errors']}"
            + "".join(f", {kind} {n}" for kind, n in figures["errors_by_kind"].items()),
            markup=False,
        )
        tokens, cost = figures["tokens"], figures["cost_per_1000_usd"]
        price = "cost unknown" if cost is None else f"${cost:.2f} per 1,000 questions"
        if tokens["prompt_tokens"]:
            console().print(
                f"{price}, {tokens['prompt_tokens']:,.0f} + {tokens['completion_tokens']:,.0f}"
                f" tokens a question ({tokens['cached_prompt_tokens']:,.0f} cached),"
                f" retries {figures['retries']}, {metrics['concurrency']} at a time",
                markup=False,
            )
    console().print(f"run: {folder}", markup=False, soft_wrap=True)


def _percent(share: dict[str, Any]) -> str:
    if share["value"] is None:
        return "-"
    return f"{share['value']:.1%} [{share['low']:.1%}, {share['high']:.1%}]"


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.0f} ms"
