"""Search in an open inbox against the reference design, interleaved in one process.

Both hold the same mails and get the same seeded queries. Results are compared before anything is
timed: `Inbox.search` with the file's SQL macro (same ids in the same order), and both with the
reference (same set of mails for a word of one form; every mail of an AND query). Times are medians
over rounds, each with an inbox opened anew and its own queries, so that no word is searched for
twice. Memory is measured in processes that do nothing else (`python -m tests.benchmarks.search`).
"""

import json
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from art_e.inbox.file import InboxFile
from art_e.inbox.inbox import Inbox
from tests.benchmarks.measure import median_of, rss_mb, run_process, summary
from tests.benchmarks.queries import (
    MEDIUM,
    InboxQuery,
    InboxSize,
    draw_queries,
    inbox_near,
    largest_inboxes,
    plain_words,
    unequal_inboxes,
)
from tests.benchmarks.reference import ReferenceHit, ReferenceInbox
from tests.benchmarks.report import SIDES
from tests.benchmarks.worlds import World
from tests.builders import Query
from tests.builders import run_queries as run

THREADS = 8
LARGE = 15_000
WARM_UP = 20
TURN = 20
OPENINGS = 5
# More than any inbox holds: both give every mail that matches.
ALL = 1_000_000

Search = Callable[[InboxQuery], object]


class SideTimes(NamedTuple):
    """One side's milliseconds, query by query, and its searches a second by eight threads."""

    first: list[float]
    again: list[float]
    rate: float


class Round(NamedTuple):
    """The queries of one round and both sides' times."""

    queries: Sequence[InboxQuery]
    sides: dict[str, SideTimes]


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
        opening = [
            time_opening(
                world.db, inbox, draw_queries(inbox_file, reference, [inbox.address], 1)[0]
            )
            for inbox in _opened_inboxes(inbox_file)
        ]
        many = [inbox.address for inbox in largest_inboxes(inbox_file, 20)]
        memory = measure_memory(
            world, draw_queries(inbox_file, reference, many, queries), addresses[:1], many
        )
    result: dict[str, Any] = {"benchmark": "search", **world.facts()}
    result["inboxes"] = [inbox._asdict() for inbox in chosen]
    result["agreement"] = agreement
    result.update(_summarised(timed, chosen))
    return {**result, "opening": opening, "memory": memory}


def compare(
    inbox_file: InboxFile, reference: ReferenceInbox, addresses: Sequence[str], count: int
) -> dict[str, int]:
    """How many queries were compared, and the hits that both sides gave for the first kind.

    Raises `AssertionError` where two ways disagree.
    """
    inboxes = {address: inbox_file.open_inbox(address) for address in addresses}
    counts = {"macro": 0, "same_set": 0, "contains": 0, "ours_hits": 0, "reference_hits": 0}
    drawn = draw_queries(inbox_file, reference, addresses, count)
    for address, query in drawn:
        ranked = by_inbox(inboxes[address], query)
        if ranked != by_macro(inbox_file, address, query):
            raise AssertionError(f"the hot path and search_inbox disagree on {query} in {address}")
        counts["macro"] += 1
        counts["ours_hits"] += len(ranked)
        counts["reference_hits"] += len(by_reference(reference, address, query))
        everything = run(inboxes[address], query._replace(max_results=ALL))
        whole = {hit.message_id for hit in everything if not hit.missing}
        lacking = reference_ids(reference, address, query._replace(max_results=ALL)) - whole
        if lacking:
            raise AssertionError(f"ours lacks {sorted(lacking)[:3]} for {query} in {address}")
        counts["contains"] += 1
    filters = [query for _, query in drawn]
    for address in addresses:
        for word in plain_words(inbox_file, reference, address, count // len(addresses)):
            dated = random.Random(word).choice(filters)
            query = Query([word], None, None, dated.sent_after, dated.sent_before, max_results=ALL)
            ours = set(by_inbox(inboxes[address], query))
            theirs = reference_ids(reference, address, query)
            if ours != theirs:
                differing = sorted(ours ^ theirs)[:3]
                raise AssertionError(f"{query} in {address}: only one finds {differing}")
            counts["same_set"] += 1
    return counts


def by_inbox(inbox: Inbox, query: Query) -> list[str]:
    """The message ids that an opened inbox finds, best first."""
    return [hit.message_id for hit in run(inbox, query)]


def by_macro(inbox_file: InboxFile, address: str, query: Query) -> list[str]:
    """The message ids that the file's SQL macro finds, best first."""
    rows = inbox_file.execute(
        "SELECT message_id FROM search_inbox(?, ?, from_addr := ?, to_addr := ?,"
        " sent_after := ?::DATE, sent_before := ?::DATE, max_results := ?)",
        [address, *query],
    ).fetchall()
    return [message_id for (message_id,) in rows]


def by_reference(reference: ReferenceInbox, address: str, query: Query) -> list[ReferenceHit]:
    """What the reference finds, newest first."""
    return reference.search(
        address,
        query.keywords,
        from_addr=query.from_addr,
        to_addr=query.to_addr,
        sent_after=query.sent_after,
        sent_before=query.sent_before,
        max_results=query.max_results,
    )


def reference_ids(reference: ReferenceInbox, address: str, query: Query) -> set[str]:
    """The message ids that the reference finds."""
    return {hit.message_id for hit in by_reference(reference, address, query)}


def time_opening(db: Path, inbox: InboxSize, asked: InboxQuery) -> dict[str, Any]:
    """Milliseconds to open an inbox in a file opened anew, and of its first search; medians."""
    taken = []
    for _ in range(OPENINGS):
        started = time.perf_counter()
        with InboxFile(db) as inbox_file:
            file_opened = time.perf_counter()
            opened = inbox_file.open_inbox(inbox.address)
            inbox_opened = time.perf_counter()
            run(opened, asked.query)
            searched = time.perf_counter()
        taken.append(
            {
                "file_ms": 1000 * (file_opened - started),
                "inbox_ms": 1000 * (inbox_opened - file_opened),
                "first_search_ms": 1000 * (searched - inbox_opened),
            }
        )
    return {**inbox._asdict(), **median_of(taken)}


def _opened_inboxes(inbox_file: InboxFile) -> list[InboxSize]:
    return list(dict.fromkeys([inbox_near(inbox_file, MEDIUM), inbox_near(inbox_file, LARGE)]))


def _round(world: World, reference: ReferenceInbox, drawn: Sequence[InboxQuery]) -> Round:
    """Both sides turn by turn, each query once and once again, then by eight threads."""
    with InboxFile(world.db) as inbox_file:
        inboxes = {
            address: inbox_file.open_inbox(address)
            for address in dict.fromkeys(each.address for each in drawn)
        }

        def ours(asked: InboxQuery) -> object:
            return run(inboxes[asked.address], asked.query)

        def theirs(asked: InboxQuery) -> object:
            return by_reference(reference, asked.address, asked.query)

        sides: dict[str, Search] = {"ours": ours, "reference": theirs}
        for asked in drawn[:WARM_UP]:
            ours(asked)
            theirs(asked)
        queries = drawn[WARM_UP:] or drawn
        first, again = _turn_by_turn(sides, queries), _turn_by_turn(sides, queries)
        return Round(
            queries,
            {
                side: SideTimes(first[side], again[side], _rate(search, drawn))
                for side, search in sides.items()
            },
        )


def _turn_by_turn(
    sides: dict[str, Search], queries: Sequence[InboxQuery]
) -> dict[str, list[float]]:
    """Milliseconds of each query by each side; who goes first alternates.

    A turn is `TURN` queries: whoever uses an inbox goes on using it. With turns of one
    query the CPU's caches hold what the other side left there, which costs each search
    about 0.05 ms.
    """
    times: dict[str, list[float]] = {side: [] for side in sides}
    order = list(sides.items())
    for start in range(0, len(queries), TURN):
        for side, search in order:
            for asked in queries[start : start + TURN]:
                started = time.perf_counter()
                search(asked)
                times[side].append(1000 * (time.perf_counter() - started))
        order.reverse()
    return times


def _rate(search: Search, queries: Sequence[InboxQuery]) -> float:
    """Queries a second by eight threads, each with the whole list from its own start."""
    ready = threading.Barrier(THREADS + 1)

    def work(number: int) -> None:
        start = number * len(queries) // THREADS
        search(queries[start])  # the thread's own connection
        ready.wait()
        for asked in (*queries[start:], *queries[:start]):
            search(asked)

    with ThreadPoolExecutor(THREADS) as pool:
        working = [pool.submit(work, number) for number in range(THREADS)]
        ready.wait()
        started = time.perf_counter()
        for each in working:
            each.result()
        return THREADS * len(queries) / (time.perf_counter() - started)


def _summarised(rounds: Sequence[Round], inboxes: Sequence[InboxSize]) -> dict[str, Any]:
    """Medians over the rounds, the ratios' too; by inbox, all rounds' times together."""
    result: dict[str, Any] = {}
    for side in SIDES:
        times = [each.sides[side] for each in rounds]
        result[side] = {
            "ms": median_of([summary(each.first) for each in times]),
            "again_ms": median_of([summary(each.again) for each in times]),
            "threads_per_second": statistics.median(each.rate for each in times),
            "by_inbox_ms": [
                summary(
                    [
                        milliseconds
                        for each in rounds
                        for asked, milliseconds in zip(
                            each.queries, each.sides[side].first, strict=True
                        )
                        if asked.address == inbox.address
                    ]
                )
                for inbox in inboxes
            ],
        }
    firsts = [[summary(each.sides[side].first) for side in SIDES] for each in rounds]
    ratios = [{key: theirs[key] / ours[key] for key in ours} for ours, theirs in firsts]
    rates = [each.sides["ours"].rate / each.sides["reference"].rate for each in rounds]
    result["ratios"] = {**median_of(ratios), "throughput": statistics.median(rates)}
    del result["ratios"]["n"]
    return result


@dataclass(frozen=True, slots=True)
class MemoryWork:
    """What one process does: open these inboxes of a file, run the queries that are for them."""

    side: str
    file: Path
    addresses: list[str]
    queries: list[InboxQuery]


def measure_memory(
    world: World, queries: list[InboxQuery], few: Sequence[str], many: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """MB of both sides with `few` inboxes and with `many`."""
    return {
        f"{side}, {len(addresses)} inboxes": _in_process(
            MemoryWork(side, file, list(addresses), [q for q in queries if q.address in addresses])
        )
        for side, file in (("ours", world.db), ("reference", world.sqlite))
        for addresses in (few, many)
    }


def _in_process(work: MemoryWork) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        order = Path(folder) / "work.json"
        order.write_bytes(TypeAdapter(MemoryWork).dump_json(work))
        cost = run_process([sys.executable, "-m", "tests.benchmarks.search", str(order)])
    found: dict[str, Any] = json.loads(cost.stdout)
    return found


def perform(work: MemoryWork) -> dict[str, Any]:
    """Do the work in this process; resident MB as it goes."""
    start = rss_mb()
    if work.side == "ours":
        with InboxFile(work.file) as inbox_file:
            inboxes = {address: inbox_file.open_inbox(address) for address in work.addresses}
            opened = rss_mb()
            for asked in work.queries:
                run(inboxes[asked.address], asked.query)
            searched = rss_mb()
            mails = sum(map(len, inboxes.values()))
    else:
        with ReferenceInbox(work.file) as reference:
            reference.mails_with([])
            opened = rss_mb()
            for address, query in work.queries:
                filters = query._asdict()
                reference.search(address, filters.pop("keywords"), **filters)
            searched = rss_mb()
            mails = 0
    return {
        "inboxes": len(work.addresses),
        "mails_open": mails,
        "queries": len(work.queries),
        "start_mb": start,
        "opened_mb": opened,
        "searched_mb": searched,
        "growth_mb": searched - start,
    }


def main() -> None:
    """Measure the memory of the work in the file named on the command line."""
    work = TypeAdapter(MemoryWork).validate_json(Path(sys.argv[1]).read_bytes())
    print(json.dumps(perform(work)))


if __name__ == "__main__":
    main()
