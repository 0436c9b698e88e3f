"""Search in an open inbox against the same search in SQL, in one run.

    python -m tests.benchmarks.search [--size 5000] [--queries 200]

Makes a synthetic inbox, draws seeded queries of one to four words of its own
mail, half of them with a date filter, and times `Inbox.search` (NumPy) and the
file's `search_inbox` macro (plain SQL) turn by turn. Both must give the same
mails before either is timed.
"""

import argparse
import datetime as dt
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from art_e.inbox.file import InboxFile
from art_e.inbox.inbox import Inbox
from data_pipeline.batch import Rules
from data_pipeline.ingest import IngestReport, Source, ingest
from data_pipeline.synthetic.world import WorldConfig, messages

SEED = 0


class Query(NamedTuple):
    """What is searched for, in one inbox."""

    keywords: list[str]
    sent_after: dt.date | None


def draw_queries(inbox_file: InboxFile, address: str, count: int) -> list[Query]:
    """Seeded queries of 1 to 4 words of middling frequency, half with a date filter."""
    rows = inbox_file.execute(
        """
        SELECT any_value(word) FROM terms JOIN postings USING (term_id)
        WHERE email_id IN (SELECT email_id FROM parties JOIN addresses USING (address_id)
            WHERE address = ?)
        GROUP BY term_id HAVING count(DISTINCT email_id) BETWEEN 3 AND 100 ORDER BY 1
        """,
        [address],
    ).fetchall()
    words = [word for (word,) in rows]
    draw = random.Random(SEED)
    first_day = dt.date(2019, 1, 1)
    return [
        Query(
            draw.sample(words, draw.randint(1, 4)),
            first_day + dt.timedelta(days=draw.randrange(300)) if number % 2 else None,
        )
        for number in range(count)
    ]


def by_sql(inbox_file: InboxFile, address: str, query: Query) -> list[str]:
    """The message ids that the macro finds."""
    rows = inbox_file.execute(
        "SELECT message_id FROM search_inbox(?, ?, sent_after := ?::DATE)",
        [address, query.keywords, query.sent_after],
    ).fetchall()
    return [message_id for (message_id,) in rows]


def by_inbox(inbox: Inbox, query: Query) -> list[str]:
    """The message ids that the opened inbox finds."""
    return [hit.message_id for hit in inbox.search(query.keywords, sent_after=query.sent_after)]


def compare(inbox_file: InboxFile, address: str, count: int) -> dict[str, list[float]]:
    """Milliseconds of each query by each way, warm, taken turn by turn."""
    queries = draw_queries(inbox_file, address, count)
    inbox = inbox_file.open_inbox(address)
    ways: dict[str, Callable[[Query], Any]] = {
        "open inbox (NumPy)": lambda query: by_inbox(inbox, query),
        "search_inbox (SQL)": lambda query: by_sql(inbox_file, address, query),
    }
    for query in queries:
        if by_inbox(inbox, query) != by_sql(inbox_file, address, query):
            sys.exit(f"the two ways disagree on {query}")
    times: dict[str, list[float]] = {name: [] for name in ways}
    for query in queries:
        for name, search in ways.items():
            started = time.perf_counter()
            search(query)
            times[name].append(1000 * (time.perf_counter() - started))
    return times


def show(report: IngestReport, mails: int, times: dict[str, list[float]]) -> None:
    """Print the rates and the two ways side by side."""
    console = Console()
    console.print(
        f"ingest: {report.counts['read']} mails in {report.seconds:.1f} s,"
        f" {report.counts['read'] / report.seconds:.0f} mails/s"
    )
    table = Table(title=f"search in an inbox of {mails} mails, ms")
    for heading in ("", "n", "p50", "p95", "mean"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, values in times.items():
        p95 = statistics.quantiles(values, n=20)[-1]
        figures = (statistics.median(values), p95, statistics.mean(values))
        table.add_row(name, str(len(values)), *(f"{each:.2f}" for each in figures))
    console.print(table)


def main() -> None:
    """Make the inbox, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", type=int, default=5000, help="mails of the synthetic inbox")
    parser.add_argument("--queries", type=int, default=200)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder) / "world.duckdb"
        report = ingest([Source(messages(WorldConfig(size=arguments.size)), Rules())], db)
        with InboxFile(db) as inbox_file:
            largest = inbox_file.inboxes(limit=1)[0]
            times = compare(inbox_file, largest.address, arguments.queries)
    show(report, largest.emails, times)


if __name__ == "__main__":
    main()
