"""The split step on inboxes full of copies: whatever the rows, no gold mail leaks.

Copies are of both kinds: those that became one mail (under Enron's rules) and those that
stayed mails of their own.
"""

import copy
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from art_e.inbox.file import InboxFile
from art_e.question import SPLITS
from data_pipeline.golden.inboxes import Counts, draw
from data_pipeline.golden.split import split
from data_pipeline.ingest.batch import Rules
from tests.builders import make_inbox, raw
from tests.data_pipeline.golden.builders import citing, leaks, made, written


class Copies(NamedTuple):
    """An inbox file of few contents and many mails, whose copies have ids of their own."""

    file: InboxFile
    inboxes: list[str]
    ids: dict[str, list[str]]


@pytest.fixture(scope="module", params=[True, False], ids=["one mail of copies", "mails apart"])
def copies(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Copies]:
    draws = Random("copies")
    inboxes = [f"person{number}@test.example" for number in range(7)]
    ids: dict[str, list[str]] = {each: [] for each in inboxes}
    messages = []
    for number in range(90):
        content = draws.randrange(45)
        sender = inboxes[content % len(inboxes)]
        to = draws.choice(inboxes)
        body = f"What there is to say about {content}."
        messages.append(
            raw(f"<{number}@test>", subject=f"About {content}", body=body, sender=sender, to=to)
        )
        for each in {sender, to}:
            ids[each].append(f"<{number}@test>")
    db = tmp_path_factory.mktemp("copies") / "inbox.duckdb"
    make_inbox(db, messages, Rules(any_id=request.param))
    with InboxFile(db) as file:
        yield Copies(file, inboxes, ids)


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.integers(1, 40), st.sampled_from(["import", "generate"]))
def test_whatever_the_rows_no_gold_leaks(copies: Copies, seed: int, size: int, begin: str) -> None:
    draws = Random(seed)
    rows = [
        citing(
            f"q-{number}",
            inbox,
            *draws.sample(copies.ids[inbox], draws.randrange(4)),
            split=draws.choice([*SPLITS, None]),
        )
        for number in range(size)
        for inbox in [draws.choice(copies.inboxes)]
    ]
    generated = draw(copies.inboxes, seed, Counts()) if begin == "generate" else None
    golden = made(rows, generated=generated)
    shuffled = copy.deepcopy(golden)
    draws.shuffle(shuffled.questions)
    split(copies.file, golden, seed=seed, wanted=Counts())
    once = written(golden)
    split(copies.file, golden, seed=seed, wanted=Counts())
    split(copies.file, shuffled, seed=seed, wanted=Counts())
    # A second time and in another order: the same.
    assert written(golden) == once
    assert written(shuffled) == once
    inboxes = golden.manifest["inboxes"]
    assert all(each.split == inboxes[each.inbox_address] for each in golden.questions)
    assert leaks(copies.file, golden.questions, inboxes) == (set(), set())
    # What was dropped had a leak, and test lost nothing.
    dropped = [each.question for each in golden.rejected]
    assert all(each is not None and each.split != "test" for each in dropped)
    whole = [*golden.questions, *(each for each in dropped if each is not None)]
    assert sorted(each.id for each in whole) == sorted(each.id for each in rows)
    found = leaks(copies.file, whole, inboxes)
    assert {each.row["id"] for each in golden.rejected} <= found.shared | found.in_test_inbox
    assert found.in_test_inbox <= {each.row["id"] for each in golden.rejected}
