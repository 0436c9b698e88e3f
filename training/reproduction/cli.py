"""`art-e reproduce`: the chain of the talk, from mail to report, in stages that are done once."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from art_e.cli.options import JsonOption, OutOption
from art_e.cli.output import example, note, one_line, print_json, print_line
from art_e.errors import UserError
from art_e.models.checkpoint import require_train_extra
from art_e.models.model import Model
from art_e.privacy import load_env
from art_e.storage import home, locked
from evals.benchmark import model_name
from evals.judges import needs_model
from training.cli import SetOption, duration
from training.judging import is_paid
from training.planning import gpu_of, plan
from training.reproduction.chain import Stage, Step, chosen_stage
from training.reproduction.chain import reproduce as reproduce_chain
from training.reproduction.profile import GENERATED, Profile, load_profile
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
        Option(metavar="MODEL", help="A further model to measure; may be repeated."),
    ] = None,
    changes: SetOption = None,
    until: Annotated[
        str | None,
        Option(
            metavar="STAGE",
            help="Last stage: ingest, golden, baselines, sft, grpo, evaluation, report.",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        Option("--dry-run", help="Show the commands, their limits of cost, and what is missing."),
    ] = False,
    out: OutOption = None,
    json_output: JsonOption = False,
) -> None:
    """Reproduce the talk: mail, questions, baselines, training, test, report.

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
    planned = reproduce_chain(chosen, folder, last)
    lacking = _missing(chosen, planned)
    if dry_run:
        row = _plan_row(chosen, planned, folder, lacking)
        (print_json if json_output else _print_plan)(row)
        return
    if lacking:
        raise UserError(
            f"{'; '.join(lacking)}. --until STAGE ends before that is needed, and --dry-run shows"
            " what needs what"
        )
    note(f"{chosen.name} into {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    busy = f"another process works on {folder}; wait for its end, or give another --out"
    with locked(folder / _LOCK, busy):
        done = reproduce_chain(chosen, folder, last, note)
        report = publish(done[-1].folder, folder) if last == "report" else None
    if json_output:
        shown = {} if report is None else {"report": report, "figures": folder / FIGURES}
        files = {name: str(path) for name, path in shown.items()}
        print_json({"out": str(folder), "until": last, "report": None, "figures": None, **files})
    elif report is None:
        print_line(f"done up to {last}, in {folder}")
    else:
        print_line(f"report: {report}")


# ---- What is missing on this machine.


def _missing(profile: Profile, planned: Sequence[Step]) -> list[str]:
    """What the steps that are not done lack on this machine, a line each."""
    left = {each.stage for each in planned if each.state != "done"}
    models = dict.fromkeys(name for stage, name in _models(profile) if stage in left)
    found = [reason for name in models if (reason := _why_not(name)) is not None]
    grpo = profile.recipe.grpo
    needs_gpu = grpo is not None and grpo.vllm is not None
    if left & {"grpo", "sft"} and needs_gpu and not _has_gpu():
        found.append(f"training {profile.recipe.name} needs an NVIDIA GPU, and there is none")
    return list(dict.fromkeys(found))


def _models(profile: Profile) -> Iterator[tuple[Stage, str]]:
    """The models that are asked, as litellm names them, with the stage that asks them."""
    golden, judging = profile.golden, profile.recipe.judging
    if golden.questions == GENERATED:
        yield "golden", golden.writer
    yield "golden", golden.reader
    yield from (("golden", each) for each in filter(needs_model, [golden.judge]))
    yield from (("baselines", model_name(each)) for each in profile.baselines.models)
    for judge in filter(needs_model, profile.judges):
        yield "baselines", judge
        yield "evaluation", judge
    yield from (("grpo", each) for each in filter(is_paid, (judging.reward, judging.validation)))


def _why_not(name: str) -> str | None:
    """Why a hosted model can't be asked from here; None if it can."""
    model = Model(name)
    try:
        if model.kind == "hosted":
            _ = model.host
            model.policy()
    except UserError as error:
        return str(error)
    return None


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


# ---- The plan of `--dry-run`.


def _plan_row(
    profile: Profile, planned: Sequence[Step], out: Path, lacking: Sequence[str]
) -> dict[str, Any]:
    """The plan as JSON:

        {"profile", "out", "steps": [{"stage", "step", "state", "folder", "commands",
         "max_cost_usd"}], "training": {"gpu", "hours", "usd", "faults"}, "missing"}

    A state is "done", "begun" or "to do". `training` is null if it needs no GPU or is not reached.
    """
    training, gpu = None, profile.training.gpu
    if gpu is not None and any(each.stage == "grpo" for each in planned):
        takes = plan(profile.recipe, gpu_of(gpu))
        usd = None if takes.judge_usd is None else takes.gpu_usd + takes.judge_usd
        training = {"gpu": takes.gpu, "hours": takes.hours, "usd": usd, "faults": takes.faults}
    rows = [
        {
            "stage": each.stage,
            "step": each.name,
            "state": each.state,
            "folder": str(each.folder),
            "commands": each.commands,
            "max_cost_usd": each.max_cost_usd,
        }
        for each in planned
    ]
    return {
        "profile": profile.name,
        "out": str(out),
        "steps": rows,
        "training": training,
        "missing": list(lacking),
    }


def _print_plan(row: dict[str, Any]) -> None:
    for step in row["steps"]:
        limit, left = step["max_cost_usd"], step["state"] != "done"
        most = f", at most ${limit:g}" if limit is not None and left else ""
        print_line(f"# {step['stage']}: {one_line(step['step'])}, {step['state']}{most}")
        for command in step["commands"] if left else ():
            print_line(one_line(command))
    if (takes := row["training"]) is not None:
        usd = (
            "an unknown price" if takes["usd"] is None else f"${takes['usd']:,.2f} with its judges"
        )
        print_line(
            f"training on {takes['gpu']}: {duration(takes['hours'])}, {usd}; art-e train plan has"
            " the details"
        )
        for fault in takes["faults"]:
            print_line(f"training does not fit: {one_line(fault)}")
    for lacking in row["missing"]:
        print_line(f"missing: {one_line(lacking)}")
