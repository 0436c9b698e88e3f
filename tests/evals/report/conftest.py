"""Browser windows for the tests of the report page."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser

from tests.browser import Visit, running_browser

# visit(width=390, dark=True) opens a window; the options are those of `Visit`.
Visitor = Callable[..., Visit]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for the tests of a module."""
    with running_browser() as running:
        yield running


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visitor]:
    """Opens windows; none of them may have complained, or fetched anything, by the test's end."""
    visits: list[Visit] = []

    def opened(**options: object) -> Visit:
        visits.append(Visit(browser, **options))  # type: ignore[arg-type]
        return visits[-1]

    yield opened
    for each in visits:
        each.close()
    assert [each.complaints for each in visits] == [[] for _ in visits]
    assert [each.fetched for each in visits] == [[] for _ in visits]
