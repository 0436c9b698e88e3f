"""The command line that every benchmark shares."""

import argparse
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.worlds import CACHE, World, archive_world, synthetic_world

ARCHIVE_NAME = "enron-maildir.tar.xz"
# Small enough for everything in about a minute.
DEFAULT_SIZE = 5_000


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for. `compared`: queries whose results are compared, a world."""

    sizes: list[int]
    archive: Path | None
    queries: int
    rounds: int
    compared: int
    cache: Path = CACHE


def parse_options(doc: str | None) -> Options:
    """The options of this process's command line; `doc` is the benchmark's docstring."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
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
    parser.add_argument("--queries", type=int, default=200, help="timed, a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compared", type=int, default=100, help="queries compared, a world")
    given = parser.parse_args()
    if given.archive is not None and not given.archive.is_file():
        parser.error(f"no archive at {given.archive}")
    archive = None if given.no_archive else given.archive
    sizes = given.size or ([] if archive else [DEFAULT_SIZE])
    return Options(sizes, archive, given.queries, given.rounds, given.compared)


def worlds_of(options: Options) -> Iterator[World]:
    """The worlds asked for, made where the cache has none."""
    if options.archive is not None:
        yield archive_world(options.archive, options.cache)
    for size in sorted(options.sizes):
        yield synthetic_world(size, options.cache)


def _archive() -> Path | None:
    folder = os.environ.get("ART_E_REAL_DATA")
    path = Path(folder) / ARCHIVE_NAME if folder else None
    return path if path is not None and path.is_file() else None
