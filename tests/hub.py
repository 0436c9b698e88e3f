"""The Hugging Face hub on this machine, as far as pushes and downloads use it.

    with running(Hub()) as hub:
        hub.stand_in(monkeypatch)     # or a process with HF_ENDPOINT=hub.url

Real clients talk to it over HTTP.
"""

import base64
import json
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn
from urllib.parse import unquote

import pytest

from tests.provider import json_server

TOKEN = "hf_" + "t0k3n" * 6
_SHA = "0" * 40


class Hub:
    """`repos`: the files of each repository by name; `requests` counts all requests.

    With `refuses` every request gets that status.
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
        """Have this process's clients use it as the hub, and `token` as the user's."""
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", self.url)
        monkeypatch.setattr("art_e.publish.get_token", lambda: token)

    def answer(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, Any]:
        """Status and JSON for a request."""
        self.requests += 1
        path = unquote(path.partition("?")[0])
        # The client sends other requests too, without a token.
        if path.startswith(("/api/repos/", "/api/datasets/", "/api/models/")):
            authorization = headers.get("authorization")
            self.tokens.add(authorization and authorization.removeprefix("Bearer "))
        if self.refuses is not None:
            return self.refuses, {"error": f"no, {TOKEN}\nof course"}
        if path == "/api/repos/create":
            return self._create(json.loads(body))
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}
        found = re.fullmatch(r"/api/(model|dataset)s/([\w.-]+/[\w.-]+)(/.*)?", path)
        if (
            found is None
            or found[2] not in self.repos
            or self.types.get(found[2], "dataset") != found[1]
        ):
            return 404, {"error": "Repository not found"}
        return self._in_repo(found[2], method, found[3] or "", body)

    def _create(self, wanted: dict[str, Any]) -> tuple[int, Any]:
        name = f"{wanted['organization']}/{wanted['name']}"
        kind = wanted.get("type") or "model"
        if name in self.repos:
            return 409, {"url": self._page(name, kind)}
        self.repos[name], self.types[name] = {}, kind
        self.private[name] = wanted["visibility"] == "private"
        return 200, {"url": self._page(name, kind)}

    def _page(self, name: str, kind: str) -> str:
        return f"{self.url}/datasets/{name}" if kind == "dataset" else f"{self.url}/{name}"

    def _in_repo(self, name: str, method: str, rest: str, body: bytes) -> tuple[int, Any]:
        files = self.repos[name]
        if rest.startswith("/preupload/"):
            paths = [each["path"] for each in json.loads(body)["files"]]
            regular = {"uploadMode": "regular", "shouldIgnore": False}
            return 200, {"files": [{"path": path, **regular} for path in paths]}
        if rest.startswith("/commit/"):
            self._commit(files, body)
            page = self._page(name, self.types.get(name, "dataset"))
            return 200, {"commitOid": _SHA, "commitUrl": f"{page}/commit/0"}
        if rest.startswith("/tree/"):
            entry = {"type": "file", "oid": _SHA}
            return 200, [
                {**entry, "path": each, "size": len(files[each])} for each in sorted(files)
            ]
        siblings = [{"rfilename": each} for each in sorted(files)]
        info = {"id": name, "private": self.private[name], "sha": _SHA, "siblings": siblings}
        return (200, info) if method == "GET" else (404, {"error": "not found"})

    def _commit(self, files: dict[str, bytes], body: bytes) -> None:
        self.commits += 1
        for line in map(json.loads, body.splitlines()):
            if line["key"] == "file":
                files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            elif line["key"] == "deletedFile":
                del files[line["value"]["path"]]


@contextmanager
def running(hub: Hub) -> Iterator[Hub]:
    """The hub, answering at its `url`."""
    with json_server(hub.answer) as hub.url:
        yield hub


@contextmanager
def no_network() -> Iterator[None]:
    """A machine without a network: looking for a host, or connecting, fails the test."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError("the network was used")

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in ((socket.socket, "connect"), (socket.socket, "connect_ex")):
            patch.setattr(owner, name, refuse)
        patch.setattr(socket, "getaddrinfo", refuse)
        yield
