"""`golden filter` as a user runs it."""

import datetime as dt
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from art_e.cli.main import app
from art_e.question import Question
from data_pipeline.golden.golden_set import GoldenSet
from tests.builders import make_inbox, raw


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


def refused(*args: object) -> str:
    """The one line that a wrong call is answered with."""
    result = CliRunner().invoke(app, [*map(str, args)])
    assert result.exit_code == 2, result.output
    [line] = [each for each in result.stderr.splitlines() if "rror" in each]
    return line


def test_it_says_what_it_took_back(made: Path) -> None:
    assert "anew" not in run(made).stderr
    paths = ["--db", str(made / "inbox.duckdb"), "--out", str(made / "golden")]
    for arguments in (["split", *paths], ["verify", "--model", "offline", *paths]):
        assert CliRunner().invoke(app, ["golden", *arguments]).exit_code == 0
    # Verifying took the split back, and with it what it had drawn.
    assert GoldenSet.load(made / "golden").manifest.keys() == {"schema", "steps"}
    assert CliRunner().invoke(app, ["golden", "split", *paths]).exit_code == 0
    assert "filter anew: verify, split must be run again" in run(made).stderr
    assert "anew" not in run(made).stderr


def test_another_inbox_file_than_the_sets_is_refused(made: Path) -> None:
    golden = GoldenSet.load(made / "golden")
    golden.manifest["db"] = {"name": "inbox.duckdb", "mails": 1}
    golden.save(made / "golden")
    before = (made / "golden" / "questions.jsonl").read_bytes()
    others = [raw(f"<{number}@test>", body=f"Number {number}.") for number in range(2)]
    make_inbox(made / "other.duckdb", others)
    for command in ("filter", "verify", "split"):
        arguments = ["golden", command, "--db", made / "other.duckdb", "--out", made / "golden"]
        assert "the set was made from inbox.duckdb with 1 mail" in refused(*arguments)
    review = ["golden", "review", made / "golden", "--db", made / "other.duckdb", "--apply"]
    assert "name that file with --db" in refused(*review)
    assert (made / "golden" / "questions.jsonl").read_bytes() == before
    assert run(made).exit_code == 0
