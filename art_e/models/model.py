"""What a `--model` name stands for, and the policy that it gives.

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
    """The full name of a short one, or of one as its provider or a server on this machine has it
    (claude-sonnet-5-5, qwen3:14b), whose address it sets; any other name unchanged."""
    if name in providers.SHORT_NAMES or "/" in name or kind_of(name) != "hosted":
        return providers.SHORT_NAMES.get(name, name)
    listed = providers.listed_models()
    if f"gemini/{name}" in listed:
        return f"gemini/{name}"
    if (provider := listed.get(name, {}).get("litellm_provider")) in ("openai", "anthropic"):
        return f"{provider}/{name}"
    for near in (near for server in SERVERS for near in _served(server)):
        if near.model.partition("/")[2] in (name, f"{name}:latest"):
            if near.variable:
                os.environ[near.variable] = near.value
            return near.model
    return name


def default_model() -> str:
    """The model of commands that name none: that of `art-e config`, else offline."""
    return setting("model") or OFFLINE


@dataclass(frozen=True, slots=True)
class Model:
    """A model by its name; every question about its kind is answered here."""

    name: str

    @property
    def host(self) -> str | None:
        """The host that receives mail text (None: no host), or `UserError` if it is not known."""
        return providers.receiving_host(self.name) if kind_of(self.name) == "hosted" else None

    @property
    def leaves_machine(self) -> bool:
        host = self.host
        return host is not None and not providers.on_this_machine(host)

    @property
    def notice(self) -> str | None:
        """One line on where mail text goes; None if it stays in this process."""
        host = self.host
        if host is None:
            return None
        where = f"goes to {host} ({self.name})"
        if providers.on_this_machine(host):
            where = f"stays on this machine ({host}, {self.name})"
        return "; ".join(filter(None, [f"mail text {where}", providers.ending(self.name)]))

    @property
    def self_hosted(self) -> bool:
        """Whether it runs on the user's own hardware, here or elsewhere."""
        host = self.host
        if self.name == OFFLINE or host == providers.OLLAMA_HOST:
            return False
        return not self.leaves_machine or self.name.partition("/")[0] in providers.SELF_HOSTED

    def policy(self, options: ModelOptions | None = None) -> Policy:
        """The policy, ready to be called. Raises `UserError` for a model that can't be used."""
        chosen = options or ModelOptions()
        if self.name == OFFLINE:
            return OfflinePolicy()
        if kind_of(self.name) == "local":
            require_train_extra()
            from art_e.models.local import LocalPolicy

            return LocalPolicy(self.name.removeprefix(LOCAL_PREFIX), chosen)
        from art_e.models.hosted import LitellmPolicy  # without a model, a third of all imports

        return LitellmPolicy(self.name, chosen)


# ---- Models at hand: those of servers on this machine, and by a key.

_TIMEOUT_S = 0.5  # a server here answers at once, if there is one
_MAX_MODELS = 20  # of a server


class Nearby(NamedTuple):
    """A server on this machine: its program, address, list of models, and our provider for it."""

    program: str
    address: str
    path: str
    provider: str


SERVERS = tuple(Nearby(program, **row) for program, row in providers.TABLES["servers"].items())


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
    """Return the models at hand, those that keep mail on this machine first."""
    load_env()
    keys = ((row, next(filter(os.environ.get, row.variables), None)) for row in providers.PROPOSED)
    by_key = [Near(row.model, f"{name} is set") for row, name in keys if name]
    # Two programs may stand for the one server that a variable names.
    served = {near.model: near for server in servers for near in _served(server)}
    return [*served.values(), *by_key]


def _served(server: Nearby) -> Iterator[Near]:
    import httpx

    own = providers.set_address(server.provider)
    host = own and providers.receiving_host(f"{server.provider}/any")
    here = host and providers.on_this_machine(host)
    address = own.removesuffix("/v1") if own and here else server.address
    try:
        # No proxy: what listens here is asked here.
        with httpx.Client(timeout=_TIMEOUT_S, trust_env=False) as client:
            listed: Any = client.get(f"{address}{server.path}").raise_for_status().json()
        rows = listed["models" if server.path == "/api/tags" else "data"]
        names = [str(each["name" if "name" in each else "id"]) for each in rows[:_MAX_MODELS]]
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return
    known = providers.PROVIDERS[server.provider]
    needed = own is None and known.default is None
    export = (known.variables[0], f"{address}/v1") if needed else ("", "")
    for name in names:
        yield Near(f"{server.provider}/{name}", f"{server.program} listens here", *export)
