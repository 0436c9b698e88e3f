"""`art-e golden export`: a golden set's folder as others load it, and on the hub if asked."""

import typer

from art_e.cli.golden_options import SetArgument
from art_e.cli.options import JsonOption, example
from art_e.cli.output import note, plural, print_json, print_line
from art_e.cli.push import DryRunOption, PrivateOption, PushOption, ToOption, destination, send


def export(
    folder: SetArgument,
    to: ToOption,
    push: PushOption = None,
    private: PrivateOption = True,
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Write Parquet and JSONL of each split with a card, for load_dataset and --questions.

    Rejected rows are left out. Rows without a split are written as one file, questions.
    """
    chosen = destination(push, private, dry_run)
    from data_pipeline.golden.export import QUESTION_FILES, contents
    from data_pipeline.golden.export import export as export_set
    from data_pipeline.golden.golden_set import GoldenSet

    golden = GoldenSet.load(folder)
    parts = export_set(golden, to)
    left_out = len(golden.rejected)
    if not json_output:
        for name, count in parts.items():
            print_line(f"{count:>7,}  {name}")
        note(f"written to {to}; {plural(left_out, 'rejected row')} left out")
        if any(each.split is None for each in golden.questions):
            note(f"some rows have no split; art-e golden split --out {folder} gives them one")
    pushed = send(
        to,
        chosen,
        "dataset",
        contents(golden),
        replaces=QUESTION_FILES,
        message="Golden set",
        as_json=json_output,
    )
    if json_output:
        told = {"to": str(to), "questions": parts, "rejected_left_out": left_out}
        print_json({**told, **pushed})


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command(
        epilog=example(
            "art-e golden export golden --to published",
            "art-e golden export golden --to published --push me/my-questions --dry-run",
            "art-e golden export golden --to published --push me/my-questions",
        )
    )(export)
