"""The real Enron archive: everything accounted for, in any order the same, the gold mail found.

Set ART_E_REAL_DATA to a folder with `enron-maildir.tar.xz`, `nasty.tsv` and `questions.jsonl`.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from art_e.inbox.file import InboxFile
from art_e.question import load_questions
from data_pipeline.ingest.batch import default_rules
from data_pipeline.ingest.build import Source, ingest
from data_pipeline.ingest.parse import parse_message
from data_pipeline.ingest.records import ParsedEmail
from data_pipeline.ingest.sources import read_enron
from tests.conftest import RealInbox

READ = 47_990
FOUND_FIRST = 48


@pytest.fixture(scope="module")
def file(real_inbox: RealInbox) -> Iterator[InboxFile]:
    with InboxFile(real_inbox.db) as opened:
        yield opened


def hashes(db: Path) -> dict[str, tuple[int, int]]:
    """Rows of each table, and a hash of them with their order."""
    found = {}
    with InboxFile(db) as file:
        for (name,) in file.execute("SHOW TABLES").fetchall():
            row = file.execute(
                f"SELECT count(*), coalesce(bit_xor(hash(t, place)), 0)"
                f" FROM (SELECT t, row_number() OVER () AS place FROM {name} AS t)"
            ).fetchone()
            assert row is not None
            found[name] = (int(row[0]), int(row[1]))
    return found


def test_every_message_is_stored_a_copy_or_skipped_and_the_sums_balance(
    real_inbox: RealInbox, file: InboxFile
) -> None:
    counts = real_inbox.report.counts
    assert counts == file.counts
    assert counts["read"] == READ
    assert set(counts["filtered"]) == {"long-body", "many-recipients"}
    reasons = {**counts["filtered"], **counts["quarantined"]}
    skipped = file.execute("SELECT reason, count(*) FROM skipped GROUP BY ALL").fetchall()
    assert dict(skipped) == reasons
    copies = counts["stored"] + counts["duplicates"]
    assert copies + sum(reasons.values()) == READ
    row = file.execute(
        "SELECT count(*), count(DISTINCT source) FROM (SELECT source FROM emails"
        " UNION ALL SELECT source FROM aliases UNION ALL SELECT source FROM skipped)"
    ).fetchone()
    assert row == (READ, READ)
    # The archive's message ids are distinct, and all of them lead to a mail.
    row = file.execute(
        "SELECT count(*), count(DISTINCT message_id), count(email_id) FROM (SELECT message_id,"
        " email_id FROM emails UNION ALL SELECT message_id, email_id FROM aliases)"
    ).fetchone()
    assert row == (copies, copies, copies)


# ---- Difficult messages, by what must hold of them (no mail text here).


def test_nasty_messages_are_parsed_and_stored_or_listed_with_their_reason(
    real_inbox: RealInbox, file: InboxFile
) -> None:
    lines = (real_inbox.folder / "nasty.tsv").read_text(encoding="utf-8").splitlines()
    wanted = {line.partition("\t")[0] for line in lines if line.strip()}
    nasty = {raw.source: raw for raw in read_enron(real_inbox.archive) if raw.source in wanted}
    assert set(nasty) == wanted
    stored = file.execute("SELECT source FROM emails UNION SELECT source FROM aliases").fetchall()
    rows = file.execute("SELECT source, stage, reason, detail FROM skipped").fetchall()
    skipped = {source: row for source, *row in rows}
    for source, raw in nasty.items():
        email = parse_message(raw)
        assert isinstance(email, ParsedEmail), email
        # Neither headers nor marks of an encoding are left in bodies.
        assert not re.search(r"^X-Folder:|=3D|=A0|</?(?:html|td)\b|[^=]=\n", email.body, re.M)
        if (source,) not in stored:
            stage, reason, detail = skipped[source]
            assert stage == "filtered"
            assert reason in ("long-body", "many-recipients")
            assert detail


# ---- The whole.


def test_any_order_gives_the_same_file(real_inbox: RealInbox, tmp_path: Path) -> None:
    messages = list(read_enron(real_inbox.archive))
    Random(0).shuffle(messages)
    db = tmp_path / "inbox.duckdb"
    ingest([Source(messages, default_rules("enron"))], db)
    assert hashes(db) == hashes(real_inbox.db)


def test_the_questions_own_words_find_the_gold_mail(real_inbox: RealInbox, file: InboxFile) -> None:
    questions = load_questions(str(real_inbox.folder / "questions.jsonl"))
    ranks = []
    for question in questions:
        inbox = file.open_inbox(question.inbox_address, question.query_date)
        assert all(inbox.read(message_id) for message_id in question.message_ids), question.id
        gold = {inbox.canonical_id(message_id) for message_id in question.message_ids}
        found = [hit.message_id in gold for hit in inbox.search(question.question.split())]
        ranks.append(found.index(True))
    assert len(ranks) == 73
    assert ranks.count(0) >= FOUND_FIRST
