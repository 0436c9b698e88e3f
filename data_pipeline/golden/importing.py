"""`import`: questions that others wrote, checked against an inbox file.

The provenance of an imported row says where it comes from (`import`: source, row, and its id if
that was changed); checks of an earlier set are `earlier`.
"""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.message import without_markup
from art_e.question import Question, RawRow
from art_e.ratings import AnswerRating
from art_e.text import cut_line, encodable, visible
from data_pipeline.golden import golden_set
from data_pipeline.golden.filtering import agreeing
from data_pipeline.golden.golden_set import Check, GoldenSet, Outcome, Rejected
from data_pipeline.golden.inboxes import Cited, address_of, cited_mails

_SHOWN_CHARS = 120
_MAX_LEVELS = 50  # of nested values; rows of tables and of our own sets have 7 at most
RATINGS = "ratings"  # the source of what users rated


def name_of(source: str) -> str:
    """The name of a source in a set; a path says nothing to others."""
    return Path(source).resolve().name if Path(source).exists() else source


def rated_row(rating: AnswerRating) -> RawRow:
    """The row of an answer that a user rated; it is rejected if nobody said what is right, or if it
    answers a follow-up question."""
    is_good = rating.rating == "good"
    answer = rating.answer if is_good else rating.right_answer
    row = {
        "id": f"rated-{rating.episode_id[:12]}",
        "question": rating.question,
        "answer": answer,
        "message_ids": rating.sources if is_good else rating.right_sources,
        "inbox_address": rating.inbox_address,
        "query_date": rating.as_of,
        "answerable": answer is not None,
        "provenance": {"rated": rating.rating, "model": rating.model if is_good else "person"},
    }
    fault = None
    if rating.talk:
        fault = "it followed another question, and can't stand alone"
    elif not is_good and answer is None:
        fault = "it was rated bad, and nobody said what is right (--answer)"
    return RawRow(f"rating of {rating.rated_at}", row, fault)


def import_rows(file: InboxFile, golden: GoldenSet, rows: Sequence[RawRow], name: str) -> None:
    """Fill a new set with the rows of the source of that name."""
    if not rows:
        raise UserError(f"{name} has no row; name a file of questions")
    read = [_read(row, name, number) for number, row in enumerate(rows, start=1)]
    golden.rejected = [each for each in read if isinstance(each, Rejected)]
    golden.questions = list(_with_unique_ids([each for each in read if isinstance(each, Question)]))
    golden.manifest["db"] = golden_set.made_from(file)
    addresses = sorted({address_of(each) for each in golden.questions})
    held = file.execute(
        "SELECT address FROM addresses WHERE address IN (SELECT unnest(?::VARCHAR[]))", [addresses]
    ).fetchall()
    cited = cited_mails(file, golden.questions)
    made = [_placed(each, (address_of(each),) in held, cited[each.id]) for each in golden.questions]
    golden.finish("import", made, {"source": name})


def _read(row: RawRow, source: str, number: int) -> Question | Rejected:
    """The row as a question with its origin, or rejected as it came."""
    try:
        if row.error is not None:
            raise ValueError(row.error)
        question = Question.from_row(row.value)
        golden_set.check_bounds(question.question, question.answer, question.how_realistic)
        texts = f"{question.question}\n{question.answer or ''}"
        if visible(texts) != texts or without_markup(texts) != texts:
            raise ValueError("it holds control tokens of models, or characters that nobody sees")
        if _is_deep(question.provenance):
            raise ValueError(f"provenance: it is nested deeper than {_MAX_LEVELS} levels")
    except ValueError as error:
        plain = _plain(row.value)
        if not isinstance(plain, dict) or "rejected" in plain:
            plain = {"raw": plain}
        return Rejected(plain, "import", "row", f"row {number}: {_shown(error)}")
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
    """The value as JSON can hold it: NaN is null, other types are text."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
        return json.loads(encodable(text), parse_constant=lambda _: None)
    except (RecursionError, ValueError):
        return "(nested too deeply)"


def _with_unique_ids(questions: Sequence[Question]) -> Iterator[Question]:
    """The questions; repeated ids get a number."""
    used: set[str] = set()
    for question in questions:
        name, number = question.id, 1
        while name in used:
            number += 1
            name = f"{question.id}-{number}"
        used.add(name)
        if name != question.id:
            question.provenance["import"]["id"] = question.id
        yield dataclasses.replace(question, id=name)


def _placed(question: Question, has_inbox: bool, cited: dict[str, Cited]) -> Outcome:
    """The question with fields that agree, and the check that rejects it."""
    if not has_inbox:
        reason = f"the inbox file has no mail of {_shown(question.inbox_address)}"
        return question, Check("inbox", "import", False, reason, "rule")
    # Splits are by inbox, so an address needs one spelling.
    placed = dataclasses.replace(agreeing(question, cited), inbox_address=address_of(question))
    faults = [f"{_shown(name)} {mail.fault}" for name, mail in cited.items() if mail.fault]
    if not placed.answerable or (cited and not faults):
        return placed, None
    reason = "; ".join(faults) or "no gold mail is named"
    return placed, Check("gold", "import", False, reason, "rule")


def _shown(value: object) -> str:
    return cut_line(str(value), _SHOWN_CHARS)
