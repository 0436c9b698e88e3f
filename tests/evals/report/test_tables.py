"""The report's rows: the same figures as `metrics.json`, written with interval and n."""

from pathlib import Path
from typing import Any

import pytest

from art_e.trajectory import Trajectory
from evals.judges.labels import write_label
from evals.report import tables
from evals.report.entries import Entry, measure
from evals.report.tables import NONE, Cell
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


def test_a_measured_cost_is_marked_and_its_throughput_has_a_table(tmp_path: Path) -> None:
    own = episodes("own", {"right": 10}, seconds=2.0)
    hosted = episodes("hosted", {"right": 10})
    measured: Any = {"gpu_usd_per_hour": 3.6, "gpus": 1, "self_hosted": ["own"]}
    run = write_run(tmp_path / "run", [*own, *hosted], **measured)
    entries = [entry for each in measure([run]) for entry in each.entries]
    table = tables.headline(entries)
    cost = table.headings.index("Cost per 1,000") - 1
    # All ten began at once: 0.2 s each, at a tenth of a cent a second.
    assert table.rows[0].cells[cost] == Cell("$0.20 measured", "[0.20, 0.20]", 10)
    assert table.rows[1].cells[cost] == Cell("$2.00", "[2.00, 2.00]", 10)
    told = tables.throughput(entries)
    assert told is not None
    [row] = told.rows
    assert row.label == "own"
    by_heading = dict(zip(told.headings[1:], row.cells, strict=True))
    assert by_heading["Questions"] == Cell("5", "[5, 5]", 10)
    assert by_heading["Prompt tokens"].value == "5,000"
    assert by_heading["Under way at a time"] == Cell("10.0 of 1")
    assert tables.cost_sources(entries).startswith("Cost of own: measured on your GPU at $3.60/h")
    assert tables.throughput(entries[1:]) is None
    assert tables.cost_sources(entries[1:]) == ""


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
    assert table.headings[1:3] == ["Accuracy by offline/2", "Accuracy by second"]
    [row] = table.rows
    assert [cell.value for cell in row.cells[:3]] == ["75.0%", "50.0%", "75.0%"]


def test_one_judge_needs_no_table_of_judges(tmp_path: Path) -> None:
    assert tables.judged(entries_of(tmp_path, *episodes("m", {"right": 2}))) is None


def details_of(entries: list[Entry]) -> dict[str, Cell]:
    """The cells of one entry's details by their headings."""
    told = [tables.details(entries, of) for of in (tables.SOURCES, tables.TOKENS_AND_TIME)]
    [headings, cells] = (
        [heading for table in told for heading in table.headings[1:]],
        [cell for table in told for row in table.rows for cell in row.cells],
    )
    return dict(zip(headings, cells, strict=True))


def test_details_tell_what_is_behind_the_headline(tmp_path: Path) -> None:
    cells = details_of(entries_of(tmp_path, *episodes("m", {"right": 3, "not read": 1})))
    assert cells["Found gold"].value == "100.0%"
    assert cells["Read gold"] == Cell("75.0%", "[30.1, 95.4]", 4)
    assert cells["Prompt tokens"] == Cell("1,000", "[1,000, 1,000]", 4)
    # The made-up episodes take 1, 2, 3 and 4 seconds, 90 % of them in the model.
    assert (cells["Time in model"].value, cells["Time in model"].n) == ("2.25 s", 4)
    assert cells["Time in model"].interval
    assert (cells["Time in tools"].value, cells["Other time"].value) == ("0.12 s", "0.12 s")
    assert cells["Retries"] == Cell("0", n=4)
    assert cells["Grounded"] == Cell(NONE)
    assert "Always right" not in cells


def test_details_tell_what_was_right_every_time(tmp_path: Path) -> None:
    asked = [question(number, kind="lookup") for number in range(2)]
    run = [episode(each, "right", retries=2) for each in asked]
    again = [
        episode(asked[0], "right", repeat=1),
        episode(asked[1], "unjudged", repeat=1),
    ]
    cells = details_of(entries_of(tmp_path, *run, *again))
    assert (cells["Always right"].value, cells["Always right"].n) == ("50.0%", 2)
    assert cells["Retries"] == Cell("4", n=4)
    assert cells["Unjudged"] == Cell("1", n=4)


def test_no_time_is_told_where_a_cache_could_answer(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", episodes("m", {"right": 2}), cache=True)
    [entry] = [entry for each in measure([run]) for entry in each.entries]
    cells = details_of([entry])
    assert [cells[each] for each in ("Time in model", "Time in tools", "Other time")] == [
        Cell(NONE)
    ] * 3


def test_each_judge_is_held_against_a_person_s_labels(tmp_path: Path) -> None:
    asked = [question(number, kind="lookup") for number in range(4)]
    said = [
        episode(each, "right" if number < 2 else "wrong", second=True)
        for number, each in enumerate(asked)
    ]
    run = write_run(tmp_path / "run", said)
    for each, label in zip(said, (True, False, False, False), strict=True):
        write_label(run, each.episode_id, correct=label)
    unlabelled = write_run(tmp_path / "other", episodes("m", {"right": 2}))
    [alone] = measure([run])
    table = tables.labelled([alone])
    assert table is not None
    assert [row.label for row in table.rows] == alone.judges
    [first, second] = ([cell.value for cell in row.cells] for row in table.rows)
    assert first == ["75.0%", "0.50"]
    assert second == ["25.0%", "0.00"]
    assert table.rows[0].cells[0] == Cell("75.0%", "[30.1, 95.4]", 4)
    assert table.rows[0].cells[1].n == 4
    assert table.rows[0].cells[1].interval
    both = tables.labelled(measure([run, unlabelled]))
    assert both is not None
    assert [(row.label, row.heading) for row in both.rows] == [
        (run.id, True),
        *((judge, False) for judge in alone.judges),
    ]


def test_without_labels_there_is_no_table_of_them(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", episodes("m", {"right": 2}))
    assert tables.labelled(measure([run])) is None


def test_methods_of_intervals_are_told(tmp_path: Path) -> None:
    [entry] = entries_of(tmp_path, *episodes("m", {"right": 4, "wrong": 4}))
    assert tables.methods([entry.figures]) == ["bootstrap", "wilson"]
