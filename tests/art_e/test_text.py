"""Text is one line, encodable, and holds no token that steers a model."""

import json

from hypothesis import given
from hypothesis import strategies as st

from art_e.message import observation_json
from art_e.text import cut_line


@given(st.text(st.characters()), st.integers(0, 50))
def test_whatever_the_text_it_is_one_line_that_can_be_written(text: str, most: int) -> None:
    line = cut_line(text, most)
    assert len(line) <= most + len("...")
    assert len(line.splitlines()) <= 1
    line.encode()


STEERING = ("<|", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>")
FRAGMENTS = st.lists(
    st.sampled_from([*STEERING, "im_start|>", "<", "|", "\\", '"', "\\u003c", "x"]), max_size=12
)


@given(FRAGMENTS.map("".join))
def test_no_token_that_steers_is_left_and_the_text_reads_the_same(said: str) -> None:
    written = observation_json({"body": said})
    assert not any(each in written for each in STEERING)
    assert json.loads(written) == {"body": said}
