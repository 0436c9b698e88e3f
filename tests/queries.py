"""Searches for a file's own words, people and days, in Python and in SQL."""

import datetime as dt
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import duckdb

from art_e.inbox.file import InboxFile
from art_e.inbox.inbox import Inbox
from art_e.inbox.mail import Hit, in_zone
from art_e.inbox.tokenizer import STOP_WORDS


class Query(NamedTuple):
    """The arguments of `Inbox.search`."""

    keywords: list[str]
    from_addr: str | None = None
    to_addr: str | None = None
    sent_after: dt.date | None = None
    sent_before: dt.date | None = None
    max_results: int = 10


class Material(NamedTuple):
    """The parts of queries: `words` are common, rare and unknown ones, forms of the same stem, and
    stop words; `people` are filters; `days` cover more than the mail."""

    addresses: list[str]
    words: list[str]
    people: list[str]
    days: list[dt.date]


def material(file: InboxFile) -> Material:
    """Return the 40 largest inboxes of a file, and words that occur in it."""
    rng = Random(0)
    # `inboxes` lists owners first, however little mail they have.
    largest = sorted(file.inboxes(), key=lambda each: -each.emails)
    terms = [word for (word,) in file.execute("SELECT word FROM terms ORDER BY word").fetchall()]
    named = file.execute("SELECT address, names FROM addresses WHERE names <> '' ORDER BY ALL")
    people = []
    for address, names in named.fetchmany(40):
        name = names.partition(" | ")[0]
        people += [address, name, name.title(), f"{name} <{address}>", address[:4]]
        people += [address.partition("@")[0].upper(), " ".join(reversed(name.split()))]
    [bounds] = file.execute("SELECT min(sent_at), max(sent_at) FROM emails").fetchall()
    first, last = (bound.date() for bound in bounds)
    spread = [first + (last - first) * part // 20 for part in range(-1, 22)]
    extra = ["Ünknown-wörd", "zzzz", "", "'; DROP TABLE emails --", "a b the of"]
    return Material(
        addresses=[each.address for each in largest[:40]],
        words=[*rng.sample(terms, min(400, len(terms))), *sorted(STOP_WORDS)[:10], *extra],
        people=[*people, "", "nobody", "<>", "%", "@"],
        days=spread,
    )


def random_query(rng: Random, made_of: Material) -> Query:
    """Return a query of up to six words, some with filters."""
    words = [
        rng.choice(made_of.words if rng.random() < 0.9 else made_of.addresses)
        for _ in range(rng.randint(0, 6))
    ]
    people, days = made_of.people, made_of.days
    choices: Any = {"from_addr": people, "to_addr": people, "sent_after": days, "sent_before": days}
    filters: dict[str, Any] = {
        name: rng.choice(values) for name, values in choices.items() if rng.random() < 0.12
    }
    return Query(words, **filters, max_results=rng.choice([1, 3, 10]))


def run_query(inbox: Inbox, query: Query) -> list[Hit]:
    return inbox.search(**query._asdict())


def run_sql(
    connection: duckdb.DuckDBPyConnection, address: str, as_of: dt.date | None, query: Query
) -> list[tuple[Any, ...]]:
    """Run a query by the file's SQL macro; return rows in the form of `as_row`."""
    rows = connection.execute(
        "SELECT * FROM search_inbox($inbox, $keywords, as_of := $as_of, from_addr := $from_addr,"
        " to_addr := $to_addr, sent_after := $sent_after, sent_before := $sent_before,"
        " max_results := $max_results)",
        {"inbox": address, "as_of": as_of, **query._asdict()},
    ).fetchall()
    # Dates as text, because dates of one moment compare equal in any zone.
    return [(name, str(in_zone(sent_at, zone)), *rest) for name, sent_at, zone, *rest in rows]


def as_row(hit: Hit) -> tuple[Any, ...]:
    sender, missing, date = hit.sender, sorted(hit.missing), str(hit.date)
    return hit.message_id, date, sender.address, sender.name, hit.subject, hit.score, missing


def plain_connection(path: Path) -> duckdb.DuckDBPyConnection:
    return duckdb.connect(str(path), read_only=True)
