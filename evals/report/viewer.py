"""The trajectory viewer's data and its parts of the page, which works without a server.

`viewer_data` is what the page's script reads; texts that episodes share are in it
once. `viewer_parts` gives the fragment of the page, its style and its script. Knows
nothing of the rest of the report, nor of charts and metrics.
"""

from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple

from art_e.question import Question
from art_e.trajectory import Trajectory
from evals.funnel import STEPS, ended_at
from evals.report.transcript import Table, Tables, plain, transcript, visible
from evals.scored import Scored

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
    tables, questions = Tables(), Table()
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
    """The system prompt and the question as the model was asked it; "" where there is none."""
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
