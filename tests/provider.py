"""A model provider on this machine: the OpenAI chat-completions wire, from a script or a rule.

    with openai([says(None, search("lease")), rate_limited("1"), says("Done.")]) as provider:

Real client libraries talk to it over HTTP. It serves a script's replies in the order in which
requests arrive, or calls a rule for each: POST /v1/chat/completions (streamed, if a client asks
for that) and GET /v1/models. `json_server` is the plain server of the other stand-ins."""

import contextlib
import dataclasses
import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from unittest import mock

import pytest

from art_e.message import AssistantMessage, ToolCall
from art_e.models.base import Usage

# Longer than any client's timeout.
NEVER_S = 600.0
KEY = "sk-test-of-the-scripted-provider"


@dataclass(frozen=True, slots=True)
class Request:
    """A client's request: `body` is {} for GET; header names are in lower case."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]

    @property
    def messages(self) -> list[dict[str, Any]]:
        return list(self.body["messages"])


@dataclass(frozen=True, slots=True)
class Reply:
    """A response. With `cut_after` the connection ends after that many bytes of the body (negative:
    before the status line); `delay_s` passes before the body. `fails`: it has no answer."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    cut_after: int | None = None
    fails: bool = False


Rule = Callable[[Request], Reply]


USAGE = Usage(100, 0, 10, 0)


def says(
    text: str | None, *calls: ToolCall, usage: Usage | None = USAGE, delay_s: float = 0.0,
    **fields: Any,
) -> Reply:  # fmt: skip
    """Return a chat completion with `fields` added to its message; None leaves out `usage`."""
    message = {**AssistantMessage(text, calls).to_chat(), "content": text, **fields}
    finish = "tool_calls" if calls else "stop"
    completion: dict[str, Any] = {
        "id": f"chatcmpl-{random.getrandbits(48):012x}", "object": "chat.completion",
        "created": int(time.time()), "model": "scripted",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
    }  # fmt: skip
    if usage is not None:
        completion["usage"] = {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cached_prompt_tokens},
            "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        }
    return Reply(json.dumps(completion).encode(), delay_s=delay_s)


STREAM_CHARS = 5


def streamed(reply: Reply) -> Reply:
    """Return a completion in parts, as server-sent events; return other replies as they are."""
    if reply.fails:
        return reply
    completion = json.loads(reply.body)
    [choice] = completion["choices"]
    message, usage = choice["message"], completion.pop("usage", None)

    def parts(text: str) -> list[str]:
        return [text[at : at + STREAM_CHARS] for at in range(0, len(text), STREAM_CHARS)]

    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None}]
    deltas += [{"content": part} for part in parts(message["content"] or "")]
    for index, call in enumerate(message.get("tool_calls") or ()):
        # A call starts as with vLLM; OpenAI's first part has empty arguments, too.
        head = {"index": index, **call, "function": {"name": call["function"]["name"]}}
        deltas.append({"tool_calls": [head]})
        for part in parts(call["function"]["arguments"]):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
    chunks = [[{"index": 0, "delta": delta, "finish_reason": None}] for delta in deltas]
    chunks += [[{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]]
    events = [{**completion, "object": "chat.completion.chunk", "choices": c} for c in chunks]
    if usage is not None:
        events.append({**events[-1], "choices": [], "usage": usage})
    lines = [*(json.dumps(each) for each in events), "[DONE]"]
    body = "".join(f"data: {line}\n\n" for line in lines)
    headers = {**reply.headers, "Content-Type": "text/event-stream"}
    return dataclasses.replace(reply, body=body.encode(), headers=headers)


def refuses(
    status: int, message: str, *, code: str | None = None, headers: Mapping[str, str] | None = None
) -> Reply:
    """Return an error in OpenAI's form."""
    kind = "invalid_request_error" if status < 429 else "server_error"
    error = {"message": message, "type": kind, "param": None, "code": code}
    return Reply(json.dumps({"error": error}).encode(), status, headers or {}, fails=True)


def rate_limited(retry_after: str | None = None) -> Reply:
    """Return status 429; `retry_after` is the header's value, seconds or a date."""
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return refuses(429, "Rate limit reached", code="rate_limit_exceeded", headers=headers)


def broken(status: int = 500) -> Reply:
    return refuses(status, "The server had an error")


def cut(after: int = 40) -> Reply:
    """Return a completion that ends after a few bytes; negative: before the status."""
    return Reply(says("cut off").body, cut_after=after, fails=True)


def torn() -> Reply:
    """Return a stream without its end, which is complete for HTTP."""
    reply = streamed(says(None, ToolCall("1", "search_emails", '{"keywords": ["lease"]}')))
    lines = reply.body.split(b"\n\n")
    return dataclasses.replace(reply, body=b"\n\n".join(lines[:4]) + b"\n\n", fails=True)


def stalls() -> Reply:
    """Return a completion whose body comes after every client has given up."""
    return Reply(says("too late").body, delay_s=NEVER_S, fails=True)


class Provider:
    """The server, in a `with` block. With `key`, requests with another key get 401. Errors of a
    rule are raised again when the provider ends, so that no assertion is lost. `requests` are in
    order of arrival; `replies` may be replaced."""

    def __init__(self, replies: Sequence[Reply] | Rule, *, key: str | None = None) -> None:
        self.replies: list[Reply] | Rule = replies if callable(replies) else list(replies)
        self._key = key
        self._lock = threading.Lock()
        self.requests: list[Request] = []
        self._errors: list[Exception] = []
        self._connections: set[socket.socket] = set()
        self.most_connections = 0
        self.ending = threading.Event()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.ending.set()
        self._server.shutdown()
        with self._lock:
            for connection in self._connections:
                # This wakes the thread that waits for the client's next request. The connection
                # of a client that has left is closed already.
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        self._server.server_close()
        self._thread.join()
        if error is None and self._errors:
            raise self._errors[0]

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def environment(self, home: Path) -> dict[str, str]:
        """Return the variables of a command that asks this provider in place of OpenAI."""
        return {"ART_E_HOME": str(home), "OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": self.base_url}

    def stand_in_for_openai(self, monkeypatch: pytest.MonkeyPatch, key: str = KEY) -> None:
        """Send requests for models named openai/... here, with that key."""
        monkeypatch.setenv("OPENAI_API_KEY", key)
        monkeypatch.setenv("OPENAI_BASE_URL", self.base_url)

    def reply_to(self, _: str, path: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """Choose a response, and record it."""
        with self._lock:
            request = Request(path, headers, json.loads(body or b"{}"))
            self.requests.append(request)
            try:
                reply = self._choose(request)
            except Exception as error:  # noqa: BLE001 - raised again at the end
                self._errors.append(error)
                reply = refuses(400, f"the rule failed: {error!r}")
        return streamed(reply) if request.body.get("stream") else reply

    def _choose(self, request: Request) -> Reply:
        if self._key is not None and request.headers.get("authorization") != f"Bearer {self._key}":
            return refuses(401, "Incorrect API key provided", code="invalid_api_key")
        if request.path == "/v1/models":
            listed = [{"id": "scripted", "object": "model"}]
            return Reply(json.dumps({"object": "list", "data": listed}).encode())
        if request.path != "/v1/chat/completions":
            return refuses(404, f"there is no {request.path}")
        if callable(self.replies):
            return self.replies(request)
        if not self.replies:
            raise AssertionError("the script has no further reply")
        return self.replies.pop(0)

    @contextmanager
    def connected(self, connection: socket.socket) -> Iterator[None]:
        """Count a client until it leaves."""
        with self._lock:
            self._connections.add(connection)
            self.most_connections = max(self.most_connections, len(self._connections))
        yield
        with self._lock:
            self._connections.discard(connection)


@contextmanager
def openai(replies: Sequence[Reply] | Rule, key: str = KEY) -> Iterator[Provider]:
    """Start a provider that stands in for OpenAI."""
    with Provider(replies) as provider, pytest.MonkeyPatch.context() as patch:
        provider.stand_in_for_openai(patch, key)
        yield provider


# A model of each family that `stand_in` knows.
MODELS = (
    "openai/gpt-4.1", "azure/ours", "gemini/gemini-3.8-flash", "anthropic/claude-opus-4-6",
    "openrouter/qwen/qwen3-14b", "ollama_chat/qwen3:8b", "hosted_vllm/qwen", "groq/llama-3.3-70b",
)  # fmt: skip


def stand_in(monkeypatch: pytest.MonkeyPatch, model: str, url: str) -> None:
    """Send calls of the model to the server at `url`, with a key."""
    family = model.partition("/")[0].removesuffix("_chat").upper()
    path = "/v1" if family in ("OPENAI", "HOSTED_VLLM", "OPENROUTER", "GROQ") else ""
    monkeypatch.setenv(f"{family}_{'BASE_URL' if family == 'OPENAI' else 'API_BASE'}", url + path)
    monkeypatch.setenv(f"{family}_API_KEY", "a-key-that-is-set")
    monkeypatch.setenv("AZURE_API_VERSION", "2025-04-01-preview")


class _Server(ThreadingHTTPServer):
    # All clients of a test may connect at once.
    request_queue_size = 512
    daemon_threads = False

    def __init__(self, provider: Provider) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.provider = provider


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def handle(self) -> None:
        with self.server.provider.connected(self.connection):
            # A client that connects while the provider ends would keep its connection open.
            if self.server.provider.ending.is_set():
                return
            try:
                super().handle()
            except ConnectionError:  # the client gave up waiting, or left
                self.close_connection = True

    def do_GET(self) -> None:
        length = int(self.headers["Content-Length"] or 0)
        body = self.rfile.read(length)
        if len(body) < length:  # a client was killed while it sent the request
            self.close_connection = True
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        reply = self.server.provider.reply_to(self.command, self.path, headers, body)
        if reply.cut_after is not None and reply.cut_after < 0:
            self.close_connection = True
            return
        self.send_response(reply.status)
        for name, value in {"Content-Type": "application/json", **reply.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        if reply.delay_s and self.server.provider.ending.wait(reply.delay_s):
            self.close_connection = True
            return
        self.wfile.write(reply.body[: reply.cut_after])
        self.close_connection |= reply.cut_after is not None

    do_POST = do_GET  # noqa: N815 - the library's name

    def log_message(self, *_: Any) -> None:
        """Write nothing to standard error."""


# Takes a method, a path, headers (names in lower case) and a body; returns a status and a JSON
# value, or a reply as it is.
Answer = Callable[[str, str, Mapping[str, str], bytes], tuple[int, Any] | Reply]


@contextmanager
def json_server(answer: Answer) -> Iterator[str]:
    def reply_to(*request: Any) -> Reply:
        reply = answer(*request)
        return reply if isinstance(reply, Reply) else Reply(json.dumps(reply[1]).encode(), reply[0])

    server = Provider([])
    # Patched until the last client has left.
    with mock.patch.object(server, "reply_to", reply_to), server:
        yield server.base_url.removesuffix("/v1")
