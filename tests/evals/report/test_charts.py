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
    Chart,
    Curve,
    CurveChart,
    Mark,
    svg,
    write_png,
)
from evals.report.entries import measure
from evals.report.tables import comparison_charts
from tests.evals.runs import episodes, training, write_run

HOSTILE = "</text></svg><script>alert(1)</script> $x_1$ #3566b8 id=\"x\" 'y' & -->"


def bars(label: str, *, published: bool = False, log: bool = False) -> BarChart:
    bar = Bar(label, (Mark(0.5, "50%", 0.25, 0.75),), published)
    return BarChart("accuracy", "Accuracy", "Of all.", "share", (bar,), log=log)


def curve(label: str, *values: float | None) -> Curve:
    return Curve(label, tuple(range(len(values))), tuple(Mark(value, "") for value in values))


def markup(chart: Chart) -> str:
    return svg(chart.draw(titled=False), chart.name, chart.title)


def places(drawn: str) -> list[tuple[str, float, float]]:
    """The texts of a picture, and where they stand."""
    return [
        (each.text or "", float(each.get("x", "nan")), float(each.get("y", "nan")))
        for each in ElementTree.fromstring(drawn).iter()
        if "text" in each.tag
    ]


def texts(drawn: str) -> list[str]:
    return [text for text, _, _ in places(drawn)]


def test_a_comparison_has_our_models_and_published_ones_apart(tmp_path: Path) -> None:
    models = [
        *episodes("free", {"right": 5}, cost=0.0),
        *episodes("unpriced", {"wrong": 5}, cost=None),
    ]
    runs = [
        write_run(tmp_path / "a", models),
        write_run(tmp_path / "t", training([0, 10, 20], n=10)),
    ]
    entries = [entry for each in measure(runs) for entry in each.entries]
    charts = comparison_charts(entries)
    assert [each.name for each in charts] == ["accuracy", "mistakes", "cost", "latency", "turns"]
    bars = {each.name: each.bars for each in charts if isinstance(each, BarChart)}
    ours, theirs = bars["accuracy"][:3], bars["accuracy"][3:]
    assert [bar.label for bar in ours] == ["free", "unpriced", "trained, step 20"]
    assert [bar.marks[0].value for bar in ours] == [1, 0, 0.75]
    assert {bar.published for bar in theirs} == {True} != {bar.published for bar in ours}
    assert [bar.marks[0].value for bar in bars["cost"]] == [0, None, 2.0, 0.85, 55.19, 7.88]
    assert bars["cost"][1].marks[0].text == "not known"


def test_the_markup_is_whole_and_in_the_colours_of_the_page() -> None:
    marks = (Mark(3.0, "3.00", 2.5, 3.5), Mark(4.0, "4.00"))
    both = (Bar("a", marks), Bar("b", (Mark(1.0, "1.00"),), published=True))
    drawn = markup(BarChart("turns", "Turns", "", "number", both, series=("turns", "effort")))
    assert {"a", "b (published)", "3.00", "4.00", "1.00", "turns", "effort"} <= set(texts(drawn))
    # Drawn colours are all the page's own, so that they follow light and dark.
    assert not re.findall(r"#[0-9a-f]{6}", drawn)
    assert {"var(--ink)", "var(--series-1)", "var(--series-2)"} <= set(
        re.findall(r"var\([^)]*\)", drawn)
    )
    ids = re.findall(r'\bid="([^"]*)"', drawn)
    assert len(ids) == len(set(ids))
    assert all(each.startswith("turns-") for each in ids)
    assert set(re.findall(r"url\(#([^)]*)\)", drawn)) <= set(ids)
    assert "<pattern" in drawn
    assert "<pattern" not in markup(bars("ours alone"))


@pytest.mark.parametrize("log", [False, True])
def test_a_hostile_name_stays_text(log: bool) -> None:
    chart = bars(HOSTILE, log=log)
    drawn = svg(chart.draw(titled=False), "accuracy", HOSTILE)
    assert "<script" not in drawn
    [shown] = [each for each in texts(drawn) if "text" in each]
    # Cut in the middle, and else as it is: no colour or id in it was replaced, no formula made.
    assert shown.startswith("</text></svg><script>")
    assert shown.endswith("#3566b8 id=\"x\" 'y' & -->")


@pytest.mark.parametrize(
    ("name", "shown"), [("a\ud800\nb\x1b\x00c", "a? b c"), ("模型 \U0001f980", "模型 \U0001f980")]
)
def test_any_name_can_be_drawn(tmp_path: Path, name: str, shown: str) -> None:
    chart = bars(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_png(chart.draw(titled=True), tmp_path / "x.png")
    assert shown in texts(markup(chart))


def test_the_picture_is_on_white_and_has_the_series_colour(tmp_path: Path) -> None:
    write_png(bars("a").draw(titled=True), tmp_path / "a.png")
    pixels = imread(tmp_path / "a.png")
    assert tuple(pixels[0, 0]) == (1, 1, 1, 1)
    colour = [int(SERIES[0][at : at + 2], 16) / 255 for at in (1, 3, 5)]
    same = (abs(pixels[..., :3] - colour) < 0.01).all(axis=-1)
    # A bar of half the plot, which is more than half of the picture wide.
    assert same.sum(axis=1).max() > pixels.shape[1] * 0.25


def test_labels_of_baselines_at_one_height_do_not_lie_on_each_other() -> None:
    marks = (Mark(0.5, ""), Mark(None, ""), Mark(0.75, "", 0.5, 1.0))
    lines = tuple(Baseline(f"baseline {number}", 0.5) for number in range(4))
    chart = CurveChart("c", "C", "", "share", (Curve("a", (0, 1, 2), marks),), lines)
    heights = sorted(y for text, _, y in places(markup(chart)) if text.startswith("baseline"))
    assert len(heights) == 4
    assert all(other - one > 9 for one, other in pairwise(heights))


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("values", [(None,), (None, 0.0)])
def test_figures_that_are_unknown_or_zero_can_be_drawn(
    log: bool, values: tuple[float | None, ...]
) -> None:
    nothing = tuple(Bar(str(value), (Mark(value, "-"),)) for value in values)
    assert "-" in texts(markup(BarChart("cost", "Cost", "", "usd", nothing, log=log)))


@pytest.mark.parametrize("count", [2, 6, 12])
def test_a_legend_has_as_many_lines_as_its_names_need(count: int) -> None:
    names = [f"component number {number}" for number in range(count)]
    chart = CurveChart("c", "C", "", "number", tuple(curve(name, 0.1, 0.2) for name in names))
    drawn = places(markup(chart))
    assert set(names) <= {text for text, _, _ in drawn}
    squares = [(x, y) for text, x, y in drawn if text == "\N{BLACK SQUARE}"]
    assert len(set(squares)) == count
    assert all(0 < x < 300 and y > 0 for x, y in squares)
    # In reading order, and all of them above the first tick of the plot.
    assert squares == sorted(squares, key=lambda each: (each[1], each[0]))
    assert max(y for _, y in squares) < min(y for text, _, y in drawn if text.startswith("0."))


def test_a_smoothed_curve_is_the_mean_of_the_steps_around() -> None:
    values = curve("a", 0.0, 0.0, 3.0, 0.0, 0.0, 9.0)
    chart = CurveChart("c", "C", "", "number", (values,), smooth=3)
    thin, bold = chart.draw(titled=False).axes[0].lines
    assert np.asarray(thin.get_ydata()).tolist() == [0, 0, 3, 0, 0, 9]
    assert np.asarray(bold.get_ydata()).tolist() == [0, 1, 1, 1, 3, 4.5]
    # Single steps are not drawn behind many curves.
    many = tuple(curve(name, 0.0, 3.0) for name in "abcd")
    drawn = CurveChart("c", "C", "", "number", many, smooth=2).draw(titled=False)
    assert len(drawn.axes[0].lines) == 4
