"""Which charts there are, and that what they draw is what the figures say."""

import dataclasses
import re
import warnings
from pathlib import Path
from xml.etree import ElementTree

import pytest

from evals.report.charts import Bar, BarChart, Mark, Scale, svg, write_png
from evals.report.entries import measure
from evals.report.tables import comparison_charts
from tests.evals.runs import episodes, training, write_run

HOSTILE = "</text></svg><script>alert(1)</script> $x_1$ #3566b8 id=\"x\" 'y' & -->"


def bars(label: str, scale: Scale = "share") -> BarChart:
    bar = Bar(label, (Mark(0.5, "50%", 0.25, 0.75),))
    return BarChart("accuracy", "Accuracy", "Of all.", scale, (bar,))


def texts(drawn: str) -> list[str]:
    """The texts of a picture."""
    return [each.text or "" for each in ElementTree.fromstring(drawn).iter() if "text" in each.tag]


def test_a_comparison_has_our_models_and_published_ones_apart(tmp_path: Path) -> None:
    models = [
        *episodes("free", {"right": 5}, cost=0.0),
        *episodes("unpriced", {"wrong": 5}, cost=None),
    ]
    runs = [
        write_run(tmp_path / "a", models),
        write_run(tmp_path / "t", training([0, 10, 20], n=10)),
    ]
    entries = measure(runs)
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
    drawn = svg(BarChart("turns", "Turns", "", "number", both, series=("turns", "effort")))
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
    assert "<pattern" not in svg(bars("ours alone"))


@pytest.mark.parametrize("scale", ["share", "usd"])
def test_a_hostile_name_stays_text(scale: Scale) -> None:
    chart = bars(HOSTILE, scale)
    drawn = svg(dataclasses.replace(chart, title=HOSTILE))
    assert "<script" not in drawn
    [shown] = [each for each in texts(drawn) if "text" in each]
    # Cut in the middle, and else as it is: no colour or id in it was replaced, no formula made.
    assert shown.startswith("</text></svg><script>")
    assert shown.endswith("#3566b8 id=\"x\" 'y' & -->")


@pytest.mark.parametrize("name", ["a\ud800\nb\x1b\x00c", "模型 \U0001f980"])
def test_any_name_can_be_drawn(tmp_path: Path, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_png(bars(name).draw(titled=True), tmp_path / "x.png")
    assert name.replace("\ud800\n", "? ").replace("\x1b\x00", " ") in texts(svg(bars(name)))


@pytest.mark.parametrize("scale", ["usd", "number"])
def test_figures_that_are_unknown_or_zero_can_be_drawn(scale: Scale) -> None:
    for values in ((None,), (None, 0.0)):
        nothing = tuple(Bar(str(value), (Mark(value, "-"),)) for value in values)
        assert "-" in texts(svg(BarChart("cost", "Cost", "", scale, nothing)))
