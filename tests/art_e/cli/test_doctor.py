import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from art_e.cli.doctor import HOSTED
from art_e.models.providers import load_litellm
from tests.command_line import Run, json_of
from tests.provider import Provider, Reply, Request, refuses, says


def test_a_fresh_machine_works(art_e: Run, home: Path) -> None:
    report = json_of(art_e("doctor", "--json"))
    states = {check["name"]: check["state"] for check in report["checks"]}
    assert report["ok"] is True
    assert states["Python"] == states["DuckDB"] == states["packages"] == "ok"
    assert states["inbox file"] == "missing"
    shown = art_e("doctor")
    assert shown.exit_code == 0
    assert "-> art-e ingest SOURCE makes one" in shown.stdout
    assert not home.exists()


def test_what_is_broken_is_said_with_its_fix(
    art_e: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corrupt = tmp_path / "corrupt.duckdb"
    corrupt.write_bytes(b"nothing")
    result = art_e("doctor", "--db", corrupt, "--json")
    assert result.exit_code == 1
    [inbox] = [each for each in json.loads(result.stdout)["checks"] if each["state"] == "broken"]
    assert "art-e ingest" in inbox["detail"]
    monkeypatch.setattr("art_e.cli.doctor.CORE", ("duckdb", "nothing_of_that_name"))
    result = art_e("doctor")
    assert result.exit_code == 1
    assert "nothing_of_that_name" in result.stdout and "pip install" in result.stdout


VARIABLES = (
    "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE", "GEMINI_API_KEY", "GOOGLE_API_KEY",
    "ANTHROPIC_API_KEY", "OLLAMA_API_BASE", "HOSTED_VLLM_API_BASE",
)  # fmt: skip
KEY = "sk-test-0123456789abcdef"


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """No key, no server and no `.env`."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("shutil.which", lambda _: None)
    return monkeypatch


def models(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    named = {each["name"]: each for each in report["checks"]}
    return {
        name.removeprefix("model "): each
        for name, each in named.items()
        if name.startswith("model ")
    }


def test_each_model_says_what_to_export(art_e: Run, bare: pytest.MonkeyPatch) -> None:
    checks = models(json_of(art_e("doctor", "--json")))
    for model, words in {
        "openai/o3": "export OPENAI_API_KEY=",
        "openai/o4-mini": "export OPENAI_API_KEY=",
        "openai/gpt-4.1": "export OPENAI_API_KEY=",
        "gemini/gemini-2.5-pro": "export GEMINI_API_KEY=",
        "anthropic/claude-sonnet-5-5": "export ANTHROPIC_API_KEY=",
        "ollama_chat/qwen2.5:14b": "ollama pull qwen2.5:14b",
        "hosted_vllm/Qwen2.5-14B-Instruct": "export HOSTED_VLLM_API_BASE=",
    }.items():
        assert checks[model]["state"] == "missing"
        assert words in checks[model]["fix"]
    installed = all(importlib.util.find_spec(each) for each in ("torch", "transformers"))
    assert checks["local:PATH"]["state"] == ("ok" if installed else "missing")
    bare.setenv("GOOGLE_API_KEY", KEY)
    bare.setenv("OLLAMA_API_BASE", "http://localhost:11434")
    checks = models(json_of(art_e("doctor", "--json")))
    assert checks["gemini/gemini-2.5-pro"]["state"] == "ok"
    assert checks["ollama_chat/qwen2.5:14b"]["state"] == "ok"
    assert checks["openai/o3"]["state"] == "missing"


def test_without_online_nothing_is_sent_and_litellm_not_imported(home: Path) -> None:
    script = (
        "import socket, sys\n"
        "def refuse(*_):\n    raise AssertionError('network')\n"
        "socket.socket.connect = socket.getaddrinfo = refuse\n"
        "from art_e.cli import doctor as doctor_gpu\n"
        "doctor_gpu.driver_version = lambda: None\n"
        "from art_e.cli.main import app\n"
        "try:\n    app(['doctor'])\nexcept SystemExit as end:\n    assert not end.code\n"
        "print([name for name in ('litellm', 'torch') if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "ART_E_HOME": str(home), "OPENAI_API_KEY": KEY},
    )
    assert done.stderr == "[]\n"
    assert KEY not in done.stdout


def test_online_asks_each_ready_model_once(art_e: Run, bare: pytest.MonkeyPatch) -> None:
    def rule(request: Request) -> Reply:
        if request.body["model"] == "o4-mini":
            return refuses(400, "max_tokens or model output limit was reached.")
        if request.body["model"] == "gpt-4.1":
            return refuses(401, f"Incorrect API key provided: {KEY[:7]}*****{KEY[-4:]}")
        return says("OK.")

    with Provider(rule) as provider:
        bare.setenv("OPENAI_BASE_URL", provider.base_url)
        bare.setenv("OPENAI_API_KEY", KEY)
        bare.setenv("HOSTED_VLLM_API_BASE", "http://127.0.0.1:9/v1")
        result = art_e("doctor", "--online", "--json")
        requests = provider.requests
    assert sorted(each.body["model"] for each in requests) == ["gpt-4.1", "o3", "o4-mini"]
    for each in requests:
        bounds = [each.body.get(name) for name in ("max_completion_tokens", "max_tokens")]
        assert 16 in bounds
    checks = models(json_of(result))
    assert (checks["openai/o3"]["state"], checks["openai/o3"]["detail"]) == ("ok", "answered")
    # It spent its few tokens on thinking, so it works.
    assert checks["openai/o4-mini"]["state"] == "ok"
    refused = checks["openai/gpt-4.1"]
    assert refused["state"] == "missing" and refused["detail"].startswith("401: Incorrect API key")
    assert "no server answers" in checks["hosted_vllm/Qwen2.5-14B-Instruct"]["detail"]
    for hidden in ("0123456789", KEY[-4:]):
        assert hidden not in result.output
