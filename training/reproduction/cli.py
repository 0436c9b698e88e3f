"""`art-e reproduce`: the chain of the talk, from mail to report, in stages that are done once."""

import shutil
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from typer import Option

from art_e.cli.options import JsonOption, OutOption
from art_e.cli.output import console, example, note, one_line, print_json, print_line, text
from art_e.errors import UserError
from art_e.models.checkpoint import require_train_extra
from art_e.privacy import load_env
from art_e.storage import home, locked
from training.cli import duration
from training.reproduction.chain import Cache, chosen_stage
from training.reproduction.chain import reproduce as reproduce_chain
from training.reproduction.forecast import faults, forecast, missing
from training.reproduction.profile import Profile, load_profile
from training.reproduction.report import publish

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
    changes: Annotated[
        list[str] | None,
        Option("--set", metavar="TABLE.FIELD=VALUE", help="Change the profile; repeatable."),
    ] = None,
    until: Annotated[
        str | None,
        Option(
            metavar="STAGE",
            help="Last stage: ingest, golden, prompts, baselines, sft, grpo, evaluation, report.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Show what would be done, its time, cost and disk.")
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
        row = plan_row(chosen, planned, folder)
        if json_output:
            print_json(row)
        else:
            print_plan(row)
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
        ends = units[-1].stage == "report"
        report = publish(units[-1].folder, folder) if ends else None
    if json_output:
        figures = None if report is None else str(report.with_name("figures.json"))
        shown = None if report is None else str(report)
        print_json({"out": str(folder), "until": last, "report": shown, "figures": figures})
    elif report is None:
        print_line(f"done up to {last}, in {folder}")
    else:
        print_line(f"report: {report}")


def plan_row(profile: Profile, units: list[Any], out: Path) -> dict[str, Any]:
    """The plan as JSON:

        {"profile", "out", "units": [{"stage", "unit", "state", "folder", "commands", "seconds",
         "usd", "disk_bytes", "basis"}], "left": {"seconds", "usd", "disk_bytes"}, "free_bytes",
         "faults", "missing"}

    A state is "done", "begun", "to do", or "to do or done" if that depends on earlier steps. A
    step that is done takes nothing more. A sum is null if a part is unknown.
    """
    rows = []
    for unit in units:
        takes = forecast(unit, profile)._asdict()
        basis = takes.pop("basis")
        rows.append(
            {
                "stage": unit.stage,
                "unit": unit.name,
                "state": unit.state,
                "folder": str(unit.folder),
                "commands": list(unit.commands),
                **(dict.fromkeys(takes, 0.0) if unit.state == "done" else takes),
                "basis": basis,
            }
        )
    left: dict[str, Any] = {}
    for name in ("seconds", "usd", "disk_bytes"):
        values = [row[name] for row in rows]
        left[name] = None if None in values else sum(values)
    there = next(each for each in (out, *out.parents) if each.exists())
    return {
        "profile": profile.name,
        "out": str(out),
        "units": rows,
        "left": left,
        "free_bytes": shutil.disk_usage(there).free,
        "faults": faults(profile, units),
        "missing": missing(profile, units),
    }


def print_plan(row: dict[str, Any]) -> None:
    """Print a plan that `plan_row` made."""
    table = Table(
        "stage", "unit", "", "time", "cost", "disk", "source of these", box=None, pad_edge=False
    )
    for column in table.columns[3:6]:
        column.justify = "right"
    for each in row["units"]:
        done = each["state"] == "done"
        left = ["", "", ""] if done else [
            duration(each["seconds"] / 3600), _usd(each["usd"]), _size(each["disk_bytes"])
        ]  # fmt: skip
        cells = [each["stage"], each["unit"], each["state"], *left, "" if done else each["basis"]]
        table.add_row(*(text(cell) for cell in cells))
    left = row["left"]
    table.add_section()
    sums = [duration(left["seconds"] / 3600), _usd(left["usd"]), _size(left["disk_bytes"])]
    table.add_row("in all", "", "left", *sums, text(f"{_size(row['free_bytes'])} are free there"))
    console().print(table)
    print_line()
    for each in row["units"]:
        if each["commands"]:
            print_line(f"# {each['stage']}: {one_line(each['unit'])}")
        for command in each["commands"]:
            print_line(one_line(command))
    for fault in row["faults"]:
        print_line(f"training does not fit: {one_line(fault)}")
    for lacking in row["missing"]:
        print_line(f"missing: {one_line(lacking)}")
    if left["disk_bytes"] > row["free_bytes"]:
        print_line("the disk has too little room: give another --out")


def _usd(usd: float | None) -> str:
    return "unknown" if usd is None else f"${usd:,.2f}"


def _size(size: float) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6)):
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return f"{size / 1e3:,.0f} kB"
