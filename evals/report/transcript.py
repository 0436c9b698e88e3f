"""A trajectory's messages as turns that a page can draw: calls, hits, mails, errors.

What many episodes share (a mail, the head of a hit, a prompt) is kept once in
`Tables`, and turns refer to it by number. Mail and what models wrote is untrusted and
may be no JSON at all; characters that can't be seen are spelt out. Knows nothing of
verdicts, and of how the page looks.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from art_e.message import ChatMessage, compact_json

# A longer text is cut with a mark: one mail of a gigabyte must not make a page of one.
KEPT_CHARS = 100_000
# Hidden characters are how a mail says one thing to a reader and another to a model: controls,
# overrides of direction, lone surrogates, tags. What emoji and scripts are joined with stays.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_MAIL_FIELDS = ("to", "cc", "bcc", "body")


def visible(text: str) -> str:
    """`text` with "[U+202E]" for each character that hides or turns round what is read.

    Long texts are cut. The result can be encoded and has no line ends but "\\n".
    """
    left = len(text) - KEPT_CHARS
    if left > 0:
        text = f"{text[:KEPT_CHARS]}\n[cut here: {left:,} more characters in trajectories.jsonl]"
    text = text.replace("\r\n", "\n")
    return _HIDDEN.sub(lambda found: f"[U+{ord(found[0]):04X}]", text)


def plain(value: Any) -> Any:
    """`value`, which JSON gave, with texts made visible and numbers that JSON lacks as text."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {visible(str(key)): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


class Table:
    """Values that occur many times, each once; `add` gives a value's number."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self._numbers: dict[str, int] = {}

    def add(self, value: Any) -> int:
        """The number of `value` (what JSON can hold), which the table keeps."""
        key = value if isinstance(value, str) else compact_json(value)
        number = self._numbers.setdefault(key, len(self.rows))
        if number == len(self.rows):
            self.rows.append(value)
        return number


class Tables:
    """What the episodes of a page share: texts, heads of mails as searches show them, mails."""

    def __init__(self) -> None:
        self.texts = Table()
        self.heads = Table()
        self.mails = Table()

    def text(self, text: str) -> int:
        """The number of `text`, made visible."""
        return self.texts.add(visible(text))


def transcript(
    messages: Sequence[ChatMessage], handles: Mapping[str, str], tables: Tables
) -> list[dict[str, Any]]:
    """The model's turns: `{"says", "calls", "notes"}`, texts as numbers of `tables.texts`.

    A call is `{"tool", "arguments", "results"}`; arguments that are no JSON object stay text.
    Results and notes are `{"hits"}`, `{"mail", "handle"}`, `{"error"}`, `{"note"}` or `{"text"}`.
    Message ids in place of handles stand in heads and mails.
    """
    turns: list[dict[str, Any]] = []
    waiting: list[dict[str, Any]] = []
    for message in messages:
        if message.get("role") == "assistant":
            waiting = [_call(each) for each in message.get("tool_calls") or []]
            says = str(message.get("content") or "")
            turn = {"says": tables.text(says) if says else None, "calls": list(waiting)}
            turns.append({**turn, "notes": []})
        elif turns:
            results = list(_results(str(message.get("content") or ""), handles, tables))
            # The episode answers the calls of a message in their order.
            if message.get("role") == "tool" and waiting:
                waiting.pop(0)["results"] = results
            else:
                turns[-1]["notes"] += results
    return turns


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function") or {}
    written = str(function.get("arguments") or "")
    tool = visible(str(function.get("name")))
    return {"tool": tool, "arguments": _arguments(written), "results": []}


def _arguments(written: str) -> dict[str, Any] | str:
    try:
        given = json.loads(written)
        if isinstance(given, dict):
            return {visible(name): _argument(each) for name, each in given.items()}
    except (ValueError, RecursionError):
        pass  # shown as it was written
    return visible(written)


def _argument(value: Any) -> Any:
    """One argument as text, as a list of texts, or None."""
    if isinstance(value, list):
        return [_word(each) for each in value]
    return None if value is None else _word(value)


def _word(value: Any) -> str:
    return visible(value if isinstance(value, str) else compact_json(value))


def _results(content: str, handles: Mapping[str, str], tables: Tables) -> Iterator[dict[str, Any]]:
    """What one observation says; the note on the last turn comes behind the tool's own words."""
    content = content.strip()
    try:
        found, end = json.JSONDecoder().raw_decode(content)
    except (ValueError, RecursionError):
        found, end = None, len(content)
    if not isinstance(found, dict):
        if content:
            yield {"text": tables.text(content)}
        return
    if isinstance(found.get("hits"), list):
        hits = [each for each in found["hits"] if isinstance(each, dict)]
        yield {"hits": [_hit(each, handles, tables) for each in hits]}
    if "body" in found:
        yield _mail(found, handles, tables)
    for name in ("error", "note"):
        if name in found:
            yield {name: tables.text(_text(found, name))}
    yield from _results(content[end:], handles, tables)


def _hit(hit: Mapping[str, Any], handles: Mapping[str, str], tables: Tables) -> dict[str, Any]:
    handle = _text(hit, "message_id")
    shown: dict[str, Any] = {
        "handle": visible(handle),
        "head": tables.heads.add(_head(hit, handles)),
        "snippet": tables.text(_text(hit, "snippet")),
    }
    missing = hit.get("missing")
    if isinstance(missing, list) and missing:
        shown["missing"] = [_word(each) for each in missing]
    return shown


def _mail(mail: Mapping[str, Any], handles: Mapping[str, str], tables: Tables) -> dict[str, Any]:
    handle = _text(mail, "message_id")
    parts = {name: _recipients(mail, name) for name in _MAIL_FIELDS[:-1] if name in mail}
    kept = {**_head(mail, handles), **parts, "body": visible(_text(mail, "body"))}
    return {"mail": tables.mails.add(kept), "handle": visible(handle)}


def _head(mail: Mapping[str, Any], handles: Mapping[str, str]) -> dict[str, str]:
    handle = _text(mail, "message_id")
    fields = {name: visible(_text(mail, name)) for name in ("date", "from", "subject")}
    return {"id": visible(handles.get(handle, handle)), **fields}


def _recipients(mail: Mapping[str, Any], name: str) -> list[str]:
    listed = mail[name]
    return [_word(each) for each in listed] if isinstance(listed, list) else [_word(listed)]


def _text(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    return value if isinstance(value, str) else "" if value is None else str(value)
