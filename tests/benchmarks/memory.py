"""Memory of searching, each way in a process of its own.

`measure_memory` starts `python -m tests.benchmarks.memory` for the reference, for
ours with one open inbox and for ours with many, and gives what the processes report:
resident memory when all is imported, when the inboxes are open, after the queries.
"""

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from art_e.inbox.file import InboxFile
from tests.benchmarks.measure import rss_mb, run_process
from tests.benchmarks.queries import InboxQuery
from tests.benchmarks.reference import ReferenceInbox
from tests.benchmarks.worlds import World
from tests.builders import run_queries as run

Side = Literal["ours", "reference"]


@dataclass(frozen=True, slots=True)
class Work:
    """What one process does: open these inboxes of a file, run the queries that are for them."""

    side: Side
    file: Path
    addresses: list[str]
    queries: list[InboxQuery]


def measure_memory(
    world: World, queries: list[InboxQuery], few: Sequence[str], many: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """MB of both sides with `few` inboxes and with `many`."""
    sides: tuple[tuple[Side, Path], ...] = (("ours", world.db), ("reference", world.sqlite))
    return {
        f"{side}, {len(addresses)} inboxes": _in_process(
            Work(side, file, list(addresses), [q for q in queries if q.address in addresses])
        )
        for side, file in sides
        for addresses in (few, many)
    }


def _in_process(work: Work) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        order = Path(folder) / "work.json"
        order.write_bytes(TypeAdapter(Work).dump_json(work))
        cost = run_process([sys.executable, "-m", "tests.benchmarks.memory", str(order)])
    told: dict[str, Any] = json.loads(cost.stdout)
    return told


def perform(work: Work) -> dict[str, Any]:
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
    """Perform the work of the file named on the command line."""
    work = TypeAdapter(Work).validate_json(Path(sys.argv[1]).read_bytes())
    print(json.dumps(perform(work)))


if __name__ == "__main__":
    main()
