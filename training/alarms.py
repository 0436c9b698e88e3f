"""Alarms of a training run: what its rows show going wrong, and what to do about it.

    watchdog = Watchdog()
    for alarm in watchdog.new(alarms_of(steps, validations)):     # at each step
        ...

Each alarm is a small function of the rows so far and looks at means over several steps, so that one
noisy step raises nothing. Reward hacking, a jump of reward included, is for the detectors of
`evals.hacking`, which look at the episodes. A `Watchdog` gives the alarms that are new. An alarm is
a reason to look; it stops nothing.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from training.progress import Step, Validation

# Steps that a figure is averaged over. The share of a step of 8 questions has a standard deviation
# of 0.18, if all rollouts of a question are alike; of 8 steps 0.06.
WINDOW = 8
# The first steps stand for the start if there is no validation before them.
START = 4

# Share of episodes that abstain: beyond it little is left to learn from.
NEARLY_ALL = 0.85
# Above the start's share. Learning to abstain from unanswerable questions raises it by no more than
# their share, a quarter or a third.
FAR_ABOVE = 0.35
# An accuracy that falls by less may be the noise of two windows.
FALLEN = 0.1

# Of the start's entropy. Honest learning halves or quarters it.
ENTROPY_LEFT = 0.1
# In nats a token: the likeliest token is drawn 999 times of 1,000, and rollouts of some hundred
# tokens are mostly copies.
ENTROPY_NONE = 0.005
# At such an accuracy exploring finds little.
LEARNT = 0.95

# Share of a window's groups. If most episodes fail, a third of the batch is left to learn from.
MOSTLY_FLAT = 2 / 3
# If most are right, groups are flat because they are learnt: up to 0.73 to 0.82 in six successful
# runs of nano (2026-11). Beyond this an eighth of the batch is left.
NEARLY_FLAT = 7 / 8
MOSTLY_RIGHT = 0.5

# In malformed calls an episode above the best window, and as a multiple of it.
FORMAT_RISE, FORMAT_FACTOR = 0.1, 2.0
# In standard errors of the difference of two windows, one of which was chosen because it is low.
FORMAT_ERRORS = 4.0

SHOW = "look at its episodes with art-e runs show RUN --episode ID"


@dataclass(frozen=True, slots=True)
class TrainingAlarm:
    """One line: what was seen, with numbers, and what to do about it.

    `message` may quote what a model wrote, cut short; it is untrusted text.
    """

    kind: str
    message: str


class Watchdog:
    """Picks the new alarms, by their kinds.

    A kind is new again after `quiet` looks without it, so that an alarm at the edge of its
    threshold is not repeated at every other step. A resumed run passes in `away` as it was.
    """

    def __init__(self, quiet: int = WINDOW, away: Mapping[str, int] | None = None) -> None:
        self._quiet = quiet
        self._away = dict(away or {})

    @property
    def away(self) -> dict[str, int]:
        """The number of looks that each recent kind has been away for."""
        return dict(self._away)

    def new(self, alarms: Sequence[TrainingAlarm]) -> list[TrainingAlarm]:
        """The alarms whose kind is new."""
        fresh = [each for each in alarms if each.kind not in self._away]
        self._away = {
            kind: away + 1 for kind, away in self._away.items() if away + 1 < self._quiet
        } | {each.kind: 0 for each in alarms}
        return fresh


def alarms_of(steps: Sequence[Step], validations: Sequence[Validation]) -> list[TrainingAlarm]:
    """The alarms after the last of `steps`, given all rows so far in order.

    Supervised training raises none: its steps have no episodes.
    """
    looks = (collapse, entropy_gone, no_spread, format_rising)
    return [alarm for look in looks if (alarm := look(steps, validations)) is not None]


def collapse(steps: Sequence[Step], validations: Sequence[Validation]) -> TrainingAlarm | None:
    """The policy says "I don't know" to nearly everything, and used to answer right."""
    now = _recent(steps, lambda each: each.abstention)
    start = _start(steps, validations, "abstention")
    accuracy = _recent(steps, lambda each: each.accuracy)
    best = _best_accuracy(steps, validations)
    if now is None or start is None or accuracy is None or best is None:
        return None
    if now < NEARLY_ALL or now - start < FAR_ABOVE or best - accuracy < FALLEN:
        return None
    return TrainingAlarm(
        "collapse to abstention",
        f"{now:.0%} of the episodes of the last {WINDOW} steps abstain, {start:.0%} did at the"
        f" start, and accuracy fell from {best:.0%} to {accuracy:.0%}: begin again from the best"
        f" checkpoint with a lower grpo.rate{_rate(steps)}, or with --init from a start that"
        " answers more right; a lower reward.abstained makes it pay less",
    )


def entropy_gone(steps: Sequence[Step], _: Sequence[Validation]) -> TrainingAlarm | None:
    """Rollouts of a question are copies of each other, and there was more to learn."""
    known = [each.entropy for each in steps if each.entropy is not None]
    now = _recent(steps, lambda each: each.entropy)
    if now is None or len(known) < START + WINDOW:
        return None
    start = fmean(known[:START])
    accuracy = _recent(steps, lambda each: each.accuracy)
    if now > max(ENTROPY_NONE, ENTROPY_LEFT * start) or (accuracy or 0) >= LEARNT:
        return None
    right = "" if accuracy is None else f" at an accuracy of {accuracy:.0%}"
    return TrainingAlarm(
        "entropy gone",
        f"entropy is {now:.3g} nats a token over the last {WINDOW} steps, {start:.3g} at the"
        f" start{right}: nothing new is tried; raise grpo.temperature, lower"
        f" grpo.rate{_rate(steps)}, or hold on to the start with grpo.beta",
    )


def no_spread(steps: Sequence[Step], _: Sequence[Validation]) -> TrainingAlarm | None:
    """Most groups have equal rewards and teach nothing."""
    last = [
        (each.flat_groups, each.groups)
        for each in steps[-WINDOW:]
        if each.flat_groups is not None and each.groups
    ]
    if len(last) < WINDOW:
        return None
    flat, groups = (sum(part) for part in zip(*last, strict=True))
    accuracy = _recent(steps, lambda each: each.accuracy)
    right = accuracy is not None and accuracy >= MOSTLY_RIGHT
    if flat < (NEARLY_FLAT if right else MOSTLY_FLAT) * groups:
        return None
    seen = f"{flat} of {groups} groups of the last {WINDOW} steps have no spread in reward"
    if right:
        advice = f"most are right (accuracy {accuracy:.0%}): ask harder questions, or stop here"
    elif accuracy is not None:
        advice = f"most fail (accuracy {accuracy:.0%}): ask easier questions, or train the start on"
    else:
        advice = "ask questions of another difficulty"
    return TrainingAlarm(
        "no spread",
        f"{seen}; {advice}; more grpo.rollouts a question or a higher grpo.temperature help too",
    )


def format_rising(steps: Sequence[Step], _: Sequence[Validation]) -> TrainingAlarm | None:
    """Malformed calls increase after they had decreased."""
    counts = np.asarray([each.format_errors for each in steps if each.format_errors is not None])
    if len(counts) < 2 * WINDOW:
        return None
    now, earlier = counts[-WINDOW:], np.lib.stride_tricks.sliding_window_view(counts, WINDOW)
    before = earlier[:-WINDOW]
    lowest = before[int(before.mean(axis=1).argmin())]
    mean, low = float(now.mean()), float(lowest.mean())
    error = math.sqrt((float(now.var(ddof=1)) + float(lowest.var(ddof=1))) / WINDOW)
    rise = mean - low
    rising = rise >= max(FORMAT_RISE, FORMAT_ERRORS * error) and mean >= FORMAT_FACTOR * low
    if not rising:
        return None
    return TrainingAlarm(
        "format errors rising",
        f"{mean:.2f} malformed calls an episode over the last {WINDOW} steps, {low:.2f} when"
        f" they were fewest: lower grpo.rate{_rate(steps)}, raise reward.format, or lower"
        f" grpo.temperature; {SHOW}",
    )


def _recent(steps: Sequence[Step], of: Callable[[Step], float | None]) -> float | None:
    """The mean of the last `WINDOW` steps; None if fewer than half have it or it is not finite."""
    last = [figure for each in steps[-WINDOW:] if (figure := of(each)) is not None]
    if len(steps) < WINDOW or 2 * len(last) < WINDOW:
        return None
    mean = fmean(last)
    return mean if math.isfinite(mean) else None


def _start(steps: Sequence[Step], validations: Sequence[Validation], name: str) -> float | None:
    """A share before training: by the first validation, or else in the first steps."""
    first = getattr(validations[0], name) if validations and validations[0].step == 0 else None
    if first is not None:
        return float(first)
    known = [figure for each in steps[:START] if (figure := getattr(each, name)) is not None]
    return fmean(known) if known else None


def _best_accuracy(steps: Sequence[Step], validations: Sequence[Validation]) -> float | None:
    """The best accuracy of a window of steps, or of the start."""
    known = np.asarray([each.accuracy for each in steps if each.accuracy is not None])
    start = _start(steps, validations, "accuracy")
    windows = np.convolve(known, np.ones(WINDOW) / WINDOW, "valid") if len(known) >= WINDOW else ()
    return max([*windows, *([] if start is None else [start])], default=None)


def _rate(steps: Sequence[Step]) -> str:
    """The last learning rate, in brackets."""
    rate = steps[-1].learning_rate
    return "" if rate is None else f" (now {rate:g})"
