"""`art-e golden verify`: killed and run again, its budget, and what it says."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from art_e.cli.main import app
from data_pipeline.golden.golden_set import GoldenSet
from tests.data_pipeline.golden import verified
from tests.data_pipeline.golden.verified import JUDGE, READER, WRITER, CarefulReader
from tests.provider import Provider, Reply, Request, cut

FILES = ("questions.jsonl", "questions.parquet", "rejected.jsonl", "manifest.json", "README.md")


class Killing(CarefulReader):
    """Kills the process `victim` as the request of number `kill_at` comes, from 0."""

    def __init__(self, kill_at: int | None = None) -> None:
        super().__init__()
        self.kill_at = kill_at
        self.victim: int | None = None
        self.started = threading.Event()
        self.number = 0

    def __call__(self, request: Request) -> Reply:
        self.number += 1
        if self.number - 1 == self.kill_at:
            assert self.started.wait(30)
            assert self.victim is not None
            os.kill(self.victim, signal.SIGKILL)
            return cut(-1)
        return super().__call__(request)


class Verifying:
    """The command on the rows of `verified`, in the folder `out`."""

    def __init__(self, provider: Provider, db: Path, out: Path) -> None:
        self.out = out
        if not out.exists():
            verified.write_set(out)
        self._environment = {
            "ART_E_HOME": str(out.parent / "home"),
            "OPENAI_API_KEY": "sk-test-0123456789abcdef",
            "OPENAI_BASE_URL": provider.base_url,
        }
        self._arguments = ["golden", "verify", "--db", str(db), "--out", str(out), "--json"]

    def start(self, *more: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "art_e", *self._arguments, *more],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **self._environment},
        )

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


@pytest.fixture(scope="module")
def unkilled(db: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, bytes], int]:
    """The set as nobody killed it, and how many requests that took."""
    rule = Killing()
    with Provider(rule) as provider:
        command = Verifying(provider, db, tmp_path_factory.mktemp("unkilled") / "golden")
        result = command.invoke(*MODELS)
        assert result.exit_code == 0, result.output
        return command.files(), rule.number


# With the first, in the midst of several at once, and with the last request.
@pytest.mark.parametrize(("share", "at_once"), [(0.0, 1), (0.3, 8), (0.6, 2), (0.999, 1)])
def test_killed_and_run_again_it_is_the_same_set(
    db: Path,
    tmp_path: Path,
    unkilled: tuple[dict[str, bytes], int],
    share: float,
    at_once: int,
) -> None:
    wanted, requests = unkilled
    rule = Killing(int(share * requests))
    options = (*MODELS, "--concurrency", str(at_once))
    with Provider(rule) as provider:
        command = Verifying(provider, db, tmp_path / "golden")
        before = command.files()
        process = command.start(*options)
        rule.victim = process.pid
        rule.started.set()
        _, stderr = process.communicate(timeout=120)
        assert process.returncode == -signal.SIGKILL, stderr
        assert command.files() == before
        kept = len(list((command.out / "responses").rglob("*.json")))
        answered = sum(rule.asked.values())
        # What was answered as the kill came may not have reached the disk.
        assert answered - at_once <= kept <= answered
        result = command.invoke(*options)
        assert result.exit_code == 0, result.output
        assert command.files() == wanted
        twice = {each: times for each, times in rule.asked.items() if times > 1}
        assert len(twice) <= answered - kept
        assert len(rule.asked) == requests
        again = rule.number
        assert command.invoke(*options).exit_code == 0
        assert rule.number == again
    assert command.files() == wanted


def test_what_it_says(db: Path, tmp_path: Path) -> None:
    with Provider(CarefulReader()) as provider:
        command = Verifying(provider, db, tmp_path / "golden")
        result = command.invoke(*MODELS)
    shown: dict[str, Any] = json.loads(result.stdout)
    assert shown["step"] == "verify"
    assert shown["sums"]["in"] == len(verified.ROWS)
    assert (shown["model"], shown["strict"]) == (READER, False)
    host = provider.base_url.split("/")[2]
    assert f"mail text stays on this machine ({host}, {READER})" in result.stderr
    assert f"questions and answers go to {host} (judge {JUDGE})" in result.stderr
    assert "estimate: at most about $0." in result.stderr
    assert "assumed" in result.stderr
    assert "cost so far: $0." in result.stderr
    assert "sk-test" not in result.output


def test_one_limit_for_reader_and_judge(db: Path, tmp_path: Path) -> None:
    with Provider(CarefulReader()) as provider:
        command = Verifying(provider, db, tmp_path / "golden")
        result = command.invoke(*MODELS, "--max-cost", "0.1", "--concurrency", "1")
        assert result.exit_code == 0, result.output
        asked = len(provider.requests)
        assert "not checked: " in result.stderr
        assert "budget" in result.stderr
        spent = float(result.stderr.partition("cost so far: $")[2].split()[0])
        assert 0 < spent <= 0.1
        whole = command.invoke(*MODELS, "--max-cost", "5")
        assert json.loads(whole.stdout)["unchecked"] == {}
        assert len(provider.requests) > asked
    assert len(GoldenSet.load(command.out).questions) == json.loads(whole.stdout)["sums"]["kept"]


def test_offline(db: Path, tmp_path: Path) -> None:
    with Provider([]) as provider:
        command = Verifying(provider, db, tmp_path / "golden")
        result = command.invoke("--model", "offline")
        assert result.exit_code == 0, result.output
        assert provider.requests == []
    shown = json.loads(result.stdout)
    # A mail that is not there is no opinion.
    assert shown["sums"]["dropped"] == {"answerable": 1}
    assert (shown["model"], shown["judge"]) == ("offline", "offline/2")
    assert "--model" in result.stderr


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


def test_a_folder_that_holds_no_set(db: Path, tmp_path: Path) -> None:
    with Provider([]) as provider:
        command = Verifying(provider, db, tmp_path / "golden")
        for name in FILES:
            (command.out / name).unlink()
        result = command.invoke("--model", "offline")
    assert result.exit_code == 2
    assert "holds no golden set" in result.stderr
