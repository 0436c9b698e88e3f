"""Shows what the benchmarks found: tables, promises, a JSON file and a plot."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import pandas as pd
from matplotlib import pyplot as plt

mpl.use("Agg")

Result = dict[str, Any]

REAL_ARCHIVE = "real-archive"
SIDES = ("ours", "reference")
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


def show(result: Result) -> None:
    """Print a result's tables."""
    where = result.get("world") or result["archive"]
    for title, table in _tables(result):
        print(f"\n{result['benchmark']}, {where}: {title}")
        print(table.to_string(float_format="{:,.3f}".format, na_rep=""))


def _tables(result: Result) -> Iterator[tuple[str, pd.DataFrame]]:
    kind = result["benchmark"]
    if kind == "search":
        sides = {
            side: {
                **{f"{key} ms": result[side]["ms"][key] for key in ("p50", "p95", "mean")},
                "again p50 ms": result[side]["again_ms"]["p50"],
                "8 threads /s": result[side]["threads_per_second"],
                "build s": result["build"][side]["seconds"],
                "file MB": result["file_mb"][side],
            }
            for side in SIDES
        }
        ratios = {f"{key} ms": value for key, value in result["ratios"].items()}
        ratios["8 threads /s"] = ratios.pop("throughput ms")
        yield f"{result['mails']:,} mails", pd.DataFrame({**sides, "ratio": ratios}).T
        inboxes = [
            {
                "mails": inbox["emails"],
                **{
                    f"{side} {key} ms": result[side]["by_inbox_ms"][number][key]
                    for key in ("p50", "p95")
                    for side in SIDES
                },
            }
            for number, inbox in enumerate(result["inboxes"])
        ]
        yield "by inbox", pd.DataFrame(inboxes)
        yield "queries on which both ways agree, and hits", pd.DataFrame([result["agreement"]])
        yield "opening an inbox", pd.DataFrame(result["opening"]).drop(columns="address")
        yield "resident memory", pd.DataFrame(result["memory"]).T
    elif kind == "ingest":
        columns = {**{side: result[side] for side in SIDES}, "ratio": result["ratios"]}
        yield f"{result['ours']['read']:,} mails", pd.DataFrame(columns).T
        ours = result["stages"]["ours"]
        table = pd.DataFrame({"CPU s": ours["cpu_seconds"], "s": ours["seconds"]})
        table["us/mail"] = 1e6 * table["CPU s"] / max(ours["messages"], 1)
        table.loc["sum"] = table.sum()
        yield f"our stages, one process, {ours['messages']:,} mails", table
        yield "the reference's stages, s", pd.DataFrame([result["stages"]["reference"]])
    elif kind == "episode":
        table = pd.json_normalize(list(result["policies"].values()))
        table.index = pd.Index(result["policies"])
        yield f"an inbox of {result['inbox']['emails']:,} mails", table
        yield "opening it up to a date, ms", pd.DataFrame([result["open_inbox_ms"]])
    else:
        yield f"medians of {result['runs']}", pd.DataFrame(result["commands"]).T


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


def show_targets(results: Sequence[Result]) -> None:
    """Print each promise, what was measured, and whether it is kept."""
    print()
    for each in targets(results):
        sign = ">=" if each.at_least else "<="
        verdict = "met" if each.met else "MISSED"
        limit = f"{sign} {each.limit:g} {each.unit}"
        print(f"{verdict:7} {each.measured:8.3g} {each.unit:3} {limit:9} {each.name}")


def write_report(path: Path, results: Sequence[Result], machine: Result) -> list[Path]:
    """Write the JSON file `path` and the plot beside it; the files written."""
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


_PANELS: dict[str, dict[str, Callable[[Result], float]]] = {
    "ms a search": {
        "ours, p50": lambda each: each["ours"]["ms"]["p50"],
        "ours, p95": lambda each: each["ours"]["ms"]["p95"],
        "reference, p50": lambda each: each["reference"]["ms"]["p50"],
        "reference, p95": lambda each: each["reference"]["ms"]["p95"],
    },
    "searches a second, 8 threads": {
        "ours": lambda each: each["ours"]["threads_per_second"],
        "reference": lambda each: each["reference"]["threads_per_second"],
    },
    "seconds to build": {
        "ours, from the source": lambda each: each["build"]["ours"]["seconds"],
        "reference, without parsing": lambda each: each["build"]["reference"]["seconds"],
    },
}


def plot_growth(path: Path, searched: Sequence[Result]) -> None:
    """Cost against size, as a PNG: lines for synthetic worlds, stars for the real archive."""
    synthetic = [each for each in searched if each["world"] != REAL_ARCHIVE]
    real = [each for each in searched if each["world"] == REAL_ARCHIVE]
    sizes = [each["mails"] for each in synthetic]
    figure, axes = plt.subplots(1, len(_PANELS), figsize=(15, 4.5), layout="constrained")
    for axis, (title, curves) in zip(axes, _PANELS.items(), strict=True):
        for name, value in curves.items():
            colour = "tab:blue" if name.startswith("ours") else "tab:orange"
            style = "--s" if name.endswith("p95") else "-o"
            axis.plot(sizes, [value(each) for each in synthetic], style, color=colour, label=name)
            for each in real:
                axis.plot(each["mails"], value(each), "*", color=colour, markersize=12)
        axis.set(xscale="log", yscale="log", xlabel="mails in the file", title=title)
        axis.set_xticks([each["mails"] for each in searched])
        axis.xaxis.set_major_formatter(lambda mails, _: f"{mails / 1000:,.0f}k")
        axis.minorticks_off()
        axis.tick_params(axis="x", rotation=45)
        axis.grid(visible=True, which="both", alpha=0.3)
    if synthetic:
        first = synthetic[0]["build"]["ours"]["seconds"] / (sizes[0] * math.log(sizes[0]))
        bound = [first * n * math.log(n) for n in sizes]
        axes[-1].plot(sizes, bound, ":", color="grey", label="n log n from our first")
    for axis in axes:
        axis.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)
