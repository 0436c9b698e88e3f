"""The whole chain by the command line against the scripted provider, on mail with planted faults.

Every item that the generator wrote must end where `tests.golden.FATE` says, and be counted once.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from art_e.inbox.file import InboxFile
from art_e.question import Question
from data_pipeline.golden.golden_set import GoldenSet
from tests.conftest import RealInbox
from tests.golden import FATE, Chain, Fate, Fault, Player, data_of, fault_of, form_of
from tests.provider import Exchange, Provider

STEPS = ("generate", "filter", "verify", "split")


class Story:
    """A chain that was run to its end, and what was asked in it."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.planned = chain.planned()
        with Provider(Player()) as provider:
            self.sums = {step: chain.done(provider, step) for step in STEPS}
            self.exchanges = provider.exchanges
        self.golden = GoldenSet.load(chain.set)

    def expected(self) -> dict[str, tuple[Fault, Fate | None]]:
        """By id of an item, what it was to be and where it is to end."""
        return {
            f"{batch}-q{number}": (fault_of(number), FATE[fault_of(number)])
            for batch, items in self.planned.items()
            for number in range(1, len(items) + 1)
        }

    def fates(self) -> dict[str, Fate | None]:
        """By id of an item, where it ended."""
        kept: dict[str, Fate | None] = {each.id: None for each in self.golden.questions}
        dropped = {
            str(each.row["id"]): Fate(each.step, each.check) for each in self.golden.rejected
        }
        assert not kept.keys() & dropped.keys()
        assert len(kept) == len(self.golden.questions)
        assert len(dropped) == len(self.golden.rejected)
        return kept | dropped

    def said(self, form: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """What was asked of a form and replied."""
        return [
            (data_of(each.request), _reply(each))
            for each in self.exchanges
            if form_of(each.request) == form
        ]


def _reply(exchange: Exchange) -> dict[str, Any]:
    completion = json.loads(exchange.reply.body)
    content: dict[str, Any] = json.loads(completion["choices"][0]["message"]["content"])
    return content


@pytest.fixture(scope="module")
def world_story(world_db: Path, tmp_path_factory: pytest.TempPathFactory) -> Story:
    with InboxFile(world_db) as file:
        inboxes = [each.address for each in file.inboxes(2)]
    return Story(Chain(world_db, inboxes, 5, tmp_path_factory.mktemp("world-chain")))


@pytest.fixture(scope="module")
def real_story(real_inbox: RealInbox, tmp_path_factory: pytest.TempPathFactory) -> Story:
    inboxes = ["tim.belden@enron.com", "jeff.dasovich@enron.com"]
    story = Story(Chain(real_inbox.db, inboxes, 5, tmp_path_factory.mktemp("real-chain")))
    assert len(story.planned) == 10
    return story


@pytest.fixture(params=["world", "real"])
def story(request: pytest.FixtureRequest) -> Story:
    found: Story = request.getfixturevalue(f"{request.param}_story")
    return found


def test_each_item_ends_where_its_fault_leads(story: Story) -> None:
    expected, fates = story.expected(), story.fates()
    wrong = {
        name: (fault, fates.get(name), fate)
        for name, (fault, fate) in expected.items()
        if name not in fates or fates[name] != fate
    }
    assert wrong == {}
    assert fates.keys() == expected.keys()
    # Nothing that is to be shown was left out.
    assert {fault for fault, _ in expected.values()} == FATE.keys()


def test_sums_balance_over_all_steps(story: Story) -> None:
    expected = story.expected()
    came = len(expected)
    for step in STEPS:
        sums = story.sums[step]
        assert sums["in"] == came
        wanted = Counter(fate.check for _, fate in expected.values() if fate and fate.step == step)
        assert sums["dropped"] == wanted
        came -= wanted.total()
        assert sums["kept"] == came
        assert story.golden.manifest["steps"][step]["sums"] == sums
    assert came == len(story.golden.questions)


def test_a_superseded_fact_is_mended(story: Story) -> None:
    replaced = {
        data["question"]: data["rival"]
        for data, reply in story.said("Settlement")
        if reply["relation"] == "gold_replaced"
    }
    assert replaced
    rows = [each for each in story.golden.questions if fault_of(_number(each)) == "superseded"]
    assert {each.question for each in rows} >= replaced.keys()
    for row in rows:
        changes = [each for each in row.provenance.get("mended", []) if each["step"] == "verify"]
        if row.question not in replaced:
            assert (row.kind, changes) == ("lookup", [])
            continue
        rival = replaced[row.question]
        assert (row.kind, row.answer) == ("latest-update", rival["answer"])
        [change] = changes
        assert change["check"] == "unambiguous"
        assert change["was"]["kind"] == "lookup"
        assert _dates(story, row, row.message_ids) == [rival["mails"][0]["date"][:10]]
        # The newest mail is gold, and it was there when the question is asked.
        old = _dates(story, row, change["was"]["message_ids"])
        assert old <= _dates(story, row, row.message_ids) <= [str(row.query_date)]
    mended = story.sums["verify"]["mended"]
    assert mended == {"unambiguous": len(replaced)}


def _dates(story: Story, row: Question, message_ids: tuple[str, ...]) -> list[str]:
    with InboxFile(story.chain.db) as file:
        inbox = file.open_inbox(row.inbox_address, row.query_date)
        mails = [inbox.read(each) for each in message_ids]
    return [str(each.date.date()) for each in mails if each is not None and each.date is not None]


def _number(row: Question) -> int:
    return int(row.id.rpartition("-q")[2])
