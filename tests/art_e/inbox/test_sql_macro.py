"""The file's own SQL macros give what `Inbox` gives: ids, order, scores, missing words."""

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from random import Random

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from art_e.inbox.file import InboxFile
from art_e.question import load_questions
from data_pipeline.ingest import batch
from tests.builders import (
    BOB,
    Material,
    Query,
    as_row,
    material,
    message_ids,
    new_file,
    plain_connection,
    random_query,
    raw,
    run_query,
    run_sql,
)
from tests.conftest import RealInbox


@pytest.fixture(scope="module")
def made_of(world: InboxFile) -> Material:
    return material(world)


@pytest.fixture(scope="module")
def shell(world_db: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with plain_connection(world_db) as connection:
        yield connection


@settings(max_examples=25)
@given(data=st.data())
def test_search_is_the_same_in_sql(
    world: InboxFile, shell: duckdb.DuckDBPyConnection, made_of: Material, data: st.DataObject
) -> None:
    address = data.draw(st.sampled_from(made_of.addresses))
    as_of = data.draw(st.none() | st.sampled_from(made_of.days))
    query = random_query(data.draw(st.randoms(use_true_random=False)), made_of)
    hits = run_query(world.open_inbox(address, as_of), query)
    assert [as_row(hit) for hit in hits] == run_sql(shell, address, as_of, query)


def test_a_common_word_finds_a_long_mail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Its score rounds to nothing; that is not the same as lacking the word.
    monkeypatch.setattr(batch, "WORTH_WORKERS", 10_000)
    few = {"subject": "", "sender": "a@t.example"}
    short = [raw(f"<{n}@t>", body=f"budget {n}", **few) for n in range(1700)]
    long = raw("<long@t>", subject="", body="budget " + "word " * 30_000)
    with new_file(tmp_path / "inbox.duckdb", [*short, long]) as file:
        query = Query(["budget"], from_addr="ann@test.example")
        hits = run_query(file.open_inbox(BOB), query)
        assert message_ids(hits) == ["<long@t>"]
        with plain_connection(file.path) as connection:
            assert [as_row(hit) for hit in hits] == run_sql(connection, BOB, None, query)


def test_on_real_mail(real_inbox: RealInbox) -> None:
    rng = Random(2)
    with InboxFile(real_inbox.db) as file, plain_connection(real_inbox.db) as connection:
        made_of = material(file)
        asked = [
            (each.inbox_address, each.query_date, Query(each.question.split()))
            for each in load_questions(str(real_inbox.folder / "questions.jsonl"))
        ]
        searched: list[tuple[str, dt.date | None, Query]] = rng.sample(asked, 50)
        searched += [
            (rng.choice(made_of.addresses), rng.choice(made_of.days), random_query(rng, made_of))
            for _ in range(50)
        ]
        for address, as_of, query in searched:
            hits = run_query(file.open_inbox(address, as_of), query)
            expected = run_sql(connection, address, as_of, query)
            assert [as_row(hit) for hit in hits] == expected, query
