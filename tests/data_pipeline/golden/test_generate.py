"""`generate` at the wire: bad replies, failures, limits and order.

Kills of it are tested in `test_chain_killed.py`.
"""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest

from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.text import digest
from data_pipeline.golden.asking import ATTEMPTS, Asker
from data_pipeline.golden.generate import Options, Plan, Progress, generate, make_plan, prompt
from data_pipeline.golden.golden_set import GoldenSet
from data_pipeline.golden.inboxes import Counts
from tests.builders import QUICK
from tests.data_pipeline.golden.writers import COST, MODEL, USAGE, Writer, items_for
from tests.provider import Provider, says

OPTIONS = Options(counts=Counts(2, 0, 1), min_mails=50, batches=3)
FILES = ("questions.jsonl", "rejected.jsonl", "batches.jsonl", "manifest.json")


@pytest.fixture(scope="module")
def plan(world: InboxFile) -> Plan:
    return make_plan(world, OPTIONS, MODEL)


class Generating:
    """`generate` into a folder, its model played by a provider."""

    def __init__(self, world: InboxFile, plan: Plan, folder: Path) -> None:
        self.world, self.plan, self.folder = world, plan, folder
        self.golden = GoldenSet()
        self.seen: list[Progress] = []

    def run(self, **options: Any) -> list[str]:
        """The kinds of what was lost."""
        settings = {"concurrency": 4, "temperature": 0.7, "retries": QUICK, **options}
        asker = Asker(MODEL, self.folder, "generate", **settings)
        lost = generate(self.world, self.golden, asker, self.plan, self.seen.append)
        self.golden.save(self.folder)
        return [each.kind for each in lost]

    @property
    def step(self) -> dict[str, Any]:
        step: dict[str, Any] = self.golden.manifest["steps"]["generate"]
        return step

    @property
    def bytes(self) -> list[bytes]:
        return [(self.folder / name).read_bytes() for name in FILES]


@pytest.fixture
def made(world: InboxFile, plan: Plan, tmp_path: Path) -> Generating:
    return Generating(world, plan, tmp_path / "golden")


@pytest.fixture(scope="module")
def undisturbed(
    world: InboxFile, plan: Plan, tmp_path_factory: pytest.TempPathFactory
) -> Generating:
    """What comes of it where nothing goes wrong."""
    whole = Generating(world, plan, tmp_path_factory.mktemp("whole") / "golden")
    with pytest.MonkeyPatch.context() as patch, Provider(Writer()) as provider:
        provider.stand_in_for_openai(patch)
        assert whole.run() == []
    return whole


def test_what_comes_of_it(undisturbed: Generating, world: InboxFile, plan: Plan) -> None:
    golden, step = undisturbed.golden, undisturbed.step
    batches = {each.id: each for each in plan.batches}
    assert golden.batches == plan.batches
    assert golden.manifest["inboxes"] == plan.splits
    assert golden.manifest["db"] == {"name": "inbox.duckdb", "mails": world.counts["stored"]}
    assert step["sums"]["in"] == step["sums"]["kept"] == len(golden.questions) == 5 * len(batches)
    assert step["batches"] == {"drawn": len(batches), "used": len(batches), "lost": {}}
    assert step["usage"]["prompt_tokens"] == len(batches) * USAGE.prompt_tokens
    assert step["cost_usd"] == pytest.approx(len(batches) * COST)
    assert step["prompt"] == digest(prompt())
    later = 0
    for question in golden.questions:
        batch = batches[question.provenance["batch"]]
        assert (question.inbox_address, question.split) == (batch.inbox, batch.split)
        assert question.answerable is (question.kind != "unanswerable")
        inbox = world.open_inbox(batch.inbox)
        gold = [inbox.read(each) for each in question.message_ids if each != "m37"]
        rests_on = gold or [inbox.read(each) for each in batch.message_ids]
        newest = max(mail.date.date() for mail in rests_on if mail and mail.date)
        assert question.query_date is not None
        assert dt.timedelta(0) <= question.query_date - newest < dt.timedelta(days=45)
        later += question.query_date > newest
        last = world.execute(
            "SELECT max(sent_at)::DATE FROM emails JOIN parties USING (email_id)"
            " JOIN addresses USING (address_id) WHERE address = ?",
            [batch.inbox],
        ).fetchone()
        assert last is not None
        assert question.query_date <= last[0]
    assert later > len(golden.questions) / 2
    first = [each for each in golden.questions if each.provenance["batch"] == plan.batches[0].id]
    ids = plan.batches[0].message_ids
    wanted = [(ids[0],), (ids[-1],), (ids[2], ids[1]), (), ("m37",)]
    assert [each.message_ids for each in first] == wanted
    assert GoldenSet.load(undisturbed.folder).questions == golden.questions


def test_bad_replies_are_asked_again_or_used_in_part(
    made: Generating, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    prose, never, cut_off, wrong = (each["mails"] for each in plan.data[:4])

    def instead(data: Any, time: int) -> Any:
        text = json.dumps({"items": items_for(data)})
        if data["mails"] == prose and time == 1:
            return says("Here are some questions!", usage=USAGE)
        if data["mails"] == never:
            return says("I would rather not.", usage=USAGE)
        if data["mails"] == cut_off:
            return says(text[: text.rindex('"mails"')], usage=USAGE)
        if data["mails"] == wrong:
            items = items_for(data)
            items[1]["how_realistic"] = 7
            return says(json.dumps({"items": items}), usage=USAGE)
        return None

    writer = Writer(instead)
    with Provider(writer) as provider:
        provider.stand_in_for_openai(monkeypatch)
        assert made.run() == ["unreadable"]
        asked = len(provider.requests)
        assert asked == len(plan.batches) + 1 + (ATTEMPTS - 1)
        before = made.bytes
        # What was paid for is not asked again, be it of use or not.
        made.golden = GoldenSet.load(made.folder)
        assert made.run() == ["unreadable"]
        assert len(provider.requests) == asked
        assert made.bytes == before
    of = {each.id: [] for each in plan.batches}  # type: dict[str, list[str]]
    for question in made.golden.questions:
        of[question.provenance["batch"]].append(question.id)
    assert [len(each) for each in of.values()][:5] == [5, 0, 4, 4, 5]
    rows = [(each.row["id"], each.check, each.reason) for each in made.golden.rejected]
    assert rows == [
        (f"{plan.batches[2].id}-q5", "form", "the reply was cut off in it"),
        (f"{plan.batches[3].id}-q2", "form", "how_realistic: it is not from 0 to 1"),
    ]
    assert json.loads(made.golden.rejected[1].row["item"])["how_realistic"] == 7
    assert made.step["sums"]["dropped"] == {"form": 2}
    assert made.step["batches"]["lost"] == {"unreadable": 1}
    assert made.step["cost_usd"] == pytest.approx(COST * asked)


def test_the_limit_of_cost_ends_it_and_a_higher_one_goes_on(
    made: Generating, undisturbed: Generating, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 4.5 * COST + 0.1
    with Provider(Writer()) as provider:
        provider.stand_in_for_openai(monkeypatch)
        lost = made.run(max_cost_usd=limit, concurrency=1)
        assert set(lost) == {"budget"}
        asked = len(provider.requests)
        assert 1 <= asked == len(plan.batches) - len(lost)
        assert made.step["batches"]["lost"] == {"budget": len(lost)}
        assert made.step["cost_usd"] <= limit
        made.golden = GoldenSet.load(made.folder)
        # What is there already counts.
        assert set(made.run(max_cost_usd=limit, concurrency=1)) == {"budget"}
        assert made.step["cost_usd"] <= limit
        assert made.run(max_cost_usd=10) == []
        assert len(provider.requests) == len(plan.batches)
    assert made.bytes == undisturbed.bytes


def test_a_set_made_otherwise_is_left_alone(
    undisturbed: Generating, world: InboxFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Options(seed=7, counts=OPTIONS.counts, min_mails=50, batches=2)
    with Provider([]) as provider:
        provider.stand_in_for_openai(monkeypatch)
        again = Generating(world, make_plan(world, other, MODEL), undisturbed.folder)
        again.golden = GoldenSet.load(undisturbed.folder)
        with pytest.raises(UserError) as raised:
            again.run()
        imported = Generating(world, undisturbed.plan, undisturbed.folder)
        imported.golden.manifest["steps"]["import"] = {}
        with pytest.raises(UserError, match="was imported"):
            imported.run()
    assert "seed 0, not 7" in str(raised.value)
    assert "batches_per_inbox 3, not 2" in str(raised.value)
    assert "model" not in str(raised.value)
