"""The policy for all models behind an API: hosted, Ollama, or the user's vLLM.

One policy serves many episodes at once, and several event loops one after another."""

import copy
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from art_e.errors import UserError
from art_e.message import AssistantMessage, ChatMessage, ToolCall, compact_json
from art_e.models.base import ModelOptions, PolicyStep, Usage
from art_e.models.calls import REASONING_FIELDS, Calls, Retries
from art_e.models.clients import can_stream, warm_up
from art_e.models.providers import Capabilities
from art_e.models.tool_formats import parse_reply, parse_text, to_text_messages
from art_e.text import digest, prompt_text

_MAX_NAME_CHARS = 64  # names that every provider accepts
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")


def for_provider(
    messages: list[ChatMessage], system_role: str = "system", model: str = ""
) -> list[ChatMessage]:
    """Return a copy of the conversation as providers accept it: valid tool names, arguments as an
    object, the right system role, and reasoning only for the `model` that produced it."""
    sent = copy.deepcopy(messages)
    for message in sent:
        if message["role"] == "system":
            message["role"] = system_role
        thoughts = message.pop("thoughts", {})
        if thoughts.get("model") == model:
            message.update(thoughts["message"])
        for call in message.get("tool_calls", ()):
            function = call["function"]
            name = _NOT_IN_NAMES.sub("_", function["name"])[:_MAX_NAME_CHARS]
            function["name"] = name or "unnamed"
            if not isinstance(ToolCall("", name, function["arguments"]).parsed, dict):
                function["arguments"] = compact_json({"malformed": function["arguments"]})
    return sent


def from_provider(message: Any, messages: list[ChatMessage], model: str = "") -> AssistantMessage:
    """Return the message in a response by `model` to the conversation `messages`. Calls keep their
    ids, which carry Gemini's signatures; missing ids are added, repeated ones made unique."""
    used = {call["id"] for each in messages for call in each.get("tool_calls", ())}
    turn = sum(each["role"] == "assistant" for each in messages)
    calls = []
    for number, call in enumerate(message.tool_calls or ()):
        original = call.id or f"call_{turn}_{number}"
        call_id, copies = original, 1
        while call_id in used:
            copies += 1
            call_id = f"{original}_{copies}"
        used.add(call_id)
        function = call.function
        calls.append(ToolCall(call_id, function.name or "", function.arguments or ""))
    # Providers need thinking blocks and reasoning items back; only DeepSeek accepts its own field.
    names = [*REASONING_FIELDS, *["reasoning_content"] * model.startswith("deepseek/")]
    fields = {name: value for name in names if (value := getattr(message, name, None))}
    thoughts = {"model": model, "message": fields} if model and fields else None
    return AssistantMessage(message.content or None, tuple(calls), thoughts)


class LitellmPolicy:
    """Calls `model`, a full name, with `options`. Raises `UserError` for options that the model
    does not accept, an unknown model, or a missing key. `retries` is for tests."""

    def __init__(self, model: str, options: ModelOptions, retries: Retries | None = None) -> None:
        self.model = model
        self._options = options
        self._calls = Calls(model, options, retries)
        supports = self._calls.supports
        if options.tool_calls == "native" and not supports.tools:
            raise UserError(f"{model} can't call tools; use --tool-calls auto or text")
        if options.temperature is not None and not supports.temperature:
            raise UserError(f"{model} accepts no temperature; leave --temperature out")
        if options.reasoning_effort is not None and not supports.reasoning_effort:
            raise UserError(f"{model} accepts no reasoning effort; leave --reasoning-effort out")
        streamed = options.on_answer is not None and can_stream(model, supports)
        self._on_text = options.stream_answer if streamed else None
        warm_up(model)  # or loading would count as latency of the first question

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that an answer depends on besides the messages, without keys."""
        calls, by_text = self._calls, self._as_text(self._calls.supports)
        fixed = self._fixed_parameters(calls.supports)
        names = ("temperature", "reasoning_effort", "tool_choice")
        settings = {name: fixed.get(name) for name in names}
        settings |= {"host": calls.host, "max_output_tokens": calls.max_output_tokens}
        if by_text:
            settings["text_calls_hash"] = digest(prompt_text("art_e", "text_calls"))
        return settings | {"tool_calls": "text" if by_text else "native"}

    async def act(self, messages: list[ChatMessage], tools: list[dict[str, Any]]) -> PolicyStep:
        """Return the model's next message. Raises `PolicyError` if retries don't help, of the kinds
        auth, no-model, no-credit, quota, region, redirect, rate-limit, provider, overload, timeout,
        connection, context, length, content, request, budget."""
        result = await self._calls.make(partial(self._request, messages, tools), self._on_text)
        turn = sum(each["role"] == "assistant" for each in messages)
        if self._as_text(self._calls.supports):
            message = parse_text(result.message.content or "", turn)
        else:
            message = from_provider(result.message, messages, self.model)
        if not message.tool_calls:
            message = recover_calls(message, turn, {each["function"]["name"] for each in tools})
        usage = result.usage or Usage()
        return PolicyStep(
            message, usage, result.cost_usd, result.seconds, result.retries,
            served=result.served, finish=result.finish,
        )  # fmt: skip

    def _as_text(self, supports: Capabilities) -> bool:
        return self._options.tool_calls == "text" or not supports.tools

    def _fixed_parameters(self, supports: Capabilities) -> dict[str, Any]:
        effort, by_text = self._options.reasoning_effort, self._as_text(supports)
        by_responses = supports.responses and not by_text and effort != "none"
        model = self.model.replace("/", "/responses/", 1) if by_responses else self.model
        fixed: dict[str, Any] = {"model": model, supports.max_tokens: self._calls.max_output_tokens}
        if supports.temperature:
            fixed["temperature"] = self._options.temperature or 0.0
        if effort is not None and supports.reasoning_effort:
            fixed["reasoning_effort"] = effort
        if supports.tool_choice is not None and not by_text:
            fixed["tool_choice"] = supports.tool_choice
        return fixed

    def _request(
        self, messages: list[ChatMessage], tools: list[dict[str, Any]], supports: Capabilities
    ) -> Mapping[str, Any]:
        """Return the request, as a copy, because callers change `messages` and `tools` later."""
        by_text = self._as_text(supports)
        written = to_text_messages(messages, tools) if by_text else messages
        sent = {"messages": for_provider(written, supports.system_role, self.model)}
        request = self._fixed_parameters(supports) | sent
        return request if by_text else {**request, "tools": copy.deepcopy(tools)}


def recover_calls(message: AssistantMessage, turn: int, names: set[str]) -> AssistantMessage:
    """Return the message with calls parsed from its text, if the server left them there."""
    for read in (parse_reply, parse_text):
        parsed = read(message.content or "", turn)
        if parsed.tool_calls and all(call.name in names for call in parsed.tool_calls):
            return parsed
    return message
