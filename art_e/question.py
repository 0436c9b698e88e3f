"""A question about an inbox, with what is known of its answer.

The field names are those of the public ART-E data set, so that its rows load
as they are; `kind`, `difficulty`, `answerable`, `split` and `provenance` are
ours. Knows nothing of inboxes, models or judges.
"""

import dataclasses
import datetime as dt
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from art_e.errors import UserError

Kind = Literal["lookup", "latest-update", "multi-mail", "count", "unanswerable"]
Difficulty = Literal["easy", "medium", "hard"]
Split = Literal["train", "validation", "test"]

KINDS: tuple[Kind, ...] = ("lookup", "latest-update", "multi-mail", "count", "unanswerable")
SPLITS: tuple[Split, ...] = ("train", "validation", "test")

# The data set's own numbers are ids too.
_PYDANTIC_CONFIG = {"coerce_numbers_to_str": True, "extra": "ignore"}


@dataclass(frozen=True, slots=True)
class Question:
    """One row of a golden set, or (with `answer` None) a user's own question.

    `message_ids` are the gold mails: those that, together, hold the answer.
    `query_date` is the episode's `as_of`: mail sent after that day does not
    exist for it; None means all mail. `answerable` is None where nobody knows.
    `how_realistic` is in 0..1.
    """

    __pydantic_config__ = _PYDANTIC_CONFIG

    id: str
    question: str
    inbox_address: str
    query_date: dt.date | None = None
    answer: str | None = None
    message_ids: tuple[str, ...] = ()
    how_realistic: float | None = None
    kind: Kind | None = None
    difficulty: Difficulty | None = None
    answerable: bool | None = None
    split: Split | None = None
    provenance: dict[str, Any] = dataclasses.field(default_factory=dict)

    def to_row(self) -> dict[str, Any]:
        """The question as a JSON object (dates as YYYY-MM-DD)."""
        row = dataclasses.asdict(self)
        row["message_ids"] = list(self.message_ids)
        row["query_date"] = None if self.query_date is None else self.query_date.isoformat()
        return row


def load_questions(source: str, split: Split | None = None) -> list[Question]:
    """The questions of a golden-set folder, a bare JSONL file or a hub data set.

    A folder holds `train.jsonl`, `validation.jsonl` and `test.jsonl`, or one
    `questions.jsonl`. With `split`, only the rows of that split are given.
    Raises `UserError`, naming the row, where one is no question.
    """
    path = Path(source)
    if path.is_dir():
        names = [path / f"{name}.jsonl" for name in (*SPLITS, "questions")]
        files = [name for name in names if name.is_file()]
        if not files:
            raise UserError(f"{path} holds no train, validation, test or questions.jsonl")
        questions = [each for file in files for each in _questions(_json_lines(file), str(file))]
    elif path.is_file():
        questions = list(_questions(_json_lines(path), str(path)))
    elif source.count("/") == 1 and not source.startswith((".", "/")):
        questions = list(_questions(_hub_rows(source, split), source))
    else:
        raise UserError(f"no questions at {source}: give a JSONL file, a folder or a hub id")
    chosen = [each for each in questions if split is None or each.split == split]
    if not chosen:
        raise UserError(f"{source} has no question" + (f" in split {split}" if split else ""))
    return chosen


def _questions(rows: Iterable[Any], source: str) -> Iterator[Question]:
    from pydantic import TypeAdapter, ValidationError

    adapter = TypeAdapter(Question)
    for number, row in enumerate(rows, start=1):
        try:
            question = adapter.validate_python(row)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "row"
            raise UserError(f"{source}, row {number}: {where}: {first['msg']}") from None
        if question.answerable is None and question.answer is not None:
            question = dataclasses.replace(question, answerable=bool(question.answer))
        yield question


def _json_lines(path: Path) -> Iterator[Any]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                yield json.loads(line)
            except ValueError as error:
                raise UserError(f"{path}, line {number} is not JSON: {error}") from None


def _hub_rows(hub_id: str, split: Split | None) -> Iterator[Any]:
    import datasets

    try:
        parts = datasets.load_dataset(hub_id)
    except Exception as error:  # noqa: BLE001 - the hub's clients raise many kinds
        raise UserError(f"can't load {hub_id} from the hub: {error}") from None
    for name, rows in parts.items():
        if split is None or name == split:
            yield from ({"split": name, **row} for row in rows)
