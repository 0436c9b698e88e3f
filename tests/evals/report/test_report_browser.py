"""The page as a reader meets it: in a real browser, wide and narrow, light and dark."""

from pathlib import Path

import pytest
from playwright.sync_api import Page

from evals.report.build import build_report
from tests.evals.report.conftest import Visitor
from tests.evals.runs import episode, episodes, question, step, trained, validation, write_run

# A model's name that would do something, were it markup, and a word with nowhere to break.
HOSTILE = "<img src=x onerror=\"document.title='owned'\">" + "w" * 60
WIDTHS = (1280, 768, 390, 360)
OVERFLOWING = """() => [...document.querySelectorAll('main *, .top *')]
    .filter((each) => each.getBoundingClientRect().right > innerWidth + 1)
    .filter((each) => !each.closest('.scroll, .v-scroll, nav, svg, thead, dialog'))
    .map((each) => each.outerHTML.slice(0, 80))"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models and a hostile one on the same questions, and a training run."""
    folder = tmp_path_factory.mktemp("report")
    asked = [question(number) for number in range(30)]
    strong = episodes("openai/o3", {"right": 24, "wrong": 2, "abstained": 4}, cost=0.03)
    weak = episodes("gemini/gemini-2.5-flash", {"right": 12, "not found": 12, "lost": 6})
    hostile = [
        episode(each, "wrong", model=HOSTILE, final_answer=f"{HOSTILE} {each.id}") for each in asked
    ]
    runs = [
        write_run(folder / "baselines", [*strong, *weak, *hostile]),
        trained(folder / "training", [step(1), step(2)], [validation(0), validation(2)]),
    ]
    return build_report(runs, folder / "out")[0]


def back(page: Page) -> str:
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))


def fill(page: Page) -> str:
    """The colour that the first series is drawn in."""
    path = '.charts svg path[style*="var(--series-1)"]'
    return str(page.locator(path).first.evaluate("(each) => getComputedStyle(each).fill"))


def test_the_figures_are_there_and_the_published_ones_are_marked(
    report: Path, visit: Visitor
) -> None:
    page = visit().open(report)
    rows = page.locator("#figures .figures").first.locator("tbody tr")
    assert rows.nth(0).locator("th").inner_text() == "openai/o3"
    assert "n=24" in rows.nth(0).locator("td").first.inner_text()
    published = rows.filter(has=page.locator(".tag", has_text="published"))
    assert published.count() == 6
    assert page.locator("tr.published").count() == 6


def test_it_follows_the_reader_s_colours_and_the_button_changes_them(
    report: Path, visit: Visitor
) -> None:
    light, dark = (visit(dark=each).open(report) for each in (False, True))
    assert back(light) != back(dark)
    assert fill(light) != fill(dark)
    light.click("#theme")
    assert (back(light), fill(light)) == (back(dark), fill(dark))
    light.reload()
    assert back(light) == back(dark)
    light.click("#theme")
    assert back(light) != back(dark)


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_runs_out_of_the_page(report: Path, visit: Visitor, width: int) -> None:
    page = visit(width=width).open(report)
    assert page.evaluate(OVERFLOWING) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", WIDTHS)
def test_charts_can_be_read_at_any_width(report: Path, visit: Visitor, width: int) -> None:
    page = visit(width=width).open(report)
    assert page.locator(".charts svg").count() == 16
    sizes = page.evaluate(
        "[...document.querySelectorAll('.charts svg text')].map((each) =>"
        " parseFloat(getComputedStyle(each).fontSize) * each.getCTM().a)"
    )
    assert min(sizes) > 8  # CSS pixels


def test_on_a_phone_a_figure_stands_beside_its_name(report: Path, visit: Visitor) -> None:
    page = visit(width=390).open(report)
    cell = page.locator("#figures td").first
    name = cell.evaluate("(each) => getComputedStyle(each, '::before').content")
    assert name == '"Accuracy"'
    box = cell.bounding_box()
    assert box is not None
    assert box["width"] > 300


def test_a_model_s_name_is_only_text(report: Path, visit: Visitor) -> None:
    page = visit().open(report)
    assert page.locator("img").count() == 0
    assert "owned" not in page.title().replace(HOSTILE, "")
    tables = page.locator("#figures table")
    assert tables.first.locator("th", has_text=HOSTILE).count() == 1


def test_the_policy_stops_a_script_that_got_in(
    report: Path, tmp_path: Path, visit: Visitor
) -> None:
    text = report.read_text("utf-8")
    planted = tmp_path / "planted.html"
    script = "<script>document.title = 'owned'</script>"
    image = "<img src=x onerror=\"document.title = 'owned'\">"
    planted.write_text(text.replace("</main>", f"{script}{image}</main>"), encoding="utf-8")
    visited = visit()
    page = visited.open(planted)
    page.wait_for_function("document.readyState === 'complete'")
    assert page.title() != "owned"
    refused = [each for each in visited.complaints if "Content Security Policy" in each]
    assert len(refused) >= 2
    visited.complaints.clear()  # all that this window's end would complain of
    visited.fetched.clear()


def test_a_flipped_question_opens_both_answers(report: Path, visit: Visitor) -> None:
    page = visit().open(report)
    pair = page.locator("#pairs details").first
    pair.locator("summary").click()
    pair.locator("a").first.click()
    detail = page.locator("#viewer-detail")
    detail.wait_for(state="visible")
    text = detail.inner_text()
    assert "openai/o3" in text
    assert "gemini/gemini-2.5-flash" in text


def test_the_parts_can_be_jumped_to(report: Path, visit: Visitor) -> None:
    page = visit(height=600).open(report)
    page.click("nav a[href='#funnel']")
    box = page.locator("#funnel h2").bounding_box()
    assert box is not None
    assert 0 < box["y"] < 200
    assert not page.locator("#viewer-detail").is_visible()


def test_on_paper_there_are_the_figures_without_the_viewer(report: Path, visit: Visitor) -> None:
    page = visit(dark=True).open(report)
    page.emulate_media(media="print")
    assert page.locator("#viewer").is_hidden()
    assert page.locator("nav").first.is_hidden()
    assert back(page) == "rgb(255, 255, 255)"
    assert page.locator("#figures table").first.is_visible()
