"""Trajectories as lines of JSON: round trips, torn and bad lines, and what survives a kill."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from art_e.trajectory import SCHEMA, Trajectory, TrajectoryLog, read_trajectories
from tests.builders import TEXT, trajectory


def write(path: Path, *trajectories: Trajectory) -> None:
    with TrajectoryLog(path) as log:
        for each in trajectories:
            log.append(each)


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


def test_a_torn_last_line_is_left_out_wherever_it_was_torn(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write(path, trajectory("first"), trajectory("Zürich \U0001f980"))
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for end in range(first, len(whole)):
        path.write_bytes(whole[:end])
        assert [each.final_answer for each in read_trajectories(path)] == ["first"]
    assert b"\xf0\x9f" in whole


def test_appending_after_a_torn_line_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write(path, trajectory("first"), trajectory("torn" * 1_000_000))
    path.write_bytes(path.read_bytes()[:-2])
    write(path, trajectory("second"))
    assert [each.final_answer for each in read_trajectories(path)] == ["first", "second"]
    path.write_bytes(b"{torn")
    write(path, trajectory("third"))
    assert [each.final_answer for each in read_trajectories(path)] == ["third"]


def test_opening_again_adds_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    for text in ("a", "b", "c"):
        write(path, trajectory(text))
    assert [each.final_answer for each in read_trajectories(path)] == ["a", "b", "c"]


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


WRITER = """
import signal, sys
from pathlib import Path
from art_e.trajectory import Trajectory, TrajectoryLog
made, path, stop = Trajectory.from_line(sys.stdin.read()), Path(sys.argv[1]), int(sys.argv[2])
with TrajectoryLog(path) as log:
    number = 0
    while number != stop:
        log.append(made)
        number += 1
        print(number, flush=True)
    signal.pause()
"""


# Small lines would stay in a buffer, were they not flushed; large ones may be torn.
@pytest.mark.parametrize(("text", "appended", "stop"), [("x", 5, 5), ("x" * 100_000, 7, -1)])
def test_what_was_appended_survives_a_kill(
    tmp_path: Path, text: str, appended: int, stop: int
) -> None:
    path = tmp_path / "t.jsonl"
    made = trajectory(text)
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(stop)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(made.to_line())
        process.stdin.close()
        for _ in range(appended):
            process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    found = list(read_trajectories(path))
    assert len(found) >= appended
    assert all(each == made for each in found)
    write(path, trajectory("after"))
    assert [each.final_answer for each in read_trajectories(path)][-1] == "after"
    assert len(list(read_trajectories(path))) == len(found) + 1


def test_a_line_is_on_the_disk_itself_when_append_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    # A loss of power can't be tested; that the whole line is synced can.
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_size))
    path = tmp_path / "t.jsonl"
    with TrajectoryLog(path) as log:
        for _ in range(3):
            log.append(trajectory())
            assert synced[-1] == path.stat().st_size
    assert len(synced) == 3
