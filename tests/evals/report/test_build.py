"""The page as a file: whole in itself, and no place for a script but its own."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from art_e.errors import UserError
from art_e.runs import Run
from evals.judges.labels import labels_file, write_label
from evals.report.build import build_report, script_json
from tests.evals.runs import (
    OUTCOMES,
    episode,
    episodes,
    question,
    step,
    trained,
    validation,
    write_run,
)

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'><!-- {{ 7 * 7 }}"


class Page(HTMLParser):
    """The tags, the scripts and the visible text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.contents: dict[str, list[str]] = {"script": [], "style": []}
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in self.contents:
            self.contents[tag].append("")

    def handle_data(self, data: str) -> None:
        if self.tags and self.cdata_elem in self.contents:
            self.contents[self.cdata_elem][-1] += data
        else:
            self.text += data

    def having(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """Of a run in which every name and text is hostile, and a training run."""
    folder = tmp_path_factory.mktemp("report")
    asked = [
        question(number, id=f"q{number}{HOSTILE}", question=f"When? {HOSTILE}", answer=HOSTILE)
        for number in range(10)
    ]
    hostile = [
        episode(each, outcome, model=f"model {HOSTILE}", final_answer=HOSTILE)
        for each, outcome in zip(asked, OUTCOMES, strict=False)
    ]
    other = episodes("other", {"right": 9}, questions=asked)
    runs = [
        write_run(
            folder / "a",
            [*hostile, *other],
            questions=HOSTILE,
            prompt={"name": HOSTILE, "hash": HOSTILE},
        ),
        trained(folder / "t", [step(1), step(2)], [validation(0)], complete=False),
    ]
    written = build_report(runs, folder / "out")
    assert written[0] == folder / "out" / "report.html"
    return Page(written[0].read_text("utf-8"))


def test_it_needs_nothing_beside_it(page: Page) -> None:
    loading = {"src", "srcset", "poster", "data", "action", "formaction", "background"}
    for tag, attributes in page.tags:
        assert not loading & attributes.keys(), tag
        for name in ("href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith("#")
    assert not page.having("link")
    assert not re.search(r"@import|url\((?!#)", " ".join(page.contents["style"]))


def test_the_policy_names_exactly_the_scripts_that_run(page: Page) -> None:
    [policy] = [
        each["content"] for each in page.having("meta") if each.get("http-equiv") is not None
    ]
    assert policy is not None
    run = [
        content
        for attributes, content in zip(page.having("script"), page.contents["script"], strict=True)
        if attributes.get("type") != "application/json"
    ]
    hashes = [base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in run]
    assert re.findall(r"'sha256-([^']*)'", policy) == hashes
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy
    assert "'unsafe-inline'" not in policy.partition("style-src")[0]


def test_what_others_wrote_is_text(page: Page) -> None:
    # The three are the viewer's data and the page's two scripts.
    assert len(page.having("script")) == 3
    assert not page.having("img")
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert f"model {HOSTILE}" in page.text
    assert f"When? {HOSTILE}" in page.text
    assert "49" not in page.text.partition("{{")[2][:12]


def test_the_viewer_has_all_episodes_as_json(page: Page) -> None:
    [data] = [
        content
        for attributes, content in zip(page.having("script"), page.contents["script"], strict=True)
        if attributes.get("id") == "viewer-data"
    ]
    assert len(json.loads(data)["episodes"]) == 9 + 9 + 20


def test_every_part_is_there(page: Page) -> None:
    ids = {attributes.get("id") for _, attributes in page.tags}
    links = {
        str(each["href"])[1:] for each in page.having("nav") + page.having("a") if "href" in each
    }
    parts = {"figures", "charts", "training", "breakdown", "funnel", "pairs", "alarms", "viewer"}
    assert parts <= ids
    assert parts <= links
    assert "incomplete" in page.text
    assert "published" in page.text
    assert "art-e eval run -m" in page.text


def test_ids_are_not_given_twice(page: Page) -> None:
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_plots_are_written_beside_it(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", episodes("m", {"right": 3}))
    written = build_report([run], run.folder)
    names = ["accuracy", "mistakes", "cost", "latency", "turns"]
    assert written[1:] == [run.folder / "plots" / f"{name}.png" for name in names]
    assert all(each.read_bytes().startswith(b"\x89PNG") for each in written[1:])
    # A second report of the run replaces the first, and leaves nothing else.
    before = sorted(each.name for each in run.folder.iterdir())
    assert build_report([run], run.folder) == written
    assert sorted(each.name for each in run.folder.iterdir()) == before


def test_a_lone_surrogate_does_not_stop_it(tmp_path: Path) -> None:
    odd = episodes("m \ud800", {"wrong": 2})
    run = write_run(tmp_path / "run", odd, models=["m"], concurrency={})
    text = build_report([run], tmp_path / "out")[0].read_text("utf-8")
    assert "m ?" in Page(text).text


def test_nothing_is_written_where_a_run_can_not_be_read(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [], complete=False)
    with pytest.raises(UserError):
        build_report([run], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_label_that_is_none_stops_it_before_anything_is_written(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", episodes("m", {"right": 2}))
    labels_file(run).write_text("[]\n")
    with pytest.raises(UserError, match="is no label"):
        build_report([run], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_person_s_labels_are_shown_beside_the_judges(tmp_path: Path) -> None:
    said = episodes("m", {"right": 3})
    run = write_run(tmp_path / "run", said)
    write_label(run, said[0].episode_id, correct=True)
    text = Page(build_report([run], tmp_path / "out")[0].read_text("utf-8")).text
    assert "Judges against a person's labels" in text
    assert "Agrees with the labels" in text


@pytest.mark.parametrize(
    ("started", "shown"),
    [("2026-11-21T03:24:59+01:00", "2026-11-21 02:24 UTC"), ("some time", "some time")],
)
def test_a_run_s_start_is_told_to_the_minute_in_utc(
    tmp_path: Path, started: str, shown: str
) -> None:
    run = write_run(tmp_path / "run", episodes("m", {"right": 1}))
    run.write_json("config.json", {**run.config, "started_at": started})
    text = Page(build_report([Run(run.folder)], run.folder)[0].read_text("utf-8")).text
    assert f"Started{shown}Questions" in text


def test_json_in_a_script_can_not_end_it() -> None:
    value = {"</script>": ["<!--", "\u2028", "a & b", "\ud800"]}
    text = script_json(value)
    assert "<" not in text
    assert text.isascii()
    assert json.loads(text) == value


def test_alarms_are_shown_with_their_episodes(tmp_path: Path) -> None:
    asked = [question(number, kind="lookup") for number in range(40)]
    same = [
        episode(each, "wrong", model="hack", final_answer="As discussed, see the thread.")
        for each in asked
    ]
    text = build_report([write_run(tmp_path / "run", same)], tmp_path / "out")[0].read_text("utf-8")
    page = Page(text)
    assert "same answer" in page.text
    assert "No detector raised an alarm" not in page.text
    assert "#episode=hack-q0-0" in {each.get("href") for each in page.having("a")}
