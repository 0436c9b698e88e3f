"""The policy for every model behind an API: hosted, Ollama, or own vLLM.

One policy serves many episodes at once, and several event loops one after another."""

import copy
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from art_e.errors import UserError
from art_e.message import AssistantMessage, ChatMessage, ToolCall, compact_json
from art_e.models.base import ModelOptions, PolicyStep, Usage
from art_e.models.calls import THOUGHTS, Calls, Retries
from art_e.models.clients import follows, warm_up
from art_e.models.providers import Accepts
from art_e.models.tool_formats import as_text, parse_reply, parse_text
from art_e.text import digest, prompt_text

_MAX_NAME_CHARS = 64  # names that every provider accepts
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")


def sendable(
    messages: list[ChatMessage], system_role: str = "system", model: str = ""
) -> list[ChatMessage]:
    """Return a copy of the conversation as providers accept it: valid tool names, arguments an
    object, the role of the system prompt, reasoning only for the `model` that produced it."""
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


def received(message: Any, messages: list[ChatMessage], model: str = "") -> AssistantMessage:
    """Return the message of a response by `model` to the conversation `messages`. Calls keep their
    ids, which hold Gemini's signatures; missing ids are made up, repeated ones made distinct."""
    taken = {call["id"] for each in messages for call in each.get("tool_calls", ())}
    turn = sum(each["role"] == "assistant" for each in messages)
    calls = []
    for number, call in enumerate(message.tool_calls or ()):
        given = call.id or f"call_{turn}_{number}"
        call_id, copies = given, 1
        while call_id in taken:
            copies += 1
            call_id = f"{given}_{copies}"
        taken.add(call_id)
        function = call.function
        calls.append(ToolCall(call_id, function.name or "", function.arguments or ""))
    # Providers want thinking blocks and reasoning items back; DeepSeek alone knows its own field.
    names = [*THOUGHTS, *["reasoning_content"] * model.startswith("deepseek/")]
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
        takes = self._calls.takes
        if options.tool_calls == "native" and not takes.tools:
            raise UserError(f"{model} takes no tool calls; leave --tool-calls at auto, or say text")
        if options.temperature is not None and not takes.temperature:
            raise UserError(f"{model} takes no temperature; leave --temperature out")
        if options.reasoning_effort is not None and not takes.reasoning_effort:
            raise UserError(f"{model} takes no reasoning effort; leave --reasoning-effort out")
        watched = options.on_answer is not None and follows(model, takes)
        self._on_text = options.follow if watched else None
        warm_up(model)  # else loading would count as part of the first question's time

    @property
    def settings(self) -> dict[str, Any]:
        """What an answer depends on besides the messages, without keys."""
        calls, by_text = self._calls, self._as_text(self._calls.takes)
        fixed = self._fixed_parameters(calls.takes)
        names = ("temperature", "reasoning_effort", "tool_choice")
        settings = {name: fixed.get(name) for name in names}
        settings |= {"host": calls.host, "max_output_tokens": calls.max_output_tokens}
        if by_text:
            settings["text_calls_hash"] = digest(prompt_text("art_e", "text_calls"))
        return settings | {"tool_calls": "text" if by_text else "native"}

    async def act(self, messages: list[ChatMessage], tools: list[dict[str, Any]]) -> PolicyStep:
        """Return the model's next message. Raises `PolicyError` when the retries are used up: auth,
        no-model, no-credit, quota, region, redirect, rate-limit, provider, overload, timeout,
        connection, context, length, content, request, budget."""
        called = await self._calls.make(partial(self._request, messages, tools), self._on_text)
        turn = sum(each["role"] == "assistant" for each in messages)
        if self._as_text(self._calls.takes):
            message = parse_text(called.message.content or "", turn)
        else:
            message = received(called.message, messages, self.model)
        if not message.tool_calls:
            message = written_calls(message, turn, {each["function"]["name"] for each in tools})
        usage = called.usage or Usage()
        return PolicyStep(
            message, usage, called.cost_usd, called.seconds, called.retries,
            served=called.served, finish=called.finish,
        )  # fmt: skip

    def _as_text(self, takes: Accepts) -> bool:
        return self._options.tool_calls == "text" or not takes.tools

    def _fixed_parameters(self, takes: Accepts) -> dict[str, Any]:
        effort, by_text = self._options.reasoning_effort, self._as_text(takes)
        by_responses = takes.responses and not by_text and effort != "none"
        model = self.model.replace("/", "/responses/", 1) if by_responses else self.model
        fixed: dict[str, Any] = {"model": model, takes.max_tokens: self._calls.max_output_tokens}
        if takes.temperature:
            fixed["temperature"] = self._options.temperature or 0.0
        if effort is not None and takes.reasoning_effort:
            fixed["reasoning_effort"] = effort
        if takes.tool_choice is not None and not by_text:
            fixed["tool_choice"] = takes.tool_choice
        return fixed

    def _request(
        self, messages: list[ChatMessage], tools: list[dict[str, Any]], takes: Accepts
    ) -> Mapping[str, Any]:
        """All that the answer depends on, copied: others change `messages` and `tools` later."""
        by_text = self._as_text(takes)
        written = as_text(messages, tools) if by_text else messages
        sent = {"messages": sendable(written, takes.system_role, self.model)}
        request = self._fixed_parameters(takes) | sent
        return request if by_text else {**request, "tools": copy.deepcopy(tools)}


def written_calls(message: AssistantMessage, turn: int, names: set[str]) -> AssistantMessage:
    """Return the message with calls from its text, where a server without a parser leaves them."""
    for read in (parse_reply, parse_text):
        parsed = read(message.content or "", turn)
        if parsed.tool_calls and all(call.name in names for call in parsed.tool_calls):
            return parsed
    return message
