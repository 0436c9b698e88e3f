"""Which charts there are, and that what they draw is what the figures say."""

import re
import warnings
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.image import imread

from evals.report.charts import (
    SERIES,
    Bar,
    BarChart,
    Baseline,
    Curve,
    CurveChart,
    Mark,
    svg,
    write_png,
)
from evals.report.entries import Entry, measure
from evals.report.tables import comparison_charts
from tests.evals.runs import episodes, training, write_run

HOSTILE = "</text></svg><script>alert(1)</script> $x_1$ #3566b8 id=\"x\" 'y' & -->"


def bars(*labels: str, published: bool = False, log: bool = False) -> BarChart:
    made = tuple(Bar(each, (Mark(0.5, "50%", 0.25, 0.75),), published) for each in labels)
    return BarChart("accuracy", "Accuracy", "Of all.", "share", made, log=log)


def entries_of(tmp_path: Path) -> list[Entry]:
    models = [
        *episodes("free", {"right": 5}, cost=0.0),
        *episodes("unpriced", {"wrong": 5}, cost=None),
    ]
    runs = [
        write_run(tmp_path / "a", models),
        write_run(tmp_path / "t", training([0, 10, 20], n=10)),
    ]
    return [entry for each in measure(runs) for entry in each.entries]


def texts(markup: str) -> list[str]:
    return [each.text or "" for each in ElementTree.fromstring(markup).iter() if "text" in each.tag]


def test_a_comparison_has_our_models_and_published_ones_apart(tmp_path: Path) -> None:
    drawn = {each.name: each for each in comparison_charts(entries_of(tmp_path))}
    assert list(drawn) == ["accuracy", "mistakes", "cost", "latency", "turns"]
    accuracy = drawn["accuracy"]
    assert isinstance(accuracy, BarChart)
    ours, theirs = accuracy.bars[:3], accuracy.bars[3:]
    assert [(bar.label, bar.published) for bar in ours] == [
        ("free", False), ("unpriced", False), ("trained, step 20", False),
    ]  # fmt: skip
    assert all(bar.published for bar in theirs)
    assert [bar.marks[0].value for bar in ours] == [1, 0, 0.75]
    cost = drawn["cost"]
    assert isinstance(cost, BarChart)
    assert [bar.marks[0].value for bar in cost.bars[:2]] == [0, None]
    assert [bar.marks[0].value for bar in cost.bars[3:]] == [0.85, 55.19, 7.88]
    assert cost.bars[1].marks[0].text == "not known"


def test_the_markup_is_whole_and_in_the_colours_of_the_page() -> None:
    chart = BarChart(
        "turns",
        "Turns",
        "",
        "number",
        (
            Bar("a", (Mark(3.0, "3.00", 2.5, 3.5), Mark(4.0, "4.00"))),
            Bar("b", (Mark(1.0, "1.00"),), True),
        ),
        series=("turns", "effort"),
    )
    markup = svg(chart.draw(titled=False), chart.name, chart.title)
    assert {"a", "b (published)", "3.00", "4.00", "1.00", "turns", "effort"} <= set(texts(markup))
    # Drawn colours are all the page's own, so that they follow light and dark.
    assert not re.findall(r"#[0-9a-f]{6}", markup)
    assert {"var(--ink)", "var(--series-1)", "var(--series-2)"} <= set(
        re.findall(r"var\([^)]*\)", markup)
    )
    ids = re.findall(r'\bid="([^"]*)"', markup)
    assert len(ids) == len(set(ids))
    assert all(each.startswith("turns-") for each in ids)
    for reference in re.findall(r"url\(#([^)]*)\)", markup):
        assert reference in ids


def test_a_published_bar_is_hatched_and_ours_is_not() -> None:
    ours, theirs = (
        svg(bars("a", published=each).draw(titled=False), "c", "C") for each in (False, True)
    )
    assert "<pattern" not in ours
    assert "<pattern" in theirs


@pytest.mark.parametrize("log", [False, True])
def test_a_hostile_name_stays_text(log: bool) -> None:
    chart = bars(HOSTILE, log=log)
    markup = svg(chart.draw(titled=False), "accuracy", f"{HOSTILE}")
    assert "<script" not in markup
    shown = [each for each in texts(markup) if "text" in each]
    # Cut in the middle, and else as it is: no colour or id in it was replaced, no formula made.
    assert len(shown) == 1
    assert shown[0].startswith("</text></svg><script>")
    assert shown[0].endswith("#3566b8 id=\"x\" 'y' & -->")


def test_what_can_not_be_drawn_in_a_name_is_left_out(tmp_path: Path) -> None:
    chart = bars("a\ud800\nb\x1b\x00c")
    write_png(chart.draw(titled=True), tmp_path / "x.png")
    assert "a? b c" in texts(svg(chart.draw(titled=False), "x", "X"))


def test_a_name_in_any_script_can_be_drawn(tmp_path: Path) -> None:
    chart = bars("模型 \U0001f980")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_png(chart.draw(titled=True), tmp_path / "x.png")
    assert "模型 \U0001f980" in texts(svg(chart.draw(titled=False), "x", "X"))


def test_the_picture_is_on_white_and_has_the_series_colour(tmp_path: Path) -> None:
    write_png(bars("a").draw(titled=True), tmp_path / "a.png")
    pixels = imread(tmp_path / "a.png")
    assert tuple(pixels[0, 0]) == (1, 1, 1, 1)
    colour = [int(SERIES[0][at : at + 2], 16) / 255 for at in (1, 3, 5)]
    same = (abs(pixels[..., :3] - colour) < 0.01).all(axis=-1)
    # A bar of half the plot, which is more than half of the picture wide.
    assert same.sum(axis=1).max() > pixels.shape[1] * 0.25


def test_a_curve_without_intervals_or_with_gaps_can_be_drawn() -> None:
    curve = Curve("a", (0, 1, 2), (Mark(0.5, ""), Mark(None, ""), Mark(0.75, "", 0.5, 1.0)))
    lines = tuple(Baseline(f"baseline {number}", 0.5) for number in range(4))
    chart = CurveChart("c", "C", "", "share", (curve, curve), lines)
    markup = svg(chart.draw(titled=False), "c", "C")
    root = ElementTree.fromstring(markup)
    heights = {
        each.text: float(each.get("y", "nan"))
        for each in root.iter()
        if (each.text or "").startswith("baseline")
    }
    assert len(heights) == 4
    # Labels of lines at one height don't lie on each other.
    ordered = sorted(heights.values())
    assert all(other - one > 9 for one, other in pairwise(ordered))


def test_figures_that_are_all_unknown_or_nothing_can_be_drawn() -> None:
    nothing = tuple(Bar(str(value), (Mark(value, "-"),)) for value in (None, 0.0))
    for log in (False, True):
        for shown in (nothing[:1], nothing):
            chart = BarChart("cost", "Cost", "", "usd", shown, log=log)
            assert "-" in texts(svg(chart.draw(titled=False), "cost", "Cost"))


def squares(markup: str) -> list[tuple[float, float]]:
    """Where the squares of a legend stand."""
    root = ElementTree.fromstring(markup)
    marks = [each for each in root.iter() if each.text == "\N{BLACK SQUARE}"]
    return [(float(each.get("x", "nan")), float(each.get("y", "nan"))) for each in marks]


@pytest.mark.parametrize("count", [2, 6, 12])
def test_a_legend_has_as_many_lines_as_its_names_need(count: int) -> None:
    names = [f"component number {number}" for number in range(count)]
    curves = tuple(Curve(name, (0, 1), (Mark(0.1, ""), Mark(0.2, ""))) for name in names)
    chart = CurveChart("c", "C", "", "number", curves)
    markup = svg(chart.draw(titled=False), "c", "C")
    assert set(names) <= set(texts(markup))
    places = squares(markup)
    assert len(set(places)) == count
    assert all(0 < x < 300 and y > 0 for x, y in places)
    # In reading order, and all of them above the first tick of the plot.
    assert places == sorted(places, key=lambda each: (each[1], each[0]))
    ticks = [
        float(each.get("y", "nan"))
        for each in ElementTree.fromstring(markup).iter()
        if (each.text or "").startswith("0.")
    ]
    assert max(y for _, y in places) < min(ticks)


def test_a_smoothed_curve_is_the_mean_of_the_steps_around() -> None:
    marks = tuple(Mark(value, "") for value in (0.0, 0.0, 3.0, 0.0, 0.0, 9.0))
    chart = CurveChart("c", "C", "", "number", (Curve("a", tuple(range(6)), marks),), smooth=3)
    thin, bold = chart.draw(titled=False).axes[0].lines
    assert np.asarray(thin.get_ydata()).tolist() == [0, 0, 3, 0, 0, 9]
    assert np.asarray(bold.get_ydata()).tolist() == [0, 1, 1, 1, 3, 4.5]


def test_single_steps_are_not_drawn_behind_many_curves() -> None:
    marks = (Mark(0.0, ""), Mark(3.0, ""))
    curves = tuple(Curve(name, (0, 1), marks) for name in "abcd")
    chart = CurveChart("c", "C", "", "number", curves, smooth=2)
    assert len(chart.draw(titled=False).axes[0].lines) == 4
