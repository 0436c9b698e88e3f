"""README's "Ask your own mail", on a Takeout download with all kinds of mail."""

from pathlib import Path

import pytest

from art_e.inbox.file import InboxFile
from tests.builders import make_inbox, raw, with_files
from tests.command_line import Run, json_of, the_error
from tests.mailbox import ANSWER, MAILS, ME, takeout


@pytest.fixture
def ingested(art_e: Run, tmp_path: Path) -> None:
    counts = json_of(art_e("ingest", takeout(tmp_path), "--json"))
    assert (counts["read"], counts["stored"], counts["junk"]) == (12, 12, 3)


LEASE = [f"<{number}@home.example>" for number in (1, 2, 3)]
FOUND = Path(__file__).with_name("mailbox_queries.tsv").read_text("utf-8").splitlines()[1:]


@pytest.mark.usefixtures("ingested")
def test_questions_and_searches_find_the_right_mail(art_e: Run, home: Path) -> None:
    answered = art_e("ask", "When does the lease end?", "--trace")
    assert ANSWER in answered.stdout and "February 5" not in answered.stdout
    for number, query in (line.split("\t") for line in FOUND):
        hits = json_of(art_e("search", query, "--json"))
        assert hits[0]["message_id"] == f"<{number}@home.example>", query
    for command in (("search", "lease"), ("thread", "3@home.example")):
        mails = json_of(art_e(*command, "--json"))
        assert sorted(each["message_id"] for each in mails) == LEASE
    invoice = art_e("read", "9@home.example").stdout
    assert "64.20" in invoice
    assert "alert(1)" not in invoice and "track.example" not in invoice
    with InboxFile(home / "inbox.duckdb") as file:
        assert file.owners() == [ME]


@pytest.mark.usefixtures("ingested")
def test_open_shows_or_saves(art_e: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "2 costs.xlsx" in the_error(art_e("open", "5@home.example"))
    saved = art_e("open", "5@home.example", 2, "--save", tmp_path)
    assert saved.stdout.strip() == str(tmp_path / "costs.xlsx")
    sent = next(each for each in MAILS[4].iter_attachments() if each.get_filename() == "costs.xlsx")
    assert (tmp_path / "costs.xlsx").read_bytes() == sent.get_content()
    assert "exists" in the_error(art_e("open", "5@home.example", 2, "--save", tmp_path))
    # The desktop chooses the program that shows a file.
    copy = tmp_path / "shown"
    (tmp_path / "xdg-open").write_text(f'#!/bin/sh\ncp "$1" {copy}\n')
    (tmp_path / "xdg-open").chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    opened = Path(art_e("open", "1@home.example").stdout.strip())
    assert opened.name == "lease.pdf" and opened.stat().st_mode & 0o077 == 0
    assert copy.read_bytes().startswith(b"%PDF")
    for mail_id, number in (("9@home.example", 1), ("5@home.example", 9)):
        the_error(art_e("open", mail_id, number))


def test_executable_files_are_only_saved_under_safe_names(art_e: Run, tmp_path: Path) -> None:
    db = tmp_path / "i.duckdb"
    files = {"../../.bash\x1b]0;rc": b"alias", "a\u202egpj.exe": b"MZ", "x.pdf.desktop": b"["}
    make_inbox(db, [with_files(raw("<1@x>", to=ME), files)], owner=ME)
    for number in (1, 2, 3):
        assert "--save" in the_error(art_e("open", "1@x", number, "--db", db))
        path = Path(art_e("open", "1@x", number, "--db", db, "--save", tmp_path).stdout.strip())
        assert path.parent == tmp_path and path.name[0].isalnum()
        assert path.read_bytes() == list(files.values())[number - 1]
