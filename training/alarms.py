"""Alarms of a training run: what its rows show going wrong, and what to do about it.

An alarm is a reason to look; it stops nothing. Each looks at means over several batches of
rollouts, by the last step of each, so that one noisy batch raises nothing. `training.judging` looks
for reward hacking in the episodes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from training.progress import Step, Validation

# Batches of a mean: the share of one of 8 questions has a standard deviation of 0.18, if all
# rollouts of a question are alike; of 8 batches 0.06.
WINDOW = 8
# The first batches stand for the start if there is no validation before them.
START = 4
# Collapse: this share abstains, so much above the start's share (learning to abstain from
# unanswerable questions raises it by a quarter or a third), and accuracy fell by so much.
NEARLY_ALL, FAR_ABOVE, FALLEN = 0.85, 0.35, 0.1
# Share of flat groups if most episodes fail, and if more than MOSTLY_RIGHT are right (up to 0.73 to
# 0.82 in six successful runs of nano, 2026-11).
MOSTLY_FLAT, NEARLY_FLAT, MOSTLY_RIGHT = 2 / 3, 7 / 8, 0.5
# How far the mean ratio of probabilities may be from 1, which it is where both compute one model.
APART = 0.1


@dataclass(frozen=True, slots=True)
class TrainingAlarm:
    """One line: what was seen, with numbers, and what to do about it.

    `message` may quote what a model wrote, cut short; it is untrusted text.
    """

    kind: str
    message: str


def alarms_of(steps: Sequence[Step], validations: Sequence[Validation]) -> list[TrainingAlarm]:
    """The alarms after the last of `steps`, given the last row of each batch so far in order."""
    looks = (collapse, no_spread, engines_differ)
    return [alarm for look in looks if (alarm := look(steps, validations)) is not None]


def collapse(steps: Sequence[Step], validations: Sequence[Validation]) -> TrainingAlarm | None:
    """The policy says "I don't know" to nearly everything, and used to answer right."""
    now, accuracy = _recent(steps, "abstention"), _recent(steps, "accuracy")
    start = _start(steps, validations, "abstention")
    best = _best_accuracy(steps, validations)
    if now is None or start is None or accuracy is None or best is None:
        return None
    if now < NEARLY_ALL or now - start < FAR_ABOVE or best - accuracy < FALLEN:
        return None
    rate = "" if steps[-1].learning_rate is None else f" (now {steps[-1].learning_rate:g})"
    return TrainingAlarm(
        "collapse to abstention",
        f"{now:.0%} of the episodes of the last {WINDOW} batches abstain, {start:.0%} did at the"
        f" start, and accuracy fell from {best:.0%} to {accuracy:.0%}: begin again from the best"
        f" checkpoint with a lower grpo.rate{rate}, or with --init from a start that"
        " answers more right; a lower reward.abstained makes it pay less",
    )


def no_spread(steps: Sequence[Step], _: Sequence[Validation]) -> TrainingAlarm | None:
    """Most groups have equal rewards and teach nothing."""
    last = [each for each in steps[-WINDOW:] if each.flat_groups is not None and each.groups]
    if len(last) < WINDOW:
        return None
    flat = sum(each.flat_groups or 0 for each in last)
    groups = sum(each.groups or 0 for each in last)
    accuracy = _recent(steps, "accuracy")
    right = accuracy is not None and accuracy >= MOSTLY_RIGHT
    if flat < (NEARLY_FLAT if right else MOSTLY_FLAT) * groups:
        return None
    if right:
        advice = f"most are right (accuracy {accuracy:.0%}): ask harder questions, or stop here"
    else:
        share = "" if accuracy is None else f" (accuracy {accuracy:.0%})"
        advice = f"most fail{share}: ask easier questions, or train the start on"
    return TrainingAlarm(
        "no spread",
        f"{flat} of {groups} groups of the last {WINDOW} batches have no spread in reward;"
        f" {advice}; more grpo.rollouts a question help too",
    )


def engines_differ(steps: Sequence[Step], _: Sequence[Validation]) -> TrainingAlarm | None:
    """The engine that samples and the trainer don't compute the same model."""
    ratio = _recent(steps, "ratio_mean")
    if ratio is None or abs(ratio - 1) < APART:
        return None
    return TrainingAlarm(
        "engine against trainer",
        f"a sampled token is {ratio:.2f} times as likely to the trainer as to vLLM, in the mean of"
        f" the last {WINDOW} batches: install the locked versions (make gpu), or leave vLLM out"
        " (--set grpo.vllm.mode=off)",
    )


def _values(steps: Sequence[Step], name: str) -> list[float]:
    """The figure of that name, of the steps that have it."""
    return [value for each in steps if (value := getattr(each, name)) is not None]


def _recent(steps: Sequence[Step], name: str) -> float | None:
    """The mean of the last `WINDOW` steps; None if fewer than half have it or it is not finite."""
    last = _values(steps[-WINDOW:], name)
    if len(steps) < WINDOW or 2 * len(last) < WINDOW:
        return None
    mean = fmean(last)
    return mean if math.isfinite(mean) else None


def _start(steps: Sequence[Step], validations: Sequence[Validation], name: str) -> float | None:
    """A share before training: by the first validation, or else in the first steps."""
    first = getattr(validations[0], name) if validations and validations[0].step == 0 else None
    if first is not None:
        return float(first)
    values = _values(steps[:START], name)
    return fmean(values) if values else None


def _best_accuracy(steps: Sequence[Step], validations: Sequence[Validation]) -> float | None:
    """The best accuracy of a window of steps, or of the start."""
    values, start = _values(steps, "accuracy"), _start(steps, validations, "accuracy")
    windows = [fmean(values[at : at + WINDOW]) for at in range(len(values) - WINDOW + 1)]
    return max([*windows, *([] if start is None else [start])], default=None)
