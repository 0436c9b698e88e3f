"""The experiments behind the README's figures.

    python -m training.experiments seeds|ablations|hack --out DIR [--recipe nano] [--set ...]

`seeds` trains several seeds: what training gains on the test. `ablations` leaves parts of the
reward out. `hack` replays a reward hack: the judge accepts any list of candidates, with and without
the gate that an answer must rest on a mail that was read. Each makes the training runs that are
missing in DIR, then writes a page of Markdown and a picture; after a kill the same command resumes.
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
from art_e.text import printable
from art_e.trajectory import read_trajectories
from evals.report.charts import Bar, BarChart, CurveChart, Mark, Scale, write_picture
from evals.report.tables import points
from evals.statistics import Estimate
from training.commands import carry_out, train_command
from training.judging import LIST, candidates_in
from training.pooled import (
    ABSTENTION,
    ACCURACY,
    EFFORT_RIGHT,
    INVENTED,
    MEASURES,
    TURNS,
    WAYS,
    Measure,
    PooledRuns,
    curve,
    curves,
    metrics_of,
    minutes,
    pooled_test,
)
from training.progress import read_steps
from training.recipe import load_recipe

ABLATED = (EFFORT_RIGHT, TURNS, INVENTED, ABSTENTION, ACCURACY)
START = "the start"
OPEN, CLOSED = "hole open", "groundedness gate on"
# Steps that a row of the hack's table, and a point of its curves, averages.
SPAN = 5


class Setup(NamedTuple):
    """What all experiments have: the folder of the runs, the recipe and its changes."""

    out: Path
    recipe: str
    changes: tuple[str, ...]
    seeds: Sequence[int]
    start: Path | None = None

    def warm_start(self, *changes: str) -> Path:
        """The given start, or one made with the first seed."""
        if self.start is not None:
            return self.start
        start = self.out / "start"
        changed = (*self.changes, *changes)
        carry_out([train_command("sft", start, self.recipe, self.seeds[0], changed)])
        return start

    def grpo(self, folder: Path, seed: int, start: Path, *changes: str) -> Path:
        """A GRPO run from `start`."""
        changed = (*self.changes, *changes)
        carry_out([train_command("grpo", folder, self.recipe, seed, changed, start)])
        return folder

    def write(self, name: str, parts: Sequence[str]) -> str:
        """Write the parts as the page `name`; its text."""
        text = "\n".join(f"{each.rstrip()}\n" for each in parts)
        (self.out / name).write_text(text, encoding="utf-8")
        return text


def run_seeds(setup: Setup) -> str:
    """Train each seed; write `seeds.md` and `seeds.png`; the page."""
    starts, ends = [], []
    for seed in setup.seeds:
        start = setup.out / f"sft-{seed}"
        carry_out([train_command("sft", start, setup.recipe, seed, setup.changes)])
        starts.append(start)
        ends.append(setup.grpo(setup.out / f"grpo-{seed}", seed, start))
    write_picture(setup.out / "seeds.png", curves(ends, [f"seed {each}" for each in setup.seeds]))
    took = minutes([*starts, *ends]) / len(setup.seeds)
    parts = [
        f"# {setup.recipe}, {len(setup.seeds)} seeds",
        f"95 % intervals over questions and seeds; {took:.1f} minutes a seed.",
    ]
    for part, named in (("", ""), ("strangers", ", names that training has not seen")):
        for way in WAYS:
            before, after = (pooled_test(each, way, part) for each in (starts, ends))
            if before is not None and after is not None:
                title = f"## {way}{named}, n = {after.questions} questions a seed"
                parts += [title, _table(["", "before", "after", "gain"], gains(before, after))]
    return setup.write("seeds.md", [*parts, "![validations of all seeds](seeds.png)"])


def gains(before: PooledRuns, after: PooledRuns) -> list[list[str]]:
    """A row for each measure: its title, before, after, and the gain, with intervals."""
    return [
        [
            each.title,
            _shown(each, before.mean(each)),
            _shown(each, after.mean(each)),
            _shown(each, after.gain(before, each), gain=True),
        ]
        for each in MEASURES
    ]


def variants(recipe: str, changes: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The changes of each ablation to the recipe, by name.

    "no abstention band" pays "I don't know" on an answerable question as a wrong answer. "0/1
    reward" pays 1 for a right answer, else 0, and trains on answerable questions only.
    """
    kinds = load_recipe(recipe, changes).data.kinds or KINDS
    answerable = [each for each in kinds if each != "unanswerable"]
    return {
        "full reward": (),
        "no effort component": ("reward.effort=0",),
        "no abstention band": ('reward.scheme="no-abstention-band"',),
        "0/1 reward, answerable only": (
            'reward.scheme="binary"',
            f"data.train_kinds={json.dumps(answerable)}",
        ),
    }


def run_ablations(setup: Setup) -> str:
    """Train each variant from one start; write `ablations.md` and `ablations.png`; the page."""
    ablations = variants(setup.recipe, setup.changes)
    start = setup.warm_start()
    folders: dict[str, list[Path]] = {START: [start]}
    for name, own in ablations.items():
        slug = "-".join("".join(each if each.isalnum() else " " for each in name).split())
        folders[name] = [
            setup.grpo(setup.out / f"{slug}-{seed}", seed, start, *own) for seed in setup.seeds
        ]
    parts = [f"# {setup.recipe}: the reward with a part left out"]
    parts.append(f"GRPO from one start, {len(setup.seeds)} seeds; 95 % intervals.")
    for way in WAYS:
        pooled = {name: pooled_test(runs, way) for name, runs in folders.items()}
        compared = {name: each for name, each in pooled.items() if each is not None}
        rows = [
            [name, *(_shown(each, runs.mean(each)) for each in ABLATED)]
            for name, runs in compared.items()
        ]
        parts.append(f"## {way}, n = {compared[START].questions} questions a run")
        parts.append(_table(["", *(each.title for each in ABLATED)], rows))
        if way == "sampled":
            charts = [_bars(each, compared) for each in ABLATED]
            write_picture(setup.out / "ablations.png", charts)
            parts.append("![the figures as bars](ablations.png)")
    return setup.write("ablations.md", parts)


def _bars(measure: Measure, compared: Mapping[str, PooledRuns]) -> BarChart:
    """A bar with its interval for each variant."""
    bars = []
    for name, runs in compared.items():
        estimate = runs.mean(measure)
        label = measure.cell(estimate).line
        mark = Mark(estimate["value"], label, estimate["low"], estimate["high"])
        bars.append(Bar(name, (mark,)))
    title = measure.title[0].upper() + measure.title[1:]
    scale: Scale = "share" if measure.share else "number"
    return BarChart(measure.name, title, "On the test, sampled.", scale, tuple(bars))


class Replay(NamedTuple):
    """A run of the hack: by step its reward and share of lists, its validations and alarms."""

    reward: dict[int, float]
    lists: dict[int, float]
    validations: list[dict[str, Any]]
    alarms: list[dict[str, Any]]


def run_hack(setup: Setup, lists: float) -> str:
    """Train with the hole open and closed; write `hack.md` and `hack.png`; the page.

    The expert of a start made here answers with a list in the share `lists` of its episodes, so
    that the policy can find the hole.
    """
    sft = load_recipe(setup.recipe, setup.changes).sft
    listing = [f"sft.noise.lists={lists}"]
    if sft is not None and sft.early_noise is not None:
        listing.append(f"sft.early_noise.lists={lists}")
    start = setup.warm_start(*listing)
    replays = {}
    for name, folder, gate in ((OPEN, "open", "false"), (CLOSED, "closed", "true")):
        changes = ('judging.reward="lenient"', f"reward.grounded_gate={gate}", *listing)
        replays[name] = replay_of(setup.grpo(setup.out / folder, setup.seeds[0], start, *changes))
    write_picture(setup.out / "hack.png", hack_charts(replays))
    parts = [f"# {setup.recipe}: a hole in the reward's judge"]
    columns = ["steps", "reward", "answers that are lists", "accuracy, held out", "alarms"]
    for name, replay in replays.items():
        raised = [[str(each["step"]), each["kind"], each["message"]] for each in replay.alarms]
        alarms = _table(["step", "alarm", "what it says"], raised) if raised else "No alarms."
        parts += [f"## {name}", _table(columns, story(replay)), alarms]
    return setup.write("hack.md", [*parts, "![both runs](hack.png)"])


def replay_of(folder: Path) -> Replay:
    """The replay in the run's folder. Raises `UserError` if it can't be read."""
    metrics = metrics_of(folder)
    listed: defaultdict[int, list[bool]] = defaultdict(list)
    for each in read_trajectories(folder / "trajectories.jsonl"):
        # Episodes of a validation have no group.
        if "group" in each.policy:
            listed[each.policy["step"]].append(candidates_in(each.final_answer) >= LIST)
    rewards = {each.step: each.reward for each in read_steps(folder)}
    return Replay(
        {step: reward for step, reward in rewards.items() if reward is not None},
        {step: fmean(shares) for step, shares in sorted(listed.items())},
        metrics["validation"],
        metrics["alarms"],
    )


def story(replay: Replay) -> list[list[str]]:
    """A row for each `SPAN` steps: means, the last validation up to there, alarms."""
    last = max([*replay.reward, *replay.lists], default=0)
    spans = [(0, 0), *((at, min(at + SPAN - 1, last)) for at in range(1, last + 1, SPAN))]
    rows = []
    for first, end in spans:
        means = [
            [value for step, value in values.items() if first <= step <= end]
            for values in (replay.reward, replay.lists)
        ]
        held_out = [row["accuracy"] for row in replay.validations if first <= row["step"] <= end]
        alarms = [row for row in replay.alarms if first <= row["step"] <= end]
        rows.append(
            [
                f"{first} to {end}" if end else "start",
                f"{fmean(means[0]):.2f}" if means[0] and end else "",
                f"{fmean(means[1]):.1%}" if means[1] and end else "",
                f"{held_out[-1]:.1%}" if held_out and held_out[-1] is not None else "",
                ", ".join(f"{row['kind']} ({row['step']})" for row in alarms),
            ]
        )
    return rows


def hack_charts(replays: Mapping[str, Replay]) -> list[CurveChart]:
    """Reward and lists by step, and accuracy by validation."""
    drawn: list[tuple[str, str, Scale, list[dict[int, float | None]]]] = [
        ("reward", "Reward in training", "number", [{**each.reward} for each in replays.values()]),
        ("lists", "Answers that are lists", "share", [{**each.lists} for each in replays.values()]),
        ("accuracy", "Accuracy by the other judge, held out", "share", [
            {row["step"]: row["accuracy"] for row in each.validations} for each in replays.values()
        ]),
    ]  # fmt: skip
    charts = []
    for name, title, scale, values in drawn:
        lines = tuple(curve(label, each) for label, each in zip(replays, values, strict=True))
        smooth = 1 if name == "accuracy" else SPAN
        note = "" if smooth == 1 else f"Bold: the mean of the {smooth} steps around."
        charts.append(CurveChart(name, title, note, scale, lines, smooth=smooth))
    return charts


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; its cells are escaped."""
    lines = [columns, ["---"] * len(columns), *([escaped(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(each)} |" for each in lines) + "\n"


def _shown(measure: Measure, estimate: Estimate, *, gain: bool = False) -> str:
    """A figure, or a difference of two, with its interval."""
    cell = points(estimate) if gain and measure.share else measure.cell(estimate)
    return f"{cell.value} {cell.interval}".strip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiment that `arguments` name; the exit code."""
    chosen = _parser().parse_args(arguments)
    setup = Setup(chosen.out, chosen.recipe, tuple(chosen.set), chosen.seeds, chosen.start)
    try:
        setup.out.mkdir(parents=True, exist_ok=True)
        if chosen.experiment == "seeds":
            page = run_seeds(setup)
        elif chosen.experiment == "ablations":
            page = run_ablations(setup)
        else:
            page = run_hack(setup, chosen.lists)
    except (UserError, OSError) as error:
        sys.stderr.write(f"Error: {printable(str(error))}\n")
        return 2
    sys.stdout.write(page)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m training.experiments", description=__doc__)
    parser.add_argument("experiment", choices=["seeds", "ablations", "hack"])
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--recipe", default="nano", metavar="NAME|FILE")
    parser.add_argument(
        "--set", action="append", default=[], metavar="TABLE.FIELD=VALUE", help="for all runs"
    )
    parser.add_argument("--seeds", type=_numbers, default=[0], metavar="0,1,2")
    parser.add_argument("--start", type=Path, metavar="DIR", help="an SFT run to begin from")
    parser.add_argument(
        "--lists", type=float, default=0.05, help="hack: share of the expert's answers"
    )
    return parser


def _numbers(text: str) -> list[int]:
    found = [int(each) for each in text.split(",")]
    if len(set(found)) < len(found) or min(found) < 0:
        raise ValueError(text)
    return found


if __name__ == "__main__":
    sys.exit(main())
