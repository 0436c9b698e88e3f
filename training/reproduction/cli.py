"""`art-e reproduce`: the chain of the talk, from mail to report, in stages that are done once."""

from typing import Annotated

import typer
from typer import Option

from art_e.cli.options import JsonOption, OutOption
from art_e.cli.output import example, note, print_json, print_line
from art_e.errors import UserError
from art_e.models.checkpoint import require_train_extra
from art_e.privacy import load_env
from art_e.storage import home, locked
from training.cli import SetOption
from training.reproduction.chain import Cache, chosen_stage
from training.reproduction.chain import reproduce as reproduce_chain
from training.reproduction.forecast import missing, plan_row, print_plan
from training.reproduction.profile import load_profile
from training.reproduction.report import FIGURES, publish

_LOCK = ".reproduce.lock"

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(
    epilog=example(
        "art-e reproduce --profile nano",
        "art-e reproduce --profile nano --baseline ollama_chat/qwen2.5:7b --until baselines",
        "art-e reproduce --profile talk --dry-run",
        "art-e reproduce --profile talk --questions public --set baselines.max_cost_usd=10",
    )
)
def reproduce(
    profile: Annotated[str, Option(metavar="NAME|FILE", help="nano, talk, or a TOML file.")],
    questions: Annotated[
        str | None,
        Option(
            metavar="WHICH",
            help="generated, public, world, a file or a hub id [default: the profile's].",
        ),
    ] = None,
    baseline: Annotated[
        list[str] | None,
        Option(
            metavar="MODEL",
            help="A further model to measure, and to compare prompts by; may be repeated.",
        ),
    ] = None,
    changes: SetOption = None,
    until: Annotated[
        str | None,
        Option(
            metavar="STAGE",
            help="Last stage: ingest, golden, prompts, baselines, sft, grpo, evaluation, report.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Show what would be done, its time and cost.")
    ] = False,
    out: OutOption = None,
    json_output: JsonOption = False,
) -> None:
    """Reproduce the talk: mail, questions, prompts, baselines, training, test, report.

    Each stage is done once. Run again, also after a kill, the same command does what is missing or
    has changed inputs, and pays for nothing twice. The profile talk asks hosted models and needs a
    GPU: look at --dry-run first.
    """
    require_train_extra()
    load_env()
    last = chosen_stage(until)
    chosen = load_profile(profile, changes or (), questions=questions, baselines=baseline or ())
    # Absolute, so that what it holds can be read from anywhere.
    folder = (out or home() / "reproduced" / chosen.name).resolve()
    planned = reproduce_chain(chosen, Cache(folder, last, note, dry=True))
    if dry_run:
        row = plan_row(chosen, planned, str(folder))
        (print_json if json_output else print_plan)(row)
        return
    if lacking := missing(chosen, planned):
        raise UserError(
            f"{'; '.join(lacking)}. --until STAGE ends before that is needed, and --dry-run shows"
            " what needs what"
        )
    note(f"{chosen.name} into {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    busy = f"another process works on {folder}; wait for its end, or give another --out"
    with locked(folder / _LOCK, busy):
        units = reproduce_chain(chosen, Cache(folder, last, note))
        report = publish(units[-1].folder, folder) if last == "report" else None
    if json_output:
        shown = {} if report is None else {"report": report, "figures": folder / FIGURES}
        files = {name: str(path) for name, path in shown.items()}
        print_json({"out": str(folder), "until": last, "report": None, "figures": None, **files})
    elif report is None:
        print_line(f"done up to {last}, in {folder}")
    else:
        print_line(f"report: {report}")
