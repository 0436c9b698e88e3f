"""The cost and throughput of a self-hosted model, measured by the time of its episodes.

Episodes that run at the same moment share the machine evenly. The others bear the time of episodes
that failed for an outside reason. Intervals are over questions; they leave out how much the
machine's speed differs from hour to hour. `throughput` in `metrics.json` is

    {"seconds": in which the model was being asked, "n": questions that it finished,
     "at_once": mean number of questions under way in those seconds,
     "questions_per_second": estimate, "prompt_tokens", "completion_tokens": sums,
     "usd_per_hour", "concurrency": as it was served, "left_out": why nothing was measured, or null}
"""

import dataclasses
import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from art_e.runs import Run
from evals.metrics import model_metrics, sample_of
from evals.scored import Scored, load_run
from evals.statistics import UNKNOWN, Floats

NOTHING_ENDED = "it finished no question"


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


def shares(starts: Floats, ends: Floats) -> Floats:
    """Each episode's share of the time in which any of them ran, in seconds.

    The shares add up to that time.
    """
    moments, places = np.unique(np.concatenate([starts, ends]), return_inverse=True)
    first, last = np.split(places, 2)
    changes = np.zeros(len(moments))
    np.add.at(changes, first, 1)
    np.add.at(changes, last, -1)
    running = np.cumsum(changes)[:-1]
    each = np.divide(np.diff(moments), running, out=np.zeros(len(running)), where=running > 0)
    passed = np.concatenate([[0.0], np.cumsum(each)])
    return np.asarray(passed[last] - passed[first])


def gpu_seconds(scored: Sequence[Scored]) -> list[float | None]:
    """The GPU time of each episode of one model, in seconds; None for failed ones.

    All are None if none ended.
    """
    if not scored:
        return []
    episodes = [each.trajectory for each in scored]
    begun = [dt.datetime.fromisoformat(each.started_at) for each in episodes]
    starts = np.asarray([(each - min(begun)).total_seconds() for each in begun])
    times = shares(starts, starts + np.asarray([each.seconds["total"] for each in episodes]))
    ended = np.asarray([each.error is None for each in episodes])
    borne = times[ended].sum()
    if not borne:
        return [None] * len(episodes)
    times *= times.sum() / borne
    return [float(time) if of else None for time, of in zip(times, ended, strict=True)]


def at_measured_cost(scored: Sequence[Scored], served: Mapping[str, Serving]) -> list[Scored]:
    """The episodes in their order, those of `served` models with their measured cost.

    It takes precedence over any known price.
    """
    costed = list(scored)
    for model, serving in served.items():
        places = [place for place, each in enumerate(scored) if each.trajectory.model == model]
        times = gpu_seconds([scored[place] for place in places])
        for place, time in zip(places, times, strict=True):
            cost = None if time is None else time * serving.usd_per_hour / 3600
            trajectory = dataclasses.replace(scored[place].trajectory, cost_usd=cost)
            costed[place] = Scored(scored[place].question, trajectory)
    return costed


def load_costed(run: Run) -> list[Scored]:
    """The episodes of a run as `load_run` gives them, with the costs that the run measured."""
    return at_measured_cost(load_run(run), servings(run.config))


def figures_of(
    scored: Sequence[Scored], judges: Sequence[str], serving: Serving | None, *, timed: bool = True
) -> dict[str, Any]:
    """All figures of one model's episodes, with `serving` those of its measured cost."""
    figures = model_metrics(scored, judges, timed=timed)
    if serving is None:
        return figures
    times = gpu_seconds(scored)
    ended = [each for each, time in zip(scored, times, strict=True) if time is not None]
    seconds = [time for time in times if time is not None]
    whole, usd_per_second = sum(seconds), serving.usd_per_hour / 3600
    sample = sample_of(ended)
    used = [each.trajectory.usage for each in ended]
    costs = [1000 * time * usd_per_second for time in seconds]
    under_way = sum(each.trajectory.seconds["total"] for each in scored)
    return figures | {
        "cost_per_1000_usd": sample.mean(costs),
        "cost_usd": whole * usd_per_second if ended else None,
        "cost_source": str(serving) if ended else None,
        "throughput": {
            "seconds": whole if ended else None,
            "n": len(ended),
            "at_once": under_way / whole if ended else None,
            "questions_per_second": sample.ratio([1.0] * len(ended), seconds) if ended else UNKNOWN,
            "prompt_tokens": sum(usage["prompt_tokens"] for usage in used),
            "completion_tokens": sum(usage["completion_tokens"] for usage in used),
            **serving._asdict(),
            "left_out": None if ended else NOTHING_ENDED,
        },
    }
