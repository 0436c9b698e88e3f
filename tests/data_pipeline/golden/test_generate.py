"""`generate`: batches, replies of any form, limits, and the command."""

import datetime as dt
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from art_e.inbox.file import InboxFile
from art_e.models.base import Usage
from art_e.question import load_questions
from art_e.text import digest
from data_pipeline.golden import cli as golden_progress
from data_pipeline.golden.asking import ATTEMPTS, Asker, prompt_text
from data_pipeline.golden.generate import GeneratedItems, Options, Plan, generate, make_plan
from data_pipeline.golden.golden_set import SET_FILES, GoldenSet
from data_pipeline.golden.inboxes import Counts
from tests.builders import QUICK
from tests.builders import the_error as error_of
from tests.command_line import Run, json_of, the_error
from tests.golden import data_of
from tests.provider import KEY, Provider, Reply, Request, says

MODEL = "openai/gpt-4.1"
USAGE = Usage(8_000, 0, 1_000, 0)
COST = 0.016 + 0.008  # of a reply, at the model's prices
OPTIONS = Options(counts=Counts(2, 0, 1), min_mails=50, batches=3)


@pytest.fixture(scope="module")
def plan(world: InboxFile) -> Plan:
    return make_plan(world, OPTIONS, MODEL)


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
            "how_realistic": 0.9,
            "difficulty": "easy",
        }
        for number, (kind, cited, answer) in enumerate(kinds)
    ]


def writer(request: Request) -> Reply:
    """Plays the generator."""
    return says(json.dumps({"items": items_for(data_of(request))}), usage=USAGE)


class Generating:
    """`generate` into a folder, its model played by a provider."""

    def __init__(self, world: InboxFile, plan: Plan, folder: Path) -> None:
        self.world, self.plan, self.folder = world, plan, folder
        self.golden = GoldenSet()

    def run(self, **options: Any) -> list[str]:
        """The kinds of what was lost."""
        settings = {"concurrency": 4, "temperature": 0.7, "retries": QUICK, **options}
        asker = Asker(MODEL, self.folder, "generate", **settings)
        lost = generate(self.world, self.golden, asker, self.plan)
        self.golden.save(self.folder)
        return [kind for kind, _ in lost]

    @property
    def step(self) -> dict[str, Any]:
        step: dict[str, Any] = self.golden.manifest["steps"]["generate"]
        return step

    @property
    def bytes(self) -> list[bytes]:
        return [(self.folder / name).read_bytes() for name in SET_FILES]


@pytest.fixture
def made(world: InboxFile, plan: Plan, tmp_path: Path) -> Generating:
    return Generating(world, plan, tmp_path / "golden")


@pytest.fixture(scope="module")
def undisturbed(
    world: InboxFile, plan: Plan, tmp_path_factory: pytest.TempPathFactory
) -> Generating:
    """What comes of it where nothing goes wrong."""
    whole = Generating(world, plan, tmp_path_factory.mktemp("whole") / "golden")
    with pytest.MonkeyPatch.context() as patch, Provider(writer) as provider:
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
    assert step["prompt"] == digest(prompt_text("generate"))
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
    prose, never, wrong = (each["mails"] for each in plan.data[:3])
    replies = iter([says("Here are some questions!", usage=USAGE)])

    def careless(request: Request) -> Reply:
        data = data_of(request)
        items = items_for(data)
        if data["mails"] == prose:
            return next(replies, writer(request))
        if data["mails"] == wrong:
            items[1]["how_realistic"] = 7
        # The reply to `never` is cut off.
        text = json.dumps({"items": items})[: -9 if data["mails"] == never else None]
        return says(text, usage=USAGE)

    with Provider(careless) as provider:
        provider.stand_in_for_openai(monkeypatch)
        assert made.run() == ["unreadable"]
        requests = len(provider.requests)
        assert requests == len(plan.batches) + 1 + (ATTEMPTS - 1)
        before = made.bytes
        # What was paid for is not asked again, be it of use or not.
        made.golden = GoldenSet.load(made.folder)
        assert made.run() == ["unreadable"]
        assert len(provider.requests) == requests
        assert made.bytes == before
    kept = Counter(each.provenance["batch"] for each in made.golden.questions)
    assert [kept[each.id] for each in plan.batches][:4] == [5, 0, 4, 5]
    rows = [(each.row["id"], each.check, each.reason) for each in made.golden.rejected]
    reason = "how_realistic: it is not from 0 to 1"
    assert rows == [(f"{plan.batches[2].id}-q2", "form", reason)]
    assert json.loads(made.golden.rejected[0].row["item"])["how_realistic"] == 7
    assert made.step["sums"]["dropped"] == {"form": 1}
    assert made.step["batches"]["lost"] == {"unreadable": 1}
    assert made.step["cost_usd"] == pytest.approx(COST * requests)


def test_the_limit_of_cost_ends_it_and_a_higher_one_goes_on(
    made: Generating, undisturbed: Generating, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 4.5 * COST + 0.1
    with Provider(writer) as provider:
        provider.stand_in_for_openai(monkeypatch)
        lost = made.run(max_cost_usd=limit, concurrency=1)
        assert set(lost) == {"budget"}
        requests = len(provider.requests)
        assert 1 <= requests == len(plan.batches) - len(lost)
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
    again = Generating(world, make_plan(world, other, MODEL), undisturbed.folder)
    again.golden = GoldenSet.load(undisturbed.folder)
    imported = Generating(world, undisturbed.plan, undisturbed.folder)
    imported.golden.manifest["steps"]["import"] = {}
    with Provider([]) as provider:
        provider.stand_in_for_openai(monkeypatch)
        error = error_of(again.run)
        assert "imported set" in error_of(imported.run)
    assert "seed 0, not 7" in error
    assert "batches_per_inbox 3, not 2" in error
    assert "model" not in error


FEW = ("--train", "1", "--validation", "0", "--test", "1", "--min-mails", "50", "--batches", "2")


@pytest.fixture
def command(world_db: Path, tmp_path: Path) -> tuple[object, ...]:
    return ("golden", "generate", "-m", MODEL, "--db", world_db, "--out", tmp_path / "set", *FEW)


def test_a_set_that_other_commands_read(
    art_e: Run,
    command: tuple[object, ...],
    world_db: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(golden_progress, "LINE_EVERY_S", 0.0)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert "export OPENAI_API_KEY" in the_error(art_e(*command))
    with Provider(writer) as provider:
        provider.stand_in_for_openai(monkeypatch)
        result = art_e(*command)
        assert result.exit_code == 0, result.output
        assert result.stdout == "generate: 20 rows, 20 kept\n"
        assert "mail text stays on this machine (127.0.0.1" in result.stderr
        assert "estimate: about $0.0" in result.stderr
        # A run's log tells what it costs while it goes on.
        assert "4 of 4 batches, 20 questions, $0.10 of about $" in result.stderr
        following = f"art-e golden filter --db {world_db} --out {tmp_path / 'set'}"
        assert following in result.stderr
        assert len(provider.requests) == 4
        again = json_of(art_e(*command, "--json"))
        assert len(provider.requests) == 4
    assert again["sums"] == {"in": 20, "kept": 20, "dropped": {}, "mended": {}, "unsure": {}}
    assert again["cost_usd"] == pytest.approx(4 * COST)
    questions = load_questions(str(tmp_path / "set"))
    assert {each.split for each in questions} == {"train", "test"}
    files = [each for each in (tmp_path / "set").rglob("*") if each.is_file()]
    assert not [each for each in files if KEY.encode() in each.read_bytes()]


def test_a_dry_run_asks_and_writes_nothing(
    art_e: Run, command: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not even a key is wanted.
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    plan = json_of(art_e(*command, "--dry-run", "--json"))
    assert [each["split"] for each in plan["inboxes"]].count("test") == 1
    assert plan["estimate"]["requests"] == sum(each["batches"] for each in plan["inboxes"]) == 4
    assert 0 < plan["estimate"]["usd"] < 1
    shown = art_e(*command, "--dry-run")
    assert shown.exit_code == 0
    assert plan["inboxes"][0]["address"] in shown.stdout
    assert "about $0.0" in shown.stdout
    assert not (tmp_path / "set").exists()


@pytest.mark.parametrize(
    ("options", "fix"),
    [
        (("-m", "offline"), "art-e golden import"),
        (("-m", "local:checkpoint"), "art-e serve"),
        (("-m", "nobody/nothing"), "unknown model"),
        (("--inbox", "nobody@nowhere.example"), "nearest"),
        (("--min-mails", "100000"), "lower --min-mails"),
        (("--train", "0", "--test", "0"), "above 0"),
        (("-m", "openai/of-our-own", "--max-cost", "1"), "--max-cost can't be kept"),
    ],
)
def test_refused_with_the_fix(
    art_e: Run,
    command: tuple[object, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    fix: str,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert fix in the_error(art_e(*command, *options))
    assert not (tmp_path / "set" / "manifest.json").exists()


def test_the_form_is_plain_enough_for_any_provider() -> None:
    schema = json.dumps(GeneratedItems.model_json_schema())
    assert not any(f'"{name}"' in schema for name in ("minimum", "maximum", "minLength", "pattern"))
