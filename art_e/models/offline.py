"""The offline policy: no model, the baseline that every model must beat.

It searches with the question's informative words, reads the best hits, and answers with the
sentence that fits the question best (`fit.py`), or abstains. It answers "how many" by counting
the hits that fit. Like a model it sees messages and tool schemas only; the same messages give
the same answer.
"""

import re
from typing import Any

from art_e.inbox.tokenizer import stems, words
from art_e.message import AssistantMessage, ChatMessage, ToolCall, compact_json
from art_e.models.base import OFFLINE, PolicyStep, Usage
from art_e.models.fit import AnswerCandidate, ReadMail, candidates, informative_words, name_stems
from art_e.trajectory import exchanges

NOTHING = "I don't know"

# Below this score an answer is likelier wrong than right, by a logistic regression on the
# validation questions of the companies that the weights were fitted on.
ABSTAIN_BELOW = 7.02

# "How many" is the number of hits that contain all its names, if there are enough names to tell
# them from the rest, and few such hits.
NAMES_TO_COUNT = 3
COUNTED = range(2, 5)

# Hits of its search, mails read in one turn, and turns of reading.
HITS = 10
READ_AT_ONCE = 4
READING_TURNS = 2


class OfflinePolicy:
    """Extractive search and read, without a model. `abstain_below` is a candidate's score."""

    model = OFFLINE

    def __init__(self, abstain_below: float = ABSTAIN_BELOW) -> None:
        self._abstain_below = abstain_below

    @property
    def settings(self) -> dict[str, Any]:
        """What an answer depends on besides the messages."""
        return {"abstain_below": self._abstain_below}

    async def act(self, messages: list[ChatMessage], tools: list[dict[str, Any]]) -> PolicyStep:
        """Search, then read, then answer."""
        message = self._next(messages)
        return PolicyStep(message, Usage(), 0.0, score=_score(message, messages))

    def _next(self, messages: list[ChatMessage]) -> AssistantMessage:
        turn = sum(each["role"] == "assistant" for each in messages)
        if turn == 0:
            keywords = informative_words(_question(messages))
            return _calls(0, "search_emails", {"keywords": keywords, "max_results": HITS})
        unread = [hit["message_id"] for hit in _hits(messages)][READ_AT_ONCE * (turn - 1) :]
        if turn <= READING_TURNS and unread and not _is_last_turn(messages):
            chosen = [{"message_id": each} for each in unread[:READ_AT_ONCE]]
            return _calls(turn, "read_email", *chosen)
        answer, sources = self._answer(messages)
        return _calls(turn, "return_final_answer", {"answer": answer, "sources": sources})

    def _answer(self, messages: list[ChatMessage]) -> tuple[str, list[str]]:
        """The answer and its sources."""
        if is_to_be_counted(messages):
            counted = _counted(messages)
            return (str(len(counted)), counted) if counted else (NOTHING, [])
        best = best_candidate(messages)
        if best is None or best.score < self._abstain_below:
            return NOTHING, []
        return best.text, [best.handle]


def _score(message: AssistantMessage, messages: list[ChatMessage]) -> float | None:
    """The score of a quoted answer; counts have none."""
    answers = message.tool_calls[0].name == "return_final_answer"
    best = best_candidate(messages) if answers and not is_to_be_counted(messages) else None
    return None if best is None else best.score


def best_candidate(messages: list[ChatMessage]) -> AnswerCandidate | None:
    """The best answer in the mails that an episode has read, whatever its score."""
    return max(all_candidates(messages), key=lambda each: each.score, default=None)


def all_candidates(messages: list[ChatMessage]) -> list[AnswerCandidate]:
    """Every sentence of the mails that an episode has read, with its score."""
    ranks = {hit["message_id"]: rank for rank, hit in enumerate(_hits(messages))}
    mails = [
        ReadMail(
            each["message_id"], each["date"], each["subject"], each["from"], each["body"], rank
        )
        for each in _observations(messages)
        if (rank := ranks.get(each.get("message_id"))) is not None and "body" in each
    ]
    return candidates(_question(messages), mails)


def is_to_be_counted(messages: list[ChatMessage]) -> bool:
    """Whether the question asks how many, and no mail read states it ("12 people")."""
    how_many = re.search(r"\bhow (?:often|many times|many (\w+))", _question(messages).lower())
    if how_many is None:
        return False
    thing = stems([how_many[1] or "times"])[0]
    for each in _observations(messages):
        body = words(each.get("body", ""))
        if any(
            word.isdigit() and stem == thing
            for word, stem in zip(body, stems(body[1:]), strict=False)
        ):
            return False
    return True


def _counted(messages: list[ChatMessage]) -> list[str]:
    """The hits to count; empty if the question's names don't tell them from the rest."""
    names = name_stems(_question(messages))
    if len(names) < NAMES_TO_COUNT:
        return []
    held = [
        hit["message_id"]
        for hit in _hits(messages)
        if names.isdisjoint(stems(list(hit.get("missing", ()))))
    ]
    return held if len(held) in COUNTED else []


def _question(messages: list[ChatMessage]) -> str:
    return str(next(each["content"] for each in messages if each["role"] == "user"))


def _is_last_turn(messages: list[ChatMessage]) -> bool:
    """Whether the episode's note on the last turn follows the last observation."""
    *_, last = exchanges(messages)
    return any(len(call.results) > 1 for call in last.calls)


def _observations(messages: list[ChatMessage]) -> list[dict[str, Any]]:
    return [call.results[0] for each in exchanges(messages) for call in each.calls]


def _hits(messages: list[ChatMessage]) -> list[dict[str, Any]]:
    return [hit for each in _observations(messages) for hit in each.get("hits", [])]


def _calls(turn: int, tool: str, *arguments: dict[str, Any]) -> AssistantMessage:
    """A message that calls one tool, once for each set of arguments."""
    calls = (
        ToolCall(f"call_{turn}_{number}", tool, compact_json(each))
        for number, each in enumerate(arguments)
    )
    return AssistantMessage(tool_calls=tuple(calls))
