"""Hosted models: where they are, what they accept, and a call.

Servers that speak OpenAI's protocol as it is get their calls from the openai client; litellm makes
all others. Only this module imports litellm: it takes three seconds of CPU time. By default it
fetches its price list over HTTP, reads `.env`, prints hints and logs requests; here it does none of
that.
"""

import asyncio
import importlib.util
import inspect
import ipaddress
import json
import logging
import os
import re
import sys
import warnings
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import urlsplit

from art_e.errors import UserError
from art_e.models.base import MAX_OUTPUT_TOKENS, MAX_REASONING_TOKENS
from art_e.privacy import loopback_directly

if TYPE_CHECKING:
    from openai import AsyncOpenAI

# litellm reads these at import: prices and headers come from the installed package, and it leaves
# `.env` to us.
_ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_LOCAL_BLOG_POSTS": "True",
    "LITELLM_MODE": "PRODUCTION",
}

_clients: dict[
    asyncio.AbstractEventLoop, dict[tuple[str, str | None, str | None], "AsyncOpenAI"]
] = {}
_closers: dict[asyncio.AbstractEventLoop, AsyncGenerator[None, None]] = {}


@cache
def load_litellm() -> Any:
    """The module litellm, silent, and offline except for the calls that we make."""
    os.environ.update(_ENVIRONMENT)
    loopback_directly()
    import litellm

    # pydantic warns about litellm's types.
    warnings.filterwarnings("ignore", message=".*`ReadOnly` qualifier", category=UserWarning)
    litellm.suppress_debug_info = True
    litellm.turn_off_message_logging = True
    litellm.disable_hf_tokenizer_download = True
    # We retry ourselves, and count it.
    litellm.num_retries = 0
    # Its logs may hold mail text; failures come as exceptions.
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    return litellm


@cache
def listed_models() -> dict[str, dict[str, Any]]:
    """litellm's list of models with prices and capabilities, by name, read without litellm."""
    package = importlib.util.find_spec("litellm")
    if package is None or package.origin is None:
        raise AssertionError("litellm is not installed")
    path = Path(package.origin).with_name("model_prices_and_context_window_backup.json")
    return dict(json.loads(path.read_text("utf-8")))


# Providers that the openai client calls, each with the variable of its key and whether unknown
# models there take a reasoning effort.
_PLAIN = {
    "openai": ("OPENAI_API_KEY", True),
    "hosted_vllm": ("HOSTED_VLLM_API_KEY", True),
    "lm_studio": ("LM_STUDIO_API_KEY", False),
    "openai_like": ("OPENAI_LIKE_API_KEY", False),
}
# OpenAI's own that take chat completions with tools as they are; litellm converts the others.
_OPENAI_O_SERIES = re.compile(r"o\d")
_OPENAI_PLAIN = re.compile(r"o\d|gpt-(3\.5|4)")


def listed_model(model: str) -> dict[str, Any]:
    """The entry of a model in litellm's list, with or without its provider; empty: not listed."""
    listed = listed_models()
    return listed.get(model) or listed.get(model.partition("/")[2]) or {}


def is_plain(model: str) -> bool:
    """Whether the openai client calls the model, and litellm need not be loaded."""
    provider, _, name = model.partition("/")
    if provider != "openai":
        return provider in _PLAIN and bool(name.strip())
    entry = listed_model(model)
    known = bool(entry) or name.startswith("gpt-")
    if known and _OPENAI_PLAIN.match(name) is None:
        return False
    return bool(name.strip()) and entry.get("mode", "chat") == "chat"


async def complete(
    request: Mapping[str, Any], timeout_s: float, on_text: Callable[[str], None] | None = None
) -> Any:
    """The answer to a request in the form of OpenAI's chat completions.

    `on_text` gets the text of each call, or of a message without calls, each time it grows, where
    the openai client makes the call. Raises what litellm or the openai client raise, and anything
    over an answer in another form.
    """
    await close_clients_with_loop()
    model = str(request["model"])
    # litellm writes a pydantic model as the schema that a provider takes.
    if "response_format" in request or not is_plain(model):
        return await load_litellm().acompletion(
            **request, timeout=timeout_s, num_retries=0, max_retries=0
        )
    provider, _, name = model.partition("/")
    # As litellm does: some servers reject null.
    messages = [
        {key: value for key, value in each.items() if value is not None}
        for each in request["messages"]
    ]
    sent: Any = {**request, "model": name, "messages": messages}
    if on_text is None:
        answer = await _client(provider).chat.completions.create(**sent, timeout=timeout_s)
    else:
        answer = await _followed(_client(provider), {**sent, "timeout": timeout_s}, on_text)
    # The client does not look.
    message = answer.choices[0].message
    texts = [message.content, *(each.function.arguments for each in message.tool_calls or ())]
    if not all(isinstance(each, str | None) for each in texts):
        raise TypeError("content and arguments must be text")
    return answer


async def _followed(
    client: "AsyncOpenAI", request: dict[str, Any], on_text: Callable[[str], None]
) -> Any:
    """The answer to a request, put together from what arrives."""
    from openai.lib.streaming.chat import ChatCompletionStreamState

    state = ChatCompletionStreamState()
    asked = {**request, "stream": True, "stream_options": {"include_usage": True}}
    async for chunk in await client.chat.completions.create(**asked):
        state.handle_chunk(chunk)
        for choice in state.current_completion_snapshot.choices:
            calls = choice.message.tool_calls or ()
            # vLLM begins a call with its name alone.
            texts = [each.function.arguments or "" for each in calls]
            for text in texts or [choice.message.content or ""]:
                on_text(text)
    # Its `get_final_completion` refuses a message that reached its limit; ours may.
    answer = state.current_completion_snapshot
    if answer.choices[0].finish_reason is None:
        raise EOFError("the answer ended in the middle")
    return answer


def _client(provider: str) -> "AsyncOpenAI":
    """The client of the running loop for a provider at its address and with its key of now."""
    import openai

    address, key = _address_of(provider), os.environ.get(_PLAIN[provider][0])
    if address == _ADDRESSES[provider].default:
        address = f"{address}/v1"
    clients = _clients.setdefault(asyncio.get_running_loop(), {})
    if (provider, address, key) not in clients:
        clients[provider, address, key] = openai.AsyncOpenAI(
            base_url=address, api_key=key or "none", max_retries=0
        )
    return clients[provider, address, key]


def _address_of(provider: str, otherwise: str | None = None) -> str | None:
    """The provider's address from the environment, else `otherwise`, else its own."""
    known = _ADDRESSES[provider]
    return next(filter(None, map(os.environ.get, known.variables)), otherwise or known.default)


@cache
def warm_up(model: str) -> None:
    """Load what a first call of `model` loads, so that this does not count as latency. litellm's
    answer is a mock: no request is sent."""
    import openai.resources.chat  # noqa: F401 - its import takes half a second

    if is_plain(model):
        return
    load_litellm().completion(
        model="openai/gpt-4.1",
        messages=[{"role": "user", "content": ""}],
        # A request with tools loads an MCP server.
        tools=[{"type": "function", "function": {"name": "none", "parameters": {}}}],
        # With "" it would call the provider.
        mock_response="none",
    )


async def close_clients_with_loop() -> None:
    """Close the HTTP clients of the running loop when the loop ends, litellm's too. litellm keeps a
    client for each loop and never closes one. asyncio closes a loop's asynchronous generators at
    its end, so one of them closes the clients."""
    loop = asyncio.get_running_loop()
    if loop not in _closers:
        _closers[loop] = _close_at_end(loop)
        await anext(_closers[loop])


async def _close_at_end(loop: asyncio.AbstractEventLoop) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        _closers.pop(loop, None)
        for own in _clients.pop(loop, {}).values():
            await own.close()
        if "litellm" in sys.modules:
            clients = load_litellm().in_memory_llm_clients_cache
            # A later loop may get the same id, so a closed client must not stay.
            for key in [each for each in clients.cache_dict if each.endswith(f"-{id(loop)}")]:
                client = clients.cache_dict.pop(key)
                clients.ttl_dict.pop(key, None)
                closing = client.close()
                if inspect.isawaitable(closing):
                    await closing


class _Address(NamedTuple):
    """Environment variables of a provider's address (the first one set wins) and the default."""

    variables: tuple[str, ...]
    default: str | None = None


_OLLAMA = _Address(("OLLAMA_API_BASE",), "http://localhost:11434")
# Addresses that litellm only determines during a call; it gives the others before.
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
    # Without an address litellm would send these to OpenAI.
    "hosted_vllm": _Address(("HOSTED_VLLM_API_BASE",)),
    "lm_studio": _Address(("LM_STUDIO_API_BASE",)),
    "openai_like": _Address(("OPENAI_LIKE_API_BASE",)),
    "litellm_proxy": _Address(("LITELLM_PROXY_API_BASE",)),
}
# Providers whose models run on the user's own hardware.
SELF_HOSTED = ("hosted_vllm", "ollama", "ollama_chat", "lm_studio")
# Ollama forwards these to its makers' servers.
_OLLAMA_CLOUD = ("-cloud", ":cloud")
OLLAMA_HOST = "ollama.com"


def receiving_host(model: str) -> str:
    """The host (and port, if named) that receives what a hosted model is sent. Raises `UserError`
    if the provider or its address is unknown."""
    if is_plain(model):
        provider, address = model.partition("/")[0], None
    else:
        _, provider, _ = _known(model)
        address = load_litellm().get_api_base(model, {})
    if provider in _ADDRESSES:
        address = _address_of(provider, address)
        if not address:
            raise UserError(
                f"where is the server of {model}? export {_ADDRESSES[provider].variables[0]}=URL,"
                " such as http://localhost:8000/v1"
            )
    if not address:
        raise UserError(
            f"can't tell which host would receive the mail that {model} reads;"
            f" use a provider such as {', '.join(sorted(_ADDRESSES)[:5])}"
        )
    host = _host_of(address, model)
    if provider.startswith("ollama") and on_this_machine(host) and model.endswith(_OLLAMA_CLOUD):
        return OLLAMA_HOST
    return host


def on_this_machine(host: str) -> bool:
    """Whether `host`, as `receiving_host` gives it, is a loopback address."""
    name = urlsplit(f"//{host}").hostname or ""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _known(model: str) -> tuple[str, str, str | None]:
    """The model's name, provider and own address in litellm. Raises `UserError` without them."""
    litellm = load_litellm()
    try:
        name, provider, _, base = litellm.get_llm_provider(model)
    except litellm.BadRequestError:
        name = provider = base = ""
    if not name or name != name.strip():
        names = "offline, local:PATH or a litellm name such as openai/o3"
        raise UserError(f"unknown model {model!r}; use {names}")
    return name, provider, base


def _host_of(address: str, model: str) -> str:
    """Host and port of a URL, without credentials and path."""
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


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a model accepts.

    `native_tools`: tool schemas. `reasons`: it may think before it answers, within its output.
    `tool_choice` is the strongest form that it accepts, `max_tokens` the name of the parameter
    that limits its output, `system_role` the role of the system prompt, `endpoint` a base URL
    other than the provider's own (it may hold credentials).
    """

    native_tools: bool
    reasons: bool
    tool_choice: Literal["required", "auto"] | None
    temperature: bool
    reasoning_effort: bool
    max_tokens: Literal["max_tokens", "max_completion_tokens"]
    system_role: Literal["system", "developer"]
    endpoint: str | None

    @property
    def most_tokens(self) -> int:
        """The default limit of its output."""
        return MAX_REASONING_TOKENS if self.reasons else MAX_OUTPUT_TOKENS


def capabilities_of(model: str) -> Capabilities:
    """What `model` accepts. Raises `UserError` for an unknown name or a missing API key."""
    if is_plain(model):
        # As litellm has it, without the seconds that it takes to load.
        provider, _, name = model.partition("/")
        key, unknown_takes_effort = _PLAIN[provider]
        base, missing = None, [key] * (provider == "openai" and not os.environ.get(key))
        entry = listed_model(model)
        o_series = fixed_sampling = _OPENAI_O_SERIES.match(name) is not None and bool(entry)
        takes_effort = o_series or (not entry and unknown_takes_effort)
        taken = ["tools", "tool_choice", "temperature", *["reasoning_effort"] * takes_effort]
    else:
        litellm = load_litellm()
        name, provider, base = _known(model)
        missing = litellm.validate_environment(model)["missing_keys"]
        entry = litellm.model_cost.get(model) or litellm.model_cost.get(name) or {}
        o_series = litellm.OpenAIOSeriesConfig().is_model_o_series_model(name)
        fixed_sampling = o_series or litellm.OpenAIGPT5Config.is_model_gpt_5_model(name)
        taken = litellm.get_supported_openai_params(name, custom_llm_provider=provider) or []
    # Other settings have other sources (a cloud's profile, a default address).
    if missing and all(each.endswith("_API_KEY") for each in missing):
        raise UserError(f"{model} needs a key: export {' or '.join(missing)}, or put it into .env")
    prefix = provider.removesuffix("_chat").upper()
    own = os.environ.get(f"{prefix}_BASE_URL") or os.environ.get(f"{prefix}_API_BASE")
    return Capabilities(
        native_tools="tools" in taken and entry.get("supports_function_calling") is not False,
        reasons=fixed_sampling or entry.get("supports_reasoning") is True,
        tool_choice=_tool_choice(provider, taken, entry.get("supports_tool_choice")),
        temperature="temperature" in taken and not fixed_sampling,
        # A Claude that thinks accepts neither a forced tool call nor a temperature.
        reasoning_effort="reasoning_effort" in taken and "claude" not in name,
        max_tokens="max_completion_tokens" if fixed_sampling else "max_tokens",
        # litellm would turn their system prompt into a user's message.
        system_role="developer" if o_series and provider == "openai" else "system",
        endpoint=own or base,
    )


def takes_response_format(model: str) -> bool:
    """Whether the model can be held to a JSON schema."""
    taken = load_litellm().get_supported_openai_params(model)
    return "response_format" in (taken or [])


def _tool_choice(
    provider: str, taken: list[str], listed: bool | None
) -> Literal["required", "auto"] | None:
    # litellm drops it for Ollama's models, because requests with it hang.
    if "tool_choice" not in taken or provider.startswith("ollama") or listed is False:
        return None
    # A self-hosted server may enforce "required" with a grammar other than the form that the
    # model was trained to write; dashscope documents "auto" alone.
    return "required" if listed and provider != "dashscope" else "auto"
