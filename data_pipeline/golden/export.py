"""`export`: a golden set as others load it, with `datasets` or with `--questions`.

    art-e golden export golden --to published

The folder holds a Parquet and a JSONL file of each split, the card and the manifest. Rejected
rows stay behind: they may say anything. Where a row has no split yet, all rows are in one
file of each form. Knows nothing of the hub.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from art_e.errors import UserError
from art_e.question import SPLITS, Question
from data_pipeline.golden.card import ALL_ROWS, card
from data_pipeline.golden.golden_set import SCHEMA, GoldenSet, write_manifest, write_questions

# The files of questions that an export may have.
QUESTION_FILES = tuple(
    f"{part}.{form}" for part in (*SPLITS, ALL_ROWS) for form in ("parquet", "jsonl")
)
_NAMES = frozenset({"README.md", "manifest.json", *QUESTION_FILES})


def export(golden: GoldenSet, to: Path) -> dict[str, int]:
    """Write the set to the folder `to`; the rows of each part.

    An earlier export there is replaced, whole or not at all; one that a kill left moved
    aside, in `.OUT.earlier`, is put back first. Raises `UserError` where the set has no row,
    or the folder holds something else or can't be written.
    """
    if not golden.questions:
        raise UserError("the set has no row to export; art-e golden stats tells what dropped them")
    target = to.resolve()
    partial, earlier = (target.with_name(f".{target.name}.{end}") for end in ("partial", "earlier"))
    try:
        if earlier.exists() and not target.exists():
            earlier.rename(target)
        _check_free(target)
        parts = _parts(golden.questions)
        _write(golden, parts, partial)
        _remove(earlier)
        if target.exists():
            target.rename(earlier)
        partial.rename(target)
        _remove(earlier)
    except OSError as error:
        reason = error.strerror or " ".join(str(error).split())
        raise UserError(f"can't write to {to}: {reason}; name another --to") from None
    return {name: len(questions) for name, questions in parts.items()}


def _write(golden: GoldenSet, parts: Mapping[str, Sequence[Question]], folder: Path) -> None:
    """Write the export into the folder, which is made; what a kill left there goes."""
    _remove(folder)
    folder.mkdir(parents=True)
    for name, questions in parts.items():
        write_questions(folder, name, questions)
    files = {name: f"{name}.parquet" for name in parts}
    (folder / "README.md").write_text(card(golden, files), "utf-8")
    write_manifest(folder, golden.manifest)


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _parts(questions: list[Question]) -> dict[str, list[Question]]:
    if any(each.split is None for each in questions):
        return {ALL_ROWS: questions}
    parts = {name: [each for each in questions if each.split == name] for name in SPLITS}
    return {name: rows for name, rows in parts.items() if rows}


def _check_free(folder: Path) -> None:
    if not folder.exists():
        return
    held = {each.name for each in folder.iterdir()}
    if held and (held - _NAMES or _schema(folder / "manifest.json") != SCHEMA):
        raise UserError(f"{folder} holds something else than an export; name another --to")


def _schema(manifest: Path) -> Any:
    try:
        return json.loads(manifest.read_bytes())["schema"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
