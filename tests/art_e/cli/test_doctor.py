"""`art-e doctor`: inbox, packages, models, and GPUs (cards, drivers and packages are made up)."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from art_e.cli import doctor
from art_e.cli.doctor import gpu_check
from tests.builders import WAIT_S
from tests.command_line import Run, json_of
from tests.provider import Provider, refuses, says

KEY = "sk-test-0123456789abcdef"


def test_a_fresh_machine_works(art_e: Run, home: Path, db: Path) -> None:
    report = json_of(art_e("doctor", "--json"))
    states = {check["name"]: check["state"] for check in report["checks"]}
    assert report["ok"] is True
    assert states["Python"] == states["packages"] == "ok"
    assert states["inbox file"] == "missing"
    shown = art_e("doctor")
    assert shown.exit_code == 0
    assert "-> art-e ingest SOURCE makes one" in shown.stdout
    assert not home.exists()
    assert f"{db}: 4 mails, 3 addresses" in art_e("doctor", "--db", db).stdout


def test_a_broken_part_is_shown_with_its_fix(
    art_e: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corrupt = tmp_path / "corrupt.duckdb"
    corrupt.write_bytes(b"nothing")
    result = art_e("doctor", "--db", corrupt, "--json")
    assert result.exit_code == 1
    [inbox] = [each for each in json.loads(result.stdout)["checks"] if each["state"] == "broken"]
    assert "art-e ingest" in inbox["detail"]
    monkeypatch.setattr(doctor, "TRAINING", ("nothing_of_that_name",))
    assert art_e("doctor").exit_code == 0
    monkeypatch.setattr(doctor, "CORE", ("duckdb", "nothing_of_that_name"))
    result = art_e("doctor")
    assert result.exit_code == 1
    assert "nothing_of_that_name" in result.stdout and "pip install" in result.stdout


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """No key, no server and no `.env`."""
    for name in [each for each in os.environ if re.search("_API_(KEY|BASE)$|_BASE_URL$", each)]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("shutil.which", lambda _: None)
    return monkeypatch


def models(result: Result) -> dict[str, dict[str, Any]]:
    """The checks of models, by the model's name."""
    return {each["name"].removeprefix("model "): each for each in json_of(result)["checks"]}


def test_each_model_says_what_to_export(art_e: Run, bare: pytest.MonkeyPatch) -> None:
    checks = models(art_e("doctor", "--json"))
    for model, words in {
        "openai/o3": "export OPENAI_API_KEY=",
        "gemini/gemini-2.5-pro": "export GEMINI_API_KEY=",
        "anthropic/claude-sonnet-5-5": "export ANTHROPIC_API_KEY=",
        "ollama_chat/qwen2.5:14b": "ollama pull qwen2.5:14b",
        "hosted_vllm/Qwen2.5-14B-Instruct": "export HOSTED_VLLM_API_BASE=",
    }.items():
        assert checks[model]["state"] == "missing"
        assert words in checks[model]["fix"]
    assert checks["local:PATH"]["state"] in ("ok", "missing")
    bare.setenv("GOOGLE_API_KEY", KEY)
    checks = models(art_e("doctor", "--json"))
    assert checks["gemini/gemini-2.5-pro"]["state"] == "ok"
    assert checks["openai/o3"]["state"] == "missing"


def test_online_asks_each_ready_model_once(art_e: Run, bare: pytest.MonkeyPatch) -> None:
    replies = {
        "o3": says("OK."),
        "o4-mini": refuses(400, "max_tokens or model output limit was reached."),
        "gpt-4.1": refuses(401, f"Incorrect API key provided: {KEY[:7]}*****{KEY[-4:]}"),
    }
    with Provider(lambda request: replies[request.body["model"]]) as provider:
        bare.setenv("OPENAI_BASE_URL", provider.base_url)
        bare.setenv("OPENAI_API_KEY", KEY)
        bare.setenv("HOSTED_VLLM_API_BASE", "http://127.0.0.1:9/v1")
        bare.setattr(doctor, "ONLINE_TIMEOUT_S", WAIT_S)
        result = art_e("doctor", "--online", "--json")
        requests = provider.requests
    assert sorted(each.body["model"] for each in requests) == sorted(replies)
    for each in requests:
        assert 16 in (each.body.get("max_completion_tokens"), each.body.get("max_tokens"))
    checks = models(result)
    assert (checks["openai/o3"]["state"], checks["openai/o3"]["detail"]) == ("ok", "answered")
    # It spent its few tokens on thinking, so it works.
    assert checks["openai/o4-mini"]["state"] == "ok"
    refused = checks["openai/gpt-4.1"]
    assert refused["state"] == "missing" and refused["detail"].startswith("401: Incorrect API key")
    assert "no server answers" in checks["hosted_vllm/Qwen2.5-14B-Instruct"]["detail"]
    assert "0123456789" not in result.output and KEY[-4:] not in result.output


# GPUs

CLOSED_MODULE = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15\n"


def test_a_driver_without_a_device_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    (tmp_path / "version").write_text(CLOSED_MODULE, encoding="utf-8")
    monkeypatch.setattr(doctor, "DRIVER", tmp_path / "version")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
    check = gpu_check()
    assert check.state == "missing"
    assert "NVIDIA driver 535.104.05, but no CUDA device" in check.detail
    assert "built without CUDA" in check.detail
    assert check.fix is not None and "580" in check.fix
