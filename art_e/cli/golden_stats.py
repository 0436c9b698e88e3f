"""`art-e golden stats`: what is in a golden set, and what each step dropped and why."""

import typer

from art_e.cli.golden_options import SetArgument
from art_e.cli.options import JsonOption, example
from art_e.cli.output import note, plural, print_json


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command(
        name="stats",
        epilog=example("art-e golden stats golden", "art-e golden stats golden --json"),
    )(stats)


def stats(folder: SetArgument, json_output: JsonOption = False) -> None:
    """Print the set's figures; draw lengths, dates, kinds and what was dropped in DIR/plots."""
    from art_e.cli.golden_tables import print_stats
    from data_pipeline.golden.golden_set import GoldenSet
    from data_pipeline.golden.plots import write_plots
    from data_pipeline.golden.stats import stats as figures_of

    golden = GoldenSet.load(folder)
    figures = figures_of(golden, folder)
    if json_output:
        print_json({"set": str(folder), **figures})
    else:
        print_stats(figures)
    plots = folder / "plots"
    try:
        written = write_plots(golden, figures, plots)
    except OSError as error:
        # A set that can only be read has figures too.
        note(f"no plots: can't write to {plots}: {error.strerror}")
    else:
        note(f"{plural(len(written), 'plot')} in {plots}")
