"""`generate`: a model reads batches of mails and writes questions about them.

    plan = make_plan(file, options, model)      what will be asked; the same seed, the same plan
    generate(file, golden, asker, plan, show)   asks, and puts the questions into the set

A batch whose call fails, or that the limit of cost ends before, is counted with its
reason, and the next run asks it. Knows nothing of whether questions are any good.
"""

import asyncio
import datetime as dt
import itertools
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib import resources
from itertools import groupby
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BaseModel, BeforeValidator, ValidationError
from pydantic_core import from_json, to_json

from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.models.base import PolicyError
from art_e.question import Difficulty, Kind, Question, Split
from art_e.text import digest, encodable
from data_pipeline.golden.asking import Asker, GenerationCost, estimate, shown_mails
from data_pipeline.golden.golden_set import (
    MAX_ANSWER_CHARS,
    MAX_QUESTION_CHARS,
    Batch,
    GoldenSet,
    Rejected,
)
from data_pipeline.golden.inboxes import (
    MIN_MAILS,
    Counts,
    Mail,
    choose_inboxes,
    named_inboxes,
    threads_of,
)
from evals.judges.llm import UnparseableError

# ---- What a model is asked for about a batch, and reading its reply leniently.

# Of an item that is no question, in what is kept of it.
_KEPT_CHARS = 4_000
# What a reply of the form begins with, and what tells where each of its items ends.
_HEAD = re.compile(r'\s*\{\s*"items"\s*:\s*\[')
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|["\[\]{},]', re.DOTALL)


def _clean(text: Any) -> Any:
    # Before pydantic sees it: it takes no lone surrogate.
    return encodable(text) if isinstance(text, str) else text


def _single_spaced(text: str) -> str:
    return " ".join(text.split())


def _worded(text: str) -> str:
    if not text:
        raise ValueError("it is empty")
    return text


def _within(most: int) -> AfterValidator:
    def checked(text: str) -> str:
        if len(text) > most:
            raise ValueError(f"it has {len(text):,} characters, more than {most:,}")
        return text

    return AfterValidator(checked)


def _share(value: float) -> float:
    if not 0 <= value <= 1:
        raise ValueError("it is not from 0 to 1")
    return value


# Not by constraints: they would be in the form, and not every provider takes them there.
_Text = Annotated[str, BeforeValidator(_clean), AfterValidator(_single_spaced)]
_Question = Annotated[_Text, AfterValidator(_worded), _within(MAX_QUESTION_CHARS)]
_Answer = Annotated[
    _Text,
    BeforeValidator(lambda value: "" if value is None else value),
    _within(MAX_ANSWER_CHARS),
]
_Realism = Annotated[float, AfterValidator(_share)]


class GeneratedItem(BaseModel):
    """One question; `mails` are the handles of those that hold the answer."""

    kind: Kind
    question: _Question
    answer: _Answer
    mails: list[_Text]
    how_realistic: _Realism
    difficulty: Difficulty


class GeneratedItems(BaseModel):
    """The questions about a batch of mails."""

    items: list[GeneratedItem]


class NoQuestion(NamedTuple):
    """An item that can't be used: its JSON, cut where it is long, and why."""

    item: str
    reason: str


def read_items(reply: str) -> list[GeneratedItem | NoQuestion]:
    """The items of a reply, in its order. Raises `UnparseableError` where it has none to use.

    What is wrong in one item, be it no JSON, costs no other. Of a reply that is cut off its
    whole items are given, and of the last one what there is; what follows the items is
    passed over.
    """
    text = encodable(reply)
    try:
        items = _listed(from_json(text))
    except ValueError:
        return _salvaged(text)
    return [_item(each, _json(each)) for each in items]


def _listed(reply: Any) -> list[Any]:
    items = reply.get("items") if isinstance(reply, dict) else None
    if not isinstance(items, list):
        raise ValueError("there are no items")
    return items


def _salvaged(text: str) -> list[GeneratedItem | NoQuestion]:
    """The items of a reply that is no JSON as a whole, each read by itself."""
    head = _HEAD.match(text)
    if head is None:
        raise UnparseableError("the reply is no JSON of the form asked for")
    whole, rest, ended = _parts(text, head.end())
    items = [_parsed(each) for each in whole]
    if not ended and (last := rest.strip()):
        # All of it may be there, and only the list's end be missing.
        item = _parsed(last)
        if isinstance(item, NoQuestion):
            item = NoQuestion(item.item, "the reply was cut off in it")
            if not items:
                raise UnparseableError("the reply was cut off before its first item had ended")
        items.append(item)
    if not items:
        why = "there is text after its empty list" if ended else "it was cut off before an item"
        raise UnparseableError(f"the reply has no item to use: {why}")
    return items


def _parts(text: str, start: int) -> tuple[list[str], str, bool]:
    """The texts of a list's elements from `start` on, what is left, and whether the list ended."""
    parts, depth, begin = [], 0, start
    for found in _TOKEN.finditer(text, start):
        token = found[0]
        if token == '"':  # of a string that is cut off
            break
        if token in "[{":
            depth += 1
        elif token in "]}" and depth:
            depth -= 1
        elif token in ",]}" and not depth:
            part = text[begin : found.start()].strip()
            if part or token == ",":
                parts.append(part)
            begin = found.end()
            if token != ",":
                return parts, text[begin:], True
    return parts, text[begin:], False


def _parsed(said: str) -> GeneratedItem | NoQuestion:
    """An item by its JSON. The standard library reads what pydantic's parser refuses: nesting
    beyond 200, escapes of lone surrogates, and numbers of any length.
    """
    try:
        item = json.loads(said, parse_int=float)
    except (ValueError, RecursionError):
        return NoQuestion(said[:_KEPT_CHARS], "it is no JSON that can be read")
    return _item(item, said)


def _item(item: Any, said: str) -> GeneratedItem | NoQuestion:
    try:
        return GeneratedItem.model_validate(item)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "item"
        why = first["msg"].removeprefix("Value error, ")
        return NoQuestion(said[:_KEPT_CHARS], f"{where}: {why}")


def _json(item: Any) -> str:
    return to_json(item, inf_nan_mode="constants").decode()


# ---- Drawing the batches of mails that a model writes questions about.

BATCHES = 25
BATCH_MAILS = 20
# Fewer are no batch: hardly a question needs more than one of them.
LEAST_MAILS = 5
# Characters of a body: shorter ones tell nothing, longer ones are mostly newsletters.
LEAST_CHARS, MOST_CHARS = 200, 5_000

# Mail of inboxes of these splits is in no batch of the split.
_CLOSED: dict[Split, tuple[Split, ...]] = {
    "test": (),
    "validation": ("test",),
    "train": ("test", "validation"),
}


def draw_batches(
    file: InboxFile, splits: Mapping[str, Split], count: int, seed: int
) -> list[Batch]:
    """Up to `count` batches of each inbox, in the order of `splits`.

    An inbox that has not enough mail that may be used gives fewer, and smaller ones.
    """
    contents: dict[Split, set[bytes]] = {
        split: set().union(*(_contents(file, each) for each in _of(splits, split)))
        for split in ("test", "validation")
    }
    used: set[bytes] = set()
    batches: dict[str, list[Batch]] = {}
    # Test inboxes choose first: they have the fewest mails to choose from.
    for split, closed_to in _CLOSED.items():
        closed = set().union(*(contents[each] for each in closed_to))
        for address in _of(splits, split):
            mails = [
                each
                for each in _mails(file, address)
                if each.content not in closed and each.content not in used
            ]
            name = f"i{list(splits).index(address) + 1}"
            drawn = draw(mails, count, random.Random(f"{seed}/batches/{address}"))
            used.update(mail.content for batch in drawn for mail in batch)
            batches[address] = [
                Batch(f"{name}-b{number}", address, split, tuple(m.message_id for m in batch))
                for number, batch in enumerate(drawn, start=1)
            ]
    return [batch for address in splits for batch in batches[address]]


def draw(mails: Sequence[Mail], count: int, rng: random.Random) -> list[list[Mail]]:
    """Up to `count` batches of mails that come in date order; in each they are in it too.

    No two mails of them have the same content, and a thread is in one batch whole, or if it
    is longer than that its newest mails.
    """
    once = list({mail.content: mail for mail in reversed(mails)}.values())[::-1]
    threads = [thread[-BATCH_MAILS:] for thread in threads_of(once)]
    total = sum(map(len, threads))
    stretches: list[list[list[Mail]]] = [[] for _ in range(min(count, -(-total // BATCH_MAILS)))]
    before = 0
    for thread in threads:
        stretches[before * len(stretches) // total].append(thread)
        before += len(thread)
    drawn = [_batch(stretch, rng) for stretch in stretches]
    return [batch for batch in drawn if len(batch) >= LEAST_MAILS]


def _batch(threads: Sequence[list[Mail]], rng: random.Random) -> list[Mail]:
    """Threads that fit in a batch. Mails are drawn and bring their threads: long ones come
    more often than if threads were, and questions about several mails need them.
    """
    tickets = list(itertools.chain.from_iterable([n] * len(each) for n, each in enumerate(threads)))
    rng.shuffle(tickets)
    batch: list[Mail] = []
    for number in dict.fromkeys(tickets):
        if len(batch) + len(threads[number]) <= BATCH_MAILS:
            batch += threads[number]
    return sorted(batch, key=lambda mail: mail.email_id)


def _of(splits: Mapping[str, Split], wanted: Split) -> list[str]:
    return [address for address, split in splits.items() if split == wanted]


def _mails(file: InboxFile, address: str) -> list[Mail]:
    """The mails of an inbox that may be asked about, in date order."""
    rows = file.execute(
        f"""
        SELECT email_id, message_id, sent_at, subject, content_digest
        FROM emails SEMI JOIN ({_HIS}) USING (email_id)
        WHERE sent_at IS NOT NULL AND length(body) BETWEEN ? AND ?
        ORDER BY email_id
        """,
        [address, LEAST_CHARS, MOST_CHARS],
    ).fetchall()
    return [Mail(*row) for row in rows]


def _contents(file: InboxFile, address: str) -> set[bytes]:
    """The contents of all mails of an inbox."""
    rows = file.execute(
        f"SELECT content_digest FROM emails SEMI JOIN ({_HIS}) USING (email_id)", [address]
    ).fetchall()
    return {content for (content,) in rows}


def days_of(file: InboxFile, address: str) -> dict[str, dt.date]:
    """The day (UTC) of each dated mail of an inbox, by message id."""
    rows = file.execute(
        f"""
        SELECT message_id, sent_at::DATE FROM emails SEMI JOIN ({_HIS}) USING (email_id)
        WHERE sent_at IS NOT NULL
        """,
        [address],
    ).fetchall()
    return dict(rows)


_HIS = "SELECT email_id FROM parties JOIN addresses USING (address_id) WHERE address = ?"


# ---- `generate`: a model reads batches of mails and writes questions about them.

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
