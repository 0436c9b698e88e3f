"""What the files of a golden set may hold, checked as they are read.

A folder may have been written by others, or mended by hand. Each function raises `ValueError`,
in one line, for what no step writes. Knows nothing of files and of what rows mean.
"""

import dataclasses
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from art_e import question as rows
from art_e.question import Question, Split
from data_pipeline.golden.checks import Step
from data_pipeline.golden.limits import check_realism

_FIELDS = frozenset(each.name for each in dataclasses.fields(Question))
Count = Annotated[int, Field(ge=0)]


class _Form(BaseModel):
    # More is let through: the settings of steps are their own.
    model_config = ConfigDict(strict=True, extra="ignore")


_Read = TypeVar("_Read", bound=_Form)


class Rejection(_Form):
    """Why a row was dropped."""

    step: Step
    check: str
    reason: str


class BatchRow(_Form):
    """A batch as its line has it."""

    id: str
    inbox: str
    split: Split
    message_ids: list[str]


class _Check(_Form):
    step: Step
    passed: bool | None
    reason: str
    by: str


class _Change(_Form):
    step: Step
    check: str
    was: dict[str, JsonValue]


class _History(_Form):
    """What steps wrote into a row's provenance."""

    checks: dict[str, _Check] = {}
    marks: list[str] = []
    mended: list[_Change] = []


class _Sums(_Form):
    came: Count = Field(alias="in")
    kept: Count
    dropped: dict[str, Count]
    mended: dict[str, Count]
    unsure: dict[str, Count]


class _StepTaken(_Form):
    sums: _Sums
    unchecked: dict[str, dict[str, Count]] = {}


class _Db(_Form):
    name: str
    mails: Count


class _Manifest(_Form):
    steps: dict[Step, _StepTaken]
    db: _Db | None = None
    seed: int | None = None
    inboxes: dict[str, Split] = {}


class _Rejected(_Form):
    rejected: Rejection


def read_question(row: Any) -> Question:
    """The question that a line of questions.jsonl holds, with checks, marks and mends of steps."""
    question = rows.read_question(row)
    unknown = [name for name in row if name not in _FIELDS]
    if unknown:
        raise ValueError(f"a question has no field {unknown[0]!r}")
    check_realism(question.how_realistic)
    history = _checked(_History, question.provenance)
    for each in history.mended:
        # What was before must fit too, as the step may be taken back.
        was = {**row, "provenance": {}, **each.was}
        _checked(_History, {"marks": was.pop("marks", [])})
        read_question(was)
    return question


def read_rejection(row: Any) -> Rejection:
    """Why the row of a line of rejected.jsonl was dropped."""
    return _checked(_Rejected, row).rejected


def read_batch(row: Any) -> BatchRow:
    """The batch of a line of batches.jsonl."""
    return _checked(BatchRow, row)


def read_manifest(manifest: Any, schema: str) -> dict[str, Any]:
    """The manifest, as it is."""
    if not isinstance(manifest, dict) or manifest.get("schema") != schema:
        raise ValueError(f"its manifest is not of {schema}")
    _checked(_Manifest, manifest)
    return manifest


def _checked(form: type[_Read], value: Any) -> _Read:
    try:
        return form.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "line"
        raise ValueError(f"{where}: {first['msg']}") from None
