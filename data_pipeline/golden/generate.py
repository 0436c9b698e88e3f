"""`generate`: a model reads batches of mails and writes questions about them.

A batch without a usable reply is counted with its reason, and the next run asks for it again."""

import asyncio
import contextlib
import datetime as dt
import json
import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import groupby, product
from typing import Annotated, Any, NamedTuple, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ValidationError, model_validator
from pydantic_core import from_json

from art_e.errors import UserError, fault_of
from art_e.inbox.file import InboxFile
from art_e.inbox.tokenizer import STOP_WORDS, stems, words
from art_e.models.base import PolicyError
from art_e.question import SPLITS, Difficulty, Kind, Question, Split
from art_e.text import cut_line, digest, encodable, prompt_text
from data_pipeline.golden import inboxes
from data_pipeline.golden.golden_set import GoldenSet, Rejected, check_bounds
from data_pipeline.golden.inboxes import OWN_MAIL, QUERIES, Counts, Mail, added_words, new_texts
from evals.scored import limited_gather
from evals.structured import StructuredModel, UnparseableError, unwrap_json

BATCHES = 40
BATCH_MAILS = 12
# Try other first threads until a batch has GOOD_MAILS; drop batches below MIN_BATCH_MAILS.
GOOD_MAILS, MIN_BATCH_MAILS = 8, 5
# A batch spans three weeks, or more if the inbox has little mail.
SPANS = tuple(map(dt.timedelta, (21, 90, 365)))
_TRIES = 20  # first threads that are tried for a batch
# Threads are alike if they share a word or person of at most 20 threads, or several frequent ones.
_NEAR = 0.05
_MIN_NEW_WORDS = 3  # a mail that adds fewer words to the ones before it is a copy
MIN_CHARS, MAX_CHARS = 200, 5_000  # shorter mails say little, longer ones are newsletters
QUESTIONS = 5
TEMPERATURE = 0.7  # at 0 a model repeats its questions, and its unreadable replies
_DAYS_AFTER = 45  # maximum days between the newest gold mail and the query date
_MAX_CHARS = 4_000

# ---- The form of a reply. The schema has no limits, because some providers don't accept them.
# Docstrings are part of it and so of the cache key: changing one means paying for replies again.


_Text = Annotated[str, AfterValidator(lambda text: " ".join(text.split()))]


class GeneratedItem(BaseModel):
    """One question; `mails` are the handles of those that hold the answer."""

    kind: Kind
    question: _Text
    answer: Annotated[_Text, BeforeValidator(lambda value: "" if value is None else value)]
    mails: list[_Text]
    difficulty: Difficulty

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_bounds(self.question, self.answer, None)
        return self


class GeneratedItems(BaseModel):
    """The questions about a batch of mails."""

    items: list[GeneratedItem]


class NoQuestion(NamedTuple):
    """An unusable item: its JSON, cut if long, and the reason."""

    item: str
    reason: str
    check: str = "form"


def read_items(reply: str, limit: int) -> list[GeneratedItem | NoQuestion]:
    """Return the first `limit` items of a reply in its order, and the others as one unusable item.
    The last item of a truncated reply is unusable, because it may lack mails. Raises
    `UnparseableError` for a reply of another form, or one that is cut off in its first item."""
    text, value, is_cut = unwrap_json(encodable(reply), GeneratedItems), None, False
    for is_cut in (False, True):
        with contextlib.suppress(ValueError):
            value = from_json(text, allow_partial=is_cut)
            break
    items = value.get("items") if isinstance(value, dict) else None
    read = [_item(each) for each in items[:limit]] if isinstance(items, list) else []
    if not isinstance(items, list) or (is_cut and len(read) < 2):
        raise UnparseableError("the reply is not JSON of the form asked for")
    if len(items) > limit:
        reason = f"the reply has {len(items):,} items, {limit} were asked for"
        read.append(NoQuestion("", reason, "too-many"))
    elif is_cut:
        read[-1] = NoQuestion(_cut_json(items[-1]), "the reply was cut off", "cut-off")
    return read


def _item(item: Any) -> GeneratedItem | NoQuestion:
    try:
        return GeneratedItem.model_validate(item)
    except ValidationError as error:
        return NoQuestion(_cut_json(item), fault_of(error, "question"))


def _cut_json(item: Any) -> str:
    return json.dumps(item)[:_MAX_CHARS]


# ---- Drawing batches.


class Batch(NamedTuple):
    """Mails of one inbox that the generator sees together, in date order."""

    id: str
    inbox: str
    split: Split
    message_ids: tuple[str, ...]


def draw_batches(file: InboxFile, splits: dict[str, Split], count: int, seed: int) -> list[Batch]:
    """Draw up to `count` batches of each inbox, in the order of `splits`. No mail (by content) is
    in two batches, or in a batch of one split and an inbox of another."""
    used: set[bytes] = set()
    batches: dict[str, list[Batch]] = {}
    # Test inboxes choose first, because they have the fewest mails to choose from.
    for split in reversed(SPLITS):
        addresses = [each for each in splits if splits[each] == split]
        for address in addresses:
            place = list(splits).index(address) + 1
            bounds = [address, address, MIN_CHARS, MAX_CHARS]
            drawable = map(Mail._make, file.execute(QUERIES["drawable"], bounds).fetchall())
            mails = [each for each in drawable if each.content not in used]
            drawn = draw_mails(mails, count, random.Random(f"{seed}/batches/{address}"))
            used.update(mail.content for batch in drawn for mail in batch)
            batches[address] = [
                Batch(f"i{place}-b{number}", address, split, tuple(m.message_id for m in batch))
                for number, batch in enumerate(drawn, start=1)
            ]
        for address in addresses:
            rows = file.execute(f"SELECT content_digest {OWN_MAIL}", [address]).fetchall()
            used.update(content for (content,) in rows)
    return [batch for address in splits for batch in batches[address]]


def draw_mails(mails: Sequence[Mail], count: int, rng: random.Random) -> list[list[Mail]]:
    """Draw up to `count` batches of mails in date order, without copies. Each batch is about one
    matter and starts in its own stretch of time. A thread is in at most one batch, with its
    `recent` mails."""
    once = sorted({mail.content: mail for mail in reversed(mails)}.values())
    threads = [recent(thread) for thread in inboxes.threads_of(once)]
    total = sum(map(len, threads))
    stretches: list[list[int]] = [[] for _ in range(min(count, -(-total // BATCH_MAILS)))]
    before = 0
    for number, thread in enumerate(threads):
        stretches[before * len(stretches) // total].append(number)  # equal in mails, not in days
        before += len(thread)
    matters: list[Set[str | int]] = []
    for thread in threads:
        subject = [word for word in words(thread[0].subject) if word not in STOP_WORDS]
        matters.append({*stems(subject), *(person for mail in thread for person in mail.people)})
    frequency = Counter(part for matter in matters for part in matter)

    def likeness(one: int, other: int) -> float:
        # A rare word or person in common says more than a frequent one.
        return sum(1 / frequency[part] for part in matters[one] & matters[other])

    free = dict(enumerate(threads))
    batches = []
    for stretch in stretches:
        # Long threads, which multi-mail questions need, come more often.
        tickets = [number for number in stretch for _ in free.get(number, ())]
        rng.shuffle(tickets)
        numbers, batch = list[int](), list[Mail]()
        for span, first in product(SPANS, list(dict.fromkeys(tickets))[:_TRIES]):
            related = _related(first, span, free, likeness)
            ordered = sorted(mail for each in related for mail in free[each])
            pairs = zip(ordered, new_texts(mail.body for mail in ordered), strict=True)
            distinct = [mail for mail, text in pairs if added_words(text) >= _MIN_NEW_WORDS]
            if len(distinct) > len(batch):
                numbers, batch = related, distinct
            if len(batch) >= GOOD_MAILS:
                break
        if len(batch) >= MIN_BATCH_MAILS:
            batches.append(batch)
            free = {each: free[each] for each in free if each not in numbers}
    return batches


def recent(thread: Sequence[Mail]) -> list[Mail]:
    """Return the mails of a thread's last three weeks, at most as many as a batch takes."""
    return [each for each in thread if thread[-1].sent_at - each.sent_at <= SPANS[0]][-BATCH_MAILS:]


def _related(
    first: int, span: dt.timedelta, free: Mapping[int, list[Mail]],
    likeness: Callable[[int, int], float],
) -> list[int]:  # fmt: skip
    """Return `first` and the threads near it in time and matter, as far as they fit in a batch."""
    start, end = free[first][0].sent_at, free[first][-1].sent_at
    margin = (span - (end - start)) / 2
    start, end = start - margin, end + margin
    around = [n for n, each in free.items() if start <= each[0].sent_at and each[-1].sent_at <= end]
    near = {number: likeness(first, number) for number in around}
    near[first] = math.inf
    numbers, room = list[int](), BATCH_MAILS
    for number in sorted(near, key=near.__getitem__, reverse=True):
        if near[number] >= _NEAR and len(free[number]) <= room:
            numbers.append(number)
            room -= len(free[number])
    return numbers


# ---- Planning.


@dataclass(frozen=True, slots=True)
class GoldenOptions:
    """Options of a new set. Without named `inboxes` the largest ones are chosen."""

    seed: int = 0
    counts: Counts = field(default_factory=Counts)
    min_mails: int = inboxes.MIN_MAILS
    inboxes: tuple[str, ...] = ()
    batches: int = BATCHES
    questions: int = QUESTIONS


class Plan(NamedTuple):
    """The requests: `data` per batch, as the model sees it; `days`: mail dates by inbox and id."""

    options: GoldenOptions
    splits: dict[str, Split]
    batches: list[Batch]
    data: list[dict[str, Any]]
    days: dict[str, dict[str, dt.date]]


def make_plan(file: InboxFile, options: GoldenOptions) -> Plan:
    """Choose inboxes, draw batches and read them. Raises `UserError` if there is no usable mail."""
    if options.inboxes:
        named = list(dict.fromkeys(file.open_inbox(each).address for each in options.inboxes))
        splits = inboxes.draw(named, options.seed, options.counts)
    else:
        splits = inboxes.choose_inboxes(file, options.counts, options.seed, options.min_mails)
    batches = draw_batches(file, splits, options.batches, options.seed)
    if not batches:
        why = "no inbox has mails of a usable length that no inbox of another split holds"
        raise UserError(f"{why}; name others with --inbox, or lower --min-mails")
    data, days = [], {}
    sent = f"SELECT message_id, sent_at::DATE {OWN_MAIL} WHERE NOT id_taken AND sent_at IS NOT NULL"
    for address, drawn in groupby(batches, key=lambda each: each.inbox):
        row = file.execute(QUERIES["owner_name"], [address]).fetchone()
        owner = {"name": "" if row is None else str(row[0]), "address": address}
        days[address] = dict(file.execute(sent, [address]).fetchall())
        inbox = file.open_inbox(address)
        for batch in drawn:
            mails = inboxes.mails_of(inbox, batch.message_ids)
            assert len(mails) == len(batch.message_ids), f"{batch.id} has mail of another inbox"
            rows = inboxes.prompt_mails(mails, new_texts(mail.body for mail in mails))
            data.append({"owner": owner, "mails": rows, "questions": options.questions})
    return Plan(options, splits, batches, data, days)


# ---- Asking.

Items = list[GeneratedItem | NoQuestion]
Lost = tuple[str, str]  # the kind and the text of the error that left a batch without items


def generate(
    golden: GoldenSet, writer: StructuredModel, plan: Plan, concurrency: int,
    on_reply: Callable[[], None],
) -> list[Lost]:  # fmt: skip
    """Fill a new set with questions, `concurrency` batches at a time; return why batches failed:
    "unreadable" or a kind of `PolicyError`. Raises `UserError` if there is no question."""
    prompt = prompt_text(__package__, "generate")

    async def ask(data: Mapping[str, Any]) -> Items | Lost:
        read = partial(read_items, limit=data["questions"])
        try:
            return await writer.read(prompt, data, GeneratedItems, read)
        except UnparseableError as error:
            return "unreadable", str(error)
        except PolicyError as error:
            return error.kind, cut_line(str(error), _MAX_CHARS)

    replies = asyncio.run(limited_gather(concurrency, ask, plan.data, on_reply))
    lost = [each for each in replies if isinstance(each, tuple)]
    if not any(isinstance(item, GeneratedItem) for items in replies for item in items):
        why = lost[0][1] if lost else "the replies hold none"
        raise UserError(f"{writer.model} gave no question: {why}")
    origin = {"model": writer.model, "prompt": digest(prompt)}
    for batch, items in zip(plan.batches, replies, strict=True):
        if isinstance(items, list):
            _add(golden, plan, batch, items, origin)
    spent, kinds = writer.total_spent, sorted(Counter(kind for kind, _ in lost).items())
    batches = {"drawn": len(replies), "used": len(replies) - len(lost), "lost": dict(kinds)}
    settings = {"seed": plan.options.seed, **origin, "temperature": TEMPERATURE, "batches": batches}
    settings |= {"options": asdict(plan.options), "splits": dict(plan.splits)}
    # Costs are added in the order of the replies, so the last digits may differ between runs.
    cost = None if spent.cost_usd is None else round(spent.cost_usd, 6)
    settings |= {"usage": asdict(spent.usage), "cost_usd": cost}
    golden.finish("generate", [(each, None) for each in golden.questions], settings)
    return lost


def _add(golden: GoldenSet, plan: Plan, batch: Batch, items: Items, origin: dict[str, str]) -> None:
    days = plan.days[batch.inbox]
    handles = {f"m{place}": each for place, each in enumerate(batch.message_ids, start=1)}
    for number, item in enumerate(items, start=1):
        name = f"{batch.id}-q{number}"
        if isinstance(item, NoQuestion):
            row = {"id": name, "inbox_address": batch.inbox, "batch": batch.id, "item": item.item}
            golden.rejected.append(Rejected(row, "generate", item.check, item.reason))
            continue
        cited = tuple(dict.fromkeys(handles.get(each.lower(), each) for each in item.mails))
        # If no cited mail is in the batch, the query date follows the whole batch.
        sources = [each for each in cited if each in batch.message_ids] or batch.message_ids
        newest = max(days[each] for each in sources)
        # Each question has its own generator, because replies come in any order. The square of a
        # uniform number favours small delays: P(delay < d) = sqrt(d / _DAYS_AFTER).
        chance = random.Random(f"{plan.options.seed}/asked/{name}").random()
        after = min(int(chance**2 * _DAYS_AFTER), (max(days.values()) - newest).days)
        golden.questions.append(
            Question(
                id=name, question=item.question, inbox_address=batch.inbox,
                query_date=newest + dt.timedelta(days=after), answer=item.answer, message_ids=cited,
                kind=item.kind, difficulty=item.difficulty, answerable=item.kind != "unanswerable",
                split=batch.split, provenance={**origin, "batch": batch.id},
            )
        )  # fmt: skip
