"""The pictures of the README are what the commands show, and fetch nothing."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from PIL import Image

from tests import pictures
from tests.browser import Visit, chromium, running_browser

# Of a picture in the README, in bytes.
LARGEST = 300_000


def words(svg: str) -> str:
    """The text of a picture, as it is read: spaces that break, no seconds."""
    text = " ".join("".join(each.itertext()) for each in ET.fromstring(svg).iter() if each.text)
    return re.sub(r"\b[\d.]+ s\b", "N s", " ".join(text.replace("\xa0", " ").split()))


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("asked")
    pictures.make_world(folder)
    return pictures.terminal_picture(folder)


def test_the_terminal_shows_what_the_command_prints_today(drawn: str) -> None:
    kept = (pictures.DOCS / "terminal.svg").read_text("utf-8")
    assert words(kept) == words(drawn), "docs/terminal.svg is behind: python -m tests.pictures"


def test_it_holds_the_question_each_call_and_the_answer(drawn: str) -> None:
    said = words(drawn)
    assert f'$ art-e ask "{pictures.QUESTION}"' in said
    for called in ("search", "read", "answer"):
        assert f" {called} " in said
    assert "3 turns, N s, no cost, offline" in said


def test_the_readme_asks_the_same_question() -> None:
    readme = (pictures.DOCS.parent / "README.md").read_text("utf-8")
    joined = re.sub(r"\s*\\\n\s*", " ", readme)
    assert f'ask "{pictures.QUESTION}" {" ".join(pictures.ASKED[3:])}' in joined
    assert f"art-e ingest {pictures.WORLD} --db world.duckdb" in joined


def test_a_browser_draws_it_and_fetches_nothing(tmp_path: Path, drawn: str) -> None:
    chromium()
    assert "@font-face" not in drawn
    file = tmp_path / "terminal.svg"
    file.write_text(drawn, encoding="utf-8")
    with running_browser() as browser:
        visit = Visit(browser)
        visit.open(file)
        assert visit.fetched == [] and visit.complaints == []
        visit.close()


def test_a_report_is_drawn_small(tmp_path: Path) -> None:
    chromium()
    page = tmp_path / "report.html"
    page.write_text("<h1>Top</h1><p style='height:3000px'></p><h2 id='charts'>Charts</h2>", "utf-8")
    taken = tmp_path / "report.png"
    taken.write_bytes(pictures.screenshot(page, "charts"))
    with Image.open(taken) as picture:
        assert picture.size == (pictures.PAGE_WIDTH, pictures.PAGE_HEIGHT)
        assert len(picture.getcolors() or ()) > 1


@pytest.mark.parametrize("name", ["report.png", "terminal.svg"])
def test_pictures_are_small(name: str) -> None:
    assert 1_000 < (pictures.DOCS / name).stat().st_size < LARGEST


def test_a_report_that_is_not_there_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        pictures.main(["--report", "nowhere.html"])
    assert ended.value.code == 2
    assert "art-e eval report" in capsys.readouterr().err
