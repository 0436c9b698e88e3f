import os
import signal
import subprocess
import time
from collections.abc import Callable
from email.message import EmailMessage
from pathlib import Path
from typing import get_args

import pytest

from art_e.question import load_questions
from data_pipeline.cli import FormatName
from data_pipeline.ingest.batch import Rules, default_rules
from data_pipeline.ingest.records import FORMATS
from tests.command_line import Run, json_of, the_error

SUMS = [
    "db", "read", "stored", "duplicates", "filtered", "quarantined", "junk", "inboxes",
    "added",
    "seconds", "messages_per_second",
]  # fmt: skip


@pytest.fixture
def eml(tmp_path: Path) -> Path:
    """A folder of four .eml files: two mails, a copy of one, and what is no mail."""
    folder = tmp_path / "mail"
    folder.mkdir()
    for number, (name, recipients) in enumerate((("a", 1), ("b", 3), ("a", 1))):
        (folder / f"{number}.eml").write_bytes(mail(name, f"Mail {name}", recipients))
    (folder / "9.eml").write_bytes(b"")
    return folder


def test_the_sums_balance_in_json_and_in_words(art_e: Run, eml: Path, tmp_path: Path) -> None:
    db = tmp_path / "x.duckdb"
    report = json_of(art_e("ingest", eml, "--db", db, "--json"))
    assert list(report) == SUMS
    assert (report["read"], report["stored"], report["duplicates"]) == (4, 2, 1)
    assert report["quarantined"] == {"empty": 1}
    shown = art_e("ingest", eml, "--db", db)
    assert shown.exit_code == 0 and shown.stderr == ""
    for line in ("4  read", "2  stored", "1  duplicates", "1  quarantined: empty"):
        assert line in shown.stdout
    assert f"art-e inboxes --db {db}" in shown.stdout


def test_append_adds_and_its_absence_replaces(art_e: Run, eml: Path, tmp_path: Path) -> None:
    db = tmp_path / "x.duckdb"
    first = json_of(art_e("ingest", eml / "0.eml", "--db", db, "--json"))
    assert first["stored"] == 1
    both = json_of(art_e("ingest", eml / "1.eml", "--db", db, "--append", "--json"))
    assert (both["stored"], both["added"]["stored"]) == (2, 1)
    again = json_of(art_e("ingest", eml / "1.eml", "--db", db, "--json"))
    assert again["stored"] == 1


def test_an_owner_has_all_the_mail(art_e: Run, eml: Path) -> None:
    assert art_e("ingest", eml, "--owner", " Me@X.example").exit_code == 0
    hits = json_of(art_e("search", "--from", "ann", "--json"))
    assert len(hits) == 2


def test_every_format_has_rules_and_a_name_on_the_command_line() -> None:
    assert get_args(FormatName) == ("auto", *FORMATS)
    assert all(isinstance(default_rules(each), Rules) for each in FORMATS)


def mail(message_id: str, body: str, recipients: int) -> bytes:
    message = EmailMessage()
    message["Message-ID"] = f"<{message_id}@x.example>"
    message["From"] = "ann@x.example"
    message["To"] = ", ".join(f"r{each}@x.example" for each in range(recipients))
    message["Date"] = "Thu, 1 Feb 2001 09:00:00 +0000"
    message.set_content(f"{body}, of some length.\n")
    return message.as_bytes()


@pytest.mark.parametrize(
    ("options", "stored"),
    [
        ("", 3),
        ("--max-recipients 2", 2),
        ("--max-body-chars 9", 0),
        ("--format enron", 1),
        ("--format enron --max-recipients 40", 2),
        ("--format enron --no-filter", 3),
    ],
)
def test_rules_follow_the_format_and_the_options(
    options: str, stored: int, art_e: Run, tmp_path: Path
) -> None:
    """Two copies under different ids, and a mail to 35 people."""
    folder = tmp_path / "maildir" / "ann"
    folder.mkdir(parents=True)
    for number, data in enumerate((mail("1", "One", 1), mail("2", "One", 1), mail("3", "Two", 35))):
        (folder / f"{number}.eml").write_bytes(data)
    report = json_of(art_e("ingest", tmp_path / "maildir", *options.split(), "--json"))
    assert (report["read"], report["stored"]) == (3, stored)


def test_a_synthetic_world_brings_its_questions(art_e: Run, tmp_path: Path) -> None:
    db = tmp_path / "world.duckdb"
    report = json_of(art_e("ingest", "synthetic:1000,seed=4", "--db", db, "--json"))
    path = tmp_path / "world.questions.jsonl"
    assert report["questions"] == str(path)
    asked = load_questions(str(path))
    assert {each.kind for each in asked} >= {"lookup", "unanswerable"}
    more = json_of(art_e("ingest", "synthetic:1000,seed=5", "--db", db, "--append", "--json"))
    assert more["read"] == 2_000
    both = load_questions(str(path))
    assert both[: len(asked)] == asked and len(both) > len(asked)


def test_a_part_of_a_world_has_no_questions(art_e: Run, tmp_path: Path) -> None:
    db = tmp_path / "world.duckdb"
    result = art_e("ingest", "1000", "--format", "synthetic", "--limit", 50, "--db", db, "--json")
    assert "questions" not in json_of(result)
    assert "--limit" in result.stderr
    assert not (tmp_path / "world.questions.jsonl").exists()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["nowhere.mbox"], ["nowhere.mbox", "check the path"]),
        (["synthetic:12"], ["1,000"]),
        (["synthetic:1000", "--owner", "ann"], ["--owner 'ann'", "name@example.com"]),
        (["synthetic:1000", "--no-filter", "--max-recipients", "3"], ["--no-filter"]),
        (["synthetic:1000", "--no-filter", "--max-body-chars", "3"], ["--no-filter"]),
    ],
)
def test_user_errors_are_one_line_with_the_fix(
    art_e: Run, args: list[str], words: list[str]
) -> None:
    error = the_error(art_e("ingest", *args))
    for word in words:
        assert word in error


def test_a_file_that_is_no_inbox_is_not_replaced(art_e: Run, eml: Path, tmp_path: Path) -> None:
    precious = tmp_path / "mail.mbox"
    precious.write_text("From ann\n" * 100)
    assert "--db" in the_error(art_e("ingest", eml, "--db", precious))
    assert precious.read_text() == "From ann\n" * 100
    assert "folder" in the_error(art_e("ingest", eml, "--db", tmp_path))


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupt_leaves_the_old_file(
    process: Callable[..., "subprocess.Popen[str]"], art_e: Run, eml: Path, tmp_path: Path
) -> None:
    db = tmp_path / "inbox" / "x.duckdb"
    json_of(art_e("ingest", eml, "--db", db, "--json"))
    before = db.read_bytes()
    started = process("ingest", "synthetic:20000", "--db", db)
    deadline = time.monotonic() + 30
    while not list(db.parent.glob(".*.partial/*")):
        assert time.monotonic() < deadline and started.poll() is None
        time.sleep(0.01)
    # As a terminal does it: to the whole group.
    os.killpg(started.pid, signal.SIGINT)
    out, err = started.communicate(timeout=30)
    assert (started.returncode, out) == (130, "")
    assert err == "interrupted; the inbox is as it was\n"
    assert db.read_bytes() == before
    assert json_of(art_e("inboxes", "--db", db, "--json"))["total"] == 4
    # What may be left of the interrupted build goes with the next one.
    json_of(art_e("ingest", eml, "--db", db, "--json"))
    assert not list(db.parent.glob(".*.partial"))
