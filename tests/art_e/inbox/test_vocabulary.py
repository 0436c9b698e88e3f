"""Words find the same stem in memory as in SQL, whether a mail has that form or not."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from art_e.inbox.file import InboxFile
from art_e.inbox.tokenizer import ENDINGS
from art_e.inbox.vocabulary import LOOK_UPS_IN_SQL, Vocabulary
from tests.mails import make_inbox, message_ids, raw


@pytest.fixture(scope="module")
def in_memory(world: InboxFile) -> Vocabulary:
    vocabulary = Vocabulary(world.execute)
    for _ in range(LOOK_UPS_IN_SQL + 1):
        vocabulary.look_up(["warm"])
    return vocabulary


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_memory_and_sql_agree(world: InboxFile, in_memory: Vocabulary, data: st.DataObject) -> None:
    known = [word for (word,) in world.execute("SELECT word FROM terms ORDER BY word").fetchall()]
    # Forms that no mail has: a known word with one usual ending put for another.
    form = st.builds(
        lambda word, ending, cut: word[: len(word) - cut] + ending.cut,
        st.sampled_from(known),
        st.sampled_from(ENDINGS),
        st.integers(0, 4),
    )
    words = data.draw(st.lists(st.one_of(form, st.sampled_from(known)), max_size=8, unique=True))
    rows = world.execute("SELECT word, term_id, stem FROM look_up(?)", [words]).fetchall()
    in_sql = {word: (term_id, stem) for word, term_id, stem in rows}
    assert in_memory.look_up(words) == {word: in_sql.get(word) for word in words}


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


def test_an_unknown_word_has_no_stem(world: InboxFile, in_memory: Vocabulary) -> None:
    assert in_memory.look_up(["qqxyzzy"]) == {"qqxyzzy": None}
    assert Vocabulary(world.execute).look_up(["qqxyzzy"]) == {"qqxyzzy": None}
