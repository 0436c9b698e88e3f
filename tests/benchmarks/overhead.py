"""What ART-E costs besides the model: milliseconds a turn of an episode, seconds of a process.

Two scripted policies play episodes: one answers in its first message, one searches and reads
before it does. Time in the inbox is measured apart; the rest is the episode's own. Opening the
largest inbox up to a date is what a rollout pays before its first turn. Processes are medians of
seven, beside an interpreter that does nothing.
"""

import asyncio
import datetime as dt
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from art_e.agent import run_episode
from art_e.episode import Episode
from art_e.inbox.file import InboxFile
from art_e.inbox.inbox import Inbox
from art_e.inbox.mail import Email, Hit
from art_e.message import AssistantMessage
from art_e.question import Question
from tests.benchmarks.measure import run_process, summary
from tests.benchmarks.queries import draw_queries, largest_inboxes
from tests.benchmarks.reference import ReferenceInbox
from tests.benchmarks.worlds import World
from tests.builders import Query, ScriptedPolicy, answer, message
from tests.builders import read_episodes as read
from tests.builders import search_episodes as search

EPISODES = 200
SEARCHES = 4
RUNS = 7
ANSWER = message(answer("on Monday"))

T = TypeVar("T")


class _TimedInbox:
    """An opened inbox that adds up the seconds spent in it."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self.address, self.as_of = inbox.address, inbox.as_of
        self.seconds = 0.0

    def search(self, *arguments: Any, **options: Any) -> list[Hit]:
        return self._timed(lambda: self._inbox.search(*arguments, **options))

    def read(self, message_id: str) -> Email | None:
        return self._timed(lambda: self._inbox.read(message_id))

    def canonical_id(self, message_id: str) -> str | None:
        return self._timed(lambda: self._inbox.canonical_id(message_id))

    def _timed(self, work: Callable[[], T]) -> T:
        started = time.perf_counter()
        try:
            return work()
        finally:
            self.seconds += time.perf_counter() - started


def episode(world: World, episodes: int = EPISODES) -> dict[str, Any]:
    """Milliseconds a turn of both policies in the largest inbox."""
    with InboxFile(world.db) as inbox_file, ReferenceInbox(world.sqlite) as reference:
        largest = largest_inboxes(inbox_file, 1)[0]
        drawn = draw_queries(inbox_file, reference, [largest.address], episodes * SEARCHES)
        queries = [asked.query for asked in drawn]
        inbox = inbox_file.open_inbox(largest.address)
        searching = [
            _search_and_read(queries[at : at + SEARCHES]) for at in range(0, len(queries), SEARCHES)
        ]
        scripts = {"answer at once": [[ANSWER]] * episodes, "search and read": searching}
        policies = {
            name: asyncio.run(_run_all(inbox, each, name)) for name, each in scripts.items()
        }
        days = inbox_file.execute(
            "SELECT quantile_disc(sent_at, [0.5, 0.75, 1.0]) FROM emails"
        ).fetchone()
        assert days is not None
        opening = [_opening_ms(inbox_file, largest.address, each.date()) for each in days[0] * 3]
    return {
        "benchmark": "episode",
        "world": world.name,
        "mails": world.mails,
        "inbox": largest._asdict(),
        "policies": policies,
        "open_inbox_ms": summary(opening),
    }


async def _run_all(
    inbox: Inbox, scripts: Sequence[Sequence[AssistantMessage]], name: str
) -> dict[str, Any]:
    totals: list[float] = []
    own: list[float] = []
    turns = 0
    for number, script in enumerate(scripts):
        timed = _TimedInbox(inbox)
        question = Question(f"{name}-{number}", "What is this about?", inbox.address)
        started = time.perf_counter()
        played = Episode(cast(Inbox, timed), question)
        trajectory = await run_episode(played, ScriptedPolicy(script), "benchmark")
        elapsed = time.perf_counter() - started
        if trajectory.error is not None or played.rubric.turns != len(script):
            raise AssertionError(f"the episode went astray: {trajectory.rubric}")
        turns += len(script)
        totals.append(1000 * elapsed / len(script))
        own.append(1000 * (elapsed - timed.seconds) / len(script))
    return {
        "episodes": len(totals),
        "turns": turns,
        "ms_a_turn": summary(totals),
        "own_ms_a_turn": summary(own),
    }


def _search_and_read(queries: Sequence[Query]) -> list[AssistantMessage]:
    script = []
    for number, query in enumerate(queries, start=1):
        script.append(message(search(*query.keywords, **_days(query))))
        script.append(message(read(f"m{number}")))
    return [*script, ANSWER]


def _days(query: Query) -> dict[str, str]:
    days = {"sent_after": query.sent_after, "sent_before": query.sent_before}
    return {name: day.isoformat() for name, day in days.items() if day is not None}


def _opening_ms(inbox_file: InboxFile, address: str, as_of: dt.date) -> float:
    started = time.perf_counter()
    inbox_file.open_inbox(address, as_of)
    return 1000 * (time.perf_counter() - started)


def startup(world: World, runs: int = RUNS) -> dict[str, Any]:
    """CPU and wall seconds of whole `art-e` processes over the world's file."""
    with InboxFile(world.db) as inbox_file, ReferenceInbox(world.sqlite) as reference:
        largest = largest_inboxes(inbox_file, 1)[0]
        drawn = draw_queries(inbox_file, reference, [largest.address], 10)
    keywords = max((asked.query.keywords for asked in drawn), key=len)
    where = ["--inbox", largest.address, "--db", str(world.db)]
    script = Path(sys.executable).with_name("art-e")
    program = [str(script)] if script.exists() else [sys.executable, "-m", "art_e"]
    with tempfile.TemporaryDirectory() as home:
        commands = {
            "art-e --help": ["--help"],
            "art-e search": ["search", *keywords, *where],
            "art-e ask": ["ask", f"What about {' '.join(keywords)}?", *where, "--model", "offline"],
        }
        measured = {
            name: _measure([*program, *arguments], {"ART_E_HOME": home}, runs)
            for name, arguments in commands.items()
        }
        bare = _measure([sys.executable, "-c", "pass"], {}, runs)
    return {
        "benchmark": "startup",
        "world": world.name,
        "mails": world.mails,
        "inbox": largest._asdict(),
        "runs": runs,
        "commands": {"python -c pass": bare, **measured},
    }


def _measure(command: list[str], environment: dict[str, str], runs: int) -> dict[str, float]:
    costs = [run_process(command, environment) for _ in range(runs)]
    return {
        "cpu_seconds": statistics.median(cost.cpu_seconds for cost in costs),
        "seconds": statistics.median(cost.wall_seconds for cost in costs),
        "peak_mb": max(cost.peak_mb for cost in costs),
    }
