"""Ingest end to end from an archive, against the reference design in the same run.

Both are whole processes that read the same archive (`art-e ingest` and
`tests.benchmarks.reference`), in turn, twice each. Then ours stage by stage in
this process, on one core but for DuckDB, in CPU seconds ("index" writes the file,
too). A synthetic world is read from a .tar of its raw messages in Enron's layout.
"""

import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from data_pipeline.ingest.batch import (
    Batch,
    Job,
    StoredMail,
    default_rules,
    process,
)
from data_pipeline.ingest.build import BATCH_MESSAGES, InboxBuild
from data_pipeline.ingest.parse import parse_message
from data_pipeline.ingest.records import ParsedEmail, RawMessage
from data_pipeline.ingest.sources import open_source
from tests.benchmarks.measure import ProcessCost, run_process
from tests.benchmarks.reference import MAX_BODY_CHARS, MAX_RECIPIENTS

# The stages hold their messages in memory, so that each can be timed alone.
MOST_STAGED = 60_000

T = TypeVar("T")


def benchmark(name: str, archive: Path, repeats: int = 2) -> dict[str, Any]:
    """Ours and the reference on one archive; the result as JSON."""
    ours: list[ProcessCost] = []
    theirs: list[ProcessCost] = []
    with tempfile.TemporaryDirectory() as folder:
        db, sqlite = Path(folder) / "ours.duckdb", Path(folder) / "reference.sqlite"
        ours_command = [sys.executable, "-m", "art_e", "ingest", str(archive)]
        ours_command += ["--format", "enron", "--db", str(db), "--json"]
        reference = [sys.executable, "-m", "tests.benchmarks.reference", str(archive), str(sqlite)]
        for _ in range(repeats):
            ours.append(run_process(ours_command))
            theirs.append(run_process(reference))
        sizes = {"ours": db.stat().st_size, "reference": sqlite.stat().st_size}
    report, theirs_report = json.loads(ours[0].stdout), json.loads(theirs[0].stdout)
    if report["read"] != theirs_report["read"]:
        raise AssertionError(
            f"ours read {report['read']} messages, the reference {theirs_report['read']}"
        )
    sides = {
        "ours": _side(ours, report, sizes["ours"]),
        "reference": _side(theirs, theirs_report, sizes["reference"]),
    }
    return {
        "benchmark": "ingest",
        "archive": name,
        **sides,
        "ratios": {
            key: sides["reference"][key] / sides["ours"][key] for key in ("seconds", "cpu_seconds")
        },
        "stages": {"ours": stages(archive), "reference": theirs_report["stages"]},
    }


def stages(archive: Path) -> dict[str, Any]:
    """CPU and wall seconds of our stages, one after the other, and the messages they are of."""
    clock = _Clock()
    rules = default_rules("enron")
    source = itertools.islice(open_source(str(archive), "enron"), MOST_STAGED)
    raw = clock.time("read", lambda: [each for each in source if isinstance(each, RawMessage)])
    parsed = clock.time("parse", lambda: [parse_message(each) for each in raw])
    mails = [
        StoredMail(email, rules.any_id, ())
        for email in parsed
        if isinstance(email, ParsedEmail)
        and len(email.body) <= MAX_BODY_CHARS
        and len(email.to) + len(email.cc) + len(email.bcc) <= MAX_RECIPIENTS
    ]
    jobs = [Job(chunk, rules, None) for chunk in _chunks(mails)]
    batches = clock.time("tokenise", lambda: [process(job) for job in jobs])
    with tempfile.TemporaryDirectory() as folder, InboxBuild(Path(folder) / "db") as build:
        clock.time("load", lambda: _load(build, batches))
        clock.time("deduplicate", build.deduplicate)
        clock.time("index", lambda: build.finish(len(mails)))
    return {"messages": len(raw), "cpu_seconds": clock.cpu, "seconds": clock.wall}


class _Clock:
    """CPU seconds of this process (all its threads) and wall seconds, by stage."""

    def __init__(self) -> None:
        self.cpu: dict[str, float] = {}
        self.wall: dict[str, float] = {}

    def time(self, stage: str, work: Callable[[], T]) -> T:
        cpu, wall = time.process_time(), time.perf_counter()
        result = work()
        self.cpu[stage] = time.process_time() - cpu
        self.wall[stage] = time.perf_counter() - wall
        return result


def _load(build: InboxBuild, batches: list[Batch]) -> None:
    for batch in batches:
        build.add(batch)


def _chunks(mails: list[StoredMail]) -> Iterator[list[StoredMail]]:
    return (mails[at : at + BATCH_MESSAGES] for at in range(0, len(mails), BATCH_MESSAGES))


def _side(costs: list[ProcessCost], theirs_report: dict[str, Any], size: int) -> dict[str, Any]:
    seconds = statistics.median(cost.wall_seconds for cost in costs)
    return {
        "runs": len(costs),
        "read": theirs_report["read"],
        "stored": theirs_report["stored"],
        "seconds": seconds,
        "per_second": theirs_report["read"] / seconds,
        "cpu_seconds": statistics.median(cost.cpu_seconds for cost in costs),
        "peak_mb": max(cost.peak_mb for cost in costs),
        "file_mb": size / 1024 / 1024,
    }
