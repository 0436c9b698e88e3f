"""The scripted provider's rule for `generate`: it writes questions about the mails it is sent."""

import json
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from art_e.models.base import Usage
from tests.provider import Reply, Request, says

USAGE = Usage(8_000, 0, 1_000, 0)
MODEL = "openai/gpt-4.1"
COST = 0.016 + 0.008  # of a reply, at its prices

# What is said of a batch instead of its items, at the first, second, ... asking.
Instead = Callable[[Mapping[str, Any], int], Reply | None]


def asked_of(request: Request) -> dict[str, Any]:
    """The data of a request."""
    data: dict[str, Any] = json.loads(request.messages[-1]["content"])
    return data


def items_for(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Two lookups, one update, one unanswerable, and one that cites a mail that is not there."""
    mails = data["mails"]
    mark = zlib.crc32(json.dumps(data).encode())

    def item(kind: str, cited: list[str], answer: str, number: int) -> dict[str, Any]:
        return {
            "kind": kind,
            "question": f"What did I hear of matter {mark}-{number}?",
            "answer": answer,
            "mails": cited,
            "how_realistic": 0.9,
            "difficulty": "easy",
        }

    return [
        item("lookup", [mails[0]["id"]], mails[0]["subject"] or "nothing", 1),
        item("lookup", [mails[-1]["id"].upper()], "Tuesday", 2),
        item("latest-update", [mails[2]["id"], mails[1]["id"]], "42", 3),
        item("unanswerable", [], "", 4),
        item("lookup", ["m37"], "made up", 5),
    ]


class Writer:
    """A rule for `Provider`. `instead` says what is served for a batch in place of its items."""

    def __init__(self, instead: Instead = lambda _data, _time: None) -> None:
        self.instead = instead
        self.asked: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()

    def __call__(self, request: Request) -> Reply:
        data = asked_of(request)
        batch = request.messages[-1]["content"]
        self.asked[batch] += 1
        reply = self.instead(data, self.asked[batch])
        if reply is None or not reply.fails:
            self.answered[batch] += 1
        return reply or says(json.dumps({"items": items_for(data)}), usage=USAGE)
