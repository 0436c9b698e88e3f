"""The data of the page's episode viewer, which works without a server.

`viewer_data` is what the page's script reads; values that episodes share are in it once.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

from art_e.message import compact_json
from art_e.text import visible
from art_e.trajectory import Exchange, exchanges
from evals.metrics import STEPS, ended_at
from evals.scored import Scored

# ---- A trajectory's messages as turns that a page can draw: calls, hits, mails, errors.

# A longer text is cut with a mark: one mail of a gigabyte must not make a page of one.
KEPT_CHARS = 100_000
# Controls, ends of lines that are none, and lone surrogates.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def marked(text: str) -> str:
    """`text` with "[U+202E]" for each character that hides or turns round what is read.

    Long texts are cut. The result can be encoded and has no line ends but "\\n".
    """
    left = len(text) - KEPT_CHARS
    if left > 0:
        text = f"{text[:KEPT_CHARS]}\n[cut here: {left:,} more characters in trajectories.jsonl]"
    text = visible(text.replace("\r\n", "\n"), _named)
    return _CONTROLS.sub(lambda found: _named(found[0]), text)


def _named(character: str) -> str:
    return f"[U+{ord(character):04X}]"


def plain(value: Any) -> Any:
    """`value`, which JSON gave, with texts made visible and numbers that JSON lacks as text."""
    if isinstance(value, str):
        return marked(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {marked(str(key)): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


class _Shared(dict[str, int]):
    """The numbers of values that several episodes have, such as mails; each is kept once."""

    def add(self, value: Any) -> int:
        """The number of `value`, which JSON can hold."""
        return self.setdefault(compact_json(value), len(self))

    def rows(self) -> list[Any]:
        return list(map(json.loads, self))


def _turn(exchange: Exchange, handles: Mapping[str, str], shared: _Shared) -> dict[str, Any]:
    """A turn of the model: `{"says", "calls", "notes"}`.

    A call is `{"tool", "arguments", "results"}`; arguments are strings, lists of strings or None,
    or one text if they are not a JSON object. Results and notes are `{"hits"}`, `{"mail",
    "handle"}`, `{"error"}`, `{"note"}` or `{"text"}`. Texts, mails and their heads are numbers of
    shared values, in which message ids stand in place of handles.
    """

    def shown(results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        return [part for each in results for part in _result(each, handles, shared)]

    says = shared.add(exchange.says) if exchange.says else None
    calls = [
        {"tool": each.tool, "arguments": _words(each.arguments), "results": shown(each.results)}
        for each in exchange.calls
    ]
    return {"says": says, "calls": calls, "notes": shown(exchange.replies)}


def _words(value: Any, depth: int = 0) -> Any:
    """Arguments with strings, lists of strings and None in them; other values become JSON."""
    if isinstance(value, dict) and depth == 0:
        return {name: _words(each, 1) for name, each in value.items()}
    if isinstance(value, list) and depth == 1:
        return [_words(each, 2) for each in value]
    return value if value is None or isinstance(value, str) else compact_json(value)


def _result(
    result: Mapping[str, Any], handles: Mapping[str, str], shared: _Shared
) -> Iterator[dict[str, Any]]:
    if isinstance(hits := result.get("hits"), list):
        shown = [
            {
                "handle": _text(each.get("message_id")),
                "head": shared.add(_head(each, handles)),
                "snippet": shared.add(_text(each.get("snippet"))),
                "missing": each.get("missing"),
            }
            for each in hits
            if isinstance(each, dict)
        ]
        yield {"hits": shown}
    if "body" in result:
        parts = {name: result[name] for name in ("to", "cc", "bcc") if name in result}
        mail = {**_head(result, handles), **parts, "body": _text(result["body"])}
        yield {"mail": shared.add(mail), "handle": _text(result.get("message_id"))}
    for name in ("error", "note", "text"):
        if name in result:
            yield {name: shared.add(_text(result[name]))}


def _head(mail: Mapping[str, Any], handles: Mapping[str, str]) -> dict[str, str]:
    handle = _text(mail.get("message_id"))
    fields = {name: _text(mail.get(name)) for name in ("date", "from", "subject")}
    return {"id": handles.get(handle, handle), **fields}


def _text(value: Any) -> str:
    return "" if value is None else str(value)


# ---- The episodes.

# Each is a way for an episode to end, in the order in which the page offers them.
OUTCOMES = ("right", "wrong", "abstained", "out of turns", "lost", "failed", "unjudged")
# The ends, as the funnel names them, that leave nothing to be right or wrong.
_UNDECIDED = {
    "out_of_turns": "out of turns", "lost_to_format": "lost", "failed": "failed",
    "unjudged": "unjudged",
}  # fmt: skip


def viewer_data(scored: Sequence[Scored]) -> dict[str, Any]:
    """The episodes for the page, in the order given, as JSON can hold them.

    `{"outcomes", "wheres", "questions", "shared", "episodes"}`: episodes refer to rows of
    "questions" and "shared" by number.
    """
    shared, questions = _Shared(), _Shared()
    episodes = [
        {"question": questions.add(each.question.to_row()), **_episode(each, shared)}
        for each in scored
    ]
    data = {
        "outcomes": OUTCOMES,
        "wheres": [each.replace("_", " ") for each in STEPS],
        "questions": questions.rows(),
        "shared": shared.rows(),
        "episodes": episodes,
    }
    return {name: plain(value) for name, value in data.items()}


def outcome(scored: Scored) -> str:
    """How an episode ended, one of `OUTCOMES`; an abstention that is right counts as right."""
    decided = "right" if scored.correct else "wrong" if scored.wrong else "abstained"
    return _UNDECIDED.get(ended_at(scored), decided)


def _episode(scored: Scored, shared: _Shared) -> dict[str, Any]:
    trajectory = scored.trajectory
    reward = trajectory.reward or {}
    opening = {
        str(message.get("role")): str(message.get("content") or "")
        for message in takewhile(lambda each: each.get("role") != "assistant", trajectory.messages)
    }
    turns = [_turn(each, trajectory.handles, shared) for each in exchanges(trajectory.messages)]
    names = ("model", "repeat", "sources", "error", "call_seconds", "policy", "usage", "seconds")
    return {
        **{name: getattr(trajectory, name) for name in (*names, "retries")},
        "id": trajectory.episode_id,
        "run": trajectory.run_id,
        "step": _finite(trajectory.policy.get("step")),
        "outcome": outcome(scored),
        "where": ended_at(scored).replace("_", " "),
        "reward": _finite(reward.get("total")),
        "components": reward.get("components") or {},
        "answer": trajectory.final_answer,
        "abstained": bool(trajectory.rubric.get("abstained")),
        "gold": _gold(scored),
        "verdicts": scored.verdicts,
        "system": shared.add(opening.get("system", "")),
        "asked": shared.add(opening.get("user", "")),
        "turns": turns,
        "facts": trajectory.rubric,
        "cost": _finite(trajectory.cost_usd),
        "started": trajectory.started_at,
    }


def _gold(scored: Scored) -> list[dict[str, Any]]:
    """What became of each gold mail of an answerable question.

    A gold id may be another copy's than the one that the inbox shows; where the rubric says
    that all were found (read, cited), each was.
    """
    if scored.question.answerable is False:
        return []
    facts, trajectory = scored.trajectory.rubric, scored.trajectory
    found = {name for each in trajectory.events for name in each.get("found", ())}
    return [
        {
            "id": each,
            "found": bool(facts.get("found_gold")) or each in found,
            "read": bool(facts.get("read_gold")) or each in trajectory.mails_read,
            "cited": bool(facts.get("sources_correct")) or each in trajectory.sources,
        }
        for each in scored.question.message_ids
    ]


def _finite(value: Any) -> float | None:
    return value if isinstance(value, int | float) and math.isfinite(value) else None
