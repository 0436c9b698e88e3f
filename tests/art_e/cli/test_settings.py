"""`config` and `models`: a choice made once, and what there is to choose from."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from art_e.config import SETTINGS
from art_e.models import nearby as module
from art_e.models.nearby import Near, Nearby, nearby
from tests.builders import WAIT_S
from tests.command_line import ANN, BOB, Run, json_of, the_error
from tests.provider import json_server


@pytest.fixture
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key, and time for servers on a busy machine."""
    monkeypatch.setattr(module, "_TIMEOUT_S", WAIT_S)
    for names in module.BY_KEY.values():
        for name in names:
            monkeypatch.delenv(name, raising=False)


def test_a_setting_is_shown_changed_and_removed(art_e: Run, home: Path) -> None:
    assert json_of(art_e("config", "--json")) == {}
    shown = art_e("config").stdout
    assert all(f"{name}: (not set)" in shown for name in SETTINGS)
    assert json_of(art_e("config", "model", "gpt-4.1", "--json")) == {"model": "openai/gpt-4.1"}
    assert "openai/gpt-4.1" in art_e("config", "model").stdout
    text = (home / "config.toml").read_text()
    assert text == 'model = "openai/gpt-4.1"\n'
    assert json_of(art_e("config", "inbox", f" {ANN.upper()}", "--json"))["inbox"] == ANN
    assert json_of(art_e("config", "model", "--unset", "--json")) == {"inbox": ANN}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["mode", "o3"], "no setting 'mode'; there are model, db, inbox, judge"),
        (["model", "nobody/nothing"], "nobody/nothing"),
        (["inbox", "ann"], "no address"),
        (["db", "none.duckdb"], "no inbox file"),
        (["--unset"], "--unset takes the name"),
    ],
)
def test_what_can_not_be_used_is_not_kept(
    arguments: list[str], says: str, art_e: Run, home: Path
) -> None:
    assert says in the_error(art_e("config", *arguments))
    assert not (home / "config.toml").exists()


@pytest.mark.parametrize("text", ["model = 3", "model", 'colour = "red"'])
def test_a_damaged_file_is_told(text: str, art_e: Run, home: Path, tmp_path: Path) -> None:
    home.mkdir()
    (home / "config.toml").write_text(text)
    assert "config.toml" in the_error(art_e("ask", "When?", "--db", tmp_path / "i.duckdb"))


def test_commands_use_what_is_set_and_options_come_first(
    art_e: Run, owned_db: Path, home: Path
) -> None:
    art_e("config", "db", owned_db)
    assert json_of(art_e("inboxes", "--json"))["total"] > 1
    art_e("config", "inbox", BOB)
    assert json_of(art_e("ask", "When does the lease end?", "--json"))["inbox_address"] == BOB
    chosen = art_e("ask", "When does the lease end?", "--inbox", ANN, "--json")
    assert json_of(chosen)["inbox_address"] == ANN
    # Another file has another owner.
    named = art_e("ask", "When does the lease end?", "--db", owned_db, "--json")
    assert json_of(named)["inbox_address"] == ANN
    (home / "config.toml").write_text('model = "openai/o3"\n')
    assert "OPENAI_API_KEY" in the_error(art_e("ask", "When?", "--db", owned_db))
    offline = art_e("ask", "When does it end?", "--model", "offline", "--db", owned_db, "--json")
    assert json_of(offline)["model"] == "offline"


# ---- What is at hand.


@pytest.fixture
def servers() -> Iterator[list[Nearby]]:
    """An Ollama, a vLLM, a server that says nonsense, and one that nobody runs."""
    replies: dict[str, Any] = {
        "/api/tags": {"models": [{"name": "qwen2.5:14b"}, {"name": "llama3"}]},
        "/v1/models": {"object": "list", "data": [{"id": "mine"}]},
        "/odd": ["nonsense"],
    }

    def reply(_: str, path: str, __: object, ___: bytes) -> tuple[int, Any]:
        return 200, replies[path]

    with json_server(reply) as address:
        yield [
            Nearby("Ollama", address, "/api/tags", "ollama_chat"),
            Nearby("vLLM", address, "/v1/models", "hosted_vllm", "HOSTED_VLLM_API_BASE"),
            Nearby("Odd", address, "/odd", "odd"),
            Nearby("None", "http://127.0.0.1:9", "/v1/models", "none"),
        ]


@pytest.mark.usefixtures("no_keys")
def test_models_of_servers_that_listen_here_come_before_those_by_key(
    servers: list[Nearby], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOSTED_VLLM_API_BASE", raising=False)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    served = f"{servers[1].address}/v1"
    found = [
        Near("ollama_chat/qwen2.5:14b", "Ollama listens here"),
        Near("ollama_chat/llama3", "Ollama listens here"),
        Near("hosted_vllm/mine", "vLLM listens here", f"export HOSTED_VLLM_API_BASE={served}"),
    ]
    assert nearby(servers) == found
    monkeypatch.setenv("HOSTED_VLLM_API_BASE", served)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-something-secret")
    *_, vllm, hosted = nearby(servers)
    assert vllm.export == ""
    assert hosted == Near("openai/o4-mini", "OPENAI_API_KEY is set")
    assert "secret" not in str(hosted)


@pytest.mark.usefixtures("no_keys")
def test_models_lists_what_is_ready_and_what_the_others_need(
    art_e: Run, servers: list[Nearby], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("art_e.cli.settings.nearby", lambda: nearby(servers))
    listed = json_of(art_e("models", "--json"))
    assert [each["model"] for each in listed["nearby"]][:1] == ["ollama_chat/qwen2.5:14b"]
    assert {"name", "state", "detail", "fix"} == set(listed["models"][0])
    shown = art_e("models").stdout
    assert "Ollama listens here" in shown and "export OPENAI_API_KEY" in shown
