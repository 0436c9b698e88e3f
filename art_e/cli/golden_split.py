"""`art-e golden split`: inboxes into train, validation and test, without leaks between them.

Knows what the user chose and what is printed; the splitting is
`data_pipeline.golden.split`'s.
"""

from typing import Annotated, Any

import typer

from art_e.cli.golden_options import SetOption, chosen_set, print_step
from art_e.cli.options import DbOption, JsonOption, chosen_db, example
from art_e.cli.output import note, plural

# As data_pipeline.golden.inboxes has them, which would cost its imports here.
_TRAIN, _VALIDATION, _TEST = 18, 2, 8


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command(
        name="split",
        epilog=example(
            "art-e golden split --db enron.duckdb --out golden",
            "art-e golden split --seed 7 --train 10 --validation 2 --test 4 --out golden",
        ),
    )(split)


def split(
    seed: Annotated[int, typer.Option("--seed", help="Another seed draws other inboxes.")] = 0,
    train: Annotated[
        int, typer.Option("--train", metavar="N", min=0, help="Inboxes to train on, in proportion.")
    ] = _TRAIN,
    validation: Annotated[
        int,
        typer.Option("--validation", metavar="N", min=0, help="Inboxes that choose checkpoints."),
    ] = _VALIDATION,
    test: Annotated[
        int, typer.Option("--test", metavar="N", min=0, help="Inboxes to measure on.")
    ] = _TEST,
    db: DbOption = None,
    out: SetOption = None,
    json_output: JsonOption = False,
) -> None:
    """Part the set by inbox; drop rows whose gold mails another split knows.

    Inboxes that have splits already, drawn by generate or carried by the rows, keep them;
    others are drawn by --seed. No mail, copies included, stays gold in two splits, and no
    mail of a test inbox in train or validation; rows go from train first, never from test.
    """
    from art_e.cli.golden_tables import print_leaks
    from art_e.inbox.file import InboxFile
    from data_pipeline.golden.golden_set import GoldenSet, check_db, held
    from data_pipeline.golden.inboxes import Counts
    from data_pipeline.golden.split import split as apply_split

    folder = chosen_set(out)
    with held(folder), InboxFile(chosen_db(db)) as file:
        golden = GoldenSet.load(folder)
        check_db(golden, file)
        later = golden.later("split")
        apply_split(file, golden, seed=seed, wanted=Counts(train, validation, test))
        golden.save(folder)
    record: dict[str, Any] = golden.manifest["steps"]["split"]
    print_step(golden, "split", folder, later, as_json=json_output)
    if not json_output:
        print_leaks(record["leaks"])
    for line in _origin(record):
        note(line)
    empty = [
        name
        for name, inboxes in record["inboxes"].items()
        if inboxes and not any(each.split == name for each in golden.questions)
    ]
    if empty:
        note(f"no row is left in {' and '.join(empty)}")


def _origin(record: dict[str, Any]) -> list[str]:
    """How the inboxes came by their splits, and what follows from their number."""
    inboxes: dict[str, int] = record["inboxes"]
    total = sum(inboxes.values())
    counts = ", ".join(f"{count} {name}" for name, count in inboxes.items())
    if record["splits_from"] != "seed":
        how = {"generate": "as generate drew them", "rows": "as the rows came with them"}
        told = how[record["splits_from"]]
        no_say = "--seed and the numbers of inboxes have no say"
        return [f"{plural(total, 'inbox')}: {counts}, {told} ({no_say})"]
    lines = [f"{plural(total, 'inbox')}: {counts}, drawn by seed {record['seed']}"]
    wanted: dict[str, int] = record["proportions"]
    lacking = [name for name, count in inboxes.items() if wanted[name] and not count]
    if total == 1:
        lines.append(
            "a single inbox can't be parted: all its rows are in one split, since mail that a"
            " model was trained on measures nothing"
        )
    elif lacking:
        lines.append(f"too few inboxes for all splits: none is in {' and '.join(lacking)}")
    return lines
