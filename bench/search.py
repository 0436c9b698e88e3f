"""Search in an open inbox against the reference design, interleaved in one process.

Both hold the same mails and get the same seeded queries. Before anything is timed, every mail that
the reference finds must be among ours. Times are medians over rounds, each with an inbox opened
anew and its own queries, so that no word is searched for twice.
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
    """Compare, then time; the result as JSON."""
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
    """How many queries were compared, and the hits of both sides.

    Raises `AssertionError` if a mail that the reference finds is not among ours.
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
    world: World, reference: ReferenceInbox, drawn: Sequence[InboxQuery]
) -> dict[str, dict[str, float]]:
    """Milliseconds and searches a second of both sides, and their ratios."""
    with InboxFile(world.db) as inbox_file:
        inboxes = {each.address: inbox_file.open_inbox(each.address) for each in drawn}

        def ours(each: InboxQuery) -> object:
            return run_query(inboxes[each.address], each.query)

        def theirs(each: InboxQuery) -> object:
            return reference.search(each.address, *each.query)

        for each in drawn[:WARM_UP]:
            ours(each)
            theirs(each)
        sides: dict[str, Search] = {"ours": ours, "reference": theirs}
        times = _turn_by_turn(sides, drawn[WARM_UP:] or drawn)
        found = {
            side: {**summary(times[side]), "threads_per_second": _rate(search, drawn)}
            for side, search in sides.items()
        }
    faster = {key: found["reference"][key] / found["ours"][key] for key in ("p50", "p95", "mean")}
    rates = [each["threads_per_second"] for each in found.values()]
    return {**found, "ratios": {**faster, "threads_per_second": rates[0] / rates[1]}}


def _turn_by_turn(
    sides: dict[str, Search], queries: Sequence[InboxQuery]
) -> dict[str, list[float]]:
    """Milliseconds of each query by each side; the sides alternate in going first.

    A turn is `TURN` queries. With turns of one query the CPU's caches hold the other side's data,
    which costs each search about 0.05 ms.
    """
    times: dict[str, list[float]] = {side: [] for side in sides}
    order = list(sides.items())
    for start in range(0, len(queries), TURN):
        for side, search in order:
            for each in queries[start : start + TURN]:
                started = time.perf_counter()
                search(each)
                times[side].append(1000 * (time.perf_counter() - started))
        order.reverse()
    return times


def _rate(search: Search, queries: Sequence[InboxQuery]) -> float:
    """Queries a second by eight threads, each running the whole list from its own start."""
    ready = threading.Barrier(THREADS + 1)

    def work(number: int) -> None:
        start = number * len(queries) // THREADS
        search(queries[start])  # opens the thread's own connection
        ready.wait()
        for each in (*queries[start:], *queries[:start]):
            search(each)

    with ThreadPoolExecutor(THREADS) as pool:
        working = [pool.submit(work, number) for number in range(THREADS)]
        ready.wait()
        started = time.perf_counter()
        for each in working:
            each.result()
        return THREADS * len(queries) / (time.perf_counter() - started)
