"""`export`: a golden set as others load it, with `datasets` or with `--questions`.

    art-e golden export golden --to published

The folder holds a Parquet and a JSONL file of each split, the card and the manifest. Rejected
rows stay behind: they may say anything. Where a row has no split yet, all rows are in one
file of each form. Knows nothing of the hub.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from art_e.errors import UserError
from art_e.question import SPLITS, Question
from data_pipeline.contents import Addresses, Contents
from data_pipeline.export_folder import replacing
from data_pipeline.golden.card import ALL_ROWS, card
from data_pipeline.golden.golden_set import SCHEMA, GoldenSet, write_manifest, write_questions

# The files of questions that an export may have.
QUESTION_FILES = tuple(
    f"{part}.{form}" for part in (*SPLITS, ALL_ROWS) for form in ("parquet", "jsonl")
)
_NAMES = frozenset({"README.md", "manifest.json", *QUESTION_FILES})


def export(golden: GoldenSet, to: Path) -> dict[str, int]:
    """Write the set to the folder `to`; the rows of each part.

    An earlier export there is replaced, whole or not at all. Raises `UserError` where the
    set has no row, or the folder holds something else or can't be written.
    """
    if not golden.questions:
        raise UserError("the set has no row to export; art-e golden stats tells what dropped them")
    parts = _parts(golden.questions)
    with replacing(to, "manifest.json", SCHEMA, _NAMES.__contains__) as folder:
        _write(golden, parts, folder)
    return {name: len(questions) for name, questions in parts.items()}


def contents(golden: GoldenSet) -> Contents:
    """What an export of the set holds."""
    rows = [each.to_row() for each in golden.questions]
    named = {each for row in rows for each in row["message_ids"]}
    addresses = Addresses()
    addresses.add([rows, golden.manifest])
    notes = [f"mails named by their ids: {len(named):,}; of their text what the rows quote"]
    if all(each.provenance.get("model") == "synthetic" for each in golden.questions):
        notes.append("the people and mails are made up")
    return Contents(
        questions=len(rows),
        answers=sum(bool(row["answer"]) for row in rows),
        inboxes=len({row["inbox_address"] for row in rows}),
        addresses=len(addresses),
        notes=tuple(notes),
    )


def _write(golden: GoldenSet, parts: Mapping[str, Sequence[Question]], folder: Path) -> None:
    for name, questions in parts.items():
        write_questions(folder, name, questions)
    files = {name: f"{name}.parquet" for name in parts}
    (folder / "README.md").write_text(card(golden, files), "utf-8")
    write_manifest(folder, golden.manifest)


def _parts(questions: list[Question]) -> dict[str, list[Question]]:
    if any(each.split is None for each in questions):
        return {ALL_ROWS: questions}
    parts = {name: [each for each in questions if each.split == name] for name in SPLITS}
    return {name: rows for name, rows in parts.items() if rows}
