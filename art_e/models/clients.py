"""One call of a hosted model, by the client that its provider needs.

Servers that speak OpenAI's protocol as it is get their calls from the openai client, Ollama gets
them by its own API, and litellm makes all others.
"""

import asyncio
import inspect
import os
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from art_e.models import ollama
from art_e.models.base import PolicyError
from art_e.models.providers import PROVIDERS, Accepts, address_of, door_of, load_litellm

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_AZURE_VERSION = "2025-02-01-preview"  # litellm's default
_MOST_BYTES = 50_000_000  # of an answer; no model writes a fiftieth of it

# Of each event loop: its clients by provider, address and key, and what closes them at its end.
_Clients = dict[tuple[str, str | None, str | None], "AsyncOpenAI"]
_clients: dict[asyncio.AbstractEventLoop, _Clients] = {}
_closers: dict[asyncio.AbstractEventLoop, AsyncGenerator[None, None]] = {}


@cache
def _guard_clients() -> None:
    """Make all clients refuse a redirect of a POST, which would take mail, and keys in headers, to
    a host that the user does not know of, and an answer without an end. All send through httpx, and
    litellm makes its own, which follow. Downloads are GET and synchronous, and go on as before."""
    from httpx import Response
    from httpx._client import BaseClient

    build, read = BaseClient._build_redirect_request, Response.aiter_bytes

    async def bounded(self: Any, chunk_size: int | None = None) -> AsyncGenerator[bytes, None]:
        size = 0
        async for part in read(self, chunk_size):
            if (size := size + len(part)) > _MOST_BYTES:
                raise PolicyError("provider", f"an answer of over {_MOST_BYTES // 10**6} MB")
            yield part

    def refuse(self: Any, request: Any, response: Any) -> Any:
        there = build(self, request, response)
        if request.method != "POST":
            return there
        hosts = [each.url.netloc.decode("ascii", "replace") for each in (request, there)]
        raise PolicyError(
            "redirect",
            f"{hosts[0]} sends the call on to {hosts[1]}, and no redirect is followed;"
            " set the address of the server that answers",
        )

    BaseClient._build_redirect_request = refuse  # type: ignore[method-assign]
    Response.aiter_bytes = bounded  # type: ignore[method-assign]


async def complete(
    request: Mapping[str, Any], timeout_s: float, on_text: Callable[[str], None] | None = None
) -> Any:
    """Return the answer to a request in the form of OpenAI's chat completions. `on_text` gets the
    text of each call, or of a message without calls, each time it grows, if the client can follow
    it; `timeout_s` is the longest silence. Raises what the clients raise, and anything over an
    answer in another form."""
    _guard_clients()
    await close_clients_with_loop()
    model = str(request["model"])
    provider, _, name = model.partition("/")
    door = door_of(model)
    if door == "ollama":
        address = address_of(provider) or ""
        return await ollama.complete(request, address, timeout_s, on_text or (lambda _: None))
    # litellm writes OpenAI's Responses.
    if door == "litellm" or name.startswith("responses/"):
        return await load_litellm().acompletion(
            **request, timeout=timeout_s, num_retries=0, max_retries=0
        )
    import openai

    # As litellm does: some servers reject null.
    messages = [
        {key: value for key, value in each.items() if value is not None}
        for each in request["messages"]
    ]
    sent: Any = {**request, "model": name, "messages": messages, "timeout": timeout_s}
    if form := request.get("response_format"):
        schema = openai.pydantic_function_tool(form)["function"]["parameters"]
        strict = {"name": form.__name__, "strict": True, "schema": schema}
        sent["response_format"] = {"type": "json_schema", "json_schema": strict}
    if on_text is None:
        answer = await _client(provider).chat.completions.create(**sent)
    else:
        answer = await _followed(_client(provider), sent, on_text)
    # The client does not look.
    message = answer.choices[0].message
    texts = [message.content, *(each.function.arguments for each in message.tool_calls or ())]
    if not all(isinstance(each, str | None) for each in texts):
        raise TypeError("content and arguments must be text")
    return answer


def follows(model: str, takes: Accepts) -> bool:
    """Return whether an answer can be followed. OpenAI streams models that reason to few users."""
    door = door_of(model)
    return door == "ollama" or (door == "openai" and not takes.reasons)


async def _followed(
    client: "AsyncOpenAI", request: dict[str, Any], on_text: Callable[[str], None]
) -> Any:
    """Return the answer to a request, put together from what arrives."""
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
    """Return this event loop's client for the provider, with its current address and key."""
    import openai

    address, key = address_of(provider), os.environ.get(f"{provider.upper()}_API_KEY")
    if address == PROVIDERS[provider].default:
        address = f"{address}/v1"
    clients = _clients.setdefault(asyncio.get_running_loop(), {})
    name = provider, address, key
    common: Any = {"api_key": key or "none", "max_retries": 0}
    if name not in clients and provider == "azure":  # a model is named as its deployment
        common["api_version"] = os.environ.get("AZURE_API_VERSION", _AZURE_VERSION)
        clients[name] = openai.AsyncAzureOpenAI(azure_endpoint=address or "", **common)
    elif name not in clients:
        clients[name] = openai.AsyncOpenAI(base_url=address, **common)
    return clients[name]


@cache
def warm_up(model: str) -> None:
    """Load what a first call of `model` loads, or it would count as latency. Sends nothing."""
    door = door_of(model)
    if door != "ollama":
        import openai.resources.chat  # noqa: F401 - its import takes half a second
    if door != "litellm":
        return
    load_litellm().token_counter(model=model, text="none")  # loads a tokenizer, as a call does
    load_litellm().completion(
        model="openai/gpt-4.1",
        messages=[{"role": "user", "content": ""}],
        # A request with tools loads an MCP server.
        tools=[{"type": "function", "function": {"name": "none", "parameters": {}}}],
        mock_response="none",  # with "" it would call the provider
    )


async def close_clients_with_loop() -> None:
    """Close the HTTP clients of the running loop when it ends, litellm's too, which never closes
    one. asyncio closes a loop's asynchronous generators at its end: one of them closes clients."""
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
