"""The policy for every model behind an API that litellm can call: hosted, Ollama, or own vLLM.

It sends the conversation and the tools, returns the answer as the next message, and accounts for
tokens, cost, seconds and retries. One policy serves many episodes at once, and several event
loops one after another. In order: retries, failures, the form of messages, one call (`Calls`), the
policy (`LitellmPolicy`).
"""

import asyncio
import contextlib
import copy
import datetime as dt
import email.utils
import json
import math
import random
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from art_e.errors import UserError
from art_e.message import AssistantMessage, ChatMessage, ToolCall, compact_json
from art_e.models.base import ModelOptions, PolicyError, PolicyStep, Usage
from art_e.models.prices import Budget, price_of
from art_e.models.providers import capabilities_of, complete, load_litellm, receiving_host, warm_up
from art_e.models.tool_formats import as_text, parse_text, prompt_hash
from art_e.privacy import redact, without_keys
from art_e.text import encodable

T = TypeVar("T")


@dataclass(eq=False)
class ProviderError(Exception):
    """One call failed; kind and message become those of a `PolicyError` if no retry helps. `again`:
    a retry may succeed, but not before `retry_after` seconds if the provider said so.
    `may_be_billed`: the provider may have done the work."""

    kind: str
    message: str
    again: bool
    retry_after: float | None = None
    may_be_billed: bool = False

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class Retries:
    """The most tries of a call, and the waits between them in seconds."""

    tries: int = 8
    base_s: float = 0.5
    longest_s: float = 30.0
    # Longest wait that a provider may ask for.
    longest_asked_s: float = 60.0

    def wait_s(self, failed: int, asked: float | None) -> float:
        """Seconds to wait after `failed` failures: full jitter, or what the provider asked for."""
        if asked is not None:
            # Never earlier; calls that failed together spread out.
            return min(asked, self.longest_asked_s) + random.uniform(0, self.base_s)
        return random.uniform(0, min(self.longest_s, self.base_s * 2 ** (failed - 1)))


async def make(
    call: Callable[[], Awaitable[T]],
    retries: Retries,
    on_retry: Callable[[int, int], None] = lambda _, __: None,
) -> tuple[T, int]:
    """Return the result of `call`, and how many tries failed before it. Raises `PolicyError` after
    the last try."""
    failed = 0
    while True:
        try:
            return await call(), failed
        except PolicyError as error:
            raise PolicyError(error.kind, str(error), failed) from None
        except ProviderError as error:
            if not error.again or failed + 1 >= retries.tries:
                raise PolicyError(error.kind, str(error), failed) from None
            failed += 1
            wait = retries.wait_s(failed, error.retry_after)
        on_retry(failed + 1, retries.tries)
        await asyncio.sleep(wait)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """The seconds that a Retry-After header (a number or a date) asks for; None without one. Names
    in `headers` are lower case."""
    value = headers.get("retry-after", "").strip()
    try:
        return max(0.0, float(value)) if math.isfinite(float(value)) else None
    except ValueError:
        pass
    try:
        date = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=dt.UTC)
    return max(0.0, (date - dt.datetime.now(dt.UTC)).total_seconds())


_MAX_CHARS = 300
# How litellm introduces a provider's message.
_FRAMES = re.compile(r"^(?:litellm\.\w+: |\w+ ?(?:Error|Exceeded): |\w+Exception - )+")
_KINDS = {
    **dict.fromkeys((401, 403), "auth"),
    402: "no-credit",
    404: "no-model",
    429: "rate-limit",
    **dict.fromkeys((408, 504), "timeout"),
}
# With these the same request may pass later.
_PASSING = frozenset({408, 409, 425, 429})
# As servers that speak OpenAI's protocol say it.
_TOO_LONG = re.compile(r"context (length|window|size)|maximum (model|context) len", re.IGNORECASE)


def failure_of(error: Exception, model: str) -> ProviderError:
    """The failure that `error`, raised by a call to `model`, stands for."""
    headers = _headers(error)
    status: int = getattr(error, "status_code", None) or 500
    what = _one_line(str(error)) or type(error).__name__
    too_long = status == 400 and _TOO_LONG.search(str(error)) is not None
    if (
        too_long
        or type(error).__name__ == "ContextWindowExceededError"
        or _has_code(error, "context_length_exceeded")
    ):
        return ProviderError("context", f"{model}: {what}", again=False)
    if any(isinstance(each, ConnectionRefusedError) for each in _chain(error)):
        # A retry would not help: no server is running.
        message = f"{model}: no server answers at its address"
        return ProviderError("connection", message, again=False)
    if headers is None and (broken := _broken(error)) is not None:
        kind, how = broken
        return ProviderError(kind, f"{model}: {how}", again=True, may_be_billed=True)
    if status < 400 or (headers is None and status >= 500):
        message = f"{model}: no readable answer: {what}"
        return ProviderError("provider", message, again=True, may_be_billed=True)
    kind = _KINDS.get(status, "provider" if status >= 500 else "request")
    kind = "no-credit" if _has_code(error, "insufficient_quota") else kind
    return ProviderError(
        kind,
        f"{model}: {status}: {what}",
        again=(status in _PASSING or status >= 500) and kind != "no-credit",
        retry_after=None if headers is None else retry_after_s(headers),
    )


def _broken(error: Exception) -> tuple[str, str] | None:
    """Kind and words of how a call ended without an answer; None if the provider answered."""
    import httpx
    import openai

    chain = list(_chain(error))
    timeouts = (TimeoutError, openai.APITimeoutError, httpx.TimeoutException)
    if any(isinstance(each, timeouts) for each in chain):
        return "timeout", "no answer in time"
    # litellm's own subclass stands for anything that it did not expect.
    lost = (openai.APIConnectionError, httpx.TransportError)
    if any(isinstance(each, lost) and "litellm" not in type(each).__module__ for each in chain):
        return "connection", "can't be reached, or the connection was cut"
    return None


def _has_code(error: Exception, code: str) -> bool:
    """Whether the provider's error, or its text in litellm's, has that code in OpenAI's form."""
    body = getattr(error, "body", None)
    given = body.get("code") if isinstance(body, dict) else None
    return given == code or f'"{code}"' in str(error)


def _headers(error: Exception) -> dict[str, str] | None:
    """The headers of the provider's answer; None without an answer."""
    response = getattr(error, "response", None)
    headers = getattr(error, "litellm_response_headers", None) or getattr(response, "headers", None)
    return {str(name).lower(): str(value) for name, value in headers.items()} if headers else None


def _chain(error: BaseException) -> Iterator[BaseException]:
    behind: BaseException | None = error
    while behind is not None:
        yield behind
        behind = behind.__cause__ or behind.__context__


def _one_line(text: str) -> str:
    """The provider's message in one short line, without keys."""
    text = _FRAMES.sub("", text).partition("Traceback (most recent call last)")[0]
    # An error in OpenAI's form holds the message as JSON.
    with contextlib.suppress(ValueError, RecursionError, TypeError, KeyError):
        message = json.loads(text)["error"]["message"]
        text = message if isinstance(message, str) else text
    line = redact(encodable(" ".join(text.split())))
    return line if len(line) <= _MAX_CHARS else f"{line[:_MAX_CHARS]} [cut]"


# Names that every provider accepts.
_MAX_NAME_CHARS = 64
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")
_THOUGHTS = ("thinking_blocks", "reasoning_items")


def sendable(
    messages: list[ChatMessage], system_role: str = "system", model: str = ""
) -> list[ChatMessage]:
    """A copy of the conversation as providers accept it: valid tool names, arguments an object.
    `system_role` becomes the role of the system prompt. Reasoning goes back only to the `model`
    that produced it."""
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


def thoughts_of(message: Any, model: str) -> dict[str, Any] | None:
    """Return the reasoning in litellm's message that the provider of `model` wants back. These are
    Anthropic's thinking blocks, the reasoning items of OpenAI's Responses, and DeepSeek's
    reasoning. Other providers reject fields that they don't know."""
    names = [*_THOUGHTS, *["reasoning_content"] * model.startswith("deepseek/")]
    own = {name: value for name in names if (value := getattr(message, name, None))}
    return {"model": model, "message": own} if own else None


def received(message: Any, messages: list[ChatMessage], model: str = "") -> AssistantMessage:
    """The message of litellm's response by `model` to the conversation `messages`. Calls keep their
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
    thoughts = thoughts_of(message, model) if model else None
    return AssistantMessage(message.content or None, tuple(calls), thoughts)


def usage_of(response: Any) -> Usage | None:
    """The tokens of litellm's response; None if the provider did not report them. litellm writes
    zeros then."""
    usage = getattr(response, "usage", None)
    if usage is None or not usage.prompt_tokens:
        return None
    prompt, completion = (
        getattr(usage, f"{each}_tokens_details", None) for each in ("prompt", "completion")
    )
    cached = (prompt and prompt.cached_tokens) or 0
    reasoning = (completion and completion.reasoning_tokens) or 0
    # Costs follow from these: a part must not exceed the whole, even if a provider says so.
    return Usage(
        usage.prompt_tokens,
        min(cached, usage.prompt_tokens),
        usage.completion_tokens,
        min(reasoning, usage.completion_tokens),
    )


# A prompt is counted before the call with a tokenizer that may not be the model's own. The true
# count is assumed to be at most this many times that, plus the frame.
_COUNT_MARGIN = 1.5
_FRAME_TOKENS = 600  # of a prompt besides its messages and tools: the schema of a reply


class Called(NamedTuple):
    """A call's result: litellm's message; usage and cost are None if unknown."""

    message: Any
    usage: Usage | None
    cost_usd: float | None
    seconds: float


class Calls:
    """Makes calls to `model`, a litellm name, which together cost at most `max_cost_usd`. Requests
    must ask for at most `max_output_tokens`. Raises `UserError` for a limit without a price."""

    def __init__(
        self, model: str, max_cost_usd: float | None, *, max_output_tokens: int, timeout_s: float
    ) -> None:
        self._model = model
        self._limited = max_cost_usd is not None
        self._price = price_of(model)
        self.budget = Budget(max_cost_usd, self._price, model)
        self._max_output_tokens = max_output_tokens
        self._timeout_s = timeout_s

    @property
    def spent_usd(self) -> float | None:
        """USD so far; None if the model's price is unknown."""
        return None if self._price is None else self.budget.spent

    async def make(
        self, request: Mapping[str, Any], on_text: Callable[[str], None] | None = None
    ) -> Called:
        """Call once, with the arguments of OpenAI's chat completions; `on_text` as in `complete`.
        Raises `ProviderError`, or `PolicyError` if the budget forbids the call."""
        reserved = self.budget.reserve(*self._most_tokens(request))
        # Unknown until the end, also for a cancelled call: the provider may bill it.
        cost: float | None = None
        try:
            started = time.perf_counter()
            async with asyncio.timeout(self._timeout_s):
                answer = await complete(request, self._timeout_s, on_text)
            seconds = time.perf_counter() - started
            message = answer.choices[0].message
            # A server may send the key back, and what a model says is kept and shown.
            message.content = message.content and without_keys(message.content)
            for each in message.tool_calls or ():
                each.function.arguments = without_keys(each.function.arguments or "")
            usage = usage_of(answer)
            if usage is not None and self._price is not None:
                cost = self._price.cost(usage)
        except Exception as error:  # noqa: BLE001 - litellm raises anything over a bad body
            failure = failure_of(error, self._model)
            cost = None if failure.may_be_billed else 0.0
            raise failure from None
        finally:
            self.budget.settle(reserved, cost)
        return Called(message, usage, cost, seconds)

    def _most_tokens(self, request: Mapping[str, Any]) -> tuple[int, int]:
        """An upper bound of the tokens of a call, prompt and completion, if there is a limit."""
        if not self._limited:
            return 0, 0
        counted = load_litellm().token_counter(
            model=self._model, messages=request["messages"], tools=request.get("tools")
        )
        # litellm does not count thoughts. A token has two characters at least, nearly always.
        thoughts = [each.get(name, "") for each in request["messages"] for name in _THOUGHTS]
        counted = int(counted * _COUNT_MARGIN) + len(compact_json(thoughts)) // 2
        return counted + _FRAME_TOKENS, self._max_output_tokens


class LitellmPolicy:
    """Calls `model`, a litellm name, with `options`. Raises `UserError` for options that the model
    does not accept, an unknown model, or a missing key. `retries` is for tests."""

    def __init__(self, model: str, options: ModelOptions, retries: Retries | None = None) -> None:
        self.model = model
        self._options = options
        self._retries = retries or Retries()
        self._takes = capabilities_of(model)
        # Raises if the host is unknown: litellm sends some such requests to OpenAI.
        receiving_host(model)
        if options.tool_calls == "native" and not self._takes.native_tools:
            raise UserError(f"{model} takes no tool calls; leave --tool-calls at auto, or say text")
        self._as_text = options.tool_calls == "text" or not self._takes.native_tools
        self._max_output_tokens = options.max_output_tokens or self._takes.most_tokens
        self._parameters = self._fixed_parameters()
        self._calls = Calls(
            model,
            options.max_cost_usd,
            max_output_tokens=self._max_output_tokens,
            timeout_s=options.timeout_s,
        )
        # OpenAI streams a model that thinks to verified organisations alone.
        follows = options.on_answer is not None and not self._takes.reasons
        self._on_text = options.follow if follows else None
        self._places: dict[asyncio.AbstractEventLoop, asyncio.Semaphore] = {}

    @property
    def settings(self) -> dict[str, Any]:
        """What an answer depends on besides the messages, without keys and addresses."""
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
        """The model's next message. Raises `PolicyError` when the retries are used up. Kinds of
        errors: auth, no-model, no-credit, rate-limit, provider, timeout, connection, context,
        request, budget."""
        request = self._request(messages, tools)
        warm_up(self.model)

        async def call() -> Called:
            async with self._place():
                return await self._calls.make(request, self._on_text)

        called, retries = await make(call, self._retries, self._options.on_retry)
        if self._as_text:
            turn = sum(each["role"] == "assistant" for each in messages)
            message = parse_text(called.message.content or "", turn)
        else:
            message = received(called.message, messages, self.model)
        usage = called.usage or Usage()
        return PolicyStep(message, usage, called.cost_usd, called.seconds, retries)

    def _fixed_parameters(self) -> dict[str, Any]:
        """What every request holds besides messages and tools."""
        takes, options = self._takes, self._options
        fixed: dict[str, Any] = {"model": self.model, takes.max_tokens: self._max_output_tokens}
        if takes.temperature:
            fixed["temperature"] = options.temperature or 0.0
        elif options.temperature is not None:
            raise UserError(f"{self.model} takes no temperature; leave --temperature out")
        if options.reasoning_effort is not None:
            if not takes.reasoning_effort:
                no_effort = f"{self.model} takes no reasoning effort"
                raise UserError(f"{no_effort}; leave --reasoning-effort out")
            fixed["reasoning_effort"] = options.reasoning_effort
        if takes.tool_choice is not None and not self._as_text:
            fixed["tool_choice"] = takes.tool_choice
        return fixed

    def _request(
        self, messages: list[ChatMessage], tools: list[dict[str, Any]]
    ) -> Mapping[str, Any]:
        """All that the answer depends on, copied: the episode adds to `messages`, and litellm
        changes `tools` for Gemini."""
        written = as_text(messages, tools) if self._as_text else messages
        request = {
            **self._parameters,
            "messages": sendable(written, self._takes.system_role, self.model),
        }
        return request if self._as_text else {**request, "tools": copy.deepcopy(tools)}

    def _place(self) -> asyncio.Semaphore:
        """The semaphore that limits the running loop's concurrent calls."""
        loop = asyncio.get_running_loop()
        if loop not in self._places:
            for ended in [each for each in list(self._places) if each.is_closed()]:
                self._places.pop(ended, None)
            self._places[loop] = asyncio.Semaphore(self._options.concurrency)
        return self._places[loop]
