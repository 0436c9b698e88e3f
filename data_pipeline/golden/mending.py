"""Puts right what is plainly wrong in a row's fields, and marks what a user should know of.

Nothing here drops a row, and nothing is guessed: texts stay as they are. Knows nothing of
sets and checks' verdicts.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from art_e.abstention import is_abstention
from art_e.question import Kind, Question
from data_pipeline.golden import checks
from data_pipeline.golden.cited import Cited
from data_pipeline.golden.golden_set import Batch
from evals.claims import read_claims

# Words of an answer that is still a short fact, a long sentence: of the 73 public questions
# at hand 65 have no longer one; the rest are lists, reports and quotations.
MAX_SHORT_WORDS = 25
LONG = "long-answer"

_COUNTED = re.compile(
    r"\b(?:none|no|zero|once|twice|thrice|both|a couple|several)\b", re.IGNORECASE
)


def mended(question: Question, batch: Batch | None, cited: Mapping[str, Cited]) -> Question:
    """The question with fields that agree; what they were is in its provenance.

    `cited` has what its message ids stand for. They become those under which the inbox
    stores the mails, each once (those that it lacks stay as they are), and an unanswerable
    question cites none. `kind` and `answerable` agree with each other; a "multi-mail"
    question has several mails and a "count" has a number for an answer, else they are what
    their number of mails says.
    """
    answerable = _answerable(question)
    ids = () if answerable is False else _stored_ids(question.message_ids, batch, cited)
    if ids != question.message_ids:
        question = checks.mended(question, "filter", "sources", message_ids=ids)
    wanted: dict[str, Any] = {"answerable": answerable, "kind": _kind(question, answerable)}
    changes = {name: value for name, value in wanted.items() if getattr(question, name) != value}
    return checks.mended(question, "filter", "kind", **changes) if changes else question


def with_marks(question: Question) -> Question:
    """The question, marked "long-answer" where its answer is no short fact."""
    return checks.marked(question, LONG) if is_long(question.answer) else question


def is_long(answer: str | None) -> bool:
    """True for an answer that is no short fact, and so marked `LONG`."""
    return len((answer or "").split()) > MAX_SHORT_WORDS


def _answerable(question: Question) -> bool | None:
    if question.kind != "unanswerable":
        return question.answerable
    # Where the two fields are at odds the answer tells.
    return question.answerable is True and not is_abstention(question.answer)


def _kind(question: Question, answerable: bool | None) -> Kind | None:
    if answerable is False:
        return "unanswerable"
    several = len(question.message_ids) > 1
    wrong = (
        question.kind == "unanswerable"
        or (question.kind == "multi-mail" and not several)
        or (question.kind == "count" and not _has_number(question.answer))
    )
    return ("multi-mail" if several else "lookup") if wrong else question.kind


def _has_number(answer: str | None) -> bool:
    # An empty answer is another check's matter.
    if is_abstention(answer) or answer is None:
        return True
    return bool(_COUNTED.search(answer) or read_claims(answer).values)


def _stored_ids(
    message_ids: Sequence[str], batch: Batch | None, cited: Mapping[str, Cited]
) -> tuple[str, ...]:
    own = () if batch is None else batch.message_ids
    ids = (each if each in own else cited[each].stored or each for each in message_ids)
    return tuple(dict.fromkeys(ids))
