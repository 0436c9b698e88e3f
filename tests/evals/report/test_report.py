"""The report: the figures of `metrics.json` on a safe, self-contained page."""

import base64
import gzip
import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from lxml.html import document_fromstring

from art_e.episode import Episode
from art_e.inbox.file import InboxFile
from art_e.runs import Run
from art_e.trajectory import Trajectory
from evals.report import tables
from evals.report.build import TEXT_CHARS, build_report, page_json, pairings, viewer_data
from evals.report.tables import Cell, Entry, Table, measure
from evals.scored import Scored
from evals.statistics import Estimate
from tests import builders
from tests.evals import runs

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'><!-- {{ 7 * 7 }}"


def one(tmp_path: Path, *trajectories: Trajectory, **config: Any) -> list[Entry]:
    return measure([runs.write_run(tmp_path / "run", trajectories, **config)])


def cells_of(table: Table, row: int = 0) -> dict[str, Cell]:
    return dict(zip(table.headings[1:], table.rows[row].cells, strict=True))


def estimate(value: float | None, low: float | None = None, high: float | None = None) -> Estimate:
    return Estimate(value=value, low=low, high=high, n=71, method="wilson")


def test_figures_have_an_interval_and_n() -> None:
    for cell, line in (
        (tables.percent(estimate(0.6164, 0.5, 0.7)), "61.6% [50.0, 70.0]  n=71"),
        (tables.number(estimate(3.205, 3.1, 3.3)), "3.21 [3.10, 3.30]  n=71"),
        (tables.usd(estimate(1234.5, 1000, 1500)), "$1,234.50 [1,000.00, 1,500.00]  n=71"),
        (tables.usd(estimate(-0.00071)), "-$0.00071  n=71"),
        (tables.seconds(estimate(0.0123, 0.01, 0.02)), "0.012 s [0.01, 0.02]  n=71"),
        (tables.digits(estimate(2480.4)), "2,480  n=71"),
        (tables.percent(estimate(None)), "–  n=71"),
    ):
        assert cell.line == line


def test_labels_of_models_are_unique(tmp_path: Path) -> None:
    def run(name: str, *models: str, **config: Any) -> Run:
        episodes = [each for model in models for each in runs.episodes(model, {"right": 2})]
        return runs.write_run(tmp_path / name, episodes, **config)

    def labels(*runs: Run) -> list[str]:
        return [each.label for each in measure(runs)]

    assert labels(run("both", "a", "b"), run("one", "c")) == ["a", "b", "c"]
    prompts = [run(name, "m", prompt={"name": name, "hash": "0"}) for name in ("short", "long")]
    assert labels(*prompts) == ["m, prompt short", "m, prompt long"]
    again = run("again", "m", prompt={"name": "long", "hash": "0"})
    assert labels(prompts[1], again) == ["m in long", "m in again"]


def test_figures_of_a_training_run_are_of_its_last_step(tmp_path: Path) -> None:
    steps = [
        episode
        for step in (20, 0, 40)
        for episode in runs.episodes(f"local:checkpoint-{step}", {"right": 2}, step=step)
    ]
    base, last = one(tmp_path, *runs.episodes("base", {"wrong": 2}), *steps)
    assert [base.label, last.label] == ["base", "local:checkpoint-40, step 40"]
    assert {each.trajectory.policy["step"] for each in last.scored} == {40}
    [checkpoint] = measure([runs.write_run(tmp_path / "t", runs.training([0, 9], n=20))])
    [pair] = pairings([base, checkpoint])
    assert pair.table.title == "trained, step 9 against base"


def test_headline_has_our_models_first_and_marks_published_ones(tmp_path: Path) -> None:
    table = tables.headline(one(tmp_path, *runs.episodes("ours", {"right": 6, "wrong": 4})))
    first, *published = table.rows
    assert (first.label, first.published) == ("ours", False)
    assert all(row.published for row in published)
    # Questions 4 and 9 of ten are unanswerable.
    assert cells_of(table)["Accuracy"] == Cell("62.5%", "[24.0, 91.0]", 8)
    rows = {row.label: cells_of(table, number) for number, row in enumerate(table.rows)}
    assert rows["o3"]["Accuracy"].line == "90.0% [82.6, 94.5]  n=100"
    assert (rows["o3"]["Cost per 1,000"].value, rows["o3"]["Turns"].value) == ("$55.19", "–")
    assert rows["Qwen2.5-14B, untrained"]["Accuracy"].value == "41.0%"


def text_of(page: Any) -> str:
    """Return the text that a reader sees."""
    return "".join(page.xpath("//text()[not(parent::script or parent::style)]"))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Build the page of a run in which all names and texts are hostile, and a training run."""
    folder = tmp_path_factory.mktemp("report")
    items = [
        runs.question(number, id=f"q{number}{HOSTILE}", question=f"When? {HOSTILE}", answer=HOSTILE)
        for number in range(9)
    ]
    options: dict[str, Any] = {"questions": items, "final_answer": HOSTILE}
    hostile = runs.episodes(f"model {HOSTILE}", dict.fromkeys(runs.OUTCOMES, 1), **options)
    other = runs.episodes("other", {"right": 9}, questions=items)
    prompt, command = {"name": HOSTILE, "hash": HOSTILE}, f"art-e eval run -m {HOSTILE}"
    config: dict[str, Any] = {"questions": HOSTILE, "prompt": prompt, "command": command}
    run = runs.write_run(folder / "a", [*hostile, *other], **config)
    steps = [runs.step(1, components={HOSTILE: 0.5, "a_b": 0.1}), runs.step(2)]
    alarm = {"step": 7, "kind": "no spread", "message": f"says {HOSTILE}"}
    validations = [runs.validation(0)]
    curves = runs.trained(folder / "t <b>\x1b", steps, validations, [alarm], complete=False)
    return document_fromstring(build_report([run, curves], folder / "out")[0].read_text("utf-8"))


def test_page_is_self_contained(page: Any) -> None:
    loading = {"src", "srcset", "poster", "data", "action", "formaction", "background"}
    assert not loading & {name for each in page.iter("*") for name in each.attrib}
    links = set(page.xpath("//@href | //@*[name() = 'xlink:href']"))
    assert all(each.startswith("#") for each in links)
    assert not re.search(r"@import|url\((?!#)", " ".join(page.xpath("//style/text()")))
    # In charts, only referenced ids need to be unique.
    ids = page.xpath("//*[not(ancestor::svg)]/@id")
    referred = re.findall(r"url\(#([^)]*)\)", str(page.xpath("//svg//@clip-path")))
    assert all(page.xpath(f"count(//*[@id='{name}'])") == 1 for name in {*ids, *referred})
    parts = {"figures", "charts", "training", "breakdown", "funnel", "pairs", "alarms", "viewer"}
    assert parts <= set(ids)
    assert {f"#{part}" for part in parts} <= links
    basis = "n = 9 questions of .*, split test, judged by offline/9; in brackets 95 % intervals"
    assert re.search(basis, text_of(page.find(".//header")))
    for text in ("incomplete", "published", "art-e eval run -m", "no spread, step 7"):
        assert text in text_of(page)


def test_policy_allows_only_the_scripts_of_the_page(page: Any) -> None:
    [policy] = page.xpath("//meta[@http-equiv]/@content")
    run = page.xpath("//script[not(@type)]/text()")
    assert len(run) == len(page.xpath("//script[not(@type)]"))
    hashes = [base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in run]
    assert re.findall(r"'sha256-([^']*)'", policy) == hashes
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy
    assert "'unsafe-inline'" not in policy.partition("style-src")[0]
    [data] = page.xpath("//script[@id='viewer-data']/text()")
    assert len(json.loads(gzip.decompress(base64.b64decode(data)))["episodes"]) == 9 + 9 + 20


def test_report_has_plots_and_alarms_and_hides_local_folders(tmp_path: Path) -> None:
    command = "art-e eval run -m o3 --questions /home/ann/q.jsonl --db '/srv/a b/mail.duckdb'"
    config: dict[str, Any] = {"command": command, "questions": "/home/ann/q.jsonl"}
    items = [runs.question(number, kind="lookup") for number in range(40)]
    same = runs.episodes("hack", {"wrong": 40}, questions=items, final_answer="As discussed.")
    # A lone surrogate can't be encoded, but does not stop the report.
    odd = runs.episodes("m \ud800", {"right": 3})
    run = runs.write_run(tmp_path / "run", [*same, *odd], models=["m"], concurrency={}, **config)
    written = build_report([run], run.folder)
    table = (run.folder / "table.md").read_text("utf-8").splitlines()
    assert table[0].startswith("| Model | Accuracy |") and "| 2 " in table[2]
    assert len(table) == 6 and table[-1].startswith("n = 40 questions of q.jsonl, split test, ")
    names = ["picture", "outcomes", "accuracy", "cost", "latency", "turns"]
    assert written[1:] == [run.folder / "plots" / f"{name}.png" for name in names]
    assert all(each.read_bytes().startswith(b"\x89PNG") for each in written[1:])
    text = written[0].read_text("utf-8")
    assert all(part in text for part in ("m ?", "q.jsonl", "mail.duckdb"))
    assert not any(place in text for place in ("/home/ann", "/srv", str(tmp_path)))
    page: Any = document_fromstring(text)
    assert "same answer" in text_of(page)
    assert "#episode=hack-q0-0" in page.xpath("//a/@href")
    before = sorted(each.name for each in run.folder.iterdir())
    assert build_report([run], run.folder) == written
    assert sorted(each.name for each in run.folder.iterdir()) == before


def scored(outcome: runs.Outcome, **options: Any) -> Scored:
    return Scored(runs.question(0), runs.episode(runs.question(0), outcome, **options))


def only(data: dict[str, Any]) -> dict[str, Any]:
    [episode] = data["episodes"]
    return dict(episode)


def test_real_episode_becomes_turns_with_results(inbox_file: InboxFile) -> None:
    script = [
        builders.message(builders.search("lease", "swimming"), text="Let me look."),
        builders.message(builders.read("m1"), builders.read("m99")),
        builders.message(builders.call("delete_email", {"message_id": "m1"})),
        builders.message(builders.answer("On May 3.", "m1")),
    ]
    inbox = inbox_file.open_inbox(builders.BOB, builders.QUESTION.query_date)
    episode = Episode(inbox, builders.QUESTION, max_turns=4)
    trajectory = builders.play(episode, builders.ScriptedPolicy(script))
    data = viewer_data([Scored(builders.QUESTION, trajectory)])
    shared = data["shared"]
    searched, reads, wrong, answer = only(data)["turns"]
    assert shared[searched["says"]] == "Let me look."
    [call] = searched["calls"]
    assert call["tool"] == "search_emails"
    assert call["arguments"] == {"keywords": ["lease", "swimming"]}
    [lease, *_] = call["results"][0]["hits"]
    assert shared[lease["head"]]["id"] == builders.LEASE
    assert (lease["handle"], lease["missing"]) == ("m1", ["swimming"])
    first, second = (each["results"] for each in reads["calls"])
    assert shared[first[0]["mail"]]["body"].startswith("The lease of the harbor office")
    assert "not found in this inbox" in shared[second[0]["error"]]
    error, note = wrong["calls"][0]["results"]
    assert "no tool 'delete_email'" in shared[error["error"]]
    assert "one turn left" in shared[note["note"]]
    assert answer["calls"][0]["arguments"] == {"answer": "On May 3.", "sources": ["m1"]}


GOLD, GONE = "<gold-0@test.example>", "<unseen@test.example>"


def test_gold_mails_are_found_read_and_cited() -> None:
    cases: list[tuple[runs.Outcome, tuple[str, ...], dict[str, bool], list[tuple[bool, ...]]]] = [
        ("right", (GOLD,), {}, [(True, True, True)]),
        ("not read", (GOLD,), {}, [(True, False, False)]),
        ("not found", (GOLD,), {}, [(False, False, False)]),
        # Two gold mails have facts of their own.
        ("wrong", (GOLD, GONE),
         dict.fromkeys(("found_gold", "read_gold", "sources_correct"), False),
         [(True, True, True), (False, False, False)]),
        # The id of another copy counts if the rubric says so.
        ("right", (GONE,), {"sources_correct": False}, [(True, True, False)]),
    ]  # fmt: skip
    for ended, gold, rubric, facts in cases:
        trajectory = runs.episode(runs.question(0), ended)
        trajectory.rubric.update(rubric)
        rows = only(viewer_data([Scored(runs.question(0, message_ids=gold), trajectory)]))["gold"]
        assert [(each["found"], each["read"], each["cited"]) for each in rows] == facts


def test_hidden_characters_become_code_points() -> None:
    hostile = "pay\u202etca\ud800 \x1b[31m\u200b\U000e0041 \u2028 ok\r\nnext"
    visible = "pay[U+202E]tca[U+D800] [U+001B][31m[U+200B][U+E0041] [U+2028] ok\nnext"
    assert page_json({hostile: [hostile]}) == {visible: [visible]}


def test_huge_text_is_cut_and_nan_becomes_text() -> None:
    odd: dict[str, Any] = {"reward": {"correctness": float("nan")}, "cost": float("inf")}
    data = viewer_data([scored("wrong", step=40, final_answer="x" * 1_000_000, **odd)])
    json.dumps(data, allow_nan=False)
    row = only(data)
    assert (row["reward"], row["cost"], row["components"]) == (None, None, {"correctness": "nan"})
    assert row["step"] == 40
    assert len(row["answer"]) < TEXT_CHARS + 100
    assert row["answer"].endswith("[cut here: 900,000 more characters in trajectories.jsonl]")


@pytest.mark.parametrize(
    "arguments", ["not JSON", "[1, 2]", '{"keywords": ', "[" * sys.getrecursionlimit() * 3]
)
def test_arguments_that_are_not_an_object_stay_text(arguments: str) -> None:
    wrong = builders.message(builders.call("search_emails", arguments)).to_chat()
    observation = {"role": "tool", "tool_call_id": "call-0", "content": "<html>502</html>"}
    data = viewer_data([scored("lost", messages=[wrong, observation])])
    (turn,) = only(data)["turns"]
    (call,) = turn["calls"]
    assert (call["arguments"], turn["notes"]) == (arguments, [])
    assert [data["shared"][each["text"]] for each in call["results"]] == ["<html>502</html>"]
