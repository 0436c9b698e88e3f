"""`import` checks other people's questions against an inbox file; `export` publishes a golden set.

The provenance of an imported row holds its origin as `import` (source, row number, and its old id
if that was changed), and the checks of an earlier set as `earlier`. The exported folder holds a
Parquet and a JSONL file of each split, the card and the manifest. Rejected rows are left out,
because they may hold anything. If a row has no split, all are in one file."""

import dataclasses
import itertools
import json
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from art_e.errors import UserError, explained
from art_e.inbox.file import InboxFile
from art_e.message import without_markup
from art_e.publish import Own, template
from art_e.question import DIFFICULTIES, KINDS, SPLITS, Question, RawRow
from art_e.ratings import AnswerRating
from art_e.storage import partial_of
from art_e.text import cut_line, encodable, visible
from data_pipeline.golden import golden_set
from data_pipeline.golden.filtering import normalized
from data_pipeline.golden.inboxes import Cited, address_of, cited_mails

_MAX_CHARS = 120
_MAX_LEVELS = 50  # of nested values; rows of tables and of our own sets have 7 at most
RATINGS = "ratings"  # the source of rows that are made from users' ratings


def rated_row(rating: AnswerRating) -> RawRow:
    """Return a rated answer as a row, with an error if it is bad and uncorrected or a follow-up."""
    is_good = rating.rating == "good"
    answer = rating.answer if is_good else rating.right_answer
    row = {
        "id": f"rated-{rating.episode_id[:12]}", "question": rating.question, "answer": answer,
        "message_ids": rating.sources if is_good else rating.right_sources,
        "inbox_address": rating.inbox_address, "query_date": rating.as_of,
        "answerable": answer is not None,
        "provenance": {"rated": rating.rating, "model": rating.model if is_good else "person"},
    }  # fmt: skip
    fault = None
    if rating.talk:
        fault = "it followed another question, and can't stand alone"
    elif not is_good and answer is None:
        fault = "it was rated bad, and nobody said what is right (--answer)"
    return RawRow(f"rating of {rating.rated_at}", row, fault)


def import_rows(
    file: InboxFile, golden: golden_set.GoldenSet, rows: Sequence[RawRow], name: str
) -> None:
    """Fill a new set with the rows of the source `name`."""
    if not rows:
        raise UserError(f"{name} has no row; name a file of questions")
    read = [_parse_row(row, name, number) for number, row in enumerate(rows, start=1)]
    golden.rejected = [each for each in read if isinstance(each, golden_set.Rejected)]
    ids: set[str] = set()
    for question in (each for each in read if isinstance(each, Question)):
        numbered = (f"{question.id}-{number}" for number in itertools.count(2))  # for repeated ids
        new = next(each for each in itertools.chain([question.id], numbered) if each not in ids)
        ids.add(new)
        if new != question.id:
            question.provenance["import"]["id"] = question.id
        golden.questions.append(dataclasses.replace(question, id=new))
    addresses = sorted({address_of(each) for each in golden.questions})
    stored = file.execute(
        "SELECT address FROM addresses WHERE address IN (SELECT unnest(?::VARCHAR[]))", [addresses]
    ).fetchall()
    questions, cited = golden.questions, cited_mails(file, golden.questions)
    placed = [_check_row(each, (address_of(each),) in stored, cited[each.id]) for each in questions]
    golden.finish("import", placed, {"source": name})


def _parse_row(row: RawRow, source: str, number: int) -> Question | golden_set.Rejected:
    """Return the row as a question with its origin, or rejected as it came."""
    try:
        if row.error is not None:
            raise ValueError(row.error)
        question = Question.from_row(row.value)
        golden_set.check_bounds(question.question, question.answer, question.how_realistic)
        texts = f"{question.question}\n{question.answer or ''}"
        if visible(texts) != texts or without_markup(texts) != texts:
            raise ValueError("it holds control tokens of models, or invisible characters")
        if _is_deep(question.provenance):
            raise ValueError(f"provenance: it is nested deeper than {_MAX_LEVELS} levels")
    except ValueError as error:
        plain = _plain(row.value)
        if not isinstance(plain, dict) or "rejected" in plain:
            plain = {"raw": plain}
        return golden_set.Rejected(plain, "import", "row", f"row {number}: {_cut(error)}")
    provenance: dict[str, Any] = _plain(question.provenance)
    if "checks" in provenance:
        provenance["earlier"] = {"checks": provenance.pop("checks")}
    provenance["import"] = {"source": source, "row": number}
    answerable = question.answerable or False
    return dataclasses.replace(question, answerable=answerable, provenance=provenance)


def _is_deep(value: Any, level: int = 0) -> bool:
    inner = value.values() if isinstance(value, dict) else value
    if not isinstance(value, dict | list):
        return False
    return level == _MAX_LEVELS or any(_is_deep(each, level + 1) for each in inner)


def _plain(value: Any) -> Any:
    """Return the value as JSON can hold it: NaN becomes null, other types become text."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
        return json.loads(encodable(text), parse_constant=lambda _: None)
    except (RecursionError, ValueError):
        return "(nested too deeply)"


def _check_row(question: Question, has_inbox: bool, cited: dict[str, Cited]) -> golden_set.Outcome:
    """Return the question with consistent fields, and the check that rejects it, if any."""
    if not has_inbox:
        fault = f"the inbox file has no mail of {_cut(question.inbox_address)}"
        return question, golden_set.by_rule("inbox", "import", fault)
    # Splits are by inbox, so an address needs one spelling.
    placed = dataclasses.replace(normalized(question, cited), inbox_address=address_of(question))
    faults = [f"{_cut(name)} {mail.fault}" for name, mail in cited.items() if mail.fault]
    if not placed.answerable or (cited and not faults):
        return placed, None
    fault = "; ".join(faults) or "no gold mail is named"
    return placed, golden_set.by_rule("gold", "import", fault)


def _cut(value: object) -> str:
    return cut_line(str(value), _MAX_CHARS)


# ---- The figures of a set.

ALL_ROWS = "questions"  # the name of the part with all rows in `datasets.load_dataset`
UNLABELLED = "unlabelled"  # rows without split, kind or difficulty, which imported sets may have
# Other fields are text. Provenance is JSON text: rows differ in it, and a struct would pad them.
_TYPES = {"how_realistic": pa.float64(), "answerable": pa.bool_()}
_TYPES |= dict.fromkeys(("message_ids", "equivalent_ids"), pa.list_(pa.string()))
_NAMES = "id question answer message_ids equivalent_ids inbox_address query_date how_realistic"
_NAMES += " kind difficulty answerable split provenance"
PARQUET_SCHEMA = pa.schema([(each, _TYPES.get(each, pa.string())) for each in _NAMES.split()])
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"))


def stats(golden: golden_set.GoldenSet) -> dict[str, Any]:
    """Return the figures of the set as JSON; `kinds` and `difficulties` are by label and split."""
    steps = golden.manifest["steps"]
    columns: dict[str, Any] = {"inbox": [each.inbox_address for each in golden.questions]}
    for name, labels in (("split", SPLITS), ("kind", KINDS), ("difficulty", DIFFICULTIES)):
        values = [getattr(each, name) or UNLABELLED for each in golden.questions]
        # A category keeps the order of its labels.
        columns[name] = pd.Categorical(values, [*labels, UNLABELLED])
    rows = pd.DataFrame(columns)
    groups = rows.groupby("split", observed=True)["inbox"]
    splits = groups.agg(rows="size", inboxes="nunique").reset_index().to_dict("records")
    done = [{"step": name, **steps[name]["sums"]} for name in golden_set.STEPS if name in steps]
    return {
        "rows": len(rows), "rejected": len(golden.rejected), "splits": splits,
        "kinds": pd.crosstab(rows["split"], rows["kind"]).to_dict(),
        "difficulties": pd.crosstab(rows["split"], rows["difficulty"]).to_dict(),
        "steps": done,
    }  # fmt: skip


# ---- The exported folder and its card.


def export(golden: golden_set.GoldenSet, to: Path) -> dict[str, int]:
    """Write the set to the new folder `to`; return the number of rows of each part."""
    if not golden.questions:
        raise UserError("the set has no row to export; art-e golden stats shows what dropped them")
    target = to.resolve()
    parts, partial = _parts(golden.questions), partial_of(target)
    if target.exists():
        raise UserError(f"{to} exists already; delete it, or name another --to")
    with explained(f"can't write to {to}", "name another --to"):
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for name, questions in parts.items():
            rows = [each.to_row() for each in questions]
            golden_set.write_rows(partial / f"{name}.jsonl", rows)
            for row in rows:
                provenance = json.dumps(row["provenance"], ensure_ascii=False, sort_keys=True)
                row["provenance"] = provenance
            table = pa.Table.from_pylist(rows, schema=PARQUET_SCHEMA)
            pq.write_table(table, partial / f"{name}.parquet")
        (partial / "README.md").write_text(card(golden), "utf-8")
        golden_set.write_manifest(partial, golden.manifest)
        partial.rename(target)  # whole or not at all
    return {name: len(questions) for name, questions in parts.items()}


def _parts(questions: list[Question]) -> dict[str, list[Question]]:
    if any(each.split is None for each in questions):
        return {ALL_ROWS: questions}
    parts = {name: [each for each in questions if each.split == name] for name in SPLITS}
    return {name: rows for name, rows in parts.items() if rows}


def card(golden: golden_set.GoldenSet) -> str:
    """Return the README.md of the exported set."""
    rows, manifest, parts = golden.questions, golden.manifest, list(_parts(golden.questions))
    steps: dict[str, dict[str, Any]] = manifest["steps"]
    writers = Counter(str(each.provenance.get("model") or "") for each in rows)
    size = next((size for limit, size in _SIZES if len(rows) < limit), "n>100K")
    text = template("data_pipeline.golden", "card.md.j2").render(
        size=Own(size), figures=stats(golden), inboxes=len({each.inbox_address for each in rows}),
        unanswerable=sum(each.answerable is False for each in rows), parts=parts,
        db=manifest.get("db") or {},
        writers=[(model, count) for model, count in sorted(writers.items()) if model],
        synthetic=set(writers) == {"synthetic"},
        steps={name: steps[name] for name in golden_set.STEPS if name in steps},
    )  # fmt: skip
    return f"{text.rstrip()}\n"
