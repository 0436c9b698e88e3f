"""`art-e train`: what a recipe takes, a warm start, rewards and preferences, merge."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

from art_e.cli.options import JsonOption, OutOption
from art_e.cli.output import example, note, plural, print_json, print_lines, print_table
from art_e.errors import UserError
from art_e.models.checkpoint import require_train_extra
from art_e.runs import find_run
from art_e.storage import runs_folder
from training.expert import best_conversations, conversations_of
from training.export import merge as merge_adapter
from training.judging import JudgeFee, judge_fees, judges_of
from training.material import load_material, planted_in
from training.planning import (
    ASSUMED,
    DEFAULT_GPU,
    GPUS,
    MEASURED,
    StagePlan,
    TrainingPlan,
    compared,
    count_of,
    expected_episode,
    gpu_of,
)
from training.planning import plan as make_plan
from training.processes import ALONE, LostError, Processes, joined, launched
from training.recipe import Recipe, Setting, load_recipe, run_recipe
from training.run import TrainingRun, opened

app = typer.Typer(
    help="Train the agent: a warm start, then GRPO.", no_args_is_help=True, rich_markup_mode=None
)

RecipeOption = Annotated[
    str,
    Option(
        "--recipe",
        metavar="NAME|FILE",
        help="nano, mini, talk, talk-24gb, talk-multi, qwen3-4b, qwen3-14b, or a TOML file.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    Option("--set", metavar="TABLE.FIELD=VALUE", help="Change the recipe; may be repeated."),
]
InitOption = Annotated[
    str | None, Option("--init", metavar="DIR", help="Checkpoint or run to begin from.")
]
FromOption = Annotated[
    list[str] | None,
    Option("--from", metavar="RUN", help="Run whose episodes it learns from; may be repeated."),
]
MinutesOption = Annotated[
    float | None, Option("--minutes", metavar="N", min=0, help="Pause after N minutes.")
]
SeedOption = Annotated[int, Option("--seed", min=0, help="Same seed, same run.")]
ResumeOption = Annotated[bool, Option("--resume", help="Continue the killed run of --out.")]

# ---- `art-e train plan`.


@app.command(
    epilog=example(
        "art-e train plan --recipe talk",
        "art-e train plan --recipe talk-24gb --gpu rtx4090-24gb --usd-per-hour 0.35",
        "art-e train plan --recipe talk-multi --gpus 4",
        "art-e train plan --against trained",
    )
)
def plan(
    recipe: Annotated[
        str | None,
        Option(metavar="NAME|FILE", help="A recipe's name or a TOML file [default: nano]."),
    ] = None,
    changes: SetOption = None,
    gpu: Annotated[str, Option(metavar="NAME", help="Kind of GPU.")] = DEFAULT_GPU,
    gpus: Annotated[int, Option(metavar="N", min=1, help="Number of GPUs.")] = 1,
    usd_per_hour: Annotated[
        float | None, Option(metavar="USD", min=0, help="Price of one GPU [default: typical].")
    ] = None,
    against: Annotated[
        str | None, Option(metavar="RUN", help="Compare that run's report with its recipe's plan.")
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Calculate what a recipe takes: memory, tokens, hours, money. Nothing is run."""
    run = None if against is None else find_run(against, runs_folder())
    if run is None:
        chosen = load_recipe(recipe or "nano", changes or ())
    elif run.config.get("kind") not in {"sft", "grpo"}:
        raise UserError(f"{run.folder} is not a training run; art-e runs list shows the runs")
    elif recipe is not None or changes:
        raise UserError("--against plans the run's own recipe: leave out --recipe and --set")
    else:
        chosen = run_recipe(run.folder)
    planned = make_plan(chosen, gpu_of(gpu), count=gpus, usd_per_hour=usd_per_hour)
    beside = [] if run is None else compared(planned, run)
    if json_output:
        print_json({**planned.row(), "compared": beside})
        return
    _print_plan(planned, chosen.episode.episode_tokens)
    if run is not None:
        rows = [
            (each["what"], *map(_figure, (each["planned"], each["reported"]))) for each in beside
        ]
        print_table(("", "planned", "reported"), rows, title=f"beside {run.folder}")


def _print_plan(plan: TrainingPlan, longest: int) -> None:
    adapter, episode, gpus = plan.lora_parameters, plan.episode, plan.gpus
    server = f" and {gpus['serve']} for vLLM's server" if gpus["serve"] else ""
    trained = f"an adapter of {count_of(adapter)}" if adapter else "all of them"
    print_lines(
        f"{plan.recipe} on {gpus['train']} x {plan.gpu}{server}: {plan.model},"
        f" {count_of(plan.parameters)} weights, {trained} trained"
    )
    for stage in plan.stages:
        _print_stage(stage, plan.memory_bytes, longest)
    print_lines(
        f"an episode: {episode.turns:.1f} turns, {episode.tokens:,.0f} tokens,"
        f" {episode.own_tokens:,.0f} of them the model's own"
    )
    print_lines(
        f"{duration(plan.hours)} on {plural(sum(gpus.values()), 'GPU')} at"
        f" ${plan.usd_per_hour:.2f} an hour: ${plan.gpu_usd:,.2f}"
    )
    for fee in plan.judges:
        print_lines(_fee(fee))
    for line in MEASURED:
        print_lines(f"measured: {line}")
    for line in ASSUMED:
        print_lines(line if line.startswith("not counted") else f"assumed: {line}")
    for fault in plan.faults:
        print_lines(f"it does not fit: {fault}")
    print_lines(
        "it fits"
        if not plan.faults
        else "to make it fit: --set model.checkpointing=true, a smaller grpo.micro_batch,"
        " grpo.generate_batch or episode.episode_tokens, another grpo.vllm.memory, or a"
        f" larger --gpu ({', '.join(GPUS)})"
    )


def _print_stage(stage: StagePlan, memory: int, longest: int) -> None:
    for phase in stage.memory:
        parts = [(each.what, each.size, each.how) for each in phase.lines]
        parts.append(("total", phase.bytes, f"of {memory / 1e9:,.2f} GB (10^9 bytes)"))
        left = "left" if phase.left >= 0 else "too much"
        parts.append((left, abs(phase.left), f"{abs(phase.left) / memory:.0%} of the GPU"))
        rows = [(what, f"{size / 1e9:,.2f}", how) for what, size, how in parts]
        title = f"{stage.stage}: {phase.phase}, each GPU"
        print_table(("", "GB", "how it is counted"), rows, title=title, left=(0, 2))
    print_lines(
        f"{stage.stage}: keys and values of {stage.kv_tokens:,} tokens have room:"
        f" {plural(stage.kv_tokens // longest, 'episode')} of {longest:,} tokens;"
        f" {stage.under_way:,} are under way at a time"
    )
    tokens = ", ".join(
        f"{each:,.0f} {what.replace('_', ' ')}" for what, each in stage.tokens_per_step.items()
    )
    print_lines(f"{stage.stage}: tokens a step: {tokens}")
    times = [
        (what, f"{each:,.2f}", duration(each * stage.steps / 3600))
        for what, each in stage.seconds_per_step.items()
        if each
    ]
    total = sum(stage.seconds_per_step.values())
    times.append(("total", f"{total:,.2f}", duration(stage.hours)))
    print_table(("", "s a step", f"{stage.steps:,} steps"), times, title=f"{stage.stage}: time")


def duration(hours: float) -> str:
    """Hours, minutes or seconds, whichever reads best."""
    if hours >= 1:
        return f"{hours:,.1f} h"
    return f"{60 * hours:,.1f} min" if 60 * hours >= 1 else f"{3600 * hours:,.1f} s"


def _fee(fee: JudgeFee) -> str:
    usd = "cost unknown" if fee.usd is None else f"about ${fee.usd:,.2f}"
    return f"judge {fee.judge}: {usd} for {fee.episodes:,} episodes"


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"


# ---- `art-e train sft`, `grpo`, `dpo` and `kto`.


@app.command(
    epilog=example(
        "art-e train sft --recipe nano --out start",
        "art-e train sft --recipe mine.toml --set sft.validate_every=100 --out start --resume",
        "art-e train sft --recipe nano --init trained --from explored --out again",
    )
)
def sft(
    recipe: RecipeOption = "nano",
    changes: SetOption = None,
    init: InitOption = None,
    runs: FromOption = None,
    seed: SeedOption = 0,
    minutes: MinutesOption = None,
    resume: ResumeOption = False,
    out: OutOption = None,
    json_output: JsonOption = False,
) -> None:
    """Imitate the scripted expert, or with --from the best of stored episodes."""
    setting = _learning("sft", recipe, changes, init, runs, seed)
    _train(setting, out, resume, minutes, run_sft, ALONE, json_output)


@app.command(
    epilog=example(
        "art-e train grpo --recipe nano --init start --out trained",
        "art-e train grpo --recipe nano --init start --set reward.effort=0 --out no-effort",
    )
)
def grpo(
    recipe: RecipeOption = "nano",
    changes: SetOption = None,
    init: InitOption = None,
    max_cost: Annotated[
        float | None,
        Option(
            metavar="USD",
            min=0,
            help="Limit on the judges' fees; then it pauses [default: the recipe's].",
        ),
    ] = None,
    report_to: Annotated[
        str, Option(metavar="NAME", help="Tracker of transformers, such as wandb or trackio.")
    ] = "none",
    seed: SeedOption = 0,
    minutes: MinutesOption = None,
    resume: ResumeOption = False,
    out: OutOption = None,
    json_output: JsonOption = False,
) -> None:
    """Reinforcement learning with GRPO on the composite reward."""
    require_train_extra()
    if report_to != "none" and find_spec(report_to) is None:
        raise UserError(f"--report-to {report_to} needs it installed: pip install {report_to}")
    chosen = load_recipe(recipe, changes or ())
    with _together() as processes:
        if processes.leads:
            _tell_fees(chosen, max_cost)
        run = partial(run_grpo, max_cost_usd=max_cost, report_to=report_to)
        setting = Setting("grpo", chosen, seed, init)
        _train(setting, out, resume, minutes, run, processes, json_output)


@app.command(
    epilog=example("art-e train dpo --recipe nano --init start --from trained --out preferred")
)
def dpo(
    recipe: RecipeOption = "nano",
    changes: SetOption = None,
    init: InitOption = None,
    runs: FromOption = None,
    seed: SeedOption = 0,
    minutes: MinutesOption = None,
    resume: ResumeOption = False,
    out: OutOption = None,
    json_output: JsonOption = False,
) -> None:
    """Learn from pairs of stored episodes, a better and a worse one of a question."""
    setting = _learning("dpo", recipe, changes, init, runs, seed)
    _train(setting, out, resume, minutes, run_preference, ALONE, json_output)


@app.command(
    epilog=example(
        "art-e train kto --recipe nano --init start --from trained --out preferred",
        "art-e train kto --recipe mine.toml --init start --ratings --out rated",
    )
)
def kto(
    recipe: RecipeOption = "nano",
    changes: SetOption = None,
    init: InitOption = None,
    runs: FromOption = None,
    ratings: Annotated[
        bool, Option("--ratings", help="Learn from your own ratings (art-e rate), too.")
    ] = False,
    seed: SeedOption = 0,
    minutes: MinutesOption = None,
    resume: ResumeOption = False,
    out: OutOption = None,
    json_output: JsonOption = False,
) -> None:
    """Learn from stored episodes that are good or bad."""
    more = [*(changes or ()), *(["preference.ratings=true"] if ratings else [])]
    setting = _learning("kto", recipe, more, init, runs, seed)
    _train(setting, out, resume, minutes, run_preference, ALONE, json_output)


def _learning(
    kind: Literal["sft", "dpo", "kto"],
    recipe: str,
    changes: list[str] | None,
    init: str | None,
    runs: list[str] | None,
    seed: int,
) -> Setting:
    """The settings of a run in one process, which may learn from the episodes of other runs."""
    require_train_extra()
    if launched().count > 1:
        raise UserError(f"art-e train {kind} is one process: run it without a launcher")
    table = "sft" if kind == "sft" else "preference"
    named = [f"{table}.runs={json.dumps(runs)}"] if runs else []
    return Setting(kind, load_recipe(recipe, [*(changes or ()), *named]), seed, init)


def _train(
    setting: Setting,
    out: Path | None,
    resume: bool,
    minutes: float | None,
    run: Callable[[TrainingRun, Path | None], dict[str, Any]],
    processes: Processes,
    json_output: bool,
) -> None:
    """Carry `run` out in its folder; the leading process shows it and says what came of it."""
    parent = runs_folder()
    with opened(setting, out, parent, resume=resume, processes=processes, minutes=minutes) as (
        training,
        checkpoint,
    ):
        metrics = run(training, checkpoint)
    folder = training.run.folder
    if not processes.leads:
        return
    if json_output:
        print_json({**metrics, "run": str(folder), "paused": training.paused})
    elif training.paused is not None:
        note(f"paused: {training.paused}; the same command with --resume --out {folder} goes on")
    else:
        note(f"done: {folder}")
        if metrics["best_checkpoint"]:
            note(f"  art-e ask --model local:{folder} QUESTION")
        note(f"  art-e eval report {folder}")


def run_sft(training: TrainingRun, checkpoint: Path | None = None) -> dict[str, Any]:
    """Carry a warm start out with its questions and judges; its metrics."""
    recipe, seed = training.setting.recipe, training.setting.seed
    if recipe.sft is None:
        raise UserError(f"the recipe {recipe.name} has no table [sft]; use another")
    if recipe.sft.runs:
        conversations = [best_conversations(recipe.sft.runs, seed)] * len(recipe.sft.stages)
    else:
        material = load_material(recipe.data, "train")
        conversations = conversations_of(recipe, material, planted_in(recipe.data), seed)
    load, judges = partial(load_material, recipe.data), judges_of(recipe.judging)
    train = import_module("training.sft").train_sft
    metrics: dict[str, Any] = train(training, checkpoint, conversations, load, judges)
    return metrics


def run_grpo(
    training: TrainingRun,
    checkpoint: Path | None = None,
    *,
    max_cost_usd: float | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Carry GRPO out with its questions and judges; its metrics. `max_cost_usd` limits the judges'
    fees over the whole run (None: as the recipe says)."""
    recipe, count, spent = training.setting.recipe, training.processes.count, training.cost_before
    limit = recipe.judging.max_cost_usd if max_cost_usd is None else max_cost_usd
    judges = judges_of(recipe.judging, limit, spent=spent, processes=count)
    train, load = import_module("training.grpo").train_grpo, partial(load_material, recipe.data)
    metrics: dict[str, Any] = train(training, checkpoint, load, judges, **options)
    return metrics


def run_preference(training: TrainingRun, checkpoint: Path | None = None) -> dict[str, Any]:
    """Carry DPO or KTO out with its questions and judges; its metrics."""
    recipe = training.setting.recipe
    if recipe.preference is None:
        raise UserError(f"the recipe {recipe.name} has no table [preference]; use another")
    load, judges = partial(load_material, recipe.data), judges_of(recipe.judging)
    train = import_module("training.preference").train_preference
    metrics: dict[str, Any] = train(training, checkpoint, load, judges)
    return metrics


@contextmanager
def _together() -> Iterator[Processes]:
    """The processes that a launcher started; one line says so if one of them is lost."""
    try:
        with joined() as processes:
            yield processes
    except LostError as error:
        note(f"Error: {error}")
        raise typer.Exit(1) from None


def _tell_fees(recipe: Recipe, max_cost: float | None) -> None:
    """Say before the first call what the judges may cost."""
    most = recipe.judging.max_cost_usd if max_cost is None else max_cost
    capped = "no limit: --max-cost sets one" if most is None else f"${most:,.2f} at most"
    reads = expected_episode(recipe).reads
    for fee in judge_fees(recipe.model_copy(update={"sft": None}), reads):
        note(f"{_fee(fee)}; {capped}")


# ---- A checkpoint with an adapter.


@app.command(epilog=example("art-e train merge trained --out whole"))
def merge(
    checkpoint: Annotated[
        Path, Argument(metavar="DIR", help="Checkpoint with an adapter, or its run.")
    ],
    out: Annotated[Path, Option(metavar="DIR", help="New folder.")],
    json_output: JsonOption = False,
) -> None:
    """Fold an adapter into the weights of its model."""
    kept = merge_adapter(checkpoint, out)
    if json_output:
        print_json({"out": str(out), "kept": kept})
        return
    if kept < 0.995:
        note(
            f"rounding leaves {kept:.0%} of what the adapter changes: to keep it all, serve it"
            " beside its base (art-e serve BASE --adapter DIR)"
        )
    note(f"merged into {out}: art-e serve {out}, or art-e ask --model local:{out} QUESTION")
