"""The host that is named is the one that litellm would call."""

import contextlib

import openai
import pytest

from art_e.errors import UserError
from art_e.models.choose import on_this_machine, receiving_host, self_hosted
from art_e.models.litellm_module import load_litellm
from tests.provider import Provider, says

# litellm has it ignored when it is imported, which pytest undoes.

VARIABLES = (
    "OPENAI_BASE_URL", "OPENAI_API_BASE", "ANTHROPIC_API_BASE", "ANTHROPIC_BASE_URL",
    "GEMINI_API_BASE", "OLLAMA_API_BASE", "HOSTED_VLLM_API_BASE", "AZURE_API_BASE",
    "MISTRAL_API_BASE", "OPENROUTER_API_BASE", "LM_STUDIO_API_BASE",
)  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("model", "host"),
    [
        ("offline", None),
        ("local:Qwen/Qwen2.5-14B-Instruct", None),
        ("local:./checkpoint+./adapter", None),
        ("openai/o3", "api.openai.com"),
        ("o4-mini", "api.openai.com"),
        ("gemini/gemini-2.5-pro", "generativelanguage.googleapis.com"),
        ("anthropic/claude-sonnet-5-5", "api.anthropic.com"),
        ("mistral/mistral-large-latest", "api.mistral.ai"),
        ("groq/llama-3.3-70b-versatile", "api.groq.com"),
        ("openrouter/qwen/qwen-2.5-72b-instruct", "openrouter.ai"),
        ("ollama_chat/qwen2.5:14b", "localhost:11434"),
        ("ollama_chat/gpt-oss:120b-cloud", "ollama.com"),
    ],
)
def test_defaults(model: str, host: str | None) -> None:
    assert receiving_host(model) == host


@pytest.mark.parametrize(
    ("model", "variable", "address", "host"),
    [
        ("openai/o3", "OPENAI_BASE_URL", "http://127.0.0.1:4000/v1", "127.0.0.1:4000"),
        ("openai/o3", "OPENAI_API_BASE", "https://proxy.example/v1", "proxy.example"),
        ("anthropic/claude-sonnet-5-5", "ANTHROPIC_BASE_URL", "https://p.example", "p.example"),
        ("gemini/gemini-2.5-pro", "GEMINI_API_BASE", "https://g.example", "g.example"),
        ("ollama_chat/qwen2.5:14b", "OLLAMA_API_BASE", "http://gpu.lan:11434", "gpu.lan:11434"),
        ("ollama_chat/x-cloud", "OLLAMA_API_BASE", "https://ollama.com", "ollama.com"),
        ("hosted_vllm/Qwen", "HOSTED_VLLM_API_BASE", "http://[::1]:8000/v1", "[::1]:8000"),
        ("hosted_vllm/Qwen", "HOSTED_VLLM_API_BASE", "gpu.lan:8000", "gpu.lan:8000"),
        ("azure/gpt-4.1", "AZURE_API_BASE", "https://us.openai.azure.com/", "us.openai.azure.com"),
        # No credentials, no path, no query.
        ("openai/o3", "OPENAI_BASE_URL", "https://me:pass@h.example:9/v1?key=k", "h.example:9"),
    ],
)
def test_what_the_environment_sets(
    monkeypatch: pytest.MonkeyPatch, model: str, variable: str, address: str, host: str
) -> None:
    monkeypatch.setenv(variable, address)
    assert receiving_host(model) == host


@pytest.mark.parametrize(
    ("model", "variable", "path"),
    [
        ("openai/o3", "OPENAI_BASE_URL", "/v1"),
        ("openai/gpt-4.1", "OPENAI_API_BASE", "/v1"),
        ("anthropic/claude-sonnet-5-5", "ANTHROPIC_API_BASE", ""),
        ("anthropic/claude-sonnet-5-5", "ANTHROPIC_BASE_URL", ""),
        ("gemini/gemini-2.5-pro", "GEMINI_API_BASE", ""),
        ("ollama_chat/qwen2.5:14b", "OLLAMA_API_BASE", ""),
        ("hosted_vllm/Qwen", "HOSTED_VLLM_API_BASE", "/v1"),
        ("lm_studio/qwen", "LM_STUDIO_API_BASE", "/v1"),
        ("azure/gpt-4.1", "AZURE_API_BASE", ""),
        ("openrouter/qwen/qwen-2.5-72b-instruct", "OPENROUTER_API_BASE", "/v1"),
        ("groq/llama-3.3-70b-versatile", "GROQ_API_BASE", "/v1"),
    ],
)
def test_a_request_goes_where_it_was_said(
    monkeypatch: pytest.MonkeyPatch, model: str, variable: str, path: str
) -> None:
    """The request itself, by the real client; what the server says to it does not matter."""
    litellm = load_litellm()
    for name in ("OPENAI", "ANTHROPIC", "GEMINI", "AZURE", "OPENROUTER", "GROQ", "MISTRAL"):
        monkeypatch.setenv(f"{name}_API_KEY", "key-of-the-test")
    monkeypatch.setenv("AZURE_API_VERSION", "2025-01-01-preview")
    with Provider(lambda _: says("OK.")) as provider:
        address = provider.base_url.removesuffix("/v1")
        monkeypatch.setenv(variable, f"{address}{path}")
        assert receiving_host(model) == address.removeprefix("http://")
        with contextlib.suppress(openai.OpenAIError):
            litellm.completion(
                model, [{"role": "user", "content": "Hi."}], max_retries=0, timeout=5
            )
        assert provider.requests


def test_the_base_url_comes_first_as_in_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_BASE", "https://second.example/v1")
    monkeypatch.setenv("OPENAI_BASE_URL", "https://first.example/v1")
    assert receiving_host("openai/o3") == "first.example"


# Without the check litellm would send these requests, mail and all, to api.openai.com.
@pytest.mark.parametrize(
    ("model", "variable"),
    [
        ("hosted_vllm/Qwen2.5-14B-Instruct", "HOSTED_VLLM_API_BASE"),
        ("lm_studio/qwen", "LM_STUDIO_API_BASE"),
        ("azure/gpt-4.1", "AZURE_API_BASE"),
    ],
)
def test_a_server_without_an_address_is_refused(model: str, variable: str) -> None:
    with pytest.raises(UserError, match=f"export {variable}=URL"):
        receiving_host(model)


@pytest.mark.parametrize("model", ["gpt-17", "nobody/nothing"])
def test_an_unknown_model_is_refused(model: str) -> None:
    with pytest.raises(UserError, match=f"'{model}'.*offline"):
        receiving_host(model)


@pytest.mark.parametrize("address", ["http://", "http://host:port/v1", "http://[::1/v1"])
def test_an_address_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("HOSTED_VLLM_API_BASE", address)
    with pytest.raises(UserError, match="no URL"):
        receiving_host("hosted_vllm/Qwen")


@pytest.mark.parametrize(
    ("host", "here"),
    [
        ("localhost:11434", True),
        ("127.0.0.1:8000", True),
        ("127.1.2.3", True),
        ("[::1]:8000", True),
        ("gpu.localhost", True),
        ("api.openai.com", False),
        ("10.0.0.7:8000", False),
        ("localhost.example.com", False),
        ("127.0.0.1.example.com", False),
    ],
)
def test_loopback(host: str, here: bool) -> None:
    assert on_this_machine(host) is here


@pytest.mark.parametrize(
    ("model", "host", "own"),
    [
        ("hosted_vllm/talk", "gpu.lan:8000", True),
        ("ollama_chat/qwen2.5:14b", "gpu.lan:11434", True),
        ("ollama_chat/gpt-oss:120b-cloud", "ollama.com", False),
        ("local:runs/mine", None, True),
        ("openai/of-our-own", "localhost:8000", True),
        ("openai/o3", "api.openai.com", False),
        ("offline", None, False),
    ],
)
def test_what_runs_on_hardware_of_ones_own(model: str, host: str | None, own: bool) -> None:
    assert self_hosted(model, host) is own
