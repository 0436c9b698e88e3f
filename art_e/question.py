"""A question about an inbox with its gold answer, and the reader of question sets.

The field names are those of the public ART-E data set, so that its rows load as they are; `kind`,
`difficulty`, `answerable`, `split` and `provenance` are ours."""

import contextlib
import datetime as dt
import json
import lzma
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from art_e.abstention import is_abstention
from art_e.errors import UserError, fault_of

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Kind = Literal["lookup", "latest-update", "multi-mail", "count", "unanswerable"]
Difficulty = Literal["easy", "medium", "hard"]
Split = Literal["train", "validation", "test"]

KINDS: tuple[Kind, ...] = ("lookup", "latest-update", "multi-mail", "count", "unanswerable")
DIFFICULTIES: tuple[Difficulty, ...] = ("easy", "medium", "hard")
SPLITS: tuple[Split, ...] = ("train", "validation", "test")

# Sets that come with the project, about the public Enron mail; docs/golden.md has their card.
SHIPPED = ("enron", "enron-hard")

_HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")


@dataclass(frozen=True, slots=True)
class Question:
    """One row of a golden set, or (with `answer` None) a user's own question. `message_ids` are the
    gold mails: together they hold the answer. `equivalent_ids` hold the same as one of them
    (copies, forwards, quotes), and each counts as its gold mail. `query_date` is the episode's
    `as_of` (None: all mail). `answerable` is None if unknown. `how_realistic` is in 0..1."""

    # The public data set has numbers as ids.
    __pydantic_config__: ClassVar = {"coerce_numbers_to_str": True, "extra": "ignore"}

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
    provenance: dict[str, Any] = field(default_factory=dict)
    equivalent_ids: tuple[str, ...] = ()

    def to_row(self) -> dict[str, Any]:
        row = {each.name: getattr(self, each.name) for each in fields(self)}
        lists = {name: list(row[name]) for name in ("message_ids", "equivalent_ids")}
        return row | lists | {"query_date": self.query_date and self.query_date.isoformat()}

    @staticmethod
    def from_row(row: Any) -> "Question":
        """Return the question of a row of any source. A missing `answerable` follows from the
        answer. Raises `ValueError` in one line that begins with the invalid field."""
        from pydantic import ValidationError

        try:
            question = _adapter().validate_python(_plain(row) if isinstance(row, Mapping) else row)
            json.dumps(question.to_row(), ensure_ascii=False).encode()
        except ValidationError as error:
            raise ValueError(fault_of(error, "row")) from None
        except UnicodeEncodeError:
            raise ValueError("a text has a lone surrogate") from None
        except (TypeError, RecursionError):
            raise ValueError("provenance: it is not JSON") from None
        if question.answerable is None and question.kind == "unanswerable":
            return replace(question, answerable=False)
        if question.answerable is None and question.answer is not None:
            # A gold answer may abstain ("I don't know").
            return replace(question, answerable=not is_abstention(question.answer))
        return question


class RawRow(NamedTuple):
    """One unparsed row of a source; `error` says why `value`, a line's text, is not JSON."""

    place: str
    value: Any
    error: str | None = None


def load_questions(source: str, split: str | None = None) -> list[Question]:
    """Return the questions of a source that `read_rows` takes, or of one `split`. Raises
    `UserError` if there are none, or for an unknown split or an invalid row, which it names."""
    if split not in (None, *SPLITS):
        raise UserError(f"no split {split!r}; there are {', '.join(SPLITS)}")
    questions = []
    for row in read_rows(source):
        if row.error is not None:
            raise UserError(f"{row.place} {row.error}")
        try:
            questions.append(Question.from_row(row.value))
        except ValueError as error:
            raise UserError(f"{row.place}: {error}") from None
    chosen = [each for each in questions if split is None or each.split == split]
    if not chosen:
        raise UserError(f"{source} has no question" + (f" in split {split}" if split else ""))
    return chosen


def read_rows(source: str) -> Iterator[RawRow]:
    """Yield the unparsed rows of a folder, a JSONL or Parquet file, a hub data set or one of
    `SHIPPED` (a folder of that name is `./enron`). A folder holds `train.jsonl`, `validation.jsonl`
    and `test.jsonl`, or one `questions.jsonl`, or else Parquet files at any depth, or other JSONL
    files. Rows without a split get the one in their file's name (`test-00000-of-00001.parquet`) or
    their part of the hub data set. Raises `UserError` if there are none."""
    path = Path(source)
    if source in SHIPPED:
        file = resources.files(__package__).joinpath("data", f"{source}.jsonl.xz")
        yield from _json_lines(source, lzma.decompress(file.read_bytes()).splitlines())
    elif path.is_dir():
        files = [file for name in SPLITS if (file := path / f"{name}.jsonl").is_file()]
        for others in ("questions.jsonl", "**/*.parquet", "*.jsonl"):
            files = files or sorted(path.glob(others))
        if not files:
            raise UserError(f"{path} holds no train, validation, test or questions.jsonl")
        for file in files:
            yield from _of_split(read_rows(str(file)), file.stem.partition("-")[0])
    elif path.is_file():
        if path.suffix == ".parquet":
            yield from _parquet_rows(path)
        else:
            # Bytes, so that a line of another encoding is an error of that line.
            with path.open("rb") as lines:
                yield from _json_lines(source, lines)
    elif _HUB_ID.fullmatch(source) and path.suffix not in (".jsonl", ".parquet"):
        yield from _hub_rows(source)
    else:
        why = f"no questions at {source}: give a Parquet or JSONL file"
        raise UserError(f"{why}, a folder or a hub id, or {' or '.join(SHIPPED)}")


@cache
def _adapter() -> "TypeAdapter[Question]":
    from pydantic import TypeAdapter

    return TypeAdapter(Question)


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Undo what tables add to a row: nulls for missing fields, and JSON text for an object."""
    lists = ("message_ids", "equivalent_ids", "provenance")
    fields = {name: each for name, each in row.items() if each is not None or name not in lists}
    if isinstance(fields.get("provenance"), str):
        # Validation rejects other text later.
        with contextlib.suppress(ValueError, RecursionError):
            fields["provenance"] = json.loads(fields["provenance"])
    return fields


def _of_split(rows: Iterator[RawRow], name: str) -> Iterator[RawRow]:
    for row in rows:
        value = row.value
        unnamed = name in SPLITS and isinstance(value, dict) and value.get("split") is None
        yield row._replace(value={**value, "split": name}) if unnamed else row


def _json_lines(source: str, lines: Iterable[bytes]) -> Iterator[RawRow]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield RawRow(f"{source}, row {number}", json.loads(line))
        except (ValueError, RecursionError) as error:
            text = line.decode("utf-8", "replace")
            yield RawRow(f"{source}, line {number}", text, f"is not JSON: {error}")


def _parquet_rows(path: Path) -> Iterator[RawRow]:
    from pyarrow import ArrowException, parquet

    try:
        rows = parquet.read_table(path, partitioning=None).to_pylist()
    except (ArrowException, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{path} isn't readable Parquet ({reason}); write it again") from None
    for number, row in enumerate(rows, start=1):
        yield RawRow(f"{path}, row {number}", row)


def _hub_rows(hub_id: str) -> Iterator[RawRow]:
    import datasets

    try:
        parts = datasets.load_dataset(hub_id)
    except Exception as error:  # noqa: BLE001 - the hub's clients raise many kinds
        # Their messages may have many lines.
        reason = " ".join(str(error).split()) or type(error).__name__
        why = f"can't load {hub_id} from the hub: {reason[:300]}"
        raise UserError(f"{why}; check the id and the network") from None
    for name, rows in parts.items():
        numbered = enumerate(rows, start=1)
        yield from _of_split((RawRow(f"{hub_id}, row {n} of {name}", r) for n, r in numbered), name)
