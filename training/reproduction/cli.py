"""`art-e reproduce`: the chain of the talk, from mail to report, in stages that are done once."""

import shutil
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer import Option

from art_e.cli.options import JsonOption, OutOption
from art_e.cli.output import example, note, one_line, print_json, print_line
from art_e.errors import UserError
from art_e.models.checkpoint import best_device, require_train_extra
from art_e.models.model import Model
from art_e.privacy import load_env
from art_e.storage import home, locked
from evals.judges import needs_model
from training.cli import SetOption, rough
from training.planning import plan
from training.reproduction.chain import RECORD, STAGES, Stage, Step
from training.reproduction.chain import reproduce as reproduce_chain
from training.reproduction.profile import Profile, load_profile
from training.reproduction.report import FIGURES, REPORT

_LOCK = ".reproduce.lock"

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(
    epilog=example(
        "art-e reproduce --profile nano",
        "art-e reproduce --profile nano --set training.seeds=[0,1,2]",
        "art-e reproduce --profile talk --dry-run",
        "art-e reproduce --profile talk --set baselines.max_cost_usd=10 --until baselines",
    )
)
def reproduce(
    profile: Annotated[str, Option(metavar="NAME|FILE", help="nano, talk, or a TOML file.")],
    changes: SetOption = None,
    until: Annotated[
        Stage, Option(metavar="STAGE", help=f"Last stage: {', '.join(STAGES)}.")
    ] = "report",
    dry_run: Annotated[
        bool, Option("--dry-run", help="Show the steps, their limits of cost, and what is missing.")
    ] = False,
    out: OutOption = None,
    json_output: JsonOption = False,
) -> None:
    """Reproduce the talk: mail, questions, baselines, training, test, report.

    Each stage is done once. Run again, also after a kill, the same command does what is missing or
    has changed inputs, and pays for nothing twice. The profile talk asks hosted models and needs a
    GPU: look at --dry-run first.
    """
    load_env()
    chosen = load_profile(profile, changes or ())
    # Absolute, so that what it holds can be read from anywhere.
    folder = (out or home() / "reproduced" / chosen.name).resolve()
    planned = reproduce_chain(chosen, folder, until)
    missing = _missing(chosen, planned)
    if dry_run:
        row = {
            "profile": chosen.name,
            "out": str(folder),
            "steps": [each.to_row() for each in planned],
            "training": _training(chosen, planned),
            "missing": missing,
        }
        (print_json if json_output else _print_plan)(row)
        return
    if missing:
        hint = "--until STAGE ends before that is needed, and --dry-run shows what needs what"
        raise UserError(f"{'; '.join(missing)}. {hint}")
    note(f"{chosen.name} into {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    busy = f"another process works on {folder}; wait for its end, or give another --out"
    with locked(folder / _LOCK, busy):
        last = reproduce_chain(chosen, folder, until, note)[-1]
        if until == "report":
            # An earlier setting has its report in its step's folder.
            other = shutil.ignore_patterns(RECORD)
            shutil.copytree(last.folder, folder, ignore=other, dirs_exist_ok=True)
    report = str(folder / REPORT) if until == "report" else None
    if json_output:
        figures = report and str(folder / FIGURES)
        print_json({"out": str(folder), "until": until, "report": report, "figures": figures})
    else:
        print_line(f"report: {report}" if report else f"done up to {until}, in {folder}")


def _missing(profile: Profile, planned: Sequence[Step]) -> list[str]:
    """What the steps that are not done lack on this machine, a line each."""
    left = [each for each in planned if each.state != "done"]
    found = {why for each in left for name in each.asks if (why := _why_not(name)) is not None}
    grpo = profile.recipe.grpo
    needs_gpu = grpo is not None and grpo.vllm is not None
    stages = {each.stage for each in left}
    try:
        if stages & {"sft", "grpo", "evaluation"}:
            require_train_extra()
        if stages & {"sft", "grpo"} and needs_gpu and best_device()[0] != "cuda":
            found.add(f"training {profile.recipe.name} needs an NVIDIA GPU, and there is none")
    except UserError as error:
        found.add(str(error))
    return sorted(found)


def _why_not(name: str) -> str | None:
    """Why a model can't be asked from here; None if it can, or if `name` is no model."""
    model = Model(name)
    try:
        if needs_model(name) and model.kind == "hosted":
            _ = model.host
            model.policy()
    except UserError as error:
        return str(error)
    return None


def _training(profile: Profile, planned: Sequence[Step]) -> dict[str, Any] | None:
    """What training takes; None if it needs no GPU or is not reached."""
    gpu = profile.training.gpu
    if gpu is None or all(each.stage != "grpo" for each in planned):
        return None
    takes = plan(profile.recipe, gpu)
    fees = [each.usd for each in takes.judges if each.usd is not None]
    usd = takes.gpu_usd + sum(fees) if len(fees) == len(takes.judges) else None
    return {"gpu": takes.gpu, "hours": takes.hours["total"], "usd": usd, "faults": takes.faults}


def _print_plan(row: dict[str, Any]) -> None:
    for step in row["steps"]:
        limit = step["max_cost_usd"]
        most = "" if limit is None or step["state"] == "done" else f", at most ${limit:g}"
        print_line(f"{step['stage']}: {one_line(step['name'])}, {step['state']}{most}")
        for name in ("does", "folder"):
            print_line(f"    {one_line(step[name])}")
    if (takes := row["training"]) is not None:
        usd = "at an unknown price" if takes["usd"] is None else f"${takes['usd']:,.2f} with judges"
        print_line(f"training on {takes['gpu']}: {rough(takes['hours'])} h, {usd}")
        for fault in takes["faults"]:
            print_line(f"training does not fit: {one_line(fault)}")
    for reason in row["missing"]:
        print_line(f"missing: {one_line(reason)}")
