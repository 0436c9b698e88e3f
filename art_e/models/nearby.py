"""Models that could be asked right now: those of servers on this machine, or by a key."""

import os
from collections.abc import Iterator, Mapping, Sequence
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
# Of hosted models, the nearest first, with the variables of their keys.
BY_KEY: Mapping[str, Sequence[str]] = {
    "openai/o4-mini": ("OPENAI_API_KEY",),
    "gemini/gemini-2.5-pro": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "anthropic/claude-sonnet-5-5": ("ANTHROPIC_API_KEY",),
}


class Near(NamedTuple):
    """A model that could be asked, why, and what to export before."""

    model: str
    why: str
    export: str = ""


def nearby(servers: Sequence[Nearby] = SERVERS) -> list[Near]:
    """The models at hand, those that keep mail on this machine first."""
    found = [near for server in servers for near in _served(server)]
    for model, variables in BY_KEY.items():
        if name := next((each for each in variables if os.environ.get(each)), None):
            found.append(Near(model, f"{name} is set"))
    return found


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
