"""The cost and throughput of a self-hosted model, measured by the time of its episodes.

In every moment the episodes that run share the machine evenly; the time of episodes that failed for
an outside reason is borne by the others. Intervals are over questions: how much the machine's speed
differs from hour to hour is not in them. `throughput` gives

    {"seconds": in which the model was being asked, "n": questions that it worked on to their end,
     "at_once": questions under way at a time, the mean over those seconds,
     "questions_per_second", "prompt_tokens_per_second", "completion_tokens_per_second",
     "gpu_hours_per_1000": estimates, "prompt_tokens", "completion_tokens": sums,
     "gpu_usd_per_hour", "gpus", "concurrency": as it was served,
     "left_out": why there is no measurement, or null}
"""

import dataclasses
import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from art_e.trajectory import Trajectory
from evals.statistics import UNKNOWN, Estimate, Floats, Sample

NOTHING_ENDED = "no question was worked on to its end"


class Serving(NamedTuple):
    """How a model is served: the number of GPUs, the price of each in USD an hour, and the number
    of questions at a time."""

    gpu_usd_per_hour: float
    gpus: int
    concurrency: int

    @property
    def usd_per_second(self) -> float:
        """The price of all its GPUs."""
        return self.gpu_usd_per_hour * self.gpus / 3600

    def __str__(self) -> str:
        gpus, each = ("GPU", "") if self.gpus == 1 else (f"{self.gpus} GPUs", " each")
        price = f"${self.gpu_usd_per_hour:.2f}/h{each}"
        return f"measured on your {gpus} at {price}, concurrency {self.concurrency}"


def servings(config: Mapping[str, Any]) -> dict[str, Serving]:
    """The models of a run's configuration whose cost is measured, and how they were served."""
    price = config.get("gpu_usd_per_hour")
    if price is None:
        return {}
    return {
        model: Serving(price, config["gpus"], config["concurrency"][model])
        for model in config["self_hosted"]
    }


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


def gpu_seconds(episodes: Sequence[Trajectory]) -> list[float | None]:
    """The GPU time of each episode of one model, in seconds.

    None for a failed episode, and for all if none ended: the others bear the time of the failed.
    """
    if not episodes:
        return []
    begun = [dt.datetime.fromisoformat(each.started_at) for each in episodes]
    starts = np.asarray([(each - min(begun)).total_seconds() for each in begun])
    times = shares(starts, starts + np.asarray([each.seconds["total"] for each in episodes]))
    ended = np.asarray([each.error is None for each in episodes])
    borne = times[ended].sum()
    if not borne:
        return [None] * len(episodes)
    times *= times.sum() / borne
    return [float(time) if of else None for time, of in zip(times, ended, strict=True)]


def at_measured_cost(
    episodes: Sequence[Trajectory], served: Mapping[str, Serving]
) -> list[Trajectory]:
    """The episodes in their order, those of `served` models with their measured cost.

    In the run that measures it, it takes precedence over any known price.
    """
    costed = list(episodes)
    for model, serving in served.items():
        places = [place for place, each in enumerate(episodes) if each.model == model]
        times = gpu_seconds([episodes[place] for place in places])
        for place, time in zip(places, times, strict=True):
            cost = None if time is None else time * serving.usd_per_second
            costed[place] = dataclasses.replace(episodes[place], cost_usd=cost)
    return costed


def throughput(episodes: Sequence[Trajectory], sample: Sample, serving: Serving) -> dict[str, Any]:
    """The figures of one model's episodes; `sample` is theirs."""
    times = gpu_seconds(episodes)
    ended = [time is not None for time in times]
    seconds = [time for time in times if time is not None]
    used = [each.usage for each, of in zip(episodes, ended, strict=True) if of]
    prompts, completions = (
        [float(usage[name]) for usage in used] for name in ("prompt_tokens", "completion_tokens")
    )
    whole = sum(seconds)
    measured = sample.of(ended)

    def per_second(counts: Sequence[float]) -> Estimate:
        return measured.ratio(counts, seconds) if seconds else UNKNOWN

    return {
        "seconds": whole if seconds else None,
        "n": len(seconds),
        "at_once": sum(each.seconds["total"] for each in episodes) / whole if seconds else None,
        "questions_per_second": per_second([1.0] * len(seconds)),
        "prompt_tokens_per_second": per_second(prompts),
        "completion_tokens_per_second": per_second(completions),
        "gpu_hours_per_1000": measured.mean([time * serving.gpus / 3.6 for time in seconds]),
        "prompt_tokens": int(sum(prompts)),
        "completion_tokens": int(sum(completions)),
        **serving._asdict(),
        "left_out": None if seconds else NOTHING_ENDED,
    }
