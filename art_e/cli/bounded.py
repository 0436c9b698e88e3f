"""transformers' server with bounds, as the child process of `art-e serve`.

It answers one request after another, so a single one could keep it busy for hours: here a request
has a size and a number of tokens at most, and stops when its client has left. Only the chat and the
list of models can be reached; the server itself would also load other models for anybody.
"""

import asyncio
import json
import sys
import threading
from pathlib import Path
from typing import Any

import torch
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from transformers import GenerationMixin, StoppingCriteria, StoppingCriteriaList
from transformers.cli.serving import server
from transformers.cli.transformers import main

MOST_TOKENS = 2_048  # of an answer
# Of a request: English has 4 bytes a token, its JSON some more, and the tools come along.
_LEAST_BYTES, _BYTES_A_TOKEN = 65_536, 8
_CHAT, _MODELS, _HEALTH = "/v1/chat/completions", "/v1/models", "/health"
_LIMITS = ("max_tokens", "max_completion_tokens")


class Gone(StoppingCriteria):
    """Ends generation once `gone` is set."""

    def __init__(self, gone: threading.Event) -> None:
        self._gone = gone

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        """Whether each of the texts has come to its end."""
        return torch.full((len(input_ids),), self._gone.is_set(), device=input_ids.device)


class Bounds:
    """An ASGI application around `app`, which serves the model `name` of so many tokens."""

    def __init__(self, app: ASGIApp, name: str, context: int) -> None:
        self._app, self._name = app, name
        self._most_bytes = _LEAST_BYTES + context * _BYTES_A_TOKEN
        self._one = asyncio.Lock()
        self._gone = threading.Event()  # the client of the request that is answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http" or scope["path"] == _HEALTH:
            await self._app(scope, receive, send)
        elif scope["path"] == _MODELS:
            listed = JSONResponse({"object": "list", "data": [{"id": self._name}]})
            await listed(scope, receive, send)
        elif (scope["path"], scope["method"]) == (_CHAT, "POST"):
            await self._chat(scope, receive, send)
        else:
            await _refusal(404, f"only {_CHAT} and {_MODELS} are here")(scope, receive, send)

    def stops(self) -> StoppingCriteria:
        """Ends generation when the client has left."""
        return Gone(self._gone)

    async def _chat(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            asked = await self._asked(Request(scope, receive))
        except ClientDisconnect:
            return
        if isinstance(asked, JSONResponse):
            await asked(scope, receive, send)
            return
        body = json.dumps(asked).encode()
        left = asyncio.ensure_future(_left(receive))
        try:
            async with self._one:
                if left.done():
                    return
                self._gone = gone = threading.Event()
                left.add_done_callback(lambda _: gone.set())
                length = (b"content-length", str(len(body)).encode())
                headers = [each for each in scope["headers"] if each[0] != b"content-length"]
                whole = iter([{"type": "http.request", "body": body, "more_body": False}])

                async def again() -> Message:
                    if (message := next(whole, None)) is not None:
                        return message
                    await left
                    return {"type": "http.disconnect"}

                await self._app({**scope, "headers": [*headers, length]}, again, send)
        finally:
            left.cancel()

    async def _asked(self, request: Request) -> dict[str, Any] | JSONResponse:
        """What the request asks for, within the bounds; or why it is refused."""
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > self._most_bytes:
                return _refusal(413, f"a request has {self._most_bytes:,} bytes at most")
        try:
            asked: dict[str, Any] = json.loads(body)
            for limit in _LIMITS:
                if asked.get(limit) is not None:
                    asked[limit] = min(int(asked[limit]), MOST_TOKENS)
        except (ValueError, TypeError, AttributeError, RecursionError, OverflowError):
            return _refusal(400, "the request is no JSON object of the chat")
        if asked.get("model") != self._name:
            return _refusal(404, f"the only model here is {self._name}")
        return asked


async def _left(receive: Receive) -> None:
    """Wait until the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _refusal(status: int, why: str) -> JSONResponse:
    return JSONResponse({"error": why}, status)


def run(name: str) -> None:
    """Serve the model in the folder `name`, with transformers' own options after it."""
    config = json.loads(Path(name, "config.json").read_text("utf-8"))
    build, generate = server.build_server, GenerationMixin.generate

    def bounded(*parts: Any, **options: Any) -> Bounds:
        served = Bounds(build(*parts, **options), name, int(config["max_position_embeddings"]))

        def stoppable(self: Any, *inputs: Any, **how: Any) -> Any:
            own = how.pop("stopping_criteria", None) or ()
            how["stopping_criteria"] = StoppingCriteriaList([*own, served.stops()])
            return generate(self, *inputs, **how)

        setattr(GenerationMixin, "generate", stoppable)  # noqa: B010 - to mypy it is no attribute
        return served

    setattr(server, "build_server", bounded)  # noqa: B010
    sys.argv = ["transformers", "serve", *sys.argv[1:]]
    start: Any = main
    start()


if __name__ == "__main__":
    run(sys.argv[1])
