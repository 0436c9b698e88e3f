"""The Hugging Face hub on this machine, as far as a push and a download use it.

    with running(Hub()) as hub:
        hub.stand_in(monkeypatch)     # or a process with HF_ENDPOINT=hub.url

Real clients talk to it over HTTP. It holds files, visibility and tokens.
"""

import base64
import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NoReturn
from urllib.parse import unquote

import pytest

TOKEN = "hf_" + "t0k3n" * 6
_SHA = "0" * 40


class Hub:
    """`repos`: files by name of each repository; `private`: whether it is; `types`: what it is.

    `requests` counts all that it was asked, by whomever.
    """

    def __init__(self, refuses: int | None = None) -> None:
        self.refuses = refuses
        self.repos: dict[str, dict[str, bytes]] = {}
        self.private: dict[str, bool] = {}
        self.types: dict[str, str] = {}
        self.tokens: set[str | None] = set()
        self.commits = 0
        self.requests = 0
        self.url = ""

    def stand_in(self, monkeypatch: pytest.MonkeyPatch, token: str | None = TOKEN) -> None:
        """Let this process's clients take it for the hub, and `token` for the user's."""
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", self.url)
        monkeypatch.setattr("art_e.publish.get_token", lambda: token)

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        """Status and JSON for a request."""
        if self.refuses is not None:
            return self.refuses, {"error": f"no, {TOKEN}\nof course"}
        if path == "/api/repos/create":
            return self._create(json.loads(body))
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}
        found = re.fullmatch(r"/api/(model|dataset)s/([\w.-]+/[\w.-]+)(/.*)?", path)
        if found is None or self.types.get(found[2], "dataset") != found[1]:
            return 404, {"error": "Repository not found"}
        if found[2] not in self.repos:
            return 404, {"error": "Repository not found"}
        return self._in_repo(found[2], method, found[3] or "", body)

    def _create(self, wanted: dict[str, Any]) -> tuple[int, Any]:
        name = f"{wanted['organization']}/{wanted['name']}"
        kind = wanted.get("type") or "model"
        answer = {"url": self._page(name, kind)}
        if name in self.repos:
            return 409, answer
        self.repos[name], self.private[name] = {}, wanted["visibility"] == "private"
        self.types[name] = kind
        return 200, answer

    def _page(self, name: str, kind: str) -> str:
        return f"{self.url}/datasets/{name}" if kind == "dataset" else f"{self.url}/{name}"

    def _in_repo(self, name: str, method: str, rest: str, body: bytes) -> tuple[int, Any]:
        if rest.startswith("/preupload/"):
            files = json.loads(body)["files"]
            regular = {"uploadMode": "regular", "shouldIgnore": False}
            return 200, {"files": [{"path": each["path"], **regular} for each in files]}
        if rest.startswith("/commit/"):
            self._commit(name, body)
            page = self._page(name, self.types.get(name, "dataset"))
            return 200, {"commitOid": _SHA, "commitUrl": f"{page}/commit/0"}
        if rest.startswith("/tree/"):
            files = self.repos[name].items()
            return 200, [
                {"type": "file", "path": path, "size": len(data), "oid": _SHA}
                for path, data in sorted(files)
            ]
        siblings = [{"rfilename": each} for each in sorted(self.repos[name])]
        info = {"id": name, "private": self.private[name], "sha": _SHA, "siblings": siblings}
        return (200, info) if method == "GET" else (404, {"error": "no such thing"})

    def _commit(self, name: str, body: bytes) -> None:
        self.commits += 1
        for line in map(json.loads, body.splitlines()):
            path = line["value"].get("path", "")
            if line["key"] == "file":
                self.repos[name][path] = base64.b64decode(line["value"]["content"])
            elif line["key"] == "deletedFile":
                del self.repos[name][path]


@contextmanager
def no_network() -> Iterator[None]:
    """As on a machine without one: whoever looks for a host, or connects, fails the test."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError("the network was used")

    with pytest.MonkeyPatch.context() as patch:
        for name in ("connect", "connect_ex"):
            patch.setattr(socket.socket, name, refuse)
        patch.setattr(socket, "getaddrinfo", refuse)
        yield


@contextmanager
def running(hub: Hub) -> Iterator[Hub]:
    """The hub, answering at its `url`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def _answer(self) -> None:
            hub.requests += 1
            authorization = self.headers["Authorization"]
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            path = unquote(self.path.partition("?")[0])
            # The client asks for other things too, as nobody.
            if path.startswith(("/api/repos/", "/api/datasets/", "/api/models/")):
                hub.tokens.add(authorization and authorization.removeprefix("Bearer "))
            status, answer = hub.answer(self.command, path, body)
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Keep stderr for the tests' own words."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
