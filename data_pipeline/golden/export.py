"""The card of a golden set, and `export`: the set as others load it.

    art-e golden export golden --to published

The new folder holds a Parquet and a JSONL file of each split, the card and the manifest. Rejected
rows are left out, because they may hold anything. If a row has no split, all are in one file.
"""

import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import DatasetCardData

from art_e.errors import UserError
from art_e.publish import Own, template
from art_e.question import SPLITS, Question
from art_e.storage import partial_of
from data_pipeline.golden.golden_set import (
    STEPS,
    GoldenSet,
    checks_of,
    write_manifest,
    write_questions,
)
from data_pipeline.golden.stats import SHARED, stats

# What `datasets.load_dataset` calls the part that holds all rows.
ALL_ROWS = "questions"
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"))


def export(golden: GoldenSet, to: Path) -> dict[str, int]:
    """Write the set to the folder `to`; the number of rows of each part.

    Raises `UserError` if the set has no row, or the folder exists or can't be written.
    """
    if not golden.questions:
        raise UserError("the set has no row to export; art-e golden stats shows what dropped them")
    target = to.resolve()
    if target.exists():
        raise UserError(f"{to} exists already; delete it, or name another --to")
    parts, partial = _parts(golden.questions), partial_of(target)
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for name, questions in parts.items():
            write_questions(partial, name, questions)
        files = {name: f"{name}.parquet" for name in parts}
        (partial / "README.md").write_text(card(golden, files), "utf-8")
        write_manifest(partial, golden.manifest)
        # Whole or not at all.
        partial.rename(target)
    except OSError as error:
        raise UserError(f"can't write to {to}: {error.strerror}; name another --to") from None
    return {name: len(questions) for name, questions in parts.items()}


def _parts(questions: list[Question]) -> dict[str, list[Question]]:
    if any(each.split is None for each in questions):
        return {ALL_ROWS: questions}
    parts = {name: [each for each in questions if each.split == name] for name in SPLITS}
    return {name: rows for name, rows in parts.items() if rows}


def card(golden: GoldenSet, files: Mapping[str, str] | None = None) -> str:
    """The README.md of the set.

    `files` has the Parquet file of each part that `load_dataset` gives; by default all rows are in
    `questions.parquet`.
    """
    parts = {ALL_ROWS: f"{ALL_ROWS}.parquet"} if files is None else files
    rows, manifest = golden.questions, golden.manifest
    steps: dict[str, dict[str, Any]] = manifest["steps"]
    writers = Counter(str(each.provenance.get("model") or "") for each in rows)
    found = [checks_of(each).values() for each in rows]
    text = template("data_pipeline.golden", "card.md.j2").render(
        front_matter=Own(_front_matter(parts, len(rows))),
        figures=stats(golden),
        inboxes=len({each.inbox_address for each in rows}),
        unanswerable=sum(each.answerable is False for each in rows),
        parts=list(parts),
        db=manifest.get("db") or {},
        seed=None if manifest.get("seed") is None else str(manifest["seed"]),
        batches=len(golden.batches),
        batch_mails=sum(len(each.message_ids) for each in golden.batches),
        writers=[(model, count) for model, count in sorted(writers.items()) if model],
        synthetic=set(writers) == {"synthetic"},
        taken={name: steps[name] for name in STEPS if name in steps},
        unverified=sum(all(check.step != "verify" for check in each) for each in found),
        shared=SHARED,
    )
    return f"{text.rstrip()}\n"


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
