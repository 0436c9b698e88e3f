"""Words: the same in Python and in DuckDB, stop words, what a search looks for."""

import sys
import unicodedata

import duckdb
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from art_e.inbox.tokenizer import STOP_WORDS, fold, search_words, stems, words

# Assigned since Unicode 3.2: newer characters are known to Python or DuckDB alone,
# depending on their versions. No control character but white space comes out of the parser.
_OLD = unicodedata.ucd_3_2_0
ASSIGNED = [
    char
    for char in map(chr, range(32, sys.maxunicode + 1))
    if _OLD.category(char) not in ("Cn", "Co", "Cs")
] + ["\t", "\n"]

DUCKDB_WORDS = r"regexp_extract_all(lower(strip_accents(text)), '[\p{L}\p{N}]+')"


@pytest.fixture(scope="module")
def connection() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


def test_every_character_folds_and_splits_as_in_duckdb(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    texts = [f"{char} A{char}B" for char in ASSIGNED]
    rows = connection.execute(
        f"SELECT text, lower(strip_accents(text)), {DUCKDB_WORDS} FROM (SELECT unnest(?) AS text)",
        [texts],
    ).fetchall()
    differing = [
        (ascii(text), fold(text), folded, words(text), found)
        for text, folded, found in rows
        if (fold(text), words(text)) != (folded, found)
    ]
    assert len(rows) == len(texts)
    assert differing == []


@settings(max_examples=200, deadline=None)
@given(text=st.text(st.sampled_from(ASSIGNED), max_size=40))
@example("ΟΔΟΣ ΣΑΣ")
@example("İstanbul e\u0301tude \u1100\u1161\u11a8 ﬁne Ⅻ x² straße")
@example("q\u0323\u0307 \u0307q")
def test_text_folds_and_splits_as_in_duckdb(
    connection: duckdb.DuckDBPyConnection, text: str
) -> None:
    row = connection.execute(
        f"SELECT lower(strip_accents(text)), {DUCKDB_WORDS} FROM (SELECT ? AS text)", [text]
    ).fetchone()
    assert row == (fold(text), words(text))


def test_words_are_folded_runs_of_letters_and_digits() -> None:
    text = "Zürich's café, NAÏVE_plan #42 (Q3/2001): 1,250.00 don\u2019t"
    assert words(text) == [
        *("zurich", "s", "cafe", "naive", "plan", "42", "q3"),
        *("2001", "1", "250", "00", "don", "t"),
    ]


@given(text=st.text())
def test_folding_is_done_once(text: str) -> None:
    assert fold(fold(text)) == fold(text)
    assert words(" ".join(words(text))) == words(text)


def test_search_words_are_distinct_in_order_and_without_stop_words() -> None:
    assert search_words(["When is Shari's move", "to Portland", "MOVE?"]) == [
        "shari",
        "move",
        "portland",
    ]


def test_stop_words_alone_are_searched() -> None:
    assert search_words(["The Who", "the"]) == ["the", "who"]
    assert search_words(["", "?!"]) == []


def test_stop_words_are_words_that_can_occur() -> None:
    assert [word for word in STOP_WORDS if words(word) != [word]] == []
    assert "may" not in STOP_WORDS


def test_forms_of_a_word_share_a_stem() -> None:
    assert len(set(stems(["move", "moves", "moved", "moving"]))) == 1
    assert stems(["2001", "q3", "zurich"]) == ["2001", "q3", "zurich"]
