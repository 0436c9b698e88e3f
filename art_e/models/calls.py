"""Calls of one model, with corrected requests, limited concurrency, retries and a budget.

`classify_error` returns how a call failed: the kind, whether a retry may help, and when."""

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
from art_e.models.base import PERMANENT, ModelOptions, PolicyError, Usage
from art_e.models.clients import OnText, complete
from art_e.models.prices import Budget, price_of, served_price
from art_e.privacy import redact, without_keys
from art_e.text import encodable, toml_table

REASONING_FIELDS = ("thinking_blocks", "reasoning_items")  # sent back to their provider only
# Seconds without an answer; a model on this machine may have to load first.
_REMOTE_TIMEOUT_S, _LOCAL_TIMEOUT_S = 120.0, 600.0
_MAX_USD = 1_000.0  # a higher reported cost of one call is ignored
_MAX_RETRY_AFTER_S = 300.0  # a provider that asks for a longer wait means a spent quota


@dataclass(frozen=True, slots=True)
class Retries:
    """Maximum tries of a call, and the waits between them in seconds."""

    tries: int = 8
    base_s: float = 0.5
    max_wait_s: float = 30.0
    max_retry_after_s: float = _MAX_RETRY_AFTER_S  # longest wait that a provider may ask for

    def wait_s(self, failures: int, retry_after: float | None) -> float:
        """Return the seconds to wait after `failures`: the provider's `retry_after`, or exponential
        backoff with full jitter, U(0, min(max, base * 2^(n - 1))) (Brooker, AWS, 2015)."""
        if retry_after is not None:
            # Jitter only adds, so that no call is early and concurrent calls spread out.
            return min(retry_after, self.max_retry_after_s) + random.uniform(0, self.base_s)
        return random.uniform(0, min(self.max_wait_s, self.base_s * 2 ** (failures - 1)))


class CallLimiter:
    """Limits the concurrent calls in each event loop. The limit falls by one for each "rate-limit"
    error, and rises by one after as many successful calls as the current limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._slots: dict[asyncio.AbstractEventLoop, asyncio.Semaphore] = {}
        self._withheld = self._passed = 0

    @contextlib.asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        if loop not in self._slots:
            for closed in [each for each in list(self._slots) if each.is_closed()]:
                self._slots.pop(closed, None)
            self._slots[loop], self._withheld = asyncio.Semaphore(self._limit), 0
        slots = self._slots[loop]
        await slots.acquire()
        released = 1  # slots that this call gives back
        try:
            yield
            self._passed += 1
            if self._withheld and self._passed >= self._limit - self._withheld:
                self._withheld, self._passed, released = self._withheld - 1, 0, 2
        except ProviderError as error:
            if error.kind == "rate-limit" and self._withheld < self._limit - 1:
                self._withheld, released = self._withheld + 1, 0  # its slot is withheld
            raise
        finally:
            for _ in range(released):
                slots.release()


_MAX_TOKENS = 10_000_000  # several times what any model reads or writes in one call


def usage_of(response: Any) -> Usage | None:
    """Return the tokens of a response; None if the provider did not report them (litellm writes
    zeros then). Raises `ValueError` for impossible numbers."""
    usage = getattr(response, "usage", None)
    if usage is None or not usage.prompt_tokens:
        return None

    def detail(part: str, name: str) -> int:
        return getattr(getattr(usage, f"{part}_tokens_details", None), name, 0) or 0

    prompt, completion = usage.prompt_tokens, usage.completion_tokens
    cached, reasoning = detail("prompt", "cached_tokens"), detail("completion", "reasoning_tokens")
    writes = detail("prompt", "cache_creation_tokens") or detail("prompt", "cache_write_tokens")
    for count in (prompt, cached, completion, reasoning, writes):
        if type(count) is not int or not 0 <= count <= _MAX_TOKENS:
            raise ValueError("impossible usage")
    cached = min(cached, prompt)  # some providers report parts that exceed the whole
    parts = min(reasoning, completion), min(writes, prompt - cached)  # read or written, not both
    return Usage(prompt, cached, completion, *parts)


@cache
def _warn_once(line: str) -> None:
    sys.stderr.write(f"{line}\n")


# A prompt is counted before the call, maybe with another model's tokenizer. Upper bound of the true
# count: counted * _COUNT_MARGIN + _FRAME_TOKENS.
_COUNT_MARGIN = 1.5
_FRAME_TOKENS = 600  # of the rest of a prompt, such as the schema of a reply


class CallResult(NamedTuple):
    """A call's message, as in OpenAI's API, usage and cost (None if unknown). `served`: the model
    that answered, as the provider names it. `finish`: why it ended its message."""

    message: Any
    usage: Usage | None
    cost_usd: float | None
    seconds: float
    served: str | None
    finish: str | None
    retries: int = 0


Build = Callable[[providers.Capabilities], Mapping[str, Any]]  # builds a request for a model

# vLLM's error if prompt and output together are too long.
_TOO_LONG = re.compile(r"context length is (\d+) tokens and your request has (\d+) input tokens")
_MIN_OUTPUT_TOKENS = 256


def tokens_left(refusal: str) -> int | None:
    """Return how many output tokens fit according to `refusal`; None if unknown or too few."""
    sizes = _TOO_LONG.search(refusal)
    left = 0 if sizes is None else int(sizes[1]) - int(sizes[2])
    return left if left >= _MIN_OUTPUT_TOKENS else None


class Calls:
    """Calls `model`, a full name, at a total cost of at most `options.max_cost_usd`. Requests must
    ask for at most `max_output_tokens`. Raises `UserError` for an unknown model, a missing key or
    address, and a cost limit without a price."""

    def __init__(self, model: str, options: ModelOptions, retries: Retries | None = None) -> None:
        self._model, self._options = model, options
        self._retries = retries or Retries(options.tries)
        # Raises if the host is unknown, because litellm would send some requests to OpenAI then.
        self.host = providers.receiving_host(model)
        self.supports = providers.capabilities(model)
        self.max_output_tokens = options.max_output_tokens or self.supports.output_limit
        self._price = price_of(model)
        self.budget = Budget(options.max_cost_usd, self._price, model)
        # The first count of a prompt loads a tokenizer, which must not count as latency.
        self._max_tokens({"messages": [{"role": "user", "content": ""}]})
        self._limiter = CallLimiter(options.concurrency)
        default_s = _LOCAL_TIMEOUT_S if providers.on_this_machine(self.host) else _REMOTE_TIMEOUT_S
        self._timeout_s = options.timeout_s or default_s

    @property
    def spent_usd(self) -> float | None:
        """The cost so far in USD; None if the model's price is unknown."""
        return None if self._price is None else self.budget.spent

    async def make(self, build: Build, on_text: OnText | None = None) -> CallResult:
        """Send the request of `build`, in the form of OpenAI's chat completions, until it succeeds
        or a retry can't help; `on_text` as in `complete`. Raises `PolicyError`."""
        failures = 0
        lost: float | None = 0.0  # USD of the failed calls
        while True:
            try:
                async with self._limiter.slot():
                    result = await self._corrected(build, on_text)
                cost = None if result.cost_usd is None else result.cost_usd + (lost or 0.0)
                return result._replace(retries=failures, cost_usd=cost)
            except PolicyError as error:
                raise PolicyError(error.kind, str(error), failures, lost) from None
            except ProviderError as error:
                failures += 1
                more = error.cost_usd
                lost = None if lost is None or more is None else lost + more
                if not error.retryable or failures >= self._retries.tries:
                    raise PolicyError(error.kind, str(error), failures - 1, lost) from None
                wait = self._retries.wait_s(failures, error.retry_after)
                self._options.on_retry(failures + 1, self._retries.tries, str(error), wait)
            await asyncio.sleep(wait)

    async def _corrected(self, build: Build, on_text: OnText | None) -> CallResult:
        """Make a call. If the provider rejects a parameter, stop sending it and call again."""
        output_limit: int | None = None
        while True:
            request = build(self.supports)
            if output_limit is not None:
                request = {**request, self.supports.max_tokens: output_limit}
            try:
                return await self._once(request, on_text)
            except ProviderError as error:
                if output_limit is None and (output_limit := tokens_left(str(error))):
                    continue
                correction = providers.corrected(self.supports, str(error))
                if correction is None or error.kind not in ("request", "no-model"):
                    raise
                self.supports, changed = correction
                value = getattr(self.supports, changed)
                _warn_once(f"{self._model} refused a request: from now on with {changed} = {value}")

    async def _once(self, request: Mapping[str, Any], on_text: OnText | None) -> CallResult:
        reserved = self.budget.reserve(*self._max_tokens(request))
        # Stays None (unknown) if the call is cancelled, because the provider may bill it.
        cost: float | None = None
        limit = self._timeout_s if on_text is None else None  # streams have a timeout per chunk
        try:
            started = time.perf_counter()
            async with asyncio.timeout(limit):
                answer = await complete(request, self._timeout_s, on_text)
            seconds = time.perf_counter() - started
            choice = answer.choices[0]
            message = choice.message
            # A server may send the key back, and messages are stored and shown.
            message.content = message.content and without_keys(message.content)
            for call in message.tool_calls or ():
                call.function.arguments = without_keys(call.function.arguments or "")
            usage = self._usage(answer, request, message)
            cost = self._cost(answer, usage)
            empty = not (message.content or message.tool_calls)
            bad_finish = finish_failure(choice.finish_reason, self._model, empty=empty)
            if bad_finish is not None:
                raise bad_finish
        except Exception as error:  # noqa: BLE001 - litellm may raise anything for a bad body
            failure = classify_error(error, self._model)
            failure.cost_usd = cost = cost if failure.may_be_billed else 0.0
            raise failure from None
        finally:
            self.budget.settle(reserved, cost)
        served = getattr(answer, "model", None) or None
        return CallResult(message, usage, cost, seconds, served, choice.finish_reason)

    def _usage(self, answer: Any, request: Mapping[str, Any], message: Any) -> Usage | None:
        """Return the tokens of a call, counted here if the server's numbers are impossible."""
        try:
            return usage_of(answer)
        except ValueError:
            why = "reports impossible numbers of tokens; costs follow our own count"
            _warn_once(f"{self._model} {why}")
        count = partial(providers.load_litellm().token_counter, model=self._model)
        prompt = count(messages=request["messages"], tools=request.get("tools"))
        return Usage(prompt, completion_tokens=count(text=str(message)))

    def _cost(self, answer: Any, usage: Usage | None) -> float | None:
        """Return the cost of a call as the provider reports it (OpenRouter), or by our prices."""
        charged = getattr(getattr(answer, "usage", None), "cost", None)
        if isinstance(charged, float | int) and 0 <= charged < _MAX_USD:
            return float(charged)
        price = served_price(self._model, getattr(answer, "model", None), self._price)
        return None if usage is None or price is None else price.cost(usage)

    def _max_tokens(self, request: Mapping[str, Any]) -> tuple[int, int]:
        """Return upper bounds of a call's prompt and completion tokens; 0 without a cost limit."""
        if self._options.max_cost_usd is None:
            return 0, 0
        messages, tools = request["messages"], request.get("tools")
        count = providers.load_litellm().token_counter
        counted = count(model=self._model, messages=messages, tools=tools)
        # litellm does not count reasoning. Nearly all tokens have at least two characters.
        reasoning = [message.get(name, "") for message in messages for name in REASONING_FIELDS]
        counted = int(counted * _COUNT_MARGIN) + len(compact_json(reasoning)) // 2
        return counted + _FRAME_TOKENS, self.max_output_tokens


# ---- Failures.

_MAX_CHARS = 300


@dataclass(eq=False)
class ProviderError(Exception):
    """A failed call; kind and message become those of a `PolicyError` if retries don't help.
    `retryable`: a retry may succeed, after `retry_after` seconds if the provider said so.
    `may_be_billed`: the provider may have done the work, for `cost_usd` (None: unknown)."""

    kind: str
    message: str
    retryable: bool
    retry_after: float | None = None
    may_be_billed: bool = False
    cost_usd: float | None = 0.0

    def __str__(self) -> str:
        return self.message


# litellm's prefixes of a provider's message.
_PREFIXES = re.compile(
    r"^(?:litellm\.\w+: |\w+ ?(?:Error|Exceeded): |[\w ]+(?:Exception|Error) - )+"
)
_TABLES = toml_table(__package__, "failures.toml")
_WORDS: dict[str, str] = _TABLES["words"]
_KINDS = {status: kind for kind, listed in _TABLES["statuses"].items() for status in listed}
_TRANSIENT = frozenset({408, 409, 425, 429})  # the same request may succeed later


def classify_error(error: Exception, model: str) -> ProviderError:
    """Classify an `error` that a call to `model` raised."""
    chain: list[BaseException] = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(cause)
    for link in chain:
        if isinstance(link, ProviderError):
            return link
        if isinstance(link, PolicyError):
            return ProviderError(link.kind, f"{model}: {_one_line(str(link))}", retryable=False)
        if isinstance(link, ConnectionRefusedError):
            # A retry would not help, because no server is running.
            text = f"{model}: no server answers at its address"
            return ProviderError("connection", text, retryable=False)
    response = getattr(error, "response", None)
    listed = getattr(error, "litellm_response_headers", None) or getattr(response, "headers", None)
    headers = {str(name).lower(): str(value) for name, value in listed.items()} if listed else None
    if headers is None and (broken := _connection_failure(chain)) is not None:
        kind, text = broken
        return ProviderError(kind, f"{model}: {text}", retryable=True, may_be_billed=True)
    body = getattr(error, "body", None)
    code = body.get("code") if isinstance(body, dict) else None
    words = f"{type(error).__name__}: {error} {code}"
    text = _one_line(str(error) if body is None else body) or type(error).__name__
    at: Any = error if getattr(error, "status_code", None) else response
    status = int(getattr(at, "status_code", 500))
    by_words = (kind for kind, pattern in _WORDS.items() if re.search(pattern, words, re.I))
    kind = _KINDS.get(status, "provider" if status >= 500 else "request")
    if 400 <= status < 500:
        kind = next(by_words, kind)
    elif headers is None or status < 400:
        text = f"{model}: no readable answer: {text}"
        return ProviderError("provider", text, retryable=True, may_be_billed=True)
    elif "overloaded" in words.lower():
        kind = "overload"
    wait = retry_after_s(headers or {}, words)
    if kind == "rate-limit" and wait is not None and wait > _MAX_RETRY_AFTER_S:
        kind = "quota"
    retryable = (status in _TRANSIENT or status >= 500) and kind not in PERMANENT
    return ProviderError(kind, f"{model}: {status}: {text}", retryable, retry_after=wait)


def finish_failure(reason: str | None, model: str, *, empty: bool) -> ProviderError | None:
    """Return the failure that a `finish_reason` means, or None. `empty`: neither text nor calls."""
    if reason in ("content_filter", "refusal"):
        kind, text = "content", f"the provider withheld the answer ({reason})"
    elif reason == "length" and empty:
        kind, text = "length", "the whole output went into thinking; ask for less effort"
    # litellm says "stop" for Gemini's malformed calls. A small self-hosted model may write nothing.
    elif reason == "error" or (empty and model.partition("/")[0] not in providers.SELF_HOSTED):
        kind, text = "provider", f"an answer without text or call ({reason})"
    else:
        return None
    return ProviderError(kind, f"{model}: {text}", kind == "provider", may_be_billed=True)


_DELAY = re.compile(r'"?retryDelay"?:\s*"([\d.]+)s"|retry in ([\d.]+)s\b', re.IGNORECASE)


def retry_after_s(headers: Mapping[str, str], body: str = "") -> float | None:
    """Return the seconds that a provider asks to wait, None without such a request: a Retry-After
    header (RFC 9110: a number or a date; names in `headers` are lower case), or `retryDelay` of
    Google's RetryInfo in the body."""
    value = headers.get("retry-after", "").strip()
    with contextlib.suppress(ValueError):
        if math.isfinite(float(value)):
            return max(0.0, float(value))
    with contextlib.suppress(ValueError):
        date = email.utils.parsedate_to_datetime(value)
        date = date if date.tzinfo else date.replace(tzinfo=dt.UTC)
        return max(0.0, (date - dt.datetime.now(dt.UTC)).total_seconds())
    return max((float(first or second) for first, second in _DELAY.findall(body)), default=None)


def _connection_failure(chain: list[BaseException]) -> tuple[str, str] | None:
    """Return the kind and text of a failed connection; None if the server answered."""
    import httpx
    import openai

    timeouts = (TimeoutError, openai.APITimeoutError, httpx.TimeoutException)
    if any(isinstance(each, timeouts) for each in chain):
        return "timeout", "no answer in time (--timeout)"
    # litellm raises its own subclass for any unexpected error.
    lost = (openai.APIConnectionError, httpx.TransportError)
    if any(isinstance(each, lost) and "litellm" not in type(each).__module__ for each in chain):
        return "connection", "can't be reached, or the connection was cut"
    return None


def _one_line(body: Any) -> str:
    """Return the message in a provider's error, text or JSON, as one short line without keys."""
    text = ""
    with contextlib.suppress(RecursionError):
        if isinstance(body, str):
            text = _PREFIXES.sub("", body).partition("Traceback (most recent call last)")[0]
            with contextlib.suppress(ValueError):
                body = json.loads(text)
        text = text if isinstance(body, str) else _message_in(body)
    line = redact(encodable(" ".join(text.split())))
    return line if len(line) <= _MAX_CHARS else f"{line[:_MAX_CHARS]} [cut]"


def _message_in(body: Any) -> str:
    """Return the first text in an error's JSON in a field for messages; "" without one."""
    if isinstance(body, str):
        return body
    names = ("error", "errors", "message", "detail", "msg", "text")
    inside = [body.get(name) for name in names] if isinstance(body, dict) else body
    return next(filter(None, map(_message_in, inside if isinstance(inside, list) else ())), "")
