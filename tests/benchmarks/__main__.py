"""All benchmarks, or those named: `make bench`.

    python -m tests.benchmarks [search|ingest|episode|startup]... [--size 5000]... [--archive FILE]

Search runs in every world, ingest on every archive of at most 60,000 mails; the episode and whole
processes on the real archive if there is one, else on the largest world. Results go to runs/bench/
as JSON and PNG.
"""

import argparse
import datetime as dt
import os
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks import ingest, overhead, search
from tests.benchmarks.measure import machine_facts
from tests.benchmarks.report import Result, show, show_targets, write_report
from tests.benchmarks.worlds import CACHE, World, archive_world, synthetic_archive, synthetic_world

OUT = Path("runs/bench")
ARCHIVE_NAME = "enron-maildir.tar.xz"
# Small enough for everything in about a minute.
DEFAULT_SIZE = 5_000
NAMES = ("search", "ingest", "episode", "startup")


@dataclass(frozen=True, slots=True)
class Options:
    """The command line. `compared`: queries of a world whose results are compared."""

    names: list[str]
    sizes: list[int]
    archive: Path | None
    queries: int
    rounds: int
    compared: int
    cache: Path = CACHE


def parse_options(arguments: list[str] | None = None) -> Options:
    """The options of this process's command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks")
    parser.add_argument("names", nargs="*", help=f"of {', '.join(NAMES)} (default: all)")
    parser.add_argument(
        "--size",
        type=int,
        action="append",
        metavar="N",
        help=f"mails of a synthetic world; may be repeated (default {DEFAULT_SIZE:,})",
    )
    parser.add_argument(
        "--archive",
        type=Path,
        default=_archive(),
        help=f"a real archive (default: {ARCHIVE_NAME} in the folder ART_E_REAL_DATA)",
    )
    parser.add_argument("--no-archive", action="store_true", help="leave the real archive out")
    parser.add_argument("--queries", type=int, default=200, help="timed in a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compared", type=int, default=100, help="queries compared in a world")
    given = parser.parse_args(arguments)
    if unknown := set(given.names) - set(NAMES):
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(NAMES)}")
    if given.archive is not None and not given.archive.is_file():
        parser.error(f"no archive at {given.archive}")
    archive = None if given.no_archive else given.archive
    sizes = given.size or ([] if archive else [DEFAULT_SIZE])
    names = given.names or list(NAMES)
    return Options(names, sorted(sizes), archive, given.queries, given.rounds, given.compared)


def run_all(options: Options) -> list[Result]:
    """The results of the chosen benchmarks, each shown as it is done."""
    results: list[Result] = []

    def keep(result: Result) -> None:
        results.append(result)
        show(result)

    worlds = _worlds(options)
    if "search" in options.names:
        for world in worlds:
            keep(search.benchmark(world, options.queries, options.rounds, options.compared))
    if "ingest" in options.names:
        if options.archive is not None:
            keep(ingest.benchmark("real-archive", options.archive))
        for size in options.sizes:
            if size <= ingest.MOST_STAGED:
                archive = synthetic_archive(size, options.cache)
                keep(ingest.benchmark(f"synthetic-{size}", archive))
    chosen = worlds[0 if options.archive else -1]
    if "episode" in options.names:
        keep(overhead.episode(chosen))
    if "startup" in options.names:
        keep(overhead.startup(chosen))
    return results


def _worlds(options: Options) -> list[World]:
    real = [] if options.archive is None else [archive_world(options.archive, options.cache)]
    return [*real, *(synthetic_world(size, options.cache) for size in options.sizes)]


def _archive() -> Path | None:
    path = Path(os.environ.get("ART_E_REAL_DATA", "")) / ARCHIVE_NAME
    return path if path.is_file() else None


def main() -> None:
    """Run, show, write."""
    options = parse_options()
    machine = machine_facts()
    results = run_all(options)
    show_targets(results)
    name = dt.datetime.now(dt.UTC).strftime("%Y%m%d-%H%M%S")
    written = write_report(OUT / f"{name}.json", results, machine)
    print(f"written: {', '.join(map(str, written))}")


if __name__ == "__main__":
    main()
