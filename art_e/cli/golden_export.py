"""`art-e golden export`: a golden set's folder as others load it, and on the hub if asked."""

from pathlib import Path
from typing import Annotated

import typer

from art_e.cli.golden_options import SetArgument
from art_e.cli.options import JsonOption, example
from art_e.cli.output import note, plural, print_json, print_line


def export(
    folder: SetArgument,
    to: Annotated[
        Path, typer.Option("--to", metavar="OUT", help="Folder to write; an earlier export goes.")
    ],
    push: Annotated[
        str | None,
        typer.Option("--push", metavar="HUB-ID", help="Upload it to the Hugging Face hub too."),
    ] = None,
    private: Annotated[
        bool, typer.Option("--private/--public", help="Who may see what is pushed.")
    ] = True,
    json_output: JsonOption = False,
) -> None:
    """Write Parquet and JSONL of each split with a card, for load_dataset and --questions.

    Rejected rows are left out. Rows without a split are written as one file, questions.
    """
    from data_pipeline.golden.export import export as export_set
    from data_pipeline.golden.golden_set import GoldenSet

    golden = GoldenSet.load(folder)
    parts = export_set(golden, to)
    left_out = len(golden.rejected)
    url = None
    if push is not None:
        from data_pipeline.golden.hub import push as push_folder

        seen = "private" if private else "public"
        note(f"{plural(sum(parts.values()), 'question')} with answers go to the hub ({seen})")
        url = push_folder(to, push, private=private)
    if json_output:
        print_json({"to": str(to), "questions": parts, "rejected_left_out": left_out, "url": url})
        return
    for name, count in parts.items():
        print_line(f"{count:>7,}  {name}")
    note(f"written to {to}; {plural(left_out, 'rejected row')} left out")
    if any(each.split is None for each in golden.questions):
        note(f"some rows have no split; art-e golden split --out {folder} gives them one")
    if url is not None:
        note(f"pushed to {url}")


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command(
        epilog=example(
            "art-e golden export golden --to published",
            "art-e golden export golden --to published --push me/my-questions",
        )
    )(export)
