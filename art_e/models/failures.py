"""How a call to a provider fails: what kind it is, whether and when a retry may help."""

import contextlib
import datetime as dt
import email.utils
import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from art_e.models.base import LASTING, PolicyError
from art_e.models.providers import SELF_HOSTED
from art_e.privacy import redact
from art_e.text import encodable

_MAX_CHARS = 300
# A provider that asks for a longer wait has no more for today.
LONGEST_ASKED_S = 300.0


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
_TABLES = tomllib.loads(Path(__file__).with_name("failures.toml").read_text("utf-8"))
_WORDS: dict[str, str] = _TABLES["words"]
_KINDS = {status: kind for kind, listed in _TABLES["statuses"].items() for status in listed}
_PASSING = frozenset({408, 409, 425, 429})  # the same request may pass later


def failure_of(error: Exception, model: str) -> ProviderError:
    """Return the failure that `error`, raised by a call to `model`, stands for."""
    chain = list(_chain(error))
    for ours in chain:
        if isinstance(ours, ProviderError):
            return ours
        if isinstance(ours, PolicyError):
            return ProviderError(ours.kind, f"{model}: {_one_line(str(ours))}", again=False)
        if isinstance(ours, ConnectionRefusedError):
            # A retry would not help: no server is running.
            here = f"{model}: no server answers at its address"
            return ProviderError("connection", here, again=False)
    headers = _headers(error)
    if headers is None and (broken := _broken(chain)) is not None:
        kind, how = broken
        return ProviderError(kind, f"{model}: {how}", again=True, may_be_billed=True)
    body = getattr(error, "body", None)
    told = body if isinstance(body, dict) else {}
    words = f"{type(error).__name__}: {error} {told.get('code')}"
    what = _one_line(str(told.get("message") or error)) or type(error).__name__
    at: Any = error if getattr(error, "status_code", None) else getattr(error, "response", None)
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
    if kind == "rate-limit" and asked is not None and asked > LONGEST_ASKED_S:
        kind = "quota"
    again = (status in _PASSING or status >= 500) and kind not in LASTING
    return ProviderError(kind, f"{model}: {status}: {what}", again=again, retry_after=asked)


def finish_failure(reason: str | None, model: str, *, empty: bool) -> ProviderError | None:
    """The failure that a `finish_reason` stands for, if any. `empty`: neither text nor calls."""
    if reason in ("content_filter", "refusal"):
        kind, what = "content", f"the provider withheld the answer ({reason})"
    elif reason == "length" and empty:
        kind, what = "length", "the whole output went into thinking; ask for less effort"
    # litellm says "stop" where Gemini says that a call was malformed. A model on one's own hardware
    # may be too weak for more.
    elif reason == "error" or (empty and model.partition("/")[0] not in SELF_HOSTED):
        kind, what = "provider", f"an answer without text or call ({reason})"
    else:
        return None
    return ProviderError(kind, f"{model}: {what}", again=kind == "provider", may_be_billed=True)


_DELAY = re.compile(r'"?retryDelay"?:\s*"([\d.]+)s"|retry in ([\d.]+)s\b', re.IGNORECASE)


def retry_after_s(headers: Mapping[str, str], body: str = "") -> float | None:
    """The seconds to wait that a provider asks for; None if it does not.

    They stand in a Retry-After header (a number or a date; names in `headers` are lower case), or
    as Google says it in the body: RetryInfo's `retryDelay`.
    """
    value = headers.get("retry-after", "").strip()
    with contextlib.suppress(ValueError):
        if math.isfinite(float(value)):
            return max(0.0, float(value))
    with contextlib.suppress(ValueError):
        date = email.utils.parsedate_to_datetime(value)
        date = date if date.tzinfo else date.replace(tzinfo=dt.UTC)
        return max(0.0, (date - dt.datetime.now(dt.UTC)).total_seconds())
    asked = [float(first or second) for first, second in _DELAY.findall(body)]
    return max(asked, default=None)


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


def _headers(error: Exception) -> dict[str, str] | None:
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
        message = json.loads(text)["error"]
        text = str(message["message"] if isinstance(message, dict) else message)
    line = redact(encodable(" ".join(text.split())))
    return line if len(line) <= _MAX_CHARS else f"{line[:_MAX_CHARS]} [cut]"
