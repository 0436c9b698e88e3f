"""Steps as lines: what is written is read again, whatever a kill left behind it."""

import dataclasses
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.progress import STEPS, Step, Validation, append_step, read_steps

numbers = st.floats(allow_nan=False, allow_infinity=False)
optional = st.none() | numbers


def fields_of(name: str) -> st.SearchStrategy[Any]:
    if name in ("step", "tokens", "groups", "flat_groups", "resampled", "unjudged"):
        return st.integers(0, 10**9)
    if name == "components":
        return st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), numbers)
    return numbers if name in ("seconds", "cost_usd") else optional


steps = st.builds(Step, **{each.name: fields_of(each.name) for each in dataclasses.fields(Step)})


# Each line is synced to disk, which takes its time.
@settings(max_examples=20)
@given(st.lists(steps, max_size=5), st.binary(max_size=40))
def test_what_was_written_is_read_again(made: list[Step], torn: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for each in made:
            append_step(folder, each)
        assert read_steps(folder) == made
        # A kill cut off the last line: it never was.
        with (folder / STEPS).open("ab") as file:
            file.write(torn.replace(b"\n", b" "))
        assert read_steps(folder) == made
        append_step(folder, Step(7, 1.0, 2))
        assert read_steps(folder) == [*made, Step(7, 1.0, 2)]


def test_no_file_is_no_step(tmp_path: Path) -> None:
    assert read_steps(tmp_path) == []


@pytest.mark.parametrize("line", ["{}", '{"step": 1, "seconds": 1, "tokens": 1, "x": 2}', "nope"])
def test_what_is_no_step_is_refused(line: str, tmp_path: Path) -> None:
    (tmp_path / STEPS).write_text(f"{line}\n")
    with pytest.raises(ValueError, match=r"."):
        read_steps(tmp_path)


def test_a_validation_as_a_row() -> None:
    names = [each.name for each in dataclasses.fields(Validation)]
    made = Validation(**dict.fromkeys(names, 1))
    assert Validation(**json.loads(json.dumps(made.to_row()))) == made
