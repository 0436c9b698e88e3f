import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_e.cli.output import clean, one_line

FORBIDDEN = {
    *map(chr, (*range(9), *range(11, 32), *range(0x7F, 0xA0), *range(0xD800, 0xE000))),
    *"\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069",
}
ANY_TEXT = st.text(st.characters(exclude_categories=()))
PIECES = st.lists(
    st.sampled_from(["\x1b", "[", "]", "P", "\x1b\\", "\x07", "\x9c", "\x9d", ";31m", "text", "\n"])
).map("".join)


@given(ANY_TEXT | PIECES)
def test_nothing_forbidden_is_left(text: str) -> None:
    assert not set(clean(text)) & FORBIDDEN
    assert not set(one_line(text)) & (FORBIDDEN | {"\n", "\t"})


@given(ANY_TEXT.map(lambda text: "".join(char for char in text if char not in FORBIDDEN)))
def test_printable_text_is_unchanged(text: str) -> None:
    assert clean(text) == text


@given(st.text(st.characters(exclude_characters=FORBIDDEN)), PIECES)
def test_cleaning_twice_changes_nothing(text: str, pieces: str) -> None:
    once = clean(text + pieces + text)
    assert clean(once) == once


@pytest.mark.parametrize(
    ("dirty", "shown"),
    [
        ("a\x1b]0;title\x07b", "ab"),
        ("a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\b", "alinkb"),
        ("a\x1bP1;2q#0\x1b\\b", "ab"),
        ("a\x1b[1;31mred\x1b[0m", "ared"),
        ("a\x1b[?1049h", "a"),
        ("a\x1b(Bb\x1bcd", "abd"),
        ("a\x1b", "a"),
        # An introducer without its end must not swallow what follows.
        ("a\x1b]0;the rest\nof it", "a0;the rest\nof it"),
        # UTF-8 read as Latin-1: what stands between two quotation marks is text.
        ("\xe2\x80\x9dthe deal\xe2\x80\x9c", "\xe2the deal\xe2"),
        ("tab\tand\nline", "tab\tand\nline"),
        ("[bold]kept[/bold]", "[bold]kept[/bold]"),
    ],
)
def test_sequences(dirty: str, shown: str) -> None:
    assert clean(dirty) == shown


def test_a_hostile_text_takes_linear_time() -> None:
    started = time.process_time()
    clean("\x1b]" * 500_000 + "\x1b[" * 500_000 + "\x1b[" + "1;" * 500_000)
    assert time.process_time() - started < 5


def test_one_line_is_one_line() -> None:
    assert one_line(" a\r\n b\x1b[0m\x1b[1m \t c\x85d ") == "a b c d"
