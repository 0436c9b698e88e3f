"""Ollama by its own API: the other one, OpenAI's, can't say how much of a conversation fits.

Without `num_ctx` Ollama keeps 4,096 tokens and drops the oldest messages of a longer conversation
without a word: the question first. Here the context is as long as the conversation needs, in steps,
because each change loads the model again; one that doesn't fit the model is an error.
"""

import json
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from art_e.message import ChatMessage, ToolCall, compact_json
from art_e.models.base import MAX_OUTPUT_TOKENS, PolicyError

_CONTEXT = 16_384  # tokens of the smallest
# Characters of a token: English has about four, code and other languages down to 2.5; 6 are more
# than any text has.
_FEWEST_CHARS, _MOST_CHARS = 2.5, 6


async def complete(
    request: Mapping[str, Any], address: str, timeout_s: float, on_text: Callable[[str], None]
) -> Any:
    """Return the answer to a request in the form of OpenAI's chat completions; arguments as in
    `clients.complete`. Raises errors of httpx, and `PolicyError` if it doesn't fit."""
    import httpx

    schema = request.get("response_format")
    sent: dict[str, Any] = {
        "model": request["model"].partition("/")[2],
        "messages": [_message(each) for each in request["messages"]],
        "tools": request.get("tools"),
        "format": None if schema is None else schema.model_json_schema(),
        "stream": True,
    }
    chars = len(compact_json([sent["messages"], sent["tools"]]))
    output = request.get("max_tokens", MAX_OUTPUT_TOKENS)
    async with httpx.AsyncClient(base_url=address, timeout=timeout_s) as client:
        limit = await context_length(client, sent["model"])
        context = fitting(int(chars / _FEWEST_CHARS) + output, limit)
        options = {"num_ctx": context, "num_predict": output}
        if "temperature" in request:
            options["temperature"] = request["temperature"]
        body = {name: value for name, value in sent.items() if value is not None}
        message, last = await _followed(client, {**body, "options": options}, on_text)
    prompt, completion = last.get("prompt_eval_count", 0), last.get("eval_count", 0)
    if prompt >= context or 0 < prompt < chars // _MOST_CHARS:
        raise PolicyError(
            "context",
            f"Ollama cut the conversation: {prompt:,} tokens of about {chars // 4:,} reached the"
            f" model, whose context is {limit:,}; ask with fewer turns, or another model",
        )
    cut = last.get("done_reason") == "length"
    reason = "tool_calls" if message["tool_calls"] else "length" if cut else "stop"
    answer = {
        "model": last.get("model", ""),
        "choices": [{"message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": prompt, "completion_tokens": completion},
    }
    # openai's own classes would cost a second of CPU time to import.
    return json.loads(json.dumps(answer), object_hook=lambda fields: SimpleNamespace(**fields))


def fitting(tokens: int, limit: int) -> int:
    """Return the context to load: 16,384 doubled as often as `tokens` need, at most `limit`."""
    context = _CONTEXT
    while context < tokens:
        context *= 2
    return min(context, limit)


async def context_length(client: Any, model: str) -> int:
    """Return the longest context of a model, as Ollama reads it from its file."""
    response = await client.post("/api/show", json={"model": model})
    await _checked(response)
    facts = response.json().get("model_info") or {}
    lengths = [value for name, value in facts.items() if name.endswith(".context_length")]
    return int(lengths[0]) if lengths else _CONTEXT


async def _followed(
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
    tool_calls = list(map(_call, calls)) or None
    return {"role": "assistant", "content": content or None, "tool_calls": tool_calls}, last


async def _checked(response: Any) -> None:
    """Raise httpx's error for a refusal, with the server's words."""
    if response.is_error:
        import httpx

        text = (await response.aread()).decode("utf-8", "replace")
        raise httpx.HTTPStatusError(text, request=response.request, response=response)


def _message(message: ChatMessage) -> ChatMessage:
    """A message as Ollama takes it: the arguments of calls are objects."""
    sent = {"role": message["role"], "content": message.get("content") or ""}
    calls = [ToolCall("", **each["function"]) for each in message.get("tool_calls") or ()]
    functions = [{"name": each.name, "arguments": each.parsed} for each in calls]
    return {**sent, "tool_calls": [{"function": each} for each in functions]} if calls else sent


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = compact_json(function.get("arguments") or {})
    named = {"name": function["name"], "arguments": arguments}
    return {"id": call.get("id") or "", "type": "function", "function": named}
