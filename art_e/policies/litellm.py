"""The policy for every model that litellm can ask: hosted ones, Ollama, one's own vLLM.

It sends the conversation and the tools, takes what comes back as the next message,
and accounts for it: tokens, cost, seconds, retries. Knows nothing of episodes; one
policy serves many of them at once, and several event loops one after another.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from art_e.errors import UserError
from art_e.message import ChatMessage
from art_e.policies.base import PolicyStep, Usage
from art_e.policies.calls import Calls
from art_e.policies.capabilities import Capabilities, capabilities_of
from art_e.policies.choose import ModelOptions
from art_e.policies.host import receiving_host
from art_e.policies.litellm_module import warm_up
from art_e.policies.responses import Response, Responses, request_key
from art_e.policies.retries import Retries, make
from art_e.policies.text_calls import as_text, parse_text, prompt_hash
from art_e.policies.wire import received, sendable

_FRAME_TOKENS = 200  # of a prompt, besides its messages and tools


class _Answer(NamedTuple):
    response: Response
    cost_usd: float | None
    seconds: float


class LitellmPolicy:
    """Asks `model`, a litellm name, as `options` say.

    Raises `UserError` for options that the model can't take, and for a model that litellm
    does not know or that lacks its key. `retries` is for tests.
    """

    def __init__(self, model: str, options: ModelOptions, retries: Retries | None = None) -> None:
        self.model = model
        self._options = options
        self._retries = retries or Retries()
        self._takes = capabilities_of(model)
        # Raises where it can't be told: litellm sends some such requests to OpenAI.
        receiving_host(model)
        self._as_text = _writes_calls_as_text(model, options, self._takes)
        self._max_output_tokens = options.max_output_tokens or self._takes.most_tokens
        self._parameters = {
            **_parameters(model, options, self._takes, self._as_text),
            self._takes.max_tokens: self._max_output_tokens,
        }
        self._calls = Calls(
            model,
            options.max_cost_usd,
            max_output_tokens=self._max_output_tokens,
            frame_tokens=_FRAME_TOKENS,
            timeout_s=options.timeout_s,
        )
        self._responses = None if options.cache is None else Responses(options.cache)
        self._places: dict[asyncio.AbstractEventLoop, asyncio.Semaphore] = {}

    @property
    def settings(self) -> dict[str, Any]:
        """What an answer depends on besides the messages; no keys and no addresses."""
        settings = {
            "temperature": self._parameters.get("temperature"),
            "reasoning_effort": self._options.reasoning_effort,
            "max_output_tokens": self._max_output_tokens,
            "tool_calls": "text" if self._as_text else "native",
            "tool_choice": self._parameters.get("tool_choice"),
        }
        if self._as_text:
            settings["text_calls_hash"] = prompt_hash()
        return settings

    async def act(self, messages: list[ChatMessage], tools: list[dict[str, Any]]) -> PolicyStep:
        """The model's next message. Raises `PolicyError` where the call is given up.

        Its kinds: auth, no-model, no-credit, rate-limit, provider, timeout, connection, context,
        request, budget.
        A response from the cache cost nothing this time and took no time worth telling;
        its usage is that of the call that was paid for.
        """
        request = self._request(messages, tools)
        key = None
        if self._responses is not None:
            key = request_key({**request, "endpoint": self._takes.endpoint})
            if (kept := self._responses.get(key)) is not None:
                return PolicyStep(kept.message, kept.usage or Usage(), 0.0)
        made = await make(lambda: self._ask(request, messages), self._retries)
        response, cost, seconds = made.result
        if self._responses is not None and key is not None:
            self._responses.put(key, response)
        usage = response.usage or Usage()
        return PolicyStep(response.message, usage, cost, seconds, made.retries)

    def _request(
        self, messages: list[ChatMessage], tools: list[dict[str, Any]]
    ) -> Mapping[str, Any]:
        """All that the answer depends on. A copy: the episode goes on writing to `messages`."""
        said = as_text(messages, tools) if self._as_text else messages
        request = {**self._parameters, "messages": sendable(said, self._takes.system_role)}
        return request if self._as_text else {**request, "tools": tools}

    async def _ask(self, request: Mapping[str, Any], messages: list[ChatMessage]) -> _Answer:
        """Make the call once. Raises `CallError`, or `PolicyError` where the budget forbids it."""
        warm_up()
        async with self._place():
            said, usage, cost, seconds = await self._calls.make(request)
        if self._as_text:
            turn = sum(each["role"] == "assistant" for each in messages)
            message = parse_text(said.content or "", turn)
        else:
            message = received(said, messages)
        return _Answer(Response(message, usage), cost, seconds)

    def _place(self) -> asyncio.Semaphore:
        """What lets only so many calls of the running loop go on at once."""
        loop = asyncio.get_running_loop()
        if loop not in self._places:
            for ended in [each for each in list(self._places) if each.is_closed()]:
                self._places.pop(ended, None)
            self._places[loop] = asyncio.Semaphore(self._options.concurrency)
        return self._places[loop]


def _writes_calls_as_text(model: str, options: ModelOptions, takes: Capabilities) -> bool:
    if options.tool_calls == "native" and not takes.native_tools:
        raise UserError(f"{model} takes no tool calls; leave --tool-calls at auto, or say text")
    return options.tool_calls == "text" or not takes.native_tools


def _parameters(
    model: str, options: ModelOptions, takes: Capabilities, as_text: bool
) -> dict[str, Any]:
    """What every request of the policy holds, besides messages, tools and its length."""
    parameters: dict[str, Any] = {"model": model}
    if takes.temperature:
        parameters["temperature"] = options.temperature or 0.0
    elif options.temperature is not None:
        raise UserError(f"{model} takes no temperature; leave --temperature out")
    if options.reasoning_effort is not None:
        if not takes.reasoning_effort:
            raise UserError(f"{model} takes no reasoning effort; leave --reasoning-effort out")
        parameters["reasoning_effort"] = options.reasoning_effort
    if takes.tool_choice is not None and not as_text:
        parameters["tool_choice"] = takes.tool_choice
    return parameters
