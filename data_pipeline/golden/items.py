"""What a model is asked for about a batch, and reading its reply leniently.

A reply that ends in the middle, or of which one item is wrong, is still used: each item is
validated by itself, and what can't be used is given with its reason. Knows nothing of
batches, inboxes and prompts.
"""

from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BaseModel, BeforeValidator, ValidationError
from pydantic_core import from_json, to_json

from art_e.question import Difficulty, Kind
from art_e.text import encodable

# Of an item that is no question, in what is kept of it.
_KEPT_CHARS = 4_000
# What ends a reply that was cut off between two items, or after the last.
_ENDINGS = ("]}", "}", "null]}")


def _single_spaced(text: str) -> str:
    return " ".join(encodable(text).split())


def _worded(text: str) -> str:
    if not text:
        raise ValueError("it is empty")
    return text


def _share(value: float) -> float:
    if not 0 <= value <= 1:
        raise ValueError("it is not from 0 to 1")
    return value


# Not by constraints: they would be in the form, and not every provider takes them there.
_Text = Annotated[str, AfterValidator(_single_spaced)]
_Question = Annotated[_Text, AfterValidator(_worded)]
_Answer = Annotated[_Text, BeforeValidator(lambda value: "" if value is None else value)]
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


class UnreadableError(Exception):
    """A reply that has no item to use. The message is one line."""


def read_items(reply: str) -> list[GeneratedItem | NoQuestion]:
    """The items of a reply, in its order. Raises `UnreadableError` where it has none at all.

    Of a reply that is cut off its whole items are given, and of the last one what there is.
    """
    text = encodable(reply)
    try:
        return [_item(each) for each in _listed(from_json(text, allow_inf_nan=False))]
    except ValueError:
        pass
    try:
        found = _listed(from_json(text, allow_inf_nan=False, allow_partial=True))
    except ValueError:
        raise UnreadableError("the reply is no JSON of the form asked for") from None
    whole = _whole(text)
    items = [_item(each) for each in found[:whole]]
    if not items:
        raise UnreadableError("the reply was cut off before its first item had ended")
    return items + [
        NoQuestion(_kept(each), "the reply was cut off in it") for each in found[whole:]
    ]


def _listed(reply: Any) -> list[Any]:
    items = reply.get("items") if isinstance(reply, dict) else None
    if not isinstance(items, list):
        raise ValueError("there are no items")
    return items


def _whole(text: str) -> int:
    """How many items of a reply that was cut off ended before that."""
    for ending in _ENDINGS:
        try:
            items = _listed(from_json(text + ending, allow_inf_nan=False))
        except ValueError:
            continue
        return len(items) - ending.startswith("null")
    cut = _listed(from_json(text, allow_inf_nan=False, allow_partial=True))
    return max(0, len(cut) - 1)


def _item(item: Any) -> GeneratedItem | NoQuestion:
    try:
        return GeneratedItem.model_validate(item)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "item"
        return NoQuestion(_kept(item), f"{where}: {first['msg'].removeprefix('Value error, ')}")


def _kept(item: Any) -> str:
    return to_json(item).decode()[:_KEPT_CHARS]
