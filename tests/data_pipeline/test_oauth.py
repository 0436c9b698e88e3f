"""OAuth against Dovecot and a token endpoint of this machine: signing in, tokens, and errors."""

import http.server
import json
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from data_pipeline.ingest import oauth
from data_pipeline.ingest.imap import Account
from tests.builders import files_of
from tests.command_line import Run, json_of, the_error
from tests.data_pipeline.test_imap import Box, box, home, server  # noqa: F401 - fixtures
from tests.dovecot import PASSWORD, USER, token_for

Answers = list[dict[str, Any] | str]


class Endpoint(http.server.BaseHTTPRequestHandler):
    """Gives the server's `answers` in turn, texts as redirects, and notes the fields."""

    def do_POST(self) -> None:
        server: Any = self.server
        fields = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        server.seen.append({name: values[0] for name, values in fields.items()})
        answer = server.answers.pop(0)
        self.send_response(302 if isinstance(answer, str) else 400 if "error" in answer else 200)
        self.send_header("Location", str(answer))
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def endpoint() -> Iterator[Any]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as running:
        running.seen, running.answers = [], []  # type: ignore[attr-defined]
        threading.Thread(target=running.serve_forever, args=(0.02,), daemon=True).start()
        yield running
        running.shutdown()


CODE = {"device_code": "dev-secret-1", "user_code": "AB-12", "verification_uri": "https://x.example/d",
        "interval": 0}  # fmt: skip


def given(**more: str) -> dict[str, str]:
    return {"access_token": token_for(USER), "refresh_token": "first-secret-2", **more}


def login(endpoint: Any, *more: object) -> list[object]:
    at = f"http://127.0.0.1:{endpoint.server_port}"
    urls = ("--device-url", f"{at}/device", "--token-url", f"{at}/token", "--scope", "imap")
    return [*urls, "--client-id", "my-id", *more]


def test_a_code_signs_in_and_tokens_are_renewed(art_e: Run, box: Box, endpoint: Any) -> None:  # noqa: F811
    box.put([1])
    endpoint.answers += [CODE, {"error": "authorization_pending"}, given()]
    shown = art_e("login", box.url, *login(endpoint))
    assert "open https://x.example/d and enter the code AB-12" in shown.stderr
    assert f"art-e ingest {Account.of(box.url)}" in shown.stdout
    file = Account.of(box.url).grant_file
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    endpoint.answers += [given(refresh_token="second-secret-3"), given()]
    assert json_of(art_e("ingest", box.url, "--json"))["stored"] == 1
    box.put([2])
    assert json_of(art_e("sync", "--json"))["new"] == 1
    kinds = [
        (each["client_id"], each.get("grant_type"), each.get("refresh_token"))
        for each in endpoint.seen
    ]
    code = "urn:ietf:params:oauth:grant-type:device_code"
    assert kinds == [
        ("my-id", None, None), ("my-id", code, None), ("my-id", code, None),
        ("my-id", "refresh_token", "first-secret-2"), ("my-id", "refresh_token", "second-secret-3"),
    ]  # fmt: skip
    # What the account's server or the endpoint refuses.
    endpoint.answers += [given(access_token=token_for("bob@home.example"))]
    assert f"rejects the sign-in of {USER}" in the_error(art_e("sync"))
    words = {
        "error_description": "AADSTS700082: first-secret-2 has expired",
        "error": "invalid_grant",
    }
    endpoint.answers += [words, f"http://127.0.0.1:{endpoint.server_port}/other"]
    line = the_error(art_e("sync"))
    assert "127.0.0.1 refuses (invalid_grant, AADSTS700082): sign in again with art-e login" in line
    assert "leads to another address" in the_error(art_e("sync"))
    assert len(endpoint.seen) == 8 and "secret" not in line
    kept = [name for name, data in files_of(box.db.parent).items() if b"secret-" in data]
    assert [Path(name).name for name in kept] == [file.name]


def test_sign_ins_that_fail(art_e: Run, home: Path, endpoint: Any) -> None:  # noqa: F811
    account = "imaps://me@x.example"
    endpoint.answers += [{"error": "invalid_client", "error_description": "of dev-secret-1"}]
    line = the_error(art_e("login", account, *login(endpoint)))
    assert line == "Error: 127.0.0.1 refuses (invalid_client): check the client id and the scope"
    open_url = ("--token-url", "http://x.example/t", "--device-url", "http://x.example/d")
    assert "in the open" in the_error(art_e("login", account, "--client-id", "my-id", *open_url))
    assert "is unknown here: give" in the_error(art_e("login", account))
    # Microsoft takes no passwords: none is sent.
    line = the_error(art_e("ingest", "imaps://me@x.example@outlook.office365.com"))
    assert "takes no password" in line and "art-e login imaps://me@x.example@outlook" in line
    assert "--client-id ID is missing" in the_error(art_e("login", "imaps://me@imap.gmail.com"))


def test_googles_page_leads_back_to_an_address_to_paste(
    art_e: Run,
    endpoint: Any,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,  # noqa: F811
) -> None:
    token_url = f"http://127.0.0.1:{endpoint.server_port}/token"
    google = oauth.PROVIDERS["gmail.com"].model_copy(update={"token_url": token_url})
    monkeypatch.setitem(oauth.PROVIDERS, "gmail.com", google)
    monkeypatch.setattr("secrets.token_urlsafe", lambda size: f"random-{size}")
    monkeypatch.setenv("ART_E_IMAP_CLIENT_SECRET", "my-own")
    command = ("login", "imaps://me@imap.gmail.com", "--client-id", "my-id")
    assert "not the address" in the_error_last(
        art_e(*command, keys="http://127.0.0.1:1/?code=1&state=x\n")
    )
    endpoint.answers += [given()]
    shown = art_e(*command, keys="http://127.0.0.1:1/?state=random-16&code=4%2Fabc&scope=x\n")
    assert shown.exit_code == 0, shown.stderr
    query = parse_qs(urlsplit(shown.stderr.split()[4]).query)
    assert query["scope"] == ["https://mail.google.com/"] and query["state"] == ["random-16"]
    [fields] = endpoint.seen
    assert (fields["code"], fields["code_verifier"], fields["client_secret"]) == (
        "4/abc",
        "random-64",
        "my-own",
    )


def the_error_last(shown: Any) -> str:
    assert shown.exit_code == 2
    return str(shown.stderr.splitlines()[-1])
