"""What `art-e eval run` prints for people: the figures of `metrics.json` in tables.

Knows nothing of how they came about.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from art_e.cli.clean import one_line
from art_e.cli.output import console, text

if TYPE_CHECKING:
    from evals.intervals import Estimate

_SHARES = ("accuracy", "unanswerable_accuracy", "hallucination", "abstention")
_HEADINGS = ("n", "accuracy", "right to abstain", "hallucination", "abstention")


def print_tables(metrics: dict[str, Any], folder: Path) -> None:
    """Print a table a model, with lines on what it took, and the run's folder last."""
    for model, figures in metrics["models"].items():
        _print_model(model, figures, metrics["judges"])
    console().print(text(f"run: {one_line(str(folder))}"), soft_wrap=True)


def percent(share: "Estimate") -> str:
    """A share with its interval in brackets; "-" where it is not known."""
    if share["value"] is None:
        return "-"
    if share["low"] is None:
        return f"{share['value']:.1%}"
    return f"{share['value']:.1%} [{share['low']:.1%}, {share['high']:.1%}]"


def _print_model(model: str, figures: dict[str, Any], judges: list[str]) -> None:
    from rich.table import Table

    if not figures["n"]:
        words = figures["stopped"]["message"]
        console().print(text(one_line(f"{model}: not measured: {words}")), soft_wrap=True)
        return
    methods = {figures[name]["method"] for name in _SHARES} - {None}
    table = Table(
        title=text(one_line(f"{model}: {figures['n']} episodes, judge {judges[0]}")),
        caption=f"in brackets: 95 % interval, {' and '.join(sorted(methods))}",
    )
    for number, heading in enumerate(("kind", *_HEADINGS)):
        table.add_column(heading, justify="right" if number else "left")
    for label, shares in [
        *_labelled(figures["by_kind"]),
        *_labelled(figures["by_difficulty"]),
        ("all", figures),
    ]:
        cells = (percent(shares[name]) for name in _SHARES)
        table.add_row(text(one_line(label)), str(shares["n"]), *cells)
    console().print(table)
    for line in _lines(figures):
        console().print(text(one_line(line)), soft_wrap=True)


def _labelled(groups: dict[str, Any]) -> Iterable[tuple[str, dict[str, Any]]]:
    """The groups with their figures; none where no question has a label to tell them by."""
    return groups.items() if groups.keys() - {"unlabelled"} else ()


def _lines(figures: dict[str, Any]) -> list[str]:
    went_wrong = ", ".join(
        f"{step.replace('_', ' ')} {count}" for step, count in figures["funnel"].items() if count
    )
    lines = [
        f"gold read {percent(figures['read_gold'])},"
        f" sources right {percent(figures['sources_correct'])},"
        f" turns {figures['turns']['value']:.2f},"
        f" p50 {_milliseconds(figures['latency_p50_s'])},"
        f" p95 {_milliseconds(figures['latency_p95_s'])}, errors {figures['errors']}"
        + "".join(f", {kind} {n}" for kind, n in figures["errors_by_kind"].items()),
        f"where episodes ended: {went_wrong}",
    ]
    if figures["always_right"] is not None:
        lines.append(f"right every time: {percent(figures['always_right'])}")
    if figures["not_asked"]:
        lines.append(f"not asked: {figures['not_asked']} more ({figures['stopped']['message']})")
    if figures["unjudged"]:
        lines.append(f"without a verdict, counted as not right: {figures['unjudged']}")
    agreement = figures["agreement"]
    if agreement is not None:
        one, other = agreement["judges"]
        kappa = agreement["kappa"]["value"]
        lines.append(
            f"judge {other}: accuracy {percent(figures['by_judge'][other]['accuracy'])}; it agrees"
            f" with {one} on {percent(agreement['share'])},"
            f" kappa {'-' if kappa is None else f'{kappa:.2f}'}"
        )
    measured = figures["throughput"]
    if measured is not None:
        lines.append(_throughput(measured, figures))
    tokens = {name: each["value"] for name, each in figures["tokens"].items()}
    if tokens["prompt_tokens"]:
        cost = figures["cost_per_1000_usd"]["value"]
        told = "cost unknown, " if cost is None else f"${cost:.2f} per 1,000 questions, "
        lines.append(
            f"{told if measured is None else ''}"
            f"{tokens['prompt_tokens']:,.0f} + {tokens['completion_tokens']:,.0f}"
            f" tokens a question ({tokens['cached_prompt_tokens']:,.0f} cached),"
            f" retries {figures['retries']}, {figures['concurrency']} at a time"
        )
    return lines


def _throughput(measured: dict[str, Any], figures: dict[str, Any]) -> str:
    from evals.report.cells import usd

    if measured["left_out"] is not None:
        return f"cost not measured: {measured['left_out']}"
    cost = usd(figures["cost_per_1000_usd"])
    questions, prompts, completions = (
        measured[f"{name}_per_second"]["value"]
        for name in ("questions", "prompt_tokens", "completion_tokens")
    )
    return (
        f"{f'{cost.value} {cost.interval}'.strip()} per 1,000 questions,"
        f" {figures['cost_source']}: {questions:.3g} questions/s,"
        f" {prompts:,.0f} + {completions:,.0f} tokens/s over {measured['seconds']:,.1f} s,"
        f" {measured['at_once']:.1f} under way at a time"
    )


def _milliseconds(seconds: "Estimate") -> str:
    return "-" if seconds["value"] is None else f"{1000 * seconds['value']:.0f} ms"
