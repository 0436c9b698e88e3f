"""Models by the names that `--model` takes, and their policies.

offline                          no model
local:PATH-or-hub-id[+ADAPTER]   transformers in this process
o3, qwen2.5-14b, ...             a short name of `SHORT_NAMES`
anything else                    a litellm name: openai/o3, ollama_chat/qwen2.5:14b"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from art_e.config import setting
from art_e.models import providers
from art_e.models.base import LOCAL_PREFIX, OFFLINE, ModelOptions, Policy, kind_of
from art_e.models.checkpoint import require_train_extra
from art_e.offline import OfflinePolicy
from art_e.privacy import load_env


def full_name(name: str) -> str:
    """Return the full name for a short name, or for a provider's or local server's own name
    (claude-sonnet-5-5, qwen3:14b; this sets the server's address). Other names stay unchanged."""
    if name in providers.SHORT_NAMES or "/" in name or kind_of(name) != "hosted":
        return providers.SHORT_NAMES.get(name, name)
    models = providers.listed_models()
    if f"gemini/{name}" in models:
        return f"gemini/{name}"
    if (provider := models.get(name, {}).get("litellm_provider")) in ("openai", "anthropic"):
        return f"{provider}/{name}"
    for near in (near for server in SERVERS for near in _served(server)):
        if near.model.partition("/")[2] in (name, f"{name}:latest"):
            if near.variable:
                os.environ[near.variable] = near.value
            return near.model
    return name


def default_model() -> str:
    """Return the model of commands without `--model`: that of `art-e config`, else offline."""
    return setting("model") or OFFLINE


@dataclass(frozen=True, slots=True)
class Model:
    """A model, and the properties that follow from its name."""

    name: str

    @property
    def host(self) -> str | None:
        """The host that receives mail text, None without one. Raises `UserError` if unknown."""
        return providers.receiving_host(self.name) if kind_of(self.name) == "hosted" else None

    @property
    def leaves_machine(self) -> bool:
        host = self.host
        return host is not None and not providers.on_this_machine(host)

    @property
    def notice(self) -> str | None:
        """A line that says where mail text goes; None if it stays in this process."""
        host = self.host
        if host is None:
            return None
        where = f"goes to {host} ({self.name})"
        if providers.on_this_machine(host):
            where = f"stays on this machine ({host}, {self.name})"
        return "; ".join(filter(None, [f"mail text {where}", providers.ending(self.name)]))

    @property
    def self_hosted(self) -> bool:
        """True if the model runs on the user's own hardware, here or elsewhere."""
        host = self.host
        if self.name == OFFLINE or host == providers.OLLAMA_HOST:
            return False
        return not self.leaves_machine or self.name.partition("/")[0] in providers.SELF_HOSTED

    def policy(self, options: ModelOptions | None = None) -> Policy:
        """Return the policy, ready to be called. Raises `UserError` if the model can't be used."""
        chosen = options or ModelOptions()
        if self.name == OFFLINE:
            return OfflinePolicy()
        if kind_of(self.name) == "local":
            require_train_extra()
            from art_e.models.local import LocalPolicy

            return LocalPolicy(self.name.removeprefix(LOCAL_PREFIX), chosen)
        from art_e.models.hosted import LitellmPolicy  # a third of the import time

        return LitellmPolicy(self.name, chosen)


# ---- Models to suggest: those of servers on this machine, and those with a key.

_TIMEOUT_S = 0.5  # a server on this machine answers at once
_MAX_MODELS = 20  # maximum listed per server


class LocalServer(NamedTuple):
    """A server on this machine: program, address, path of its model list, and provider name."""

    program: str
    address: str
    path: str
    provider: str


SERVERS = tuple(LocalServer(program, **row) for program, row in providers.TABLES["servers"].items())


class Suggestion(NamedTuple):
    """A model that can be used, why, and the variable to set first, with its value."""

    model: str
    why: str
    variable: str = ""
    value: str = ""

    @property
    def export(self) -> str:
        """The command that sets the variable; "" without one."""
        return f"export {self.variable}={self.value}" if self.variable else ""


def suggest_models(servers: Sequence[LocalServer] = SERVERS) -> list[Suggestion]:
    """Return models that can be used; those that keep mail on this machine come first."""
    load_env()
    keys = ((row, next(filter(os.environ.get, row.variables), None)) for row in providers.PROPOSED)
    by_key = [Suggestion(row.model, f"{name} is set") for row, name in keys if name]
    # Two programs' servers may have the same address, if one variable sets it for both.
    served = {near.model: near for server in servers for near in _served(server)}
    return [*served.values(), *by_key]


def _served(server: LocalServer) -> Iterator[Suggestion]:
    import httpx

    configured = providers.set_address(server.provider)
    host = configured and providers.receiving_host(f"{server.provider}/any")
    here = host and providers.on_this_machine(host)
    address = configured.removesuffix("/v1") if configured and here else server.address
    try:
        # A local server is called without a proxy.
        with httpx.Client(timeout=_TIMEOUT_S, trust_env=False) as client:
            listed: Any = client.get(f"{address}{server.path}").raise_for_status().json()
        rows = listed["models" if server.path == "/api/tags" else "data"]
        names = [str(each["name" if "name" in each else "id"]) for each in rows[:_MAX_MODELS]]
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return
    known = providers.PROVIDERS[server.provider]
    needed = configured is None and known.default is None
    export = (known.variables[0], f"{address}/v1") if needed else ("", "")
    for name in names:
        yield Suggestion(f"{server.provider}/{name}", f"{server.program} listens here", *export)
