"""From the name of a model to its policy.

    offline                          no model
    local:PATH-or-hub-id[+ADAPTER]   transformers in this process
    anything else                    a litellm name: openai/o3, ollama_chat/qwen2.5:14b

Imports what a name needs, and nothing before.
"""

import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from art_e.errors import UserError
from art_e.models.base import Policy
from art_e.models.litellm_module import load_litellm
from art_e.models.offline import OfflinePolicy
from art_e.privacy import loopback_directly

# ---- Which host will receive the text of mails when a model is asked.


class _Address(NamedTuple):
    """The variables that hold a provider's address, the first set one wins, and the default."""

    variables: tuple[str, ...]
    default: str | None = None


_OLLAMA = _Address(("OLLAMA_API_BASE",), "http://localhost:11434")
# What litellm settles only while it makes the call; it tells the rest when asked.
_ADDRESSES = {
    "openai": _Address(("OPENAI_BASE_URL", "OPENAI_API_BASE"), "https://api.openai.com"),
    "anthropic": _Address(
        ("ANTHROPIC_API_BASE", "ANTHROPIC_BASE_URL"), "https://api.anthropic.com"
    ),
    "gemini": _Address(("GEMINI_API_BASE",), "https://generativelanguage.googleapis.com"),
    "vertex_ai": _Address(("VERTEXAI_API_BASE",), "https://aiplatform.googleapis.com"),
    "openrouter": _Address(("OPENROUTER_API_BASE",), "https://openrouter.ai"),
    "cohere_chat": _Address(("COHERE_API_BASE",), "https://api.cohere.com"),
    "bedrock": _Address((), "https://amazonaws.com"),
    "azure": _Address(("AZURE_API_BASE",)),
    "ollama": _OLLAMA,
    "ollama_chat": _OLLAMA,
    # Without an address litellm would send the request to OpenAI.
    "hosted_vllm": _Address(("HOSTED_VLLM_API_BASE",)),
    "lm_studio": _Address(("LM_STUDIO_API_BASE",)),
    "openai_like": _Address(("OPENAI_LIKE_API_BASE",)),
    "litellm_proxy": _Address(("LITELLM_PROXY_API_BASE",)),
}
# What one runs oneself, wherever: nobody sells calls by these names.
_SELF_HOSTED = ("hosted_vllm", "ollama", "ollama_chat", "lm_studio")
# Ollama passes these on to its makers' servers.
_OLLAMA_CLOUD = ("-cloud", ":cloud")
_OLLAMA_HOST = "ollama.com"


def receiving_host(model: str) -> str | None:
    """The host, with its port where one is named; None: nothing leaves this process.

    Raises `UserError` for a model of no known provider, and where no address is set.
    """
    if model == "offline" or model.startswith(LOCAL_PREFIX):
        return None
    provider, address = _provider(model)
    known = _ADDRESSES.get(provider)
    if known is not None:
        set_ones = (os.environ.get(name) for name in known.variables)
        address = next(filter(None, set_ones), address or known.default)
        if not address:
            raise UserError(
                f"where is the server of {model}? export {known.variables[0]}=URL,"
                " such as http://localhost:8000/v1"
            )
    if not address:
        raise UserError(
            f"can't tell which host would receive the mail that {model} reads;"
            f" use a provider such as {', '.join(sorted(_ADDRESSES)[:5])}"
        )
    host = _host_of(address, model)
    if provider.startswith("ollama") and on_this_machine(host) and model.endswith(_OLLAMA_CLOUD):
        return _OLLAMA_HOST
    return host


def self_hosted(model: str, host: str | None) -> bool:
    """Whether the model runs on hardware of one's own; `host` is its `receiving_host`."""
    if model == "offline" or host == _OLLAMA_HOST:
        return False
    provider = model.partition("/")[0]
    return host is None or on_this_machine(host) or provider in _SELF_HOSTED


def on_this_machine(host: str) -> bool:
    """Whether `host`, as `receiving_host` gives it, is a loopback address."""
    name = urlsplit(f"//{host}").hostname or ""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _provider(model: str) -> tuple[str, str | None]:
    """The provider's name in litellm, and the address that litellm tells for it."""
    litellm = load_litellm()
    try:
        _, provider, _, _ = litellm.get_llm_provider(model)
    except litellm.BadRequestError:
        raise UserError(
            f"unknown model {model!r}; use offline, local:PATH or a litellm name such as openai/o3"
        ) from None
    return provider, litellm.get_api_base(model, {})


def _host_of(address: str, model: str) -> str:
    """Host and port of a URL, and nothing else that may stand in it."""
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        name, port = parts.hostname, parts.port
    except ValueError:
        name = None
    if not name:
        raise UserError(f"the address set for {model} is no URL; write http://HOST:PORT/v1")
    shown = f"[{name}]" if ":" in name else name
    if on_this_machine(shown):
        loopback_directly(name)
    return shown if port is None else f"{shown}:{port}"


# ---- From the name of a model to its policy.

LOCAL_PREFIX = "local:"
# A message is a few calls or a short answer. A cut-off one is a wrong one, so a model that
# thinks gets room for it.
MAX_OUTPUT_TOKENS = 4_096
MAX_REASONING_TOKENS = 16_384


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """How a model is asked; what a kind of policy has no use for, it leaves alone.

    `max_output_tokens` bounds each message; None: `MAX_OUTPUT_TOKENS`, and for a model that
    spends some on thinking first `MAX_REASONING_TOKENS`. `temperature` None: the model's own
    default where it takes none, else 0.
    `tool_calls` "text": the model writes its calls as JSON in its text, "auto": where
    litellm says that it knows no other way. `max_cost_usd` bounds all calls of the
    policy together. `cache` is a folder that keeps responses; None: none are kept.
    """

    temperature: float | None = None
    reasoning_effort: Literal["minimal", "low", "medium", "high"] | None = None
    max_output_tokens: int | None = None
    tool_calls: Literal["auto", "native", "text"] = "auto"
    concurrency: int = 16
    timeout_s: float = 120.0
    max_cost_usd: float | None = None
    cache: Path | None = None


def choose_policy(model: str, options: ModelOptions | None = None) -> Policy:
    """The policy that `--model` names. Raises `UserError` for one that can't be used."""
    chosen = options or ModelOptions()
    if model == "offline":
        return OfflinePolicy()
    if model.startswith(LOCAL_PREFIX):
        from art_e.models.local import LocalPolicy

        return LocalPolicy(model.removeprefix(LOCAL_PREFIX), chosen)
    from art_e.models.hosted import LitellmPolicy

    return LitellmPolicy(model, chosen)
