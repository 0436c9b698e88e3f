"""Models by their names: where each is, which client calls it, what it accepts, when it ends.

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
    """Return the module litellm, silent, and offline except for the calls that we make. No other
    code imports it: it takes three seconds of CPU time. By default it fetches its price list over
    HTTP, reads `.env`, prints hints and logs requests."""
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
    """litellm's list of models with prices and capabilities, by name, read without litellm."""
    package = importlib.util.find_spec("litellm")
    assert package is not None and package.origin is not None
    path = Path(package.origin).with_name("model_prices_and_context_window_backup.json")
    return dict(json.loads(path.read_text("utf-8")))


def listed_model(model: str) -> dict[str, Any]:
    """The entry of a model in litellm's list, with or without its provider; empty: not listed."""
    listed = listed_models()
    return listed.get(model) or listed.get(model.partition("/")[2]) or {}


# ---- Where a model is.


Door = Literal["openai", "ollama", "litellm"]


class Provider(NamedTuple):
    """A provider, as `providers.toml` describes it."""

    variables: Sequence[str] = ()
    default: str | None = None
    keys: Sequence[str] = ()
    door: Door = "litellm"


PROVIDERS = {name: Provider(**row) for name, row in TABLES["providers"].items()}
# Providers whose models run on the user's own hardware.
SELF_HOSTED = ("hosted_vllm", "ollama", "ollama_chat", "lm_studio")
_OLLAMA_CLOUD = ("-cloud", ":cloud")  # Ollama forwards these to its makers' servers
OLLAMA_HOST = "ollama.com"


def provider_of(model: str) -> str:
    """Return the provider of a model's full name. Raises `UserError` for an unknown name."""
    provider, _, name = model.partition("/")
    named = {str(each.get("litellm_provider")) for each in listed_models().values()}
    if name and name == name.strip() and provider in PROVIDERS.keys() | named:
        return provider
    names = "offline, local:PATH or a litellm name such as openai/o3"
    raise UserError(f"unknown model {model!r}; use {names}")


def door_of(model: str) -> Door:
    """Return the client that calls a model."""
    return PROVIDERS.get(model.partition("/")[0], Provider()).door


def set_address(provider: str) -> str | None:
    """Return the provider's address that the environment sets, or None."""
    variables = PROVIDERS.get(provider, Provider()).variables
    return next(filter(None, map(os.environ.get, variables)), None)


def address_of(provider: str) -> str | None:
    """Return the provider's address from the environment, else its own."""
    return set_address(provider) or PROVIDERS.get(provider, Provider()).default


def receiving_host(model: str) -> str:
    """Return the host (and port) that receives what a hosted model is sent, or `UserError`."""
    load_env()
    provider = provider_of(model)
    address = address_of(provider)
    if address is None and provider in PROVIDERS:
        why = f"where is the server of {model}? export {PROVIDERS[provider].variables[0]}=URL"
        raise UserError(f"{why}, such as http://localhost:8000/v1")
    if address is None:
        address = load_litellm().get_api_base(model, {})
    if not address:
        why = f"can't tell which host would receive the mail that {model} reads"
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
        raise UserError(f"the address set for {model} is no URL; write http://HOST:PORT/v1")
    shown = f"[{name}]" if ":" in name else name
    if on_this_machine(shown):
        loopback_directly(name)
    return shown if port is None else f"{shown}:{port}"


# ---- What a model accepts: litellm's list, then our own rules, then what the provider says.

# OpenAI's that reason: no temperature, and another name for the limit of the output.
_REASONS = re.compile(r"o\d|gpt-([5-9]|\d\d)(?!-chat)")
# These take tools only through OpenAI's Responses while they reason (github.com/BerriAI/litellm
# issue 34569, community.openai.com/t/1386454).
_BY_RESPONSES = re.compile(r"gpt-(5\.[6-9]|[6-9]|\d\d)")
# Google: "remove sampling parameters from all requests" from Gemini 3 on.
_GEMINI_3 = re.compile(r"gemini-([3-9]|\d\d)")


@dataclass(frozen=True, slots=True)
class Accepts:
    """What a model accepts. `reasons`: it may think before it answers, within its output.
    `tool_choice` is the strongest form, `max_tokens` the name of the limit of its output,
    `system_role` the role of the system prompt. `responses`: tools only through OpenAI's Responses,
    unless the effort is "none". `schema`: it can be held to a JSON schema."""

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
    def most_tokens(self) -> int:
        return MAX_REASONING_TOKENS if self.reasons else MAX_OUTPUT_TOKENS


def accepts(model: str) -> Accepts:
    """Return what `model` is known to accept. Raises `UserError` for an unknown or keyless one."""
    load_env()
    provider, name = provider_of(model), model.partition("/")[2]
    keys = PROVIDERS[provider].keys if provider in PROVIDERS else _keys_of(model)
    if keys and not any(map(os.environ.get, keys)):
        raise UserError(f"{model} needs a key: export {' or '.join(keys)}, or put it into .env")
    entry, openai = listed_model(model), provider == "openai"

    def listed(capability: str) -> bool:
        """Whether the list does not deny it."""
        return entry.get(f"supports_{capability}") is not False

    as_openai = provider in ("openai", "azure") and _REASONS.match(name) is not None
    reasons = as_openai or entry.get("supports_reasoning") is True
    choice: Literal["required", "auto"] | None = None
    if listed("function_calling") and not provider.startswith("ollama"):
        # A self-hosted server may enforce "required" with a grammar other than the form that the
        # model was trained to write; dashscope documents "auto" alone.
        forced = entry.get("supports_tool_choice") and listed("forced_tool_use")
        choice = "required" if forced and provider != "dashscope" else "auto"
    gemini_3 = provider == "gemini" and _GEMINI_3.match(name) is not None
    return Accepts(
        tools=listed("function_calling"),
        reasons=reasons,
        tool_choice=choice,
        temperature=not (as_openai or gemini_3) and listed("sampling_params"),
        # A Claude that is told to think accepts no forced call; servers of one's own tell.
        reasoning_effort=(reasons and "claude" not in name)
        or (not entry and provider in ("openai", "hosted_vllm")),
        max_tokens="max_completion_tokens" if as_openai else "max_tokens",
        system_role="developer" if openai and re.match(r"o\d", name) else "system",
        responses=openai and _BY_RESPONSES.match(name) is not None,
        schema=listed("response_schema"),
    )


def _keys_of(model: str) -> list[str]:
    """Return the keys that are missing for a model of a provider that only litellm knows."""
    missing = list(load_litellm().validate_environment(model)["missing_keys"])
    # Other settings have other sources (a cloud's profile, a default address).
    return missing if all(each.endswith("_API_KEY") for each in missing) else []


# What a provider's refusal of a parameter says, the field that it is about, and what replaces its
# value: something weaker, so that corrections come to an end.
_CORRECTIONS: tuple[tuple[str, str, dict[Any, Any]], ...] = (
    (r"/v1/responses", "responses", {False: True}),
    (r"use '?max_completion_tokens", "max_tokens", {"max_tokens": "max_completion_tokens"}),
    (r"support tool use|support tools|--enable-auto-tool-choice", "tools", {True: False}),
    (r"tool_choice|forced? tool", "tool_choice", {"required": "auto", "auto": None}),
    (r"temperature|sampling param", "temperature", {True: False}),
    (r"reasoning_effort|reasoning\.effort", "reasoning_effort", {True: False}),
    (r"developer.? role|role.{0,40}developer", "system_role", {"developer": "system"}),
)


def corrected(now: Accepts, refusal: str) -> tuple[Accepts, str] | None:
    """Return what a model accepts by its provider's `refusal`, and which field changes, if any."""
    for pattern, field, weaker in _CORRECTIONS:
        value = getattr(now, field)
        if value in weaker and re.search(pattern, refusal, re.IGNORECASE):
            return replace(now, **{field: weaker[value]}), field
    return None


# ---- When it ends, by `providers.toml` or else by litellm's list.


class Known(NamedTuple):
    """A model that `providers.toml` describes."""

    model: str
    short: str = ""
    variables: Sequence[str] = ()
    ends: str = ""
    followed_by: str = ""


KNOWN = {name: Known(name, **row) for name, row in TABLES["known"].items()}
# The baselines that results are compared with.
SHORT_NAMES = {each.short: each.model for each in KNOWN.values() if each.short}
PROPOSED = list(KNOWN.values())[:3]  # the ones to propose, the first whose key is set
_WARN_DAYS = 60


def ending(model: str, today: dt.date | None = None) -> str | None:
    """One line, with what follows it, if the model has ended or ends within 60 days; or None."""
    row = KNOWN.get(model, Known(model))
    last = row.ends or listed_model(model).get("deprecation_date")
    if not last:
        return None
    left = (dt.date.fromisoformat(last) - (today or dt.date.today())).days
    if left > _WARN_DAYS:
        return None
    instead = f"; run {row.followed_by} instead" if row.followed_by else "; name a newer model"
    return f"{model} {'ends' if left > 0 else 'ended'} on {last}{instead}"
