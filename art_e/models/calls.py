"""Calls of one model: corrected, paced, tried again, counted and kept within a budget.

`failure_of` says how a call failed: what kind it is, whether and when a retry may help."""

import asyncio
import contextlib
import datetime as dt
import email.utils
import json
import math
import random
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

from art_e.message import compact_json
from art_e.models import providers
from art_e.models.base import LASTING, ModelOptions, PolicyError, Usage
from art_e.models.clients import OnText, complete
from art_e.models.prices import Budget, price_of, served_price
from art_e.privacy import redact, without_keys
from art_e.text import encodable, toml_table

THOUGHTS = ("thinking_blocks", "reasoning_items")  # reasoning for its own provider
# The longest silence of a provider, and of a model on this machine, which may load first.
_ELSEWHERE_S, _HERE_S = 120.0, 600.0
_MOST_USD = 1_000.0  # of one call
_LONGEST_ASKED_S = 300.0  # a provider that asks for a longer wait has no more for today


@dataclass(frozen=True, slots=True)
class Retries:
    """The most tries of a call, and the waits between them in seconds."""

    tries: int = 8
    base_s: float = 0.5
    longest_s: float = 30.0
    longest_asked_s: float = _LONGEST_ASKED_S  # longest wait that a provider may ask for

    def wait_s(self, failed: int, asked: float | None) -> float:
        """Seconds to wait after `failed` failures: full jitter, or what the provider asked for."""
        if asked is not None:
            # Never earlier; calls that failed together spread out.
            return min(asked, self.longest_asked_s) + random.uniform(0, self.base_s)
        return random.uniform(0, min(self.longest_s, self.base_s * 2 ** (failed - 1)))


class Pace:
    """Limits the calls at a time in each event loop. A call that the provider finds too much
    withholds its place; calls that pass give such places back, one for each round of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._places: dict[asyncio.AbstractEventLoop, asyncio.Semaphore] = {}
        self._withheld = self._passed = 0

    @contextlib.asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """A place for one call."""
        loop = asyncio.get_running_loop()
        if loop not in self._places:
            for ended in [each for each in list(self._places) if each.is_closed()]:
                self._places.pop(ended, None)
            self._places[loop], self._withheld = asyncio.Semaphore(self._most), 0
        places = self._places[loop]
        await places.acquire()
        free = 1  # places that this call gives back
        try:
            yield
            self._passed += 1
            if self._withheld and self._passed >= self._most - self._withheld:
                self._withheld, self._passed, free = self._withheld - 1, 0, 2
        except ProviderError as error:
            if error.kind == "rate-limit" and self._withheld < self._most - 1:
                self._withheld, free = self._withheld + 1, 0
            raise
        finally:
            for _ in range(free):
                places.release()


_MOST_TOKENS = 10_000_000  # several times what any model takes or writes in one call


def usage_of(response: Any) -> Usage | None:
    """Return the tokens of a response; None if the provider did not report them. litellm writes
    zeros then. Raises `ValueError` for numbers that no call has."""
    usage = getattr(response, "usage", None)
    if usage is None or not usage.prompt_tokens:
        return None

    def detail(of: str, name: str) -> int:
        return getattr(getattr(usage, f"{of}_tokens_details", None), name, 0) or 0

    prompt, completion = usage.prompt_tokens, usage.completion_tokens
    cached, reasoning = detail("prompt", "cached_tokens"), detail("completion", "reasoning_tokens")
    written = detail("prompt", "cache_creation_tokens") or detail("prompt", "cache_write_tokens")
    for count in (prompt, cached, completion, reasoning, written):
        if type(count) is not int or not 0 <= count <= _MOST_TOKENS:
            raise ValueError("impossible usage")
    cached = min(cached, prompt)  # a part can't exceed the whole, whatever a provider says
    parts = min(reasoning, completion), min(written, prompt - cached)
    return Usage(prompt, cached, completion, *parts)


@cache
def _say_once(line: str) -> None:
    sys.stderr.write(f"{line}\n")


# A prompt is counted before the call with a tokenizer that may not be the model's own. The true
# count is assumed to be at most this many times that, plus the frame.
_COUNT_MARGIN = 1.5
_FRAME_TOKENS = 600  # of a prompt besides its messages and tools: the schema of a reply


class Called(NamedTuple):
    """A call's result: litellm's message; usage and cost are None if unknown. `served` is the model
    that answered, as the provider names it, and `finish` why it ended its message."""

    message: Any
    usage: Usage | None
    cost_usd: float | None
    seconds: float
    served: str | None
    finish: str | None
    retries: int = 0


Build = Callable[[providers.Accepts], Mapping[str, Any]]  # makes a request as a model takes it

# As vLLM refuses a prompt and an output that together are too long.
_ROOM = re.compile(r"context length is (\d+) tokens and your request has (\d+) input tokens")
_LEAST_ROOM = 256


def room_left(refusal: str) -> int | None:
    """Return the tokens left for the output, if a refusal says `_LEAST_ROOM` or more."""
    sizes = _ROOM.search(refusal)
    room = 0 if sizes is None else int(sizes[1]) - int(sizes[2])
    return room if room >= _LEAST_ROOM else None


class Calls:
    """Makes calls to `model`, a full name, which together cost at most `options.max_cost_usd`.
    Requests must ask for at most `max_output_tokens`. Raises `UserError` for an unknown model, a
    missing key or address, and a limit without a price."""

    def __init__(self, model: str, options: ModelOptions, retries: Retries | None = None) -> None:
        self._model, self._options = model, options
        self._retries = retries or Retries(options.tries)
        # Raises if the host is unknown: litellm sends some such requests to OpenAI.
        self.host = providers.receiving_host(model)
        self.takes = providers.accepts(model)
        self.max_output_tokens = options.max_output_tokens or self.takes.most_tokens
        self._price = price_of(model)
        self.budget = Budget(options.max_cost_usd, self._price, model)
        # The first count of a prompt loads a tokenizer, which must not count as latency.
        self._most_tokens({"messages": [{"role": "user", "content": ""}]})
        self._pace = Pace(options.concurrency)
        patience = _HERE_S if providers.on_this_machine(self.host) else _ELSEWHERE_S
        self._timeout_s = options.timeout_s or patience

    @property
    def spent_usd(self) -> float | None:
        """USD so far; None if the model's price is unknown."""
        return None if self._price is None else self.budget.spent

    async def make(self, build: Build, on_text: OnText | None = None) -> Called:
        """Call with the request that `build` makes, in the form of OpenAI's chat completions, until
        it passes or no retry helps; `on_text` as in `complete`. Raises `PolicyError`."""
        failed = 0
        lost: float | None = 0.0  # USD of the calls that failed
        while True:
            try:
                async with self._pace.place():
                    called = await self._corrected(build, on_text)
                cost = None if called.cost_usd is None else called.cost_usd + (lost or 0.0)
                return called._replace(retries=failed, cost_usd=cost)
            except PolicyError as error:
                raise PolicyError(error.kind, str(error), failed, lost) from None
            except ProviderError as error:
                failed += 1
                more = error.cost_usd
                lost = None if lost is None or more is None else lost + more
                if not error.again or failed >= self._retries.tries:
                    raise PolicyError(error.kind, str(error), failed - 1, lost) from None
                wait = self._retries.wait_s(failed, error.retry_after)
                self._options.on_retry(failed + 1, self._retries.tries, str(error), wait)
            await asyncio.sleep(wait)

    async def _corrected(self, build: Build, on_text: OnText | None) -> Called:
        """Call, again without a parameter that the provider refuses, and never with it again."""
        room: int | None = None
        while True:
            request = build(self.takes)
            if room is not None:
                request = {**request, self.takes.max_tokens: room}
            try:
                return await self._once(request, on_text)
            except ProviderError as error:
                if room is None and (room := room_left(str(error))):
                    continue
                better = providers.corrected(self.takes, str(error))
                if better is None or error.kind not in ("request", "no-model"):
                    raise
                self.takes, changed = better
                value = getattr(self.takes, changed)
                _say_once(f"{self._model} refused a request: from now on with {changed} = {value}")

    async def _once(self, request: Mapping[str, Any], on_text: OnText | None) -> Called:
        reserved = self.budget.reserve(*self._most_tokens(request))
        # Unknown until the end, also for a cancelled call: the provider may bill it.
        cost: float | None = None
        limit = self._timeout_s if on_text is None else None  # a stream is timed by its silences
        try:
            started = time.perf_counter()
            async with asyncio.timeout(limit):
                answer = await complete(request, self._timeout_s, on_text)
            seconds = time.perf_counter() - started
            choice = answer.choices[0]
            message = choice.message
            # A server may send the key back, and what a model says is kept and shown.
            message.content = message.content and without_keys(message.content)
            for each in message.tool_calls or ():
                each.function.arguments = without_keys(each.function.arguments or "")
            usage = self._usage(answer, request, message)
            cost = self._cost(answer, usage)
            empty = not (message.content or message.tool_calls)
            failed = finish_failure(choice.finish_reason, self._model, empty=empty)
            if failed is not None:
                raise failed
        except Exception as error:  # noqa: BLE001 - litellm raises anything over a bad body
            failure = failure_of(error, self._model)
            failure.cost_usd = cost = cost if failure.may_be_billed else 0.0
            raise failure from None
        finally:
            self.budget.settle(reserved, cost)
        served = getattr(answer, "model", None) or None
        return Called(message, usage, cost, seconds, served, choice.finish_reason)

    def _usage(self, answer: Any, request: Mapping[str, Any], message: Any) -> Usage | None:
        """The tokens of a call; our own count in place of a server's that can't be true."""
        try:
            return usage_of(answer)
        except ValueError:
            told = "reports impossible numbers of tokens; costs follow our own count"
            _say_once(f"{self._model} {told}")
        count = partial(providers.load_litellm().token_counter, model=self._model)
        prompt = count(messages=request["messages"], tools=request.get("tools"))
        return Usage(prompt, completion_tokens=count(text=str(message)))

    def _cost(self, answer: Any, usage: Usage | None) -> float | None:
        """What a call cost: what the provider says it charged (OpenRouter), or by our prices."""
        charged = getattr(getattr(answer, "usage", None), "cost", None)
        if isinstance(charged, float | int) and 0 <= charged < _MOST_USD:
            return float(charged)
        price = served_price(self._model, getattr(answer, "model", None), self._price)
        return None if usage is None or price is None else price.cost(usage)

    def _most_tokens(self, request: Mapping[str, Any]) -> tuple[int, int]:
        """An upper bound of the tokens of a call, prompt and completion, if there is a limit."""
        if self._options.max_cost_usd is None:
            return 0, 0
        messages, tools = request["messages"], request.get("tools")
        count = providers.load_litellm().token_counter
        counted = count(model=self._model, messages=messages, tools=tools)
        # litellm does not count thoughts. A token has two characters at least, nearly always.
        thoughts = [message.get(name, "") for message in messages for name in THOUGHTS]
        counted = int(counted * _COUNT_MARGIN) + len(compact_json(thoughts)) // 2
        return counted + _FRAME_TOKENS, self.max_output_tokens


# ---- Failures.

_MAX_CHARS = 300


@dataclass(eq=False)
class ProviderError(Exception):
    """One call failed; kind and message become those of a `PolicyError` if no retry helps. `again`:
    a retry may succeed, but not before `retry_after` seconds if the provider said so.
    `may_be_billed`: the provider may have done the work, for `cost_usd` (None: unknown)."""

    kind: str
    message: str
    again: bool
    retry_after: float | None = None
    may_be_billed: bool = False
    cost_usd: float | None = 0.0

    def __str__(self) -> str:
        return self.message


# How litellm introduces a provider's message.
_FRAMES = re.compile(r"^(?:litellm\.\w+: |\w+ ?(?:Error|Exceeded): |[\w ]+(?:Exception|Error) - )+")
_TABLES = toml_table(__package__, "failures.toml")
_WORDS: dict[str, str] = _TABLES["words"]
_KINDS = {status: kind for kind, listed in _TABLES["statuses"].items() for status in listed}
_PASSING = frozenset({408, 409, 425, 429})  # the same request may pass later


def failure_of(error: Exception, model: str) -> ProviderError:
    """Return the failure that `error`, raised by a call to `model`, stands for."""
    chain: list[BaseException] = [error]
    while (behind := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(behind)
    for ours in chain:
        if isinstance(ours, ProviderError):
            return ours
        if isinstance(ours, PolicyError):
            return ProviderError(ours.kind, f"{model}: {_one_line(str(ours))}", again=False)
        if isinstance(ours, ConnectionRefusedError):
            # A retry would not help: no server is running.
            here = f"{model}: no server answers at its address"
            return ProviderError("connection", here, again=False)
    response = getattr(error, "response", None)
    listed = getattr(error, "litellm_response_headers", None) or getattr(response, "headers", None)
    headers = {str(name).lower(): str(value) for name, value in listed.items()} if listed else None
    if headers is None and (broken := _broken(chain)) is not None:
        kind, how = broken
        return ProviderError(kind, f"{model}: {how}", again=True, may_be_billed=True)
    body = getattr(error, "body", None)
    told = body if isinstance(body, dict) else {}
    words = f"{type(error).__name__}: {error} {told.get('code')}"
    what = _one_line(str(error) if body is None else body) or type(error).__name__
    at: Any = error if getattr(error, "status_code", None) else response
    status = int(getattr(at, "status_code", 500))
    by_words = (kind for kind, pattern in _WORDS.items() if re.search(pattern, words, re.I))
    kind = _KINDS.get(status, "provider" if status >= 500 else "request")
    if 400 <= status < 500:
        kind = next(by_words, kind)
    elif headers is None or status < 400:
        unread = f"{model}: no readable answer: {what}"
        return ProviderError("provider", unread, again=True, may_be_billed=True)
    elif "overloaded" in words.lower():
        kind = "overload"
    asked = retry_after_s(headers or {}, words)
    if kind == "rate-limit" and asked is not None and asked > _LONGEST_ASKED_S:
        kind = "quota"
    again = (status in _PASSING or status >= 500) and kind not in LASTING
    return ProviderError(kind, f"{model}: {status}: {what}", again=again, retry_after=asked)


def finish_failure(reason: str | None, model: str, *, empty: bool) -> ProviderError | None:
    """The failure that a `finish_reason` stands for, if any. `empty`: neither text nor calls."""
    if reason in ("content_filter", "refusal"):
        kind, what = "content", f"the provider withheld the answer ({reason})"
    elif reason == "length" and empty:
        kind, what = "length", "the whole output went into thinking; ask for less effort"
    # litellm says "stop" for Gemini's malformed calls. One's own model may be too weak for more.
    elif reason == "error" or (empty and model.partition("/")[0] not in providers.SELF_HOSTED):
        kind, what = "provider", f"an answer without text or call ({reason})"
    else:
        return None
    return ProviderError(kind, f"{model}: {what}", again=kind == "provider", may_be_billed=True)


_DELAY = re.compile(r'"?retryDelay"?:\s*"([\d.]+)s"|retry in ([\d.]+)s\b', re.IGNORECASE)


def retry_after_s(headers: Mapping[str, str], body: str = "") -> float | None:
    """The seconds to wait that a provider asks for; None if it does not. They stand in a
    Retry-After header (a number or a date; names in `headers` are lower case), or as Google says it
    in the body: RetryInfo's `retryDelay`."""
    value = headers.get("retry-after", "").strip()
    with contextlib.suppress(ValueError):
        if math.isfinite(float(value)):
            return max(0.0, float(value))
    with contextlib.suppress(ValueError):
        date = email.utils.parsedate_to_datetime(value)
        date = date if date.tzinfo else date.replace(tzinfo=dt.UTC)
        return max(0.0, (date - dt.datetime.now(dt.UTC)).total_seconds())
    return max((float(first or second) for first, second in _DELAY.findall(body)), default=None)


def _broken(chain: list[BaseException]) -> tuple[str, str] | None:
    """Return the kind and words of how a call ended without an answer; None with an answer."""
    import httpx
    import openai

    timeouts = (TimeoutError, openai.APITimeoutError, httpx.TimeoutException)
    if any(isinstance(each, timeouts) for each in chain):
        return "timeout", "no answer in time (--timeout)"
    # litellm's own subclass stands for anything that it did not expect.
    lost = (openai.APIConnectionError, httpx.TransportError)
    if any(isinstance(each, lost) and "litellm" not in type(each).__module__ for each in chain):
        return "connection", "can't be reached, or the connection was cut"
    return None


def _one_line(said: Any) -> str:
    """The provider's message, text or JSON, in one short line, without keys."""
    text = ""
    with contextlib.suppress(RecursionError):
        if isinstance(said, str):
            text = _FRAMES.sub("", said).partition("Traceback (most recent call last)")[0]
            with contextlib.suppress(ValueError):
                said = json.loads(text)
        text = text if isinstance(said, str) else _words_in(said)
    line = redact(encodable(" ".join(text.split())))
    return line if len(line) <= _MAX_CHARS else f"{line[:_MAX_CHARS]} [cut]"


def _words_in(said: Any) -> str:
    """The first text in the JSON of an error where providers put their message; "" without one."""
    if isinstance(said, str):
        return said
    places = ("error", "errors", "message", "detail", "msg", "text")
    inside = [said.get(each) for each in places] if isinstance(said, dict) else said
    return next(filter(None, map(_words_in, inside if isinstance(inside, list) else ())), "")
