"""`export`: a golden set as others load it, with `datasets` or with `--questions`.

    art-e golden export golden --to published

The folder holds a Parquet and a JSONL file of each split, the card and the manifest. Rejected
rows stay behind: they may say anything. Where a row has no split yet, all rows are in one
file of each form. Knows nothing of the hub.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from art_e.errors import UserError
from art_e.publish import Own, template
from art_e.question import DIFFICULTIES, KINDS, SPLITS, Question
from data_pipeline.golden.golden_set import (
    SCHEMA,
    STEPS,
    GoldenSet,
    checks_of,
    marks_of,
    write_manifest,
    write_questions,
)
from data_pipeline.sharing import Addresses, Contents, dataset_card, replacing

# ---- The card of a golden set: its README.md, the same for all sets however they were made.

# What `datasets.load_dataset` calls rows that are in one file, whatever their splits.
ALL_ROWS = "questions"
# Told in sections of their own.
_TOLD = frozenset({"sums", "report", "leaks", "precision", "reviewed", "kept", "edited", "dropped"})
_SHARED = {
    "shared_gold": "mails that are gold in both",
    "shared_questions": "questions of the same words in both",
    "gold_in_inboxes": "gold mails of the first in inboxes of the second",
}


class _Checked(NamedTuple):
    """One check of the rows that are kept."""

    name: str
    step: str
    by: str
    passed: int
    unsure: int
    unchecked: int


def card(golden: "GoldenSet", files: Mapping[str, str] | None = None) -> str:
    """The README.md of the set.

    `files` names the Parquet file of each part that `load_dataset` is to give; without it
    all rows are in `questions.parquet`.
    """
    parts = {ALL_ROWS: f"{ALL_ROWS}.parquet"} if files is None else files
    manifest = golden.manifest
    steps: dict[str, dict[str, Any]] = manifest["steps"]
    taken = [name for name in STEPS if name in steps]
    rows = golden.questions
    db: dict[str, Any] = manifest.get("db") or {}
    text = template("data_pipeline.golden", "card.md.j2").render(
        front_matter=Own(
            dataset_card("ART-E golden set", parts, len(rows), tags=["email", "agent", "retrieval"])
        ),
        rows=len(rows),
        inboxes=len({each.inbox_address for each in rows}),
        unanswerable=sum(each.answerable is False for each in rows),
        parts=list(parts),
        by_split=_by_split(golden),
        kinds=_table(golden, "kind", KINDS),
        difficulties=_table(golden, "difficulty", DIFFICULTIES),
        db=db,
        seed=None if manifest.get("seed") is None else str(manifest["seed"]),
        batches=len(golden.batches),
        batch_mails=sum(len(each.message_ids) for each in golden.batches),
        writers=_writers(golden),
        synthetic=bool(rows) and all(each.provenance.get("model") == "synthetic" for each in rows),
        taken=taken,
        settings={name: _settings(steps[name]) for name in taken},
        sums={name: steps[name]["sums"] for name in taken},
        report=steps.get("import", {}).get("report", {}),
        checked=_checked(golden),
        unverified=sum(
            all(check.step != "verify" for check in checks_of(each).values()) for each in rows
        ),
        marks=dict(sorted(Counter(mark for each in rows for mark in marks_of(each)).items())),
        words_only=steps.get("verify", {}).get("model") == "offline",
        strict=steps.get("verify", {}).get("strict"),
        shared=_SHARED,
        split=steps.get("split"),
        review=steps.get("review"),
        has_test=any(each.split == "test" for each in rows),
    )
    return f"{text.rstrip()}\n"


def _by_split(golden: "GoldenSet") -> list[tuple[str, int, int]]:
    """Of each split its rows and its inboxes."""
    found: list[tuple[str, int, int]] = []
    for split in (*SPLITS, None):
        rows = [each for each in golden.questions if each.split == split]
        if rows:
            inboxes = len({each.inbox_address for each in rows})
            found.append((split or "no split yet", len(rows), inboxes))
    return found


def _table(golden: "GoldenSet", field: str, values: tuple[str, ...]) -> dict[str, list[int]]:
    """Rows by the field's values and, as in `_by_split`, by split; and their sum."""
    counts = Counter((getattr(each, field), each.split) for each in golden.questions)
    splits = [each for each in (*SPLITS, None) if any(split == each for _, split in counts)]
    table = {}
    for value in (*values, None):
        row = [counts[value, split] for split in splits]
        if any(row):
            table[value or "not told"] = [*row, sum(row)]
    return table


def _writers(golden: "GoldenSet") -> list[tuple[str, str, int]]:
    """Model, prompt and number of rows, most rows first; rows of no model are left out."""
    counts = Counter(
        (str(each.provenance["model"]), str(each.provenance.get("prompt") or "-"))
        for each in golden.questions
        if each.provenance.get("model")
    )
    return [(*key, counts[key]) for key in sorted(counts, key=lambda key: (-counts[key], key))]


def _settings(step: Mapping[str, Any]) -> dict[str, str]:
    """How a step was run: what can be told in a line."""
    told = {name: _told(value) for name, value in sorted(step.items()) if name not in _TOLD}
    return {name: value for name, value in told.items() if value}


def _told(value: object) -> str:
    """A setting in words; nothing where it is none, or has parts of its own."""
    if isinstance(value, dict) and all(isinstance(of, str | int | float) for of in value.values()):
        return ", ".join(f"{name} {of}" for name, of in value.items())
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ", ".join(value)
    return str(value) if isinstance(value, str | int | float) else ""


def _checked(golden: "GoldenSet") -> list[_Checked]:
    """Each check of the rows that are kept, in the order of the steps."""
    rows = [checks_of(each) for each in golden.questions]
    named = {
        (STEPS.index(each.step), each.name, each.step) for row in rows for each in row.values()
    }
    found = []
    for _, name, step in sorted(named):
        checks = [each[name] for each in rows if name in each and each[name].step == step]
        unsure = sum(each.passed is None for each in checks)
        by = ", ".join(sorted({each.by for each in checks}))
        passed = len(checks) - unsure
        found.append(_Checked(name, step, by, passed, unsure, len(rows) - len(checks)))
    return found


# ---- `export`: a golden set as others load it, with `datasets` or with `--questions`.

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
