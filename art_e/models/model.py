"""What a `--model` name stands for, and the policy that it gives.

offline                          no model
local:PATH-or-hub-id[+ADAPTER]   transformers in this process
o3, qwen2.5-14b, ...             a short name of `SHORT_NAMES`
anything else                    a litellm name: openai/o3, ollama_chat/qwen2.5:14b
"""

from dataclasses import dataclass
from typing import Literal

from art_e.config import setting
from art_e.models.base import LOCAL_PREFIX, OFFLINE, ModelOptions, Policy, kind_of
from art_e.models.checkpoint import require_train_extra
from art_e.models.hosted import LitellmPolicy
from art_e.models.known import SHORT_NAMES, ending, listed_models
from art_e.models.nearby import use
from art_e.models.providers import OLLAMA_HOST, SELF_HOSTED, on_this_machine, receiving_host
from art_e.offline import OfflinePolicy
from art_e.privacy import load_env


def full_name(name: str) -> str:
    """The full name of a short one, or of one as its provider or a server on this machine has it
    (claude-sonnet-5-5, qwen3:14b); any other name unchanged."""
    if name in SHORT_NAMES or "/" in name or kind_of(name) != "hosted":
        return SHORT_NAMES.get(name, name)
    listed = listed_models()
    if f"gemini/{name}" in listed:
        return f"gemini/{name}"
    if (provider := listed.get(name, {}).get("litellm_provider")) in ("openai", "anthropic"):
        return f"{provider}/{name}"
    return use(name) or name


def default_model() -> str:
    """The model of commands that name none: that of `art-e config`, else offline."""
    return setting("model") or OFFLINE


@dataclass(frozen=True, slots=True)
class Model:
    """A model by its name; every question about its kind is answered here."""

    name: str

    @property
    def kind(self) -> Literal["offline", "local", "hosted"]:
        """No model, one in this process, or one behind an API."""
        return kind_of(self.name)

    @property
    def path(self) -> str:
        """PATH-or-hub-id[+ADAPTER] of a local model."""
        return self.name.removeprefix(LOCAL_PREFIX)

    @property
    def host(self) -> str | None:
        """The host that receives mail text; None: nothing leaves this process. Raises `UserError`
        if the provider or its address is unknown."""
        if self.kind != "hosted":
            return None
        load_env()
        return receiving_host(self.name)

    @property
    def leaves_machine(self) -> bool:
        """Whether mail text goes to another machine."""
        host = self.host
        return host is not None and not on_this_machine(host)

    @property
    def notice(self) -> str | None:
        """One line on where mail text goes; None if it stays in this process."""
        host = self.host
        if host is None:
            return None
        where = f"goes to {host} ({self.name})"
        if on_this_machine(host):
            where = f"stays on this machine ({host}, {self.name})"
        return "; ".join(filter(None, [f"mail text {where}", ending(self.name)]))

    @property
    def self_hosted(self) -> bool:
        """Whether it runs on the user's own hardware, here or elsewhere."""
        host = self.host
        if self.kind == "offline" or host == OLLAMA_HOST:
            return False
        return not self.leaves_machine or self.name.partition("/")[0] in SELF_HOSTED

    def policy(self, options: ModelOptions | None = None) -> Policy:
        """The policy, ready to be called. Raises `UserError` for a model that can't be used."""
        chosen = options or ModelOptions()
        if self.kind == "offline":
            return OfflinePolicy()
        if self.kind == "local":
            require_train_extra()
            from art_e.models.local import LocalPolicy

            return LocalPolicy(self.path, chosen)
        load_env()
        return LitellmPolicy(self.name, chosen)
