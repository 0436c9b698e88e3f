"""The report's rows: the same figures as `metrics.json`, written with interval and n."""

from pathlib import Path

import pytest

from art_e.trajectory import Trajectory
from evals.report import tables
from evals.report.cells import Cell
from evals.report.entries import Entry, measure
from tests.evals.runs import episode, episodes, question, write_run


def entries_of(tmp_path: Path, *trajectories: Trajectory) -> list[Entry]:
    return [
        entry
        for each in measure([write_run(tmp_path / "run", trajectories)])
        for entry in each.entries
    ]


def test_the_headline_has_our_models_first_and_marks_the_published(tmp_path: Path) -> None:
    table = tables.headline(entries_of(tmp_path, *episodes("mine", {"right": 6, "wrong": 4})))
    mine, *published = table.rows
    assert (mine.label, mine.published) == ("mine", False)
    assert all(row.published for row in published)
    column = table.headings.index("Accuracy") - 1
    # Of the ten questions, 4 and 9 can't be answered.
    assert mine.cells[column] == Cell("62.5%", "[30.6, 86.3]", 8)
    accuracies = {row.label: row.cells[column].line for row in published}
    assert accuracies["o3"] == "90.0% [82.6, 94.5]  n=100"
    assert accuracies["Qwen2.5-14B, untrained"].startswith("41.0% ")
    cost = table.headings.index("Cost per 1,000") - 1
    assert {row.label: row.cells[cost].value for row in published}["o3"] == "$55.19"


def test_columns_that_say_nothing_are_left_out(tmp_path: Path) -> None:
    plain = tables.headline(entries_of(tmp_path, *episodes("mine", {"right": 2})))
    assert {"Unjudged", "Judges agree"}.isdisjoint(plain.headings)
    told = tables.headline(
        entries_of(tmp_path / "two", *episodes("mine", {"right": 2, "unjudged": 1}, second=True))
    )
    assert {"Unjudged", "Judges agree"} <= set(told.headings)


def test_kinds_are_in_their_order_with_the_models_below(tmp_path: Path) -> None:
    run = [*episodes("a", {"right": 5}), *episodes("b", {"wrong": 3})]
    rows = tables.by_label(entries_of(tmp_path, *run), "by_kind", "Kind").rows
    assert [(row.label, row.heading) for row in rows] == [
        ("lookup", True), ("a", False), ("b", False),
        ("latest-update", True), ("a", False), ("b", False),
        ("multi-mail", True), ("a", False), ("b", False),
        ("count", True), ("a", False),
        ("unanswerable", True), ("a", False),
    ]  # fmt: skip
    alone = tables.by_label(entries_of(tmp_path / "x", *run[:5]), "by_difficulty", "Difficulty")
    assert [row.label for row in alone.rows] == ["easy", "medium", "hard"]


def test_the_funnel_counts_every_episode_once(tmp_path: Path) -> None:
    run = [
        *episodes("a", {"right": 4, "not found": 2, "not read": 1, "wrong": 1, "failed": 2}),
        *episodes("b", {"right": 1, "out of turns": 2}),
    ]
    table = tables.funnel(entries_of(tmp_path, *run))
    assert table.headings == ["Ended", "a", "b"]
    counts = {row.label: [int(cell.value) for cell in row.cells] for row in table.rows}
    assert counts["failed for an outside reason"] == [2, 0]
    assert counts["out of turns"] == [0, 2]
    assert "the judge gave no verdict" not in counts
    assert [sum(column) for column in zip(*counts.values(), strict=True)] == [10, 3]
    shares = [cell.share for row in table.rows for cell in row.cells[:1]]
    assert sum(share for share in shares if share is not None) == pytest.approx(1)


def test_a_second_judge_is_shown_beside_the_first(tmp_path: Path) -> None:
    def said(number: int, first: bool, second: bool) -> Trajectory:
        asked = question(number, kind="lookup")
        return episode(asked, "right" if first else "wrong", model="m", second=second)

    run = [said(0, True, True), said(1, True, False), said(2, False, False), said(3, True, True)]
    table = tables.judged(entries_of(tmp_path, *run))
    assert table is not None
    assert table.headings[1:3] == ["Accuracy by offline/1", "Accuracy by second"]
    [row] = table.rows
    assert [cell.value for cell in row.cells[:3]] == ["75.0%", "50.0%", "75.0%"]


def test_one_judge_needs_no_table_of_judges(tmp_path: Path) -> None:
    assert tables.judged(entries_of(tmp_path, *episodes("m", {"right": 2}))) is None


def test_methods_of_intervals_are_told(tmp_path: Path) -> None:
    [entry] = entries_of(tmp_path, *episodes("m", {"right": 4, "wrong": 4}))
    assert tables.methods([entry.figures]) == ["bootstrap", "wilson"]
