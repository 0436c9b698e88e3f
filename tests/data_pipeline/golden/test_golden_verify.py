"""`art-e golden verify`: its budget, what it says, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from art_e.cli.main import app
from art_e.question import Question
from data_pipeline.golden.asking import spent_on
from data_pipeline.golden.golden_set import GoldenSet
from tests.data_pipeline.golden import verified
from tests.data_pipeline.golden.verified import JUDGE, READER, WRITER, CarefulReader
from tests.provider import Provider

FILES = ("questions.jsonl", "questions.parquet", "rejected.jsonl", "manifest.json", "README.md")


class Verifying:
    """The command on the rows of `verified`, in the folder `out`."""

    def __init__(
        self, provider: Provider, db: Path, out: Path, rows: tuple[Question, ...] = verified.ROWS
    ) -> None:
        self.out = out
        verified.write_set(out, rows)
        self._environment = {
            "ART_E_HOME": str(out.parent / "home"),
            "OPENAI_API_KEY": "sk-test-0123456789abcdef",
            "OPENAI_BASE_URL": provider.base_url,
        }
        self._arguments = ["golden", "verify", "--db", str(db), "--out", str(out), "--json"]

    def invoke(self, *more: str) -> Result:
        return CliRunner(env=self._environment).invoke(app, [*self._arguments, *more])

    def files(self) -> dict[str, bytes]:
        return {name: (self.out / name).read_bytes() for name in FILES}


MODELS = ("--model", READER, "--judge", JUDGE)


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("verify") / "inbox.duckdb"
    verified.write_inbox(path)
    return path


def test_what_it_says(db: Path, tmp_path: Path) -> None:
    with Provider(CarefulReader()) as provider:
        command = Verifying(provider, db, tmp_path / "golden")
        result = command.invoke(*MODELS)
        asked = len(provider.requests)
        again = command.invoke(*MODELS)
        assert len(provider.requests) == asked
    shown: dict[str, Any] = json.loads(result.stdout)
    assert shown["step"] == "verify"
    assert shown["sums"]["in"] == len(verified.ROWS)
    assert (shown["model"], shown["strict"]) == (READER, False)
    host = provider.base_url.split("/")[2]
    assert f"mail text stays on this machine ({host}, {READER})" in result.stderr
    assert f"questions and answers go to {host} (judge {JUDGE})" in result.stderr
    assert "estimate: at most about $0." in result.stderr
    # Reader and judge were paid in full, however often it is run.
    both = spent_on(command.out, "read", READER), spent_on(command.out, "judge", JUDGE)
    assert all(each.cost_usd for each in both)
    paid = sum(each.cost_usd or 0 for each in both)
    assert f"cost so far: ${paid:.4f}\n" in result.stderr
    assert f"cost so far: ${paid:.4f}\n" in again.stderr
    assert "sk-test" not in result.output


def test_one_limit_for_reader_and_judge(db: Path, tmp_path: Path) -> None:
    with Provider(CarefulReader()) as provider:
        command = Verifying(provider, db, tmp_path / "golden")
        result = command.invoke(*MODELS, "--max-cost", "0.05", "--concurrency", "1")
        assert result.exit_code == 0, result.output
        asked = len(provider.requests)
        assert "not checked: " in result.stderr
        assert "budget" in result.stderr
        assert "the same command with a higher --max-cost" in result.stderr
        assert "the same command again" not in result.stderr
        spent = float(result.stderr.partition("cost so far: $")[2].split()[0])
        assert 0 < spent <= 0.05
        whole = command.invoke(*MODELS, "--max-cost", "5")
        assert json.loads(whole.stdout)["unchecked"] == {}
        assert len(provider.requests) > asked
    assert len(GoldenSet.load(command.out).questions) == json.loads(whole.stdout)["sums"]["kept"]


@pytest.mark.parametrize(
    ("options", "fix"),
    [
        (["--model", WRITER], "name another --model"),
        (["--model", "offline", "--judge", JUDGE], "leave out --judge"),
        (["--model", "nobody/nothing"], "nobody/nothing"),
        (["--model", "local:checkpoint"], "hosted_vllm/NAME"),
    ],
)
def test_refusals_name_the_fix(db: Path, tmp_path: Path, options: list[str], fix: str) -> None:
    with Provider([]) as provider:
        command = Verifying(provider, db, tmp_path / "golden")
        before = command.files()
        result = command.invoke(*options)
        assert result.exit_code == 2
        assert fix in result.stderr
        assert len(result.stderr.strip().splitlines()) == 1
        assert command.files() == before
