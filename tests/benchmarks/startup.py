"""Whole processes of `art-e`: CPU and wall seconds from start to end.

    python -m tests.benchmarks.startup [--size 5000] [--archive PATH]

Medians of seven, beside an interpreter that does nothing.
"""

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from art_e.inbox.file import InboxFile
from tests.benchmarks.measure import run_process
from tests.benchmarks.options import parse_options, worlds_of
from tests.benchmarks.queries import draw_queries, largest_inboxes
from tests.benchmarks.reference import ReferenceInbox
from tests.benchmarks.report import print_startup
from tests.benchmarks.worlds import World

RUNS = 7


def benchmark(world: World, runs: int = RUNS) -> dict[str, Any]:
    """Each command over the world's file; the result is what `print_startup` shows."""
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


def main() -> None:
    """Run for every world asked for, print."""
    for world in worlds_of(parse_options(__doc__)):
        print_startup(benchmark(world))


if __name__ == "__main__":
    main()
