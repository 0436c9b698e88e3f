"""The report and its viewer in a real browser."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from art_e.trajectory import Trajectory
from evals.report.build import build_report
from tests.browser import Visit, pale_texts
from tests.builders import answer, call, message, once, read, search
from tests.evals import runs

# Text that would run, fetch or break out if it were taken for markup.
HOSTILE = (
    "<script>window.pwned = 1</script><img src=http://evil.example/x onerror='window.pwned = 1'>"
    "</script></textarea>--><svg onload=alert(1)>\u2028window.pwned = 1\ud800 \u202egnp.exe"
)
# A model's name that would act as markup, with a word that can't be broken.
NAME = "<img src=x onerror=\"document.title='owned'\">" + "w" * 60
OVERFLOWING = """() => [...document.querySelectorAll('main *, .top *')]
    .filter((each) => each.getBoundingClientRect().right > innerWidth + 1)
    .filter((each) => !each.closest('.scroll, .v-scroll, nav, svg, thead, dialog'))
    .map((each) => each.outerHTML.slice(0, 80))"""
UNFOLD = "document.querySelectorAll('details').forEach((each) => { each.open = true; })"
# Opens a window with the options of `Visit`.
Visitor = Callable[..., Visit]


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visitor]:
    """Open windows; at the end, fail if one has logged an error or fetched anything."""
    visits: list[Visit] = []

    def open_window(**options: Any) -> Visit:
        visits.append(Visit(browser, **options))
        return visits[-1]

    yield open_window
    for window in visits:
        window.close()
    assert [each.complaints for each in visits] == [[] for _ in visits]
    assert [each.fetched for each in visits] == [[] for _ in visits]


def write_page(folder: Path, trajectories: list[Trajectory]) -> Path:
    # The configuration can't hold model names with a lone surrogate.
    run = runs.write_run(folder / "run", trajectories, models=["m"], concurrency={})
    return build_report([run], folder)[0]


@pytest.fixture(scope="module")
def report(shared: Path) -> Path:
    return once(shared / "browsed", write_report) / "out" / "report.html"


def write_report(folder: Path) -> None:
    """Report on two models and a hostile one on the same questions, and on a training run."""
    strong = runs.episodes("openai/o3", {"right": 24, "wrong": 2, "abstained": 4}, cost=0.03)
    weak = runs.episodes("gemini/gemini-2.5-flash", {"right": 12, "not found": 12, "lost": 6})
    hostile = [
        runs.episode(runs.question(number), "wrong", model=NAME, final_answer=f"{NAME} {number}")
        for number in range(30)
    ]
    baselines = runs.write_run(folder / "baselines", [*strong, *weak, *hostile])
    steps, validations = [runs.step(1), runs.step(2)], [runs.validation(0), runs.validation(2)]
    curves = runs.trained(folder / "training", steps, validations)
    build_report([baselines, curves], folder / "out")


# A model with all outcomes, one that is always right, and a training run.
EACH = dict.fromkeys(runs.OUTCOMES, 1)
RIGHT: dict[str, Any] = {"outcome": "right", "model": "local:a,b+c", "run_id": "one"}
MIXED = runs.episodes("openai/weak", EACH, second=False, run_id="one", cost=None)
MIXED += [runs.episode(runs.question(n), **RIGHT, seconds=n + 3) for n in range(len(EACH))]
MIXED += runs.training([0, 20], model="trained", n=4)


@pytest.fixture(scope="module")
def viewer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(tmp_path_factory.mktemp("viewer"), MIXED)


def rows(page: Page) -> Locator:
    return page.locator("#viewer-list tbody tr")


def column(page: Page, title: str) -> list[str]:
    return rows(page).locator(f"td[data-label='{title}']").all_inner_texts()


def opened(page: Page) -> Locator:
    return page.locator("#viewer-detail[open] article")


def test_page_has_figures_published_rows_flips_and_links(report: Path, visit: Visitor) -> None:
    page = visit(height=600).open(report)
    models = page.locator("#figures .figures").first.locator("tbody tr")
    assert models.nth(0).locator("th").inner_text() == "openai/o3"
    assert "n=24" in models.nth(0).locator("td").first.inner_text()
    assert page.locator("tr.published").count() == 7
    # A model's name is plain text.
    assert page.locator("#figures table").first.locator("th", has_text=NAME).count() == 1
    assert page.locator("img").count() == 0
    assert "owned" not in page.title().replace(NAME, "")
    page.click("nav a[href='#funnel']")
    box = page.locator("#funnel h2").bounding_box()
    assert box is not None and 0 < box["y"] < 200
    # A flipped question opens both answers.
    pair = page.locator("#pairs details").first
    pair.locator("summary").click()
    pair.locator("a").first.click()
    expect(opened(page)).to_have_count(2)
    for model in ("openai/o3", "gemini/gemini-2.5-flash"):
        expect(page.locator("#viewer-detail")).to_contain_text(model)


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (360, True)])
def test_everything_is_readable(report: Path, visit: Visitor, width: int, dark: bool) -> None:
    page = visit(width=width, dark=dark).open(report)
    page.evaluate(UNFOLD)
    assert page.evaluate(OVERFLOWING) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(".charts svg").count() == 17
    sizes = page.evaluate(
        "[...document.querySelectorAll('.charts svg text')].map((each) =>"
        " parseFloat(getComputedStyle(each).fontSize) * each.getCTM().a)"
    )
    assert min(sizes) > 8  # CSS pixels
    assert pale_texts(page) == []
    rows(page).first.click()
    expect(opened(page)).to_have_count(1)
    page.evaluate(UNFOLD)
    assert pale_texts(page) == []


def test_page_works_with_the_keyboard_alone(visit: Visitor, viewer: Path) -> None:
    page = visit().open(viewer)

    def tab_to(what: Locator) -> None:
        for _ in range(60):
            if what.evaluate("(node) => node === document.activeElement"):
                return
            page.keyboard.press("Tab")
        raise AssertionError(f"Tab does not lead to {what}")

    tab_to(page.get_by_role("button", name="Light / dark"))
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.keyboard.press("Enter")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    tab_to(page.locator("#figures summary"))
    page.keyboard.press("Space")
    expect(page.locator("#figures details")).to_have_attribute("open", "")
    tab_to(page.get_by_label("Search"))
    page.keyboard.type("lease")
    tab_to(rows(page).first.locator("a"))
    page.keyboard.press("Enter")
    expect(opened(page)).to_have_count(1)
    page.keyboard.press("Escape")
    expect(opened(page)).to_have_count(0)


def test_filters_narrow_the_list_and_columns_sort_it(visit: Visitor, viewer: Path) -> None:
    page = visit().open(viewer)

    def clear() -> None:
        page.get_by_role("button", name="Clear").click()
        expect(rows(page)).to_have_count(len(MIXED))

    expect(rows(page)).to_have_count(len(MIXED))
    page.get_by_label("Model").select_option("openai/weak")
    expect(rows(page)).to_have_count(len(runs.OUTCOMES))
    page.get_by_label("Verdict").select_option("wrong")
    expect(page.locator("#viewer-count")).to_have_text(f"3 of {len(MIXED)} episodes: 3 wrong")
    page.get_by_label("Ended at").select_option("not found")
    expect(rows(page)).to_have_count(1)
    clear()
    for label, option in (("Kind", "unanswerable"), ("Step", "20")):
        page.locator("#viewer").get_by_label(label).select_option(option)
        assert set(column(page, label)) == {option}
        clear()
    seconds = page.get_by_role("columnheader", name="Seconds")
    for order in ("ascending", "descending"):
        seconds.get_by_role("button").click()
        expect(seconds).to_have_attribute("aria-sort", order)
        values = [float(each) for each in column(page, "Seconds")]
        assert values == sorted(values, reverse=order == "descending")
    # A range of rewards excludes episodes without one.
    page.get_by_label("Reward from").fill("0.3")
    assert set(column(page, "Reward")) == {"0.40"}
    clear()
    for words, count in (
        ('"the first hit looks right"', len(MIXED)),  # the model's words
        ('"lease ends. on may 4" "WAREHOUSE"', 4),  # a mail's body, and the question
        ("unparseable december", 1),  # the judge's reason, and the answer
    ):
        page.get_by_label("Search").fill(words)
        expect(rows(page), words).to_have_count(count)


def test_address_and_history_keep_the_view(visit: Visitor, viewer: Path) -> None:
    page = visit().open(viewer)
    page.get_by_label("Model").select_option("local:a,b+c")
    page.get_by_label("Search").fill("lease")
    page.get_by_role("columnheader", name="Seconds").get_by_role("button").click()
    rows(page).nth(1).click()
    expect(opened(page)).to_have_count(1)
    address = page.url
    page.go_back()
    expect(opened(page)).to_have_count(0)
    expect(rows(page)).to_have_count(len(runs.OUTCOMES))
    page.go_forward()
    expect(opened(page)).to_have_count(1)
    again = visit().page
    again.goto(address)
    expect(opened(again)).to_have_attribute("data-episode", "local:a,b+c-q1-0")
    expect(again.locator("#viewer-detail-title")).to_have_text(f"Episode 2 of {len(runs.OUTCOMES)}")
    again.keyboard.press("Escape")
    expect(again.get_by_label("Search")).to_have_value("lease")
    expect(again.get_by_label("Model")).to_have_value("local:a,b+c")


def test_episode_opens_as_a_conversation(visit: Visitor, viewer: Path) -> None:
    page = visit().open(viewer)
    rows(page).first.click()
    article = opened(page)
    for text in (
        "openai/weak", "When does the lease of warehouse 0 end?", "agrees with the gold answer",
        "contradicts the gold answer", "search warehouse lease", "Lease, part 2",
        "The first hit looks right.", "The lease ends. On May 1.", "✓ found", "✓ read", "✓ cited",
        "1,000 in, 100 out", "3 of 10",
    ):  # fmt: skip
        expect(article).to_contain_text(text)
    expect(article.locator(".v-turn")).to_have_count(3)
    prompt = article.get_by_text("You answer questions about")
    expect(prompt).to_be_hidden()
    article.get_by_text("System prompt").click()
    expect(prompt).to_be_visible()
    page = visit().open(viewer, "episode=trained-q0-0-20")
    expect(opened(page).locator(".v-components")).to_have_text("correctness +0.5effort -0.1")
    expect(opened(page).locator("header")).to_contain_text("step 20")


def test_hostile_text_stays_text(visit: Visitor, tmp_path: Path) -> None:
    def observed(**fields: Any) -> dict[str, Any]:
        return {"role": "tool", "content": json.dumps(fields)}

    # A lone surrogate is rejected in a question, but not in the texts of models and mails.
    text = HOSTILE.replace("\ud800", "")
    item = runs.question(0, question=text, answer=text, id=text, inbox_address=text)
    other = runs.episode(item, "wrong", model=HOSTILE, repeat=1)
    head = dict.fromkeys(("from", "subject", "date", "snippet"), HOSTILE)
    messages = [
        {"role": "system", "content": HOSTILE},
        message(read("m1"), search(HOSTILE), text=HOSTILE).to_chat(),
        observed(message_id="m1", to=[HOSTILE], body=HOSTILE + "x" * 1_000_000, **head),
        observed(hits=[{"message_id": HOSTILE, "missing": [HOSTILE], **head}]),
        message(answer(HOSTILE, HOSTILE), call(HOSTILE, {HOSTILE: HOSTILE})).to_chat(),
        {"role": "tool", "content": HOSTILE},
    ]
    fields: dict[str, Any] = {
        **dict.fromkeys(("model", "run_id", "episode_id", "final_answer"), HOSTILE),
        "error": {"kind": HOSTILE, "message": HOSTILE},
        "verdict": {"correct": False, "grounded": None, "judge": HOSTILE, "reason": HOSTILE},
        "reward": {HOSTILE: 1.0},
        "policy": {HOSTILE: HOSTILE},
    }
    hostile = runs.episode(item, "wrong", messages=messages, **fields)
    page = visit().open(write_page(tmp_path, [hostile, other]))
    page.get_by_label("Search").fill("window.pwned <script>")
    expect(rows(page)).to_have_count(2)
    rows(page).first.locator("a").click()
    expect(opened(page)).to_have_count(1)
    for summary in opened(page).locator("summary").all():
        summary.click()
    words = opened(page).inner_text()
    assert words.count("<script>window.pwned = 1</script><img src=") > 15
    assert "[U+202E]gnp.exe" in words
    page.get_by_label("Compare with").select_option(index=1)
    expect(opened(page)).to_have_count(2)
    assert page.evaluate("window.pwned === undefined")
    assert page.locator(".viewer :is(script, img, svg, textarea)").count() == 0
