"""Trajectories as lines of JSON: round trips, and lines that are no trajectory."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from art_e.storage import AppendLog
from art_e.trajectory import SCHEMA, Trajectory, read_trajectories
from tests.builders import TEXT, trajectory


def write(path: Path, *trajectories: Trajectory) -> None:
    with AppendLog(path) as log:
        for each in trajectories:
            log.append(each.to_line())


_texts = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from("\n\r\u2028\u2029\x85\0\"'\\")
)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=5,
)


@settings(deadline=None)
@given(_texts, _json, st.none() | st.floats(0, 100))
@example(TEXT, {"a": TEXT}, 0.1)
def test_a_line_gives_the_trajectory_back(text: str, policy: Any, cost: float | None) -> None:
    made = trajectory(text, policy={"value": policy}, cost_usd=cost, verdict={"reason": text})
    line = made.to_line()
    assert "\n" not in line
    assert Trajectory.from_line(line) == made


@settings(deadline=None)
@given(st.lists(_texts, max_size=5))
def test_a_file_gives_its_trajectories_back(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str]
) -> None:
    path = tmp_path_factory.mktemp("log") / "t.jsonl"
    made = [trajectory(text) for text in texts]
    write(path, *made)
    assert list(read_trajectories(path)) == made
    assert path.read_bytes().count(b"\n") == len(made)


def test_a_lone_surrogate_costs_no_trajectory(tmp_path: Path) -> None:
    made = [trajectory("a \ud800 b"), trajectory("c")]
    write(tmp_path / "t.jsonl", *made)
    assert list(read_trajectories(tmp_path / "t.jsonl")) == made
    for line in (tmp_path / "t.jsonl").read_text("utf-8").split("\n")[:-1]:
        json.loads(line)


def test_lines_have_their_schema() -> None:
    assert json.loads(trajectory().to_line())["schema"] == SCHEMA


LINE = trajectory().to_line()
ROW = json.loads(LINE)


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "{",
        "[]",
        "null",
        "\udcff",
        json.dumps({**ROW, "schema": "art-e/trajectory/0"}),
        json.dumps({key: value for key, value in ROW.items() if key != "schema"}),
        json.dumps({key: value for key, value in ROW.items() if key != "rubric"}),
        json.dumps({**ROW, "unknown": 1}),
    ],
)
def test_another_bad_line_is_an_error(tmp_path: Path, bad: str) -> None:
    path = tmp_path / "t.jsonl"
    text = f"{LINE}\n{bad}\n{LINE}\n"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    read = read_trajectories(path)
    assert next(read) == trajectory()
    with pytest.raises(ValueError):  # of JSON, of UTF-8 or of the schema
        next(read)
