"""Words and stems: the same in Python and in DuckDB, whatever mail the file holds."""

import sys
import unicodedata
from pathlib import Path

import duckdb
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from art_e.inbox.file import InboxFile
from art_e.inbox.slice import LOOK_UPS_IN_SQL
from art_e.inbox.tokenizer import fold, stems, words
from tests.builders import make_inbox, message_ids, raw

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


# Those that Snowball's English stemmer looks for, or makes an exception of.
ENDINGS = (
    "s es ies ied ss sses us ed eed eedly edly ing ying ingly y ational tional ization ation ator"
    " izer anci ency ently ably bly ly ousness ously fulness fully lessly ality alism ally iveness"
    " ivity bility ogist ogy logy icate ative alize icity ical ful ness ance ence able ible ate ive"
    " ize ity ic al ism ion sion er ous ant ement ment ent e l ll tt at bl iz"
).split()
ODD = (
    "andes atlas bias cosmos early gently howe idly news only singly skies skis sky ugly evening"
    " canning inning earring herring outing shouting dying lying playing proceed exceeding succeeds"
    " add egg off generic commune arsenal internal past pasted organs y yy ayy yes is 2001 3rd über"
).split()
letters = st.text("aeiouybcdglnrstwxé7", max_size=5)
made_up = st.builds(lambda *parts: "".join(parts), letters, *[st.sampled_from([*ENDINGS, ""])] * 2)


def in_sql(world: InboxFile, words: list[str]) -> dict[str, str]:
    return dict(world.execute("SELECT word, stem FROM stems_of(?)", [words]).fetchall())


def test_every_word_of_the_world_and_every_exception(world: InboxFile) -> None:
    words = [word for (word,) in world.execute("SELECT word FROM terms").fetchall()] + ODD
    assert in_sql(world, words) == dict(zip(words, stems(words), strict=True))
    assert len(words) > 1_000


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(words=st.lists(made_up.filter(bool), max_size=60))
def test_words_that_no_mail_has(world: InboxFile, words: list[str]) -> None:
    assert in_sql(world, words) == dict(zip(words, stems(words), strict=True))


FORMS = {
    "cost": "the costs",
    "relocating": "we relocate",
    "companies": "one company",
    "planning": "plan ahead",
    "moves": "we moved",
}


def test_a_form_that_no_mail_has_finds_the_others(tmp_path: Path) -> None:
    mails = [raw(f"<{form}@t>", body=f"It says {text} here.") for form, text in FORMS.items()]
    make_inbox(tmp_path / "inbox.duckdb", mails)
    with InboxFile(tmp_path / "inbox.duckdb") as file:
        inbox = file.open_inbox("bob@test.example")
        for form in [*FORMS] * (LOOK_UPS_IN_SQL + 1):
            assert message_ids(inbox.search([form])) == [f"<{form}@t>"]
            rows = file.execute("FROM search_inbox('bob@test.example', ?)", [[form]]).fetchall()
            assert message_ids(rows) == [f"<{form}@t>"]
