"""The report's tables and dot charts: models and their figures, by kind, and the funnel."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from art_e.runs import Run
from art_e.text import toml_table
from evals.judges.labels import bias_corrected
from evals.metrics import FIGURES, HEADLINE, STEPS, load_with_costs, model_metrics, servings
from evals.report.charts import Chart, DotChart, DotRow, Mark, ScatterChart
from evals.scored import HELD_OUT, Scored
from evals.statistics import UNKNOWN, Estimate, Sample, point_estimate

# ---- The entries of a report: each model of each run, with its episodes and figures.


@dataclass(frozen=True, slots=True)
class Entry:
    """One model of one run, with a unique `label`. `figures` has "corrected" from
    `bias_corrected`. For a model in training, `scored` and `figures` are of its last step."""

    run: Run
    model: str
    label: str
    episodes: list[Scored]
    scored: list[Scored]
    judges: list[str]
    figures: dict[str, Any]


def measure(runs: Sequence[Run]) -> list[Entry]:
    """Return the models of the runs, in order. Raises `UserError` for a run that can't be read."""
    groups = []
    for run in runs:
        scored = load_with_costs(run)
        # Take the judges from the episode with the most verdicts.
        verdicts = max((each.verdicts for each in scored), key=len)
        judges = [str(verdict["judge"]) for verdict in verdicts]
        models: dict[str | None, list[Scored]] = {}
        for one in scored:
            # All steps of a training run are one model, whatever its name.
            models.setdefault(one.trajectory.model if one.step is None else None, []).append(one)
        groups += [(run, judges, group) for group in models.values()]
    labels = _labels([(run, group[-1].trajectory.model) for run, _, group in groups])
    return [_entry(label, *group) for label, group in zip(labels, groups, strict=True)]


def _entry(label: str, run: Run, judges: list[str], episodes: list[Scored]) -> Entry:
    model, scored = episodes[-1].trajectory.model, episodes
    if episodes[-1].step is not None:
        # The last validation, if there is one, or else the last training step.
        held_out = [each for each in episodes if each.question.split in HELD_OUT] or episodes
        last = max(each.step or 0 for each in held_out)
        scored = [each for each in held_out if each.step == last]
        label = f"{label}, step {last}"
    figures = model_metrics(scored, judges, servings(run.config).get(model))
    scored = [each for each in scored if each.measured]
    figures["corrected"] = bias_corrected(figures["accuracy"], scored, run)
    return Entry(run, model, label, episodes, scored, judges, figures)


def _labels(models: Sequence[tuple[Run, str]]) -> list[str]:
    """Return the models' names, with the prompt or the run if several models share a name."""
    names = run_names([run for run, _ in models])
    options = []
    for run, model in models:
        prompt = (run.config.get("prompt") or {}).get("name")
        options.append((model, f"{model}, prompt {prompt}", f"{model} in {names[run]}"))
    used = Counter(label for labels in options for label in labels)
    return [next((each for each in labels if used[each] == 1), labels[-1]) for labels in options]


def run_names(runs: Iterable[Run]) -> dict[Run, str]:
    """Name each run by its folder, or by its path if several folders have the same name."""
    distinct = list(dict.fromkeys(runs))
    used = Counter(run.id for run in distinct)
    return {run: run.id if used[run.id] == 1 else str(run.folder) for run in distinct}


# ---- Figures as text: a number, its 95 % interval and n.

NONE = "–"


class Cell(NamedTuple):
    """A figure as text, its interval and n; `share` is the length of the bar behind it."""

    value: str
    interval: str = ""
    n: int | None = None
    share: float | None = None

    @property
    def brief(self) -> str:
        return f"{self.value} {self.interval}".strip()

    @property
    def line(self) -> str:
        return self.brief if self.n is None else f"{self.brief}  n={self.n:,}"


Form = Callable[..., Cell]


def _form(to_text: Callable[[float], str], unit: str = "", before: str = "") -> Form:
    """Return a formatter of estimates: sign (`plus` if positive), `before`, number, `unit`."""

    def format_estimate(estimate: Estimate, plus: str = "") -> Cell:
        def text(value: float) -> str:
            number = to_text(value)
            return f"{'-' if number.startswith('-') else plus}{before}{number.removeprefix('-')}"

        value, low, high = estimate["value"], estimate["low"], estimate["high"]
        n = estimate["n"] or None
        interval = "" if low is None or high is None else f"[{to_text(low)}, {to_text(high)}]"
        if "range" in estimate:
            ends = f"{' to '.join(map(text, estimate['range']))}{unit}"
            unjudged = f"{estimate['unjudged']:,} of {n:,} unjudged" if n else ""
            return Cell(ends, ", ".join(filter(None, (interval, unjudged))), n)
        return Cell(NONE, n=n) if value is None else Cell(f"{text(value)}{unit}", interval, n)

    return format_estimate


percent = _form(lambda value: f"{100 * value:z.1f}", "%")
points = _form(lambda value: f"{100 * value:z.1f}", " pts")  # a difference of shares
number = _form(lambda value: f"{value:z.2f}")
# A number of any size, such as 2,480 or 15.9 or 0.0175.
digits = _form(lambda value: f"{value:z,.0f}" if abs(value) >= 100 else f"{value:z.3g}")
# Two significant digits below a cent, or below a tenth of a second.
usd = _form(
    lambda value: f"{value:z,.2f}" if abs(value) >= 0.01 or value == 0 else f"{value:z.2g}",
    before="$",
)
seconds = _form(lambda value: f"{value:z.2f}" if abs(value) >= 0.1 else f"{value:z.2g}", " s")


# ---- Figures published by ART-E's authors, shown next to ours and always marked.

_PUBLISHED: dict[str, Any] = toml_table("evals", "published.toml")
SOURCE: str = _PUBLISHED["source"]
NET_REDUCTION: float = _PUBLISHED["net_reduction"]
TRAINING_USD: int = _PUBLISHED["training_usd"]


class Published(NamedTuple):
    """A model's published figures, of 100 questions; `name` is its litellm name, if any."""

    model: str
    accuracy: float
    name: str | None = None
    seconds: float | None = None
    cost_per_1000_usd: float | None = None


_MODELS = {name: Published(**row) for name, row in _PUBLISHED["models"].items()}
PUBLISHED = list(_MODELS.values())
TRAINED, O3, UNTRAINED = map(_MODELS.__getitem__, ("trained", "o3", "untrained"))


def accuracy(published: Published) -> Estimate:
    """Return the published share, with the interval implied by 100 questions."""
    sample = Sample(["published"] * 100, [str(each) for each in range(100)])  # Wilson's interval
    return sample.share([each < round(100 * published.accuracy) for each in range(100)])


def _published(model: Published) -> dict[str, Estimate]:
    means = {"cost_per_1000_usd": model.cost_per_1000_usd, "latency_p50_s": model.seconds}
    known = {name: point_estimate(value) for name, value in means.items() if value is not None}
    return {"accuracy": accuracy(model), **known}


# ---- Tables and their columns, here, on the terminal and in comparisons.


class Row(NamedTuple):
    """A row of a table; `heading` rows introduce the rows below and have no cells."""

    label: str
    cells: list[Cell]
    published: bool = False
    heading: bool = False


class Table(NamedTuple):
    """A table with its title and notes; the first heading belongs to the labels."""

    headings: list[str]
    rows: list[Row]
    title: str = ""
    notes: Sequence[str] = ()


class Column(NamedTuple):
    """A figure of models: its path in `metrics.json`, its heading and its format."""

    figure: str
    heading: str
    form: Form
    difference: Form | None = None

    def cell(self, figures: Mapping[str, Any]) -> Cell:
        value: Any = figures
        for name in self.figure.split("."):
            value = None if value is None else value.get(name)
        return Cell(NONE) if value is None else self.form(value)


_FORMS = {
    "percent": percent, "points": points, "number": number, "digits": digits, "usd": usd,
    "seconds": seconds, "count": lambda figure: Cell(f"{figure:,}"),
}  # fmt: skip
COLUMNS = {
    name: Column(name, row["heading"], _FORMS[row["form"]], _FORMS.get(row.get("difference")))
    for name, row in FIGURES["columns"].items()
}
# The main columns, on the terminal and first on the page.
_FIRST = (*HEADLINE, "answer_words", "turns", "latency_p50_s", "cost_per_1000_usd")
FIRST = [COLUMNS[name] for name in _FIRST]


def headline(entries: Sequence[Entry]) -> Table:
    """Return the main table: our models, then the published rows, marked as such."""
    table = _table(FIRST, entries)
    table.rows.extend(Row(e.model, _cells(FIRST, _published(e)), True) for e in PUBLISHED)
    return table


def details(entries: Sequence[Entry]) -> list[Table]:
    """Return the tables of further figures, without those that no model has."""
    tables = []
    for title, names in FIGURES["details"].items():
        known = [
            column
            for column in map(COLUMNS.__getitem__, names)
            if any(column.cell(each.figures).value != NONE for each in entries)
        ]
        tables.append(_table(known, entries, title))
    return tables


def cost_sources(entries: Sequence[Entry]) -> str:
    """Return a sentence on the origin of costs; empty if all are by price per token."""
    served = [each for each in entries if each.figures["throughput"]]
    measured = [f"{each.label}: {each.figures['cost_source']}" for each in served]
    return f"Cost of {'; '.join(measured)}. Other costs are by price per token." if measured else ""


def by_label(entries: Sequence[Entry], by: str, heading: str) -> Table:
    """Return the shares by kind or difficulty; empty if there is only one."""
    columns = [COLUMNS[name] for name in HEADLINE]
    rows = []
    # All models have the labels in the same order.
    labels = list(dict.fromkeys(label for each in entries for label in each.figures[by]))
    for label in labels if len(labels) > 1 else ():
        if len(entries) > 1:
            rows.append(Row(label, [], heading=True))
        for entry in entries:
            if (figures := entry.figures[by].get(label)) is not None:
                name = entry.label if len(entries) > 1 else label
                rows.append(Row(name, _cells(columns, figures)))
    return Table([heading, *(column.heading for column in columns)], rows)


def funnel(entries: Sequence[Entry]) -> Table:
    """Return how many episodes of each model ended at each step, without empty steps."""
    rows, entries = [], [each for each in entries if each.scored]
    for step, words in STEPS.items():
        counts = [(each.figures["funnel"][step], each.figures["n"]) for each in entries]
        if any(ended for ended, _ in counts):
            cells = [Cell(f"{ended:,}", f"{ended / n:.0%}", n, ended / n) for ended, n in counts]
            rows.append(Row(words, cells))
    return Table(["Ended", *(each.label for each in entries)], rows)


def differences(figures: Mapping[str, Any]) -> list[Row]:
    """Return a row for each figure of `evals.metrics.compare`: A, B, and B - A with its sign."""
    rows = []
    for name, figure in figures.items():
        column = COLUMNS[name]
        sides = [column.form(_side(figure[side])) for side in ("a", "b")]
        difference = (column.difference or column.form)(figure["difference"], plus="+")
        rows.append(Row(column.heading, [*sides, difference]))
    return rows


def _side(mean: float | list[float]) -> Estimate:
    return {**UNKNOWN, "range": mean} if isinstance(mean, list) else point_estimate(mean)


def fewer_errors(net: Estimate, a: str) -> str:
    """Describe the net reduction of the errors of `a`, or the factor of an increase."""
    value, low, high = net["value"], net["low"], net["high"]
    without = "" if value is None or low is not None else " (too few errors for an interval)"
    if value is None or value >= 0:
        return f"{percent(net).brief} fewer errors than {a}{without}"
    low, high = (None if bound is None else 1 - bound for bound in (high, low))
    times = number({**net, "value": 1 - value, "low": low, "high": high}).brief
    return f"{times} times the errors of {a}{without}"


def summary(compared: Mapping[str, Any], a: str, b: str, p: float | None = None) -> list[str]:
    """Describe a comparison of `evals.metrics` in words; `p` is corrected for all pairs."""
    corrected, broken = (percent(compared[name]).brief for name in ("mended", "broken"))
    fewer = f"{b} has {fewer_errors(compared['net_reduction'], a)}, net"
    errors = f"{fewer}: it corrects {corrected} of them, and {a} gets right {broken} of {b}'s."
    unjudged, at_most = compared["unjudged"], ""
    if unjudged:
        at_most, pairs = " at most", f"{unjudged:,} of {compared['n']:,} pairs are unjudged"
        bounds = "differences and p are bounds over all their possible verdicts"
        errors = f"{pairs}: {bounds}, and errors are not compared."
    elif not compared["mended"]["n"]:
        errors = f"{a} makes no errors, and {b} makes {compared['broken']['n']:,}."
    by_holm = "" if p is None else f", corrected for all pairs (Holm) {p:.3g}"
    left_out = sum(compared["left_out"].values())
    return [
        f"Equal accuracy: p = {compared['p']:.3g}{at_most}{by_holm}. {compared['only_a']} questions"
        f" are right only in {a}, {compared['only_b']} only in {b}.",
        errors,
        *([f"{left_out:,} episodes not measured on both sides are left out."] if left_out else []),
    ]


def _table(columns: Sequence[Column], entries: Sequence[Entry], title: str = "") -> Table:
    rows = [Row(each.label, _cells(columns, each.figures)) for each in entries]
    return Table(["Model", *(column.heading for column in columns)], rows, title)


def _cells(columns: Sequence[Column], figures: Mapping[str, Any]) -> list[Cell]:
    return [column.cell(figures) for column in columns]


# ---- The top of the page: a sentence and two charts.

_HOLLOW = "Hollow: published by ART-E's authors, on other questions."
_NAMED = 4  # models in the sentence


def headline_sentence(entries: Sequence[Entry]) -> str:
    """Return each model's right and wrong answers and its cost, the most accurate model first."""
    best = [each for each in entries if each.figures["measured"]]
    best.sort(key=lambda each: -(each.figures["accuracy"]["value"] or 0))
    parts = []
    for entry in best[:_NAMED]:
        right = sum(each.correct for each in entry.scored if each.question.answerable)
        wrong = sum(each.wrong for each in entry.scored)
        unjudged = entry.figures["accuracy"].get("unjudged", 0)
        n, cost = entry.figures["accuracy"]["n"], entry.figures["cost_per_1000_usd"]["value"]
        price = f"{usd(point_estimate(cost)).value} per 1,000" if cost else "no cost"
        price = "unknown cost" if cost is None else price
        answers = f"answers {right:,} of {n:,} answerable questions right"
        errors = f"gives {wrong:,} wrong answer{'s' if wrong != 1 else ''}"
        errors += f", with {unjudged:,} answers unjudged" if unjudged else ""
        parts.append(f"{entry.label} {answers}, and {errors}, at {price}")
    more = len(best) - _NAMED
    return ("; ".join(parts) or NONE) + (f"; {more} more are below." if more > 0 else ".")


def scopes(entries: Sequence[Entry]) -> str:
    """Return the notes on intervals: the inboxes they hold for, and unjudged answers."""
    unjudged = any("range" in each.figures["accuracy"] for each in entries)
    last = ["without a dot if answers are unjudged"] if unjudged else []
    distinct = distinct_scopes(each.figures for each in entries)
    return "".join(f", {scope}" for scope in [*distinct, *last])


def distinct_scopes(models: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the distinct scopes of the models' intervals, in order."""
    return list(dict.fromkeys(figures["scope"] for figures in models if figures["scope"]))


def first_charts(entries: Sequence[Entry], published: Sequence[Published] = ()) -> list[Chart]:
    """Return two charts: accuracy against cost, and right, wrong and abstained answers."""
    intervals = f"95 % intervals{scopes(entries)}."
    models = [(each.label, each.figures, False) for each in entries]
    models += [(each.model, _published(each), True) for each in published]
    priced = [
        DotRow(label, _marks(figures, ("cost_per_1000_usd", "accuracy")), published)
        for label, figures, published in models
        if figures.get("cost_per_1000_usd", UNKNOWN)["value"] is not None
        and figures["accuracy"]["low"] is not None
    ]
    note = f"{intervals} {_HOLLOW if published else ''}".strip()
    title, series = "Accuracy against cost", ("cost", "accuracy")
    picture = ScatterChart("picture", title, note, "share", tuple(priced), series)
    return [picture, _dots("outcomes", FIGURES["first"]["outcomes"], entries)]


# ---- The same figures as dots.


def comparison_charts(entries: Sequence[Entry], published: Sequence[Published] = ()) -> list[Chart]:
    """Return the dot charts of our models and the published ones, in the page's order."""
    return [_dots(name, row, entries, published) for name, row in FIGURES["charts"].items()]


def _dots(
    name: str, chart: Mapping[str, Any], entries: Sequence[Entry],
    published: Sequence[Published] = (),
) -> DotChart:  # fmt: skip
    """Return a chart of `figures.toml`; published models have a dot for its first figure only."""
    scale, figures = chart["scale"], chart["figures"]
    ours = [DotRow(each.label, _marks(each.figures, figures)) for each in entries]
    theirs = [
        DotRow(model.model, _marks(_published(model), figures[:1]), published=True)
        for model in published
        if figures[0] in _published(model)
    ]
    log = "Logarithmic; " if scale in ("usd", "seconds") else ""
    sources = cost_sources(entries) if name == "cost" else ""
    notes = (chart["note"], f"{log}95 % intervals{scopes(entries)}.", _HOLLOW if theirs else "")
    note = " ".join(filter(None, (*notes, sources)))
    series = chart.get("series") or [COLUMNS[figure].heading.lower() for figure in figures]
    return DotChart(name, chart["title"], note, scale, (*ours, *theirs), tuple(series))


def _marks(figures: Mapping[str, Any], names: Sequence[str]) -> tuple[Mark, ...]:
    marks = []
    for name in names:
        value, low, high = (figures[name][part] for part in ("value", "low", "high"))
        if is_range := "range" in figures[name]:
            value = (low + high) / 2  # anchors the error bar, which has no dot
        text = "not known" if value is None else COLUMNS[name].form(figures[name]).line
        marks.append(Mark(value, text, low, high, is_range))
    return tuple(marks)
