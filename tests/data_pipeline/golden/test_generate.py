"""`generate`: batches, replies of any form, limits, and the command."""

import datetime as dt
import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import Result

from art_e.inbox.file import InboxFile
from art_e.models.base import Usage
from art_e.question import load_questions
from art_e.quotations import LEFT_OUT
from data_pipeline.golden import generate
from data_pipeline.golden.golden_set import GoldenSet
from data_pipeline.golden.inboxes import Counts, mails_of
from evals.structured import UnparseableError
from tests.builders import BOB, date_header, new_file, raw
from tests.command_line import Run, json_of, the_error
from tests.golden import WRITER, data_of
from tests.provider import KEY, Reply, Request, openai, says

COST = 0.016 + 0.008  # of a reply, at the model's prices
FEW = ("--train", 1, "--validation", 0, "--test", 1, "--min-mails", 50, "--batches", 3)
BATCHES = 5  # one inbox has mail for only two

Command = Callable[..., Result]


@pytest.fixture(scope="module")
def plan(world: InboxFile) -> generate.Plan:
    options = generate.GoldenOptions(counts=Counts(1, 0, 1), min_mails=50, batches=3)
    return generate.make_plan(world, options)


@pytest.fixture
def command(art_e: Run, world_db: Path, tmp_path: Path) -> Command:
    """Return a function that runs the command with options."""
    where = ("--db", world_db, "--out", tmp_path / "set")
    return lambda *options: art_e("golden", "generate", "-m", WRITER, *where, *FEW, *options)


def items_for(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Return two lookups, an update, an unanswerable question, and one with a missing mail."""
    ids = [each["id"] for each in data["mails"]]
    parts: list[tuple[str, list[str], str]] = [
        ("lookup", ids[:1], "nothing"), ("lookup", [ids[-1].upper()], "Tuesday"),
        ("latest-update", [ids[2], ids[1]], "42"), ("unanswerable", [], ""),
        ("lookup", ["m37"], "made up"),
    ]  # fmt: skip
    common = {"question": "What did I hear?", "difficulty": "easy"}
    return [{**common, "kind": kind, "mails": at, "answer": text} for kind, at, text in parts]


def writer(request: Request) -> Reply:
    text = json.dumps({"items": items_for(data_of(request))})
    return says(text, usage=Usage(8_000, 0, 1_000, 0))


def test_generate_writes_a_set_for_other_commands(
    command: Command, plan: generate.Plan, world: InboxFile, tmp_path: Path
) -> None:  # fmt: skip
    assert "export OPENAI_API_KEY" in the_error(command())
    with openai(writer) as provider:
        result = command()
        assert len(provider.requests) == len(plan.batches) == BATCHES
        step = json_of(command("--json"))
        assert len(provider.requests) == BATCHES
    assert result.stdout == "generate: kept 25 of 25 rows\n"
    assert "cost so far: $0.12" in result.stderr
    assert not [each for each in tmp_path.rglob("*.*") if KEY.encode() in each.read_bytes()]
    assert step["sums"] == {"in": 25, "kept": 25, "dropped": {}, "changed": {}, "unsure": {}}
    assert step["batches"] == {"drawn": BATCHES, "used": BATCHES, "lost": {}}
    assert step["cost_usd"] == pytest.approx(BATCHES * COST)
    assert step["splits"] == plan.splits
    questions = GoldenSet.load(tmp_path / "set").questions
    assert load_questions(str(tmp_path / "set")) == questions
    ids = plan.batches[0].message_ids
    cited = [(ids[0],), (ids[-1],), (ids[2], ids[1]), (), ("m37",)]
    assert [each.message_ids for each in questions[:5]] == cited
    # Query dates are within the inbox's time, soon after the newest gold mail, mostly later.
    later = 0
    for question in questions:
        [batch] = [each for each in plan.batches if each.id == question.provenance["batch"]]
        assert (question.inbox_address, question.split) == (batch.inbox, batch.split)
        gold = [each for each in question.message_ids if each != "m37"] or batch.message_ids
        mails = mails_of(world.open_inbox(batch.inbox), gold)
        newest = max(mail.date for mail in mails if mail.date).astimezone(dt.UTC).date()
        assert question.query_date is not None
        assert dt.timedelta(0) <= question.query_date - newest < dt.timedelta(days=45)
        later += question.query_date > newest
    assert later > len(questions) / 2


def test_a_batch_is_one_matter_without_copies_or_quotes(tmp_path: Path) -> None:
    def text(name: str) -> str:
        return " ".join(f"{name}{number}" for number in range(40))

    crowd = ", ".join(f"p{number}@test.example" for number in range(9))
    mails = [
        raw(f"<{n}@t>", subject=f"Harbor {n}", body=text(f"n{n}n"), to=f"{BOB}, {crowd}",
            date=date_header(n + 1))
        for n in range(8)
    ]  # fmt: skip
    quoted = "".join(f"\n> {line}" for line in textwrap.wrap(text("n0n")))
    legal = "It is for the\nintended recipient only."
    reply = f"Make it Friday, please.\n\n{legal}\n\n-----Original Message-----\nFrom: Ann\n{quoted}"
    mails += [
        raw("<copy@t>", subject="Fwd: Harbor 0", body=text("n0n"), date=date_header(1, 15)),
        raw("<reply@t>", subject="Re: Harbor 0", body=reply, date=date_header(3)),
        raw("<other@t>", sender="x@y.example", subject="Tea", body=text("z"), date=date_header(4)),
    ]
    with new_file(tmp_path / "inbox.duckdb", mails) as file:
        options = generate.GoldenOptions(counts=Counts(1, 0, 0), inboxes=(BOB,))
        [data] = generate.make_plan(file, options).data
    subjects = {each["subject"]: each for each in data["mails"]}
    assert subjects.keys() == {"Re: Harbor 0", *(f"Harbor {n}" for n in range(8))}
    expected = ["Make it Friday, please.", "[disclaimer]", LEFT_OUT]
    assert subjects["Re: Harbor 0"]["body"].split("\n\n") == expected
    assert subjects["Harbor 1"]["to"][4:] == ["and 6 more"]


ITEM = {
    "kind": "lookup", "question": 'What is "```" for?', "answer": "] } \n```\n",
    "mails": ["m1", "m2"], "difficulty": "easy",
}  # fmt: skip
FRAMES = st.sampled_from(["{}", "```\n{}\n```", "Here:\n```json\n{}\n```\nDone.", "\n{} "])


@given(st.integers(1, 12), st.integers(1, 10), FRAMES, st.booleans(), st.floats(0, 1))
def test_whole_items_are_read(count: int, limit: int, frame: str, bare: bool, share: float) -> None:
    items = [{**ITEM, "question": f"{ITEM['question']} {number}"} for number in range(count)]
    whole = frame.replace("{}", json.dumps(items if bare else {"items": items}))
    read = generate.read_items(whole, limit)
    expected = [generate.GeneratedItem.model_validate(each) for each in items]
    assert read[:limit] == expected[:limit]
    checks = [each.check for each in read[limit:] if isinstance(each, generate.NoQuestion)]
    assert checks == ["too-many"] * (count > limit)
    try:
        torn = generate.read_items(whole[: int(share * len(whole))], limit)
    except UnparseableError:
        return
    usable = [each for each in torn if isinstance(each, generate.GeneratedItem)]
    # Half an item is not used, because it would be wrong without a mail.
    assert usable == expected[: len(usable)]
    assert len(torn) - len(usable) <= 1


def test_generation_stops_at_the_cost_limit(command: Command, tmp_path: Path) -> None:
    limit = 1.5 * COST + 0.1
    with openai(writer) as provider:
        for _ in range(2):
            # The second run counts the cost of cached replies.
            step = json_of(command("--max-cost", limit, "--concurrency", 1, "--json"))
            assert 1 <= len(provider.requests) < BATCHES
            assert step["batches"]["lost"] == {"budget": BATCHES - len(provider.requests)}
            assert step["cost_usd"] <= limit
        assert json_of(command("--max-cost", 10, "--json"))["batches"]["lost"] == {}
        assert len(provider.requests) == BATCHES
        # Other settings make another set; returning to the first costs nothing.
        folder = str(tmp_path / "set")
        first = load_questions(folder)
        assert command("--seed", 7).exit_code == 0
        requests = len(provider.requests)
        assert load_questions(folder) != first
        assert command().exit_code == 0
        assert (load_questions(folder), len(provider.requests)) == (first, requests)
