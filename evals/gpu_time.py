"""The cost of a self-hosted model, measured by the time of its episodes.

The machine's time is the time in which any question was under way; questions that ended bear it in
proportion to their own. Intervals are over questions; they leave out how much the machine's speed
differs from hour to hour. `throughput` in `metrics.json` is

    {"seconds": the machine's time, "n": questions that ended,
     "questions_per_second": estimate, "prompt_tokens", "completion_tokens": sums,
     "usd_per_hour", "concurrency": as it was served}

If no question ended, it is null, and the cost unknown.
"""

import dataclasses
import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from art_e.runs import Run
from evals.metrics import model_metrics, sample_of
from evals.scored import Scored, load_run
from evals.statistics import UNKNOWN


class Serving(NamedTuple):
    """How a model is served: the price of its GPUs in USD an hour, and its questions at a time."""

    usd_per_hour: float
    concurrency: int

    def __str__(self) -> str:
        return f"measured at ${self.usd_per_hour:.2f} an hour, concurrency {self.concurrency}"


def servings(config: Mapping[str, Any]) -> dict[str, Serving]:
    """The models of a run's configuration whose cost is measured, and how they were served."""
    price = config.get("gpu_usd_per_hour")
    if price is None:
        return {}
    # Older runs hold the price of one of several GPUs.
    price *= config.get("gpus") or 1
    return {model: Serving(price, config["concurrency"][model]) for model in config["self_hosted"]}


def gpu_seconds(scored: Sequence[Scored]) -> dict[str, float]:
    """The machine's time of each episode of one model that ended, in seconds, by episode id."""
    episodes = [each.trajectory for each in scored]
    took = {each.episode_id: each.seconds["total"] for each in episodes if each.error is None}
    if not sum(took.values()):
        return {}
    begun = [dt.datetime.fromisoformat(each.started_at) for each in episodes]
    starts = np.asarray([(each - min(begun)).total_seconds() for each in begun])
    order = np.argsort(starts)
    starts = starts[order]
    ends = starts + np.asarray([each.seconds["total"] for each in episodes])[order]
    latest = np.maximum.accumulate(ends)
    pauses = np.maximum(0, starts[1:] - latest[:-1]).sum()
    share = float(latest[-1] - starts[0] - pauses) / sum(took.values())
    return {episode_id: share * seconds for episode_id, seconds in took.items()}


def load_costed(run: Run) -> list[Scored]:
    """The episodes of a run as `load_run` gives them, with the costs that the run measured."""
    scored = load_run(run)
    for model, serving in servings(run.config).items():
        times = gpu_seconds([each for each in scored if each.trajectory.model == model])
        for place, each in enumerate(scored):
            if each.trajectory.model == model:
                time = times.get(each.trajectory.episode_id)
                cost = None if time is None else time * serving.usd_per_hour / 3600
                made = dataclasses.replace(each.trajectory, cost_usd=cost)
                scored[place] = Scored(each.question, made)
    return scored


def figures_of(
    scored: Sequence[Scored], judges: Sequence[str], serving: Serving | None, *, timed: bool = True
) -> dict[str, Any]:
    """All figures of one model's episodes, with `serving` those of its measured cost."""
    figures = model_metrics(scored, judges, timed=timed)
    if serving is None:
        return figures
    times = gpu_seconds(scored)
    if not times:
        return figures | {"cost_per_1000_usd": UNKNOWN, "cost_usd": None, "cost_source": None}
    ended = [each for each in scored if each.trajectory.episode_id in times]
    seconds = [times[each.trajectory.episode_id] for each in ended]
    sample, usd_per_second = sample_of(ended), serving.usd_per_hour / 3600
    used = [each.trajectory.usage for each in ended]
    return figures | {
        "cost_per_1000_usd": sample.mean([1000 * time * usd_per_second for time in seconds]),
        "cost_usd": sum(seconds) * usd_per_second,
        "cost_source": str(serving),
        "throughput": {
            "seconds": sum(seconds),
            "n": len(ended),
            "questions_per_second": sample.ratio([1.0] * len(ended), seconds),
            "prompt_tokens": sum(usage["prompt_tokens"] for usage in used),
            "completion_tokens": sum(usage["completion_tokens"] for usage in used),
            **serving._asdict(),
        },
    }
