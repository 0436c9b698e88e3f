"""Figures as the report writes them: a number, its 95 % interval, and of how many.

What rounds to zero has no sign. Knows nothing of what the figures are of.
"""

from collections.abc import Callable
from typing import NamedTuple

from evals.intervals import Estimate

NONE = "–"
_FEW = 0.1  # latencies below so many seconds are told in milliseconds


class Cell(NamedTuple):
    """A figure as text, its interval, of how many; `share` draws a bar of that part behind it."""

    value: str
    interval: str = ""
    n: int | None = None
    share: float | None = None

    @property
    def line(self) -> str:
        """The cell on one line, for charts."""
        n = "" if self.n is None else f"n={self.n:,}"
        return "  ".join(filter(None, (f"{self.value} {self.interval}".strip(), n)))


def percent(estimate: Estimate) -> Cell:
    """A share, such as 61.6%."""
    return _cell(estimate, lambda value: f"{value:z.1%}", lambda value: f"{100 * value:z.1f}")


def number(estimate: Estimate) -> Cell:
    """A count's mean, such as 3.20."""
    return _cell(estimate, lambda value: f"{value:z.2f}", lambda value: f"{value:z.2f}")


def digits(estimate: Estimate) -> Cell:
    """A number of any size, by the three digits that count, such as 15.9 or 0.0175."""
    return _cell(estimate, _three_digits, _three_digits)


def tokens(estimate: Estimate) -> Cell:
    """A mean of tokens, in whole ones, such as 2,480."""
    return _cell(estimate, lambda value: f"{value:z,.0f}", lambda value: f"{value:z,.0f}")


def usd(estimate: Estimate) -> Cell:
    """US dollars; below a cent with the digits that count."""
    return _cell(estimate, lambda value: f"{'-' if value < 0 else ''}${_money(abs(value))}", _money)


def seconds(estimate: Estimate) -> Cell:
    """Seconds, or milliseconds where there are few."""
    value = estimate["value"]
    return milliseconds(estimate) if value is not None and value < _FEW else plain_seconds(estimate)


def milliseconds(estimate: Estimate) -> Cell:
    """Seconds told as milliseconds."""
    return _cell(
        estimate, lambda value: f"{1000 * value:z.1f} ms", lambda value: f"{1000 * value:z.1f}"
    )


def plain_seconds(estimate: Estimate) -> Cell:
    """Seconds, however few."""
    return _cell(estimate, lambda value: f"{value:z.2f} s", lambda value: f"{value:z.2f}")


def points(estimate: Estimate) -> Cell:
    """A difference of shares."""
    return _cell(
        estimate, lambda value: f"{100 * value:z.1f} pts", lambda value: f"{100 * value:z.1f}"
    )


def _cell(estimate: Estimate, shown: Callable[[float], str], bound: Callable[[float], str]) -> Cell:
    value, low, high = estimate["value"], estimate["low"], estimate["high"]
    if value is None:
        return Cell(NONE, n=estimate["n"] or None)
    interval = "" if low is None or high is None else f"[{bound(low)}, {bound(high)}]"
    return Cell(shown(value), interval, estimate["n"] or None)


def _three_digits(value: float) -> str:
    return f"{value:z,.0f}" if abs(value) >= 100 else f"{value:z.3g}"


def _money(value: float) -> str:
    return f"{value:z,.2f}" if abs(value) >= 0.01 or value == 0 else f"{value:z.2g}"
