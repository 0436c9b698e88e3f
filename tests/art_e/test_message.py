"""Observations: what a mail says reaches the model as text, and as nothing else."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_e.message import compact_json, observation_json

STEERING = ("<|", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>")
FRAGMENTS = st.lists(
    st.sampled_from([*STEERING, "im_start|>", "<", "|", "\\", '"', "\\u003c", "x"]), max_size=12
)


@given(FRAGMENTS.map("".join))
def test_no_token_that_steers_is_left_and_the_text_reads_the_same(said: str) -> None:
    written = observation_json({"body": said})
    assert not any(each in written for each in STEERING)
    assert json.loads(written) == {"body": said}


@pytest.mark.parametrize("said", ["<m1@test.example>", "a < b", "<html>", "<toolbox>", "Zürich"])
def test_other_text_is_as_it_was(said: str) -> None:
    assert observation_json({"body": said}) == compact_json({"body": said})
