"""The offline policy: no model, the baseline that every model must beat.

It searches with the question's informative words, then again: from the person asked about, with
parts of words or in the last months. It reads the best hits and answers with a sentence of the best
passage (`passages.py`), counts hits for "how many", or abstains. Like a model it sees only
messages; the same messages give the same answer."""

import datetime as dt
import itertools
import json
import re
from functools import lru_cache
from typing import Any, ClassVar

from art_e.inbox.tokenizer import stems, words
from art_e.message import AssistantMessage, ChatMessage, ToolCall, compact_json
from art_e.models.base import OFFLINE, PolicyStep, Usage
from art_e.passages import (
    Passage,
    informative_words,
    name_stems,
    person_asked_for,
    ranked_passages,
    word_parts,
)
from art_e.trajectory import exchanges

NOTHING = "I don't know"

# This limit gives the most right minus wrong answers on validation (`bench/fit_passages.py`).
ABSTAIN_BELOW = 8.88  # a passage's logit, not a probability
# "How many" is the number of hits with all names of the question, if it has enough names.
NAMES_TO_COUNT, COUNTED = 3, range(2, 5)
# Hits of a search, days that the second one looks back, mails read per turn, turns of reading.
HITS, RECENT_DAYS, READ_AT_ONCE, READING_TURNS = 10, 90, 4, 2


class OfflinePolicy:
    """Searches, reads, and answers with a quoted sentence, without a model."""

    model = OFFLINE
    # An answer depends on these besides the messages.
    settings: ClassVar[dict[str, Any]] = {"abstain_below": ABSTAIN_BELOW}

    async def act(self, messages: list[ChatMessage], tools: list[dict[str, Any]]) -> PolicyStep:
        seen = _Seen(messages)
        other = _second_search(seen) if seen.turn == 1 else {}
        if (seen.turn == 0 or other) and not seen.is_last_turn:
            arguments = {"keywords": informative_words(seen.question), "max_results": HITS}
            return _step(seen.turn, "search_emails", arguments | other)
        reading = seen.turn - seen.searches
        unread = [hit["message_id"] for hit in seen.hits if "body" not in hit]
        unread = unread[READ_AT_ONCE * reading :]  # earlier turns read those before
        if reading < READING_TURNS and unread and not seen.is_last_turn:
            chosen = [{"message_id": handle} for handle in unread[:READ_AT_ONCE]]
            return _step(seen.turn, "read_email", *chosen)
        answer, sources, score = NOTHING, list[str](), None
        if _asks_how_many(seen):
            if sources := _counted(seen):
                answer = str(len(sources))
        elif passages := passages_of(messages):
            best = passages[0]
            score = best.score
            if score >= ABSTAIN_BELOW:
                answer, sources = best.sentence, [best.handle]
        arguments = {"answer": answer, "sources": sources}
        return _step(seen.turn, "return_final_answer", arguments, score=score)


def passages_of(messages: list[ChatMessage]) -> list[Passage]:
    """Return the passages of the hits that an episode has read, best first."""
    seen = _Seen(messages)
    hits = {hit["message_id"] for hit in seen.hits}
    mails = [mail for mail in seen.mails if mail["message_id"] in hits]
    return _ranked(seen.question, compact_json([seen.hits, mails]))


@lru_cache(1)
def _ranked(question: str, observed: str) -> list[Passage]:
    """Rank the passages of hits and mails in JSON, once for the answer and its display."""
    return ranked_passages(question, *json.loads(observed))


class _Seen:
    """A conversation as the policy reads it: `results` are those of all calls, in order."""

    def __init__(self, messages: list[ChatMessage]) -> None:
        turns = exchanges(messages)
        self.question = str(next(each["content"] for each in messages if each["role"] == "user"))
        self.turn = len(turns)
        # The episode's note on the last turn follows the last result.
        self.is_last_turn = any(len(call.results) > 1 for each in turns[-1:] for call in each.calls)
        self.results = [call.results[0] for each in turns for call in each.calls]
        searches = [result["hits"] for result in self.results if "hits" in result]
        self.searches = len(searches)
        hits: dict[str, dict[str, Any]] = {}
        for hit in itertools.chain(*itertools.zip_longest(*searches)):
            if hit:
                hits[hit["message_id"]] = hit | hits.get(hit["message_id"], {})
        # Interleaved, so that the best hits of each search come first; bulk mail comes last.
        self.hits = sorted(hits.values(), key=lambda hit: hit.get("bulk", False))
        # In the lean view complete hits are mails, and a mail may come in pages.
        mails: dict[str, dict[str, Any]] = {}
        for mail in itertools.chain(*searches, self.results):
            if "body" in mail and "message_id" in mail:
                mails.setdefault(mail["message_id"], mail)
        self.mails = list(mails.values())


def _second_search(seen: _Seen) -> dict[str, Any]:
    """Return the changed arguments of a second search, or {}: the person asked about as sender,
    parts of words that no hit has, or the last months if the first search was full."""
    if name := person_asked_for(seen.question):
        return {"from_addr": name, "keywords": name.split()}
    keywords = informative_words(seen.question)
    lacked = set(keywords).intersection(*(hit.get("missing", ()) for hit in seen.hits))
    if parts := [
        part for word in keywords if word in lacked for part in word_parts(word, seen.question)
    ]:
        return {"keywords": [*keywords, *parts]}
    dated = [hit["date"][:10] for hit in seen.hits if hit["date"][:1].isdigit()]
    if len(seen.hits) < HITS or not dated:
        return {}
    return {"sent_after": f"{dt.date.fromisoformat(max(dated)) - dt.timedelta(RECENT_DAYS)}"}


def _asks_how_many(seen: _Seen) -> bool:
    how_many = re.search(r"\bhow (?:often|many times|many (\w+))", seen.question.lower())
    if how_many is None:
        return False
    thing = stems([how_many[1] or "times"])[0]
    bodies = (words(result.get("body", "")) for result in seen.results)
    return not any(
        word.isdigit() and stem == thing
        for body in bodies
        for word, stem in zip(body, stems(body[1:]), strict=False)  # a stated number: "12 invoices"
    )


def _counted(seen: _Seen) -> list[str]:
    """Return the hits to count; [] if the question has too few names to tell them apart."""
    names = name_stems(seen.question)
    if len(names) < NAMES_TO_COUNT:
        return []
    fit = [hit for hit in seen.hits if names.isdisjoint(stems(list(hit.get("missing", ()))))]
    held = [hit["message_id"] for hit in fit]
    return held if len(held) in COUNTED else []


def _step(
    turn: int, tool: str, *arguments: dict[str, Any], score: float | None = None
) -> PolicyStep:
    numbered = enumerate(map(compact_json, arguments))
    calls = tuple(ToolCall(f"call_{turn}_{number}", tool, text) for number, text in numbered)
    return PolicyStep(AssistantMessage(tool_calls=calls), Usage(), 0.0, score=score)
