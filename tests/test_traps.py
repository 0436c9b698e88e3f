"""Code in a foreign folder is not run: every command that starts processes, among traps."""

import os
import pty
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from data_pipeline.ingest.batch import MIN_FOR_WORKERS
from tests.builders import WAIT_S, raw, with_files
from tests.dovecot import PASSWORD, USER, dovecot
from tests.mailbox import excel
from tests.processes import start, wait_until
from tests.training import tiny
from tests.training.test_reproduce import TINY

NAMES = (
    "art_e", "evals", "training", "data_pipeline", "multiprocessing", "pickle", "socket", "json",
    "sitecustomize", "usercustomize", "torch", "numpy", "pyarrow", "openpyxl", "vllm", "trl",
)  # fmt: skip
MAIL = with_files(raw(body="See the costs."), {"costs.xlsx": excel("Worktop in oak")})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of mail with a module of each name, which writes to `ran` if it is run."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in NAMES:
        code = f"open({str(tmp_path / 'ran')!r}, 'a').write('{name} ')\n"
        (folder / name).mkdir()
        for module in (f"{name}.py", f"{name}/__init__.py", f"{name}/__main__.py"):
            (folder / module).write_text(code)
    (folder / "matplotlibrc").write_text("figure.dpi: -1\nbackend: module://json\n")
    mails = [MAIL, *(raw(f"<{n}@many.example>") for n in range(MIN_FOR_WORKERS))]
    line = b"From a@b Mon Jan  6 09:00:00 2020\n"
    (folder / "many.mbox").write_bytes(b"".join(line + each.data + b"\n" for each in mails))
    return folder


Cli = Callable[..., str]


@pytest.fixture
def cli(folder: Path, home: Path, tmp_path: Path) -> Cli:
    """Return a function that runs a command line there, and checks that no trap ran."""

    def run(*args: object, code: int = 0, **environment: str) -> str:
        command = [sys.executable, "-P", "-m", "art_e", *map(str, args)]
        env = {**os.environ, "ART_E_HOME": str(home), **environment}
        env.pop("PYTHONSAFEPATH", None)
        options: Any = {"cwd": folder, "env": env, "text": True, "capture_output": True}
        done: subprocess.CompletedProcess[str] = subprocess.run(command, check=False, **options)
        assert done.returncode == code, done.stderr
        assert not (tmp_path / "ran").exists(), (tmp_path / "ran").read_text()
        return done.stdout

    return run


def test_ingest_and_evaluation_run_no_trap(cli: Cli) -> None:
    cli("ingest", ".", "--owner", "bob@test.example", "--db", "own.duckdb")
    assert "Hello" in cli("search", "worktop", "--db", "own.duckdb")
    cli("ingest", "synthetic:1000", "--db", "made.duckdb")
    options = ("--questions", "made.questions.jsonl", "--db", "made.duckdb", "--limit", 4)
    cli("eval", "run", "-m", "offline", *options, "--out", "run")
    cli("eval", "report", "run", "--out", "page.html")


def test_serving_runs_no_trap(cli: Cli, folder: Path, checkpoint: Path) -> None:
    """A checkpoint named art_e is served by a stand-in for vLLM, which spawns processes, too."""
    shutil.copytree(checkpoint, folder / "art_e", dirs_exist_ok=True)
    vllm = folder.parent / "bin" / "vllm"
    vllm.parent.mkdir()
    spawns = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import art_e, json'])"
    vllm.write_text(f"#!{sys.executable}\n{spawns}\nprint(sys.argv[2], file=sys.stderr)")
    vllm.chmod(0o755)
    path = f"{vllm.parent}{os.pathsep}{os.environ['PATH']}"
    assert "--model hosted_vllm/art_e" in cli("serve", "./art_e", PATH=path)


@pytest.mark.long
def test_accounts_run_no_trap(cli: Cli) -> None:
    with dovecot() as server:
        with server.client() as imap:
            imap.append("INBOX", "", "", MAIL.data)
        account = f"imap://{USER}@127.0.0.1:{server.port}"
        cli("ingest", account, "--db", "mine.duckdb", ART_E_IMAP_PASSWORD=PASSWORD)
        cli("sync", "--db", "mine.duckdb", ART_E_IMAP_PASSWORD=PASSWORD)
    assert "Hello" in cli("search", "worktop", "--db", "mine.duckdb")


@pytest.mark.long
def test_training_and_reproduction_run_no_trap(cli: Cli) -> None:
    changes = tiny.flags(*tiny.CHANGES)
    cli("train", "sft", *changes, "--out", "start")
    cli("train", "grpo", *changes, "--set", "model.base=start", "--out", "trained")
    cli("reproduce", "--profile", "nano", *tiny.flags(*TINY), "--out", "all")


def test_no_command_line_holds_the_pages_token(owned_db: Path, tmp_path: Path) -> None:
    seen, browser = tmp_path / "seen", tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {seen}.new; mv {seen}.new {seen}\n')
    browser.chmod(0o755)
    terminal, inside = pty.openpty()
    environment = {"BROWSER": str(browser), "ART_E_HOME": str(tmp_path / "home")}
    running = start(["web", "--db", owned_db], environment, stdout=inside)
    wait_until(seen.exists, running)
    address = os.read(terminal, 1000).decode().strip()
    page = Path(seen.read_text().strip().removeprefix("file://"))
    assert "token" in address and address in page.read_text()
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    running.terminate()
    running.communicate(timeout=WAIT_S)
