"""`generate`: batches, replies of any form, limits, and the command."""

import datetime as dt
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import Result

from art_e.inbox.file import InboxFile
from art_e.models.base import Usage
from art_e.models.structured import UnparseableError
from art_e.question import load_questions
from art_e.text import digest
from data_pipeline.golden import cli as golden_progress
from data_pipeline.golden.asking import ATTEMPTS, prompt_text
from data_pipeline.golden.generate import (
    GeneratedItem,
    NoQuestion,
    Options,
    Plan,
    make_plan,
    read_items,
)
from data_pipeline.golden.golden_set import GoldenSet
from data_pipeline.golden.inboxes import Counts
from tests.command_line import Run, json_of, the_error
from tests.golden import WRITER, data_of, set_files, set_of
from tests.provider import KEY, Provider, Reply, Request, says

USAGE = Usage(8_000, 0, 1_000, 0)
COST = 0.016 + 0.008  # of a reply, at the model's prices
FEW = ("--train", 1, "--validation", 0, "--test", 1, "--min-mails", 50, "--batches", 3)
BATCHES = 6

Command = Callable[..., Result]


@pytest.fixture(scope="module")
def plan(world: InboxFile) -> Plan:
    """What the command's options plan."""
    return make_plan(world, Options(counts=Counts(1, 0, 1), min_mails=50, batches=3), WRITER)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "set"


@pytest.fixture
def command(art_e: Run, world_db: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs the command with these options; without a provider there is no key."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    where = ("--db", world_db, "--out", folder)
    return lambda *options: art_e("golden", "generate", "-m", WRITER, *where, *FEW, *options)


def items_for(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Two lookups, one update, one unanswerable, and one that cites a mail that is not there."""
    ids = [each["id"] for each in data["mails"]]
    kinds = [
        ("lookup", ids[:1], data["mails"][0]["subject"] or "nothing"),
        ("lookup", [ids[-1].upper()], "Tuesday"),
        ("latest-update", [ids[2], ids[1]], "42"),
        ("unanswerable", [], ""),
        ("lookup", ["m37"], "made up"),
    ]
    return [
        {
            "kind": kind,
            "question": f"What did I hear of matter {number}?",
            "answer": answer,
            "mails": cited,
            "difficulty": "easy",
        }
        for number, (kind, cited, answer) in enumerate(kinds)
    ]


def writer(request: Request) -> Reply:
    """Plays the generator."""
    return says(json.dumps({"items": items_for(data_of(request))}), usage=USAGE)


def test_a_set_that_other_commands_read(
    command: Command, plan: Plan, world: InboxFile, world_db: Path, folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(golden_progress, "LINE_EVERY_S", 0.0)
    assert "export OPENAI_API_KEY" in the_error(command())
    with Provider(writer) as provider:
        provider.stand_in_for_openai(monkeypatch)
        result = command()
        assert len(provider.requests) == len(plan.batches) == BATCHES
        step = json_of(command("--json"))
        assert len(provider.requests) == BATCHES
    assert result.stdout == "generate: 30 rows, 30 kept\n"
    assert "mail text stays on this machine (127.0.0.1" in result.stderr
    assert "estimate: about $0.1" in result.stderr
    # A run's log tells what it costs while it goes on.
    assert "6 of 6 batches, $0.14 of about $" in result.stderr
    assert f"art-e golden filter --db {world_db} --out {folder}" in result.stderr
    assert not [each for each in folder.rglob("*.*") if KEY.encode() in each.read_bytes()]
    assert step["sums"] == {"in": 30, "kept": 30, "dropped": {}, "changed": {}, "unsure": {}}
    assert step["batches"] == {"drawn": BATCHES, "used": BATCHES, "lost": {}}
    assert step["usage"]["prompt_tokens"] == BATCHES * USAGE.prompt_tokens
    assert step["cost_usd"] == pytest.approx(BATCHES * COST)
    assert step["prompt"] == digest(prompt_text("generate"))
    golden = GoldenSet.load(folder)
    assert step["splits"] == plan.splits
    of = {"name": world_db.name, "mails": world.counts["stored"], "digest": world.digest}
    assert golden.manifest["db"] == of
    assert load_questions(str(folder)) == golden.questions
    first = [each for each in golden.questions if each.provenance["batch"] == plan.batches[0].id]
    ids = plan.batches[0].message_ids
    wanted = [(ids[0],), (ids[-1],), (ids[2], ids[1]), (), ("m37",)]
    assert [each.message_ids for each in first] == wanted
    # Its writer does not rate a question.
    assert {each.how_realistic for each in golden.questions} == {None}
    check_dates(golden, plan, world)


def check_dates(golden: GoldenSet, plan: Plan, world: InboxFile) -> None:
    """Questions are asked in their inbox's time, soon after their newest mail, mostly later."""
    batches = {each.id: each for each in plan.batches}
    later = 0
    for question in golden.questions:
        batch = batches[question.provenance["batch"]]
        assert (question.inbox_address, question.split) == (batch.inbox, batch.split)
        assert question.answerable is (question.kind != "unanswerable")
        inbox = world.open_inbox(batch.inbox)
        gold = [inbox.read(each) for each in question.message_ids if each != "m37"]
        rests_on = gold or [inbox.read(each) for each in batch.message_ids]
        newest = max(mail.date for mail in rests_on if mail and mail.date).astimezone(dt.UTC).date()
        assert question.query_date is not None
        assert dt.timedelta(0) <= question.query_date - newest < dt.timedelta(days=45)
        later += question.query_date > newest
    assert later > len(golden.questions) / 2


def test_bad_replies_are_asked_again_or_used_in_part(
    command: Command, plan: Plan, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, never, wrong, *_ = (each["mails"] for each in plan.data)

    def careless(request: Request) -> Reply:
        data = data_of(request)
        items = items_for(data)
        if data["mails"] == wrong:
            items[1]["kind"] = "riddle"
        text = json.dumps({"items": items})
        return says(text[:20] if data["mails"] == never else text, usage=USAGE)

    with Provider(careless) as provider:
        provider.stand_in_for_openai(monkeypatch)
        step = json_of(command("--json"))
        requests = len(provider.requests)
        assert requests == BATCHES + (ATTEMPTS - 1)
        before = set_files(folder)
        # What was paid for is not asked again, be it of use or not.
        assert json_of(command("--json")) == step
        assert len(provider.requests) == requests
        assert set_files(folder) == before
    assert step["sums"]["dropped"] == {"form": 1}
    assert step["batches"]["lost"] == {"unreadable": 1}
    assert step["cost_usd"] == pytest.approx(COST * requests)
    golden = GoldenSet.load(folder)
    kept = Counter(each.provenance["batch"] for each in golden.questions)
    assert [kept[each.id] for each in plan.batches] == [5, 0, 4, 5, 5, 5]
    [rejected] = golden.rejected
    assert rejected.row["id"] == f"{plan.batches[2].id}-q2"
    assert rejected.reason.startswith("kind: Input should be 'lookup'")
    assert json.loads(rejected.row["item"])["kind"] == "riddle"


ITEM = {
    "kind": "lookup",
    "question": 'What is "```" for?',
    "answer": "] } \n```\n",
    "mails": ["m1", "m2"],
    "difficulty": "easy",
}


@given(
    st.integers(1, 12),
    st.integers(1, 10),
    st.sampled_from(["{}", "```\n{}\n```", "Here:\n```json\n{}\n```\nDone.", "\n{} "]),
    st.booleans(),
    st.floats(0, 1),
)
def test_whatever_the_frame_and_the_cut_whole_items_are_read(
    count: int, most: int, frame: str, is_bare: bool, share: float
) -> None:
    items = [{**ITEM, "question": f"{ITEM['question']} {number}"} for number in range(count)]
    whole = frame.replace("{}", json.dumps(items if is_bare else {"items": items}))
    read = read_items(whole, most)
    wanted = [GeneratedItem.model_validate(each) for each in items]
    assert read[:most] == wanted[:most]
    assert [each.check for each in read[most:] if isinstance(each, NoQuestion)] == (
        ["too-many"] if count > most else []
    )
    try:
        torn = read_items(whole[: int(share * len(whole))], most)
    except UnparseableError:
        return
    found = [each for each in torn if isinstance(each, GeneratedItem)]
    # Never half an item: one that lost a mail would be wrong.
    assert found == wanted[: len(found)]
    assert len(torn) - len(found) <= 1


def test_the_limit_of_cost_ends_it_and_a_higher_one_goes_on(
    command: Command, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 2.5 * COST + 0.1
    with Provider(writer) as provider:
        provider.stand_in_for_openai(monkeypatch)
        for _ in range(2):
            # The second time, what is there already counts.
            step = json_of(command("--max-cost", limit, "--concurrency", 1, "--json"))
            assert 1 <= len(provider.requests) < BATCHES
            assert step["batches"]["lost"] == {"budget": BATCHES - len(provider.requests)}
            assert step["cost_usd"] <= limit
        assert json_of(command("--max-cost", 10, "--json"))["batches"]["lost"] == {}
        assert len(provider.requests) == BATCHES
        json_of(command("--out", tmp_path / "undisturbed", "--json"))
    assert set_files(folder) == set_files(tmp_path / "undisturbed")


def test_other_settings_make_another_set_and_going_back_costs_nothing(
    command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Provider(writer) as provider:
        provider.stand_in_for_openai(monkeypatch)
        assert command().exit_code == 0
        first = load_questions(str(folder))
        assert command("--seed", 7).exit_code == 0
        assert load_questions(str(folder)) != first
        asked = len(provider.requests)
        assert command().exit_code == 0
        assert load_questions(str(folder)) == first
        set_of(*GoldenSet.load(folder).questions).save(folder)
        assert "another golden set" in the_error(command())
        assert len(provider.requests) == asked


def test_a_dry_run_asks_and_writes_nothing(command: Command, folder: Path) -> None:
    # Not even a key is wanted.
    plan = json_of(command("--dry-run", "--json"))
    assert sorted(each["split"] for each in plan["inboxes"]) == ["test", "train"]
    assert plan["estimate"]["requests"] == BATCHES
    assert 0 < plan["estimate"]["usd"] < 1
    shown = command("--dry-run")
    assert shown.exit_code == 0
    assert plan["inboxes"][0]["address"] in shown.stdout
    assert "about $0.1" in shown.stdout
    assert not folder.exists()
