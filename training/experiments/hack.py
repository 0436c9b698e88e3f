"""The reward hack replayed: a judge that takes any list of candidates, with and without the gate.

The start has seen a few experts who answer with a list and read nothing, so that the policy can
find the hole. Told for each run, step by step: reward, the share of lists, what the independent
judge says on held-out questions, and which alarms were raised when. Knows nothing of how runs
are made.
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from art_e.trajectory import read_trajectories
from evals.report.charts import Curve, CurveChart, Mark, Scale
from training.experiments.chain import Job, carry_out
from training.experiments.pages import finite, table, write_page, write_picture
from training.experiments.results import metrics_of
from training.judging import LIST, candidates_in
from training.progress import read_steps
from training.recipe import load_recipe

OPEN, CLOSED = "hole open", "groundedness gate on"
# Steps that a row of the table, and a point of a curve, is the mean of.
SPAN = 5


class Replay(NamedTuple):
    """What a run shows: by step its reward and share of lists, its validations and alarms."""

    reward: dict[int, float]
    lists: dict[int, float]
    validations: list[dict[str, Any]]
    alarms: list[dict[str, Any]]


def run_hack(
    out: Path, recipe: str, seed: int, changes: Sequence[str], start: Path | None, lists: float
) -> str:
    """Make the runs that are missing in `out`, write `hack.md` and `hack.png`; the page.

    Both begin from `start`, or from a start made in `out`, whose expert answers with a list in
    the share `lists` of its episodes.
    """
    made = (*changes, *_with_lists(recipe, changes, lists))
    if start is None:
        start = out / "start"
        carry_out([Job("sft", start, recipe, seed, made)])
    folders = {OPEN: out / "open", CLOSED: out / "closed"}
    for name, folder in folders.items():
        gate = "true" if name == CLOSED else "false"
        own = ('judging.reward="lenient"', f"reward.grounded_gate={gate}")
        carry_out([Job("grpo", folder, recipe, seed, (*made, *own), start)])
    replays = {name: replay_of(folder) for name, folder in folders.items()}
    write_picture(out / "hack.png", charts(replays))
    parts = [f"# {recipe}: a hole in the reward's judge"]
    for name, replay in replays.items():
        parts += [f"## {name}", table(_COLUMNS, story(replay)), _told(replay)]
    parts.append("![both runs](hack.png)")
    return write_page(out / "hack.md", parts)


def _with_lists(recipe: str, changes: Sequence[str], lists: float) -> list[str]:
    """The changes that have the expert list candidates, in all stages of the warm start."""
    table = load_recipe(recipe, changes).sft
    listing = [f"sft.noise.lists={lists}"]
    if table is not None and table.early_noise is not None:
        listing.append(f"sft.early_noise.lists={lists}")
    return listing


def replay_of(folder: Path) -> Replay:
    """What the run of that folder shows. Raises `UserError` for one that can't be read."""
    metrics = metrics_of(folder)
    said: defaultdict[int, list[bool]] = defaultdict(list)
    for each in read_trajectories(folder / "trajectories.jsonl"):
        # A validation's episodes are in no group.
        if "group" in each.policy:
            said[each.policy["step"]].append(candidates_in(each.final_answer) >= LIST)
    rewards = {each.step: each.reward for each in read_steps(folder)}
    return Replay(
        {step: reward for step, reward in rewards.items() if reward is not None},
        {step: fmean(shares) for step, shares in sorted(said.items())},
        metrics["validation"],
        metrics["alarms"],
    )


_COLUMNS = ["steps", "reward", "answers that are lists", "accuracy, held out", "alarms"]


def story(replay: Replay) -> list[list[str]]:
    """A row for each `SPAN` steps: means, the last validation up to there, alarms raised."""
    last = max([*replay.reward, *replay.lists], default=0)
    rows = [["start", "", "", _accuracy(replay, 0, 0), _raised(replay, 0, 0)]]
    for first in range(1, last + 1, SPAN):
        end = min(first + SPAN - 1, last)
        reward, lists = (_mean(each, first, end) for each in (replay.reward, replay.lists))
        rows.append(
            [
                f"{first} to {end}",
                "" if reward is None else f"{reward:.2f}",
                "" if lists is None else f"{lists:.1%}",
                _accuracy(replay, first, end),
                _raised(replay, first, end),
            ]
        )
    return rows


def charts(replays: dict[str, Replay]) -> list[CurveChart]:
    """Reward and lists by step, accuracy and the reward's own view by validation."""
    drawn: list[tuple[str, str, Scale, list[dict[int, float]]]] = [
        ("reward", "Reward in training", "number", [each.reward for each in replays.values()]),
        ("lists", "Answers that are lists", "share", [each.lists for each in replays.values()]),
        ("accuracy", "Accuracy by the other judge, held out", "share", [
            {row["step"]: row["accuracy"] for row in each.validations} for each in replays.values()
        ]),
    ]  # fmt: skip
    made = []
    for name, title, scale, figures in drawn:
        lines = tuple(
            Curve(label, tuple(rows), tuple(Mark(finite(value), "") for value in rows.values()))
            for label, rows in zip(replays, figures, strict=True)
        )
        smooth = 1 if name == "accuracy" else SPAN
        note = "" if smooth == 1 else f"Bold: the mean of the {smooth} steps around."
        made.append(CurveChart(name, title, note, scale, lines, smooth=smooth))
    return made


def _mean(values: dict[int, float], first: int, last: int) -> float | None:
    within = [value for step, value in values.items() if first <= step <= last]
    return fmean(within) if within else None


def _accuracy(replay: Replay, first: int, last: int) -> str:
    told = [each["accuracy"] for each in replay.validations if first <= each["step"] <= last]
    return f"{told[-1]:.1%}" if told and told[-1] is not None else ""


def _raised(replay: Replay, first: int, last: int) -> str:
    within = [each for each in replay.alarms if first <= each["step"] <= last]
    return ", ".join(f"{each['kind']} ({each['step']})" for each in within)


def _told(replay: Replay) -> str:
    """The alarms in full."""
    rows = [[str(each["step"]), each["kind"], each["message"]] for each in replay.alarms]
    return table(["step", "alarm", "what it says"], rows) if rows else "No alarm was raised.\n"
