"""`art-e golden filter`: drop what is wrong by rule, without a model."""

from typing import Annotated

import typer

from art_e.cli.golden_options import SetOption, chosen_set, print_step
from art_e.cli.options import DbOption, JsonOption, chosen_db, db_argument, example
from art_e.cli.output import note

# `filtering.MIN_REALISM`, which is not imported for a help page; a test compares them.
MIN_REALISM = 0.7


def filter_(
    db: DbOption = None,
    out: SetOption = None,
    min_realism: Annotated[
        float,
        typer.Option(
            "--min-realism", metavar="X", min=0.0, max=1.0, help="Least realism, from 0 to 1."
        ),
    ] = MIN_REALISM,
    json_output: JsonOption = False,
) -> None:
    """Drop questions that break a rule, and duplicates; each is kept with its reason.

    Rules: an answer, cited mails that are in the inbox, no message ids, no answer in the
    question, the owner's own words, and realism. A rerun starts from the rows before it.
    """
    from art_e.inbox.file import InboxFile
    from data_pipeline.golden.filtering import STEP, filter_rows
    from data_pipeline.golden.golden_set import GoldenSet, check_db, held

    folder = chosen_set(out)
    with InboxFile(chosen_db(db)) as file, held(folder):
        golden = GoldenSet.load(folder)
        check_db(golden, file)
        later = golden.later(STEP)
        filter_rows(file, golden, min_realism=min_realism)
        golden.save(folder)
    print_step(golden, STEP, folder, later, as_json=json_output)
    if not json_output:
        note(
            "dropped rows are in rejected.jsonl; next: art-e golden verify"
            f"{db_argument(db)} --out {folder}"
        )


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command(
        "filter",
        epilog=example("art-e golden filter --db enron.duckdb --out golden --min-realism 0.6"),
    )(filter_)
