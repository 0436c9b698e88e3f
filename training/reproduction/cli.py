"""`art-e reproduce`: the chain of the talk, from mail to report, in commands that are run once."""

from typing import Annotated

import typer
from typer import Option

from art_e.cli.options import JsonOption, OutOption
from art_e.cli.output import example, print_json, print_line, print_lines
from art_e.errors import UserError
from art_e.models.checkpoint import best_device, require_train_extra
from art_e.models.model import Model
from art_e.privacy import load_env
from art_e.storage import home, locked
from evals.judges import needs_model
from training.cli import SetOption, rough
from training.planning import plan
from training.recipe import load_toml
from training.reproduction.chain import STAGES, STAMPS, Profile, Stage, Step, steps
from training.reproduction.report import FIGURES, REPORT, write_report

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(
    epilog=example(
        "art-e reproduce --profile nano",
        "art-e reproduce --profile nano --set seeds=[0,1,2]",
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
    json_output: JsonOption = False,
) -> None:
    """Reproduce the talk: mail, questions, baselines, training, test, report.

    Run again, also after a kill, the same command does what is missing, and pays for nothing twice.
    The profile talk asks hosted models and needs a GPU: look at --dry-run first.
    """
    load_env()
    chosen = load_toml(Profile, "profile", profile, changes or ())
    folder = (out or home() / "reproduced" / chosen.name).resolve()
    stages = STAGES[: STAGES.index(until) + 1]
    planned = [each for each in steps(chosen, folder) if each.stage in stages]
    chain = [(each, each.is_done(folder)) for each in planned]
    missing = _missing(chosen, [each for each, done in chain if not done])
    report, figures = (
        str(folder / name) if until == "report" else None for name in (REPORT, FIGURES)
    )
    if dry_run:
        _show(chosen, chain, missing, json_output)
        return
    if missing:
        raise UserError(f"{'; '.join(missing)}. --until STAGE ends before that is needed")
    (folder / STAMPS).mkdir(parents=True, exist_ok=True)
    busy = f"another process works on {folder}; wait for its end, or give another --out"
    with locked(folder / ".lock", busy):
        for step in steps(chosen, folder):
            if step.stage not in stages:
                break
            if not step.is_done(folder):
                step.do(folder)
        if report:
            runs = {each.name: folder / each.name for each in steps(chosen, folder) if each.resumes}
            write_report(chosen, runs, folder)
    if json_output:
        print_json({"out": str(folder), "until": until, "report": report, "figures": figures})
    else:
        print_line(f"report: {report}" if report else f"done up to {until}, in {folder}")


def _missing(profile: Profile, left: list[Step]) -> list[str]:
    """What the steps that are left lack on this machine."""
    judging, named = profile.training.judging, set[str]()
    for step in left:
        named |= {
            name
            for option, name in zip(step.words, step.words[1:], strict=False)
            if option in ("-m", "--model", "--judge")
        }
        named |= {judging.reward, judging.validation} if step.stage == "grpo" else set()
    found = set(filter(None, map(_why_not, named)))
    grpo, stages = profile.training.grpo, {each.stage for each in left}
    try:
        if stages & {"sft", "grpo", "evaluation"}:
            require_train_extra()
        if "grpo" in stages and grpo and grpo.vllm and best_device()[0] != "cuda":
            found.add(f"training {profile.recipe} needs an NVIDIA GPU, and there is none")
    except UserError as error:
        found.add(str(error))
    return sorted(found)


def _why_not(name: str) -> str | None:
    """Why a model can't be asked from here; None if it can, or if `name` is not a hosted model."""
    model = Model(name)
    try:
        if needs_model(name) and model.kind == "hosted":
            _ = model.host
            model.policy()
    except UserError as error:
        return str(error)
    return None


def _show(
    profile: Profile, chain: list[tuple[Step, bool]], missing: list[str], json_output: bool
) -> None:
    takes = plan(profile.training, profile.gpu) if profile.gpu else None
    hours = 0.0 if takes is None else takes.hours["total"]
    usd = 0.0 if takes is None else takes.gpu_usd + sum(each.usd or 0 for each in takes.judges)
    if json_output:
        rows = [
            {"stage": step.stage, "name": step.name, "command": step.line, "done": done}
            for step, done in chain
        ]
        training = {"hours": hours, "usd": usd} if takes else None
        print_json({"steps": rows, "training": training, "missing": missing})
        return
    print_lines(*(f"{step.line}{'  # done' * done}" for step, done in chain))
    if takes is not None:
        print_lines(f"training: {rough(hours)} h on {takes.gpu}, ${rough(usd)} with judges")
        print_lines(*(f"training does not fit: {fault}" for fault in takes.faults))
    print_lines(*(f"missing: {reason}" for reason in missing))
