"""A policy that says what `CASES` has for each question, over Bob's small inbox."""

import datetime as dt
from typing import Any

from art_e.inbox.file import InboxFile
from art_e.message import AssistantMessage, ChatMessage
from art_e.models.base import PolicyError, PolicyStep, Usage
from art_e.question import Kind, Question
from art_e.runs import Run
from evals.benchmark import Entrant, run_benchmark
from evals.judges.offline import OfflineJudge
from tests import builders as episodes
from tests.builders import CREW, LEASE, PRICE, answer, message
from tests.builders import read_episodes as read
from tests.builders import search_episodes as search

TALK = AssistantMessage("Hm.")
DOWN = PolicyError("provider", "503")


def question(number: str, text: str, gold: str | None, *ids: str, kind: Kind) -> Question:
    return Question(
        number,
        text,
        episodes.BOB,
        dt.date(2020, 1, 31),
        gold,
        ids,
        kind=kind,
        answerable=gold is not None,
    )


# Each question with what the policy says to it.
CASES: list[tuple[Question, list[AssistantMessage | Exception]]] = [
    (
        question("right", "When does the lease end?", "May 3", LEASE, kind="lookup"),
        [message(search("lease")), message(read("m1")), message(answer("On May 3.", "m1"))],
    ),
    (
        question("wrong", "What does the crane cost?", "$4,000", PRICE, kind="lookup"),
        [message(search("crane")), message(answer("$9,000", PRICE))],
    ),
    (
        question("abstained", "How many are in the crew?", "2", CREW, kind="count"),
        [message(answer("I don't know."))],
    ),
    (
        question("failed", "When does the lease stop?", "May 3", LEASE, kind="lookup"),
        [message(search("lease")), DOWN],
    ),
    (
        question("lost", "Who is the crew?", "Dora and Emil", CREW, PRICE, kind="multi-mail"),
        [TALK, TALK, TALK],
    ),
    (
        question("right to abstain", "Where is the zeppelin?", None, kind="unanswerable"),
        [message(answer(None))],
    ),
    (
        question("made up", "Who flies the zeppelin?", None, kind="unanswerable"),
        [message(search("zeppelin"), answer("Dora", "m1"))],
    ),
    (
        question("out of turns", "What does the zeppelin cost?", None, kind="unanswerable"),
        [message(search("zeppelin"))] * 4,
    ),
]
QUESTIONS = [each for each, _ in CASES]


class Rehearsed:
    """Says what `CASES` has for the question, at a price a turn."""

    settings: dict[str, Any] = {}  # noqa: RUF012 - the protocol's property

    def __init__(self, model: str, price: float | None) -> None:
        self.model = model
        self._price = price
        self._script = {each.question: script for each, script in CASES}

    async def act(self, messages: list[ChatMessage], tools: list[dict[str, Any]]) -> PolicyStep:
        turn = sum(each["role"] == "assistant" for each in messages)
        step = self._script[messages[1]["content"]][turn]
        if isinstance(step, Exception):
            raise step
        return PolicyStep(step, Usage(10, 0, 1), self._price, seconds=0.1)


def ask(
    inbox_file: InboxFile,
    run: Run,
    questions: list[Question],
    *policies: Rehearsed,
    concurrency: int = 1,
    **options: Any,
) -> dict[str, Any]:
    entrants = [Entrant(each, concurrency) for each in policies]
    return run_benchmark(
        questions, entrants, inbox_file, [OfflineJudge()], run, max_turns=4, **options
    )
