"""`generate`: a model reads batches of mails and writes questions about them.

    plan = make_plan(file, options, model)      what will be asked; the same seed, the same plan
    generate(file, golden, asker, plan, show)   asks, and puts the questions into the set

A batch whose call fails, or that the limit of cost ends before, is counted with its
reason, and the next run asks it. Knows nothing of whether questions are any good.
"""

import asyncio
import datetime as dt
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib import resources
from itertools import groupby
from typing import Any, NamedTuple

from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.policies.base import PolicyError
from art_e.question import Question, Split
from art_e.text import digest
from data_pipeline.golden.asking import Asker
from data_pipeline.golden.batches import BATCHES, days_of, draw_batches
from data_pipeline.golden.estimate import GenerationCost, estimate
from data_pipeline.golden.golden_set import Batch, GoldenSet, Rejected
from data_pipeline.golden.inboxes import MIN_MAILS, Counts, choose_inboxes, named_inboxes
from data_pipeline.golden.items import (
    GeneratedItem,
    GeneratedItems,
    NoQuestion,
    read_items,
)
from data_pipeline.golden.shown import shown_mails
from evals.structured import UnparseableError

MODEL = "gemini/gemini-2.5-pro"
QUESTIONS = 8
# At 0 a model asks after the same few things of every batch, and says again what could
# not be read.
TEMPERATURE = 0.7
# A question is asked fewer days than that after its mail, most of them soon, as the synthetic
# world's are.
_DAYS_AFTER = 45


@dataclass(frozen=True, slots=True)
class Options:
    """What a set is made with. `inboxes` are named ones; none: the largest are chosen."""

    seed: int = 0
    counts: Counts = field(default_factory=Counts)
    min_mails: int = MIN_MAILS
    inboxes: tuple[str, ...] = ()
    batches: int = BATCHES
    questions: int = QUESTIONS


class Plan(NamedTuple):
    """What will be asked: `data` is what the model is given of each of the `batches`.

    `notes` say what is less than was wanted.
    """

    model: str
    options: Options
    splits: dict[str, Split]
    batches: list[Batch]
    data: list[dict[str, Any]]
    estimate: GenerationCost
    notes: list[str]


class Lost(NamedTuple):
    """Why a batch gave nothing: "unreadable", or the kind of the `PolicyError`."""

    kind: str
    reason: str


class Progress(NamedTuple):
    """How far it is; `cost_usd` None: not known."""

    batches: int
    questions: int
    lost: tuple[Lost, ...]
    cost_usd: float | None


@dataclass(slots=True)
class _Asked:
    """What came of a batch."""

    batch: Batch
    items: list[GeneratedItem | NoQuestion]
    lost: Lost | None = None


def make_plan(
    file: InboxFile, options: Options, model: str, on_batch: Callable[[], None] = lambda: None
) -> Plan:
    """Choose the inboxes, draw the batches and read them; `on_batch` is called for each.

    Raises `UserError` where there is no mail to ask about.
    """
    if not sum(options.counts):
        raise UserError("no inbox is wanted; give --train, --validation or --test a number above 0")
    if options.inboxes:
        chosen = named_inboxes(file, options.inboxes, options.counts, options.seed)
    else:
        chosen = choose_inboxes(file, options.counts, options.seed, options.min_mails)
    batches = draw_batches(file, chosen.splits, options.batches, options.seed)
    if not batches:
        raise UserError(
            "no inbox has mails of a length to ask about that no inbox of another split holds;"
            " name others with --inbox, or lower --min-mails"
        )
    data = []
    for address, drawn in groupby(batches, key=lambda each: each.inbox):
        for each in _data(file, address, list(drawn), options.questions):
            data.append(each)
            on_batch()
    form = GeneratedItems.model_json_schema()
    expected = estimate(model, prompt(), data, form, options.questions)
    notes = [*chosen.notes, *_too_few(chosen.splits, batches, options.batches)]
    return Plan(model, options, chosen.splits, batches, data, expected, notes)


def settings_of(file: InboxFile, options: Options, model: str) -> dict[str, Any]:
    """What a set is made with, as its manifest tells; another makes another set."""
    return {
        "db": {"name": file.path.name, "mails": file.counts["stored"]},
        "seed": options.seed,
        "model": model,
        "prompt": digest(prompt()),
        "temperature": TEMPERATURE,
        "questions_per_batch": options.questions,
        "batches_per_inbox": options.batches,
        "min_mails": options.min_mails,
        "wanted": options.counts._asdict(),
        "named": list(options.inboxes),
    }


def check_same(golden: GoldenSet, settings: Mapping[str, Any]) -> None:
    """Raises `UserError`, naming what differs, where the set was made otherwise."""
    steps = golden.manifest["steps"]
    if "generate" not in steps:
        if steps:
            raise UserError("the set there was imported; name another folder with --out")
        return
    made = {**steps["generate"], "db": golden.manifest["db"], "seed": golden.manifest["seed"]}
    other = [
        f"{name} {_said(made.get(name))}, not {_said(value)}"
        for name, value in settings.items()
        if made.get(name) != value
    ]
    if other:
        raise UserError(
            f"the set there was made with {'; '.join(other)}: use the same,"
            " or name another folder with --out"
        )


def generate(
    file: InboxFile,
    golden: GoldenSet,
    asker: Asker,
    plan: Plan,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> list[Lost]:
    """Ask for the questions of every batch; what replies are kept is not asked for again.

    Gives why batches gave nothing. Raises `UserError` where not one question came of it, or
    the set was made otherwise.
    """
    settings = settings_of(file, plan.options, asker.name)
    check_same(golden, settings)
    asked = asyncio.run(_ask_all(asker, plan, on_progress))
    if not any(isinstance(item, GeneratedItem) for each in asked for item in each.items):
        why = next((each.lost.reason for each in asked if each.lost), "the replies hold none")
        raise UserError(f"{asker.name} gave no question: {why}")
    golden.undo("generate")
    golden.questions, golden.rejected = [], []
    golden.batches = list(plan.batches)
    days = {address: days_of(file, address) for address in plan.splits}
    for each in asked:
        _put(golden, each, days[each.batch.inbox], plan)
    golden.sort()
    golden.manifest["db"] = settings.pop("db")
    golden.manifest["seed"] = settings.pop("seed")
    golden.manifest["inboxes"] = dict(plan.splits)
    lost = Counter(each.lost.kind for each in asked if each.lost)
    spent = asker.spent
    settings |= {
        "batches": {
            "drawn": len(asked),
            "used": len(asked) - lost.total(),
            "lost": dict(sorted(lost.items())),
        },
        "notes": plan.notes,
        "estimate": plan.estimate._asdict(),
        "usage": asdict(spent.usage),
        # Summed in no set order: beyond that the digits may differ.
        "cost_usd": None if spent.cost_usd is None else round(spent.cost_usd, 6),
    }
    golden.record("generate", sum(len(each.items) for each in asked), settings)
    return [each.lost for each in asked if each.lost]


@cache
def prompt() -> str:
    """What the model is told; a batch's data follow it."""
    path = resources.files("data_pipeline.golden").joinpath("prompts/generate.txt")
    return path.read_text(encoding="utf-8")


def _too_few(splits: Iterable[str], batches: Iterable[Batch], wanted: int) -> list[str]:
    """A note on the inboxes that give no batch, and one on those that give fewer than wanted."""
    drawn = Counter(each.inbox for each in batches)
    why = "too little mail of a length to ask about that no inbox of another split holds"
    notes = []
    if unused := [each for each in splits if not drawn[each]]:
        notes.append(f"nothing can be asked of {', '.join(unused)}: {why}")
    if fewer := [f"{each} {drawn[each]}" for each in splits if 0 < drawn[each] < wanted]:
        notes.append(
            f"inboxes that give fewer than {wanted:,} batches: {len(fewer)}, of {why}:"
            f" {', '.join(fewer)}"
        )
    return notes


def _data(
    file: InboxFile, address: str, batches: Sequence[Batch], questions: int
) -> Iterator[dict[str, Any]]:
    """What the model is given of each of an inbox's batches."""
    owner = {"name": _owner_name(file, address), "address": address}
    ids = [each for batch in batches for each in batch.message_ids]
    mails = dict(zip(ids, file.open_inbox(address).read_many(ids), strict=True))
    for batch in batches:
        read = [mail for each in batch.message_ids if (mail := mails[each]) is not None]
        assert len(read) == len(batch.message_ids), f"{batch.id} has mail of another inbox"
        yield {"owner": owner, "mails": shown_mails(read), "questions": questions}


async def _ask_all(
    asker: Asker, plan: Plan, on_progress: Callable[[Progress], None]
) -> list[_Asked]:
    """What came of each batch, in the plan's order, whenever it came."""
    done: list[_Asked] = []

    async def asked(batch: Batch, data: Mapping[str, Any]) -> _Asked:
        came = await _ask(asker, batch, data)
        done.append(came)
        questions = sum(isinstance(item, GeneratedItem) for each in done for item in each.items)
        lost = tuple(each.lost for each in done if each.lost)
        on_progress(Progress(len(done), questions, lost, asker.spent_usd))
        return came

    return await asyncio.gather(*map(asked, plan.batches, plan.data))


async def _ask(asker: Asker, batch: Batch, data: Mapping[str, Any]) -> _Asked:
    try:
        items = await asker.read(prompt(), data, GeneratedItems, read_items)
    except UnparseableError as error:
        return _Asked(batch, [], Lost("unreadable", str(error)))
    except PolicyError as error:
        return _Asked(batch, [], Lost(error.kind, " ".join(str(error).split())))
    return _Asked(batch, items)


def _put(golden: GoldenSet, asked: _Asked, days: Mapping[str, dt.date], plan: Plan) -> None:
    """Put a batch's items into the set; `days` are those of its inbox's mails."""
    batch = asked.batch
    own = {each: days[each] for each in batch.message_ids}
    last = max(days.values())
    for number, item in enumerate(asked.items, start=1):
        name = f"{batch.id}-q{number}"
        if isinstance(item, NoQuestion):
            row = {"id": name, "inbox_address": batch.inbox, "batch": batch.id, "item": item.item}
            golden.rejected.append(Rejected(row, "generate", "form", item.reason))
            continue
        cited = _cited(item, batch)
        # Where it cites no mail of the batch, the whole of it is what the question rests on.
        newest = max(filter(None, map(own.get, cited)), default=max(own.values()))
        # Drawn for each by itself: replies come in any order.
        draw = random.Random(f"{plan.options.seed}/asked/{name}").random()
        after = min(int(draw**2 * _DAYS_AFTER), (last - newest).days)
        question = Question(
            id=name,
            question=item.question,
            inbox_address=batch.inbox,
            query_date=newest + dt.timedelta(days=after),
            answer=item.answer,
            message_ids=cited,
            how_realistic=item.how_realistic,
            kind=item.kind,
            difficulty=item.difficulty,
            answerable=item.kind != "unanswerable",
            split=batch.split,
            provenance={"model": plan.model, "prompt": digest(prompt()), "batch": batch.id},
        )
        golden.questions.append(question)


def _cited(item: GeneratedItem, batch: Batch) -> tuple[str, ...]:
    """The message ids of its mails; a handle of no mail stays what it is."""
    handles = batch.handles()
    return tuple(dict.fromkeys(handles.get(each.lower(), each) for each in item.mails))


def _owner_name(file: InboxFile, address: str) -> str:
    """The name under which the owner wrote most mails; "" where there was none."""
    row = file.execute(
        "SELECT from_name FROM emails WHERE from_address = ? AND from_name <> ''"
        " GROUP BY from_name ORDER BY count(*) DESC, from_name LIMIT 1",
        [address],
    ).fetchone()
    return "" if row is None else str(row[0])


def _said(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
