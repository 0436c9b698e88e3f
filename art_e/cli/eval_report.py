"""`art-e eval report`: runs as one page that can be read, sent and kept.

Heavy imports are made inside the function.
"""

from pathlib import Path
from typing import Annotated

import typer

from art_e.cli.options import JsonOption, example


def register(app: typer.Typer) -> None:
    """Add the command `report` to the group."""
    app.command(
        epilog=example(
            "art-e eval report 20260101-120000-eval",
            "art-e eval report runs/baselines runs/training --out report",
        )
    )(report)


def report(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Names or folders of runs.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Where to write [default: the first run]."),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Write report.html, which works without network or server, and its charts as PNGs."""
    from art_e.cli.output import console, plural, print_json, text
    from art_e.home import runs_folder
    from art_e.runs import find_run
    from evals.report.build import build_report

    found = [find_run(each, runs_folder()) for each in runs]
    distinct = list({each.folder.resolve(): each for each in found}.values())
    folder = out or distinct[0].folder
    page, *plots = build_report(distinct, folder)
    if json_output:
        print_json({"report": str(page), "plots": [str(each) for each in plots]})
        return
    screen = console()
    screen.print(text(f"report: {page}"), soft_wrap=True)
    screen.print(text(f"{plural(len(plots), 'plot')}: {folder / 'plots'}"), soft_wrap=True)
