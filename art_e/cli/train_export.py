"""`art-e train export`: a checkpoint with its card for others, and on the hub if asked."""

from pathlib import Path
from typing import Annotated

import typer

from art_e.cli.options import JsonOption, example
from art_e.cli.output import note, print_json
from art_e.cli.push import DryRunOption, PrivateOption, PushOption, ToOption, destination, send


def export(
    checkpoint: Annotated[
        str, typer.Argument(metavar="RUN|DIR", help="Training run, by name or folder; checkpoint.")
    ],
    to: ToOption,
    run: Annotated[
        Path | None,
        typer.Option(
            "--run", metavar="DIR", help="Run that made the checkpoint, where it lies elsewhere."
        ),
    ] = None,
    base_id: Annotated[
        str | None,
        typer.Option("--base-id", metavar="HUB-ID", help="Model that the adapter stands on."),
    ] = None,
    push: PushOption = None,
    private: PrivateOption = True,
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Write a run's best checkpoint, or the one named, as others load it.

    Weights (an adapter's alone, where it is one), tokenizer, model card and recipe. Nothing of
    the trainer's state, no episode, and no path of this machine.
    """
    chosen = destination(push, private, dry_run)
    from art_e.home import runs_folder
    from art_e.runs import find_run
    from training.export import FILES, find_source
    from training.export import export as export_model

    named = Path(checkpoint)
    folder = named if named.is_dir() else find_run(checkpoint, runs_folder()).folder
    source = find_source(folder, run, base_id)
    contents = export_model(source, to)
    on = "" if source.adapter_to is None else f"{source.adapter_to}+"
    note(f"{source.checkpoint.name} written to {to}")
    note(f"  art-e ask --model local:{on}{to} --recipe {to} QUESTION")
    pushed = send(
        to,
        chosen,
        "model",
        contents,
        replaces=FILES,
        message="Model",
        as_json=json_output,
    )
    if json_output:
        told = {
            "to": str(to),
            "checkpoint": str(source.checkpoint),
            "adapter_to": source.adapter_to,
            "files": sorted(each.name for each in to.iterdir()),
        }
        print_json({**told, **pushed})


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command(
        epilog=example(
            "art-e train export trained --to shared",
            "art-e train export trained --to shared --push me/agent --dry-run",
            "art-e train export trained --to shared --push me/agent",
        )
    )(export)
