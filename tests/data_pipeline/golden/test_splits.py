"""The choice of inboxes and their splits; batches have each mail once; no gold mail leaks."""

import copy
import datetime as dt
import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from art_e.inbox.file import InboxFile
from art_e.question import SPLITS, Question, Split
from art_e.text import toml_table
from bench.golden_faults import LEAKS, leaking_set
from data_pipeline.golden import generate, inboxes
from data_pipeline.golden.golden_set import Step
from data_pipeline.golden.inboxes import Counts, Mail, choose_inboxes, draw, split, threads_of
from data_pipeline.ingest.batch import Rules
from tests.builders import new_file, raw, the_error
from tests.golden import set_of

OWNERS = toml_table(__package__, "owners.toml")
WEIGHTS = st.builds(Counts, *[st.integers(0, 20)] * 3).filter(any)


@given(st.integers(0, 60), st.integers(0, 99), WEIGHTS, st.randoms())
def test_splits_keep_proportions(inboxes: int, seed: int, counts: Counts, order: Random) -> None:
    names = [f"{n}@test.example" for n in range(inboxes)]
    drawn = draw(names, seed, counts)
    assert sorted(drawn) == sorted(names)
    used = {name: weight for name, weight in counts._asdict().items() if weight}
    for name, weight in used.items():
        share = inboxes * weight / sum(counts)
        # Each split gets at least one, at the others' expense.
        assert share - 2 < sum(each == name for each in drawn.values()) < max(share, 1) + 1
    assert len({*drawn.values()}) == min(len(used), inboxes)
    order.shuffle(names)
    assert draw(names, seed, counts) == drawn


@pytest.mark.parametrize(("owner", "chosen"), OWNERS["chosen"].items())
def test_largest_inboxes_are_chosen(tmp_path: Path, owner: str, chosen: list[str]) -> None:
    mails = [
        raw(f"<{n}.{to}>", sender=sender, to=f"{to}, all@test.example", body=f"{n} for {to}.")
        for sender, (to, more) in OWNERS["people"].items()
        for n in range(inboxes.MIN_SENT + more)
    ]
    mails.append(raw("<list@test>", sender="all@test.example", to="ann@test.example"))
    with new_file(tmp_path / "inbox.duckdb", mails, owner=owner or None) as file:
        assert owner or file.inboxes()[0].address == "all@test.example"
        drawn = choose_inboxes(file, Counts(2, 0, 1), 0, 30)
        assert sorted(drawn) == chosen
        # A single inbox goes to test.
        assert sorted(drawn.values()) == ["test", "train", "train"][: len(chosen)]
        assert "--min-mails" in the_error(choose_inboxes, file, Counts(), 0, 1_000)


START = dt.datetime(2001, 1, 1)


@st.composite
def mails_of_threads(draw: st.DrawFn) -> list[Mail]:
    """Draw mails of few subjects and contents, some hours apart."""
    steps = draw(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 40)), max_size=300))
    sent = itertools.accumulate(hours for hours, _ in steps)
    return [
        Mail(n, f"<{n}@test>", START + dt.timedelta(hours=at), f"Matter {subject}",
             f"{subject} {n % 50}".encode(), f"{subject} {n} is new.", [])
        for n, (at, (_, subject)) in enumerate(zip(sent, steps, strict=True))
    ]  # fmt: skip


# The first mail's copy comes three weeks after it: the thread's `recent` mails stay those since.
REPEATED = [
    Mail(n, "<a@test>", START + dt.timedelta(day), "Lease", b"%d" % (n % 12), f"It is {n} now.", [])
    for n, day in enumerate([0, 1, 2, 3, 4, 5, 21, 22, 23, 24, 25, 26, 30])
]


@example(REPEATED, 2, 0)
@given(mails_of_threads(), st.integers(1, 12), st.integers())
def test_batches_keep_threads_whole(drawn_of: list[Mail], count: int, seed: int) -> None:
    batches = generate.draw_mails(drawn_of, count, Random(seed))
    assert batches == generate.draw_mails(drawn_of, count, Random(seed))
    assert len(batches) <= count
    contents = [mail.content for batch in batches for mail in batch]
    assert len(contents) == len(set(contents))
    seen = [mail.content for mail in drawn_of]
    once = [mail for place, mail in enumerate(drawn_of) if mail.content not in seen[:place]]
    assert batches == generate.draw_mails(once, count, Random(seed))  # copies change nothing
    threads = {
        mail.email_id: generate.recent(thread) for thread in threads_of(once) for mail in thread
    }
    for batch in batches:
        assert generate.MIN_BATCH_MAILS <= len(batch) <= generate.BATCH_MAILS
        assert batch == sorted(batch)
        assert batch[-1].sent_at - batch[0].sent_at <= generate.SPANS[-1]
        for mail in batch:
            assert all(each in batch for each in threads[mail.email_id])


# ---- The split of an inbox full of copies, which are one mail (under Enron's rules) or several.

INBOXES = [f"person{number}@test.example" for number in range(7)]


class Copies(NamedTuple):
    """An inbox file of many mails with few contents; each mail's content and people by its id."""

    file: InboxFile
    content: dict[str, int]
    people: dict[str, set[str]]


@pytest.fixture(scope="module", params=[True, False], ids=["one mail of copies", "mails apart"])
def copies(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Copies]:
    draws, messages = Random("copies"), []
    content: dict[str, int] = {}
    people: dict[str, set[str]] = {}
    for number in range(90):
        name, what = f"<{number}@test>", draws.randrange(45)
        sender, to = INBOXES[what % len(INBOXES)], draws.choice(INBOXES)
        body = f"What there is to say about {what}."
        messages.append(raw(name, subject=f"About {what}", body=body, sender=sender, to=to))
        content[name], people[name] = what, {sender, to}
    db = tmp_path_factory.mktemp("copies") / "inbox.duckdb"
    with new_file(db, messages, rules=Rules(any_id=request.param)) as file:
        yield Copies(file, content, people)


def leaks(
    copies: Copies, questions: Sequence[Question], inboxes: Mapping[str, str | None]
) -> tuple[set[str], set[str]]:
    """Return the ids of questions whose gold is gold in another split, or mail of a test inbox."""
    tested = {name for name, split in inboxes.items() if split == "test"}
    in_test = {copies.content[name] for name, people in copies.people.items() if people & tested}
    gold = {each.id: {copies.content[name] for name in each.message_ids} for each in questions}
    splits: dict[int, set[str | None]] = defaultdict(set)
    for question in questions:
        for mail in gold[question.id]:
            splits[mail].add(question.split)
    return (
        {each.id for each in questions if any(len(splits[mail]) > 1 for mail in gold[each.id])},
        {each.id for each in questions if each.split != "test" and gold[each.id] & in_test},
    )


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.integers(1, 40), st.sampled_from(["import", "generate"]))
def test_no_gold_leaks_between_splits(copies: Copies, seed: int, size: int, begin: Step) -> None:
    draws, rows = Random(seed), []
    for number in range(size):
        inbox = draws.choice(INBOXES)
        mails = [name for name, people in copies.people.items() if inbox in people]
        cited = tuple(draws.sample(mails, draws.randrange(4)))
        fields: dict[str, Any] = {"message_ids": cited, "split": draws.choice([*SPLITS, None])}
        rows.append(Question(f"q-{number}", f"What is {number}?", inbox, answer="42", **fields))
    inboxes: dict[str, Split | None] = {**draw(INBOXES, seed, Counts())}
    golden = set_of(*rows, step=begin, splits=inboxes)
    shuffled = copy.deepcopy(golden)
    draws.shuffle(shuffled.questions)
    # Rows in another order give the same result.
    for golden_set in (golden, shuffled):
        split(copies.file, golden_set, seed=seed, targets=Counts())
    assert golden == shuffled
    # All dropped rows had a leak, and no row of test was dropped.
    dropped = [Question.from_row(each.row) for each in golden.rejected]
    assert all(each.split != "test" for each in dropped)
    whole = [*golden.questions, *dropped]
    assert sorted(each.id for each in whole) == sorted(each.id for each in rows)
    if begin == "import":
        inboxes = {each.inbox_address: each.split for each in whole}
    assert all(each.split == inboxes[each.inbox_address] for each in whole)
    assert leaks(copies, golden.questions, inboxes) == (set(), set())
    shared, in_test_inbox = leaks(copies, whole, inboxes)
    assert in_test_inbox <= {each.id for each in dropped} <= shared | in_test_inbox


def test_quotes_forwards_and_repeated_questions_are_leaks(tmp_path: Path) -> None:
    assert {each.row["id"]: each.check for each in leaking_set(tmp_path).rejected} == LEAKS
