"""Rows of rollouts: what a table holds gives the trajectory back, whatever mail says."""

import dataclasses
import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from art_e.text import encodable
from art_e.trajectory import Trajectory
from data_pipeline.rollouts import COLUMNS, SCHEMA, from_row, to_row
from tests.builders import TEXT, trajectory

HOSTILE = (
    "\0\x1b[31m", "a \ud800 b", "| a\n\n# h <script>x</script> [l](http://e) `c`", '"\\\u2028', "",
)  # fmt: skip

# Any character, lone surrogates and NULs too.
_texts = st.text(st.characters()) | st.sampled_from(HOSTILE)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=5,
)


def through_parquet(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), file)
    found: list[dict[str, Any]] = pq.read_table(file).to_pylist()
    return found


def test_every_field_of_a_trajectory_is_a_column() -> None:
    # Events follow from the messages.
    fields = {each.name for each in dataclasses.fields(Trajectory)} - {"events"}
    assert {each.name for each in COLUMNS} == fields


@given(_texts, _json, st.none() | st.floats(0, 100))
@example(TEXT, {"a": [None, 1, "x"]}, 0.1)
def test_a_row_gives_the_trajectory_back(text: str, value: Any, cost: float | None) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": text}}
    made = trajectory(
        "plain",
        messages=[
            {"role": "user", "content": text},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": text},
        ],
        policy={"value": value},
        question={"question": text, "provenance": {"deep": value}},
        verdict={"reason": text, "correct": None},
        error={"kind": "provider", "message": text},
        cost_usd=cost,
        call_seconds=[0.5, None],
    )
    # As a run has it on disk: two surrogates side by side are one character there.
    made = Trajectory.from_line(made.to_line())
    other = trajectory("plain", question={"other": {"fields": 1}}, as_of="2020-01-05")
    assert [from_row(row) for row in through_parquet([to_row(made), to_row(other)])] == [
        made,
        other,
    ]


@given(_texts)
def test_plain_columns_hold_what_utf_8_can(text: str) -> None:
    made = trajectory(text, sources=[text], model=text)
    [row] = through_parquet([to_row(made)])
    again = from_row(row)
    assert again.final_answer == again.model == again.sources[0] == encodable(text)


@pytest.mark.parametrize("row", [{}, {**to_row(trajectory()), "messages": "{"}])
def test_what_is_no_row_is_told(row: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"no row of rollouts|Expecting"):
        from_row(row)
