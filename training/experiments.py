"""The experiments behind the README's figures.

    python -m training.experiments ablations|hack --out DIR [--recipe nano] [--set ...]

`ablations` leaves parts of the reward out. `hack` replays a reward hack: the judge accepts any list
of candidates, with and without the gate that an answer must rest on a mail that was read. Each
makes the training runs that are missing in DIR, then writes a picture and its figures; after a kill
the same command resumes.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from art_e.errors import UserError
from art_e.publish import escaped
from art_e.question import KINDS
from art_e.runs import Run
from art_e.text import printable
from art_e.trajectory import read_trajectories
from evals.report.charts import Bar, BarChart, CurveChart, Mark, Scale, write_picture
from training.commands import carry_out, train_command
from training.judging import LIST, candidates_in
from training.pooled import (
    ABSTENTION,
    ACCURACY,
    EFFORT_RIGHT,
    INVENTED,
    TURNS,
    WAYS,
    Measure,
    PooledRuns,
    curve,
    metrics_of,
    pooled_test,
)
from training.progress import read_steps
from training.recipe import load_recipe

ABLATED = (EFFORT_RIGHT, TURNS, INVENTED, ABSTENTION, ACCURACY)
START = "the start"
SEED = 0
# The share of the expert's episodes that answer with a list, so that the policy finds the hole.
LISTS = 0.05
# Steps that a point of the hack's curves averages.
SPAN = 5


class Setup(NamedTuple):
    """The folder of an experiment's runs, the recipe and its changes, and the start, if given."""

    out: Path
    recipe: str
    changes: tuple[str, ...]
    start: Path | None = None

    def warm_start(self, *changes: str) -> Path:
        """The given start, or one made now."""
        if self.start is not None:
            return self.start
        folder, changed = self.out / "start", (*self.changes, *changes)
        carry_out([train_command("sft", folder, self.recipe, SEED, changed)])
        return folder

    def grpo(self, name: str, start: Path, *changes: str) -> Path:
        """A GRPO run from `start`."""
        folder, changed = self.out / name, (*self.changes, *changes)
        carry_out([train_command("grpo", folder, self.recipe, SEED, changed, start)])
        return folder


# ---- The reward with a part left out.


def variants(recipe: str, changes: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The changes of each ablation to the recipe, by name.

    "no abstention band" pays "I don't know" on an answerable question as a wrong answer. "0/1
    reward" pays 1 for a right answer, else 0, and trains on answerable questions only.
    """
    kinds = load_recipe(recipe, changes).data.kinds or KINDS
    answerable = json.dumps([each for each in kinds if each != "unanswerable"])
    binary = ('reward.scheme="binary"', f"data.train_kinds={answerable}")
    return {
        "full reward": (),
        "no effort component": ("reward.effort=0",),
        "no abstention band": ('reward.scheme="no-abstention-band"',),
        "0/1 reward, answerable only": binary,
    }


def run_ablations(setup: Setup) -> str:
    """Train each variant from one start; write `ablations.md` and `ablations.png`; the page."""
    ablations = variants(setup.recipe, setup.changes)
    start = setup.warm_start()
    folders = {START: start}
    for name, changes in ablations.items():
        slug = "-".join("".join(each if each.isalnum() else " " for each in name).split())
        folders[name] = setup.grpo(f"{slug}-{SEED}", start, *changes)
    parts = [f"# {setup.recipe}: the reward with a part left out"]
    parts.append("GRPO from one start; 95 % intervals.")
    for way in WAYS:
        runs = {name: pooled_test([folder], way) for name, folder in folders.items()}
        asked = {name: each for name, each in runs.items() if each is not None}
        rows = [[name, *(_shown(each, run) for each in ABLATED)] for name, run in asked.items()]
        parts.append(f"## {way}, n = {asked[START].questions} questions a run")
        parts.append(_table(["", *(each.title for each in ABLATED)], rows))
        if way == "sampled":
            charts = [_bars(each, asked) for each in ABLATED]
            write_picture(setup.out / "ablations.png", charts)
            parts.append("![the figures as bars](ablations.png)")
    page = "\n".join(f"{each.rstrip()}\n" for each in parts)
    (setup.out / "ablations.md").write_text(page, encoding="utf-8")
    return page


def _shown(measure: Measure, run: PooledRuns) -> str:
    cell = measure.cell(run.mean(measure))
    return f"{cell.value} {cell.interval}".strip()


def _bars(measure: Measure, asked: Mapping[str, PooledRuns]) -> BarChart:
    """A bar with its interval for each variant."""
    estimates = {name: run.mean(measure) for name, run in asked.items()}
    bars = tuple(
        Bar(name, (Mark(each["value"], measure.cell(each).line, each["low"], each["high"]),))
        for name, each in estimates.items()
    )
    scale: Scale = "share" if measure.share else "number"
    return BarChart(measure.name, measure.heading, "On the test, sampled.", scale, bars)


# ---- The reward hack.


def run_hack(setup: Setup) -> str:
    """Train with the hole open and closed; write `hack.json` and `hack.png`; the alarms."""
    sft = load_recipe(setup.recipe, setup.changes).sft
    listing = [f"sft.noise.lists={LISTS}"]
    if sft is not None and sft.early_noise is not None:
        listing.append(f"sft.early_noise.lists={LISTS}")
    start = setup.warm_start(*listing)
    replays = {}
    for name, folder, gate in (
        ("hole open", "open", "false"),
        ("groundedness gate on", "closed", "true"),
    ):
        changes = ('judging.reward="lenient"', f"reward.grounded_gate={gate}", *listing)
        replays[name] = replay_of(setup.grpo(folder, start, *changes))
    write_picture(setup.out / "hack.png", hack_charts(replays))
    Run(setup.out).write_json("hack.json", replays)
    lines = [
        f"{name}, step {each['step']}, {each['kind']}: {each['message']}"
        for name, replay in replays.items()
        for each in replay["alarms"]
    ]
    return "".join(f"{printable(each)}\n" for each in lines)


def replay_of(folder: Path) -> dict[str, Any]:
    """By step a run's reward, share of lists and accuracy by the other judge, and its alarms.

    Raises `UserError` if the run can't be read.
    """
    metrics = metrics_of(folder)
    listed: defaultdict[int, list[bool]] = defaultdict(list)
    for each in read_trajectories(folder / "trajectories.jsonl"):
        # Episodes of a validation have no group.
        if "group" in each.policy:
            listed[each.policy["step"]].append(candidates_in(each.final_answer) >= LIST)
    return {
        "reward": {each.step: each.reward for each in read_steps(folder)},
        "lists": {step: fmean(lists) for step, lists in sorted(listed.items())},
        "accuracy": {each["step"]: each["accuracy"] for each in metrics["validation"]},
        "alarms": metrics["alarms"],
    }


def hack_charts(replays: Mapping[str, Mapping[str, Any]]) -> list[CurveChart]:
    """Reward and lists by step, and accuracy by validation."""
    mean = f"Bold: the mean of the {SPAN} steps around."
    drawn: tuple[tuple[str, str, str, Scale, int], ...] = (
        ("reward", "Reward in training", mean, "number", SPAN),
        ("lists", "Answers that are lists", mean, "share", SPAN),
        ("accuracy", "Accuracy by the other judge, held out", "", "share", 1),
    )
    charts = []
    for name, title, note, scale, smooth in drawn:
        lines = tuple(curve(label, replay[name]) for label, replay in replays.items())
        charts.append(CurveChart(name, title, note, scale, lines, smooth=smooth))
    return charts


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; its cells are escaped."""
    lines = [columns, ["---"] * len(columns), *([escaped(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(each)} |" for each in lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiment that `arguments` name; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m training.experiments", description=__doc__)
    parser.add_argument("experiment", choices=["ablations", "hack"])
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--recipe", default="nano", metavar="NAME|FILE")
    parser.add_argument("--set", action="append", default=[], metavar="TABLE.FIELD=VALUE")
    parser.add_argument("--start", type=Path, metavar="DIR", help="an SFT run to begin from")
    chosen = parser.parse_args(arguments)
    setup = Setup(chosen.out, chosen.recipe, tuple(chosen.set), chosen.start)
    try:
        setup.out.mkdir(parents=True, exist_ok=True)
        page = run_ablations(setup) if chosen.experiment == "ablations" else run_hack(setup)
    except (UserError, OSError) as error:
        sys.stderr.write(f"Error: {printable(str(error))}\n")
        return 2
    sys.stdout.write(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
