"""Models that could be asked right now: those of servers on this machine, or by a key."""

import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

# Of a server that does not answer at once.
_TIMEOUT_S = 0.5
_MOST = 20  # models of a server


class Nearby(NamedTuple):
    """A server on this machine: its program, address, list of models, and litellm's provider, which
    finds it by the environment variable `variable` unless that is empty."""

    program: str
    address: str
    path: str
    provider: str
    variable: str = ""


SERVERS = (
    Nearby("Ollama", "http://127.0.0.1:11434", "/api/tags", "ollama_chat"),
    Nearby(
        "llama.cpp", "http://127.0.0.1:8080", "/v1/models", "hosted_vllm", "HOSTED_VLLM_API_BASE"
    ),
    Nearby("vLLM", "http://127.0.0.1:8000", "/v1/models", "hosted_vllm", "HOSTED_VLLM_API_BASE"),
    Nearby("LM Studio", "http://127.0.0.1:1234", "/v1/models", "lm_studio", "LM_STUDIO_API_BASE"),
)
# Models behind a server, and the variables of which one must be set.
HOSTED = {
    "openai/o3": ("OPENAI_API_KEY",),
    "openai/o4-mini": ("OPENAI_API_KEY",),
    "openai/gpt-4.1": ("OPENAI_API_KEY",),
    "gemini/gemini-2.5-pro": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "anthropic/claude-sonnet-5-5": ("ANTHROPIC_API_KEY",),
    "ollama_chat/qwen2.5:14b": ("OLLAMA_API_BASE",),
    "hosted_vllm/Qwen2.5-14B-Instruct": ("HOSTED_VLLM_API_BASE",),
}
# Of these the ones to propose, the first whose key is set.
PROPOSED = ("openai/o4-mini", "gemini/gemini-2.5-pro", "anthropic/claude-sonnet-5-5")


class Near(NamedTuple):
    """A model that could be asked, why, and what to export before."""

    model: str
    why: str
    export: str = ""


def nearby(servers: Sequence[Nearby] = SERVERS) -> list[Near]:
    """The models at hand, those that keep mail on this machine first."""
    keys = ((model, next(filter(os.environ.get, HOSTED[model]), None)) for model in PROPOSED)
    by_key = [Near(model, f"{name} is set") for model, name in keys if name]
    return [*(near for server in servers for near in _served(server)), *by_key]


def _served(server: Nearby) -> Iterator[Near]:
    import httpx

    try:
        # No proxy: what listens here is asked here.
        with httpx.Client(timeout=_TIMEOUT_S, trust_env=False) as client:
            listed: Any = client.get(f"{server.address}{server.path}").raise_for_status().json()
        rows = listed["models" if server.path == "/api/tags" else "data"]
        names = [str(each["name" if "name" in each else "id"]) for each in rows[:_MOST]]
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return
    address = f"{server.address}/v1"
    needed = server.variable and os.environ.get(server.variable) != address
    export = f"export {server.variable}={address}" if needed else ""
    for name in names:
        yield Near(f"{server.provider}/{name}", f"{server.program} listens here", export)
