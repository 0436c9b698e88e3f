"""What is in a thing that leaves for the hub that somebody may mind, counted.

Knows nothing of the hub, and of what the things are.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from evals.normalise import EMAIL

# What has these names holds message ids, which look like addresses.
_IDS = frozenset({"message_id", "message_ids", "sources", "handles"})


class Contents(NamedTuple):
    """Counts of what differs: questions, those with an answer, mails whose text is in it
    (as a whole or as a snippet), inboxes that are named, e-mail addresses that occur. `notes`
    say in words what the counts do not."""

    questions: int = 0
    answers: int = 0
    mails: int = 0
    inboxes: int = 0
    addresses: int = 0
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {**self._asdict(), "notes": list(self.notes)}


class Addresses:
    """The e-mail addresses that occur in what is added; ids of mails are none."""

    def __init__(self) -> None:
        self._found: set[str] = set()
        self._ids: set[str] = set()

    def __len__(self) -> int:
        return len(self._found - self._ids)

    def add(self, value: Any) -> None:
        """Look through all texts of `value` (what JSON can hold), names of fields too.

        A text that is itself JSON is taken apart.
        """
        self._look(value, self._found)

    def _look(self, value: Any, into: set[str]) -> None:
        if isinstance(value, str):
            objects = list(json_lines(value))
            if objects:
                self._look(objects, into)
            elif "@" in value:
                into.update(each.lower().rstrip(".") for each in EMAIL.findall(value))
        elif isinstance(value, Mapping):
            for name, each in value.items():
                self._look(name, into)
                self._look(each, self._ids if name in _IDS else into)
        elif isinstance(value, Iterable):
            for each in value:
                self._look(each, into)


def json_lines(text: str) -> Iterator[Any]:
    """The objects or lists that stand in `text` line by line; nothing where it is no JSON.

    Tools' answers are such texts: a note on the turns that are left has a line of its own.
    """
    if text[:1] not in ("{", "["):
        return
    try:
        yield from [json.loads(line) for line in text.split("\n")]
    except (ValueError, RecursionError):
        return
