"""Signs in to mail accounts with OAuth 2 and the user's own client id.

Microsoft and others show a code to enter on their page (RFC 8628). Google has no such code for
mail: its page leads to an address of this machine, which the user pastes (RFC 8252). The refresh
token is stored in a file in ART_E_HOME and exchanged for an access token for each connection."""

import base64
import hashlib
import itertools
import re
import secrets
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

from pydantic import BaseModel, TypeAdapter, ValidationError

from art_e.cli.output import note, one_line
from art_e.errors import UserError
from art_e.models.base import PolicyError
from art_e.privacy import LOOPBACK
from art_e.storage import write_whole
from art_e.text import toml_table

_DEVICE_CODE = "urn:ietf:params:oauth:grant-type:device_code"
_SIGN_IN_S, _TIMEOUT_S = 900.0, 30.0  # for the person, for a request
_BACK = "http://127.0.0.1:1"  # nothing listens there
_URL = re.compile(r"(https?)://([\w.-]+)(?::\d+)?(?:/\S*)?")
_TABLES = toml_table(__package__, "providers.toml")
_FIXES: dict[str, str] = _TABLES["errors"]
REJECTED: dict[str, str] = _TABLES["rejected"]


class RejectedError(UserError):
    """The server rejects the password or token, so that a retry doesn't help."""


class Grant(BaseModel):
    """An account's sign-in: endpoints (`page_url` for a browser), client and refresh token."""

    page_url: str = ""
    device_url: str = ""
    token_url: str
    scope: str
    client_id: str = ""
    client_secret: str = ""
    refresh_token: str = ""

    def ask(self, **fields: str) -> dict[str, Any]:
        """Return the answer of the token endpoint, and adopt a new refresh token."""
        client = self.model_dump(include={"client_id", "client_secret"}, exclude_defaults=True)
        reply = _post(self.token_url, {**client, **fields})
        self.refresh_token = str(reply.get("refresh_token") or self.refresh_token)
        return reply

    def access_token(self, file: Path, account: str) -> str:
        """Return a new access token; store a new refresh token in `file`."""
        old = self.refresh_token
        reply = self.ask(grant_type="refresh_token", refresh_token=old, scope=self.scope)
        if not isinstance(token := reply.get("access_token"), str) or not token:
            why = _refusal(self.token_url, reply)
            if str(reply.get("error")) in _FIXES:
                raise RejectedError(f"{why}: sign in again with art-e login {account}")
            raise UserError(f"{why}: try again later")
        if self.refresh_token != old:
            write_whole(file, self.model_dump_json())
        return token


_BODY: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])
PROVIDERS = {host: Grant(**fields) for host, fields in _TABLES["providers"].items()}


def grant_in(file: Path) -> Grant | None:
    """Return the stored sign-in of an account, if any."""
    try:
        return Grant.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError:
        raise UserError(f"{file} is damaged: delete it, and sign in with art-e login") from None


def sign_in(grant: Grant, file: Path) -> None:
    """Ask the user to sign in, and store the refresh token in `file`."""
    reply = _by_code(grant) if grant.device_url else _by_page(grant)
    if not grant.refresh_token:
        fix = _FIXES.get(str(reply.get("error")), "try again later, or with another scope")
        raise UserError(f"{_refusal(grant.token_url, reply)}: {fix}")
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, grant.model_dump_json())


def _by_code(grant: Grant) -> dict[str, Any]:
    reply = _post(grant.device_url, {"client_id": grant.client_id, "scope": grant.scope})
    wait, ends = reply.get("interval"), time.monotonic() + _SIGN_IN_S
    wait = wait if isinstance(wait, int) and 0 <= wait < 60 else 5
    if (code := reply.get("device_code")) is not None:
        page = reply.get("verification_uri") or reply.get("verification_url")
        note(f"to sign in, open {page} and enter the code {reply.get('user_code')}")
        reply = {"error": "authorization_pending"}
    while reply.get("error") in ("authorization_pending", "slow_down") and time.monotonic() < ends:
        wait += 5 * (reply["error"] == "slow_down")  # RFC 8628: five seconds more
        time.sleep(wait)
        reply = grant.ask(grant_type=_DEVICE_CODE, device_code=str(code))
    return reply


def _by_page(grant: Grant) -> dict[str, Any]:
    verifier, state = secrets.token_urlsafe(64), secrets.token_urlsafe(16)  # PKCE, CSRF
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=")
    query = {
        "client_id": grant.client_id, "scope": grant.scope, "state": state, "redirect_uri": _BACK,
        "response_type": "code", "access_type": "offline", "prompt": "consent",
        "code_challenge": challenge.decode(), "code_challenge_method": "S256",
    }  # fmt: skip
    note(f"to sign in, open {grant.page_url}?{urlencode(query)}")
    note("the last page can't be shown, as expected: paste its address here")
    answer = dict(parse_qsl(sys.stdin.readline().strip().partition("?")[2]))
    if answer.get("state") != state or not answer.keys() & {"code", "error"}:
        raise UserError("that is not the address of the last page: run the command again")
    if "error" in answer:
        return answer
    fields = {"code": answer["code"], "code_verifier": verifier, "redirect_uri": _BACK}
    return grant.ask(grant_type="authorization_code", **fields)


def _host(url: str) -> str:
    match = _URL.fullmatch(url)
    if match is None or (match[1] == "http" and match[2] not in LOOPBACK):
        raise UserError(f"{one_line(url)} would get a token unencrypted: give an https:// address")
    return match[2]


def _refusal(url: str, reply: dict[str, Any]) -> str:
    """Describe a refusal by its error codes only: other words of the server may repeat a token."""
    known = [error for error in _FIXES if error == reply.get("error")]
    known += re.findall(r"AADSTS\d{4,9}", str(reply.get("error_description")))
    return f"{_host(url)} refuses ({', '.join(known) or 'without a reason'})"


def _post(url: str, fields: dict[str, str]) -> dict[str, Any]:
    """Return the answer to a form; errors don't repeat its fields."""
    import httpx

    host = _host(url)
    with suppress(PolicyError):  # httpx raises it for a redirect once this process asked a model
        try:
            with httpx.stream("POST", url, data=fields, timeout=_TIMEOUT_S) as answer:
                body = b"".join(itertools.islice(answer.iter_bytes(65_536), 16))  # 1 MiB at most
            if not answer.is_redirect:
                return _BODY.validate_json(body)
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            why = type(error).__name__
            raise UserError(f"no answer from {host} ({why}): check the network") from None
        except ValidationError:
            what = f"{host} does not answer like an OAuth server (HTTP {answer.status_code})"
            raise UserError(f"{what}: check its address, or try again later") from None
    raise UserError(f"{host} redirects elsewhere, and no token is sent there: check its address")
