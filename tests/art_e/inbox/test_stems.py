"""A word has the same stem in SQL as in Python, and whatever mail the file holds."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from art_e.inbox.file import InboxFile
from art_e.inbox.slice import LOOK_UPS_IN_SQL
from art_e.inbox.tokenizer import stems
from tests.builders import make_inbox, message_ids, raw

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


@pytest.mark.parametrize(
    ("written", "searched"),
    [
        ("the costs", "cost"),
        ("we relocate", "relocating"),
        ("one company", "companies"),
        ("plan ahead", "planning"),
        ("an invoice", "invoices"),
        ("we moved", "moves"),
    ],
)
def test_a_form_that_no_mail_has_finds_the_others(
    tmp_path: Path, written: str, searched: str
) -> None:
    make_inbox(tmp_path / "inbox.duckdb", [raw("<1@t>", body=f"It says {written} here.")])
    with InboxFile(tmp_path / "inbox.duckdb") as file:
        inbox = file.open_inbox("bob@test.example")
        for _ in range(LOOK_UPS_IN_SQL + 2):
            assert message_ids(inbox.search([searched])) == ["<1@t>"]
        rows = file.execute("FROM search_inbox('bob@test.example', ?)", [[searched]]).fetchall()
        assert message_ids(rows) == ["<1@t>"]
