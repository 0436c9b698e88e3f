"""What the golden commands share: which set, and how a step's sums are printed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from art_e.cli.output import (
    note,
    one_line,
    plural,
    print_json,
    print_line,
)
from art_e.errors import UserError
from art_e.storage import default_golden
from data_pipeline.golden.golden_set import READY, SET_FILES, GoldenSet, Step

SetOption = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="DIR", help="Folder of the golden set [default: golden in ART_E_HOME]."
    ),
]
SetArgument = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the golden set.")]


def chosen_set(out: Path | None) -> Path:
    """The folder of `--out`, or the default one."""

    return default_golden() if out is None else out


def chosen_new_set(out: Path | None) -> Path:
    """The folder of `--out`, or the default one, to make a set in.

    Raises `UserError` where it holds no set, but files of the names that a set's have.
    """

    folder = chosen_set(out)
    # The second is there where a kill came while the set was written.
    if not any((folder / each).exists() for each in ("manifest.json", READY)):
        for each in SET_FILES:
            if (folder / each).exists():
                raise UserError(
                    f"{folder} holds other files, and a {each}; name a new folder with --out"
                )
    return folder


def set_in(folder: Path) -> "GoldenSet":
    """The set that is in the folder, which is held, or a new one."""

    return GoldenSet.load(folder) if (folder / "manifest.json").exists() else GoldenSet()


def print_step(
    golden: "GoldenSet", step: "Step", folder: Path, later: "Sequence[Step]", *, as_json: bool
) -> None:
    """Print what a step did: rows that came, were kept, dropped and mended, and why.

    `later` are the steps that it took back, as `GoldenSet.later` named them before it.
    """

    if later:
        note(f"{step} anew: {', '.join(later)} must be run again")
    record: dict[str, Any] = golden.manifest["steps"][step]
    if as_json:
        print_json({"set": str(folder), "step": step, **record})
        return
    sums = record["sums"]
    print_line(f"{step}: {plural(sums['in'], 'row')}, {sums['kept']:,} kept")
    for what in ("dropped", "mended", "unsure"):
        for check, count in sums[what].items():
            print_line(f"  {count:>7,}  {what}: {one_line(check)}")
