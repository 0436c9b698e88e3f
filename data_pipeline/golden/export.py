"""A golden set for others to see: its figures, its card, and `export`, a folder to load it from.

The new folder holds a Parquet and a JSONL file of each split, the card and the manifest. Rejected
rows are left out, because they may hold anything. If a row has no split, all are in one file.
"""

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from huggingface_hub import DatasetCardData

from art_e.errors import UserError
from art_e.publish import Own, template
from art_e.question import DIFFICULTIES, KINDS, SPLITS, Question
from art_e.storage import partial_of
from data_pipeline.golden.golden_set import STEPS, GoldenSet, write_manifest, write_rows

# What `datasets.load_dataset` calls the part that holds all rows.
ALL_ROWS = "questions"
# Rows without split, kind or difficulty, which imported sets may have.
UNLABELLED = "unlabelled"
PARQUET_SCHEMA = pa.schema(
    [(name, pa.string()) for name in ("id", "question", "answer")]
    + [("message_ids", pa.list_(pa.string()))]
    + [(name, pa.string()) for name in ("inbox_address", "query_date")]
    + [("how_realistic", pa.float64())]
    + [(name, pa.string()) for name in ("kind", "difficulty")]
    # Provenance is JSON text: rows differ in it, and a struct would pad them with nulls.
    + [("answerable", pa.bool_()), ("split", pa.string()), ("provenance", pa.string())]
)
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"))


# ---- Figures.


def stats(golden: GoldenSet) -> dict[str, Any]:
    """The figures of the set as JSON; `kinds` and `difficulties` are by label and split."""
    steps = golden.manifest["steps"]
    columns: dict[str, Any] = {"inbox": [each.inbox_address for each in golden.questions]}
    for name, labels in (("split", SPLITS), ("kind", KINDS), ("difficulty", DIFFICULTIES)):
        values = [getattr(each, name) or UNLABELLED for each in golden.questions]
        # A category keeps the order of its labels.
        columns[name] = pd.Categorical(values, [*labels, UNLABELLED])
    rows = pd.DataFrame(columns)
    return {
        "rows": len(rows),
        "rejected": len(golden.rejected),
        "splits": [
            {"split": name, "rows": len(group), "inboxes": group["inbox"].nunique()}
            for name, group in rows.groupby("split", observed=True)
        ],
        "kinds": pd.crosstab(rows["split"], rows["kind"]).to_dict(),
        "difficulties": pd.crosstab(rows["split"], rows["difficulty"]).to_dict(),
        "steps": [{"step": step, **steps[step]["sums"]} for step in STEPS if step in steps],
    }


# ---- The exported folder and its card.


def export(golden: GoldenSet, to: Path) -> dict[str, int]:
    """Write the set to the new folder `to`; the number of rows of each part."""
    if not golden.questions:
        raise UserError("the set has no row to export; art-e golden stats shows what dropped them")
    target = to.resolve()
    parts, partial = _parts(golden.questions), partial_of(target)
    if target.exists():
        raise UserError(f"{to} exists already; delete it, or name another --to")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for name, questions in parts.items():
            _write(partial, name, questions)
        (partial / "README.md").write_text(card(golden), "utf-8")
        write_manifest(partial, golden.manifest)
        # Whole or not at all.
        partial.rename(target)
    except OSError as error:
        raise UserError(f"can't write to {to}: {error.strerror}; name another --to") from None
    return {name: len(questions) for name, questions in parts.items()}


def _write(folder: Path, name: str, questions: Sequence[Question]) -> None:
    """Write the questions to `name`.jsonl and `name`.parquet in the folder."""
    rows = [each.to_row() for each in questions]
    write_rows(folder / f"{name}.jsonl", rows)
    for row in rows:
        row["provenance"] = json.dumps(row["provenance"], ensure_ascii=False, sort_keys=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=PARQUET_SCHEMA), folder / f"{name}.parquet")


def _parts(questions: list[Question]) -> dict[str, list[Question]]:
    if any(each.split is None for each in questions):
        return {ALL_ROWS: questions}
    parts = {name: [each for each in questions if each.split == name] for name in SPLITS}
    return {name: rows for name, rows in parts.items() if rows}


def card(golden: GoldenSet) -> str:
    """The README.md of the exported set."""
    rows, manifest, parts = golden.questions, golden.manifest, list(_parts(golden.questions))
    steps: dict[str, dict[str, Any]] = manifest["steps"]
    writers = Counter(str(each.provenance.get("model") or "") for each in rows)
    text = template("data_pipeline.golden", "card.md.j2").render(
        front_matter=Own(_front_matter(parts, len(rows))),
        figures=stats(golden),
        inboxes=len({each.inbox_address for each in rows}),
        unanswerable=sum(each.answerable is False for each in rows),
        parts=parts,
        db=manifest.get("db") or {},
        writers=[(model, count) for model, count in sorted(writers.items()) if model],
        synthetic=set(writers) == {"synthetic"},
        taken={name: steps[name] for name in STEPS if name in steps},
    )
    return f"{text.rstrip()}\n"


def _front_matter(parts: Iterable[str], rows: int) -> str:
    """What the hub reads at the top of the card."""
    data_files = [{"split": name, "path": f"{name}.parquet"} for name in parts]
    return DatasetCardData(
        pretty_name="ART-E golden set",
        language="en",
        task_categories=["question-answering"],
        size_categories=next((size for limit, size in _SIZES if rows < limit), "n>100K"),
        configs=[{"config_name": "default", "data_files": data_files}],
        tags=["email", "agent", "retrieval"],
    ).to_yaml()
