"""Report the results of the benchmarks: tables, a JSON file and a plot."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib import pyplot as plt

mpl.use("Agg")

Result = dict[str, Any]

REAL_ARCHIVE = "real-archive"
SIDES = ("ours", "reference")


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
            yield "queries compared, and hits", pd.DataFrame([result["agreement"]])
        case "ingest":
            yield f"{result['ours']['read']:,} mails", pd.DataFrame(columns).T
        case "episode":
            yield "ms a turn", pd.DataFrame(result["policies"]).T
        case _:
            yield f"medians of {result['runs']}", pd.DataFrame(result["commands"]).T


def write_report(path: Path, results: Sequence[Result], machine: Result) -> list[Path]:
    """Write the JSON file `path`, and a plot if there are searches; return both paths."""
    path.parent.mkdir(parents=True, exist_ok=True)
    report = {"machine": machine, "results": list(results)}
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    searches = [each for each in results if each["benchmark"] == "search"]
    if not searches:
        return [path]
    plot = path.with_suffix(".png")
    plot_growth(plot, searches)
    return [path, plot]


def plot_growth(path: Path, searches: Sequence[Result]) -> None:
    """Plot cost against size as PNG: lines for synthetic worlds, stars for the real archive."""
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
