"""Episodes that the viewer opens in a real browser: one, two beside each other, hostile ones."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests import builders as said
from tests.evals.report.conftest import Visitor
from tests.evals.report.viewer_page import mixed, opened, rows, write_page
from tests.evals.runs import episode, question

# Each would run, fetch or break out of its place if anything took it for markup.
HOSTILE = (
    "<script>window.pwned = 1</script><img src=http://evil.example/x onerror='window.pwned = 1'>"
    "</script></textarea>--><svg onload=alert(1)>\u2028window.pwned = 1\ud800 \u202egnp.exe"
)


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(tmp_path_factory.mktemp("viewer") / "page.html", mixed())


def test_an_episode_opens_as_a_conversation(visit: Visitor, page_file: Path) -> None:
    page = visit().open(page_file)
    rows(page).first.click()
    shown = opened(page)
    for text in (
        "openai/weak",
        "When does the lease of warehouse 0 end?",
        "agrees with the gold answer",
        "contradicts the gold answer",  # the second judge
        "search warehouse lease",
        "Lease, part 2",
        "The first hit looks right.",
        "The lease ends. On May 1.",
        "✓ found",
        "✓ read",
        "✓ cited",
        "gold, found",
        "gold, read",
        "gold, cited",
        "1,000 in, 100 out",
        "3 of 10",
    ):
        expect(shown).to_contain_text(text)
    expect(shown.locator(".v-turn")).to_have_count(3)
    expect(shown.locator(".v-answers")).to_have_text(
        re.compile(r"Gold answer\s*On May 1\.\s*Given answer\s*On May 1\.")
    )
    prompt = shown.get_by_text("You answer questions about")
    expect(prompt).to_be_hidden()
    shown.get_by_text("System prompt").click()
    expect(prompt).to_be_visible()
    shown.get_by_text("All facts").click()
    expect(shown.get_by_text("bad_argument_calls")).to_be_visible()


def test_components_of_the_reward_are_shown(visit: Visitor, page_file: Path) -> None:
    page = visit().open(page_file, "episode=trained-q0-0-20")
    expect(opened(page).locator(".v-components")).to_have_text("correctness +0.5effort -0.1")
    expect(opened(page).locator("header")).to_contain_text("step 20")


def test_sources_that_were_never_seen_stand_out(visit: Visitor, tmp_path: Path) -> None:
    final = said.message(said.answer("May", "m1", "<made-up@test.example>")).to_chat()
    made = episode(question(0), "wrong")
    invented = episode(question(0), "wrong", messages=[*made.messages[:4], final])
    page = visit().open(
        write_page(tmp_path / "page.html", [invented]), f"episode={made.episode_id}"
    )
    seen, unseen = opened(page).locator(".v-source").all()
    expect(seen).to_contain_text("never read")
    expect(unseen).to_contain_text("never found")


def test_two_models_are_compared_on_a_question(visit: Visitor, page_file: Path) -> None:
    page = visit().open(page_file, "episode=openai/weak-q1-0")
    expect(opened(page)).to_have_count(1)
    page.get_by_label("Compare with").select_option(label="local:a,b+c, one, right")
    expect(opened(page)).to_have_count(2)
    left, right = (page.locator(".v-beside article").nth(side) for side in (0, 1))
    expect(left).to_contain_text("On December 31.")
    expect(right).to_contain_text("On May 2.")
    page.get_by_label("Compare with").select_option("")
    expect(opened(page)).to_have_count(1)
    page.go_back()
    expect(opened(page)).to_have_count(2)


def test_a_link_names_a_question_and_two_models(visit: Visitor, page_file: Path) -> None:
    page = visit().open(page_file, "question=q1&models=openai%2Fweak,local%3Aa%2Cb%2Bc")
    names = page.locator(".v-beside article header strong")
    expect(names).to_have_text(["openai/weak", "local:a,b+c"])


def test_a_link_compares_one_model_in_two_runs(visit: Visitor, tmp_path: Path) -> None:
    runs = [
        episode(question(0), "right", model="m", run_id=run, repeat=repeat)
        for run in ("short-prompt", "long-prompt")
        for repeat in (0, 1)
    ]
    page = visit().open(write_page(tmp_path / "page.html", runs), "question=q0&models=m,m")
    expect(page.locator(".v-beside article header")).to_contain_text(
        ["short-prompt", "long-prompt"]
    )


def test_a_long_text_is_shown_whole_when_asked(visit: Visitor, tmp_path: Path) -> None:
    long = episode(question(0), "wrong", final_answer="harbor " * 150_000 + "END")
    page = visit().open(write_page(tmp_path / "page.html", [long]), f"episode={long.episode_id}")
    answer = opened(page).locator(".v-given")
    assert len(answer.inner_text()) < 3_000
    answer.get_by_role("button", name="Show all").click()
    expect(answer).to_contain_text("more characters in trajectories.jsonl]")
    expect(answer.get_by_role("button")).to_have_count(0)


def test_hostile_text_stays_text(visit: Visitor, tmp_path: Path) -> None:
    asked = question(0, question=HOSTILE, answer=HOSTILE, id=HOSTILE, inbox_address=HOSTILE)
    made = episode(asked, "wrong", model=HOSTILE)
    answer = said.message(said.answer(HOSTILE, HOSTILE), said.call(HOSTILE, {HOSTILE: HOSTILE}))
    mail = {"role": "tool", "content": said.call("x", {
        "message_id": "m1", "from": HOSTILE, "to": [HOSTILE], "subject": HOSTILE,
        "date": HOSTILE, "body": HOSTILE + "x" * 1_000_000,
    }).arguments}  # fmt: skip
    hits = {"role": "tool", "content": said.call("x", {"hits": [{
        "message_id": HOSTILE, "from": HOSTILE, "subject": HOSTILE, "snippet": HOSTILE,
        "missing": [HOSTILE],
    }]}).arguments}  # fmt: skip
    reads = said.message(said.read_episodes("m1"), said.search_episodes(HOSTILE), text=HOSTILE)
    hostile = episode(
        asked,
        "wrong",
        model=HOSTILE,
        run_id=HOSTILE,
        episode_id=HOSTILE,
        final_answer=HOSTILE,
        messages=[{"role": "system", "content": HOSTILE}, reads.to_chat(), mail, hits,
                  answer.to_chat(), {"role": "tool", "content": HOSTILE}],
        error={"kind": HOSTILE, "message": HOSTILE},
        verdict={"correct": False, "grounded": None, "judge": HOSTILE, "reason": HOSTILE},
        reward={HOSTILE: 1.0},
        policy={HOSTILE: HOSTILE},
    )  # fmt: skip
    page = visit().open(write_page(tmp_path / "page.html", [hostile, made]))
    page.get_by_label("Search").fill("window.pwned <script>")
    expect(rows(page)).to_have_count(2)
    rows(page).first.locator("a").click()
    expect(opened(page)).to_have_count(1)
    for summary in opened(page).locator("summary").all():
        summary.click()
    shown = opened(page).inner_text()
    assert shown.count("<script>window.pwned = 1</script><img src=") > 15
    assert "[U+202E]gnp.exe" in shown
    page.get_by_label("Compare with").select_option(index=1)
    expect(opened(page)).to_have_count(2)
    assert page.evaluate("window.pwned === undefined")
    assert page.locator(".viewer :is(script, img, svg, textarea)").count() == 0
    page.reload()
    expect(opened(page)).to_have_count(2)


def test_on_a_phone_the_list_is_cards_and_nothing_is_cut_off(
    visit: Visitor, page_file: Path
) -> None:
    page = visit(width=390, height=844).open(page_file)
    card = rows(page).first.bounding_box()
    cells = [each.bounding_box() for each in rows(page).first.locator("td").all()]
    assert card is not None
    assert len({box["y"] for box in cells if box}) > 2
    rows(page).first.click()
    expect(opened(page)).to_have_count(1)
    shown = page.locator("#viewer-detail").bounding_box()
    assert shown is not None
    assert (shown["x"], shown["width"], shown["height"]) == (0, 390, 844)
    page.get_by_label("Compare with").select_option(index=1)
    for part in ("document.documentElement", "document.querySelector('.v-shown')"):
        assert page.evaluate(f"{part}.scrollWidth <= {part}.clientWidth"), part


@pytest.mark.parametrize("dark", [False, True])
def test_the_theme_is_the_system_s_or_the_page_s(
    visit: Visitor, page_file: Path, dark: bool
) -> None:
    page = visit(dark=dark).open(page_file, "episode=trained-q0-0-20")
    colour = "getComputedStyle(document.querySelector('#viewer-detail')).backgroundColor"
    light, night = "rgb(255, 255, 255)", "rgb(22, 25, 29)"
    assert page.evaluate(colour) == (night if dark else light)
    for theme, wanted in (("light", light), ("dark", night)):
        page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
        assert page.evaluate(colour) == wanted
