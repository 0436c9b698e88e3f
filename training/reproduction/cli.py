"""`art-e reproduce`: the chain of the talk, from mail to report, in stages that are done once."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from art_e.cli.options import JsonOption, OutOption
from art_e.cli.output import console, example, note, one_line, print_json, print_line, text
from art_e.errors import UserError
from art_e.models.checkpoint import require_train_extra
from art_e.privacy import load_env
from art_e.storage import home
from training.cli import duration
from training.reproduction.profile import Profile, load_profile

if TYPE_CHECKING:
    from training.reproduction.reproduction import Planned


# ---- What `art-e reproduce --dry-run` prints. Knows nothing of how the figures came about.


def print_plan(row: dict[str, Any]) -> None:
    """Print a plan, as `training.reproduction.cli.plan_row` gives it."""
    from rich.table import Table

    table = Table(
        "stage", "unit", "", "time", "cost", "disk", "how it is known", box=None, pad_edge=False
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
        print_line(f"it does not fit: {one_line(fault)}")
    for lacking in row["missing"]:
        print_line(f"missing: {one_line(lacking)}")
    if left["disk_bytes"] > row["free_bytes"]:
        print_line("there is too little room on the disk: name another --out")


def _usd(usd: float | None) -> str:
    return "not known" if usd is None else f"${usd:,.2f}"


def _size(size: float) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6)):
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return f"{size / 1e3:,.0f} kB"


# ---- `art-e reproduce`: the chain of the talk, from mail to report, in stages that are done once.

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
    profile: Annotated[
        str, typer.Option("--profile", metavar="NAME|FILE", help="nano, talk, or a TOML file.")
    ],
    questions: Annotated[
        str | None,
        typer.Option(
            "--questions",
            metavar="WHICH",
            help="generated, public, world, a file or a hub id [default: the profile's].",
        ),
    ] = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            "--baseline",
            metavar="MODEL",
            help="A further model to measure, and to compare prompts by; may be repeated.",
        ),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="TABLE.FIELD=VALUE", help="Change the profile; repeatable."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="STAGE",
            help="Last stage: ingest, golden, prompts, baselines, sft, grpo, evaluation, report.",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Tell what would be done, its time, cost and disk."),
    ] = False,
    out: OutOption = None,
    json_output: JsonOption = False,
) -> None:
    """Reproduce the talk: mail, questions, prompts, baselines, training, test, report.

    Each stage is done once: run again, killed or not, the same command does what is missing or
    has other inputs than before, and pays for nothing twice. A run of the profile talk asks
    hosted models and needs a GPU: look at --dry-run first.
    """

    require_train_extra()
    from training.reproduction.needs import missing
    from training.reproduction.reproduction import carry_out, chosen_stage, plan
    from training.reproduction.reproduction import until as up_to
    from training.reproduction.units import units_of

    load_env()
    last = chosen_stage(until)
    chosen = load_profile(profile, changes or (), questions=questions, baselines=baseline or ())
    # Whole, so that what it holds can be read from anywhere.
    folder = (out or home() / "reproduced" / chosen.name).resolve()
    units = up_to(units_of(chosen), last)
    planned = plan(units, folder)
    if dry_run:
        row = plan_row(chosen, planned, folder)
        if json_output:
            print_json(row)
        else:
            print_plan(row)
        return
    lacking = missing(chosen, planned)
    if lacking:
        raise UserError(
            f"{'; '.join(lacking)}. --until STAGE ends before that is needed, and --dry-run tells"
            " what needs what"
        )
    note(f"{chosen.name} into {folder}")
    report = carry_out(units, folder, note)
    figures = None if report is None else str(report.with_name("figures.json"))
    if json_output:
        shown = None if report is None else str(report)
        print_json({"out": str(folder), "until": last, "report": shown, "figures": figures})
    elif report is None:
        print_line(f"done up to {last}, in {folder}")
    else:
        print_line(f"report: {report}")


def plan_row(profile: "Profile", planned: "list[Planned]", out: Path) -> dict[str, Any]:
    """The plan as JSON:

        {"profile", "out", "units": [{"stage", "unit", "state", "folder", "commands", "seconds",
         "usd", "disk_bytes", "basis"}], "left": {"seconds", "usd", "disk_bytes"}, "free_bytes",
         "faults", "missing"}

    A state is "done", "begun", "to do", or "to do or done" where that hangs on what comes before.
    What is done has no seconds, dollars and bytes left; a sum is null where a part is not known.
    """
    import shutil

    from training.reproduction.expected import expected_of
    from training.reproduction.needs import faults, missing

    rows = []
    for each in planned:
        unit, done = each.state.unit, each.state.made is not None
        told = expected_of(unit, profile)
        rows.append(
            {
                "stage": unit.stage,
                "unit": unit.name,
                "state": each.state.word,
                "folder": None if each.state.folder is None else str(each.state.folder),
                "commands": each.commands,
                "seconds": 0.0 if done else told.seconds,
                "usd": 0.0 if done else told.usd,
                "disk_bytes": 0.0 if done else told.disk,
                "basis": told.basis,
            }
        )
    left: dict[str, Any] = {}
    for name in ("seconds", "usd", "disk_bytes"):
        values = [row[name] for row in rows]
        left[name] = None if None in values else sum(values)
    there = next(each for each in (out, *out.resolve().parents) if each.exists())
    return {
        "profile": profile.name,
        "out": str(out),
        "units": rows,
        "left": left,
        "free_bytes": shutil.disk_usage(there).free,
        "faults": faults(profile, planned),
        "missing": missing(profile, planned),
    }
