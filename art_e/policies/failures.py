"""What an exception that litellm raised means for a call: its kind, and whether to try again.

litellm turns most failures into its own classes, a cut connection and an
unreadable body into the one of a server error, so the cause is looked for behind
it. Knows nothing of waiting and of messages.
"""

import json
import re
from collections.abc import Iterator
from typing import Literal

from art_e.policies.litellm_module import load_litellm
from art_e.policies.retries import CallError, retry_after_s
from art_e.policies.secrets import redact
from art_e.text import encodable

_MAX_CHARS = 300
# How litellm introduces what the provider said.
_FRAMES = re.compile(r"^(?:litellm\.\w+: |\w+ ?(?:Error|Exceeded): |\w+Exception - )+")
# 408 and 409 say themselves that the same request may pass later.
_PASSING = frozenset({408, 409, 425, 429})
_BROKEN = {
    "timeout": "no answer in time",
    "connection": "can't be reached, or the connection was cut",
}


def failure_of(error: Exception, model: str) -> CallError:
    """What `error`, which a call to `model` raised, means."""
    litellm = load_litellm()
    headers = _headers(error)
    status: int = getattr(error, "status_code", None) or 500
    what = _one_line(str(error)) or type(error).__name__
    too_long = isinstance(error, litellm.ContextWindowExceededError)
    if too_long or _has_code(error, "context_length_exceeded"):
        return CallError("context", f"{model}: {what}", again=False)
    if any(isinstance(each, ConnectionRefusedError) for each in _chain(error)):
        # No server is there, and none starts while a user waits for the line that says so.
        return CallError("connection", f"{model}: no server answers at its address", again=False)
    if headers is None and (broken := _broken(error)) is not None:
        return CallError(broken, f"{model}: {_BROKEN[broken]}", again=True, may_be_billed=True)
    if status < 400 or (headers is None and status >= 500):
        message = f"{model}: no readable answer: {what}"
        return CallError("provider", message, again=True, may_be_billed=True)
    no_credit = status == 402 or _has_code(error, "insufficient_quota")
    return CallError(
        "no-credit" if no_credit else _kind(status),
        f"{model}: {status}: {what}",
        again=(status in _PASSING or status >= 500) and not no_credit,
        retry_after=None if headers is None else retry_after_s(headers),
    )


def _broken(error: Exception) -> Literal["timeout", "connection"] | None:
    """How a call ended that the provider did not answer; None where it did."""
    import httpx
    import openai

    chain = list(_chain(error))
    timeouts = (TimeoutError, openai.APITimeoutError, httpx.TimeoutException)
    if any(isinstance(each, timeouts) for each in chain):
        return "timeout"
    # litellm's own subclass stands for whatever it did not expect.
    lost = (openai.APIConnectionError, httpx.TransportError)
    if any(isinstance(each, lost) and "litellm" not in type(each).__module__ for each in chain):
        return "connection"
    return None


def _kind(status: int) -> str:
    if status in {401, 403}:
        return "auth"
    if status == 404:
        return "no-model"
    if status == 429:
        return "rate-limit"
    if status in {408, 504}:
        return "timeout"
    return "provider" if status >= 500 else "request"


def _has_code(error: Exception, code: str) -> bool:
    """Whether the provider's error is of that code, as OpenAI and those like it write it.

    Of some providers litellm hands on the body, of others its text.
    """
    body = getattr(error, "body", None)
    given = body.get("code") if isinstance(body, dict) else None
    return given == code or f'"{code}"' in str(error)


def _headers(error: Exception) -> dict[str, str] | None:
    """The headers of the provider's answer; None where there was none."""
    response = getattr(error, "response", None)
    headers = getattr(error, "litellm_response_headers", None) or getattr(response, "headers", None)
    return {str(name).lower(): str(value) for name, value in headers.items()} if headers else None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception and those behind it."""
    behind: BaseException | None = error
    while behind is not None:
        yield behind
        behind = behind.__cause__ or behind.__context__


def _one_line(text: str) -> str:
    """The provider's words in one short line, without keys."""
    text = _said(_FRAMES.sub("", text).partition("Traceback (most recent call last)")[0])
    said = redact(encodable(" ".join(text.split())))
    return said if len(said) <= _MAX_CHARS else f"{said[:_MAX_CHARS]} [cut]"


def _said(text: str) -> str:
    """What an error in OpenAI's form says; any other text as it is."""
    try:
        message = json.loads(text)["error"]["message"]
    except (ValueError, RecursionError, TypeError, KeyError):
        return text
    return message if isinstance(message, str) else text
