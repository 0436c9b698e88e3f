"""The trajectory viewer's data and its parts of the page, which works without a server.

`viewer_data` is what the page's script reads; texts that episodes share are in it
once. `viewer_parts` gives the fragment of the page, its style and its script. Knows
nothing of the rest of the report, nor of charts and metrics.
"""

import math
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple

from art_e.message import ChatMessage, compact_json
from art_e.question import Question
from art_e.trajectory import Trajectory, exchanges
from evals.metrics import STEPS, ended_at
from evals.scored import Scored

# ---- A trajectory's messages as turns that a page can draw: calls, hits, mails, errors.

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


class Distinct:
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
        self.texts = Distinct()
        self.heads = Distinct()
        self.mails = Distinct()

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
    for exchange in exchanges(messages):
        calls = [
            {
                "tool": visible(call.tool),
                "arguments": _arguments(call.arguments),
                "results": _results(call.results, handles, tables),
            }
            for call in exchange.calls
        ]
        says = tables.text(exchange.says) if exchange.says else None
        notes = _results(exchange.replies, handles, tables)
        turns.append({"says": says, "calls": calls, "notes": notes})
    return turns


def _arguments(given: dict[str, Any] | str) -> dict[str, Any] | str:
    if isinstance(given, str):
        return visible(given)
    return {visible(name): _argument(each) for name, each in given.items()}


def _argument(value: Any) -> Any:
    """One argument as text, as a list of texts, or None."""
    if isinstance(value, list):
        return [_word(each) for each in value]
    return None if value is None else _word(value)


def _word(value: Any) -> str:
    return visible(value if isinstance(value, str) else compact_json(value))


def _results(
    results: Sequence[Mapping[str, Any]], handles: Mapping[str, str], tables: Tables
) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = []
    for result in results:
        if isinstance(result.get("hits"), list):
            hits = [each for each in result["hits"] if isinstance(each, dict)]
            shown.append({"hits": [_hit(each, handles, tables) for each in hits]})
        if "body" in result:
            shown.append(_mail(result, handles, tables))
        told = [name for name in ("error", "note", "text") if name in result]
        shown += [{name: tables.text(_text(result, name))} for name in told]
    return shown


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


# ---- The trajectory viewer's data and its parts of the page, which works without a server.

# Each is a way for an episode to end, in the order in which the page offers them.
OUTCOMES = ("right", "wrong", "abstained", "out of turns", "lost", "failed", "unjudged")
_SCRIPTS = ("links.js", "finding.js", "conversation.js", "viewer.js")


class ViewerParts(NamedTuple):
    """What a page includes of the viewer, each as text: markup, style, one script."""

    html: str
    css: str
    js: str


def viewer_parts() -> ViewerParts:
    """The files of this folder that make up the viewer.

    The page puts `viewer_data` into `<script type="application/json" id="viewer-data">` in
    front of the script.
    """
    folder = resources.files(__package__)
    html, css, *scripts = (
        folder.joinpath(name).read_text(encoding="utf-8")
        for name in ("viewer.html", "viewer.css", *_SCRIPTS)
    )
    return ViewerParts(html, css, '(() => {\n"use strict";\n' + "\n".join(scripts) + "})();\n")


def viewer_data(scored: Sequence[Scored]) -> dict[str, Any]:
    """The episodes for the page, in the order given, as JSON can hold them.

    `{"outcomes", "wheres", "questions", "heads", "mails", "texts", "episodes"}`: episodes refer to
    the rows of the other lists by number. Ids of episodes are made distinct.
    """
    tables, questions = Tables(), Distinct()
    taken: set[str] = set()
    episodes = []
    for each in scored:
        episode = _episode(each, tables)
        episode["id"] = _distinct(episode["id"], taken)
        episode["question"] = questions.add(_question(each.question))
        episodes.append(episode)
    return {
        "outcomes": list(OUTCOMES),
        "wheres": [each.replace("_", " ") for each in STEPS],
        "questions": questions.rows,
        "heads": tables.heads.rows,
        "mails": tables.mails.rows,
        "texts": tables.texts.rows,
        "episodes": episodes,
    }


def outcome(scored: Scored) -> str:
    """How an episode ended, one of `OUTCOMES`; an abstention that is right counts as right."""
    if scored.trajectory.error is not None:
        return "failed"
    if not scored.ended:
        return "lost" if scored.trajectory.rubric["lost_to_format"] else "out of turns"
    if scored.unjudged:
        return "unjudged"
    if scored.correct:
        return "right"
    return "wrong" if scored.wrong else "abstained"


def _question(question: Question) -> dict[str, Any]:
    names = ("id", "question", "answer", "kind", "difficulty", "answerable")
    row = question.to_row()
    return {
        **{name: plain(row[name]) for name in names},
        "inbox": visible(question.inbox_address),
        "as_of": row["query_date"],
    }


def _episode(scored: Scored, tables: Tables) -> dict[str, Any]:
    trajectory = scored.trajectory
    reward = trajectory.reward or {}
    system, asked = _opening(trajectory)
    turns = transcript(trajectory.messages, trajectory.handles, tables)
    return {
        "id": visible(trajectory.episode_id),
        "run": visible(trajectory.run_id),
        "model": visible(trajectory.model),
        "step": _number(trajectory.policy.get("step")),
        "repeat": trajectory.repeat,
        "outcome": outcome(scored),
        "where": ended_at(scored).replace("_", " "),
        "reward": _number(reward.get("total")),
        "components": plain(reward.get("components") or {}),
        "answer": plain(trajectory.final_answer),
        "abstained": bool(trajectory.rubric.get("abstained")),
        "sources": plain(trajectory.sources),
        "gold": _gold(scored, turns, tables),
        "verdicts": plain(scored.verdicts),
        "error": plain(trajectory.error),
        "system": tables.text(system),
        "asked": tables.text(asked),
        "turns": turns,
        "call_seconds": plain(trajectory.call_seconds),
        "facts": plain(trajectory.rubric),
        "policy": plain(trajectory.policy),
        "usage": plain(trajectory.usage),
        "cost": _number(trajectory.cost_usd),
        "seconds": plain(trajectory.seconds),
        "retries": trajectory.retries,
        "started": visible(trajectory.started_at),
    }


def _opening(trajectory: Trajectory) -> tuple[str, str]:
    """The system prompt and the question as the model saw it; "" without one."""
    said: dict[str, str] = {}
    for message in trajectory.messages:
        if message.get("role") == "assistant":
            break
        said.setdefault(str(message.get("role")), str(message.get("content") or ""))
    return said.get("system", ""), said.get("user", "")


def _gold(
    scored: Scored, turns: Sequence[Mapping[str, Any]], tables: Tables
) -> list[dict[str, Any]]:
    """What became of each gold mail of an answerable question.

    A gold id may be another copy's than the one that the inbox shows; where the rubric says
    that all were found (read, cited), each was.
    """
    if scored.question.answerable is False:
        return []
    results = [each for turn in turns for call in turn["calls"] for each in call["results"]]
    hits = [hit for each in results for hit in each.get("hits", ())]
    found = {tables.heads.rows[hit["head"]]["id"] for hit in hits}
    read = {tables.mails.rows[each["mail"]]["id"] for each in results if "mail" in each}
    facts, cited = scored.trajectory.rubric, set(map(visible, scored.trajectory.sources))
    return [
        {
            "id": each,
            "found": bool(facts.get("found_gold")) or each in found,
            "read": bool(facts.get("read_gold")) or each in read,
            "cited": bool(facts.get("sources_correct")) or each in cited,
        }
        for each in map(visible, scored.question.message_ids)
    ]


def _number(value: Any) -> float | None:
    shown = plain(value)
    return shown if isinstance(shown, int | float) else None


def _distinct(name: str, taken: set[str]) -> str:
    """`name`, with a number behind it where it is taken."""
    number, chosen = 1, name
    while chosen in taken:
        number += 1
        chosen = f"{name}-{number}"
    taken.add(chosen)
    return chosen
