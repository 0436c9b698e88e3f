"""A real browser for pages that are opened from disk: Debian's Chromium, driven by Playwright.

Nothing is downloaded: Playwright drives the browser that the system has.
`CHROMIUM` in the environment names another executable.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_ARGUMENTS = (
    "--no-sandbox",  # tests run as root in containers
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
    "--mute-audio",
    "--force-color-profile=srgb",
)


def chromium() -> str:
    """The path of the browser; the test is skipped where there is none."""
    found = chromium_path()
    if found is None:
        pytest.skip("no Chromium here: apt-get install chromium, or CHROMIUM=/path/to/it")
    return found


def chromium_path() -> str | None:
    """The path of the browser; None where there is none."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)


@contextmanager
def running_browser() -> Iterator[Browser]:
    """A headless browser that is closed with the block.

    Playwright's event loop belongs to this thread until then: the block can't call
    `asyncio.run`.
    """
    path = chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, headless=True, args=list(_ARGUMENTS)
        )
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """One visitor's browser window: a page, what its console complained of, what it fetched.

    `complaints` are console errors and warnings, uncaught exceptions and refusals by the
    page's own policy; `fetched` are the addresses of everything that was asked for, the page
    itself and its data: URLs left out.
    """

    def __init__(
        self, browser: Browser, *, width: int = 1280, height: int = 900, dark: bool = False
    ) -> None:
        self._context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
            offline=True,
        )
        self._context.set_default_timeout(10_000)
        self.page: Page = self._context.new_page()
        self.complaints: list[str] = []
        self.fetched: list[str] = []
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", self._note)

    def open(self, file: Path, fragment: str = "") -> Page:
        """The page of a file on disk, loaded; `fragment` is what follows the "#"."""
        self.page.goto(file.resolve().as_uri() + (f"#{fragment}" if fragment else ""))
        return self.page

    def close(self) -> None:
        """Close the window."""
        self._context.close()

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def _note(self, request: Request) -> None:
        if not request.is_navigation_request() and not request.url.startswith("data:"):
            self.fetched.append(request.url)
