"""One call of a hosted model, with the client that its provider needs.

Servers that speak OpenAI's protocol are called with the openai client, Ollama through its own API,
and all others with litellm."""

import asyncio
import inspect
import json
import os
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from art_e.message import ChatMessage, ToolCall, compact_json
from art_e.models.base import MAX_OUTPUT_TOKENS, PolicyError
from art_e.models.providers import PROVIDERS, Capabilities, address_of, client_of, load_litellm

if TYPE_CHECKING:
    from openai import AsyncOpenAI

OnText = Callable[[str], None]

_AZURE_VERSION = "2025-02-01-preview"  # litellm's default
_MAX_BYTES = 50_000_000  # limit of an answer, over fifty times what any model writes

# Clients per event loop, by provider, address and key, and the generators that close them.
_Clients = dict[tuple[str, str | None, str | None], "AsyncOpenAI"]
_clients: dict[asyncio.AbstractEventLoop, _Clients] = {}
_closers: dict[asyncio.AbstractEventLoop, AsyncGenerator[None, None]] = {}


@cache
def _guard_clients() -> None:
    """Make all clients reject redirected POSTs, which would send mail and keys to an unknown host,
    and endless answers. All clients use httpx; those that litellm creates follow redirects.
    Downloads are synchronous GETs and stay as they are."""
    from httpx import Response
    from httpx._client import BaseClient

    build, read = BaseClient._build_redirect_request, Response.aiter_bytes

    async def bounded(self: Any, chunk_size: int | None = None) -> AsyncGenerator[bytes, None]:
        size = 0
        async for part in read(self, chunk_size):
            if (size := size + len(part)) > _MAX_BYTES:
                raise PolicyError("provider", f"an answer of over {_MAX_BYTES // 10**6} MB")
            yield part

    def reject(self: Any, request: Any, response: Any) -> Any:
        redirected = build(self, request, response)
        if request.method != "POST":
            return redirected
        hosts = [each.url.netloc.decode("ascii", "replace") for each in (request, redirected)]
        why = f"{hosts[0]} redirects the call to {hosts[1]}, and redirects are not followed"
        raise PolicyError("redirect", f"{why}; set the address of the server that answers")

    BaseClient._build_redirect_request = reject  # type: ignore[method-assign]
    Response.aiter_bytes = bounded  # type: ignore[method-assign]


async def complete(
    request: Mapping[str, Any], timeout_s: float, on_text: OnText | None = None
) -> Any:
    """Return the answer to a request in the form of OpenAI's chat completions. `on_text` gets the
    text of each call, or of a message without calls, as it grows, if the client can stream.
    `timeout_s`: seconds without data. Raises the client's errors, or any error for a bad answer."""
    _guard_clients()
    loop = asyncio.get_running_loop()
    if loop not in _closers:
        _closers[loop] = _close_at_end(loop)
        await anext(_closers[loop])
    model = str(request["model"])
    provider, _, name = model.partition("/")
    kind = client_of(model)
    if kind == "ollama":
        address = address_of(provider) or ""
        return await _complete_with_ollama(request, address, timeout_s, on_text or (lambda _: None))
    # litellm also calls OpenAI's Responses API.
    if kind == "litellm" or name.startswith("responses/"):
        once = {"timeout": timeout_s, "num_retries": 0, "max_retries": 0}
        return await load_litellm().acompletion(**request, **once)
    import openai

    # Some servers reject null; litellm leaves it out too.
    messages = [{k: v for k, v in each.items() if v is not None} for each in request["messages"]]
    sent: Any = {**request, "model": name, "messages": messages, "timeout": timeout_s}
    if form := request.get("response_format"):
        schema = openai.pydantic_function_tool(form)["function"]["parameters"]
        strict = {"name": form.__name__, "strict": True, "schema": schema}
        sent["response_format"] = {"type": "json_schema", "json_schema": strict}
    if on_text is None:
        answer = await _client(provider).chat.completions.create(**sent)
    else:
        answer = await _stream(_client(provider), sent, on_text)
    message = answer.choices[0].message  # the client does not check types
    texts = [message.content, *(each.function.arguments for each in message.tool_calls or ())]
    if not all(isinstance(each, str | None) for each in texts):
        raise TypeError("content and arguments must be text")
    return answer


def can_stream(model: str, supports: Capabilities) -> bool:
    """Return whether an answer can be streamed. OpenAI lets few users stream reasoning models."""
    kind = client_of(model)
    return kind == "ollama" or (kind == "openai" and not supports.reasons)


async def _stream(client: "AsyncOpenAI", request: dict[str, Any], on_text: OnText) -> Any:
    """Stream the answer to a request, and return it whole."""
    from openai.lib.streaming.chat import ChatCompletionStreamState

    state = ChatCompletionStreamState()
    request = {**request, "stream": True, "stream_options": {"include_usage": True}}
    async for chunk in await client.chat.completions.create(**request):
        state.handle_chunk(chunk)
        for choice in state.current_completion_snapshot.choices:
            # vLLM sends a call's name before its arguments.
            texts = [each.function.arguments or "" for each in choice.message.tool_calls or ()]
            for text in texts or [choice.message.content or ""]:
                on_text(text)
    # `get_final_completion` would reject a message that reached its token limit.
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
    if name not in clients and provider == "azure":  # the model's name is its deployment's
        common["api_version"] = os.environ.get("AZURE_API_VERSION", _AZURE_VERSION)
        clients[name] = openai.AsyncAzureOpenAI(azure_endpoint=address or "", **common)
    elif name not in clients:
        clients[name] = openai.AsyncOpenAI(base_url=address, **common)
    return clients[name]


@cache
def warm_up(model: str) -> None:
    """Load what `model`'s first call needs, so that it doesn't count as latency. Sends nothing."""
    kind = client_of(model)
    if kind != "ollama":
        import openai.resources.chat  # noqa: F401 - its import takes half a second
    if kind != "litellm":
        return
    load_litellm().token_counter(model=model, text="none")  # loads a tokenizer, as a call does
    load_litellm().completion(
        model="openai/gpt-4.1",
        messages=[{"role": "user", "content": ""}],
        # A request with tools loads an MCP server.
        tools=[{"type": "function", "function": {"name": "none", "parameters": {}}}],
        mock_response="none",  # with "" it would call the provider
    )


async def _close_at_end(loop: asyncio.AbstractEventLoop) -> AsyncGenerator[None, None]:
    """Close a loop's HTTP clients at its end, also those of litellm, which never closes them.
    asyncio ends a loop by closing its asynchronous generators, and this is one of them."""
    try:
        yield
    finally:
        _closers.pop(loop, None)
        for client in _clients.pop(loop, {}).values():
            await client.close()
        if "litellm" in sys.modules:
            cache = load_litellm().in_memory_llm_clients_cache
            # A later loop may get the same id, so closed clients must not stay in the cache.
            for key in [each for each in cache.cache_dict if each.endswith(f"-{id(loop)}")]:
                client = cache.cache_dict.pop(key)
                cache.ttl_dict.pop(key, None)
                closing = client.close()
                if inspect.isawaitable(closing):
                    await closing


# ---- Ollama's own API, because its OpenAI API has no setting for the context length. Without
# `num_ctx` Ollama keeps 4,096 tokens and silently drops the oldest messages of a longer
# conversation, starting with the question. Here the context grows with the conversation, in steps,
# because each change loads the model again. A conversation that doesn't fit the model is an error.

_CONTEXT = 16_384  # minimum, in tokens
# Characters per token: about four in English, down to 2.5 in code and other languages, never 6.
_MIN_CHARS, _MAX_CHARS = 2.5, 6


async def _complete_with_ollama(
    request: Mapping[str, Any], address: str, timeout_s: float, on_text: OnText
) -> Any:
    """Call Ollama as `complete` does. Raises httpx's errors, `PolicyError` for a full context."""
    import httpx

    schema = request.get("response_format")
    sent: dict[str, Any] = {
        "model": request["model"].partition("/")[2],
        "messages": [_to_ollama(each) for each in request["messages"]],
        "tools": request.get("tools"),
        "format": None if schema is None else schema.model_json_schema(),
        "stream": True,
    }
    chars = len(compact_json([sent["messages"], sent["tools"]]))
    output = request.get("max_tokens", MAX_OUTPUT_TOKENS)
    async with httpx.AsyncClient(base_url=address, timeout=timeout_s) as client:
        context, limit = _CONTEXT, await _context_length(client, sent["model"])
        while context < chars / _MIN_CHARS + output:  # in tokens; doubling makes reloads rare
            context *= 2
        context = min(context, limit)
        options = {"num_ctx": context, "num_predict": output}
        if "temperature" in request:
            options["temperature"] = request["temperature"]
        body = {name: value for name, value in sent.items() if value is not None}
        message, last = await _stream_ollama(client, {**body, "options": options}, on_text)
    prompt, completion = last.get("prompt_eval_count", 0), last.get("eval_count", 0)
    if prompt >= context or 0 < prompt < chars // _MAX_CHARS:  # fewer than any tokenizer makes
        part = f"{prompt:,} tokens of about {chars // 4:,}"
        why = f"Ollama cut the conversation: {part} reached the model, whose context is {limit:,}"
        raise PolicyError("context", f"{why}; use fewer turns, or another model")
    cut = last.get("done_reason") == "length"
    reason = "tool_calls" if message["tool_calls"] else "length" if cut else "stop"
    answer = {
        "model": last.get("model", ""),
        "choices": [{"message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": prompt, "completion_tokens": completion},
    }
    # Importing openai's classes would take a second of CPU time.
    return json.loads(json.dumps(answer), object_hook=lambda fields: SimpleNamespace(**fields))


async def _context_length(client: Any, model: str) -> int:
    response = await client.post("/api/show", json={"model": model})
    await _raise_for_error(response)
    facts = response.json().get("model_info") or {}
    lengths = [value for name, value in facts.items() if name.endswith(".context_length")]
    return int(lengths[0]) if lengths else _CONTEXT


async def _stream_ollama(
    client: Any, body: Mapping[str, Any], on_text: Callable[[str], None]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Stream a message; return it whole, and the last line with the token counts."""
    content = ""
    calls: list[dict[str, Any]] = []
    last: dict[str, Any] = {}
    async with client.stream("POST", "/api/chat", json=body) as response:
        await _raise_for_error(response)
        async for line in response.aiter_lines():
            last = json.loads(line)
            if "error" in last:
                raise ValueError(last["error"])
            part = last.get("message") or {}
            content += part.get("content") or ""
            calls += part.get("tool_calls") or []
            on_text(compact_json(calls[-1]["function"]["arguments"]) if calls else content)
    if not last.get("done"):
        raise EOFError("the answer ended in the middle")
    tool_calls = list(map(_from_ollama, calls)) or None
    return {"role": "assistant", "content": content or None, "tool_calls": tool_calls}, last


async def _raise_for_error(response: Any) -> None:
    if response.is_error:
        import httpx

        text = (await response.aread()).decode("utf-8", "replace")
        raise httpx.HTTPStatusError(text, request=response.request, response=response)


def _to_ollama(message: ChatMessage) -> ChatMessage:
    sent = {"role": message["role"], "content": message.get("content") or ""}
    calls = [ToolCall("", **each["function"]) for each in message.get("tool_calls") or ()]
    functions = [{"name": each.name, "arguments": each.parsed} for each in calls]
    return {**sent, "tool_calls": [{"function": each} for each in functions]} if calls else sent


def _from_ollama(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = compact_json(function.get("arguments") or {})
    named = {"name": function["name"], "arguments": arguments}
    return {"id": call.get("id") or "", "type": "function", "function": named}
