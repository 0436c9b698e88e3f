"""A model provider on this machine: the OpenAI chat-completions wire, from a script or a rule.

    with Provider([says(None, search("lease")), rate_limited("1"), says("Done.")]) as provider:
        provider.stand_in_for_openai(monkeypatch)

Real client libraries talk to it over HTTP. A script's replies are served in the order in
which requests arrive; a rule is asked for each request. It answers POST
/v1/chat/completions and GET /v1/models, and knows nothing of episodes and policies.
"""

import json
import random
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

import pytest

from art_e.message import AssistantMessage, ToolCall
from art_e.models.base import Usage

# Long enough that a client's timeout ends it, and not the provider.
NEVER_S = 600.0
KEY = "sk-test-of-the-scripted-provider"


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asked for: `body` is {} for GET; header names are in lower case."""

    number: int
    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation that was sent."""
        messages: list[dict[str, Any]] = self.body["messages"]
        return messages


@dataclass(frozen=True, slots=True)
class Reply:
    """What goes over the wire. With `cut_after` the connection ends after so many bytes
    of the body (negative: before the status line); `delay_s` passes before the body.
    `fails`: a client gets no answer out of it."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    cut_after: int | None = None
    fails: bool = False


Rule = Callable[[Request], Reply]


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and what was served for it, when its turn came."""

    request: Request
    reply: Reply


def says(
    text: str | None,
    *calls: ToolCall,
    usage: Usage | None = Usage(100, 0, 10, 0),  # noqa: B008 - frozen
    delay_s: float = 0.0,
    **fields: Any,
) -> Reply:
    """A chat completion; `fields` are put into its message as they are.

    `usage` None: the provider tells no usage.
    """
    chat = AssistantMessage(text, calls).to_chat()
    completion: dict[str, Any] = {
        "id": f"chatcmpl-{random.getrandbits(48):012x}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": "scripted",
        "choices": [
            {
                "index": 0,
                "message": {**chat, "content": text, **fields},
                "finish_reason": "tool_calls" if calls else "stop",
            }
        ],
    }
    if usage is not None:
        completion["usage"] = {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cached_prompt_tokens},
            "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        }
    return Reply(json.dumps(completion).encode(), delay_s=delay_s)


def refuses(
    status: int, message: str, *, code: str | None = None, headers: Mapping[str, str] | None = None
) -> Reply:
    """An error in the form of OpenAI's."""
    kind = "invalid_request_error" if status < 429 else "server_error"
    error = {"message": message, "type": kind, "param": None, "code": code}
    return Reply(json.dumps({"error": error}).encode(), status, headers or {}, fails=True)


def rate_limited(retry_after: str | None = None) -> Reply:
    """429; `retry_after` is the header's value, seconds or a date."""
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return refuses(429, "Rate limit reached", code="rate_limit_exceeded", headers=headers)


def broken(status: int = 500) -> Reply:
    """A server error."""
    return refuses(status, "The server had an error")


def cut(after: int = 40) -> Reply:
    """A completion of which only the first bytes come; negative: not even the status."""
    return Reply(says("cut off").body, cut_after=after, fails=True)


def stalls() -> Reply:
    """A completion whose body does not come before any client gives up."""
    return Reply(says("too late").body, delay_s=NEVER_S, fails=True)


def no_json() -> Reply:
    """200, but a body that is no JSON, as from a proxy's error page."""
    return Reply(b"<html><body>Bad gateway</body></html>", fails=True)


FAILURES: tuple[Callable[[], Reply], ...] = (
    lambda: rate_limited("0"),
    broken,
    lambda: broken(503),
    cut,
    lambda: cut(-1),
    stalls,
    no_json,
)


class Provider:
    """The server, from `with` to its end.

    With `failure_rate` that share of chat requests gets one of `failures` instead of an
    answer, drawn by `seed`. With `key`, requests with another are refused with 401. A
    rule that raises is raised again when the provider ends, so that no assertion is lost.
    """

    def __init__(
        self,
        replies: Sequence[Reply] | Rule,
        *,
        models: Sequence[str] = ("scripted",),
        key: str | None = None,
        failure_rate: float = 0.0,
        failures: Sequence[Callable[[], Reply]] = FAILURES,
        seed: int = 0,
    ) -> None:
        self._replies = replies
        self._models = models
        self._key = key
        self._failure_rate = failure_rate
        self._failures = failures
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._exchanges: list[Exchange] = []
        self._served = 0
        self._faults: list[Exception] = []
        self._connections: set[socket.socket] = set()
        self.most_connections = 0
        self.ending = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.provider = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.ending.set()
        self._server.shutdown()
        with self._lock:
            for each in self._connections:
                # Wakes the thread that waits for the client's next request.
                each.shutdown(socket.SHUT_RDWR)
        self._server.server_close()
        self._thread.join()
        if error is None and self._faults:
            raise self._faults[0]

    @property
    def base_url(self) -> str:
        """What an OpenAI client takes as its base URL."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def stand_in_for_openai(self, monkeypatch: pytest.MonkeyPatch, key: str = KEY) -> None:
        """Have models named openai/... asked here, with that key."""
        monkeypatch.setenv("OPENAI_API_KEY", key)
        monkeypatch.setenv("OPENAI_BASE_URL", self.base_url)
        monkeypatch.delenv("OPENAI_API_BASE", raising=False)

    @property
    def exchanges(self) -> list[Exchange]:
        """What was asked and served, in order of arrival."""
        with self._lock:
            return list(self._exchanges)

    @property
    def requests(self) -> list[Request]:
        """What was asked, in order of arrival."""
        return [each.request for each in self.exchanges]

    @property
    def connections(self) -> int:
        """How many clients' connections are open."""
        with self._lock:
            return len(self._connections)

    @property
    def failed(self) -> int:
        """How many requests were given no answer."""
        return sum(each.reply.fails for each in self.exchanges)

    def reply_to(self, path: str, headers: Mapping[str, str], body: dict[str, Any]) -> Reply:
        """What to serve, recorded."""
        with self._lock:
            request = Request(len(self._exchanges), path, headers, body)
            try:
                reply = self._choose(request)
            except Exception as error:  # noqa: BLE001 - raised again at the end
                self._faults.append(error)
                reply = refuses(400, f"the rule failed: {error!r}")
            self._exchanges.append(Exchange(request, reply))
        return reply

    def _choose(self, request: Request) -> Reply:
        if self._key is not None and request.headers.get("authorization") != f"Bearer {self._key}":
            return refuses(401, "Incorrect API key provided", code="invalid_api_key")
        if request.path == "/v1/models":
            listed = [{"id": each, "object": "model"} for each in self._models]
            return Reply(json.dumps({"object": "list", "data": listed}).encode())
        if request.path != "/v1/chat/completions":
            return refuses(404, f"there is no {request.path}")
        if self._random.random() < self._failure_rate:
            return self._random.choice(self._failures)()
        if callable(self._replies):
            return self._replies(request)
        if self._served == len(self._replies):
            raise AssertionError("the script has no further reply")
        self._served += 1
        return self._replies[self._served - 1]

    def opened(self, connection: socket.socket) -> None:
        """A client has come."""
        with self._lock:
            self._connections.add(connection)
            self.most_connections = max(self.most_connections, len(self._connections))

    def closed(self, connection: socket.socket) -> None:
        """A client has gone."""
        with self._lock:
            self._connections.discard(connection)


class _Server(ThreadingHTTPServer):
    provider: Provider
    # All clients of a test may come at once.
    request_queue_size = 512
    daemon_threads = False


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.provider.opened(self.connection)

    def finish(self) -> None:
        self.server.provider.closed(self.connection)
        super().finish()

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, body: dict[str, Any]) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        provider = self.server.provider
        reply = provider.reply_to(self.path, headers, body)
        try:
            self._send(reply)
        except ConnectionError:
            # The client gave up waiting.
            self.close_connection = True

    def _send(self, reply: Reply) -> None:
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

    def handle(self) -> None:
        try:
            super().handle()
        except ConnectionError:
            # The client went while its next request was waited for.
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """Nothing: what was asked is in `exchanges`."""
