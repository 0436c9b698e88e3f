"""Who may use the page: one browser on this machine, which came with the printed address.

Everything else gets one line: another site that had its name point here (the Host header), a form
on another site (Origin), and another user of this machine (the cookie).
"""

import secrets
from hmac import compare_digest

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = "127.0.0.1"
HEADERS = {
    # No mail can load, run or send anything, even if it got into the page as markup.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'self';"
    " frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_NO_ENTRY = "Open the address that art-e web printed; it works once. A new run prints another.\n"


class Guard:
    """Lets requests of the one browser through to an app, and adds `HEADERS` to every response."""

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app = app
        self._hosts = {f"{LOOPBACK}:{port}", f"localhost:{port}"}
        # Browsers send the cookies of all ports of a host.
        self._cookie = f"art_e_{port}"
        self._session = secrets.token_urlsafe(32)
        self._token: str | None = secrets.token_urlsafe(32)
        self.address = f"http://{LOOPBACK}:{port}/?token={self._token}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await (self._refusal(Request(scope)) or self._app)(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        """What to answer instead of the page; None lets the request through."""
        host = request.headers.get("host", "")
        if host not in self._hosts:
            return PlainTextResponse("There is nothing under this name.\n", 403)
        if request.method == "POST" and request.headers.get("origin") != f"http://{host}":
            return PlainTextResponse("Only the page itself may ask.\n", 403)
        if self._token is not None and _same(request.query_params.get("token"), self._token):
            self._token = None
            entered = RedirectResponse("/", 303)
            entered.set_cookie(self._cookie, self._session, httponly=True, samesite="strict")
            return entered
        if not _same(request.cookies.get(self._cookie), self._session):
            return PlainTextResponse(_NO_ENTRY, 403)
        return None


def _same(given: str | None, secret: str) -> bool:
    return given is not None and compare_digest(given.encode(), secret.encode())
