"""Text made fit to keep."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_e.text import cut_line


@pytest.mark.parametrize(
    ("text", "shown"),
    [(" a\n\tb ", "a b"), ("abcde", "abcde"), ("abcdef", "abcde..."), ("\ud800", "?"), ("", "")],
)
def test_a_line_is_cut_where_it_is_long(text: str, shown: str) -> None:
    assert cut_line(text, 5) == shown


@given(st.text(st.characters()), st.integers(0, 50))
def test_whatever_the_text_it_is_one_line_that_can_be_written(text: str, most: int) -> None:
    line = cut_line(text, most)
    assert len(line) <= most + len("...")
    assert len(line.splitlines()) <= 1
    line.encode()
