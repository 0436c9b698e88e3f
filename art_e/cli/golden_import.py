"""`art-e golden import`: questions that others wrote, put to an inbox file."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from art_e.cli.golden_options import SetOption, chosen_new_set, print_step, set_in
from art_e.cli.options import DbOption, JsonOption, chosen_db, db_argument, example
from art_e.cli.output import console, note, print_line, progress, text
from art_e.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

    from data_pipeline.golden.golden_set import GoldenSet


def import_(
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="Parquet or JSONL file, a folder of them, hub id."),
    ],
    db: DbOption = None,
    out: SetOption = None,
    json_output: JsonOption = False,
) -> None:
    """Read questions, check their inboxes and gold mails, report the other offline checks.

    Rows that are no question, or whose inbox or gold mail the inbox file lacks, are
    rejected with the reason. The report drops nothing: filter and verify do.
    """
    from art_e.inbox.file import InboxFile
    from data_pipeline.golden.golden_set import held
    from data_pipeline.golden.importing import import_questions

    folder = chosen_new_set(out)
    _check_source(source, folder)
    with InboxFile(chosen_db(db)) as file, held(folder):
        golden = set_in(folder)
        _check_same(golden, source, folder)
        later = golden.later("import")
        with progress("rows checked", None) as advance:
            import_questions(file, golden, source, advance)
        golden.save(folder)
    print_step(golden, "import", folder, later, as_json=json_output)
    if not json_output:
        print_line("checks that need no model (they drop nothing yet):")
        _print_report(golden.manifest["steps"]["import"]["report"])
        note(f"the set is in {folder}; next: art-e golden filter{db_argument(db)} --out {folder}")


def _check_source(source: str, folder: "Path") -> None:
    """Raise `UserError` where the source is among the files that may be replaced."""
    from pathlib import Path

    path = Path(source)
    if path.exists() and path.resolve().is_relative_to(folder.resolve()):
        raise UserError(f"{source} lies in {folder}, where the set is written; name another --out")


def _check_same(golden: "GoldenSet", source: str, folder: "Path") -> None:
    """Raise `UserError` where the folder's set is of other rows than the source's."""
    from data_pipeline.golden.importing import source_digest, source_name

    steps: dict[str, Any] = golden.manifest["steps"]
    if not steps:
        return
    made = steps.get("import", {})
    if made.get("source") != source_name(source):
        raise UserError(f"{folder} holds another golden set; name another --out")
    if made.get("digest") != source_digest(source):
        raise UserError(
            f"{folder} holds a golden set of other rows than {source} has; name another --out"
        )


def _print_report(report: dict[str, dict[str, Any]]) -> None:
    from rich.table import Table

    from art_e.cli.clean import one_line

    table = Table("check", "passed", "failed", "unsure", "such as", box=None, pad_edge=False)
    for column in table.columns[1:4]:
        column.justify = "right"
    for name, found in report.items():
        rows = found["examples"]
        first = one_line(f"{rows[0]['id']}: {rows[0]['reason']}") if rows else ""
        counts = [f"{found[each]:,}" for each in ("passed", "failed", "unsure")]
        table.add_row(text(name), *counts, text(first))
    console().print(table)


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command(
        "import",
        epilog=example(
            "art-e golden import corbt/enron_emails_sample_questions --db enron.duckdb"
            " --out golden",
            "art-e golden import world.questions.jsonl --db world.duckdb --out world-golden",
        ),
    )(import_)
