"""The charts and curves of a report, and their values."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from evals.report.charts import CurveChart, DotChart, DotRow, Mark, ScatterChart, svg
from evals.report.tables import PUBLISHED, first_charts, headline_sentence, measure
from evals.report.training import read_training, step_charts, validation_charts
from tests.evals.runs import episodes, step, trained, training, validation, write_run

REPORT = Path(__file__).parents[3] / "evals" / "report"


def texts(drawn: str) -> list[str]:
    return [each.text or "" for each in ElementTree.fromstring(drawn).iter() if "text" in each.tag]


def test_page_starts_with_a_sentence_and_accuracy_against_cost(tmp_path: Path) -> None:
    models = [
        *episodes("free", {"right": 3, "wrong": 2}, cost=0.0),
        *episodes("paid", {"right": 5}, cost=0.02),
        *episodes("unpriced", {"wrong": 5}, cost=None),
    ]
    entries = measure([write_run(tmp_path / "a", models)])
    assert headline_sentence(entries) == (
        "paid answers 4 of 4 answerable questions right, and gives 0 wrong answers, at $20.00 per"
        " 1,000; free answers 3 of 4 answerable questions right, and gives 2 wrong answers, at no"
        " cost; unpriced answers 0 of 4 answerable questions right, and gives 5 wrong answers, at"
        " unknown cost."
    )
    picture, _ = first_charts(entries)
    assert "published" not in picture.note and "o3" not in texts(svg(picture))
    picture, outcomes = first_charts(entries, PUBLISHED)
    assert isinstance(picture, ScatterChart) and isinstance(outcomes, DotChart)
    placed = [(row.label, row.marks[0].value) for row in picture.rows if not row.published]
    assert placed == [("free", 0.0), ("paid", 20.0)]
    assert [each.label for each in outcomes.rows] == ["free", "paid", "unpriced"]
    drawn = svg(picture)
    assert {"free", "paid", "o3", "$0", "$1", "$100", "100%"} <= set(texts(drawn))
    # Published models are hollow, in the plot and in the legend.
    assert drawn.count("fill-opacity: 0") == 2 * sum(row.published for row in picture.rows) == 6


def test_svg_is_complete_and_in_the_colours_of_the_page() -> None:
    marks = (Mark(3.0, "3.00", 2.5, 3.5), Mark(4.0, "4.00"))
    both = (DotRow("a", marks), DotRow("b", (Mark(1.0, "1.00"),), published=True))
    drawn = svg(DotChart("turns", "Turns", "", "number", both, series=("turns", "effort")))
    assert {"a", "b (published)", "3.00", "4.00", "1.00", "turns", "effort"} <= set(texts(drawn))
    # All colours are mapped by the page, so that they follow its theme.
    mapped = re.findall(r'style\*="((?:fill|stroke): #\w+)"', (REPORT / "page.css").read_text())
    assert {"fill: #1b2432", "stroke: #3566b8", "fill: #d9822b"} < set(mapped)
    assert set(re.findall(r"(?:fill|stroke): #\w+", drawn)) <= set(mapped)
    referenced = re.findall(r'(?:url\(|href=")#([^")]*)', drawn)
    assert referenced and all(drawn.count(f'id="{name}"') == 1 for name in referenced)
    # Another chart of the page has other ids.
    other = svg(DotChart("accuracy", "Accuracy", "", "share", both[:1]))
    assert not set(referenced) & set(re.findall(r'id="([^"]*)"', other))


def by_name(charts: Sequence[CurveChart]) -> dict[str, CurveChart]:
    names = {each.name: each for each in charts}
    assert len(names) == len(charts)
    return names


def values(chart: CurveChart) -> list[float | None]:
    """Return the first curve, with None for its gaps."""
    first = next(iter(chart.curves.values()))
    return [None if value != value else value for value in first.tolist()]


def test_steps_have_their_curves(tmp_path: Path) -> None:
    """The rows are those of training, so that a renamed field fails here."""
    odd = [step(1, accuracy=0.5, turns=3), step(2, entropy=0.2, flat_groups=6)]
    run = trained(tmp_path / "run", [*odd, *map(step, range(3, 8))])
    drawn = by_name(step_charts(read_training([run])))
    assert list(drawn) == [
        "steps-reward", "steps-accuracy", "steps-turns", "steps-entropy",
        "steps-flat-share", "steps-format-errors", "steps-loss",
    ]  # fmt: skip
    assert list(drawn["steps-entropy"].curves["run"].index) == [1, 2, 3, 4, 5, 6, 7]
    assert values(drawn["steps-entropy"])[:3] == [0.25, 0.2, 0.25]
    assert values(drawn["steps-turns"])[:2] == [3, None]
    assert values(drawn["steps-flat-share"])[:3] == [0.25, 0.75, 0.25]
    assert list(drawn["steps-reward"].curves) == ["reward", "correctness", "format"]


def test_validations_have_a_chart_per_figure_and_a_curve_per_run(tmp_path: Path) -> None:
    parts = {f"part_{number}": 0.1 * number for number in range(1, 9)}
    steps = [step(1, components=parts), step(2)]
    runs = [
        trained(tmp_path / folder / "seed", steps, [validation(0, None), validation(2, 0.75)])
        for folder in ("a", "b")
    ]
    other = write_run(tmp_path / "other", episodes("free", {"right": 5}))
    entries = measure([other])
    rows = read_training([*runs, other])
    held_out, stepwise = by_name(validation_charts(rows, entries)), by_name(step_charts(rows))
    figures = (
        "accuracy", "hallucination-unanswerable", "abstention", "turns-when-correct",
        "effort-when-correct", "reward",
    )  # fmt: skip
    assert list(held_out) == [f"validation-{each}" for each in figures]
    accuracy = held_out["validation-accuracy"]
    assert values(accuracy) == [None, 0.75]
    assert "200 questions each." in accuracy.note
    for chart in (accuracy, stepwise["steps-entropy"]):
        # Their folders have one name.
        assert len(chart.curves) == 2
    assert {"steps-reward-1", "steps-reward-2"} <= stepwise.keys()
    # The other model is a baseline of the figures that it has.
    lines = [name for name, chart in held_out.items() if list(chart.baselines) == ["free"]]
    assert lines == ["validation-accuracy", "validation-abstention"]


def test_unknown_and_missing_figures_leave_gaps(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", training([0], n=5))
    rows = [
        {"step": 2, "entropy": 0.5, "colour": "red"},
        {"step": 1, "entropy": None, "groups": 0, "flat_groups": 0},
        {"step": 3, "entropy": float("inf"), "turns": float("nan"), "components": {}},
        {"step": 2, "entropy": 0.4},
    ]
    lines = "".join(f"{json.dumps(row)}\n" for row in rows)
    # The last line was cut off by a kill.
    (run.folder / "steps.jsonl").write_text(lines + '{"step": 4')
    run.write_json("metrics.json", {"validation": None})
    [training_rows] = read_training([run])
    [chart] = step_charts([training_rows])
    assert (chart.name, list(chart.curves["run"].index)) == ("steps-entropy", [1, 2, 3])
    # The last row of a repeated step counts.
    assert values(chart) == [None, 0.4, None]
    assert validation_charts([training_rows]) == [] == training_rows.alarms
