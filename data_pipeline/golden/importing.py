"""`import`: questions that others wrote, put to an inbox file.

    art-e golden import corbt/enron_emails_sample_questions --db enron.duckdb --out golden

Each row is taken on its own: one that is no question, whose inbox the file lacks, or whose
gold mail is not in that inbox as of the question's date is rejected with what is wrong. The
others are kept as they are, and what the offline checks of `filter` and `verify` say of them
is reported; these steps decide. An imported row's provenance has

    import    {source, row, inferred: the fields that it lacked, id: what it came with}
    extra     its columns that a question does not have; NaN and infinity are null, as in JSON
    earlier   checks, marks and mends of the set that it was taken from

Knows nothing of models.
"""

import dataclasses
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.question import Kind, Question, RawRow, as_question, read_rows
from art_e.text import cut_line, encodable
from data_pipeline.golden.filtering import MIN_REALISM, checked
from data_pipeline.golden.golden_set import (
    MAX_ANSWER_CHARS,
    MAX_QUESTION_CHARS,
    SCHEMA,
    Check,
    GoldenSet,
    Rejected,
    check_realism,
    with_checks,
)
from data_pipeline.golden.inboxes import Cited, CitedMails, address_of
from data_pipeline.golden.offline_reader import ambiguity_by_search
from evals.judges.values import find_values

# Rows that the report names of each check, of those that failed and of those not sure.
EXAMPLES = 5
_SHOWN_CHARS = 120
# Of a row's value, which a row of tables or of our own sets has 7 of at most. Python gives up
# at some hundreds, the fewer the deeper it stands in calls itself.
_MAX_LEVELS = 50
_FIELDS = frozenset(each.name for each in dataclasses.fields(Question))
# What a step of this set would take for its own.
_HISTORY = ("checks", "marks", "mended")
_HOW_MANY = re.compile(r"\bhow many\b", re.IGNORECASE)
_COUNTS = ("number", "measure", "duration")


def import_questions(
    file: InboxFile,
    golden: GoldenSet,
    source: str,
    on_row: Callable[[], object] = lambda: None,
) -> None:
    """Make `golden` the set of the rows of `source`: a file, a folder or a hub id.

    Whatever the set held is gone. `on_row` is called as the report has dealt with a row that
    is kept. Raises `UserError` where `source` has no row or can't be
    read.
    """
    name = source_name(source)
    rejected: list[Rejected] = []
    read: list[Question] = []
    rows = list(read_rows(source))
    for number, row in enumerate(rows, start=1):
        found = _read(row, name, number)
        if isinstance(found, Rejected):
            rejected.append(found)
        else:
            read.append(found)
    if not rows:
        raise UserError(f"{source} has no row; name a file of questions")
    questions = list(_with_own_ids(read))
    golden.questions, golden.batches = [], []
    golden.rejected = rejected
    golden.manifest = {
        "schema": SCHEMA,
        "db": {"name": file.path.name, "mails": file.counts["stored"]},
        "steps": {},
    }
    known = _known(file, questions)
    cited = CitedMails(file, questions)
    for question in questions:
        placed, fault = _placed(question, known, cited.of(question))
        if fault is None:
            golden.questions.append(placed)
        else:
            golden.rejected.append(Rejected.of(placed, fault))
    golden.sort()
    settings = {
        "source": name,
        "digest": _rows_digest(rows),
        "inferred": dict(sorted(Counter(_told(golden.questions, "inferred")).items())),
        "renamed": sum("id" in each.provenance["import"] for each in questions),
        "report": offline_report(file, golden, on_row),
    }
    golden.record("import", len(rows), settings)


def source_name(source: str) -> str:
    """What the set calls the source: a file's or folder's name without its path, or a hub id."""
    path = Path(source)
    return path.resolve().name if path.exists() else source


def source_digest(source: str) -> str:
    """What tells the rows of `source` from others, as the manifest of a set of them has it."""
    return _rows_digest(read_rows(source))


def _rows_digest(rows: Iterable[RawRow]) -> str:
    whole = hashlib.sha256()
    for row in rows:
        text = json.dumps(_plain(row.value), ensure_ascii=False, sort_keys=True)
        whole.update(f"{text}\n".encode())
    return whole.hexdigest()[:16]


def offline_report(
    file: InboxFile, golden: GoldenSet, on_row: Callable[[], object] = lambda: None
) -> dict[str, Any]:
    """What the checks that need no model say of the set's rows, which stay as they are.

    By check: `passed`, `failed` and `unsure` (numbers of rows), and `examples` of the last
    two as [{id, passed, reason}], failed ones first.
    """
    found: dict[str, list[tuple[str, Check]]] = {}
    for row in checked(file, golden, min_realism=MIN_REALISM):
        checks = list(row.checks)
        if row.question.answerable:
            checks.append(ambiguity_by_search(file, row.question))
        for check in checks:
            found.setdefault(check.name, []).append((row.question.id, check))
        on_row()
    return {name: _summary(rows) for name, rows in sorted(found.items())}


def _summary(rows: Sequence[tuple[str, Check]]) -> dict[str, Any]:
    failed = [each for each in rows if each[1].passed is False]
    unsure = [each for each in rows if each[1].passed is None]
    return {
        "step": rows[0][1].step,
        "passed": len(rows) - len(failed) - len(unsure),
        "failed": len(failed),
        "unsure": len(unsure),
        "examples": [
            {"id": name, "passed": check.passed, "reason": check.reason}
            for name, check in [*failed[:EXAMPLES], *unsure[:EXAMPLES]]
        ],
    }


def _read(row: RawRow, source: str, number: int) -> Question | Rejected:
    """The row as a question with where it is from; what is none is rejected as it came."""
    try:
        if row.error is not None:
            raise ValueError(row.error)
        _check_levels(row.value)
        question = as_question(row.value)
        # It may have been a text.
        _check_levels(question.provenance)
        if not question.question.strip():
            raise ValueError("question: it is empty")
        check_realism(question.how_realistic)
        _check_length("question", question.question, MAX_QUESTION_CHARS)
        _check_length("answer", question.answer or "", MAX_ANSWER_CHARS)
    except ValueError as error:
        return Rejected(_as_json(row.value), "import", "row", f"row {number}: {_shown(error)}")
    inferred = [] if _own(row.value, "answerable") else ["answerable"]
    if question.answerable is None:
        question = dataclasses.replace(question, answerable=False)
    return dataclasses.replace(
        question,
        provenance={
            **_apart(_plain(question.provenance)),
            **_extra(row.value),
            "import": {"source": source, "row": number, "inferred": inferred},
        },
    )


def _check_length(name: str, text: str, most: int) -> None:
    if len(text) > most:
        raise ValueError(f"{name}: it has {len(text):,} characters, more than {most:,}")


def _own(row: dict[str, Any], name: str) -> bool:
    return row.get(name) is not None


def _extra(row: dict[str, Any]) -> dict[str, Any]:
    extra = {str(name): value for name, value in row.items() if name not in _FIELDS}
    return {"extra": _plain(extra)} if extra else {}


def _apart(provenance: dict[str, Any]) -> dict[str, Any]:
    """The provenance with what another set's steps found under "earlier"."""
    earlier = {name: provenance[name] for name in _HISTORY if name in provenance}
    kept = {name: value for name, value in provenance.items() if name not in _HISTORY}
    return {**kept, "earlier": earlier} if earlier else kept


def _as_json(value: Any) -> dict[str, Any]:
    """The row as a JSON object that can be written, whatever it is."""
    plain = _plain(value)
    # The set's own word on a rejected row has that name.
    return plain if isinstance(plain, dict) and "rejected" not in plain else {"raw": plain}


def _plain(value: Any, levels: int = _MAX_LEVELS) -> Any:
    """The value as JSON has it: what JSON lacks is text or null, what is too deep is left out."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int):
        return value
    if not isinstance(value, dict | list):
        return encodable(str(value))
    if not levels:
        return "(nested deeper)"
    if isinstance(value, list):
        return [_plain(each, levels - 1) for each in value]
    return {encodable(str(name)): _plain(each, levels - 1) for name, each in value.items()}


def _check_levels(value: Any) -> None:
    level: list[Any] = [[value]]
    for _ in range(_MAX_LEVELS + 1):
        inner = (each.values() if isinstance(each, dict) else each for each in level)
        level = [each for values in inner for each in values if isinstance(each, dict | list)]
    if level:
        raise ValueError(f"it is nested deeper than {_MAX_LEVELS} levels")


def _with_own_ids(questions: Sequence[Question]) -> Iterator[Question]:
    """The questions, of which those whose id an earlier one has are given one of their own."""
    known = {each.id for each in questions}
    used: set[str] = set()
    for question in questions:
        name, number = question.id, 1
        while name in used or (number > 1 and name in known):
            number += 1
            name = f"{question.id}-{number}"
        used.add(name)
        if name == question.id:
            yield question
        else:
            told = {**question.provenance["import"], "id": question.id}
            yield dataclasses.replace(
                question, id=name, provenance={**question.provenance, "import": told}
            )


def _known(file: InboxFile, questions: Iterable[Question]) -> frozenset[str]:
    """Those of the questions' addresses that the file has mail of."""
    rows = file.execute(
        "SELECT address FROM addresses WHERE address IN (SELECT unnest(?::VARCHAR[]))",
        [sorted({address_of(each) for each in questions})],
    )
    return frozenset(address for (address,) in rows.fetchall())


def _placed(
    question: Question, known: frozenset[str], cited: dict[str, Cited]
) -> tuple[Question, Check | None]:
    """The question with its inbox, kind and gold looked up, and what rejects it."""
    address = address_of(question)
    if address not in known:
        reason = f"the inbox file has no mail of {_shown(question.inbox_address)}"
        return question, Check("inbox", "import", False, reason, "rule")
    # One spelling of an address: a split is by inbox.
    placed = dataclasses.replace(question, inbox_address=address)
    if question.kind is None:
        told = question.provenance["import"]
        told = {**told, "inferred": [*told["inferred"], "kind"]}
        placed = dataclasses.replace(
            placed,
            kind=_kind(placed, cited),
            provenance={**question.provenance, "import": told},
        )
    if not placed.answerable:
        return placed, None
    faults = list(_gold_faults(placed, cited))
    if faults:
        return placed, Check("gold", "import", False, "; ".join(faults), "rule")
    reason = "every gold mail is in the inbox as of the question's date"
    return with_checks(placed, [Check("gold", "import", True, reason, "rule")]), None


def _kind(question: Question, cited: dict[str, Cited]) -> Kind:
    """What kind of question it seems to be; copies of one mail are one."""
    if not question.answerable:
        return "unanswerable"
    if len({mail.stored or each for each, mail in cited.items()}) > 1:
        return "multi-mail"
    counts = any(each.kind in _COUNTS for each in find_values(question.answer or ""))
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


def _told(questions: Iterable[Question], name: str) -> Iterator[str]:
    for each in questions:
        yield from each.provenance["import"][name]


def _shown(value: object) -> str:
    return cut_line(str(value), _SHOWN_CHARS)
