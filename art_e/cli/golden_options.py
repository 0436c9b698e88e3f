"""What the golden commands share: which set, and how a step's sums are printed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from art_e.cli.output import plural, print_json, print_line

if TYPE_CHECKING:
    from data_pipeline.golden.checks import Step
    from data_pipeline.golden.golden_set import GoldenSet

SetOption = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="DIR", help="Folder of the golden set [default: golden in ART_E_HOME]."
    ),
]
SetArgument = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the golden set.")]


def chosen_set(out: Path | None) -> Path:
    """The folder of `--out`, or the default one."""
    from art_e.home import default_golden

    return default_golden() if out is None else out


def print_step(golden: "GoldenSet", step: "Step", folder: Path, *, as_json: bool) -> None:
    """Print what a step did: rows that came, were kept, dropped and mended, and why."""
    from art_e.cli.clean import one_line

    record: dict[str, Any] = golden.manifest["steps"][step]
    if as_json:
        print_json({"set": str(folder), "step": step, **record})
        return
    sums = record["sums"]
    print_line(f"{step}: {plural(sums['in'], 'row')}, {sums['kept']:,} kept")
    for what in ("dropped", "mended", "unsure"):
        for check, count in sums[what].items():
            print_line(f"  {count:>7,}  {what}: {one_line(check)}")
