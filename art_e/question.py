"""A question about an inbox, with what is known of its answer.

The field names are those of the public ART-E data set, so that its rows load
as they are; `kind`, `difficulty`, `answerable`, `split` and `provenance` are
ours. Knows nothing of inboxes, models or judges.
"""

import dataclasses
import datetime as dt
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from art_e.abstention import is_abstention
from art_e.errors import UserError

Kind = Literal["lookup", "latest-update", "multi-mail", "count", "unanswerable"]
Difficulty = Literal["easy", "medium", "hard"]
Split = Literal["train", "validation", "test"]

KINDS: tuple[Kind, ...] = ("lookup", "latest-update", "multi-mail", "count", "unanswerable")
DIFFICULTIES: tuple[Difficulty, ...] = ("easy", "medium", "hard")
SPLITS: tuple[Split, ...] = ("train", "validation", "test")

_HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")

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

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """The question that `to_row` gave. Raises `ValueError` for anything else."""
        try:
            date = row["query_date"]
            day = None if date is None else dt.date.fromisoformat(date)
            return cls(**{**row, "query_date": day, "message_ids": tuple(row["message_ids"])})
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"no question: {error}") from None


def load_questions(source: str, split: Split | None = None) -> list[Question]:
    """The questions of a golden-set folder, a bare JSONL file or a hub data set.

    A folder holds `train.jsonl`, `validation.jsonl` and `test.jsonl`, or one
    `questions.jsonl`; rows that name no split are of the one that their file, or
    their part of the hub data set, is named for. With `split`, only the rows of
    that split are given. Raises `UserError`, naming the row, where one is no question.
    """
    path = Path(source)
    if path.is_dir():
        files = [file for name in SPLITS if (file := path / f"{name}.jsonl").is_file()]
        files = files or [file for file in [path / "questions.jsonl"] if file.is_file()]
        if not files:
            raise UserError(f"{path} holds no train, validation, test or questions.jsonl")
        questions = [
            each
            for file in files
            for each in _questions(_of_split(_json_lines(file), file.stem), str(file))
        ]
    elif path.is_file():
        questions = list(_questions(_json_lines(path), str(path)))
    elif _HUB_ID.fullmatch(source) and path.suffix != ".jsonl":
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
            json.dumps(question.to_row(), ensure_ascii=False).encode()
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "row"
            raise UserError(f"{source}, row {number}: {where}: {first['msg']}") from None
        except UnicodeEncodeError:
            raise UserError(f"{source}, row {number}: a text has a lone surrogate") from None
        if question.answerable is None and question.kind == "unanswerable":
            question = dataclasses.replace(question, answerable=False)
        elif question.answerable is None and question.answer is not None:
            # A gold answer that abstains ("I don't know") is none.
            answerable = not is_abstention(question.answer)
            question = dataclasses.replace(question, answerable=answerable)
        yield question


def _of_split(rows: Iterable[Any], name: str) -> Iterator[Any]:
    for row in rows:
        unnamed = name in SPLITS and isinstance(row, dict) and row.get("split") is None
        yield {**row, "split": name} if unnamed else row


def _json_lines(path: Path) -> Iterator[Any]:
    # Bytes, so that a line of another encoding is an error of that line.
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                yield json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UserError(f"{path}, line {number} is not JSON: {error}") from None


def _hub_rows(hub_id: str, split: Split | None) -> Iterator[Any]:
    import datasets

    try:
        parts = datasets.load_dataset(hub_id)
    except Exception as error:  # noqa: BLE001 - the hub's clients raise many kinds
        # Their messages may be of many lines.
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"can't load {hub_id} from the hub: {reason[:300]}") from None
    for name, rows in parts.items():
        if split is None or name == split:
            yield from _of_split(rows, name)
