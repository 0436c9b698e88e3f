"""`art-e reproduce`: the chain of the talk, from mail to report, in commands that are run once."""

import dataclasses
from itertools import pairwise
from typing import Annotated

import typer
from typer import Option

from art_e.cli.options import JsonOption, OutOption
from art_e.cli.output import example, print_json, print_line, print_lines
from art_e.errors import UserError
from art_e.models.checkpoint import best_device, require_train_extra
from art_e.models.known import ending
from art_e.models.model import Model
from art_e.privacy import load_env
from art_e.storage import home, locked
from evals.judges import needs_model
from training.cli import SetOption, rough, shown_fee
from training.planning import plan
from training.recipe import load_toml
from training.reproduction.chain import STAGES, STAMPS, Profile, Stage, Step, steps
from training.reproduction.report import FIGURES, REPORT, write_report

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(
    epilog=example(
        "art-e reproduce --profile nano",
        "art-e reproduce --profile talk --dry-run",
        "art-e reproduce --profile talk --set max_cost_usd=10 --until baselines",
    )
)
def reproduce(
    profile: Annotated[str, Option(metavar="NAME|FILE", help="nano, talk, or a TOML file.")],
    changes: SetOption = None,
    until: Annotated[
        Stage, Option(metavar="STAGE", help=f"Last stage: {', '.join(STAGES)}.")
    ] = "report",
    dry_run: Annotated[
        bool, Option("--dry-run", help="Show the commands, the plan, and what is missing.")
    ] = False,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Reproduce the talk: mail, questions, baselines, training, test, report.

    The same command again, also after a kill, does what is missing and pays for nothing twice. The
    profile talk asks hosted models and needs a GPU: look at --dry-run first.
    """
    load_env()
    chosen = load_toml(Profile, "profile", profile, changes or ())
    folder = (out or home() / "reproduced" / chosen.name).resolve()
    stages = STAGES[: STAGES.index(until) + 1]
    chain = [each for each in steps(chosen, folder) if each.stage in stages]
    left = [each for each in chain if not each.is_done(folder)]
    missing = _missing(chosen, left)
    paths = (str(folder / name) if until == "report" else None for name in (REPORT, FIGURES))
    report, figures = paths
    if dry_run:
        _show(chosen, chain, left, missing, as_json)
        return
    if missing:
        raise UserError(f"{'; '.join(missing)}. --until STAGE ends before that is needed")
    (folder / STAMPS).mkdir(parents=True, exist_ok=True)
    with locked(folder / ".lock", f"another process works on {folder}; give another --out"):
        for step in steps(chosen, folder):
            if step.stage not in stages:
                break
            if not step.is_done(folder):
                step.do(folder)
        if report:
            names = [each.name for each in steps(chosen, folder) if each.makes_run]
            write_report(chosen, names, folder)
    if as_json:
        print_json({"out": str(folder), "until": until, "report": report, "figures": figures})
    else:
        print_line(f"report: {report}" if report else f"done up to {until}, in {folder}")


def _missing(profile: Profile, left: list[Step]) -> list[str]:
    """What the steps that are left lack on this machine."""
    grpo, judging, found = profile.training.grpo, profile.training.judging, set[str]()
    stages, options = {each.stage for each in left}, ("-m", "--model", "--judge")
    names = {judging.reward, judging.validation} if "grpo" in stages else set[str]()
    for words in (each.words for each in left):
        names |= {name for flag, name in pairwise(words) if flag in options}
    for model in map(Model, filter(needs_model, names)):
        try:
            if model.host is not None:
                model.policy()
                found |= {each for each in [ending(model.name)] if each and " ended " in each}
        except UserError as error:
            found.add(str(error))
    try:
        if stages & {"sft", "grpo", "evaluation"}:
            require_train_extra()
            if grpo and grpo.vllm and best_device()[0] != "cuda":
                found.add(f"training {profile.recipe} needs an NVIDIA GPU, and there is none")
    except UserError as error:
        found.add(str(error))
    return sorted(found)


def _show(
    profile: Profile, chain: list[Step], left: list[Step], missing: list[str], as_json: bool
) -> None:
    takes = plan(profile.training, profile.gpu) if profile.gpu else None
    if as_json:
        rows = [{**each._asdict(), "command": each.line, "left": each in left} for each in chain]
        print_json({"steps": rows, "plan": takes and dataclasses.asdict(takes), "missing": missing})
        return
    print_lines(*(each.line if each in left else f"{each.line}  # done" for each in chain))
    if takes is not None:
        usd = f"${rough(takes.gpu_usd)}, {', '.join(map(shown_fee, takes.judges))}"
        print_lines(f"training on {takes.gpu}: {rough(takes.hours['total'])} h, {usd}")
        print_lines(*(f"it does not fit: {fault}" for fault in takes.faults))
    print_lines(*(f"missing: {reason}" for reason in missing))
