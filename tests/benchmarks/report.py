"""Shows what the benchmarks measured: tables, promises, a JSON file and a plot."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import pandas as pd
from matplotlib import pyplot as plt

mpl.use("Agg")

Result = dict[str, Any]

REAL_ARCHIVE = "real-archive"
SIDES = ("ours", "reference")
# The ratios of search are promised from this size on: the reference's cost grows with the file,
# ours with the inbox.
TARGET_MAILS = 250_000


class Target(NamedTuple):
    """A promise and its measurement. `at_least`: more is better."""

    name: str
    measured: float
    limit: float
    unit: str
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether the promise is kept."""
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit


def show(result: Result) -> None:
    """Print a result's tables."""
    for title, table in _tables(result):
        print(f"\n{result['benchmark']}, {result['world']}: {title}")
        print(table.to_string(float_format="{:,.3f}".format, na_rep=""))


def _tables(result: Result) -> Iterator[tuple[str, pd.DataFrame]]:
    columns = {side: result[side] for side in (*SIDES, "ratios") if side in result}
    match result["benchmark"]:
        case "search":
            table = pd.DataFrame(columns).T
            table["build s"] = pd.Series(result["build_seconds"])
            table["file MB"] = pd.Series(result["file_mb"])
            yield f"{result['mails']:,} mails, ms", table
            yield "queries on which both agree, and hits", pd.DataFrame([result["agreement"]])
            yield "opening an inbox", pd.DataFrame(result["opening"]).drop(columns="address")
            print(f"20 inboxes open: {result['growth_mb']:+,.0f} MB")
        case "ingest":
            yield f"{result['ours']['read']:,} mails", pd.DataFrame(columns).T
            yield "CPU seconds by stage", pd.DataFrame(result["stages"]).T
        case "episode":
            yield "ms a turn", pd.DataFrame(result["policies"]).T
            yield "opening the inbox up to a date, ms", pd.DataFrame([result["open_inbox_ms"]])
        case _:
            yield f"medians of {result['runs']}", pd.DataFrame(result["commands"]).T


def targets(results: Sequence[Result]) -> list[Target]:
    """The promises that the results say something about."""
    return [target for result in results for target in _targets(result)]


def _targets(result: Result) -> Iterator[Target]:
    where = result["world"]
    match result["benchmark"]:
        case "search":
            if result["mails"] >= TARGET_MAILS:
                limits: dict[str, float] = {"p50": 5, "p95": 20, "threads_per_second": 10}
                for key, limit in limits.items():
                    yield Target(f"search {key}, {where}", result["ratios"][key], limit, "x", True)
            for each in result["opening"]:
                most = 0.15 if each["emails"] <= 2_000 else 0.6
                # With its first search: an inbox may put off loading until then.
                seconds = (each["inbox_ms"] + each["first_search_ms"]) / 1000
                name = f"open {each['emails']:,} mails, search once, {where}"
                yield Target(name, seconds, most, "s")
        case "ingest":
            yield Target(f"ingest rate, {where}", result["ratios"]["seconds"], 4, "x", True)
            yield Target(f"ingest memory, {where}", result["ours"]["peak_mb"] / 1024, 4, "GiB")
        case "startup":
            for name, most in (("art-e --help", 0.2), ("art-e search", 0.5)):
                cpu = result["commands"][name]["cpu_seconds"]
                yield Target(f"{name} CPU, {where}", cpu, most, "s")
        case "episode":
            for name, each in result["policies"].items():
                yield Target(f"a turn, {name}, {where}", each["p50"], 2, "ms")


def show_targets(results: Sequence[Result]) -> None:
    """Print each promise, its measurement, and whether it is kept."""
    print()
    for each in targets(results):
        limit = f"{'>=' if each.at_least else '<='} {each.limit:g} {each.unit}"
        verdict = "met" if each.met else "MISSED"
        print(f"{verdict:7} {each.measured:8.3g} {each.unit:3} {limit:9} {each.name}")


def write_report(path: Path, results: Sequence[Result], machine: Result) -> list[Path]:
    """Write the JSON file `path` and, if there are searches, a plot beside it; the files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    judged = [{**each._asdict(), "met": each.met} for each in targets(results)]
    report = {"machine": machine, "results": list(results), "targets": judged}
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    searches = [each for each in results if each["benchmark"] == "search"]
    if not searches:
        return [path]
    plot = path.with_suffix(".png")
    plot_growth(plot, searches)
    return [path, plot]


def plot_growth(path: Path, searches: Sequence[Result]) -> None:
    """Cost against size, as a PNG: lines for synthetic worlds, stars for the real archive."""
    rows = pd.json_normalize(list(searches)).sort_values("mails")
    real = rows["world"] == REAL_ARCHIVE
    panels = {
        "ms a search": ("ours.p50", "ours.p95", "reference.p50", "reference.p95"),
        "searches a second, 8 threads": ("ours.threads_per_second", "reference.threads_per_second"),
        "seconds to build": ("build_seconds.ours", "build_seconds.reference"),
    }
    figure, axes = plt.subplots(1, len(panels), figsize=(15, 4.5), layout="constrained")
    for axis, (title, columns) in zip(axes, panels.items(), strict=True):
        for column in columns:
            side = "ours" if "ours" in column else "reference"
            colour = "tab:blue" if side == "ours" else "tab:orange"
            style = "--s" if column.endswith("p95") else "-o"
            label = f"{side}, {column[-3:]}" if title == "ms a search" else side
            axis.plot(rows[~real]["mails"], rows[~real][column], style, color=colour, label=label)
            axis.plot(rows[real]["mails"], rows[real][column], "*", color=colour, markersize=12)
        axis.set(xscale="log", yscale="log", xlabel="mails in the file", title=title)
        axis.set_xticks(rows["mails"])
        axis.xaxis.set_major_formatter(lambda mails, _: f"{mails / 1000:,.0f}k")
        axis.minorticks_off()
        axis.tick_params(axis="x", rotation=45)
        axis.grid(visible=True, which="both", alpha=0.3)
        axis.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)
