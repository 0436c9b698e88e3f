"""The report: the same figures as `metrics.json`, and a page that is whole in itself and safe."""

import base64
import gzip
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from lxml.html import document_fromstring

from art_e.runs import Run
from art_e.trajectory import Trajectory
from evals.report import tables
from evals.report.build import build_report, pairings
from evals.report.tables import Cell, Entry, Table, measure
from evals.statistics import Estimate
from tests.evals.runs import (
    OUTCOMES,
    episodes,
    question,
    step,
    trained,
    training,
    validation,
    write_run,
)

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'><!-- {{ 7 * 7 }}"


def one(tmp_path: Path, *trajectories: Trajectory, **config: Any) -> list[Entry]:
    return measure([write_run(tmp_path / "run", trajectories, **config)])


def cells_of(table: Table, row: int = 0) -> dict[str, Cell]:
    return dict(zip(table.headings[1:], table.rows[row].cells, strict=True))


# ---- Figures as text.


def estimate(value: float | None, low: float | None = None, high: float | None = None) -> Estimate:
    return Estimate(value=value, low=low, high=high, n=71, method="wilson")


@pytest.mark.parametrize(
    ("cell", "line"),
    [
        (tables.percent(estimate(0.6164, 0.5, 0.7)), "61.6% [50.0, 70.0]  n=71"),
        (tables.number(estimate(3.205, 3.1, 3.3)), "3.21 [3.10, 3.30]  n=71"),
        (tables.usd(estimate(1234.5, 1000, 1500)), "$1,234.50 [1,000.00, 1,500.00]  n=71"),
        (tables.usd(estimate(-0.00071)), "-$0.00071  n=71"),
        (tables.seconds(estimate(0.0123, 0.01, 0.02)), "0.012 s [0.01, 0.02]  n=71"),
        (tables.digits(estimate(2480.4)), "2,480  n=71"),
        (tables.percent(estimate(None)), "–  n=71"),
    ],
)
def test_figures_are_written_with_interval_and_n(cell: Cell, line: str) -> None:
    assert cell.line == line


# ---- The models side by side.


def test_models_have_labels_that_tell_them_apart(tmp_path: Path) -> None:
    def run(name: str, *models: str, **config: Any) -> Run:
        made = [each for model in models for each in episodes(model, {"right": 2})]
        return write_run(tmp_path / name, made, **config)

    def labels(*runs: Run) -> list[str]:
        return [each.label for each in measure(runs)]

    assert labels(run("both", "a", "b"), run("one", "c")) == ["a", "b", "c"]
    prompts = [run(name, "m", prompt={"name": name, "hash": "0"}) for name in ("short", "long")]
    assert labels(*prompts) == ["m, prompt short", "m, prompt long"]
    again = run("again", "m", prompt={"name": "long", "hash": "0"})
    assert labels(prompts[1], again) == ["m in long", "m in again"]


def test_a_model_in_training_stands_for_its_last_step_whatever_it_is_called(tmp_path: Path) -> None:
    steps = [
        each
        for step in (20, 0, 40)
        for each in episodes(f"local:checkpoint-{step}", {"right": 2}, step=step)
    ]
    base, last = one(tmp_path, *episodes("base", {"wrong": 2}), *steps)
    assert [base.label, last.label] == ["base", "local:checkpoint-40, step 40"]
    assert {each.trajectory.policy["step"] for each in last.scored} == {40}
    [checkpoint] = measure([write_run(tmp_path / "t", training([0, 9], n=20))])
    [pair] = pairings([base, checkpoint])
    assert pair.table.title == "trained, step 9 against base"


def test_the_headline_has_our_models_first_and_marks_the_published(tmp_path: Path) -> None:
    table = tables.headline(one(tmp_path, *episodes("mine", {"right": 6, "wrong": 4})))
    mine, *published = table.rows
    assert (mine.label, mine.published) == ("mine", False)
    assert all(row.published for row in published)
    # Of the ten questions, 4 and 9 can't be answered.
    assert cells_of(table)["Accuracy"] == Cell("62.5%", "[23.4, 90.1]", 8)
    rows = {row.label: cells_of(table, number) for number, row in enumerate(table.rows)}
    assert rows["o3"]["Accuracy"].line == "90.0% [82.6, 94.5]  n=100"
    assert (rows["o3"]["Cost per 1,000"].value, rows["o3"]["Turns"].value) == ("$55.19", "–")
    assert rows["Qwen2.5-14B, untrained"]["Accuracy"].value == "41.0%"


# ---- The page as a file.


def page_of(*runs: Run, out: Path) -> Any:
    """The root of the report's page."""
    written = build_report(runs, out)
    assert written[0] == out / "report.html"
    return document_fromstring(written[0].read_text("utf-8"))


def shown(page: Any) -> str:
    """The text that a reader sees."""
    return "".join(page.xpath("//text()[not(parent::script or parent::style)]"))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Of a run in which every name and text is hostile, and a training run."""
    folder = tmp_path_factory.mktemp("report")
    items = [
        question(number, id=f"q{number}{HOSTILE}", question=f"When? {HOSTILE}", answer=HOSTILE)
        for number in range(9)
    ]
    options: dict[str, Any] = {"questions": items, "final_answer": HOSTILE}
    hostile = episodes(f"model {HOSTILE}", dict.fromkeys(OUTCOMES, 1), **options)
    other = episodes("other", {"right": 9}, questions=items)
    prompt, command = {"name": HOSTILE, "hash": HOSTILE}, f"art-e eval run -m {HOSTILE}"
    config: dict[str, Any] = {"questions": HOSTILE, "prompt": prompt, "command": command}
    run = write_run(folder / "a", [*hostile, *other], **config)
    steps = [step(1, components={HOSTILE: 0.5, "a_b": 0.1}), step(2)]
    alarm = {"step": 7, "kind": "no spread", "message": f"says {HOSTILE}"}
    curves = trained(folder / "t <b>\x1b", steps, [validation(0)], [alarm], complete=False)
    return page_of(run, curves, out=folder / "out")


def test_the_page_needs_nothing_beside_it(page: Any) -> None:
    loading = {"src", "srcset", "poster", "data", "action", "formaction", "background"}
    assert not loading & {name for each in page.iter("*") for name in each.attrib}
    links = set(page.xpath("//@href | //@*[name() = 'xlink:href']"))
    assert all(each.startswith("#") for each in links)
    assert not re.search(r"@import|url\((?!#)", " ".join(page.xpath("//style/text()")))
    # Within charts, only what is referred to needs a name of its own.
    ids = page.xpath("//*[not(ancestor::svg)]/@id")
    referred = re.findall(r"url\(#([^)]*)\)", str(page.xpath("//svg//@clip-path")))
    assert all(page.xpath(f"count(//*[@id='{name}'])") == 1 for name in {*ids, *referred})
    parts = {"figures", "charts", "training", "breakdown", "funnel", "pairs", "alarms", "viewer"}
    assert parts <= set(ids)
    assert {f"#{part}" for part in parts} <= links
    for text in ("incomplete", "published", "art-e eval run -m", "no spread, step 7"):
        assert text in shown(page)


def test_the_policy_names_exactly_the_scripts_that_run(page: Any) -> None:
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


def test_plots_are_written_beside_it_and_again_the_same(tmp_path: Path) -> None:
    # A lone surrogate can't be encoded; it does not stop the report.
    odd = episodes("m \ud800", {"right": 3})
    run = write_run(tmp_path / "run", odd, models=["m"], concurrency={})
    written = build_report([run], run.folder)
    names = ["picture", "outcomes", "accuracy", "cost", "latency", "turns"]
    assert written[1:] == [run.folder / "plots" / f"{name}.png" for name in names]
    assert all(each.read_bytes().startswith(b"\x89PNG") for each in written[1:])
    assert "m ?" in written[0].read_text("utf-8")
    before = sorted(each.name for each in run.folder.iterdir())
    assert build_report([run], run.folder) == written
    assert sorted(each.name for each in run.folder.iterdir()) == before


def test_no_folder_of_the_machine_is_on_the_page(tmp_path: Path) -> None:
    command = "art-e eval run -m o3 --questions /home/ann/q.jsonl --db '/srv/a b/mail.duckdb'"
    made = episodes("m", {"right": 3})
    run = write_run(tmp_path / "run", made, command=command, questions="/home/ann/q.jsonl")
    page = build_report([run], run.folder)[0].read_text("utf-8")
    assert "q.jsonl" in page and "mail.duckdb" in page
    assert "/home/ann" not in page and "/srv" not in page and str(tmp_path) not in page


def test_alarms_are_shown_with_their_episodes(tmp_path: Path) -> None:
    asked = [question(number, kind="lookup") for number in range(40)]
    same = episodes("hack", {"wrong": 40}, questions=asked, final_answer="As discussed.")
    page = page_of(write_run(tmp_path / "run", same), out=tmp_path / "out")
    assert "same answer" in shown(page)
    assert "#episode=hack-q0-0" in page.xpath("//a/@href")
