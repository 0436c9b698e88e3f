"""`import`: questions that others wrote, checked against an inbox file.

    art-e golden import corbt/enron_emails_sample_questions --db enron.duckdb --out golden

Rejected are rows that are not questions, whose inbox the file lacks, or whose gold mail is not in
that inbox as of the question's date. The provenance of an imported row has

    import    {source, row, inferred: the fields that it lacked, id: if it was changed}
    extra     its columns that a question does not have; NaN and infinity are null, as in JSON
    earlier   checks and changes of the set that it comes from
"""

import dataclasses
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.question import Kind, Question, RawRow, as_question, read_rows
from art_e.text import cut_line, encodable
from data_pipeline.golden.golden_set import (
    SCHEMA,
    Check,
    GoldenSet,
    Rejected,
    check_bounds,
    with_checks,
)
from data_pipeline.golden.inboxes import Cited, CitedMails, address_of
from evals.judges.values import clean, find_values

_SHOWN_CHARS = 120
_MAX_LEVELS = 50  # of nested values; rows of tables and of our own sets have 7 at most
_FIELDS = frozenset(each.name for each in dataclasses.fields(Question))
_HISTORY = ("checks", "marks", "mended")
_HOW_MANY = re.compile(r"\bhow many\b", re.IGNORECASE)


def import_questions(file: InboxFile, golden: GoldenSet, source: str) -> None:
    """Make `golden` the set of the rows of `source`: a file, a folder or a hub id.

    Raises `UserError` if `source` has no row or can't be read.
    """
    rows = list(read_rows(source))
    if not rows:
        raise UserError(f"{source} has no row; name a file of questions")
    name = source_name(source)
    read = [_read(row, name, number) for number, row in enumerate(rows, start=1)]
    golden.rejected = [each for each in read if isinstance(each, Rejected)]
    questions = list(_with_unique_ids([each for each in read if isinstance(each, Question)]))
    golden.questions, golden.batches = [], []
    golden.manifest = {
        "schema": SCHEMA,
        "db": {"name": file.path.name, "mails": file.counts["stored"]},
        "steps": {},
    }
    addresses = sorted({address_of(each) for each in questions})
    held = file.execute(
        "SELECT address FROM addresses WHERE address IN (SELECT unnest(?::VARCHAR[]))", [addresses]
    ).fetchall()
    cited = CitedMails(file, questions)
    for question in questions:
        placed, fault = _placed(question, (address_of(question),) in held, cited.of(question))
        if fault is None:
            golden.questions.append(placed)
        else:
            golden.rejected.append(Rejected.of(placed, fault))
    golden.sort()
    origins = [each.provenance["import"] for each in golden.questions]
    inferred = Counter(name for origin in origins for name in origin["inferred"])
    settings = {
        "source": name,
        "digest": _digest(rows),
        "inferred": dict(sorted(inferred.items())),
        "renamed": sum("id" in origin for origin in origins),
    }
    golden.record("import", len(rows), settings)


def source_name(source: str) -> str:
    """The set's name for the source: a file's or folder's name without its path, or a hub id."""
    path = Path(source)
    return path.resolve().name if path.exists() else source


def source_digest(source: str) -> str:
    """A digest of the rows of `source`, as in the manifest."""
    return _digest(read_rows(source))


def _digest(rows: Iterable[RawRow]) -> str:
    whole = hashlib.sha256()
    for row in rows:
        text = json.dumps(_plain(row.value), ensure_ascii=False, sort_keys=True)
        whole.update(f"{text}\n".encode())
    return whole.hexdigest()[:16]


def _read(row: RawRow, source: str, number: int) -> Question | Rejected:
    """The row as a question with its origin, or rejected as it came."""
    try:
        if row.error is not None:
            raise ValueError(row.error)
        question = as_question(row.value)
        check_bounds(question.question, question.answer, question.how_realistic)
        _check_levels(row.value)
        _check_levels(question.provenance)
    except ValueError as error:
        plain = _plain(row.value)
        if not isinstance(plain, dict) or "rejected" in plain:
            plain = {"raw": plain}
        return Rejected(plain, "import", "row", f"row {number}: {_shown(error)}")
    inferred = [] if row.value.get("answerable") is not None else ["answerable"]
    if question.answerable is None:
        question = dataclasses.replace(question, answerable=False)
    given: dict[str, Any] = _plain(question.provenance)
    provenance = {name: value for name, value in given.items() if name not in _HISTORY}
    if earlier := {name: given[name] for name in _HISTORY if name in given}:
        provenance["earlier"] = earlier
    if extra := {name: value for name, value in row.value.items() if name not in _FIELDS}:
        provenance["extra"] = _plain(extra)
    provenance["import"] = {"source": source, "row": number, "inferred": inferred}
    return dataclasses.replace(question, provenance=provenance)


def _check_levels(value: Any) -> None:
    level: list[Any] = [value]
    for _ in range(_MAX_LEVELS):
        inner = (each.values() if isinstance(each, dict) else each for each in level)
        level = [each for values in inner for each in values if isinstance(each, dict | list)]
    if level:
        raise ValueError(f"it is nested deeper than {_MAX_LEVELS} levels")


def _plain(value: Any) -> Any:
    """The value as JSON can hold it: NaN is null, other types are text."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
        return json.loads(encodable(text), parse_constant=lambda _: None)
    except (RecursionError, ValueError):
        return "(nested too deeply)"


def _with_unique_ids(questions: Sequence[Question]) -> Iterator[Question]:
    """The questions; repeated ids get a number."""
    given = {each.id for each in questions}
    used: set[str] = set()
    for question in questions:
        name, number = question.id, 1
        while name in used or (number > 1 and name in given):
            number += 1
            name = f"{question.id}-{number}"
        used.add(name)
        if name != question.id:
            origin = {**question.provenance["import"], "id": question.id}
            provenance = {**question.provenance, "import": origin}
            question = dataclasses.replace(question, id=name, provenance=provenance)  # noqa: PLW2901
        yield question


def _placed(
    question: Question, has_inbox: bool, cited: dict[str, Cited]
) -> tuple[Question, Check | None]:
    """The question with its kind and gold looked up, and the check that rejects it."""
    if not has_inbox:
        reason = f"the inbox file has no mail of {_shown(question.inbox_address)}"
        return question, Check("inbox", "import", False, reason, "rule")
    # Splits are by inbox, so an address needs one spelling.
    placed = dataclasses.replace(question, inbox_address=address_of(question))
    if question.kind is None:
        origin = question.provenance["import"]
        origin = {**origin, "inferred": [*origin["inferred"], "kind"]}
        provenance = {**question.provenance, "import": origin}
        placed = dataclasses.replace(placed, kind=_kind(placed, cited), provenance=provenance)
    if not placed.answerable:
        return placed, None
    faults = list(_gold_faults(placed, cited))
    if faults:
        return placed, Check("gold", "import", False, "; ".join(faults), "rule")
    reason = "every gold mail is in the inbox as of the question's date"
    return with_checks(placed, [Check("gold", "import", True, reason, "rule")]), None


def _kind(question: Question, cited: dict[str, Cited]) -> Kind:
    """The likely kind of a question; copies of one mail count once."""
    if not question.answerable:
        return "unanswerable"
    if len({mail.stored or each for each, mail in cited.items()}) > 1:
        return "multi-mail"
    kinds = {each.kind for each in find_values(clean(question.answer or ""))}
    counts = not kinds.isdisjoint(("number", "measure", "duration"))
    return "count" if counts and _HOW_MANY.search(question.question) else "lookup"


def _gold_faults(question: Question, cited: dict[str, Cited]) -> Iterator[str]:
    if not question.message_ids:
        yield "no gold mail is named"
    for message_id, mail in cited.items():
        name = _shown(message_id)
        if mail.later and mail.sent is None:
            yield f"{name} has no date, so it is in the inbox on no day"
        elif mail.later:
            sent = f"{mail.sent:%Y-%m-%d}"
            yield f"{name} was sent on {sent}, later than the query date {question.query_date}"
        elif mail.elsewhere:
            yield f"{name} is in the file, but not in this inbox"
        elif mail.stored is None:
            yield f"{name} is nowhere in the inbox file"


def _shown(value: object) -> str:
    return cut_line(str(value), _SHOWN_CHARS)
