"""What a model is asked for about a batch, and reading its reply leniently.

A reply that ends in the middle, or of which one item is wrong, is still used: each item is
validated by itself, and what can't be used is given with its reason. Knows nothing of
batches, inboxes and prompts.
"""

import json
import re
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BaseModel, BeforeValidator, ValidationError
from pydantic_core import from_json, to_json

from art_e.question import Difficulty, Kind
from art_e.text import encodable
from data_pipeline.golden.limits import MAX_ANSWER_CHARS, MAX_QUESTION_CHARS
from evals.structured import UnparseableError

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
