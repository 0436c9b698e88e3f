"""The split step on inboxes full of copies: whatever the rows, no gold mail leaks.

Copies are of both kinds: those that became one mail (under Enron's rules) and those that
stayed mails of their own.
"""

import copy
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from art_e.inbox.file import InboxFile
from art_e.question import SPLITS, Question
from data_pipeline.golden.golden_set import GoldenSet, Step
from data_pipeline.golden.inboxes import Counts, draw
from data_pipeline.golden.split import split
from data_pipeline.ingest.batch import Rules
from tests.builders import make_inbox, raw


class Copy(NamedTuple):
    """What a mail says, by number, and who has it in the inbox."""

    content: int
    people: frozenset[str]


class Copies(NamedTuple):
    """An inbox file of few contents and many mails, by message id."""

    file: InboxFile
    mails: dict[str, Copy]


INBOXES = [f"person{number}@test.example" for number in range(7)]


@pytest.fixture(scope="module", params=[True, False], ids=["one mail of copies", "mails apart"])
def copies(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Copies]:
    draws = Random("copies")
    mails: dict[str, Copy] = {}
    messages = []
    for number in range(90):
        name, content = f"<{number}@test>", draws.randrange(45)
        sender, to = INBOXES[content % len(INBOXES)], draws.choice(INBOXES)
        body = f"What there is to say about {content}."
        messages.append(raw(name, subject=f"About {content}", body=body, sender=sender, to=to))
        mails[name] = Copy(content, frozenset({sender, to}))
    db = tmp_path_factory.mktemp("copies") / "inbox.duckdb"
    make_inbox(db, messages, Rules(any_id=request.param))
    with InboxFile(db) as file:
        yield Copies(file, mails)


class Leaks(NamedTuple):
    """Ids of the questions whose gold is gold in another split, or mail of a test inbox."""

    shared: set[str]
    in_test_inbox: set[str]


def leaks(copies: Copies, questions: Sequence[Question], inboxes: Mapping[str, str]) -> Leaks:
    tested = {name for name, split in inboxes.items() if split == "test"}
    in_test = {mail.content for mail in copies.mails.values() if mail.people & tested}
    gold = {
        each.id: {copies.mails[name].content for name in each.message_ids} for each in questions
    }
    splits: dict[int, set[str | None]] = defaultdict(set)
    for each in questions:
        for content in gold[each.id]:
            splits[content].add(each.split)
    return Leaks(
        {each.id for each in questions if any(len(splits[mail]) > 1 for mail in gold[each.id])},
        {each.id for each in questions if each.split != "test" and gold[each.id] & in_test},
    )


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.integers(1, 40), st.sampled_from(["import", "generate"]))
def test_whatever_the_rows_no_gold_leaks(copies: Copies, seed: int, size: int, begin: Step) -> None:
    draws = Random(seed)
    received = {
        inbox: [name for name, mail in copies.mails.items() if inbox in mail.people]
        for inbox in INBOXES
    }
    rows = [
        Question(
            f"q-{number}",
            f"What is {number}?",
            inbox,
            answer="42",
            message_ids=tuple(draws.sample(received[inbox], draws.randrange(4))),
            split=draws.choice([*SPLITS, None]),
        )
        for number in range(size)
        for inbox in [draws.choice(INBOXES)]
    ]
    golden = GoldenSet(rows.copy())
    if begin == "generate":
        golden.manifest["inboxes"] = draw(INBOXES, seed, Counts())
    golden.record(begin, size, {})
    shuffled = copy.deepcopy(golden)
    draws.shuffle(shuffled.questions)
    found = []
    # A second time and in another order: the same.
    for each in (golden, golden, shuffled):
        split(copies.file, each, seed=seed, wanted=Counts())
        each.sort()
        found.append(copy.deepcopy(each))
    assert found[0] == found[1] == found[2]
    inboxes = golden.manifest["inboxes"]
    assert all(each.split == inboxes[each.inbox_address] for each in golden.questions)
    assert leaks(copies, golden.questions, inboxes) == (set(), set())
    # What was dropped had a leak, and test lost nothing.
    dropped = [each.question for each in golden.rejected]
    assert all(each is not None and each.split != "test" for each in dropped)
    whole = [*golden.questions, *(each for each in dropped if each is not None)]
    assert sorted(each.id for each in whole) == sorted(each.id for each in rows)
    leaking = leaks(copies, whole, inboxes)
    names = {each.row["id"] for each in golden.rejected}
    assert leaking.in_test_inbox <= names <= leaking.shared | leaking.in_test_inbox
