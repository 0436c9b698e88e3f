"""The throughput of a self-hosted model: questions and tokens a second, GPU hours.

    {"seconds":     in which it was being asked, see evals/gpu_time.py
     "n":           questions that it worked on to their end
     "at_once":     questions under way at a time, the mean over those seconds
     "questions_per_second", "prompt_tokens_per_second", "completion_tokens_per_second",
     "gpu_hours_per_1000":       of all GPUs together; estimates
     "prompt_tokens", "completion_tokens":    of those n questions, sums
     "gpu_usd_per_hour", "gpus", "concurrency":    as it was served
     "left_out":    why there is no measurement; null where there is one}

The intervals say what other questions of the kind would have given on the same server in
the same hour. One run has one wall time: how much the machine's speed differs from hour to
hour is not in them.
"""

import dataclasses
import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from art_e.trajectory import Trajectory


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
        gpus = "your GPU" if self.gpus == 1 else f"your {self.gpus} GPUs"
        each = "" if self.gpus == 1 else " each"
        price = f"${self.gpu_usd_per_hour:.2f}/h{each}"
        return f"measured on {gpus} at {price}, concurrency {self.concurrency}"


class Spans(NamedTuple):
    """When episodes ran, in seconds from the first one's start."""

    starts: NDArray[np.float64]
    ends: NDArray[np.float64]


def servings(config: Mapping[str, Any]) -> dict[str, Serving]:
    """The models of a run's configuration whose cost is measured, and how they were served."""
    price = config.get("gpu_usd_per_hour")
    if price is None:
        return {}
    return {
        model: Serving(price, config["gpus"], config["concurrency"][model])
        for model in config["self_hosted"]
    }


def spans(episodes: Sequence[Trajectory]) -> Spans:
    """When the episodes ran."""
    begun = [dt.datetime.fromisoformat(each.started_at) for each in episodes]
    first = min(begun, default=dt.datetime.min)
    starts = np.asarray([(each - first).total_seconds() for each in begun], dtype=np.float64)
    took = np.asarray([each.seconds["total"] for each in episodes], dtype=np.float64)
    return Spans(starts, starts + took)


def shares(of: Spans) -> NDArray[np.float64]:
    """Each episode's share of the time in which any of them ran, in seconds.

    The shares add up to that time.
    """
    if not len(of.starts):
        return np.zeros(0)
    moments = np.unique(np.concatenate([of.starts, of.ends]))
    first, last = np.searchsorted(moments, of.starts), np.searchsorted(moments, of.ends)
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
    of_each = shares(spans(episodes))
    ended = np.asarray([each.error is None for each in episodes], dtype=np.bool_)
    borne = float(of_each[ended].sum())
    if not borne:
        return [None] * len(episodes)
    of_each *= float(of_each.sum()) / borne
    return [float(time) if of else None for time, of in zip(of_each, ended, strict=True)]


def at_measured_cost(
    episodes: Sequence[Trajectory], served: Mapping[str, Serving]
) -> list[Trajectory]:
    """The episodes in their order, those of `served` models with their measured cost.

    In the run that measures it, it takes precedence over any known price.
    """
    costs: dict[int, float | None] = {}
    for model, serving in served.items():
        places = [place for place, each in enumerate(episodes) if each.model == model]
        times = gpu_seconds([episodes[place] for place in places])
        for place, time in zip(places, times, strict=True):
            costs[place] = None if time is None else time * serving.usd_per_second
    return [
        dataclasses.replace(each, cost_usd=costs[place]) if place in costs else each
        for place, each in enumerate(episodes)
    ]
