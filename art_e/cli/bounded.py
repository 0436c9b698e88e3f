"""transformers' server with bounds, as the child process of `art-e serve`.

It answers one request after another, so a single one could keep it busy for hours: here a request
has a size and a number of tokens at most, and stops when its client has left. Only the chat and the
list of models can be reached; the server itself would also load other models for anybody.
"""

import asyncio
import json
import sys
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationMixin, StoppingCriteria, StoppingCriteriaList
from transformers.cli.serving import server
from transformers.cli.transformers import main

MOST_TOKENS = 2_048  # of an answer
# Of a request: English has 4 bytes a token, its JSON some more, and the tools come along.
_LEAST_BYTES, _BYTES_A_TOKEN = 65_536, 8
_CHAT, _MODELS, _HEALTH = "/v1/chat/completions", "/v1/models", "/health"
_LIMITS = ("max_tokens", "max_completion_tokens")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


class Bounds:
    """An ASGI application around `app`, which serves the model `name` of so many tokens."""

    def __init__(self, app: App, name: str, context: int) -> None:
        self._app, self._name = app, name
        self._most_bytes = _LEAST_BYTES + context * _BYTES_A_TOKEN
        self._one = asyncio.Lock()
        self._gone = threading.Event()  # the client of the request that is answered

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http" or scope["path"] == _HEALTH:
            await self._app(scope, receive, send)
        elif scope["path"] == _MODELS:
            await _answer(send, 200, {"object": "list", "data": [{"id": self._name}]})
        elif (scope["path"], scope["method"]) == (_CHAT, "POST"):
            await self._chat(scope, receive, send)
        else:
            await _answer(send, 404, {"error": f"only {_CHAT} and {_MODELS} are here"})

    def stops(self) -> StoppingCriteria:
        """Ends generation when the client has left."""
        gone = self._gone

        class Gone(StoppingCriteria):
            def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
                return torch.full((len(input_ids),), gone.is_set(), device=input_ids.device)

        return Gone()

    async def _chat(self, scope: Message, receive: Receive, send: Send) -> None:
        body = b""
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self._most_bytes:
                await _answer(
                    send, 413, {"error": f"a request has {self._most_bytes:,} bytes at most"}
                )
                return
        try:
            asked = json.loads(body)
            for limit in _LIMITS:
                if asked.get(limit) is not None:
                    asked[limit] = min(int(asked[limit]), MOST_TOKENS)
        except (ValueError, TypeError, AttributeError, RecursionError, OverflowError):
            await _answer(send, 400, {"error": "the request is no JSON object of the chat"})
            return
        if asked.get("model") != self._name:
            await _answer(send, 404, {"error": f"the only model here is {self._name}"})
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


async def _left(receive: Receive) -> None:
    """Wait until the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _answer(send: Send, status: int, row: dict[str, Any]) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(row).encode()})


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
