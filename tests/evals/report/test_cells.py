"""How a figure is written."""

from collections.abc import Callable

import pytest

from evals.report import tables as cells
from evals.statistics import Estimate


def estimate(value: float | None, low: float | None = None, high: float | None = None) -> Estimate:
    return Estimate(value=value, low=low, high=high, n=71, method="wilson")


@pytest.mark.parametrize(
    ("cell", "line"),
    [
        (cells.percent(estimate(0.6164, 0.5, 0.7)), "61.6% [50.0, 70.0]  n=71"),
        (cells.number(estimate(3.205, 3.1, 3.3)), "3.21 [3.10, 3.30]  n=71"),
        (cells.usd(estimate(1234.5, 1000, 1500)), "$1,234.50 [1,000.00, 1,500.00]  n=71"),
        (cells.usd(estimate(0.00071)), "$0.00071  n=71"),
        (cells.usd(estimate(0.0)), "$0.00  n=71"),
        (cells.seconds(estimate(5.6, 5, 6.25)), "5.60 s [5.00, 6.25]  n=71"),
        (cells.seconds(estimate(0.0123, 0.01, 0.02)), "12.3 ms [10.0, 20.0]  n=71"),
    ],
)
def test_figures_are_written_with_interval_and_n(cell: cells.Cell, line: str) -> None:
    assert cell.line == line


@pytest.mark.parametrize("written", [cells.percent, cells.number, cells.points, cells.tokens])
def test_what_rounds_to_zero_has_no_sign(written: Callable[[Estimate], cells.Cell]) -> None:
    assert "-" not in written(estimate(-0.0001, -0.0002, -0.00005)).line


def test_what_is_not_known_is_a_dash() -> None:
    assert cells.percent(estimate(None)).value == cells.NONE
