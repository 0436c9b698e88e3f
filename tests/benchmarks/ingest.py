"""Ingest end to end from an archive, against the reference design in the same run.

Both are whole processes that read the same archive (`art-e ingest` and
`tests.benchmarks.reference`), in turn, twice each. Then ours stage by stage in this process, on one
core but for DuckDB ("index" writes the file, too).
"""

import itertools
import json
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from data_pipeline.ingest.batch import Job, StoredMail, default_rules, process
from data_pipeline.ingest.build import BATCH_MESSAGES, InboxBuild
from data_pipeline.ingest.parse import parse_message
from data_pipeline.ingest.records import ParsedEmail, RawMessage
from data_pipeline.ingest.sources import open_source
from tests.benchmarks.measure import MB, run_process
from tests.benchmarks.reference import MAX_BODY_CHARS, MAX_RECIPIENTS

# The stages hold all messages in memory, so that each can be timed alone.
MOST_STAGED = 60_000

T = TypeVar("T")


def benchmark(name: str, archive: Path, repeats: int = 2) -> dict[str, Any]:
    """Ours and the reference on one archive; the result as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        files = {side: Path(folder) / side for side in ("ours", "reference")}
        ingest = ["art_e", "ingest", str(archive), "--format", "enron", "--json", "--db"]
        modules = {"ours": ingest, "reference": ["tests.benchmarks.reference", str(archive)]}
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
    return {
        "benchmark": "ingest",
        "world": name,
        **sides,
        "ratios": ratios,
        "stages": {"ours": stages(archive), "reference": reports["reference"]["stages"]},
    }


def stages(archive: Path) -> dict[str, float]:
    """CPU seconds of our stages, one after the other."""
    seconds: dict[str, float] = {}

    def timed(stage: str, work: Callable[[], T]) -> T:
        started = time.process_time()
        result = work()
        seconds[stage] = time.process_time() - started
        return result

    rules = default_rules("enron")
    source = itertools.islice(open_source(str(archive), "enron"), MOST_STAGED)
    raw = timed("read", lambda: [each for each in source if isinstance(each, RawMessage)])
    parsed = timed("parse", lambda: [parse_message(each) for each in raw])
    mails = [
        StoredMail(email, rules.any_id, ())
        for email in parsed
        if isinstance(email, ParsedEmail)
        and len(email.body) <= MAX_BODY_CHARS
        and len(email.to) + len(email.cc) + len(email.bcc) <= MAX_RECIPIENTS
    ]
    starts = range(0, len(mails), BATCH_MESSAGES)
    jobs = [Job(mails[start : start + BATCH_MESSAGES], rules, None) for start in starts]
    batches = timed("tokenise", lambda: [process(job) for job in jobs])
    with tempfile.TemporaryDirectory() as folder, InboxBuild(Path(folder) / "db") as build:
        timed("load", lambda: deque(map(build.add, batches), maxlen=0))
        timed("deduplicate", build.deduplicate)
        timed("index", lambda: build.finish(len(mails)))
    return seconds
