"""A page of the viewer alone, as the report embeds it, and where things are on it."""

from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

from playwright.sync_api import Locator, Page

from art_e.question import Question
from art_e.trajectory import Trajectory
from evals.report.build import content_security_policy, script_json
from evals.report.viewer import viewer_data, viewer_parts
from evals.scored import Scored
from tests.evals.runs import OUTCOMES, episode, question, training

PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>Report</title>
<style>{css}</style></head>
<body><p id="alarms"><a href="#alarms">alarms</a></p>{html}
<script type="application/json" id="viewer-data">{data}</script><script>{js}</script></body></html>
"""


def write_page(file: Path, trajectories: Iterable[Trajectory]) -> Path:
    """A page of the viewer alone, under the report's policy and with its colours."""
    rows = [(each.question, each) for each in trajectories]
    scored = [Scored(Question.from_row(row), each) for row, each in rows if row is not None]
    html, css, js = viewer_parts()
    css = files("evals.report").joinpath("page.css").read_text("utf-8") + css  # its colours
    policy, data = content_security_policy([js]), script_json(viewer_data(scored))
    file.write_text(PAGE.format(policy=policy, html=html, css=css, data=data, js=js), "utf-8")
    return file


def mixed() -> list[Trajectory]:
    """Two models on nine questions, one of all outcomes, one always right, and a training run."""
    asked = [question(number) for number in range(len(OUTCOMES))]
    first = [
        episode(each, outcome, model="openai/weak", second=False, run_id="one", cost=None)
        for each, outcome in zip(asked, OUTCOMES, strict=True)
    ]
    second = [
        episode(each, "right", model="local:a,b+c", run_id="one", seconds=number)
        for number, each in enumerate(asked, start=3)
    ]
    return [*first, *second, *training([0, 20], model="trained", n=4)]


def rows(page: Page) -> Locator:
    return page.locator("#viewer-list tbody tr")


def column(page: Page, title: str) -> list[str]:
    return rows(page).locator(f"td[data-label='{title}']").all_inner_texts()


def opened(page: Page) -> Locator:
    return page.locator("#viewer-detail[open] article")
