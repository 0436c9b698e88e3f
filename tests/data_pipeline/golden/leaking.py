"""Leaks between splits, found by SQL of its own: by the headers of mails and not by `parties`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from art_e.question import Question
from tests.builders import plain_connection

# A row for each mail that a question may mean: its own, or the one that its copy became.
_GOLD = """
CREATE TEMP TABLE gold AS
WITH meant AS (
    SELECT c.*, e.email_id FROM cited AS c JOIN emails AS e ON e.message_id = c.message_id
    UNION ALL
    SELECT c.*, a.email_id FROM cited AS c JOIN aliases AS a ON a.message_id = c.message_id
)
SELECT question, split, e.from_address, e.subject, e.body, content_digest
FROM meant JOIN emails AS e USING (email_id)
"""

_SHARED = """
SELECT DISTINCT a.question FROM gold AS a, gold AS b
WHERE a.content_digest = b.content_digest AND a.split <> b.split
UNION
SELECT DISTINCT a.question FROM gold AS a, gold AS b
WHERE a.from_address = b.from_address AND a.subject = b.subject AND a.body = b.body
    AND a.split <> b.split
"""

_IN_TEST = """
WITH seen AS (
    SELECT content_digest FROM emails, tested
    WHERE from_address = address OR list_contains(
        list_transform(
            list_concat(list_concat(to_recipients, cc_recipients), bcc_recipients),
            lambda each: each.address),
        address)
)
SELECT DISTINCT question FROM gold
WHERE split <> 'test' AND content_digest IN (SELECT content_digest FROM seen)
"""


class Leaks(NamedTuple):
    """Ids of the questions that leak."""

    shared: set[str]
    in_test_inbox: set[str]


def leaks(db: Path, questions: Sequence[Question], inboxes: Mapping[str, str]) -> Leaks:
    """The questions whose gold is gold in another split, or is in a test inbox and may not."""
    with plain_connection(db) as file:
        file.execute(
            "CREATE TEMP TABLE cited (question VARCHAR, split VARCHAR, message_id VARCHAR)"
        )
        cited = [(each.id, each.split, gold) for each in questions for gold in each.message_ids]
        columns = [list(each) for each in zip(*cited, strict=True)] or [[], [], []]
        file.execute("INSERT INTO cited SELECT unnest(?), unnest(?), unnest(?)", columns)
        file.execute("CREATE TEMP TABLE tested (address VARCHAR)")
        tested = [inbox for inbox, split in inboxes.items() if split == "test"]
        file.execute("INSERT INTO tested SELECT unnest(?::VARCHAR[])", [tested])
        file.execute(_GOLD)
        return Leaks(
            *({name for (name,) in file.execute(sql).fetchall()} for sql in (_SHARED, _IN_TEST))
        )
