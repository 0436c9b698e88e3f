"""Searches as tests make them: of a file's own words, people and days, in Python and in SQL."""

import datetime as dt
import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import duckdb

from art_e.inbox.file import InboxFile
from art_e.inbox.inbox import Inbox
from art_e.inbox.mail import Hit
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
    """What queries to a file can be made of.

    `words` are common and rare ones, forms of the same stem, stop words and words that no
    mail has; `people` are filters; `days` those of the file's mail and some around them.
    """

    addresses: list[str]
    words: list[str]
    people: list[str]
    days: list[dt.date]


def material(file: InboxFile, inboxes: int = 40, words: int = 400) -> Material:
    """The `inboxes` largest inboxes of a file, and words that occur in it."""
    rng = Random(0)
    summaries = file.inboxes(limit=inboxes)
    rows = file.execute("SELECT word FROM terms ORDER BY word").fetchall()
    known = [word for (word,) in rows]
    named = file.execute("SELECT address, names FROM addresses WHERE names <> '' ORDER BY ALL")
    people = []
    for address, names in named.fetchmany(inboxes):
        name = names.partition(" | ")[0]
        people += [address, name, name.title(), f"{name} <{address}>", address[:4]]
        people += [address.partition("@")[0].upper(), " ".join(reversed(name.split()))]
    bounds = file.execute("SELECT min(sent_at), max(sent_at) FROM emails").fetchone()
    assert bounds is not None
    first, last = (bound.date() for bound in bounds)
    spread = [first + (last - first) * part // 20 for part in range(-1, 22)]
    extra = ["Ünknown-wörd", "zzzz", "", "'; DROP TABLE emails --", "a b the of"]
    return Material(
        addresses=[summary.address for summary in summaries],
        words=[*rng.sample(known, min(words, len(known))), *sorted(STOP_WORDS)[:10], *extra],
        people=[*people, "", "nobody", "<>", "%", "@"],
        days=spread,
    )


def random_query(rng: Random, made_of: Material) -> Query:
    """A query of one to six words, every third with filters."""

    def sometimes(choices: Sequence[Any]) -> Any:
        return rng.choice(choices) if rng.random() < 0.12 else None

    return Query(
        keywords=[rng.choice(made_of.words) for _ in range(rng.randint(0, 6))],
        from_addr=sometimes(made_of.people),
        to_addr=sometimes(made_of.people),
        sent_after=sometimes(made_of.days),
        sent_before=sometimes(made_of.days),
        max_results=rng.choice([1, 3, 10]),
    )


def run(inbox: Inbox, query: Query) -> list[Hit]:
    """The query's hits from an opened inbox."""
    keywords, *_, limit = query
    return inbox.search(
        keywords,
        from_addr=query.from_addr,
        to_addr=query.to_addr,
        sent_after=query.sent_after,
        sent_before=query.sent_before,
        max_results=limit,
    )


def run_sql(
    connection: duckdb.DuckDBPyConnection, address: str, as_of: dt.date | None, query: Query
) -> list[tuple[Any, ...]]:
    """The same from the file's macro; its rows are those of `as_row`."""
    return connection.execute(
        "SELECT * FROM search_inbox($inbox, $keywords, as_of := $as_of, from_addr := $from_addr,"
        " to_addr := $to_addr, sent_after := $sent_after, sent_before := $sent_before,"
        " max_results := $max_results)",
        {"inbox": address, "as_of": as_of, **query._asdict()},
    ).fetchall()


def as_row(hit: Hit) -> tuple[Any, ...]:
    """A hit in the form of the macro's rows."""
    return (
        hit.message_id,
        hit.date,
        hit.sender.address,
        hit.sender.name,
        hit.subject,
        hit.score,
        sorted(hit.missing),
    )


def seeded_answers(file: InboxFile, seed: int, count: int) -> list[str]:
    """The hits of `count` queries to several inboxes of a file, as JSON."""
    rng = Random(seed)
    made_of = material(file)
    inboxes = [file.open_inbox(address) for address in made_of.addresses[:6]]
    inboxes += [file.open_inbox(inboxes[0].address, made_of.days[10])]
    found = [run(rng.choice(inboxes), random_query(rng, made_of)) for _ in range(count)]
    return [json.dumps([hit.to_json() for hit in hits]) for hits in found]


def seeded_answers_of(path: Path, seed: int, count: int) -> list[str]:
    """The same in a process of its own."""
    with InboxFile(path) as file:
        return seeded_answers(file, seed, count)
