"""`doctor`, `models` and `config`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from art_e.cli import doctor
from art_e.config import SETTINGS
from art_e.models import model as module
from art_e.models.model import LocalServer, Suggestion, suggest_models
from art_e.tools import schemas
from tests.builders import WAIT_S, search, table_rows
from tests.command_line import ANN, BOB, Run, json_of, the_error
from tests.provider import Provider, json_server, refuses, says

KEY = "sk-test-0123456789abcdef"


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """No program and no `.env`; a long timeout for servers on a busy machine."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr(module, "_TIMEOUT_S", WAIT_S)
    return monkeypatch


def test_fresh_machine_passes(art_e: Run, home: Path, db: Path, bare: pytest.MonkeyPatch) -> None:
    report = json_of(art_e("doctor", "--json"))
    checks = {each["name"].removeprefix("model "): each for each in report["checks"]}
    assert report["ok"] is True
    assert checks["Python"]["state"] == checks["packages"]["state"] == "ok"
    for name, words in table_rows(__file__, "fixes.tsv"):
        assert checks[name]["state"] == "missing" and words in checks[name]["fix"]
    assert checks["local:PATH"]["state"] in ("ok", "missing")
    assert not home.exists()
    bare.setenv("GOOGLE_API_KEY", KEY)
    result = art_e("doctor", "--db", db)
    assert result.exit_code == 0 and "0123456789" not in result.output
    assert f"{db}: 4 mails, 3 addresses" in result.stdout
    assert "gemini/gemini-2.5-pro: GOOGLE_API_KEY is set" in result.stdout


def test_broken_part_is_named(art_e: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_online_asks_each_ready_model_once(art_e: Run, bare: pytest.MonkeyPatch) -> None:
    replies = {
        "o3": says("OK."),
        "gpt-5.4-mini": says(None, search("lease")),
        "gpt-4.1": refuses(401, f"Incorrect API key provided: {KEY[:7]}*****{KEY[-4:]}"),
    }
    with Provider(lambda request: replies[request.body["model"]]) as provider:
        provider.stand_in_for_openai(bare, KEY)
        bare.setenv("HOSTED_VLLM_API_BASE", "http://127.0.0.1:9/v1")
        bare.setattr(doctor, "ONLINE_TIMEOUT_S", WAIT_S)
        result = art_e("doctor", "--online", "--json")
        requests = provider.requests
    assert sorted(each.body["model"] for each in requests) == sorted(replies)
    for request in requests:  # they have the tools that `ask` sends
        assert request.body["tools"] == schemas() and request.body["tool_choice"] == "required"
    rows = {each["name"]: each for each in json.loads(result.stdout)["checks"]}
    for model, state, detail in table_rows(__file__, "online.tsv"):
        row = rows[f"model {model}"]
        assert row["state"] == state and detail in row["detail"]
    assert "openai/gpt-5.4 instead" in rows["model openai/o3"]["detail"]
    assert "0123456789" not in result.output and KEY[-4:] not in result.output


def test_config_shows_changes_and_removes_settings(art_e: Run, home: Path) -> None:
    assert json_of(art_e("config", "--json")) == {}
    text = art_e("config").stdout
    assert all(f"{name}: (not set)" in text for name in SETTINGS)
    assert json_of(art_e("config", "model", "gpt-4.1", "--json")) == {"model": "openai/gpt-4.1"}
    assert "openai/gpt-4.1" in art_e("config", "model").stdout
    assert (home / "config.toml").read_text() == 'model = "openai/gpt-4.1"\n'
    assert json_of(art_e("config", "inbox", f" {ANN.upper()}", "--json"))["inbox"] == ANN
    assert json_of(art_e("config", "model", "--unset", "--json")) == {"inbox": ANN}


@pytest.mark.parametrize("text", ["model = 3", "model", 'colour = "red"'])
def test_error_names_a_damaged_config(text: str, art_e: Run, home: Path, tmp_path: Path) -> None:
    home.mkdir()
    (home / "config.toml").write_text(text)
    assert "config.toml" in the_error(art_e("ask", "When?", "--db", tmp_path / "i.duckdb"))


def test_settings_apply(art_e: Run, owned_db: Path, home: Path, bare: pytest.MonkeyPatch) -> None:
    art_e("config", "db", owned_db)
    assert json_of(art_e("inboxes", "--json"))["total"] > 1
    art_e("config", "inbox", BOB)
    ask = ("ask", "When does the lease end?", "--json")
    # Another file has another owner.
    for options, address in (((), BOB), (("--inbox", ANN), ANN), (("--db", owned_db), ANN)):
        assert json_of(art_e(*ask, *options))["inbox_address"] == address
    (home / "config.toml").write_text('model = "openai/o3"\n')
    assert "OPENAI_API_KEY" in the_error(art_e(*ask, "--db", owned_db))
    assert json_of(art_e(*ask, "--model", "offline", "--db", owned_db))["model"] == "offline"


@pytest.fixture
def servers() -> Iterator[list[LocalServer]]:
    """Start an Ollama, a vLLM, a server with an invalid answer, and one that does not run."""
    replies: dict[str, Any] = {
        "/api/tags": {"models": [{"name": "qwen2.5:14b"}, {"name": "llama3"}]},
        "/v1/models": {"object": "list", "data": [{"id": "mine"}]},
        "/odd": ["nonsense"],
    }
    with json_server(lambda _, path, *__: (200, replies[path])) as address:
        yield [
            LocalServer("Ollama", address, "/api/tags", "ollama_chat"),
            LocalServer("vLLM", address, "/v1/models", "hosted_vllm"),
            LocalServer("Odd", address, "/odd", "openai_like"),
            LocalServer("None", "http://127.0.0.1:9", "/v1/models", "lm_studio"),
        ]


def test_models_here_first(
    art_e: Run, servers: list[LocalServer], bare: pytest.MonkeyPatch
) -> None:
    bare.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    served = f"{servers[1].address}/v1"
    assert suggest_models(servers) == [
        Suggestion("ollama_chat/qwen2.5:14b", "Ollama listens here"),
        Suggestion("ollama_chat/llama3", "Ollama listens here"),
        Suggestion("hosted_vllm/mine", "vLLM listens here", "HOSTED_VLLM_API_BASE", served),
    ]
    bare.setattr("art_e.cli.doctor.suggest_models", lambda: suggest_models(servers))
    listed = json_of(art_e("models", "--json"))
    assert [each["model"] for each in listed["nearby"]][:1] == ["ollama_chat/qwen2.5:14b"]
    assert {"name", "state", "detail", "fix"} == set(listed["models"][0])
    assert listed["models"][0]["name"] == "offline"
    text = art_e("models").stdout
    assert "Ollama listens here" in text and "export OPENAI_API_KEY" in text
    bare.setenv("HOSTED_VLLM_API_BASE", served)
    bare.setenv("OPENAI_API_KEY", "sk-something-secret")
    # A variable may point llama.cpp and vLLM to the same server.
    *_, vllm, hosted = suggest_models([*servers, servers[1]._replace(address="http://127.0.0.1:9")])
    assert vllm == Suggestion("hosted_vllm/mine", "vLLM listens here")
    assert hosted == Suggestion("openai/gpt-5.4-mini", "OPENAI_API_KEY is set")
