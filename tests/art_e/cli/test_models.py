"""Models behind the command line: the real client libraries against a provider on this machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from art_e.models.base import Usage
from tests.builders import answer, read, search
from tests.command_line import ANN, LEASE_ID, Run
from tests.provider import Provider, rate_limited, says

ROOT = Path(__file__).parents[3]
KEY = "sk-test-0123456789abcdef"
QUESTION = "When does the warehouse lease end?"


SEARCH = says(None, search("warehouse", "lease"), usage=Usage(10_000, 0, 1_000, 600))
READ = says(None, read("m1"), usage=Usage(20_000, 8_000, 500))
ANSWER = says(None, answer("March 31, 2002", LEASE_ID), usage=Usage(30_000, 16_000, 250))
SCRIPT = [SEARCH, READ, ANSWER]
# o3 costs $2 a million prompt tokens, $0.50 cached, $8 completion: 36,000 + 24,000 + 1,750.
COST = 0.072 + 0.012 + 0.014


def ask(db: Path) -> list[object]:
    return ["ask", QUESTION, "--inbox", ANN, "--as-of", "2001-02-28", "--db", db, "--model", "o3"]


def assert_no_key(home: Path, *printed: str) -> None:
    """No part of the key is printed, or in any file of the home."""
    files = [each for each in home.rglob("*") if each.is_file()]
    for text in (*printed, *(each.read_text("utf-8", "replace") for each in files)):
        assert "0123456789" not in text
        assert KEY[-6:] not in text


def test_people_see_where_mail_goes_and_what_it_took(
    art_e: Run, db: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Provider([SEARCH, rate_limited("0"), READ, ANSWER]) as provider:
        provider.stand_in_for_openai(monkeypatch, KEY)
        host = provider.base_url.removeprefix("http://").removesuffix("/v1")
        result = art_e(*ask(db))
    assert result.exit_code == 0, result.output
    assert result.stderr == f"mail text stays on this machine ({host}, openai/o3)\n"
    found, source, took = result.stdout.splitlines()
    assert found == "March 31, 2002"
    assert source.endswith(LEASE_ID)
    assert took.startswith("3 turns, ")
    assert " s (model " in took and " s, tools " in took
    assert took.endswith(
        f"60,000 (24,000 cached) + 1,750 tokens, 1 retried, ${COST:.4f}, openai/o3"
    )
    assert_no_key(home, result.output)


def test_a_key_may_stand_in_the_env_file(
    db: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the environment sets wins over the file."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with Provider(SCRIPT, key=KEY) as provider:
        monkeypatch.setenv("OPENAI_BASE_URL", provider.base_url)
        (tmp_path / ".env").write_text(
            f"# X=1\nexport OPENAI_API_KEY='{KEY}'\nOPENAI_BASE_URL=http://127.0.0.1:9/v1\n"
        )
        done = subprocess.run(
            [sys.executable, "-m", "art_e", *map(str, ask(db))],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"ART_E_HOME": str(home), "PYTHONPATH": str(ROOT)},
        )
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "March 31, 2002"), done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert_no_key(home, done.stdout, done.stderr)
