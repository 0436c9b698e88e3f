"""`golden filter` as a user runs it."""

import datetime as dt
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from art_e.cli.golden_filter import MIN_REALISM
from art_e.cli.main import app
from art_e.question import Question
from data_pipeline.golden import filtering
from data_pipeline.golden.golden_set import GoldenSet
from tests.mails import make_inbox, raw


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A folder with an inbox file and a set of one good row and one unrealistic one."""
    make_inbox(tmp_path / "inbox.duckdb", [raw("<1@test>", body="The lease ends on May 7.")])
    rows = [
        Question(
            f"q-{number}",
            text,
            "ann@test.example",
            dt.date(2020, 2, 1),
            "May 7",
            ("<1@test>",),
            rated,
        )
        for number, (text, rated) in enumerate(
            [("When does the lease end?", 0.9), ("What ends on a day in spring?", 0.65)]
        )
    ]
    GoldenSet(rows).save(tmp_path / "golden")
    return tmp_path


def run(made: Path, *args: str) -> Result:
    paths = ["--db", str(made / "inbox.duckdb"), "--out", str(made / "golden")]
    return CliRunner().invoke(app, ["golden", "filter", *paths, *args])


def test_it_says_what_it_dropped_and_what_is_next(made: Path) -> None:
    result = run(made)
    assert result.exit_code == 0, result.output
    assert "filter: 2 rows, 1 kept" in result.stdout
    assert "1  dropped: realism" in result.stdout
    assert "art-e golden verify" in result.stderr
    assert [each.id for each in GoldenSet.load(made / "golden").questions] == ["q-0"]


def test_a_rerun_with_another_bound_starts_anew(made: Path) -> None:
    assert run(made).exit_code == 0
    first = (made / "golden" / "rejected.jsonl").read_bytes()
    told = json.loads(run(made, "--min-realism", "0.6", "--json").stdout)
    assert (told["min_realism"], told["sums"]["kept"], told["sums"]["dropped"]) == (0.6, 2, {})
    assert run(made).exit_code == 0
    assert (made / "golden" / "rejected.jsonl").read_bytes() == first


def test_mistakes_are_told_in_one_line(made: Path, tmp_path: Path) -> None:
    assert run(made, "--min-realism", "2").exit_code == 2
    result = CliRunner().invoke(
        app,
        ["golden", "filter", "--db", str(made / "inbox.duckdb"), "--out", str(tmp_path / "none")],
    )
    assert result.exit_code != 0


def test_the_default_is_the_steps() -> None:
    assert MIN_REALISM == filtering.MIN_REALISM
