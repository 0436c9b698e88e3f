"""Measure ART-E's own cost, without models: whole ingests and processes, milliseconds per turn.

Ingest and the reference design read an archive alternately, twice each. Two scripted policies play
episodes in the default form: one answers at once, one searches and reads first. Process times are
medians of seven, next to those of an idle interpreter.
"""

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from art_e.agent import run_episode
from art_e.episode import EpisodeForm
from art_e.inbox.file import InboxFile
from art_e.inbox.inbox import Inbox
from art_e.message import AssistantMessage
from art_e.question import Question
from bench.measure import MB, run_process, summary
from bench.queries import draw_queries
from bench.reference import ReferenceInbox
from bench.worlds import World
from tests.builders import ScriptedPolicy, answer, message, read, search
from tests.queries import Query

# The reference takes minutes for more mails.
MOST_MAILS = 60_000


def ingest(name: str, archive: Path, repeats: int = 2) -> dict[str, Any]:
    """Measure our ingest and the reference's on one archive; return JSON."""
    with tempfile.TemporaryDirectory() as folder:
        files = {side: Path(folder) / side for side in ("ours", "reference")}
        ours = ["art_e", "ingest", str(archive), "--format", "enron", "--json", "--replace", "--db"]
        modules = {"ours": ours, "reference": ["bench.reference", str(archive)]}
        commands = {
            side: [sys.executable, "-m", *modules[side], str(file)] for side, file in files.items()
        }
        rounds = [
            {side: run_process(command) for side, command in commands.items()}
            for _ in range(repeats)
        ]
        sizes = {side: file.stat().st_size / MB for side, file in files.items()}
    reports = {side: json.loads(cost.stdout) for side, cost in rounds[0].items()}
    if reports["ours"]["read"] != reports["reference"]["read"]:
        raise AssertionError(f"the sides read different numbers of messages: {reports}")
    sides = {}
    for side, report in reports.items():
        seconds = statistics.median(each[side].wall_seconds for each in rounds)
        sides[side] = {
            "read": report["read"],
            "stored": report["stored"],
            "seconds": seconds,
            "per_second": report["read"] / seconds,
            "cpu_seconds": statistics.median(each[side].cpu_seconds for each in rounds),
            "peak_mb": max(each[side].peak_mb for each in rounds),
            "file_mb": sizes[side],
        }
    ratios = {
        key: sides["reference"][key] / sides["ours"][key] for key in ("seconds", "cpu_seconds")
    }
    return {"benchmark": "ingest", "world": name, **sides, "ratios": ratios}


SEARCHES = 4
ANSWER = message(answer("on Monday"))


def episode(world: World, episodes: int = 200) -> dict[str, Any]:
    """Measure the milliseconds per turn of both policies in the largest inbox."""
    with InboxFile(world.db) as inbox_file, ReferenceInbox(world.sqlite) as reference:
        [largest] = inbox_file.inboxes(limit=1)
        pairs = draw_queries(inbox_file, reference, [largest.address], episodes * SEARCHES)
        queries = [query for _, query in pairs]
        starts = range(0, len(queries), SEARCHES)
        scripts = {
            "answer at once": [[ANSWER]] * episodes,
            "search and read": [_search_and_read(queries[at : at + SEARCHES]) for at in starts],
        }
        inbox = inbox_file.open_inbox(largest.address)
        policies = {name: asyncio.run(_run_all(inbox, each)) for name, each in scripts.items()}
    size = largest._asdict()
    return {"benchmark": "episode", "world": world.name, "inbox": size, "policies": policies}


async def _run_all(inbox: Inbox, scripts: Sequence[Sequence[AssistantMessage]]) -> dict[str, float]:
    """Return a summary of the milliseconds per turn, and the number of turns."""
    milliseconds = []
    question = Question("q", "What is this about?", inbox.address)
    for script in scripts:
        started = time.perf_counter()
        played = EpisodeForm().begin(inbox, question)
        trajectory = await run_episode(played, ScriptedPolicy(script), "benchmark")
        milliseconds.append(1000 * (time.perf_counter() - started) / len(script))
        if trajectory.error is not None or played.rubric.turns != len(script):
            raise AssertionError(f"the episode did not follow its script: {trajectory.rubric}")
    return {**summary(milliseconds), "turns": sum(map(len, scripts))}


def _search_and_read(queries: Sequence[Query]) -> list[AssistantMessage]:
    script = []
    for number, query in enumerate(queries, start=1):
        days = {"sent_after": query.sent_after, "sent_before": query.sent_before}
        filters = {name: day.isoformat() for name, day in days.items() if day is not None}
        script += [message(search(*query.keywords, **filters)), message(read(f"m{number}"))]
    return [*script, ANSWER]


def startup(world: World, runs: int = 7) -> dict[str, Any]:
    """Measure the CPU and wall seconds of whole `art-e` processes on the world's file."""
    with InboxFile(world.db) as inbox_file, ReferenceInbox(world.sqlite) as reference:
        [largest] = inbox_file.inboxes(limit=1)
        pairs = draw_queries(inbox_file, reference, [largest.address], 10)
    keywords = max((query.keywords for _, query in pairs), key=len)
    where = ["--inbox", largest.address, "--db", str(world.db)]
    program = [str(Path(sys.executable).with_name("art-e"))]
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "art-e --help": [*program, "--help"],
        "art-e search": [*program, "search", *keywords, *where],
        "art-e ask": [*program, "ask", f"What about {' '.join(keywords)}?", *where],
    }
    measured = {}
    with tempfile.TemporaryDirectory() as home:
        for name, command in commands.items():
            costs = [run_process(command, {"ART_E_HOME": home}) for _ in range(runs)]
            measured[name] = {
                "cpu_seconds": statistics.median(cost.cpu_seconds for cost in costs),
                "seconds": statistics.median(cost.wall_seconds for cost in costs),
                "peak_mb": max(cost.peak_mb for cost in costs),
            }
    return {"benchmark": "startup", "world": world.name, "runs": runs, "commands": measured}
