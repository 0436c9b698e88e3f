"""One call of a hosted model, by the client that its provider needs.

Servers that speak OpenAI's protocol as it is get their calls from the openai client, Ollama gets
them by its own API, and litellm makes all others."""

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
from art_e.models.providers import PROVIDERS, Accepts, address_of, door_of, load_litellm

if TYPE_CHECKING:
    from openai import AsyncOpenAI

OnText = Callable[[str], None]

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
        why = f"{hosts[0]} sends the call on to {hosts[1]}, and no redirect is followed"
        raise PolicyError("redirect", f"{why}; set the address of the server that answers")

    BaseClient._build_redirect_request = refuse  # type: ignore[method-assign]
    Response.aiter_bytes = bounded  # type: ignore[method-assign]


async def complete(
    request: Mapping[str, Any], timeout_s: float, on_text: OnText | None = None
) -> Any:
    """Return the answer to a request in the form of OpenAI's chat completions. `on_text` gets the
    text of each call, or of a message without calls, as it grows, if the client can follow it;
    `timeout_s` is the longest silence. Raises what clients do, and anything over another form."""
    _guard_clients()
    loop = asyncio.get_running_loop()
    if loop not in _closers:
        _closers[loop] = _close_at_end(loop)
        await anext(_closers[loop])
    model = str(request["model"])
    provider, _, name = model.partition("/")
    door = door_of(model)
    if door == "ollama":
        address = address_of(provider) or ""
        return await _by_ollama(request, address, timeout_s, on_text or (lambda _: None))
    # litellm writes OpenAI's Responses.
    if door == "litellm" or name.startswith("responses/"):
        once = {"timeout": timeout_s, "num_retries": 0, "max_retries": 0}
        return await load_litellm().acompletion(**request, **once)
    import openai

    # As litellm does: some servers reject null.
    messages = [{k: v for k, v in each.items() if v is not None} for each in request["messages"]]
    sent: Any = {**request, "model": name, "messages": messages, "timeout": timeout_s}
    if form := request.get("response_format"):
        schema = openai.pydantic_function_tool(form)["function"]["parameters"]
        strict = {"name": form.__name__, "strict": True, "schema": schema}
        sent["response_format"] = {"type": "json_schema", "json_schema": strict}
    if on_text is None:
        answer = await _client(provider).chat.completions.create(**sent)
    else:
        answer = await _followed(_client(provider), sent, on_text)
    message = answer.choices[0].message  # the client checks no types
    texts = [message.content, *(each.function.arguments for each in message.tool_calls or ())]
    if not all(isinstance(each, str | None) for each in texts):
        raise TypeError("content and arguments must be text")
    return answer


def follows(model: str, takes: Accepts) -> bool:
    """Return whether an answer can be followed. OpenAI streams models that reason to few users."""
    door = door_of(model)
    return door == "ollama" or (door == "openai" and not takes.reasons)


async def _followed(client: "AsyncOpenAI", request: dict[str, Any], on_text: OnText) -> Any:
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


async def _close_at_end(loop: asyncio.AbstractEventLoop) -> AsyncGenerator[None, None]:
    """Close the HTTP clients of a loop when it ends, litellm's too, which never closes one: asyncio
    closes a loop's asynchronous generators, of which this is one, at its end."""
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


# ---- Ollama by its own API: OpenAI's, which it has too, can't say how much of a conversation fits.
# Without `num_ctx` Ollama keeps 4,096 tokens and drops the oldest messages of a longer conversation
# without a word: the question first. Here the context is as long as the conversation needs, in
# steps, because each change loads the model again; one that doesn't fit the model is an error.

_CONTEXT = 16_384  # tokens of the smallest
# Characters of a token: English has about four, code and other languages down to 2.5, no text 6.
_FEWEST_CHARS, _MOST_CHARS = 2.5, 6


async def _by_ollama(
    request: Mapping[str, Any], address: str, timeout_s: float, on_text: OnText
) -> Any:
    """As `complete`. Raises errors of httpx, and `PolicyError` if the conversation doesn't fit."""
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
        while context < chars / _FEWEST_CHARS + output:
            context *= 2
        context = min(context, limit)
        options = {"num_ctx": context, "num_predict": output}
        if "temperature" in request:
            options["temperature"] = request["temperature"]
        body = {name: value for name, value in sent.items() if value is not None}
        message, last = await _follow_ollama(client, {**body, "options": options}, on_text)
    prompt, completion = last.get("prompt_eval_count", 0), last.get("eval_count", 0)
    if prompt >= context or 0 < prompt < chars // _MOST_CHARS:
        part = f"{prompt:,} tokens of about {chars // 4:,}"
        why = f"Ollama cut the conversation: {part} reached the model, whose context is {limit:,}"
        raise PolicyError("context", f"{why}; ask with fewer turns, or another model")
    cut = last.get("done_reason") == "length"
    reason = "tool_calls" if message["tool_calls"] else "length" if cut else "stop"
    answer = {
        "model": last.get("model", ""),
        "choices": [{"message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": prompt, "completion_tokens": completion},
    }
    # openai's own classes would cost a second of CPU time to import.
    return json.loads(json.dumps(answer), object_hook=lambda fields: SimpleNamespace(**fields))


async def _context_length(client: Any, model: str) -> int:
    """Return the longest context of a model, as Ollama reads it from its file."""
    response = await client.post("/api/show", json={"model": model})
    await _checked(response)
    facts = response.json().get("model_info") or {}
    lengths = [value for name, value in facts.items() if name.endswith(".context_length")]
    return int(lengths[0]) if lengths else _CONTEXT


async def _follow_ollama(
    client: Any, body: Mapping[str, Any], on_text: Callable[[str], None]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the message put together from what arrives, and the last line with its counts."""
    content = ""
    calls: list[dict[str, Any]] = []
    last: dict[str, Any] = {}
    async with client.stream("POST", "/api/chat", json=body) as response:
        await _checked(response)
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


async def _checked(response: Any) -> None:
    """Raise httpx's error for a refusal, with the server's words."""
    if response.is_error:
        import httpx

        text = (await response.aread()).decode("utf-8", "replace")
        raise httpx.HTTPStatusError(text, request=response.request, response=response)


def _to_ollama(message: ChatMessage) -> ChatMessage:
    """Return a message as Ollama takes it: the arguments of calls are objects."""
    sent = {"role": message["role"], "content": message.get("content") or ""}
    calls = [ToolCall("", **each["function"]) for each in message.get("tool_calls") or ()]
    functions = [{"name": each.name, "arguments": each.parsed} for each in calls]
    return {**sent, "tool_calls": [{"function": each} for each in functions]} if calls else sent


def _from_ollama(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = compact_json(function.get("arguments") or {})
    named = {"name": function["name"], "arguments": arguments}
    return {"id": call.get("id") or "", "type": "function", "function": named}
