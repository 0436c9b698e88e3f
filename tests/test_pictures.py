"""The pictures of the README show what the commands print, and fetch nothing."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

from PIL import Image

from tests import pictures
from tests.browser import Visit, running_browser


def words(svg: str) -> str:
    """The text of a picture with plain spaces and without seconds."""
    text = " ".join("".join(each.itertext()) for each in ET.fromstring(svg).iter() if each.text)
    return re.sub(r"\b[\d.]+ s\b", "N s", " ".join(text.replace("\xa0", " ").split()))


def test_the_terminal_shows_what_the_command_prints_today() -> None:
    kept = words((pictures.DOCS / "terminal.svg").read_text("utf-8"))
    assert kept == words(pictures.terminal_picture()), "run python -m tests.pictures"
    for part in (f'$ art-e ask "{pictures.QUESTION}"', " search ", " read ", " answer "):
        assert part in kept
    assert "3 turns, N s, no cost, offline" in kept
    for name in ("report.png", "terminal.svg"):
        assert 1_000 < (pictures.DOCS / name).stat().st_size < 300_000


def test_a_browser_draws_it_and_fetches_nothing() -> None:
    file = pictures.DOCS / "terminal.svg"
    assert "@font-face" not in file.read_text("utf-8")
    with running_browser() as browser:
        visit = Visit(browser)
        visit.open(file)
        assert visit.fetched == [] and visit.complaints == []
        visit.close()


def test_the_screenshot_of_a_report_shows_its_charts(tmp_path: Path) -> None:
    page, taken = tmp_path / "report.html", tmp_path / "report.png"
    page.write_text("<h1>Top</h1><p style='height:3000px'></p><h2 id='charts'>Charts</h2>", "utf-8")
    taken.write_bytes(pictures.screenshot(page))
    with Image.open(taken) as picture:
        assert picture.size == (pictures.PAGE_WIDTH, pictures.PAGE_HEIGHT)
        assert len(picture.getcolors() or ()) > 1
