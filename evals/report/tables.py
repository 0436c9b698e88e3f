"""The report's tables and dots: models with their figures, kinds of question, where they ended."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from art_e.runs import Run
from art_e.text import toml_table
from evals.judges.labels import without_errors
from evals.metrics import FIGURES, HEADLINE, STEPS, load_costed, model_metrics, servings
from evals.report.charts import Chart, DotChart, DotRow, Mark, ScatterChart
from evals.scored import HELD_OUT, Scored
from evals.statistics import UNKNOWN, Estimate, Sample, bare

# ---- What a report compares: each model of each run, with its episodes and their figures.


@dataclass(frozen=True, slots=True)
class Entry:
    """One model of one run, by a unique `label`, with the judges of the run, and its figures with
    those "corrected" by `without_errors`; of a model in training they are of the last step."""

    run: Run
    model: str
    label: str
    episodes: list[Scored]
    scored: list[Scored]
    judges: list[str]
    figures: dict[str, Any]


def measure(runs: Sequence[Run]) -> list[Entry]:
    """The models of the runs, in their order. Raises `UserError` for a run that can't be read."""
    groups = []
    for run in runs:
        scored = load_costed(run)
        # From the episode that most judges judged.
        verdicts = max((each.verdicts for each in scored), key=len)
        judges = [str(verdict["judge"]) for verdict in verdicts]
        models: dict[str | None, list[Scored]] = {}
        for each in scored:
            # All steps of a training are one model, whatever it is called.
            models.setdefault(each.trajectory.model if each.step is None else None, []).append(each)
        groups += [(run, judges, group) for group in models.values()]
    labels = _labels([(run, group[-1].trajectory.model) for run, _, group in groups])
    return [_entry(label, *group) for label, group in zip(labels, groups, strict=True)]


def _entry(label: str, run: Run, judges: list[str], episodes: list[Scored]) -> Entry:
    model, scored = episodes[-1].trajectory.model, episodes
    if episodes[-1].step is not None:
        # The last held-out questions, if there are any, else the last ones trained on.
        held_out = [each for each in episodes if each.question.split in HELD_OUT] or episodes
        last = max(each.step or 0 for each in held_out)
        scored = [each for each in held_out if each.step == last]
        label = f"{label}, step {last}"
    figures = model_metrics(scored, judges, servings(run.config).get(model))
    scored = [each for each in scored if each.measured]
    figures["corrected"] = without_errors(figures["accuracy"], scored, run)
    return Entry(run, model, label, episodes, scored, judges, figures)


def _labels(models: Sequence[tuple[Run, str]]) -> list[str]:
    """The models' names, with the prompt or the run where several have the same name."""
    names = run_names([run for run, _ in models])
    forms = []
    for run, model in models:
        prompt = (run.config.get("prompt") or {}).get("name")
        forms.append((model, f"{model}, prompt {prompt}", f"{model} in {names[run]}"))
    used = Counter(form for of in forms for form in of)
    return [next((form for form in of if used[form] == 1), of[-1]) for of in forms]


def run_names(runs: Iterable[Run]) -> dict[Run, str]:
    """A name for each run: its folder's, or its path if several folders have that name."""
    distinct = list(dict.fromkeys(runs))
    used = Counter(run.id for run in distinct)
    return {run: run.id if used[run.id] == 1 else str(run.folder) for run in distinct}


# ---- Figures as the report writes them: a number, its 95 % interval, and of how many.

NONE = "–"


class Cell(NamedTuple):
    """A figure as text, its interval, of how many; `share` draws a bar of that part behind it."""

    value: str
    interval: str = ""
    n: int | None = None
    share: float | None = None

    @property
    def brief(self) -> str:
        return f"{self.value} {self.interval}".strip()

    @property
    def line(self) -> str:
        """The cell on one line, for charts."""
        return self.brief if self.n is None else f"{self.brief}  n={self.n:,}"


Form = Callable[..., Cell]


def _form(shown: Callable[[float], str], unit: str = "", before: str = "") -> Form:
    """How an estimate is written: its sign (`plus` if positive), `before`, its number, `unit`."""

    def written(estimate: Estimate, plus: str = "") -> Cell:
        def text(value: float) -> str:
            number = shown(value)
            return f"{'-' if number.startswith('-') else plus}{before}{number.removeprefix('-')}"

        value, low, high = estimate["value"], estimate["low"], estimate["high"]
        n = estimate["n"] or None
        interval = "" if low is None or high is None else f"[{shown(low)}, {shown(high)}]"
        if "range" in estimate:
            ends = f"{' to '.join(map(text, estimate['range']))}{unit}"
            unjudged = f"{estimate['unjudged']:,} of {n:,} unjudged" if n else ""
            return Cell(ends, ", ".join(filter(None, (interval, unjudged))), n)
        return Cell(NONE, n=n) if value is None else Cell(f"{text(value)}{unit}", interval, n)

    return written


percent = _form(lambda value: f"{100 * value:z.1f}", "%")
points = _form(lambda value: f"{100 * value:z.1f}", " pts")  # a difference of shares
number = _form(lambda value: f"{value:z.2f}")
# A number of any size, such as 2,480 or 15.9 or 0.0175.
digits = _form(lambda value: f"{value:z,.0f}" if abs(value) >= 100 else f"{value:z.3g}")
# Below a cent, or a tenth of a second, with two significant digits.
usd = _form(
    lambda value: f"{value:z,.2f}" if abs(value) >= 0.01 or value == 0 else f"{value:z.2g}",
    before="$",
)
seconds = _form(lambda value: f"{value:z.2f}" if abs(value) >= 0.1 else f"{value:z.2g}", " s")


# ---- Figures that ART-E's authors published, to set beside ours and never to mix with them.

_PUBLISHED: dict[str, Any] = toml_table("evals", "published.toml")
SOURCE: str = _PUBLISHED["source"]
NET_REDUCTION: float = _PUBLISHED["net_reduction"]
TRAINING_USD: int = _PUBLISHED["training_usd"]


class Published(NamedTuple):
    """One model's published figures, of 100 questions; `name` is litellm's, if it has one."""

    model: str
    accuracy: float
    name: str | None = None
    seconds: float | None = None
    cost_per_1000_usd: float | None = None


_MODELS = {name: Published(**row) for name, row in _PUBLISHED["models"].items()}
PUBLISHED = list(_MODELS.values())
TRAINED, O3, UNTRAINED = map(_MODELS.__getitem__, ("trained", "o3", "untrained"))


def accuracy(published: Published) -> Estimate:
    """The published share, with the interval that 100 questions imply."""
    sample = Sample(["published"] * 100, [str(each) for each in range(100)])
    return sample.share([each < round(100 * published.accuracy) for each in range(100)])


def _published(each: Published) -> dict[str, Estimate]:
    """The figures of a published model that are known, by their names in `metrics.json`."""
    means = {"cost_per_1000_usd": each.cost_per_1000_usd, "latency_p50_s": each.seconds}
    known = {name: bare(value) for name, value in means.items() if value is not None}
    return {"accuracy": accuracy(each), **known}


# ---- Which figures a table of models has, here, on the terminal and in comparisons.


class Row(NamedTuple):
    """A row of a table; `heading` rows stand for the ones below and have no cells."""

    label: str
    cells: list[Cell]
    published: bool = False
    heading: bool = False


class Table(NamedTuple):
    """A table with its title and the notes below it; the first heading is that of the labels."""

    headings: list[str]
    rows: list[Row]
    title: str = ""
    notes: Sequence[str] = ()


class Column(NamedTuple):
    """A figure of models: its path in `metrics.json`, its heading, and how it is written."""

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
# Those that say most, on the terminal and first on the page.
_FIRST = (*HEADLINE, "answer_words", "turns", "latency_p50_s", "cost_per_1000_usd")
FIRST = [COLUMNS[name] for name in _FIRST]


def headline(entries: Sequence[Entry]) -> Table:
    """The models with their figures, and the published rows below, marked as such."""
    table = _table(FIRST, entries)
    table.rows.extend(Row(e.model, _cells(FIRST, _published(e)), True) for e in PUBLISHED)
    return table


def details(entries: Sequence[Entry]) -> list[Table]:
    """The figures behind the headline; those that no model has are left out."""
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
    """A sentence on the origin of costs; empty where all are by a price per token."""
    served = [each for each in entries if each.figures["throughput"]]
    measured = [f"{each.label}: {each.figures['cost_source']}" for each in served]
    return f"Cost of {'; '.join(measured)}. Other costs are by price per token." if measured else ""


def by_label(entries: Sequence[Entry], by: str, heading: str) -> Table:
    """The shares of each kind or difficulty, if there are several."""
    columns = [COLUMNS[name] for name in HEADLINE]
    rows = []
    # All models have the labels in the same order.
    labels = list(dict.fromkeys(label for each in entries for label in each.figures[by]))
    for label in labels if len(labels) > 1 else ():
        if len(entries) > 1:
            rows.append(Row(label, [], heading=True))
        for each in entries:
            if (figures := each.figures[by].get(label)) is not None:
                name = each.label if len(entries) > 1 else label
                rows.append(Row(name, _cells(columns, figures)))
    return Table([heading, *(column.heading for column in columns)], rows)


def funnel(entries: Sequence[Entry]) -> Table:
    """Where the episodes of each model ended; steps that none of them ended at are left out."""
    rows, entries = [], [each for each in entries if each.scored]
    for step, words in STEPS.items():
        counts = [(each.figures["funnel"][step], each.figures["n"]) for each in entries]
        if any(ended for ended, _ in counts):
            cells = [Cell(f"{ended:,}", f"{ended / n:.0%}", n, ended / n) for ended, n in counts]
            rows.append(Row(words, cells))
    return Table(["Ended", *(each.label for each in entries)], rows)


def differences(figures: Mapping[str, Any]) -> list[Row]:
    """A row for each figure of `evals.metrics.compare`: A, B, and B - A with its sign."""
    rows = []
    for name, figure in figures.items():
        column = COLUMNS[name]
        sides = [column.form(_side(figure[side])) for side in ("a", "b")]
        apart = (column.difference or column.form)(figure["difference"], plus="+")
        rows.append(Row(column.heading, [*sides, apart]))
    return rows


def _side(mean: float | list[float]) -> Estimate:
    return {**UNKNOWN, "range": mean} if isinstance(mean, list) else bare(mean)


def fewer_errors(net: Estimate, a: str) -> str:
    """Write a net reduction of the errors of `a`, or how many times as many there are."""
    value, low, high = net["value"], net["low"], net["high"]
    without = "" if value is None or low is not None else " (too few errors for an interval)"
    if value is None or value >= 0:
        return f"{percent(net).brief} fewer errors than {a}{without}"
    least, most = (None if bound is None else 1 - bound for bound in (high, low))
    times = number({**net, "value": 1 - value, "low": least, "high": most}).brief
    return f"{times} times the errors of {a}{without}"


def summary(compared: Mapping[str, Any], a: str, b: str, p: float | None = None) -> list[str]:
    """A comparison of `evals.metrics` in words; `p` is its p corrected for other pairs."""
    mended, broken = (percent(compared[name]).brief for name in ("mended", "broken"))
    fewer = f"{b} has {fewer_errors(compared['net_reduction'], a)}, net"
    errors = f"{fewer}: it corrects {mended} of them, and {a} has right {broken} of {b}'s."
    unjudged, most = compared["unjudged"], ""
    if unjudged:
        most, pairs = " at most", f"{unjudged:,} of {compared['n']:,} pairs are unjudged"
        bounds = "differences and p are bounds over all their possible verdicts"
        errors = f"{pairs}: {bounds}, and errors are not compared."
    elif not compared["mended"]["n"]:
        errors = f"{a} makes no errors, and {b} makes {compared['broken']['n']:,}."
    by_holm = "" if p is None else f", corrected for all pairs (Holm) {p:.3g}"
    left_out = sum(compared["left_out"].values())
    return [
        f"Equal accuracy: p = {compared['p']:.3g}{most}{by_holm}. {compared['only_a']} questions"
        f" are right only in {a}, {compared['only_b']} only in {b}.",
        errors,
        *([f"{left_out:,} episodes not measured on both sides are left out."] if left_out else []),
    ]


def _table(columns: Sequence[Column], entries: Sequence[Entry], title: str = "") -> Table:
    rows = [Row(each.label, _cells(columns, each.figures)) for each in entries]
    return Table(["Model", *(column.heading for column in columns)], rows, title)


def _cells(columns: Sequence[Column], figures: Mapping[str, Any]) -> list[Cell]:
    return [column.cell(figures) for column in columns]


# ---- The first thing that a reader sees: a sentence and two pictures.

_HOLLOW = "Hollow: published by ART-E's authors, on other questions."
_NAMED = 4  # models in the sentence


def in_a_sentence(entries: Sequence[Entry]) -> str:
    """Each model's right and wrong answers, and its cost; the most accurate models first."""
    best = [each for each in entries if each.figures["measured"]]
    best.sort(key=lambda each: -(each.figures["accuracy"]["value"] or 0))
    parts = []
    for each in best[:_NAMED]:
        right = sum(one.correct for one in each.scored if one.question.answerable)
        wrong = sum(one.wrong for one in each.scored)
        unjudged = each.figures["accuracy"].get("unjudged", 0)
        n, cost = each.figures["accuracy"]["n"], each.figures["cost_per_1000_usd"]["value"]
        paid = f"{usd(bare(cost)).value} per 1,000" if cost else "no cost"
        paid = "unknown cost" if cost is None else paid
        answers = f"answers {right:,} of {n:,} answerable questions right"
        errors = f"gives {wrong:,} wrong answer{'s' if wrong != 1 else ''}"
        errors += f", with {unjudged:,} answers unjudged" if unjudged else ""
        parts.append(f"{each.label} {answers}, and {errors}, at {paid}")
    more = len(best) - _NAMED
    return ("; ".join(parts) or NONE) + (f"; {more} more stand below." if more > 0 else ".")


def scopes(entries: Sequence[Entry]) -> str:
    """What the intervals are about, if not about inboxes in general, or if answers are unjudged."""
    unjudged = any("range" in each.figures["accuracy"] for each in entries)
    last = ["without a dot if answers are unjudged"] if unjudged else []
    distinct = distinct_scopes(each.figures for each in entries)
    return "".join(f", {scope}" for scope in [*distinct, *last])


def distinct_scopes(models: Iterable[Mapping[str, Any]]) -> list[str]:
    """What the intervals of models are about, each once, in their order."""
    return list(dict.fromkeys(figures["scope"] for figures in models if figures["scope"]))


def first_charts(entries: Sequence[Entry], published: Sequence[Published] = ()) -> list[Chart]:
    """Accuracy against cost, beside the published models; what each did with its questions."""
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
    """The models beside each other and beside the published ones, in the page's order."""
    return [_dots(name, row, entries, published) for name, row in FIGURES["charts"].items()]


def _dots(
    name: str, chart: Mapping[str, Any], entries: Sequence[Entry],
    published: Sequence[Published] = (),
) -> DotChart:  # fmt: skip
    """A chart of `figures.toml`; the published models have a dot for its first figure alone."""
    scale, figures = chart["scale"], chart["figures"]
    ours = [DotRow(each.label, _marks(each.figures, figures)) for each in entries]
    theirs = [
        DotRow(each.model, _marks(_published(each), figures[:1]), published=True)
        for each in published
        if figures[0] in _published(each)
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
            value = (low + high) / 2
        text = "not known" if value is None else COLUMNS[name].form(figures[name]).line
        marks.append(Mark(value, text, low, high, is_range))
    return tuple(marks)
