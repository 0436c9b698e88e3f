"""The report's tables: models with their figures, their kinds of question, where they ended.

Knows nothing of markup.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from evals.funnel import STEPS
from evals.report.cells import NONE, Cell, number, percent, seconds, usd
from evals.report.entries import Entry
from evals.report.published import PUBLISHED, accuracy

FUNNEL_WORDS = {
    "right": "right: the right answer, or abstention where there is none",
    "not_found": "gold mail never found",
    "found_not_read": "found, not read",
    "read_but_wrong": "read, answered wrong",
    "judges_disagree": "answered, and the judges disagree",
    "abstained_though_read": "abstained though read",
    "gold_unknown": "wrong, gold mail not known",
    "made_up": "answered where there is no answer",
    "out_of_turns": "out of turns",
    "lost_to_format": "lost to malformed calls",
    "failed": "failed for an outside reason",
    "unjudged": "the judge gave no verdict",
}


class Row(NamedTuple):
    """A row of a table; `heading` rows stand for the ones below and have no cells."""

    label: str
    cells: list[Cell]
    published: bool = False
    heading: bool = False


class Table(NamedTuple):
    """A table; the first heading is that of the labels."""

    headings: list[str]
    rows: list[Row]


class Column(NamedTuple):
    """A figure of the headline: its heading, and how a model's is written.

    A `rare` one is left out where it is nothing for all models.
    """

    heading: str
    of: Callable[[dict[str, Any]], Cell]
    rare: bool = False


HEADLINE = (
    Column("Accuracy", lambda figures: percent(figures["accuracy"])),
    Column("Right to abstain", lambda figures: percent(figures["unanswerable_accuracy"])),
    Column("Hallucination", lambda figures: percent(figures["hallucination"])),
    Column("Abstention", lambda figures: percent(figures["abstention"])),
    Column("Turns", lambda figures: number(figures["turns"])),
    Column("Effort", lambda figures: number(figures["effort"])),
    Column("Cost per 1,000", lambda figures: usd(figures["cost_per_1000_usd"])),
    Column("Latency p50", lambda figures: seconds(figures["latency_p50_s"])),
    Column("Latency p95", lambda figures: seconds(figures["latency_p95_s"])),
    Column("Errors", lambda figures: Cell(f"{figures['errors']:,}", n=figures["n"])),
    Column("Unjudged", lambda figures: Cell(f"{figures['unjudged']:,}", n=figures["n"]), rare=True),
    Column("Judges agree", lambda figures: _agreement(figures["agreement"]), rare=True),
)


def headline(entries: Sequence[Entry]) -> Table:
    """The models with their figures, and the published rows below, marked as such."""
    columns = [
        column
        for column in HEADLINE
        if not column.rare or any(_tells(column.of(each.figures)) for each in entries)
    ]
    rows = [Row(each.label, [column.of(each.figures) for column in columns]) for each in entries]
    for each in PUBLISHED:
        known = {
            "Accuracy": percent(accuracy(each)),
            "Cost per 1,000": _as_told("$", each.cost_per_1000_usd, ""),
            "Latency p50": _as_told("", each.seconds, " s"),
        }
        cells = [known.get(column.heading, Cell(NONE)) for column in columns]
        rows.append(Row(each.model, cells, published=True))
    return Table(["Model", *(column.heading for column in columns)], rows)


def by_label(entries: Sequence[Entry], by: str, heading: str) -> Table:
    """The shares of each kind or difficulty (`by` is "by_kind" or "by_difficulty")."""
    columns = HEADLINE[:4]
    # In the order in which the figures have them, which is the same for all models.
    labels = dict.fromkeys(label for each in entries for label in each.figures[by])
    rows = []
    for label in labels:
        having = [each for each in entries if label in each.figures[by]]
        if len(entries) > 1:
            rows.append(Row(label, [], heading=True))
        for each in having:
            cells = [column.of(each.figures[by][label]) for column in columns]
            rows.append(Row(each.label if len(entries) > 1 else label, cells))
    return Table([heading, *(column.heading for column in columns)], rows)


def funnel(entries: Sequence[Entry]) -> Table:
    """Where the episodes of each model ended; steps that none of them ended at are left out."""
    rows = []
    for step in STEPS:
        counts = [(each.figures["funnel"][step], each.figures["n"]) for each in entries]
        if any(count for count, _ in counts):
            cells = [Cell(f"{count:,}", f"{count / n:.0%}", n, count / n) for count, n in counts]
            rows.append(Row(FUNNEL_WORDS[step], cells))
    return Table(["Ended", *(each.label for each in entries)], rows)


def judged(entries: Sequence[Entry]) -> Table | None:
    """The accuracy by each judge, where a second one was asked."""
    judges = dict.fromkeys(judge for each in entries for judge in each.figures["by_judge"])
    if len(judges) < 2:
        return None
    rows = []
    for each in entries:
        agreement = each.figures["agreement"]
        kappa = Cell(NONE) if agreement is None else number(agreement["kappa"])
        by_judge = each.figures["by_judge"]
        accuracies = [
            percent(by_judge[judge]["accuracy"]) if judge in by_judge else Cell(NONE)
            for judge in judges
        ]
        rows.append(Row(each.label, [*accuracies, _agreement(agreement), kappa]))
    headings = ["Model", *(f"Accuracy by {judge}" for judge in judges), "Agree", "Cohen's kappa"]
    return Table(headings, rows)


def methods(figures: Iterable[dict[str, Any]]) -> list[str]:
    """How the intervals of these figures were worked out, each way once."""
    found = {
        value["method"]
        for each in figures
        for value in each.values()
        if isinstance(value, dict) and value.get("method")
    }
    return sorted(found)


def _as_told(before: str, value: float | None, after: str) -> Cell:
    return Cell(NONE) if value is None else Cell(f"{before}{value:,}{after}")


def _agreement(agreement: dict[str, Any] | None) -> Cell:
    return Cell(NONE) if agreement is None else percent(agreement["share"])


def _tells(cell: Cell) -> bool:
    return cell.value not in (NONE, "0")
