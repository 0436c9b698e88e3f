"""Behaviour of all commands: JSON, one-line errors, hostile text."""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import Result

from art_e.cli import output
from tests.art_e.test_text import NOTHING
from tests.builders import make_inbox, raw, table, table_rows
from tests.command_line import ANN, BOB, HOSTILE, LEASE_ID, Run, assert_safe, json_of, the_error

LEASE_2, LUNCH = "<lease.2@harbor.example>", "<lunch.1@harbor.example>"
IN_ANN, EARLY = ["--inbox", ANN], ["--as-of", "2001-02-28"]


@pytest.mark.parametrize("cells", table_rows(__file__, "user_errors.tsv"))
def test_user_errors(art_e: Run, db: Path, home: Path, cells: list[str]) -> None:
    line, *words = cells
    args = shlex.split(line)
    of_db = ("search", "read", "ask", "mcp", "summarize", "people")
    where = ["--db", db] if args[0] in of_db else []
    error = the_error(art_e(*args, *where))
    assert all(word in error for word in words), error
    assert not home.exists()


@pytest.mark.parametrize("command", ["inboxes", "search x", "read x", "ask x", "mcp"])
def test_error_of_a_bad_file_has_a_fix(
    art_e: Run, home: Path, tmp_path: Path, command: str
) -> None:
    args = [*command.split(), *(IN_ANN if command != "inboxes" else [])]
    assert f"art-e ingest SOURCE --db {home / 'inbox.duckdb'}" in the_error(art_e(*args))
    corrupt = tmp_path / "corrupt.duckdb"
    corrupt.write_bytes(b"not a database at all\n" * 1_000)
    assert f"art-e ingest SOURCE --db {corrupt}" in the_error(art_e(*args, "--db", corrupt))


def test_internal_error_is_one_line(art_e: Run, db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fail = Mock(side_effect=ZeroDivisionError("by\nzero"))
    monkeypatch.setattr("art_e.inbox.file.InboxFile.inboxes", fail)
    error = the_error(art_e("inboxes", "--db", db), code=1)
    assert "ZeroDivisionError: by zero" in error and "ART_E_DEBUG=1" in error
    monkeypatch.setenv("ART_E_DEBUG", "1")
    assert "Traceback" in art_e("inboxes", "--db", db).stderr


def test_operating_system_error_has_a_fix(art_e: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    error = the_error(art_e("ingest", "synthetic:1000", "--db", tmp_path / "file" / "x.duckdb"))
    assert "name another place" in error


def test_closed_stdout_is_not_an_error(process: Any, db: Path) -> None:
    with process("search", "lease", *IN_ANN, "--db", db) as started:
        assert started.stdout is not None and started.stderr is not None
        started.stdout.close()
        assert started.stderr.read() == ""
        assert started.wait() == 141


def test_commands_run_on_an_ascii_terminal(db: Path, home: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "ART_E_HOME": str(home)}
    command = [sys.executable, "-m", "art_e", "search", "Ünïcode", *IN_ANN, "--db", str(db)]
    subprocess.run(command, capture_output=True, env=environment, check=True)


def test_commands_without_a_model_import_no_client(db: Path, home: Path) -> None:
    """Even with a key in the environment."""
    models = ("litellm", "openai", "torch", "transformers", "tiktoken", "mcp", "dotenv")
    slow = ("duckdb", "numpy", "pyarrow", "pydantic", "datasets", "rich", "asyncio", *models)
    commands = [
        (["--help"], slow),
        (["ask", "--help"], models),
        (["search", "lease", *IN_ANN, "--db", str(db)], models),
        (["ask", "When does it end?", *IN_ANN, "--trace", "--db", str(db)], models),
        (["doctor"], ("litellm", "torch", "vllm", "trl")),
    ]
    script = (
        "import socket, sys\nfrom pathlib import Path\nfrom art_e.cli.main import app\n"
        "def refuse(*_):\n    raise AssertionError('network')\n"
        "socket.socket.connect = socket.getaddrinfo = refuse\n"
        f"for command, heavy in {commands!r}:\n"
        "    if command == ['doctor']:\n"
        "        from art_e.cli import doctor\n        doctor.DRIVER = Path('none')\n"
        "    try:\n        app(command)\n"
        "    except SystemExit as end:\n        assert not end.code, command\n"
        "    loaded = [name for name in heavy if name in sys.modules]\n"
        "    assert not loaded, (command, loaded)\n"
    )
    environment = {**os.environ, "ART_E_HOME": str(home), "OPENAI_API_KEY": "sk-0123456789ab"}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert "0123456789ab" not in done.stdout


def test_inboxes_lists_the_largest_first(art_e: Run, db: Path) -> None:
    listed = json_of(art_e("inboxes", "--db", db, "--json"))
    first = {"address": ANN, "emails": 4, "sent": 1, "received": 3}
    assert (listed["total"], listed["inboxes"][0]) == (3, first)
    result = art_e("inboxes", "--db", db, "--limit", "1")
    assert ANN in result.stdout and BOB not in result.stdout
    assert result.stderr == "2 more; --limit 3 shows all\n"


def test_search_shows_the_best_first(art_e: Run, db: Path) -> None:
    search = ("search", "warehouse", "landlord", *IN_ANN, "--db", db)
    hits = json_of(art_e(*search, "--json"))
    assert [hit["message_id"] for hit in hits] == [LEASE_2, LEASE_ID]
    assert hits[1]["missing"] == ["landlord"]
    text = art_e(*search).stdout
    assert "2001-06-01  Bob Berg <bob@harbor.example>  Warehouse lease, again" in text
    assert f"{LEASE_ID}   without: landlord" in text
    for filters, ids in {
        "--to bob --after 2001-02-01 --limit 1": [LUNCH],
        "--from bob --as-of 2001-05-31": [LEASE_ID],
    }.items():
        hits = json_of(art_e("search", *filters.split(), *IN_ANN, "--db", db, "--json"))
        assert [hit["message_id"] for hit in hits] == ids
    nothing = art_e("search", "xylophone", *IN_ANN, "--db", db)
    assert (nothing.exit_code, nothing.stdout) == (0, "")
    assert "no match in 4 mails" in nothing.stderr


def test_read_shows_the_whole_mail(art_e: Run, owned_db: Path) -> None:
    """A file with one owner needs no --inbox."""
    email = json_of(art_e("read", LEASE_ID, "--db", owned_db, "--json"))
    assert list(email) == ["message_id", "date", "from", "to", "cc", "bcc", "subject", "body"]
    assert email["to"] == [f"Ann Alm <{ANN}>"]
    text = art_e("read", LEASE_ID.strip("<>"), "--db", owned_db).stdout
    assert f"To: Ann Alm <{ANN}>\n" in text
    assert text.endswith("\nThe warehouse lease ends on March 31, 2002.\n\nBob\n")


def test_numbers_refer_to_the_last_list(art_e: Run, db: Path, home: Path, tmp_path: Path) -> None:
    def read(*args: object) -> str:
        return str(json_of(art_e("read", *args, "--json"))["message_id"])

    assert "no mail" in the_error(art_e("read", "1", *IN_ANN, "--db", db))
    art_e("search", "lease", "--as-of", "2001-05-31", *IN_ANN, "--db", db)
    art_e("search", "lunch", "--json", *IN_ANN, "--db", db)  # prints no numbers
    assert (home / "last_list.json").stat().st_mode & 0o077 == 0
    assert read("1") == read("1", *IN_ANN) == LEASE_ID
    # The list's --as-of applies to its threads too.
    assert [each["message_id"] for each in json_of(art_e("thread", "1", "--json"))] == [LEASE_ID]
    assert "no mail 2" in the_error(art_e("read", "2", *IN_ANN, "--db", db))
    assert f"inbox of {BOB}" in the_error(art_e("read", "1", "--inbox", BOB, "--db", db))
    assert "no mail 1 in" in the_error(art_e("read", "1", "--as-of", "2001-01-01"))
    numeric = make_inbox(tmp_path / "n.duckdb", [raw("<1>"), raw("<2>", body="Nothing old.")]).db
    art_e("search", "hello", "--db", numeric, "--inbox", "ann@test.example")
    assert [read("1"), read("2")] == ["<1>", "<2>"]


def test_prefix_of_an_id_names_a_mail(art_e: Run, db: Path) -> None:
    def read(prefix: str, *inbox: str) -> Result:
        return art_e("read", prefix, *(inbox or IN_ANN), "--db", db, "--json")

    for prefix in ("lease.2", "<lease.2@"):
        assert json_of(read(prefix))["message_id"] == LEASE_2
    assert "<lease.1@harbor.example>, <lease.2" in the_error(read("lease."))
    for prefix, *where in (["lunch"], ["hostile", "--inbox", BOB], ["lease.2", *IN_ANN, *EARLY]):
        assert "no mail" in the_error(read(prefix, *where))


FORBIDDEN = {
    *map(chr, (*range(9), *range(11, 32), *range(0x7F, 0xA0), *range(0xD800, 0xE000))),
    *"\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069",
    # Invisible: they hide text from a reader, or in a copy.
    *"\u180e\u200b\u2060\u2061\u2062\u2063\u2064\ufeff",
    *map(chr, range(0xE0000, 0xE0080)),
}
PIECES = st.lists(
    st.sampled_from(["\x1b", "[", "]", "P", "\x1b\\", "\x07", "\x9c", "\x9d", ";31m", "text", "\n"])
).map("".join)


@given(st.text(st.characters(exclude_categories=())) | PIECES)
def test_clean_removes_only_forbidden_characters(text: str) -> None:
    once = output.clean(text)
    assert not set(once) & FORBIDDEN
    assert not set(output.one_line(text)) & (FORBIDDEN | {"\n", "\t"})
    assert output.clean(once) == once
    printable = "".join(char for char in text if char not in FORBIDDEN | NOTHING)
    assert output.clean(printable) == printable


CLEANED = table(__file__, "cleaned.toml")


def test_clean_removes_escape_sequences() -> None:
    assert {dirty: output.clean(dirty) for dirty in CLEANED} == CLEANED


@given(st.dictionaries(st.text(), st.lists(st.text() | st.integers(), max_size=4), max_size=4))
def test_printed_json_is_lossless_and_ascii(capsys: pytest.CaptureFixture[str], value: Any) -> None:
    output.print_json(value)
    printed = capsys.readouterr().out
    assert json.loads(printed) == value
    assert all(" " <= char <= "~" or char == "\n" for char in printed)


def test_output_ignores_markup_and_notes_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    line = f"[bold]{'word ' * 100}[/bold] :smile:"
    output.console().print(output.text((line, "bold")), soft_wrap=True)
    with output.progress("mails", 3) as advance:
        advance()
    assert capsys.readouterr() == (line + "\n", "")
    output.note(f"first\nsecond {HOSTILE}")
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1) and err.startswith("first second ")
    assert_safe(err)
    counted = [output.plural(1, "mail"), output.plural(2_000, "mail"), output.plural(2, "address")]
    assert counted == ["1 mail", "2,000 mails", "2 addresses"]


@pytest.mark.usefixtures("ctrl_c")
def test_renamed_interrupt_exits_130(art_e: Run, db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def press_and_rename(*_: object) -> None:
        # DuckDB sometimes swallows the interrupt.
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        assert output.interrupted()
        raise RuntimeError("Query interrupted")

    monkeypatch.setattr("art_e.inbox.file.InboxFile.inboxes", press_and_rename)
    result = art_e("inboxes", "--db", db)
    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr == "interrupted\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with output.recording_interrupts():
        assert not output.interrupted()
