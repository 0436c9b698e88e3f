"""Alarms of a training run: what its rows show going wrong, and what to do about it.

    watchdog = Watchdog()
    for alarm in watchdog.new(alarms_of(steps, validations)):     # at each step
        ...

    hacks = Watchdog(quiet=1)
    for alarm in hacks.new(hacking_alarms(scored)):               # at each validation

Each alarm is a small function of the rows so far, and looks at the means of several steps:
what one noisy step shows raises nothing. It holds as long as what it saw; a `Watchdog` tells
the new ones. An alarm is a reason to look, it stops nothing.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import numpy.typing as npt

from evals.hacking import detect
from evals.scored import Scored
from training.progress import Step, Validation

# Steps that a figure is averaged over. A step of 8 questions tells a share to within 0.18 (one
# standard deviation, were all rollouts of a question alike); 8 of them to within 0.06.
WINDOW = 8
# The first steps, which stand for the start where no validation was made before them.
START = 4

# Of all episodes: with more abstentions than this little is left to learn from.
NEARLY_ALL = 0.85
# Above the start's share. Learning to abstain where nothing answers is what we want, and it
# raises abstention by no more than the share of such questions, a quarter or a third.
FAR_ABOVE = 0.35
# An accuracy that falls by less may be the noise of two windows.
FALLEN = 0.1

# Of the start's entropy. Honest learning halves or quarters it.
ENTROPY_LEFT = 0.1
# In nats a token: the likeliest token is then drawn 999 times of 1,000, and the rollouts of a
# question of some hundred tokens are mostly copies, whatever the start was.
ENTROPY_NONE = 0.005
# From such an accuracy on there is little that exploring could find.
LEARNT = 0.95

# Of a window's groups. Where most fail, what is left to learn from is a third of the batch, and
# more of the same will not change that.
MOSTLY_FLAT = 2 / 3
# Where most are right they are flat for having been learnt, and become more in every run that
# succeeds: to 0.73 to 0.82 in six of nano's (2026-11), whose validations went on to get better, or
# stayed. Beyond this an eighth of the batch is left.
NEARLY_FLAT = 7 / 8
# Half: the accuracy from which on most are right.
MOSTLY_RIGHT = 0.5

# In malformed calls an episode above the best window, and as a multiple of it.
FORMAT_RISE, FORMAT_FACTOR = 0.1, 2.0
# In standard errors of the difference of two windows, one of which was chosen for being low.
FORMAT_ERRORS = 4.0

# A line through so many steps foretells the next ones, which must exceed it by so much: in
# standard errors, and in reward. Of 1,500 made-up honest runs of 60 steps none reached it,
# and of jumps by 1.2 where steps scatter by 0.3 two of three did.
JUMP_BEFORE, JUMP_AFTER = 16, 6
JUMP_ERRORS, JUMP_LEAST = 5.5, 0.3

_SHOW = "look at its episodes with art-e runs show RUN --episode ID"

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TrainingAlarm:
    """What was seen, with numbers, and what to do about it, in one line.

    `message` may quote what a model wrote, cut short; it is untrusted text.
    """

    kind: str
    message: str


class Watchdog:
    """Tells new alarms from those that are up already, by their kinds.

    A kind may be raised again once it was away for `quiet` looks in a row, so that one at the
    edge of its threshold is not told at every other step. A run that resumes gives it `away`,
    how many looks each kind was away for, as it was.
    """

    def __init__(self, quiet: int = WINDOW, away: Mapping[str, int] | None = None) -> None:
        self._quiet = quiet
        self._away = dict(away or {})

    @property
    def away(self) -> dict[str, int]:
        """For how many looks each kind that may not be told again has been away."""
        return dict(self._away)

    def new(self, alarms: Sequence[TrainingAlarm]) -> list[TrainingAlarm]:
        """Those of the alarms that hold now that were not up at the last look."""
        fresh = [each for each in alarms if each.kind not in self._away]
        self._away = {
            kind: away + 1 for kind, away in self._away.items() if away + 1 < self._quiet
        } | {each.kind: 0 for each in alarms}
        return fresh


def alarms_of(steps: Sequence[Step], validations: Sequence[Validation]) -> list[TrainingAlarm]:
    """The alarms that hold after the last of `steps`; both are all rows so far, in order.

    None in supervised training, whose steps have no episodes.
    """
    looks = (collapse, entropy_gone, no_spread, format_rising, reward_jump)
    return [alarm for look in looks if (alarm := look(steps, validations)) is not None]


def hacking_alarms(scored: Sequence[Scored]) -> list[TrainingAlarm]:
    """What the detectors of `evals.hacking` see in all episodes so far, one kind a detector.

    It reads every episode, which takes 2 s for the 7,600 of nano: a thing for validations, not
    for steps.
    """
    alarms = []
    for each in detect(scored):
        shown = f" (such as {each.episodes[0]})" if each.episodes else ""
        advice = (
            f"{_SHOW}{shown}; where they are no honest answers, mend what judging.reward accepts"
            " and keep reward.grounded_gate on"
        )
        alarms.append(TrainingAlarm(f"hacking: {each.detector}", f"{each.message}; {advice}"))
    return alarms


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
    """So many groups have one reward, and so teach nothing, that little is left to learn from."""
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
    """Calls that can't be read become more, after there were fewer."""
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
        f" grpo.temperature; {_SHOW}",
    )


def reward_jump(steps: Sequence[Step], validations: Sequence[Validation]) -> TrainingAlarm | None:
    """Reward went up at a stroke: the policy found something, which may be no better answer.

    Sooner and coarser than the detector of that name in `evals.hacking`, which looks at the
    episodes. It holds for `WINDOW` steps from the one that showed it.
    """
    known = [(each.step, each.reward) for each in steps if each.reward is not None]
    rewards = np.asarray([reward for _, reward in known], dtype=np.float64)
    length = JUMP_BEFORE + JUMP_AFTER
    if len(rewards) < length:
        return None
    spans = np.lib.stride_tricks.sliding_window_view(rewards, length)
    lines = spans[:, :JUMP_BEFORE] @ _LINE.T
    foretold = lines @ _FORETELL
    left = spans[:, :JUMP_BEFORE] - lines @ _AT.T
    noise = (left**2).sum(axis=1) / (JUMP_BEFORE - 2)
    # Steps that lie on a line by luck are no surer than the others of the run.
    error = np.sqrt(_FACTOR * np.maximum(noise, np.median(noise)))
    size = spans[:, JUMP_BEFORE:].mean(axis=1) - foretold
    jumps = np.flatnonzero((size >= JUMP_LEAST) & (size > JUMP_ERRORS * error))
    jumps = jumps[jumps >= len(spans) - WINDOW]
    if not len(jumps):
        return None
    at = int(jumps[size[jumps].argmax()])
    # The steepest step of those that came: the first of them need not be where it happened.
    jump = JUMP_BEFORE + int(np.diff(spans[at, JUMP_BEFORE - 1 :]).argmax())
    step = known[at + jump][0]
    before, after = spans[at, :JUMP_BEFORE].mean(), spans[at, jump:].mean()
    return TrainingAlarm(
        "reward jump",
        f"reward jumped at step {step} (mean {before:.2f} over {JUMP_BEFORE} steps before,"
        f" {after:.2f} from there), which no steady rise explains;"
        f" {_followed(validations, step)}; {_SHOW}, from step {step} on",
    )


def _columns(steps: int) -> Floats:
    return np.column_stack([np.ones(steps), np.arange(steps)])


_AT = _columns(JUMP_BEFORE)
# From steps to the level and slope of the line through them, and on to the mean it foretells.
_LINE: Floats = np.asarray(np.linalg.pinv(_AT), dtype=np.float64)
_FORETELL: Floats = _columns(JUMP_BEFORE + JUMP_AFTER)[JUMP_BEFORE:].mean(axis=0)
# The variance of what is foretold and of what came, in variances of a step.
_FACTOR = float(_FORETELL @ np.linalg.inv(_AT.T @ _AT) @ _FORETELL) + 1 / JUMP_AFTER


def _followed(validations: Sequence[Validation], step: int) -> str:
    """What the other judge said on either side of a step."""
    told = [(each.step, each.accuracy) for each in validations if each.accuracy is not None]
    before = [each for each in told if each[0] < step]
    after = [each for each in told if each[0] >= step]
    if not before or not after:
        return "see whether the next validation's accuracy follows"
    (first, low), (last, high) = before[-1], after[-1]
    return f"validation accuracy was {low:.0%} at step {first} and is {high:.0%} at step {last}"


def _recent(steps: Sequence[Step], of: Callable[[Step], float | None]) -> float | None:
    """The mean of the last `WINDOW` steps; None where fewer than half of them have it, and
    where it is no number any more."""
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
