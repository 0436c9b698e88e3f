"""Two models side by side: what sets them apart, and the questions that flipped.

Knows nothing of markup; the statistics are those of `evals.paired`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from art_e.errors import UserError
from evals.intervals import Estimate
from evals.paired import compare
from evals.report.cells import (
    NONE,
    Cell,
    milliseconds,
    number,
    percent,
    plain_seconds,
    points,
    seconds,
    usd,
)
from evals.report.entries import Entry, Measured
from evals.report.tables import Row, Table


class Flip(NamedTuple):
    """A question that one of two models has right; `fragment` is where the viewer shows both."""

    question: str
    right: str
    fragment: str


class Pairing(NamedTuple):
    """Two models side by side: a table of differences, what is said of them, what flipped."""

    title: str
    table: Table
    summary: list[str]
    flips: list[Flip]


def pairings(measured: Sequence[Measured]) -> list[Pairing]:
    """Every two models that were asked the same questions, the later against the earlier."""
    entries = [(entry, each.timed) for each in measured for entry in each.entries]
    made = []
    for place, (b, b_timed) in enumerate(entries):
        for a, a_timed in entries[:place]:
            try:
                made.append(_pairing(a, b, timed=a_timed and b_timed))
            except UserError:
                continue  # they have no question in common, or several rollouts of one
    return made


class _Difference(NamedTuple):
    """A figure of `evals.paired`: its heading, how a side of it is written, how a difference."""

    heading: str
    side: Callable[[Estimate], Cell]
    difference: Callable[[Estimate], Cell]


_DIFFERENCES = {
    "accuracy": _Difference("Accuracy", percent, points),
    "unanswerable_accuracy": _Difference("Right to abstain", percent, points),
    "hallucination": _Difference("Hallucination", percent, points),
    "abstention": _Difference("Abstention", percent, points),
    "turns": _Difference("Turns", number, number),
    "effort": _Difference("Effort", number, number),
    "cost_per_1000_usd": _Difference("Cost per 1,000", usd, usd),
    "latency_mean_s": _Difference("Latency, mean", seconds, plain_seconds),
}


def differences(figures: Mapping[str, Any]) -> list[Row]:
    """A row for each of the "figures" of `evals.paired.compare`: A, B, and B - A with its sign."""
    rows = []
    for name, figure in figures.items():
        written = _DIFFERENCES[name]
        sides = [written.side(_bare(figure[side])) for side in ("a", "b")]
        # A difference of milliseconds is told in them.
        few = all(cell.value.endswith(" ms") for cell in sides)
        difference = (milliseconds if few else written.difference)(figure["difference"])
        rows.append(Row(written.heading, [*sides, _signed(difference)]))
    return rows


def _pairing(a: Entry, b: Entry, *, timed: bool) -> Pairing:
    compared = compare(a.scored, b.scored, timed=timed)
    mended, broken = (percent(compared[name]) for name in ("mended", "broken"))
    left_out = sum(compared["left_out"].values())
    summary = [
        f"McNemar's exact p = {compared['p']:.3g}: {compared['only_a']} questions right only in"
        f" {a.label}, {compared['only_b']} only in {b.label}.",
        f"{b.label} mends {mended.line} of {a.label}'s errors; {a.label} has right"
        f" {broken.line} of {b.label}'s.",
    ]
    if compared["needed"] is not None:
        summary.append(
            f"To tell accuracies so far apart (80 % power, 5 % level) takes about"
            f" {compared['needed']:,} questions; {compared['n']:,} episodes were paired."
        )
    sources = [
        f"Cost of {each.label}: {each.figures['cost_source']}."
        for each in (a, b)
        if each.figures["throughput"] is not None
    ]
    if "cost_per_1000_usd" in compared["figures"]:
        summary += sources
    if left_out:
        summary.append(f"{left_out:,} episodes that only one of them has are left out.")
    flips = [_flip(flip, a, b) for flip in compared["flipped"]]
    return Pairing(
        f"{b.label} against {a.label}",
        Table(["Figure", a.label, b.label, "Difference"], differences(compared["figures"])),
        summary,
        flips,
    )


def _flip(flip: dict[str, Any], a: Entry, b: Entry) -> Flip:
    """The viewer knows an episode by its id, and the one beside it as "with"."""
    ids = [_episode_id(each, flip["question_id"], flip["repeat"]) for each in (a, b)]
    fragment = "episode={}&with={}".format(*(quote(each, safe="") for each in ids))
    return Flip(flip["question"], (a if flip["right"] == "a" else b).label, fragment)


def _episode_id(entry: Entry, question_id: str, repeat: int) -> str:
    return next(
        each.trajectory.episode_id
        for each in entry.scored
        if (each.question.id, each.trajectory.repeat) == (question_id, repeat)
    )


def _bare(value: float) -> Estimate:
    return Estimate(value=value, low=None, high=None, n=0, method=None)


def _signed(cell: Cell) -> Cell:
    return cell if cell.value.startswith(("-", NONE)) else cell._replace(value=f"+{cell.value}")
