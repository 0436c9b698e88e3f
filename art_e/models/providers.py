"""Hosted models by name: their hosts, clients, capabilities and end of life.

litellm's list has thousands of models, prices and most dates; `providers.toml` adds what it lacks.
"""

import datetime as dt
import importlib.util
import ipaddress
import json
import logging
import os
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from art_e.errors import UserError
from art_e.models.base import MAX_OUTPUT_TOKENS, MAX_REASONING_TOKENS
from art_e.privacy import load_env, loopback_directly
from art_e.text import toml_table

TABLES = toml_table(__package__, "providers.toml")


@cache
def load_litellm() -> Any:
    """Return the module litellm, silent, and offline except for our calls. By default it fetches
    its price list over HTTP, reads `.env`, prints hints and logs requests. Only this function
    imports it, because that takes three seconds of CPU time."""
    os.environ.update(TABLES["litellm_environment"])
    loopback_directly()
    import litellm

    # pydantic warns about litellm's types.
    warnings.filterwarnings("ignore", message=".*`ReadOnly` qualifier", category=UserWarning)
    litellm.suppress_debug_info = True
    litellm.turn_off_message_logging = True
    litellm.disable_hf_tokenizer_download = True
    litellm.num_retries = 0  # we retry ourselves, and count it
    # Its logs may hold mail text; failures come as exceptions.
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    return litellm


@cache
def listed_models() -> dict[str, dict[str, Any]]:
    """Return litellm's models with prices and capabilities, by name, without importing litellm."""
    package = importlib.util.find_spec("litellm")
    assert package is not None and package.origin is not None
    path = Path(package.origin).with_name("model_prices_and_context_window_backup.json")
    return dict(json.loads(path.read_text("utf-8")))


def listed_model(model: str) -> dict[str, Any]:
    """Return the entry in litellm's list for a model, with or without provider; {} if unlisted."""
    models = listed_models()
    return models.get(model) or models.get(model.partition("/")[2]) or {}


# ---- Hosts.


ClientKind = Literal["openai", "ollama", "litellm"]


class Provider(NamedTuple):
    """A row of [providers] in `providers.toml`."""

    variables: Sequence[str] = ()
    default: str | None = None
    keys: Sequence[str] = ()
    client: ClientKind = "litellm"


PROVIDERS = {name: Provider(**row) for name, row in TABLES["providers"].items()}
# Providers whose models run on the user's own hardware.
SELF_HOSTED = ("hosted_vllm", "ollama", "ollama_chat", "lm_studio")
_OLLAMA_CLOUD = ("-cloud", ":cloud")  # Ollama forwards these to ollama.com
OLLAMA_HOST = "ollama.com"


def provider_of(model: str) -> str:
    """Return the provider of a model's full name. Raises `UserError` for an unknown name."""
    provider, _, name = model.partition("/")
    known = {str(each.get("litellm_provider")) for each in listed_models().values()}
    if name and name == name.strip() and provider in PROVIDERS.keys() | known:
        return provider
    names = "offline, local:PATH or a litellm name such as openai/o3"
    raise UserError(f"unknown model {model!r}; use {names}")


def client_of(model: str) -> ClientKind:
    """Return the client that calls a model."""
    return PROVIDERS.get(model.partition("/")[0], Provider()).client


def set_address(provider: str) -> str | None:
    """Return the provider's address in the environment, or None."""
    variables = PROVIDERS.get(provider, Provider()).variables
    return next(filter(None, map(os.environ.get, variables)), None)


def address_of(provider: str) -> str | None:
    """Return the provider's address in the environment, else its default."""
    return set_address(provider) or PROVIDERS.get(provider, Provider()).default


def receiving_host(model: str) -> str:
    """Return the host (and port) that calls of a hosted model go to. Raises `UserError`."""
    load_env()
    provider = provider_of(model)
    address = address_of(provider)
    if address is None and provider in PROVIDERS:
        why = f"{model} needs its server's address; export {PROVIDERS[provider].variables[0]}=URL"
        raise UserError(f"{why}, such as http://localhost:8000/v1")
    if address is None:
        address = load_litellm().get_api_base(model, {})
    if not address:
        why = f"can't tell which host would receive mail sent to {model}"
        raise UserError(f"{why}; use a provider such as {', '.join(sorted(PROVIDERS)[:5])}")
    host = _host_of(address, model)
    if provider.startswith("ollama") and on_this_machine(host) and model.endswith(_OLLAMA_CLOUD):
        return OLLAMA_HOST
    return host


def on_this_machine(host: str) -> bool:
    """Return whether `host`, as `receiving_host` gives it, is a loopback address."""
    name = urlsplit(f"//{host}").hostname or ""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _host_of(address: str, model: str) -> str:
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        name, port = parts.hostname, parts.port
    except ValueError:
        name = None
    if not name:
        raise UserError(f"the address set for {model} is not a URL; write http://HOST:PORT/v1")
    host = f"[{name}]" if ":" in name else name
    if on_this_machine(host):
        loopback_directly(name)
    return host if port is None else f"{host}:{port}"


# ---- Capabilities: by litellm's list, then our own rules, then the provider's errors.

# OpenAI's reasoning models: no temperature, and another name for the output limit.
_REASONS = re.compile(r"o\d|gpt-([5-9]|\d\d)(?!-chat)")
# While they reason, these accept tools only through OpenAI's Responses API
# (github.com/BerriAI/litellm issue 34569, community.openai.com/t/1386454).
_BY_RESPONSES = re.compile(r"gpt-(5\.[6-9]|[6-9]|\d\d)")
# Google: "remove sampling parameters from all requests" from Gemini 3 on.
_GEMINI_3 = re.compile(r"gemini-([3-9]|\d\d)")


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The parameters that a model accepts. `reasons`: its output may start with reasoning.
    `tool_choice`: the strongest form. `max_tokens`: the name of the output limit. `system_role`:
    the role of the system prompt. `responses`: tools only through OpenAI's Responses API, unless
    the effort is "none". `schema`: it supports JSON schemas."""

    tools: bool = True
    reasons: bool = False
    tool_choice: Literal["required", "auto"] | None = "auto"
    temperature: bool = True
    reasoning_effort: bool = False
    max_tokens: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    system_role: Literal["system", "developer"] = "system"
    responses: bool = False
    schema: bool = True

    @property
    def output_limit(self) -> int:
        return MAX_REASONING_TOKENS if self.reasons else MAX_OUTPUT_TOKENS


def capabilities(model: str) -> Capabilities:
    """Return a model's known capabilities. Raises `UserError` if it is unknown or has no key."""
    load_env()
    provider, name = provider_of(model), model.partition("/")[2]
    keys = PROVIDERS[provider].keys if provider in PROVIDERS else _keys_of(model)
    if keys and not any(map(os.environ.get, keys)):
        raise UserError(f"{model} needs a key: export {' or '.join(keys)}, or put it into .env")
    entry, openai = listed_model(model), provider == "openai"

    def listed(capability: str) -> bool:
        return entry.get(f"supports_{capability}") is not False

    as_openai = provider in ("openai", "azure") and _REASONS.match(name) is not None
    reasons = as_openai or entry.get("supports_reasoning") is True
    choice: Literal["required", "auto"] | None = None
    if listed("function_calling") and not provider.startswith("ollama"):
        # A self-hosted server may enforce "required" with a grammar that differs from the form that
        # the model was trained on; dashscope documents only "auto".
        forced = entry.get("supports_tool_choice") and listed("forced_tool_use")
        choice = "required" if forced and provider != "dashscope" else "auto"
    gemini_3 = provider == "gemini" and _GEMINI_3.match(name) is not None
    return Capabilities(
        tools=listed("function_calling"),
        reasons=reasons,
        tool_choice=choice,
        temperature=not (as_openai or gemini_3) and listed("sampling_params"),
        # Claude rejects forced calls while it reasons; self-hosted servers return an error.
        reasoning_effort=(reasons and "claude" not in name)
        or (not entry and provider in ("openai", "hosted_vllm")),
        max_tokens="max_completion_tokens" if as_openai else "max_tokens",
        system_role="developer" if openai and re.match(r"o\d", name) else "system",
        responses=openai and _BY_RESPONSES.match(name) is not None,
        schema=listed("response_schema"),
    )


def _keys_of(model: str) -> list[str]:
    """Return the missing keys of a model whose provider only litellm knows."""
    missing = list(load_litellm().validate_environment(model)["missing_keys"])
    # Other settings may come from elsewhere (a cloud's profile, a default address).
    return missing if all(each.endswith("_API_KEY") for each in missing) else []


# The pattern of a provider's error about a parameter, the field to change, and its next values,
# which only get weaker, so that corrections end.
_CORRECTIONS: tuple[tuple[str, str, dict[Any, Any]], ...] = (
    (r"/v1/responses", "responses", {False: True}),
    (r"use '?max_completion_tokens", "max_tokens", {"max_tokens": "max_completion_tokens"}),
    (r"support tool use|support tools|--enable-auto-tool-choice", "tools", {True: False}),
    (r"tool_choice|forced? tool", "tool_choice", {"required": "auto", "auto": None}),
    (r"temperature|sampling param", "temperature", {True: False}),
    (r"reasoning_effort|reasoning\.effort", "reasoning_effort", {True: False}),
    (r"developer.? role|role.{0,40}developer", "system_role", {"developer": "system"}),
)


def corrected(now: Capabilities, refusal: str) -> tuple[Capabilities, str] | None:
    """Return capabilities without what `refusal` rejects, and the field's name; None if unclear."""
    for pattern, field, weaker in _CORRECTIONS:
        value = getattr(now, field)
        if value in weaker and re.search(pattern, refusal, re.IGNORECASE):
            return replace(now, **{field: weaker[value]}), field
    return None


# ---- End of life, by `providers.toml` or else by litellm's list.


class Known(NamedTuple):
    """A row of [known] in `providers.toml`."""

    model: str
    short: str = ""
    variables: Sequence[str] = ()
    ends: str = ""
    followed_by: str = ""


KNOWN = {name: Known(name, **row) for name, row in TABLES["known"].items()}
# Short names, mostly of the baselines.
SHORT_NAMES = {each.short: each.model for each in KNOWN.values() if each.short}
PROPOSED = list(KNOWN.values())[:3]  # models to suggest if their key is set
_WARN_DAYS = 60


def ending(model: str, today: dt.date | None = None) -> str | None:
    """Return a line with the successor if the model ended or ends within 60 days; else None."""
    row = KNOWN.get(model, Known(model))
    last = row.ends or listed_model(model).get("deprecation_date")
    if not last:
        return None
    left = (dt.date.fromisoformat(last) - (today or dt.date.today())).days
    if left > _WARN_DAYS:
        return None
    instead = f"; run {row.followed_by} instead" if row.followed_by else "; name a newer model"
    return f"{model} {'ends' if left > 0 else 'ended'} on {last}{instead}"
