"""A real browser for pages on disk and on this machine: the system's Chromium and Playwright.

`CHROMIUM` in the environment names another executable."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome")
# Tests run as root in containers, where a sandbox is impossible.
_ARGUMENTS = """--no-sandbox --disable-gpu --disable-dev-shm-usage --disable-background-networking
    --disable-component-update --disable-default-apps --disable-extensions --disable-sync
    --no-first-run --mute-audio --force-color-profile=srgb""".split()


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Start a headless browser; skip the test without Chromium.

    Playwright's event loop belongs to this thread until the block ends: it can't call
    `asyncio.run`.
    """
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        pytest.skip("no Chromium: apt-get install chromium, or set CHROMIUM=/path/to/it")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, headless=True, args=_ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """A browser window: a page, the complaints of its console, and the addresses it fetched.

    `complaints` are console errors and warnings, uncaught exceptions and refusals by the page's
    security policy; `fetched` leaves out the page itself and data: URLs. Only with `loopback` may
    the page fetch from servers on this machine.
    """

    def __init__(
        self, browser: Browser, *, width: int = 1280, height: int = 900, dark: bool = False,
        loopback: bool = False,
    ) -> None:  # fmt: skip
        self._context = browser.new_context(
            viewport={"width": width, "height": height}, reduced_motion="reduce",
            color_scheme="dark" if dark else "light", offline=not loopback,
        )  # fmt: skip
        self._context.route(
            lambda url: not url.startswith(("http://127.0.0.1:", "file:", "data:")),
            lambda route: route.abort(),
        )
        self._context.set_default_timeout(60_000)
        self.page: Page = self._context.new_page()
        self.complaints: list[str] = []
        self.fetched: list[str] = []
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", self._note)

    def open(self, file: Path, fragment: str = "") -> Page:
        """Load a file on disk; `fragment` follows the "#"."""
        self.page.goto(file.resolve().as_uri() + (f"#{fragment}" if fragment else ""))
        return self.page

    def close(self) -> None:
        self._context.close()

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def _note(self, request: Request) -> None:
        if not request.is_navigation_request() and not request.url.startswith("data:"):
            self.fetched.append(request.url)


_CONTRASTS = Path(__file__).with_name("data").joinpath("contrasts.js").read_text("utf-8")
# WCAG 2.2, success criterion 1.4.3 (AA).
_LEAST_CONTRAST = 4.5


def pale_texts(page: Page) -> list[tuple[float, str]]:
    """Return the visible texts with too little contrast, each with its contrast ratio."""
    contrasts = page.evaluate(_CONTRASTS)
    assert len(contrasts) > 5
    return [(ratio, text) for ratio, text in contrasts if ratio < _LEAST_CONTRAST]
