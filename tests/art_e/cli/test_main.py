import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command_line import ANN, Run, the_error

COMMANDS = [
    ["demo"], ["ingest"], ["inboxes"], ["search"], ["read"], ["ask"], ["runs", "list"],
    ["runs", "show"], ["doctor"], ["eval", "run"],
]  # fmt: skip
# Whose standard output is a protocol's, or that print no data.
WITHOUT_JSON = [["mcp"], ["serve"]]
HEAVY = (
    "duckdb",
    "numpy",
    "pyarrow",
    "pydantic",
    "datasets",
    "rich",
    "asyncio",
    "litellm",
    "mcp",
    "torch",
)


@pytest.mark.parametrize("command", [[], *COMMANDS, *WITHOUT_JSON], ids=" ".join)
def test_every_help_page_has_an_example(art_e: Run, command: list[str]) -> None:
    result = art_e(*command, "--help")
    assert result.exit_code == 0
    lines = [line.strip() for line in result.stdout.splitlines()]
    shown = lines[lines.index("Example:") + 1 :]
    assert shown[0].startswith(" ".join(["art-e", *command]))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_json(art_e: Run, command: list[str]) -> None:
    assert "--json" in art_e(*command, "--help").stdout


def test_without_a_command_the_help_is_shown(art_e: Run) -> None:
    result = art_e()
    assert result.exit_code == 0
    for command in [*COMMANDS, *WITHOUT_JSON]:
        assert f"\n  {command[0]} " in result.stdout


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys\nfrom art_e.cli.main import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stderr == "[]\n"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["bogus"], ["bogus", "art-e --help"]),
        (["serch", "x"], ["search"]),
        (["--bogus"], ["--bogus", "art-e --help"]),
        (["search", "--bogus"], ["--bogus", "art-e search --help"]),
        (["search", "x", "--limit", "many"], ["--limit", "art-e search --help"]),
        (["search", "x", "--limit", "0"], ["--limit"]),
        (["ask"], ["QUESTION", "art-e ask --help"]),
        (["runs"], ["art-e runs --help"]),
        (["ingest", "x", "--format", "pst"], ["--format", "mbox"]),
    ],
)
def test_a_wrong_command_line_is_one_line(art_e: Run, args: list[str], words: list[str]) -> None:
    error = the_error(art_e(*args))
    for word in words:
        assert word in error


def test_our_fault_is_one_line_and_the_traceback_is_on_demand(
    art_e: Run, db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("by\nzero")

    monkeypatch.setattr("art_e.inbox.file.InboxFile.inboxes", fail)
    error = the_error(art_e("inboxes", "--db", db), code=1)
    assert "ZeroDivisionError: by zero" in error
    assert "ART_E_DEBUG=1" in error
    monkeypatch.setenv("ART_E_DEBUG", "1")
    assert "Traceback" in art_e("inboxes", "--db", db).stderr


def test_what_the_operating_system_refuses_is_mendable(art_e: Run, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    error = the_error(art_e("ingest", "synthetic:1000", "--db", file / "below" / "x.duckdb"))
    assert "name another place" in error


@pytest.mark.parametrize("json", [[], ["--json"]])
def test_a_reader_that_goes_away_is_no_error(
    process: Callable[..., "subprocess.Popen[str]"], db: Path, json: list[str]
) -> None:
    started = process("search", "lease", "--inbox", ANN, "--db", db, *json)
    assert started.stdout is not None and started.stderr is not None
    started.stdout.close()
    assert started.stderr.read() == ""
    assert started.wait() == 141
    started.stderr.close()


def test_it_runs_where_the_terminal_knows_ascii_only(db: Path, home: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "ART_E_HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-m", "art_e", "search", "Ünïcode", "--inbox", ANN, "--db", str(db)],
        capture_output=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0
