"""The card of a golden set, and `export`: the set as others load it.

    art-e golden export golden --to published

The folder holds a Parquet and a JSONL file of each split, the card and the manifest. Rejected rows
are left out, because they may hold anything. If a row has no split, all rows are in one file.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from huggingface_hub import DatasetCardData

from art_e.errors import UserError
from art_e.publish import Own, template
from art_e.question import DIFFICULTIES, KINDS, SPLITS, Question
from data_pipeline.golden.golden_set import (
    SCHEMA,
    STEPS,
    Check,
    GoldenSet,
    checks_of,
    write_manifest,
    write_questions,
)
from data_pipeline.golden.stats import by_split, frame, used_splits
from data_pipeline.sharing import replacing

# What `datasets.load_dataset` calls the part that holds all rows.
ALL_ROWS = "questions"
QUESTION_FILES = tuple(
    f"{part}.{form}" for part in (*SPLITS, ALL_ROWS) for form in ("parquet", "jsonl")
)
_NAMES = frozenset({"README.md", "manifest.json", *QUESTION_FILES})
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"))
# The card has sections of their own for these.
_NOT_SETTINGS = {"sums", "leaks", "precision", "reviewed", "kept", "edited", "dropped"}
SHARED = {
    "shared_gold": "mails that are gold in both",
    "shared_questions": "questions of the same words in both",
    "gold_in_inboxes": "gold mails of the first in inboxes of the second",
}


def export(golden: GoldenSet, to: Path) -> dict[str, int]:
    """Write the set to the folder `to`; the number of rows of each part.

    Replaces an earlier export as a whole. Raises `UserError` if the set has no row, or the folder
    holds something else or can't be written.
    """
    if not golden.questions:
        raise UserError("the set has no row to export; art-e golden stats shows what dropped them")
    parts = _parts(golden.questions)
    with replacing(to, "manifest.json", SCHEMA, _NAMES.__contains__) as folder:
        for name, questions in parts.items():
            write_questions(folder, name, questions)
        files = {name: f"{name}.parquet" for name in parts}
        (folder / "README.md").write_text(card(golden, files), "utf-8")
        write_manifest(folder, golden.manifest)
    return {name: len(questions) for name, questions in parts.items()}


def _parts(questions: list[Question]) -> dict[str, list[Question]]:
    if any(each.split is None for each in questions):
        return {ALL_ROWS: questions}
    parts = {name: [each for each in questions if each.split == name] for name in SPLITS}
    return {name: rows for name, rows in parts.items() if rows}


def _front_matter(files: Mapping[str, str], rows: int) -> str:
    """What the hub reads at the top of the card."""
    data_files = [{"split": split, "path": path} for split, path in files.items()]
    return DatasetCardData(
        pretty_name="ART-E golden set",
        language="en",
        task_categories=["question-answering"],
        size_categories=next((size for limit, size in _SIZES if rows < limit), "n>100K"),
        configs=[{"config_name": "default", "data_files": data_files}],
        tags=["email", "agent", "retrieval"],
    ).to_yaml()


def _is_synthetic(golden: GoldenSet) -> bool:
    rows = golden.questions
    return bool(rows) and all(each.provenance.get("model") == "synthetic" for each in rows)


def card(golden: GoldenSet, files: Mapping[str, str] | None = None) -> str:
    """The README.md of the set.

    `files` has the Parquet file of each part that `load_dataset` gives; by default all rows are in
    `questions.parquet`.
    """
    parts = {ALL_ROWS: f"{ALL_ROWS}.parquet"} if files is None else files
    manifest, rows = golden.manifest, golden.questions
    steps: dict[str, dict[str, Any]] = manifest["steps"]
    taken = [name for name in STEPS if name in steps]
    found = [checks_of(each).values() for each in rows]
    table = frame(golden)
    text = template("data_pipeline.golden", "card.md.j2").render(
        front_matter=Own(_front_matter(parts, len(rows))),
        rows=len(rows),
        inboxes=len({each.inbox_address for each in rows}),
        unanswerable=sum(each.answerable is False for each in rows),
        parts=list(parts),
        by_split=_by_split(table),
        kinds=_counts(table, "kind", KINDS),
        difficulties=_counts(table, "difficulty", DIFFICULTIES),
        db=manifest.get("db") or {},
        seed=None if manifest.get("seed") is None else str(manifest["seed"]),
        batches=len(golden.batches),
        batch_mails=sum(len(each.message_ids) for each in golden.batches),
        writers=_writers(rows),
        synthetic=_is_synthetic(golden),
        taken=taken,
        settings={name: _settings(steps[name]) for name in taken},
        sums={name: steps[name]["sums"] for name in taken},
        checked=_checked(rows),
        unverified=sum(all(check.step != "verify" for check in each) for each in found),
        words_only=steps.get("verify", {}).get("model") == "offline",
        strict=steps.get("verify", {}).get("strict"),
        shared=SHARED,
        split=steps.get("split"),
        review=steps.get("review"),
        has_test=any(each.split == "test" for each in rows),
    )
    return f"{text.rstrip()}\n"


def _by_split(table: pd.DataFrame) -> list[tuple[str, int, int]]:
    """Rows and inboxes of each split."""
    groups = {split: table[table["split"] == split] for split in used_splits(table)}
    return [(split, len(each), each["inbox"].nunique()) for split, each in groups.items()]


def _counts(table: pd.DataFrame, column: str, labels: Sequence[str]) -> dict[str, list[int]]:
    """Numbers of rows by label, for each split and in all."""
    found = by_split(table, column, labels)
    return {label: [*row.values(), sum(row.values())] for label, row in found.items()}


def _writers(rows: list[Question]) -> list[tuple[str, str, int]]:
    """Model, prompt and number of rows, most rows first; rows without a model are left out."""
    counts = Counter(
        (str(each.provenance["model"]), str(each.provenance.get("prompt") or "-"))
        for each in rows
        if each.provenance.get("model")
    )
    return [(*key, counts[key]) for key in sorted(counts, key=lambda key: (-counts[key], key))]


def _settings(step: Mapping[str, Any]) -> dict[str, str]:
    """The settings of a step that fit in a line."""
    lines = {}
    for name, value in sorted(step.items()):
        if isinstance(value, dict) and all(
            isinstance(of, str | int | float) for of in value.values()
        ):
            lines[name] = ", ".join(f"{key} {of}" for key, of in value.items())
        elif isinstance(value, list) and all(isinstance(each, str) for each in value):
            lines[name] = ", ".join(value)
        elif isinstance(value, str | int | float):
            lines[name] = str(value)
    return {name: line for name, line in lines.items() if line and name not in _NOT_SETTINGS}


def _checked(rows: list[Question]) -> list[dict[str, Any]]:
    """Each check of the kept rows, in the order of the steps."""
    made: dict[tuple[int, str], list[Check]] = {}
    for each in rows:
        for check in checks_of(each).values():
            made.setdefault((STEPS.index(check.step), check.name), []).append(check)
    return [
        {
            "name": name,
            "step": STEPS[step],
            "by": ", ".join(sorted({check.by for check in checks})),
            "passed": sum(check.passed is not None for check in checks),
            "unsure": sum(check.passed is None for check in checks),
            "unchecked": len(rows) - len(checks),
        }
        for (step, name), checks in sorted(made.items())
    ]
