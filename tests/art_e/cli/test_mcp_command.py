"""The command around the server: whose inbox, from which file, and what it says on stderr."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import ANN, BOB, Run, the_error


def served(*args: object) -> "subprocess.CompletedProcess[str]":
    """Runs `art-e mcp` with a client that leaves without a word."""
    return subprocess.run(
        [sys.executable, "-m", "art_e", "mcp", *map(str, args)],
        input="",
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ([], f"serving {ANN}, 4 mails"),
        (["--as-of", "2001-03-31"], f"serving {ANN}, 3 mails up to 2001-03-31"),
        (["--inbox", f" {BOB.upper()}"], f"serving {BOB}, 3 mails"),
    ],
    ids=["one-owner", "as-of", "named"],
)
def test_a_note_says_what_is_served(owned_db: Path, options: list[str], what: str) -> None:
    done = served("--db", owned_db, *options)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"{what}; waiting for an MCP client on stdin\n"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--inbox", "anne@harbor.example"], [ANN, "art-e inboxes"]),
        (["--inbox", ANN, "--as-of", "soon"], ["--as-of", "soon", "YYYY-MM-DD"]),
        ([], ["--inbox ADDRESS"]),
        (["--inbox", ANN, "--port", "80"], ["--port"]),
    ],
)
def test_user_errors_are_one_line_with_the_fix(
    art_e: Run, db: Path, options: list[str], words: list[str]
) -> None:
    error = the_error(art_e("mcp", *options, "--db", db))
    for word in words:
        assert word in error


def test_a_missing_file_says_how_to_make_one(art_e: Run, home: Path, tmp_path: Path) -> None:
    default = the_error(art_e("mcp", "--inbox", ANN))
    assert f"art-e ingest SOURCE --db {home / 'inbox.duckdb'}" in default
    missing = tmp_path / "none.duckdb"
    named = the_error(art_e("mcp", "--inbox", ANN, "--db", missing))
    assert f"art-e ingest SOURCE --db {missing}" in named
    assert not home.exists()


def test_an_error_leaves_stdout_to_the_protocol(db: Path) -> None:
    done = served("--inbox", "nobody@harbor.example", "--db", db)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1


def test_the_help_page_has_an_example_and_imports_no_protocol(art_e: Run) -> None:
    shown = art_e("mcp", "--help").stdout
    assert "art-e mcp --inbox me@example.com" in shown
    script = "import sys, art_e.cli.main as _; sys.exit('mcp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], check=False, env=os.environ)
    assert done.returncode == 0
