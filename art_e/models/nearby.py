"""Models that could be asked right now: those of servers on this machine, or by a key."""

import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from art_e.models.known import PROPOSED
from art_e.models.providers import PROVIDERS, on_this_machine, receiving_host, set_address

# Of a server that does not answer at once.
_TIMEOUT_S = 0.5
_MOST = 20  # models of a server


class Nearby(NamedTuple):
    """A server on this machine: its program, address, list of models, and our provider for it."""

    program: str
    address: str
    path: str
    provider: str


SERVERS = (
    Nearby("Ollama", "http://127.0.0.1:11434", "/api/tags", "ollama_chat"),
    Nearby("llama.cpp", "http://127.0.0.1:8080", "/v1/models", "hosted_vllm"),
    Nearby("vLLM", "http://127.0.0.1:8000", "/v1/models", "hosted_vllm"),
    Nearby("LM Studio", "http://127.0.0.1:1234", "/v1/models", "lm_studio"),
)


class Near(NamedTuple):
    """A model that could be asked, why, and what to set before: a variable and its value."""

    model: str
    why: str
    variable: str = ""
    value: str = ""

    @property
    def export(self) -> str:
        """The command that sets it; "" if nothing is to be set."""
        return f"export {self.variable}={self.value}" if self.variable else ""


def nearby(servers: Sequence[Nearby] = SERVERS) -> list[Near]:
    """The models at hand, those that keep mail on this machine first."""
    keys = ((each.model, next(filter(os.environ.get, each.variables), None)) for each in PROPOSED)
    by_key = [Near(model, f"{name} is set") for model, name in keys if name]
    return [*(near for server in servers for near in _served(server)), *by_key]


def _served(server: Nearby) -> Iterator[Near]:
    import httpx

    own = set_address(server.provider)
    here = own is not None and on_this_machine(receiving_host(f"{server.provider}/any"))
    address = own.removesuffix("/v1") if own and here else server.address
    try:
        # No proxy: what listens here is asked here.
        with httpx.Client(timeout=_TIMEOUT_S, trust_env=False) as client:
            listed: Any = client.get(f"{address}{server.path}").raise_for_status().json()
        rows = listed["models" if server.path == "/api/tags" else "data"]
        names = [str(each["name" if "name" in each else "id"]) for each in rows[:_MOST]]
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return
    known = PROVIDERS[server.provider]
    needed = own is None and known.default is None
    export = (known.variables[0], f"{address}/v1") if needed else ("", "")
    for name in names:
        yield Near(f"{server.provider}/{name}", f"{server.program} listens here", *export)


def use(name: str) -> str | None:
    """The full name of a model that a server on this machine has by that name, whose address this
    process knows from now on; None if none has it."""
    near = next((each for each in nearby() if each.model.partition("/")[2] == name), None)
    if near is None or near.model in [each.model for each in PROPOSED]:
        return None
    if near.variable:
        os.environ[near.variable] = near.value
    return near.model
