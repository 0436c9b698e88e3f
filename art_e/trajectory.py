"""The record of an episode, stored as one JSON line, and a parser of its conversation."""

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Self

from art_e.message import ChatMessage, ToolCall, compact_json

SCHEMA = "art-e/trajectory/1"

_HEAD = ("date", "from", "to", "cc", "bcc", "subject")


class AnsweredCall(NamedTuple):
    """One tool call of a conversation, and the JSON objects that answered it: the tool's result,
    then the episode's note on the last turn, if any. Other text becomes `{"text": ...}`.
    `arguments` that are not a JSON object stay text."""

    tool: str
    arguments: dict[str, Any] | str
    results: list[dict[str, Any]]


class Exchange(NamedTuple):
    """One message of the model, its calls, and `replies`: the answer to a message without calls."""

    says: str
    calls: list[AnsweredCall]
    replies: list[dict[str, Any]]


def exchanges(messages: Sequence[ChatMessage]) -> list[Exchange]:
    """Return the model's messages of a stored conversation, each with what came back."""
    turns: list[Exchange] = []
    waiting: list[AnsweredCall] = []
    heads: dict[str, dict[str, Any]] = {}
    for message in messages:
        content = str(message.get("content") or "")
        if message.get("role") == "assistant":
            waiting = []
            for call in message.get("tool_calls") or ():
                form = call.get("function") or {}
                written = ToolCall("", str(form.get("name")), str(form.get("arguments") or ""))
                waiting.append(AnsweredCall(written.name, written.parsed, []))
            turns.append(Exchange(content, list(waiting), []))
        elif turns:
            # The episode answers the calls of a message in their order.
            is_answer = message.get("role") == "tool" and waiting
            results = waiting.pop(0).results if is_answer else turns[-1].replies
            results.extend(_objects(content))
            _fill_heads(results, heads)
    return turns


def _fill_heads(results: Iterable[dict[str, Any]], heads: dict[str, dict[str, Any]]) -> None:
    """Fill in the date, people and subject of hits and mails from earlier results in `heads`."""
    for result in results:
        hits = result.get("hits")
        for mail in hits if isinstance(hits, list) else [result]:
            if isinstance(mail, dict) and isinstance(name := mail.get("message_id"), str):
                head = heads.setdefault(name, {})
                head.update({field: mail[field] for field in _HEAD if field in mail})
                mail.update(head)


def _objects(content: str) -> Iterator[dict[str, Any]]:
    """Yield the consecutive JSON objects at the start of a text."""
    while content := content.strip():
        try:
            value, end = json.JSONDecoder().raw_decode(content)
        except (ValueError, RecursionError):
            value, end = None, 0
        if not isinstance(value, dict):
            yield {"text": content}
            return
        yield value
        content = content[end:]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One episode. `sources` are stored message ids; `handles` maps m1, m2, ... to such ids.
    `usage` has the fields of `Usage`; `seconds` has total, model and tools; `error` has kind and
    message. `cost_usd` is None if the price is unknown. `call_seconds`, `finished` (why the message
    ended) have an entry per turn; `served` lists the models that answered, by the provider's names.
    `retries` counts repeated calls. `started_at` is ISO 8601 in UTC. `verdict` is the deciding one,
    `other_verdicts` those of further judges. `score` is the policy's confidence, if it has one.
    `repeat` counts from 0 if a question is asked several times. `question` is its golden row.
    `events` has an entry per tool call, or per message without one (tool ""): turn (from 1) and
    tool, then its error, or its arguments with what it found, read or cited (stored message ids),
    and its notes; `whole` lists the mails that a search showed whole."""

    run_id: str
    episode_id: str
    question_id: str
    inbox_address: str
    as_of: str | None
    model: str
    policy: dict[str, Any]
    messages: list[ChatMessage]
    handles: dict[str, str]
    final_answer: str | None
    sources: list[str]
    rubric: dict[str, Any]
    usage: dict[str, int]
    cost_usd: float | None
    seconds: dict[str, float]
    started_at: str
    call_seconds: list[float | None] = field(default_factory=list)
    served: list[str] = field(default_factory=list)
    finished: list[str | None] = field(default_factory=list)
    retries: int = 0
    error: dict[str, str] | None = None
    verdict: dict[str, Any] | None = None
    other_verdicts: list[dict[str, Any]] = field(default_factory=list)
    reward: dict[str, Any] | None = None
    repeat: int = 0
    question: dict[str, Any] | None = None
    score: float | None = None
    events: list[dict[str, Any]]
    schema: str = SCHEMA

    @property
    def mails_read(self) -> list[str]:
        events = self.events
        mails = (each.get("whole", [each["read"]] if "read" in each else ()) for each in events)
        return list(dict.fromkeys(itertools.chain.from_iterable(mails)))

    def to_line(self) -> str:
        return compact_json(asdict(self))

    @classmethod
    def from_line(cls, line: str) -> Self:
        """Parse a line. Raises `ValueError` for another schema or impossible numbers."""
        try:
            row = json.loads(line)
            if not isinstance(row, dict) or row.get("schema") != SCHEMA:
                raise ValueError(f"not a line of {SCHEMA}")
            trajectory = cls(**row)
            numbers = (*row["usage"].values(), *row["seconds"].values(), row["cost_usd"] or 0)
            if not all(0 <= each < 1e15 for each in numbers):
                raise ValueError("impossible numbers")
        except (AttributeError, RecursionError, TypeError) as error:
            raise ValueError(str(error)) from None
        return trajectory
