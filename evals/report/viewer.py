"""The episode viewer's data and its parts of the page, which works without a server.

`viewer_data` is what the page's script reads; texts that episodes share are in it once.
`viewer_parts` gives the fragment of the page, its style and its script.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple

from art_e.message import ChatMessage, compact_json
from art_e.question import Question
from art_e.trajectory import exchanges
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


class _Distinct:
    """Values that occur many times, each once; `add` returns a value's number."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self._numbers: dict[str, int] = {}

    def add(self, value: Any) -> int:
        """The number of `value`, which JSON can hold."""
        number = self._numbers.setdefault(compact_json(value), len(self.rows))
        if number == len(self.rows):
            self.rows.append(value)
        return number


class _Tables:
    """What the episodes of a page share: texts, heads of mails as searches show them, mails."""

    def __init__(self) -> None:
        self.texts, self.heads, self.mails = _Distinct(), _Distinct(), _Distinct()

    def text(self, text: Any) -> int:
        """The number of a text."""
        return self.texts.add(_text(text))

    def turns(
        self, messages: Sequence[ChatMessage], handles: Mapping[str, str]
    ) -> list[dict[str, Any]]:
        """The model's turns: `{"says", "calls", "notes"}`, texts as numbers of `texts`.

        A call is `{"tool", "arguments", "results"}`; arguments that are no JSON object stay text.
        Results and notes are `{"hits"}`, `{"mail", "handle"}`, `{"error"}`, `{"note"}` or
        `{"text"}`. Message ids in place of handles stand in heads and mails.
        """
        return [
            {
                "says": self.text(exchange.says) if exchange.says else None,
                "calls": [
                    {
                        "tool": call.tool,
                        "arguments": _arguments(call.arguments),
                        "results": self._results(call.results, handles),
                    }
                    for call in exchange.calls
                ],
                "notes": self._results(exchange.replies, handles),
            }
            for exchange in exchanges(messages)
        ]

    def _results(
        self, results: Sequence[Mapping[str, Any]], handles: Mapping[str, str]
    ) -> list[dict[str, Any]]:
        shown: list[dict[str, Any]] = []
        for result in results:
            hits = result.get("hits")
            if isinstance(hits, list):
                found = [self._hit(each, handles) for each in hits if isinstance(each, dict)]
                shown.append({"hits": found})
            if "body" in result:
                parts = {
                    name: list(map(_word, _listed(result[name])))
                    for name in ("to", "cc", "bcc")
                    if name in result
                }
                mail = {**_head(result, handles), **parts, "body": _text(result["body"])}
                handle = _text(result.get("message_id"))
                shown.append({"mail": self.mails.add(mail), "handle": handle})
            names = [name for name in ("error", "note", "text") if name in result]
            shown += [{name: self.text(result[name])} for name in names]
        return shown

    def _hit(self, hit: Mapping[str, Any], handles: Mapping[str, str]) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "handle": _text(hit.get("message_id")),
            "head": self.heads.add(_head(hit, handles)),
            "snippet": self.text(hit.get("snippet")),
        }
        missing = hit.get("missing")
        if isinstance(missing, list) and missing:
            shown["missing"] = [_word(each) for each in missing]
        return shown


def _arguments(given: dict[str, Any] | str) -> dict[str, Any] | str:
    """The arguments as texts, lists of texts, or None."""
    if isinstance(given, str):
        return given
    return {name: each if each is None else _words(each) for name, each in given.items()}


def _words(value: Any) -> str | list[str]:
    return [_word(each) for each in value] if isinstance(value, list) else _word(value)


def _head(mail: Mapping[str, Any], handles: Mapping[str, str]) -> dict[str, str]:
    handle = _text(mail.get("message_id"))
    fields = {name: _text(mail.get(name)) for name in ("date", "from", "subject")}
    return {"id": handles.get(handle, handle), **fields}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _word(value: Any) -> str:
    return value if isinstance(value, str) else compact_json(value)


def _text(value: Any) -> str:
    return "" if value is None else str(value)


# ---- The viewer's data and its parts of the page.

# Each is a way for an episode to end, in the order in which the page offers them.
OUTCOMES = ("right", "wrong", "abstained", "out of turns", "lost", "failed", "unjudged")
_SCRIPTS = ("links.js", "finding.js", "conversation.js", "viewer.js")


class ViewerParts(NamedTuple):
    """What a page includes of the viewer, each as text: markup, style, one script."""

    html: str
    css: str
    js: str


def viewer_parts() -> ViewerParts:
    """The viewer's files of this folder.

    The page puts `viewer_data` into `<script type="application/json" id="viewer-data">` in front of
    the script.
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
    tables, questions = _Tables(), _Distinct()
    taken: Counter[str] = Counter()
    episodes = []
    for each in scored:
        episode_id = each.trajectory.episode_id
        taken[episode_id] += 1
        again = f"-{taken[episode_id]}" if taken[episode_id] > 1 else ""
        number = questions.add(_question(each.question))
        episode = {"id": episode_id + again, "question": number, **_episode(each, tables)}
        episodes.append(episode)
    data: dict[str, Any] = plain(
        {
            "outcomes": OUTCOMES,
            "wheres": [each.replace("_", " ") for each in STEPS],
            "questions": questions.rows,
            "heads": tables.heads.rows,
            "mails": tables.mails.rows,
            "texts": tables.texts.rows,
            "episodes": episodes,
        }
    )
    return data


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
    shown = {name: row[name] for name in names}
    return {**shown, "inbox": question.inbox_address, "as_of": row["query_date"]}


def _episode(scored: Scored, tables: _Tables) -> dict[str, Any]:
    trajectory = scored.trajectory
    reward = trajectory.reward or {}
    opening: dict[str, str] = {}
    for message in trajectory.messages:
        if message.get("role") == "assistant":
            break
        opening.setdefault(str(message.get("role")), str(message.get("content") or ""))
    turns = tables.turns(trajectory.messages, trajectory.handles)
    names = ("model", "repeat", "sources", "error", "call_seconds", "policy", "usage", "seconds")
    return {
        **{name: getattr(trajectory, name) for name in (*names, "retries")},
        "run": trajectory.run_id,
        "step": _finite(trajectory.policy.get("step")),
        "outcome": outcome(scored),
        "where": ended_at(scored).replace("_", " "),
        "reward": _finite(reward.get("total")),
        "components": reward.get("components") or {},
        "answer": trajectory.final_answer,
        "abstained": bool(trajectory.rubric.get("abstained")),
        "gold": _gold(scored, turns, tables),
        "verdicts": scored.verdicts,
        "system": tables.text(opening.get("system")),
        "asked": tables.text(opening.get("user")),
        "turns": turns,
        "facts": trajectory.rubric,
        "cost": _finite(trajectory.cost_usd),
        "started": trajectory.started_at,
    }


def _gold(
    scored: Scored, turns: Sequence[Mapping[str, Any]], tables: _Tables
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
    facts, cited = scored.trajectory.rubric, scored.trajectory.sources
    return [
        {
            "id": each,
            "found": bool(facts.get("found_gold")) or each in found,
            "read": bool(facts.get("read_gold")) or each in read,
            "cited": bool(facts.get("sources_correct")) or each in cited,
        }
        for each in scored.question.message_ids
    ]


def _finite(value: Any) -> float | None:
    return value if isinstance(value, int | float) and math.isfinite(value) else None
