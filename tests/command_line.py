"""The command line in tests, with a new home and small inboxes."""

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from art_e.cli.main import app
from art_e.models.base import ModelOptions
from art_e.models.calls import Retries
from art_e.models.hosted import LitellmPolicy
from data_pipeline.ingest.records import RawMessage
from tests.builders import QUICK, Make, make_inbox, once, raw, table
from tests.processes import start
from tests.provider import Provider

Run = Callable[..., Result]
Process = Callable[..., "subprocess.Popen[str]"]

ANN, BOB, EVE = "ann@harbor.example", "bob@harbor.example", "eve@evil.example"
LEASE_ID, HOSTILE_ID = "<lease.1@harbor.example>", "<hostile.1@evil.example>"

HOSTILE = "\x1b]0;owned\x07\x1b[45;5m\u202egpj.exe\u2066\x9b2J[bold]red[/bold]"


def hostile_mail() -> RawMessage:
    """Return a mail written as text, because the email package rejects such headers."""
    text = (
        f"Message-ID: {HOSTILE_ID}\nDate: Mon, 5 Mar 2001 10:00:00 +0000\n"
        f'From: "Eve {HOSTILE}" <{EVE}>\nTo: {ANN}\nSubject: prize {HOSTILE}\n'
        "Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: 8bit\n\n"
        f"Your zebra prize {HOSTILE} is waiting. \x1bP1;2q\x1b\\ The prize code is 7781.\n"
    )
    return RawMessage("test/hostile", text.encode())


MAILS = [*(raw(**each) for each in table(__file__, "harbor.toml")["mails"]), hostile_mail()]


@pytest.fixture(scope="session")
def db(shared: Path) -> Path:
    """Return an inbox file of a few mails, without an owner."""
    return once(shared / "small.duckdb", lambda path: make_inbox(path, MAILS))


@pytest.fixture(scope="session")
def owned_db(shared: Path) -> Path:
    """Return an inbox file of the same mails, with Ann as owner."""
    return once(shared / "owned.duckdb", lambda path: make_inbox(path, MAILS, owner=ANN))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ART_E_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def art_e(home: Path) -> Run:
    """Return a function that runs a command line here, in a new ART_E_HOME; `keys` are pressed."""
    runner = CliRunner(env={"ART_E_HOME": str(home)})

    def run(*args: object, keys: str | None = None) -> Result:
        return runner.invoke(app, [str(arg) for arg in args], input=keys)

    return run


@pytest.fixture
def process(home: Path) -> Process:
    """Return a function that starts a command line in a new process group."""

    return lambda *args, **options: start(args, {"ART_E_HOME": str(home)}, **options)


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Make Ctrl-C work even in a background job, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a Qwen2 of a few thousand weights."""
    from tests import tiny_qwen

    tokenizer = tiny_qwen.make_tokenizer(["When does the lease end?", tiny_qwen.stock_template()])
    model = tiny_qwen.make_model(tokenizer, hidden=16)
    return tiny_qwen.save(model, tokenizer, tmp_path_factory.mktemp("models") / "tiny@1 a")


@pytest.fixture(scope="session")
def adapter(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save an adapter of rank 12 that changes the output of `checkpoint`."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    folder = tmp_path_factory.mktemp("adapter") / "lora"
    model: Any = AutoModelForCausalLM.from_pretrained(checkpoint)
    layers = ["q_proj", "v_proj"]
    config = LoraConfig(r=12, lora_alpha=400, target_modules=layers, init_lora_weights=False)
    get_peft_model(model, config).save_pretrained(str(folder))
    return folder


def done(result: Result) -> Result:
    """Check that a command succeeded."""
    assert result.exit_code == 0, result.output
    return result


def json_of(result: Result) -> Any:
    return json.loads(done(result).stdout)


def the_error(result: Result, code: int = 2) -> str:
    """Return the one line that a failed command prints; check that it prints nothing else."""
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("Error: ")
    return lines[0]


def assert_safe(printed: str) -> None:
    """Assert that no control character reaches the terminal."""
    assert not set(printed) & {*map(chr, range(9)), "\x0b", "\x0c", "\r", *map(chr, range(14, 32))}
    assert not set(printed) & {*map(chr, range(0x7F, 0xA0))}
    assert not set(printed) & set("\u202e\u2066\u200e\u200f")


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Make:
    """Return a function that makes a policy of a provider, by default o3."""

    def policy(
        provider: Provider, model: str = "openai/o3", retries: Retries = QUICK, **options: Any
    ) -> LitellmPolicy:
        provider.stand_in_for_openai(monkeypatch)
        return LitellmPolicy(model, ModelOptions(**options), retries)

    return policy
