"""All benchmarks: `make bench`.

    python -m tests.benchmarks [--size 5000]... [--archive PATH]

Search runs in every world asked for; ingest on every archive of at most 60,000
mails; the episode and whole processes on the real archive where there is one,
else on the largest world. Results go to runs/bench/ as JSON and PNG.
"""

import datetime as dt
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from tests.benchmarks import episode, ingest, search, startup
from tests.benchmarks.measure import machine_facts
from tests.benchmarks.options import Options, parse_options, worlds_of
from tests.benchmarks.report import (
    Result,
    print_episode,
    print_ingest,
    print_search,
    print_startup,
    print_targets,
    targets,
    write_report,
)

OUT = Path("runs/bench")


def run_all(options: Options) -> list[Result]:
    """Every benchmark over what was asked for, each printed as it is done."""
    results: list[Result] = []

    def keep(result: Result, show: Callable[[Result], None]) -> None:
        results.append(result)
        show(result)

    worlds = list(worlds_of(options))
    for world in worlds:
        found = search.benchmark(world, options.queries, options.rounds, options.compared)
        keep(found, print_search)
    for name, archive in ingest.archives_of(options, ingest.MOST_STAGED):
        keep(ingest.benchmark(name, archive), print_ingest)
    chosen = worlds[0] if options.archive is not None else worlds[-1]
    keep(episode.benchmark(chosen), print_episode)
    keep(startup.benchmark(chosen), print_startup)
    return results


def main() -> None:
    """Run, print, write."""
    options = parse_options(__doc__)
    machine = machine_facts()
    results = run_all(options)
    print_targets(targets(results))
    name = dt.datetime.now(dt.UTC).strftime("%Y%m%d-%H%M%S")
    written = write_report(OUT / f"{name}.json", results, machine)
    Console().print(f"written: {', '.join(map(str, written))}")


if __name__ == "__main__":
    main()
