"""The viewer's list in a real browser: filters, search, order, pages, keys, links."""

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.evals.report.conftest import Visitor
from tests.evals.report.viewer_page import column, mixed, opened, rows, write_page
from tests.evals.runs import OUTCOMES, episode, question


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(tmp_path_factory.mktemp("viewer") / "page.html", mixed())


def test_filters_narrow_the_list_and_count_what_is_left(visit: Visitor, page_file: Path) -> None:
    page = visit().open(page_file)
    everything = len(mixed())
    expect(rows(page)).to_have_count(everything)

    page.get_by_label("Model").select_option("openai/weak")
    expect(rows(page)).to_have_count(len(OUTCOMES))
    page.get_by_label("Verdict").select_option("wrong")
    expect(rows(page)).to_have_count(3)
    expect(page.locator("#viewer-count")).to_have_text(f"3 of {everything} episodes: 3 wrong")
    page.get_by_label("Ended at").select_option("not found")
    expect(rows(page)).to_have_count(1)
    page.get_by_role("button", name="Clear").click()
    expect(rows(page)).to_have_count(everything)

    page.get_by_label("Kind").select_option("unanswerable")
    assert set(column(page, "Kind")) == {"unanswerable"}
    page.get_by_role("button", name="Clear").click()
    page.get_by_label("Step").select_option("20")
    assert column(page, "Step") == ["20"] * 4
    page.get_by_role("button", name="Clear").click()
    page.get_by_label("Run").select_option("r")
    assert set(column(page, "Model")) == {"trained"}


def test_a_range_of_rewards_leaves_out_what_has_none(visit: Visitor, page_file: Path) -> None:
    page = visit().open(page_file)
    page.get_by_label("Reward from").fill("0.3")
    assert set(column(page, "Reward")) == {"0.40"}
    page.get_by_label("Reward to").fill("0.35")
    expect(rows(page)).to_have_count(0)
    page.get_by_label("Reward from").fill("")
    assert set(column(page, "Reward")) == {"0.15"}


def test_text_is_searched_in_question_answer_and_messages(visit: Visitor, page_file: Path) -> None:
    page = visit().open(page_file, "run=one")
    search = page.get_by_label("Search")
    for words, found in (
        ('"WAREHOUSE 3 end"', 2),  # the question, in any case
        ('"end warehouse 3"', 0),
        ("end? lookup-no-such-word", 0),
        ('"the first hit looks right"', 2 * len(OUTCOMES)),  # the model's words
        ('"lease ends. on may 4" "WAREHOUSE"', 2),  # a mail's body, and the question
        ("december", 4),  # an answer: three wrong, one not judged
        ("unparseable december", 1),  # the judge's reason
    ):
        search.fill(words)
        expect(rows(page), words).to_have_count(found)


def test_a_click_or_enter_on_a_column_sorts_by_it(visit: Visitor, page_file: Path) -> None:
    page = visit().open(page_file)
    seconds = page.get_by_role("columnheader", name="Seconds")
    assert seconds.get_attribute("aria-sort") == "none"
    seconds.get_by_role("button").click()
    expect(seconds).to_have_attribute("aria-sort", "ascending")
    values = [float(each) for each in column(page, "Seconds")]
    assert values == sorted(values)
    page.keyboard.press("Enter")  # the button has the focus still
    expect(seconds).to_have_attribute("aria-sort", "descending")
    values = [float(each) for each in column(page, "Seconds")]
    assert values == sorted(values, reverse=True)


def test_what_has_no_value_is_sorted_last_both_ways(visit: Visitor, page_file: Path) -> None:
    page = visit().open(page_file)
    button = page.get_by_role("columnheader", name="Cost").get_by_role("button")
    for _ in range(2):
        button.click()
        assert column(page, "Cost")[-len(OUTCOMES) :] == ["–"] * len(OUTCOMES)


def test_a_question_s_link_lists_its_episodes(visit: Visitor, page_file: Path) -> None:
    page = visit().open(page_file, "question=q1")
    expect(rows(page)).to_have_count(4)
    page.get_by_role("button", name="question q1").click()
    expect(rows(page)).to_have_count(len(mixed()))


def test_the_keyboard_does_it_all(visit: Visitor, page_file: Path) -> None:
    page = visit().open(page_file)
    keys = page.keyboard
    keys.press("j")
    keys.press("j")
    keys.press("ArrowDown")
    keys.press("k")
    keys.press("Enter")
    title = page.locator("#viewer-detail-title")
    expect(title).to_have_text(f"Episode 2 of {len(mixed())}")
    keys.press("j")
    keys.press("ArrowRight")
    keys.press("ArrowLeft")
    expect(title).to_have_text(f"Episode 3 of {len(mixed())}")
    keys.press("Escape")
    expect(opened(page)).to_have_count(0)
    expect(rows(page).nth(2).locator("a")).to_be_focused()
    keys.press("/")
    expect(page.get_by_label("Search")).to_be_focused()
    keys.type("jk/")
    expect(page.get_by_label("Search")).to_have_value("jk/")


def test_next_and_previous_end_with_the_list(visit: Visitor, page_file: Path) -> None:
    page = visit().open(page_file, "model=openai/weak&episode=openai/weak-q0-0")
    title = page.locator("#viewer-detail-title")
    expect(page.get_by_role("button", name="Previous episode")).to_be_disabled()
    page.keyboard.press("k")
    expect(title).to_have_text(f"Episode 1 of {len(OUTCOMES)}")
    for _ in range(len(OUTCOMES) + 2):
        page.keyboard.press("j")
    expect(title).to_have_text(f"Episode {len(OUTCOMES)} of {len(OUTCOMES)}")
    expect(page.get_by_role("button", name="Next episode")).to_be_disabled()


def test_the_address_keeps_the_view_and_back_leads_back(visit: Visitor, page_file: Path) -> None:
    page = visit().open(page_file)
    page.get_by_label("Model").select_option("local:a,b+c")
    page.get_by_label("Search").fill('lease "100 %" & more')
    page.get_by_label("Search").fill("lease")
    page.get_by_role("columnheader", name="Seconds").get_by_role("button").click()
    rows(page).nth(1).click()
    expect(opened(page)).to_have_count(1)
    address = page.url
    page.go_back()
    expect(opened(page)).to_have_count(0)
    expect(rows(page)).to_have_count(len(OUTCOMES))
    page.go_forward()
    expect(opened(page)).to_have_count(1)

    again = visit().page
    again.goto(address)
    expect(opened(again)).to_have_attribute("data-episode", "local:a,b+c-q1-0")
    expect(again.locator("#viewer-detail-title")).to_have_text(f"Episode 2 of {len(OUTCOMES)}")
    again.keyboard.press("Escape")
    expect(again.get_by_label("Search")).to_have_value("lease")
    expect(again.get_by_label("Model")).to_have_value("local:a,b+c")


def test_a_link_to_what_is_not_there_says_so(visit: Visitor, page_file: Path) -> None:
    page = visit().open(page_file, "episode=%3Cb%3Egone%&sort=constructor&page=999")
    expect(page.locator("#viewer-count")).to_contain_text("There is no episode %3Cb%3Egone%")
    expect(rows(page)).to_have_count(len(mixed()))


def test_other_places_of_the_page_leave_the_viewer_as_it_is(
    visit: Visitor, page_file: Path
) -> None:
    page = visit().open(page_file, "model=trained")
    count = rows(page).count()
    page.get_by_role("link", name="alarms").click()
    assert page.url.endswith("#alarms")
    expect(rows(page)).to_have_count(count)


def test_long_lists_have_pages(visit: Visitor, tmp_path: Path) -> None:
    many = [episode(question(number), "right") for number in range(120)]
    page = visit().open(write_page(tmp_path / "page.html", many))
    pages = page.get_by_role("navigation", name="Pages of the list")
    expect(rows(page)).to_have_count(50)
    expect(pages).to_contain_text("1 to 50 of 120")
    pages.get_by_role("button", name="Next page").click()
    pages.get_by_role("button", name="Next page").click()
    expect(rows(page)).to_have_count(20)
    expect(pages.get_by_role("button", name="Next page")).to_be_disabled()
    page.go_back()
    expect(pages).to_contain_text("51 to 100 of 120")
    rows(page).last.click()
    expect(opened(page)).to_have_count(1)
    page.keyboard.press("j")  # the next is on the next page
    page.keyboard.press("Escape")
    expect(pages).to_contain_text("101 to 120 of 120")
    expect(rows(page).first.locator("a")).to_be_focused()
    page.get_by_label("Search").fill('"warehouse 7 end"')
    expect(rows(page)).to_have_count(1)
    expect(pages).to_be_hidden()


def test_two_thousand_episodes_are_filtered_and_searched(visit: Visitor, tmp_path: Path) -> None:
    many = [
        episode(question(number), "right" if number % 4 else "wrong", model=model)
        for model in ("a", "b")
        for number in range(1000)
    ]
    page = visit().open(write_page(tmp_path / "page.html", many))
    count = page.locator("#viewer-count")
    expect(count).to_contain_text("2,000 of 2,000 episodes: 1,500 right, 500 wrong")
    page.get_by_label("Verdict").select_option("wrong")
    page.get_by_label("Search").fill('"warehouse 400 end"')
    expect(count).to_contain_text("2 of 2,000 episodes: 2 wrong")


def test_a_report_without_episodes_says_so(visit: Visitor, tmp_path: Path) -> None:
    page = visit().open(write_page(tmp_path / "page.html", []))
    expect(page.locator("#viewer-count")).to_have_text("0 of 0 episodes")
    page.keyboard.press("j")
    page.get_by_label("Search").fill("x")
    expect(page.locator("#viewer-count")).to_have_text("0 of 0 episodes")
