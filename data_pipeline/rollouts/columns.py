"""A trajectory as a row of a table, and back.

What has parts of its own is JSON text: Arrow would pad objects of several forms with nulls.
Knows nothing of files.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from art_e.message import compact_json
from art_e.text import encodable
from art_e.trajectory import Trajectory

_TEXT = pa.string()


class Column(NamedTuple):
    """A field of `Trajectory` as a column; `is_json` says that its texts are JSON."""

    name: str
    type: pa.DataType
    what: str
    is_json: bool = False

    @property
    def form(self) -> str:
        """Its type in words."""
        if self.is_json:
            return "JSON"
        is_list = pa.types.is_list(self.type)
        return f"list of {self.type.value_type}" if is_list else str(self.type)


def _json(name: str, what: str) -> Column:
    return Column(name, _TEXT, what, is_json=True)


COLUMNS = (
    Column("run_id", _TEXT, "the run"),
    Column("episode_id", _TEXT, "the episode, unique in the run"),
    Column("question_id", _TEXT, "the question, by its id in the golden set"),
    Column("inbox_address", _TEXT, "whose inbox was asked about"),
    Column("as_of", _TEXT, "the day of asking: later mail did not exist; null: all mail"),
    Column("model", _TEXT, "who chose the messages"),
    _json("policy", "sampling settings, hash of the system prompt; in training the step"),
    _json("messages", "the conversation in OpenAI's chat form, with tool calls and their results"),
    _json("handles", "message ids by the handles (m1, m2, ...) that the conversation uses"),
    Column("final_answer", _TEXT, "what was answered; null where nothing was"),
    Column("sources", pa.list_(_TEXT), "message ids of the mails that the answer cites"),
    _json("rubric", "what happened, as facts: found, read, turns, malformed calls"),
    _json("usage", "tokens"),
    Column("cost_usd", pa.float64(), "what was paid; null where it is not known"),
    _json("seconds", "how long it took"),
    Column("started_at", _TEXT, "when it began, in UTC"),
    Column("call_seconds", pa.list_(pa.float64()), "how long each call of the model took"),
    Column("retries", pa.int64(), "calls that failed and were made again"),
    _json("error", "the outside failure that ended it; null: none"),
    _json("verdict", "of the judge that decides: correct, grounded, judge, reason; or null"),
    _json("other_verdicts", "of the other judges"),
    _json("reward", "total and components, in training; else null"),
    Column("repeat", pa.int64(), "from 0, where a question was asked several times"),
    _json("question", "the golden row: question, answer, gold mails, kind, split; or null"),
    Column("schema", _TEXT, "the form of all this"),
)
SCHEMA = pa.schema([(each.name, each.type) for each in COLUMNS])


def fields_of(trajectory: Trajectory) -> dict[str, Any]:
    """The fields by their names, as they are: `dataclasses.asdict` would copy them all."""
    return {each.name: getattr(trajectory, each.name) for each in COLUMNS}


def to_row(trajectory: Trajectory) -> dict[str, Any]:
    """The row of a trajectory. What is None is null, and no JSON."""
    return {each.name: _cell(each, getattr(trajectory, each.name)) for each in COLUMNS}


def from_row(row: Mapping[str, Any]) -> Trajectory:
    """The trajectory of a row as `datasets` gives it. Raises `ValueError` for what is none."""
    try:
        fields = {
            each.name: json.loads(row[each.name])
            if each.is_json and row[each.name] is not None
            else row[each.name]
            for each in COLUMNS
        }
    except (KeyError, TypeError) as error:
        raise ValueError(f"no row of rollouts: {error}") from None
    return Trajectory(**fields)


def _cell(column: Column, value: Any) -> Any:
    if value is None:
        return None
    if column.is_json:
        # A lone surrogate becomes the JSON escape that it may have come from.
        return compact_json(value).encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return _plain(value)


def _plain(value: Any) -> Any:
    return encodable(value) if isinstance(value, str) else value
