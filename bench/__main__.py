"""Run all benchmarks, or the named ones: `make bench`.

    python -m bench [search|ingest|episode|startup]... [--size 5000]... [--archive FILE]

Search runs in every world, ingest on every archive of at most 60,000 mails, the others on the real
archive if there is one, or else on the largest world. Results go to runs/bench/ as JSON and PNG.
"""

import argparse
import datetime as dt
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench import overhead, search
from bench.measure import machine_facts
from bench.report import REAL_ARCHIVE, Result, show, write_report
from bench.worlds import make_world, synthetic_archive

OUT = Path("runs/bench")
ARCHIVE_NAME = "enron-maildir.tar.xz"
# All benchmarks take about a minute.
DEFAULT_SIZE = 5_000
NAMES = ("search", "ingest", "episode", "startup")


def parse_options() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("names", nargs="*", help=f"{', '.join(NAMES)} (default: all)")
    size_help = f"mails of a synthetic world; may be repeated (default {DEFAULT_SIZE:,})"
    parser.add_argument("--size", type=int, action="append", metavar="N", help=size_help)
    default = Path(os.environ.get("ART_E_REAL_DATA", "")) / ARCHIVE_NAME
    archive_help = f"a real archive (default: {ARCHIVE_NAME} in the folder ART_E_REAL_DATA)"
    default_archive = default if default.is_file() else None
    parser.add_argument("--archive", type=Path, default=default_archive, help=archive_help)
    options = parser.parse_args()
    options.names = options.names or list(NAMES)
    options.size = sorted(options.size or ([] if options.archive else [DEFAULT_SIZE]))
    if unknown := set(options.names) - set(NAMES):
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(NAMES)}")
    return options


def run_all(options: argparse.Namespace, folder: Path) -> Iterator[Result]:
    """Yield the results of the chosen benchmarks."""
    sources = {f"synthetic-{size}": [f"synthetic:{size}"] for size in options.size}
    if options.archive is not None:
        sources = {REAL_ARCHIVE: [str(options.archive), "--format", "enron"], **sources}
    worlds = [make_world(name, source, folder) for name, source in sources.items()]
    if "search" in options.names:
        yield from map(search.benchmark, worlds)
    if "ingest" in options.names:
        if options.archive is not None:
            yield overhead.ingest(REAL_ARCHIVE, options.archive)
        for size in options.size:
            if size <= overhead.MOST_MAILS:
                yield overhead.ingest(f"synthetic-{size}", synthetic_archive(size, folder))
    chosen = worlds[0 if options.archive else -1]
    if "episode" in options.names:
        yield overhead.episode(chosen)
    if "startup" in options.names:
        yield overhead.startup(chosen)


def main() -> None:
    """Run the benchmarks, print the results and write them to files."""
    options = parse_options()
    machine = machine_facts()
    with tempfile.TemporaryDirectory() as folder:
        results = list(run_all(options, Path(folder)))
    for result in results:
        show(result)
    path = OUT / f"{dt.datetime.now(dt.UTC):%Y%m%d-%H%M%S}.json"
    print("written:", *write_report(path, results, machine))


if __name__ == "__main__":
    main()
