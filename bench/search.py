"""Measure search in an open inbox against the reference design, interleaved in one process.

Both have the same mails and get the same seeded queries. First, every mail that the reference finds
must be among our hits. Times are medians over rounds, each with a newly opened inbox and queries of
its own, so that no word is searched for twice.
"""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pandas as pd

from art_e.inbox.file import InboxFile
from bench.measure import MB, summary
from bench.queries import InboxQuery, draw_queries, unequal_inboxes
from bench.reference import ReferenceInbox
from bench.worlds import World
from tests.queries import run_query

THREADS = 8
WARM_UP = 20
TURN = 20

Search = Callable[[InboxQuery], object]


def benchmark(
    world: World, queries: int = 200, rounds: int = 3, compared: int = 100
) -> dict[str, Any]:
    """Compare the hits, then measure the times; return JSON."""
    with InboxFile(world.db) as inbox_file, ReferenceInbox(world.sqlite) as reference:
        chosen = unequal_inboxes(inbox_file)
        addresses = [inbox.address for inbox in chosen]
        agreement = compare(inbox_file, reference, addresses, compared)
        timed = [
            _round(world, reference, draw_queries(inbox_file, reference, addresses, queries, seed))
            for seed in range(1, rounds + 1)
        ]
    files = {"ours": world.db, "reference": world.sqlite}
    return {
        "benchmark": "search",
        "world": world.name,
        "mails": world.mails,
        "file_mb": {side: file.stat().st_size / MB for side, file in files.items()},
        "build_seconds": world.build_seconds,
        "inboxes": [inbox._asdict() for inbox in chosen],
        "agreement": agreement,
        **{
            part: pd.DataFrame([each[part] for each in timed]).median().to_dict()
            for part in timed[0]
        },
    }


def compare(
    inbox_file: InboxFile, reference: ReferenceInbox, addresses: Sequence[str], count: int
) -> dict[str, int]:
    """Return the number of queries and of hits of both sides.

    Raises `AssertionError` if we miss a mail that the reference finds.
    """
    inboxes = {address: inbox_file.open_inbox(address) for address in addresses}
    counts = {"queries": 0, "ours_hits": 0, "reference_hits": 0}
    for address, query in draw_queries(inbox_file, reference, addresses, count):
        counts["queries"] += 1
        counts["ours_hits"] += len(run_query(inboxes[address], query))
        counts["reference_hits"] += len(reference.search(address, *query))
        everything = query._replace(max_results=1_000_000)
        hits = run_query(inboxes[address], everything)
        whole = {hit.message_id for hit in hits if not hit.missing}
        if lacking := set(reference.search(address, *everything)) - whole:
            raise AssertionError(f"ours lacks {sorted(lacking)[:3]} for {query} in {address}")
    return counts


def _round(
    world: World, reference: ReferenceInbox, queries: Sequence[InboxQuery]
) -> dict[str, dict[str, float]]:
    """Return the milliseconds and searches per second of both sides, and their ratios."""
    with InboxFile(world.db) as inbox_file:
        inboxes = {each.address: inbox_file.open_inbox(each.address) for each in queries}

        def ours(item: InboxQuery) -> object:
            return run_query(inboxes[item.address], item.query)

        def theirs(item: InboxQuery) -> object:
            return reference.search(item.address, *item.query)

        for query in queries[:WARM_UP]:
            ours(query)
            theirs(query)
        sides: dict[str, Search] = {"ours": ours, "reference": theirs}
        times = _turn_by_turn(sides, queries[WARM_UP:] or queries)
        costs = {
            side: {**summary(times[side]), "threads_per_second": _rate(search, queries)}
            for side, search in sides.items()
        }
    faster = {key: costs["reference"][key] / costs["ours"][key] for key in ("p50", "p95", "mean")}
    rates = [each["threads_per_second"] for each in costs.values()]
    return {**costs, "ratios": {**faster, "threads_per_second": rates[0] / rates[1]}}


def _turn_by_turn(
    sides: dict[str, Search], queries: Sequence[InboxQuery]
) -> dict[str, list[float]]:
    """Return the milliseconds of each query by each side; the sides take turns at going first.

    A turn is `TURN` queries. With turns of a single query the CPU's caches would hold the other
    side's data, which costs each search about 0.05 ms.
    """
    times: dict[str, list[float]] = {side: [] for side in sides}
    order = list(sides.items())
    for start in range(0, len(queries), TURN):
        for side, search in order:
            for query in queries[start : start + TURN]:
                started = time.perf_counter()
                search(query)
                times[side].append(1000 * (time.perf_counter() - started))
        order.reverse()
    return times


def _rate(search: Search, queries: Sequence[InboxQuery]) -> float:
    """Return the queries per second of eight threads that run the list from different starts."""
    ready = threading.Barrier(THREADS + 1)

    def work(number: int) -> None:
        start = number * len(queries) // THREADS
        search(queries[start])  # opens the thread's own connection
        ready.wait()
        for query in (*queries[start:], *queries[:start]):
            search(query)

    with ThreadPoolExecutor(THREADS) as pool:
        working = [pool.submit(work, number) for number in range(THREADS)]
        ready.wait()
        started = time.perf_counter()
        for thread in working:
            thread.result()
        return THREADS * len(queries) / (time.perf_counter() - started)
