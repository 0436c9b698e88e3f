"""What `art-e reproduce --dry-run` prints. Knows nothing of how the figures came about."""

from typing import Any

from art_e.cli.clean import one_line
from art_e.cli.output import console, print_line, text
from art_e.cli.plan_tables import duration


def print_plan(row: dict[str, Any]) -> None:
    """Print a plan, as `art_e.cli.reproduce.plan_row` gives it."""
    from rich.table import Table

    table = Table(
        "stage", "unit", "", "time", "cost", "disk", "how it is known", box=None, pad_edge=False
    )
    for column in table.columns[3:6]:
        column.justify = "right"
    for each in row["units"]:
        done = each["state"] == "done"
        left = ["", "", ""] if done else [
            duration(each["seconds"]), _usd(each["usd"]), _size(each["disk_bytes"])
        ]  # fmt: skip
        cells = [each["stage"], each["unit"], each["state"], *left, "" if done else each["basis"]]
        table.add_row(*(text(cell) for cell in cells))
    left = row["left"]
    table.add_section()
    sums = [duration(left["seconds"]), _usd(left["usd"]), _size(left["disk_bytes"])]
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
