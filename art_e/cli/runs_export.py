"""`art-e runs export`: a run's episodes as a data set for others, and on the hub if asked."""

from typing import Annotated

import typer

from art_e.cli.options import JsonOption, chosen_split, example
from art_e.cli.output import note, plural, print_json, print_line
from art_e.cli.push import DryRunOption, PrivateOption, PushOption, ToOption, destination, send


def export(
    name: Annotated[str, typer.Argument(metavar="RUN", help="Name of a run, or its folder.")],
    to: ToOption,
    split: Annotated[
        str | None,
        typer.Option("--split", help="Episodes on questions of train, validation or test alone."),
    ] = None,
    push: PushOption = None,
    private: PrivateOption = True,
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Write a run's episodes as Parquet with a card, for datasets.load_dataset.

    They hold the text of mail. Keys and the paths of this machine are cut out.
    """
    chosen = destination(push, private, dry_run)
    wanted = chosen_split(split)
    from art_e.home import runs_folder
    from art_e.runs import find_run
    from data_pipeline.rollouts.export import FILES
    from data_pipeline.rollouts.export import export as export_run

    run = find_run(name, runs_folder())
    exported = export_run(run, to, wanted)
    if not json_output:
        for part, count in exported.parts.items():
            print_line(f"{count:>7,}  {part}")
        note(f"{plural(sum(exported.parts.values()), 'episode')} written to {to}")
        if not run.complete:
            note("the run is not complete; these are its episodes so far")
    pushed = send(
        to,
        chosen,
        "dataset",
        exported.contents,
        replaces=FILES,
        message="Rollouts",
        as_json=json_output,
    )
    if json_output:
        told = {"to": str(to), "episodes": exported.parts}
        print_json({**told, "contents": exported.contents.to_json(), **pushed})


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command(
        epilog=example(
            "art-e runs export 20260101-120000-eval --to rollouts",
            "art-e runs export trained --to rollouts --push me/rollouts --dry-run",
            "art-e runs export trained --to rollouts --push me/rollouts",
        )
    )(export)
