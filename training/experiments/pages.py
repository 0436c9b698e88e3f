"""What an experiment writes: Markdown with tables, and pictures of several charts.

Knows nothing of runs.
"""

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from art_e.publish import escaped
from evals.report.charts import Chart, write_png
from evals.report.tables import Cell, number, percent, points
from evals.statistics import Estimate
from training.experiments.pooled import Measure


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; its cells are escaped."""
    lines = [columns, ["---"] * len(columns), *([escaped(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(each)} |" for each in lines) + "\n"


def cell(measure: Measure, estimate: Estimate) -> Cell:
    """A figure as the report writes it."""
    return percent(estimate) if measure.share else number(estimate)


def shown(measure: Measure, estimate: Estimate, *, gain: bool = False) -> str:
    """A figure, or a difference of two, with its interval."""
    told = points(estimate) if gain and measure.share else cell(measure, estimate)
    return f"{told.value} {told.interval}".strip()


def write_page(path: Path, parts: Sequence[str]) -> str:
    """Write the parts as a page; its text."""
    text = "\n".join(f"{each.rstrip()}\n" for each in parts)
    path.write_text(text, encoding="utf-8")
    return text


def write_picture(path: Path, charts: Sequence[Chart], columns: int = 2) -> None:
    """Draw the charts as one PNG, so many beside each other."""
    with tempfile.TemporaryDirectory() as folder:
        pictures = []
        for place, chart in enumerate(charts):
            file = Path(folder) / f"{place}.png"
            write_png(chart.draw(titled=True), file)
            with Image.open(file) as drawn:
                pictures.append(drawn.convert("RGB"))
    rows = [pictures[at : at + columns] for at in range(0, len(pictures), columns)]
    heights = [max(each.height for each in row) for row in rows]
    width = max(sum(each.width for each in row) for row in rows)
    whole = Image.new("RGB", (width, sum(heights)), "white")
    for number_of, row in enumerate(rows):
        at = 0
        for each in row:
            whole.paste(each, (at, sum(heights[:number_of])))
            at += each.width
    whole.save(path, format="PNG")


def finite(value: float | None) -> float | None:
    """The value where it is a number that can be drawn."""
    return value if value is not None and math.isfinite(value) else None
