"""What the benchmarks found, as tables, targets, a JSON file and plots.

Knows nothing of how anything was measured: it is given the benchmarks' results.
"""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

Result = dict[str, Any]

REAL_ARCHIVE = "real-archive"
MILLISECONDS = ("p50", "p95", "mean")
# The ratios of search are promised from this size on: the reference's cost grows with the
# file, ours with the inbox.
TARGET_MAILS = 250_000


class Target(NamedTuple):
    """A promise and what was measured. `at_least`: more is better."""

    name: str
    measured: float
    limit: float
    unit: str
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether the promise is kept."""
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit


def print_search(result: Result) -> None:
    """One world's search figures."""
    title = f"search, {result['world']}: {result['mails']:,} mails"
    table = _table(title, "", *(f"{each} ms" for each in MILLISECONDS), "again p50", "8 threads /s")
    for side in ("ours", "reference"):
        found = result[side]
        figures = [found["ms"][key] for key in MILLISECONDS]
        table.add_row(
            side,
            *(f"{each:.3f}" for each in figures),
            f"{found['again_ms']['p50']:.3f}",
            f"{found['threads_per_second']:,.0f}",
        )
    ratios = result["ratios"]
    cells = [f"{ratios[key]:.1f}x" for key in MILLISECONDS]
    table.add_row("ratio", *cells, "", f"{ratios['throughput']:.1f}x", style="bold")
    console = Console()
    console.print(table)
    sides = ("ours", "reference")
    headings = [f"{side} {key}" for key in ("p50", "p95") for side in sides]
    table = _table("by inbox, ms", "mails", *headings)
    for number, inbox in enumerate(result["inboxes"]):
        one = [result[side]["by_inbox_ms"][number] for side in sides]
        cells = [f"{side[key]:.3f}" for key in ("p50", "p95") for side in one]
        table.add_row(f"{inbox['emails']:,}", *cells)
    console.print(table)
    agreed = result["agreement"]
    console.print(
        f"agreed with the SQL macro on {agreed['macro']} queries, with"
        f" the reference on {agreed['same_set']} words (same set) and {agreed['contains']} AND"
        " queries (all of its mails); hits a query:"
        f" ours {agreed['ours_hits'] / agreed['macro']:.1f},"
        f" reference {agreed['reference_hits'] / agreed['macro']:.1f}"
    )
    table = _table("open an inbox, ms", "mails", "file", "inbox", "first search")
    for each in result["opening"]:
        times = [each[key] for key in ("file_ms", "inbox_ms", "first_search_ms")]
        table.add_row(f"{each['emails']:,}", *(f"{milliseconds:.1f}" for milliseconds in times))
    console.print(table)
    table = _table("memory, MB resident", "", "at start", "opened", "searched", "growth")
    for name, memory in result["memory"].items():
        grown = [memory[f"{when}_mb"] for when in ("start", "opened", "searched", "growth")]
        table.add_row(name, *(f"{megabytes:.0f}" for megabytes in grown))
    console.print(table)
    table = _table("file and build", "", "file MB", "build s", "what")
    build = result["build"]
    for side, what in (("ours", "art-e ingest, parsing too"), ("reference", "rows and indexes")):
        table.add_row(side, f"{result['file_mb'][side]:.1f}", f"{build[side]['seconds']:.1f}", what)
    console.print(table)


def print_ingest(result: Result) -> None:
    """One archive's ingest figures and the stages."""
    console = Console()
    headings = ("", "s", "mails/s", "CPU s", "peak MB", "file MB", "stored")
    table = _table(f"ingest, {result['archive']}: {result['ours']['read']:,} read", *headings)
    for side in ("ours", "reference"):
        found = result[side]
        table.add_row(
            side,
            f"{found['seconds']:.2f}",
            f"{found['per_second']:,.0f}",
            f"{found['cpu_seconds']:.2f}",
            f"{found['peak_mb']:.0f}",
            f"{found['file_mb']:.1f}",
            f"{found['stored']:,}",
        )
    ratios = result["ratios"]
    speed, cpu = f"{ratios['seconds']:.1f}x", f"{ratios['cpu_seconds']:.1f}x"
    table.add_row("ratio", speed, speed, cpu, "", "", "", style="bold")
    console.print(table)
    ours = result["stages"]["ours"]
    table = _table(
        f"our stages, one process, {ours['messages']:,} mails", "", "CPU s", "s", "us/mail"
    )
    for stage, cpu_seconds in ours["cpu_seconds"].items():
        table.add_row(
            stage,
            f"{cpu_seconds:.2f}",
            f"{ours['seconds'][stage]:.2f}",
            f"{1e6 * cpu_seconds / max(ours['messages'], 1):.0f}",
        )
    total = sum(ours["cpu_seconds"].values())
    wall = sum(ours["seconds"].values())
    table.add_row("sum", f"{total:.2f}", f"{wall:.2f}", f"{1e6 * total / ours['messages']:.0f}")
    console.print(table)
    stages = ", ".join(f"{name} {s:.1f} s" for name, s in result["stages"]["reference"].items())
    console.print(f"the reference's stages: {stages}")


def print_episode(result: Result) -> None:
    """Milliseconds a turn."""
    title = f"episode, {result['world']}: inbox of {result['inbox']['emails']:,} mails, ms a turn"
    table = _table(title, "policy", "turns", "p50", "p95", "own p50", "own p95")
    for name, each in result["policies"].items():
        whole, own = each["ms_a_turn"], each["own_ms_a_turn"]
        figures = (whole["p50"], whole["p95"], own["p50"], own["p95"])
        table.add_row(name, str(each["turns"]), *(f"{figure:.3f}" for figure in figures))
    console = Console()
    console.print(table)
    console.print(f"opening the inbox up to a date: {result['open_inbox_ms']['p50']:.1f} ms")


def print_startup(result: Result) -> None:
    """Seconds of whole processes."""
    title = f"whole processes, {result['world']}, medians of {result['runs']}"
    table = _table(title, "", "CPU s", "s", "peak MB")
    for name, each in result["commands"].items():
        seconds = (f"{each['cpu_seconds']:.3f}", f"{each['seconds']:.3f}")
        table.add_row(name, *seconds, f"{each['peak_mb']:.0f}")
    Console().print(table)


def targets(results: Sequence[Result]) -> list[Target]:
    """The promises that the results say something about."""
    found: list[Target] = []
    for result in results:
        kind = result["benchmark"]
        where = result.get("world") or result.get("archive")
        if kind == "search":
            ratios = result["ratios"]
            if result["mails"] >= TARGET_MAILS:
                found += [
                    Target(f"search p50, {where}", ratios["p50"], 5, "x", True),
                    Target(f"search p95, {where}", ratios["p95"], 20, "x", True),
                    Target(f"8 threads, {where}", ratios["throughput"], 10, "x", True),
                ]
            for each in result["opening"]:
                limit = 0.15 if each["emails"] <= 2_000 else 0.6
                # With its first search: an inbox may leave loading until then.
                seconds = (each["inbox_ms"] + each["first_search_ms"]) / 1000
                name = f"open {each['emails']:,} mails, search once, {where}"
                found.append(Target(name, seconds, limit, "s"))
        elif kind == "ingest":
            found += [
                Target(f"ingest rate, {where}", result["ratios"]["seconds"], 4, "x", True),
                Target(f"ingest memory, {where}", result["ours"]["peak_mb"] / 1024, 4, "GiB"),
            ]
        elif kind == "startup":
            for name, limit in (("art-e --help", 0.2), ("art-e search", 0.5)):
                cpu = result["commands"][name]["cpu_seconds"]
                found.append(Target(f"{name} CPU, {where}", cpu, limit, "s"))
        elif kind == "episode":
            for name, each in result["policies"].items():
                p50 = each["ms_a_turn"]["p50"]
                found.append(Target(f"a turn, {name}, {where}", p50, 2, "ms"))
    return found


def print_targets(found: Sequence[Target]) -> None:
    """Each promise, what was measured, and whether it is kept."""
    table = _table("targets", "", "measured", "target", "met")
    for each in found:
        sign = ">=" if each.at_least else "<="
        met = "[green]yes[/green]" if each.met else "[red]no[/red]"
        measured = f"{each.measured:.3g} {each.unit}"
        table.add_row(each.name, measured, f"{sign} {each.limit:g} {each.unit}", met)
    Console().print(table)


def write_report(path: Path, results: Sequence[Result], machine: Result) -> list[Path]:
    """Write the JSON file `path` and the plots beside it; the files written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    judged = [{**each._asdict(), "met": each.met} for each in targets(results)]
    report = {"machine": machine, "results": list(results), "targets": judged}
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    searched = [each for each in results if each["benchmark"] == "search"]
    if not searched:
        return [path]
    plot = path.with_suffix(".png")
    plot_growth(plot, sorted(searched, key=lambda each: int(each["mails"])))
    return [path, plot]


def plot_growth(path: Path, searched: Sequence[Result]) -> None:
    """Cost against size, as a PNG: lines for synthetic worlds, stars for the real archive."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    panels: list[tuple[str, dict[str, Callable[[Result], float]]]] = [
        (
            "ms a search",
            {
                "ours, p50": lambda each: each["ours"]["ms"]["p50"],
                "ours, p95": lambda each: each["ours"]["ms"]["p95"],
                "reference, p50": lambda each: each["reference"]["ms"]["p50"],
                "reference, p95": lambda each: each["reference"]["ms"]["p95"],
            },
        ),
        (
            "searches a second, 8 threads",
            {
                "ours": lambda each: each["ours"]["threads_per_second"],
                "reference": lambda each: each["reference"]["threads_per_second"],
            },
        ),
        (
            "seconds to build",
            {
                "ours, from the source": lambda each: each["build"]["ours"]["seconds"],
                "reference, without parsing": lambda each: each["build"]["reference"]["seconds"],
            },
        ),
    ]
    synthetic = [each for each in searched if each["world"] != REAL_ARCHIVE]
    figure, axes = plt.subplots(1, len(panels), figsize=(15, 4.5), layout="constrained")
    for axis, (title, curves) in zip(axes, panels, strict=True):
        for name, value in curves.items():
            colour = "tab:blue" if name.startswith("ours") else "tab:orange"
            style = "--s" if name.endswith("p95") else "-o"
            sizes = [each["mails"] for each in synthetic]
            axis.plot(sizes, [value(each) for each in synthetic], style, color=colour, label=name)
            for each in searched:
                if each["world"] == REAL_ARCHIVE:
                    axis.plot(each["mails"], value(each), "*", color=colour, markersize=12)
        axis.set(xscale="log", yscale="log", xlabel="mails in the file", title=title)
        axis.set_xticks([each["mails"] for each in searched])
        axis.xaxis.set_major_formatter(lambda mails, _: f"{mails / 1000:,.0f}k")
        axis.minorticks_off()
        axis.tick_params(axis="x", rotation=45)
        axis.grid(visible=True, which="both", alpha=0.3)
    if synthetic:
        sizes = [each["mails"] for each in synthetic]
        first = synthetic[0]["build"]["ours"]["seconds"] / (sizes[0] * math.log(sizes[0]))
        bound = [first * n * math.log(n) for n in sizes]
        axes[-1].plot(sizes, bound, ":", color="grey", label="n log n from our first")
    for axis in axes:
        axis.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left")
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left")
    return table
