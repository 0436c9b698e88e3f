"""The report's tables and bars: models with their figures, kinds of question, where they ended."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from evals.metrics import STEPS
from evals.report.charts import Bar, BarChart, Chart, Mark
from evals.report.entries import Entry, Measured
from evals.statistics import Estimate, Sample

# ---- Figures as the report writes them: a number, its 95 % interval, and of how many.

NONE = "–"
_FEW = 0.1  # shorter latencies, in seconds, are shown in milliseconds


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
    return _cell(estimate, lambda value: f"{100 * value:z.1f}", "%")


def points(estimate: Estimate) -> Cell:
    """A difference of shares, such as 4.2 pts."""
    return _cell(estimate, lambda value: f"{100 * value:z.1f}", " pts")


def number(estimate: Estimate) -> Cell:
    """A count's mean, such as 3.20."""
    return _cell(estimate, lambda value: f"{value:z.2f}")


def digits(estimate: Estimate) -> Cell:
    """A number of any size with three significant digits, such as 15.9 or 0.0175."""
    return _cell(estimate, lambda value: f"{value:z,.0f}" if abs(value) >= 100 else f"{value:z.3g}")


def tokens(estimate: Estimate) -> Cell:
    """A mean of tokens, in whole ones, such as 2,480."""
    return _cell(estimate, lambda value: f"{value:z,.0f}")


def usd(estimate: Estimate) -> Cell:
    """US dollars; below a cent with two significant digits."""
    cell = _cell(
        estimate,
        lambda value: f"{value:z,.2f}" if abs(value) >= 0.01 or value == 0 else f"{value:z.2g}",
    )
    return cell if cell.value == NONE else cell._replace(value=f"${cell.value}".replace("$-", "-$"))


def seconds(estimate: Estimate) -> Cell:
    """Seconds, or milliseconds below a tenth of a second."""
    value = estimate["value"]
    return milliseconds(estimate) if value is not None and value < _FEW else plain_seconds(estimate)


def milliseconds(estimate: Estimate) -> Cell:
    """Seconds as milliseconds."""
    return _cell(estimate, lambda value: f"{1000 * value:z.1f}", " ms")


def plain_seconds(estimate: Estimate) -> Cell:
    """Seconds, however few."""
    return _cell(estimate, lambda value: f"{value:z.2f}", " s")


def _cell(estimate: Estimate, shown: Callable[[float], str], unit: str = "") -> Cell:
    value, low, high = estimate["value"], estimate["low"], estimate["high"]
    if value is None:
        return Cell(NONE, n=estimate["n"] or None)
    interval = "" if low is None or high is None else f"[{shown(low)}, {shown(high)}]"
    return Cell(f"{shown(value)}{unit}", interval, estimate["n"] or None)


# ---- Figures that ART-E's authors published, to set beside ours and never to mix with them.

SOURCE = (
    "Published with ART-E's reference implementation: 100 test questions on Enron mail, judged by"
    " its authors' judge, at the prices of their day. Not measured here and not on these"
    " questions. The intervals are ours, from the published share and n (Wilson)."
    " o3's cost was later given as $11.04."
)


@dataclass(frozen=True, slots=True)
class Published:
    """One model's published figures; None where none was given. `accuracy` is of `n` questions.
    `name` is litellm's; None for a model that is nobody's to call: the trained one, and what it
    was before."""

    model: str
    accuracy: float
    name: str | None = None
    seconds: float | None = None
    cost_per_1000_usd: float | None = None
    n: int = 100


PUBLISHED = (
    TRAINED := Published("ART-E (Qwen2.5-14B, trained)", 0.96, seconds=1.1, cost_per_1000_usd=0.85),
    O3 := Published("o3", 0.90, "openai/o3", seconds=5.6, cost_per_1000_usd=55.19),
    Published("o4-mini", 0.88, "openai/o4-mini", seconds=3.4, cost_per_1000_usd=7.88),
    Published("Gemini 2.5 Pro", 0.76, "gemini/gemini-2.5-pro"),
    Published("GPT-4.1", 0.71, "openai/gpt-4.1"),
    UNTRAINED := Published("Qwen2.5-14B, untrained", 0.41),
)
# Of the talk besides: what of o3's errors the trained model mends, and what training took.
MENDED = 0.60
TRAINING_USD = 80


def accuracy(published: Published) -> Estimate:
    """The published share, with the interval that its n implies."""
    right = round(published.accuracy * published.n)
    return Sample(
        ["published"] * published.n, [str(number) for number in range(published.n)]
    ).share([number < right for number in range(published.n)])


# ---- The report's tables: models with their figures, their kinds of question, where they ended.


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


class FigureColumn(NamedTuple):
    """A figure of the models: its heading, and how a model's is written.

    A `rare` one is left out where it is nothing for all models.
    """

    heading: str
    of: Callable[[dict[str, Any]], Cell]
    rare: bool = False


def _cost(figures: dict[str, Any]) -> Cell:
    cell = usd(figures["cost_per_1000_usd"])
    if figures["throughput"] is None or cell.value == NONE:
        return cell
    return cell._replace(value=f"{cell.value} measured")


def _measured(figures: dict[str, Any], name: str) -> Cell:
    return digits(figures["throughput"][name])


def _at_once(figures: dict[str, Any]) -> Cell:
    at_once = figures["throughput"]["at_once"]
    asked = figures["throughput"]["concurrency"]
    return Cell(NONE if at_once is None else f"{at_once:.1f} of {asked}")


HEADLINE = (
    FigureColumn("Accuracy", lambda figures: percent(figures["accuracy"])),
    FigureColumn("Right to abstain", lambda figures: percent(figures["unanswerable_accuracy"])),
    FigureColumn("Hallucination", lambda figures: percent(figures["hallucination"])),
    FigureColumn("Abstention", lambda figures: percent(figures["abstention"])),
    FigureColumn("Turns", lambda figures: number(figures["turns"])),
    FigureColumn("Effort", lambda figures: number(figures["effort"])),
    FigureColumn("Cost per 1,000", _cost),
    FigureColumn("Latency p50", lambda figures: seconds(figures["latency_p50_s"])),
    FigureColumn("Latency p95", lambda figures: seconds(figures["latency_p95_s"])),
    FigureColumn("Errors", lambda figures: Cell(f"{figures['errors']:,}", n=figures["n"])),
    FigureColumn(
        "Unjudged", lambda figures: Cell(f"{figures['unjudged']:,}", n=figures["n"]), rare=True
    ),
    FigureColumn("Judges agree", lambda figures: _agreement(figures["agreement"]), rare=True),
)

# Two tables, for one would be too wide to be read without scrolling.
SOURCES = (
    FigureColumn("Grounded", lambda figures: percent(figures["grounded"])),
    FigureColumn("Found gold", lambda figures: percent(figures["found_gold"])),
    FigureColumn("Read gold", lambda figures: percent(figures["read_gold"])),
    FigureColumn("Sources right", lambda figures: percent(figures["sources_correct"])),
    FigureColumn("Always right", lambda figures: _if_any(figures["always_right"]), rare=True),
    FigureColumn("Unjudged", lambda figures: Cell(f"{figures['unjudged']:,}", n=figures["n"])),
    FigureColumn("Retries", lambda figures: Cell(f"{figures['retries']:,}", n=figures["n"])),
)
TOKENS_AND_TIME = (
    FigureColumn("Prompt tokens", lambda figures: tokens(figures["tokens"]["prompt_tokens"])),
    FigureColumn(
        "Cached tokens", lambda figures: tokens(figures["tokens"]["cached_prompt_tokens"])
    ),
    FigureColumn(
        "Completion tokens", lambda figures: tokens(figures["tokens"]["completion_tokens"])
    ),
    FigureColumn("Reasoning tokens", lambda figures: tokens(figures["tokens"]["reasoning_tokens"])),
    FigureColumn("Time in model", lambda figures: seconds(figures["latency_parts_s"]["model"])),
    FigureColumn("Time in tools", lambda figures: seconds(figures["latency_parts_s"]["tools"])),
    FigureColumn("Other time", lambda figures: seconds(figures["latency_parts_s"]["rest"])),
)
THROUGHPUT = (
    FigureColumn("Questions", lambda figures: _measured(figures, "questions_per_second")),
    FigureColumn("Prompt tokens", lambda figures: _measured(figures, "prompt_tokens_per_second")),
    FigureColumn(
        "Completion tokens", lambda figures: _measured(figures, "completion_tokens_per_second")
    ),
    FigureColumn("GPU hours per 1,000", lambda figures: _measured(figures, "gpu_hours_per_1000")),
    FigureColumn("Under way at a time", _at_once),
    FigureColumn("Cost per 1,000", _cost),
)


def headline(entries: Sequence[Entry]) -> Table:
    """The models with their figures, and the published rows below, marked as such."""
    columns = _told(HEADLINE, entries)
    rows = _rows(columns, entries)
    for each in PUBLISHED:
        known = {
            "Accuracy": percent(accuracy(each)),
            "Cost per 1,000": _as_told("$", each.cost_per_1000_usd, ""),
            "Latency p50": _as_told("", each.seconds, " s"),
        }
        cells = [known.get(column.heading, Cell(NONE)) for column in columns]
        rows.append(Row(each.model, cells, published=True))
    return Table(["Model", *(column.heading for column in columns)], rows)


def details(entries: Sequence[Entry], of: Sequence[FigureColumn]) -> Table:
    """What is behind the headline; `of` is `SOURCES`, `TOKENS_AND_TIME` or `THROUGHPUT`."""
    columns = _told(of, entries)
    headings = ["Model", *(column.heading for column in columns)]
    return Table(headings, _rows(columns, entries))


def throughput(entries: Sequence[Entry]) -> Table | None:
    """The throughput of self-hosted models; None if none was measured."""
    measured = [each for each in entries if each.figures["throughput"] is not None]
    return details(measured, THROUGHPUT) if measured else None


def cost_sources(entries: Sequence[Entry]) -> str:
    """A sentence on where the costs are from; empty where all are by a price per token."""
    measured = [
        f"{each.label}: {each.figures['cost_source'] or 'not measured'}"
        for each in entries
        if each.figures["throughput"] is not None
    ]
    return f"Cost of {'; '.join(measured)}. Other costs are by price per token." if measured else ""


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
    for step, words in STEPS.items():
        counts = [(each.figures["funnel"][step], each.figures["n"]) for each in entries]
        if any(count for count, _ in counts):
            cells = [Cell(f"{count:,}", f"{count / n:.0%}", n, count / n) for count, n in counts]
            rows.append(Row(words, cells))
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


def labelled(measured: Sequence[Measured]) -> Table | None:
    """How far each judge agrees with a person's labels, by run; None where no run has any."""
    having = [each for each in measured if each.by_labels]
    if not having:
        return None
    rows = []
    for each in having:
        if len(measured) > 1:
            rows.append(Row(each.run.id, [], heading=True))
        for judge, told in each.by_labels.items():
            rows.append(Row(judge, [percent(told["agreement"]), number(told["kappa"])]))
    return Table(["Judge", "Agrees with the labels", "Cohen's kappa"], rows)


def methods(figures: Iterable[dict[str, Any]]) -> list[str]:
    """How the intervals of these figures were worked out, each way once."""
    found = {
        value["method"]
        for each in figures
        for value in each.values()
        if isinstance(value, dict) and value.get("method")
    }
    return sorted(found)


def _told(columns: Sequence[FigureColumn], entries: Sequence[Entry]) -> list[FigureColumn]:
    """The columns without the rare ones that say nothing of any model."""
    return [
        column
        for column in columns
        if not column.rare or any(_tells(column.of(each.figures)) for each in entries)
    ]


def _rows(columns: Sequence[FigureColumn], entries: Sequence[Entry]) -> list[Row]:
    return [Row(each.label, [column.of(each.figures) for column in columns]) for each in entries]


def _as_told(before: str, value: float | None, after: str) -> Cell:
    return Cell(NONE) if value is None else Cell(f"{before}{value:,}{after}")


def _agreement(agreement: dict[str, Any] | None) -> Cell:
    return _if_any(None if agreement is None else agreement["share"])


def _if_any(share: Estimate | None) -> Cell:
    return Cell(NONE) if share is None else percent(share)


def _tells(cell: Cell) -> bool:
    return cell.value not in (NONE, "0")


# ---- The same figures as bars.

_PUBLISHED_NOTE = "Hatched: published by ART-E's authors, on other questions."


def comparison_charts(entries: Sequence[Entry]) -> list[Chart]:
    """The models beside each other and beside the published ones, in the page's order."""
    figures = [(each.label, each.figures) for each in entries]
    return [
        BarChart(
            "accuracy",
            "Accuracy",
            f"Answerable questions answered right; 95 % intervals. {_PUBLISHED_NOTE}",
            "share",
            (
                *_bars(figures, ["accuracy"], percent),
                *(
                    Bar(each.model, (_mark(accuracy(each), percent),), published=True)
                    for each in PUBLISHED
                ),
            ),
        ),
        BarChart(
            "mistakes",
            "Hallucination and abstention",
            "Wrong answers given, and answers withheld, of all questions; 95 % intervals.",
            "share",
            tuple(_bars(figures, ["hallucination", "abstention"], percent)),
            series=("hallucination", "abstention"),
        ),
        BarChart(
            "cost",
            "Cost per 1,000 questions",
            " ".join(
                ["US dollars, logarithmic; 95 % intervals.", cost_sources(entries), _PUBLISHED_NOTE]
            ),
            "usd",
            (
                *_bars(figures, ["cost_per_1000_usd"], usd),
                *(
                    _published_bar(each.model, each.cost_per_1000_usd, f"${each.cost_per_1000_usd}")
                    for each in PUBLISHED
                    if each.cost_per_1000_usd is not None
                ),
            ),
            log=True,
        ),
        BarChart(
            "latency",
            "Latency per question",
            "Half of the questions took no longer than p50, 95 % no longer than p95;"
            " logarithmic; 95 % intervals. Hatched: published, one figure a model, without"
            " saying which.",
            "seconds",
            (
                *_bars(figures, ["latency_p50_s", "latency_p95_s"], seconds),
                *(
                    _published_bar(each.model, each.seconds, f"{each.seconds} s")
                    for each in PUBLISHED
                    if each.seconds is not None
                ),
            ),
            series=("p50", "p95"),
            log=True,
        ),
        BarChart(
            "turns",
            "Turns and effort",
            "A turn is a message of the model; effort counts every call of it. Means a"
            " question; 95 % intervals.",
            "number",
            tuple(_bars(figures, ["turns", "effort"], number)),
            series=("turns", "effort"),
        ),
    ]


def _bars(
    figures: Sequence[tuple[str, dict[str, Any]]],
    names: Sequence[str],
    shown: Callable[[Estimate], Cell],
) -> list[Bar]:
    return [Bar(label, tuple(_mark(of[name], shown) for name in names)) for label, of in figures]


def _mark(estimate: Estimate, shown: Callable[[Estimate], Cell]) -> Mark:
    text = "not known" if estimate["value"] is None else shown(estimate).line
    return Mark(estimate["value"], text, estimate["low"], estimate["high"])


def _published_bar(model: str, value: float | None, text: str) -> Bar:
    return Bar(model, (Mark(value, text),), published=True)
