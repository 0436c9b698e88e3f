"""`art-e train`: a warm start, reinforcement learning, and folding an adapter in."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from art_e.cli import train_export, train_plan
from art_e.cli.options import JsonOption, OutOption, example
from art_e.errors import UserError

if TYPE_CHECKING:
    from training.processes import Processes
    from training.recipe import Recipe
    from training.run import TrainingRun

app = typer.Typer(
    help="Train the agent: a warm start, then GRPO.", no_args_is_help=True, rich_markup_mode=None
)

RecipeOption = Annotated[
    str,
    typer.Option(
        "--recipe",
        metavar="NAME|FILE",
        help="nano, mini, talk, talk-24gb, talk-multi, or a TOML file.",
    ),
]
BaseModelOption = Annotated[
    str | None,
    typer.Option(
        "--base-model", metavar="MODEL", help="Folder or hub id, in place of the recipe's model."
    ),
]
MinutesOption = Annotated[
    float | None,
    typer.Option(
        "--minutes", metavar="N", min=0, help="Pause after N minutes, to go on with --resume."
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="TABLE.FIELD=VALUE", help="Change the recipe; may be repeated."),
]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Same seed, same run.")]
Tracker = Literal["none", "wandb", "trackio", "tensorboard"]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Go on with the killed run of --out.")]


@app.command(
    epilog=example(
        "art-e train sft --recipe nano --out start",
        "art-e train sft --recipe mine.toml --set sft.validate_every=100 --out start --resume",
    )
)
def sft(
    recipe: RecipeOption = "nano",
    changes: SetOption = None,
    init: Annotated[
        str | None,
        typer.Option("--init", metavar="DIR", help="Checkpoint or run to begin from."),
    ] = None,
    base_model: BaseModelOption = None,
    seed: SeedOption = 0,
    minutes: MinutesOption = None,
    resume: ResumeOption = False,
    out: OutOption = None,
    json_output: JsonOption = False,
) -> None:
    """Imitate the scripted expert, or the best of stored trajectories."""
    from art_e.policies.checkpoint import require_train_extra

    require_train_extra()
    from art_e.home import runs_folder
    from training.callbacks import after
    from training.processes import launched
    from training.recipe import load_recipe
    from training.run import Setting, opened
    from training.sft import train_sft
    from training.watch import Watch

    if launched().count > 1:
        raise UserError("a warm start is one process: run art-e train sft without a launcher")
    chosen = load_recipe(recipe, changes or (), base_model=base_model)
    steps = chosen.sft.steps if chosen.sft else 0
    setting = Setting("sft", chosen, seed, init)
    with (
        Watch(steps, f"sft {chosen.name}") as watch,
        opened(setting, out, runs_folder(), watch, resume=resume) as (training, checkpoint),
    ):
        metrics = train_sft(training, checkpoint, pause=after(minutes))
    _tell(training, metrics, json_output=json_output)


@app.command(
    epilog=example(
        "art-e train grpo --recipe nano --init start --out trained",
        "art-e train grpo --recipe nano --init start --set reward.effort=0 --out no-effort",
    )
)
def grpo(
    recipe: RecipeOption = "nano",
    changes: SetOption = None,
    init: Annotated[
        str | None,
        typer.Option("--init", metavar="DIR", help="Start: a checkpoint or a run of sft."),
    ] = None,
    max_steps: Annotated[
        int | None, typer.Option("--max-steps", min=1, help="Steps [default: the recipe's].")
    ] = None,
    base_model: BaseModelOption = None,
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", metavar="RUN", help="Run of another model to compare with."),
    ] = None,
    max_cost: Annotated[
        float | None,
        typer.Option(
            "--max-cost",
            metavar="USD",
            min=0,
            help="Most that judges cost together; then it pauses [default: the recipe's].",
        ),
    ] = None,
    report_to: Annotated[
        Tracker, typer.Option("--report-to", help="Tracker that is told as well.")
    ] = "none",
    seed: SeedOption = 0,
    minutes: MinutesOption = None,
    resume: ResumeOption = False,
    out: OutOption = None,
    json_output: JsonOption = False,
) -> None:
    """Reinforcement learning with GRPO on the composite reward."""
    from art_e.policies.checkpoint import require_train_extra

    require_train_extra()
    from rich.console import Console

    from art_e.home import runs_folder
    from training.baseline import baseline_metrics
    from training.callbacks import after
    from training.grpo import train_grpo
    from training.recipe import load_recipe
    from training.run import Setting, opened
    from training.watch import Watch

    if report_to != "none" and find_spec(report_to) is None:
        raise UserError(f"--report-to {report_to} needs it installed: pip install {report_to}")
    steps = [] if max_steps is None else [f"grpo.steps={max_steps}"]
    chosen = load_recipe(recipe, [*(changes or ()), *steps], base_model=base_model)
    pause = after(minutes)
    with _together() as processes:
        if processes.leads:
            _tell_fees(chosen, max_cost)
            if baseline is None:
                _tell_no_baseline(recipe)
        compared = None if baseline is None else baseline_metrics(baseline, runs_folder(), chosen)
        setting = Setting("grpo", chosen, seed, init, compared)
        total = chosen.grpo.steps if chosen.grpo else 0
        # One tells how it goes.
        console = None if processes.leads else Console(file=io.StringIO())
        with (
            Watch(total, f"grpo {chosen.name}", console=console) as watch,
            opened(setting, out, runs_folder(), watch, resume=resume, processes=processes) as (
                training,
                checkpoint,
            ),
        ):
            metrics = train_grpo(
                training, checkpoint, max_cost_usd=max_cost, report_to=report_to, pause=pause
            )
        if processes.leads:
            _tell(training, metrics, json_output=json_output)


train_export.register(app)


train_plan.register(app)


@app.command(epilog=example("art-e train merge trained --out whole"))
def merge(
    checkpoint: Annotated[
        Path, typer.Argument(metavar="DIR", help="Checkpoint with an adapter, or its run.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="New folder.")],
    json_output: JsonOption = False,
) -> None:
    """Fold an adapter into the weights of its model."""
    from art_e.cli.output import note, print_json
    from training import merge as merging

    merging.merge(checkpoint, out)
    if json_output:
        print_json({"out": str(out)})
        return
    note(
        f"merged into {out}: art-e serve {out}, or art-e ask --model local:{out} --recipe NAME,"
        " the recipe that it was trained by"
    )


@contextmanager
def _together() -> "Iterator[Processes]":
    """The processes that a launcher started; where one of them is lost a line says so."""
    from art_e.cli.output import note
    from training.processes import LostError, joined

    try:
        with joined() as processes:
            yield processes
    except LostError as error:
        note(f"Error: {error}")
        raise typer.Exit(1) from None


def _tell_fees(recipe: "Recipe", max_cost: float | None) -> None:
    """What judges are expected to cost, and what they may, before any is asked."""
    from art_e.cli.output import note
    from training.planning.fees import grpo_fees

    most = recipe.judging.max_cost_usd if max_cost is None else max_cost
    capped = "no limit: --max-cost sets one" if most is None else f"${most:,.2f} at most"
    for fee in grpo_fees(recipe):
        cost = "cost unknown" if fee.usd is None else f"about ${fee.usd:,.2f}"
        note(f"judge {fee.judge}: {cost} for {fee.episodes:,} episodes; {capped}")


def _tell_no_baseline(recipe: str) -> None:
    from art_e.cli.output import note

    note(
        "no baseline: with --baseline RUN the model card tells what training gains over"
        f" another model; make one with: art-e eval run -m MODEL --recipe {recipe}"
    )


def _tell(training: "TrainingRun", metrics: dict[str, Any], *, json_output: bool) -> None:
    from art_e.cli.output import note, print_json

    folder = training.run.folder
    if json_output:
        print_json({**metrics, "run": str(folder), "paused": training.paused})
        return
    if training.paused is not None:
        note(f"paused: {training.paused}; the same command with --resume --out {folder} goes on")
        return
    note(f"done: {folder}")
    best = metrics["best_checkpoint"]
    if best is not None:
        note(f"  art-e ask --model local:{folder}/{best} --recipe {folder} QUESTION")
    note(f"  art-e eval report {folder}")
