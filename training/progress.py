"""How a training run goes: a row per step, one per validation, and alarms.

An alarm looks at means over several batches of rollouts, so that one noisy batch raises nothing.
"""

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from art_e.storage import whole_lines
from evals.hacking import detect
from evals.scored import Scored

# Files of a run's folder: the steps, and the episodes of the test.
STEPS, EPISODES = "steps.jsonl", "test.jsonl"


@dataclass(frozen=True, slots=True)
class Step:
    """One optimizer step. `seconds`, `tokens` (trained on and generated) and `cost_usd` are sums
    since the run began, kills included. The figures of episodes are None in supervised training.
    `accuracy` is of answerable questions; of the `groups`, `flat_groups` had no spread in reward
    and `unranked` were not compared; `unjudged` episodes lost their groups. `entropy` is in nats a
    token. `ratio_mean` is a token's probability by the trainer over that by vLLM."""

    step: int
    seconds: float
    tokens: int
    loss: float | None = None
    learning_rate: float | None = None
    grad_norm: float | None = None
    reward: float | None = None
    components: dict[str, float] = field(default_factory=dict)
    accuracy: float | None = None
    hallucination: float | None = None
    abstention: float | None = None
    turns: float | None = None
    effort: float | None = None
    format_errors: float | None = None
    calls: float | None = None
    entropy: float | None = None
    ratio_mean: float | None = None
    groups: int | None = None
    flat_groups: int | None = None
    unjudged: int | None = None
    unranked: int | None = None
    cost_usd: float = 0.0


@dataclass(frozen=True, slots=True)
class Validation:
    """The held-out questions at one step, by the judge of validations (`reward`: by its own).
    `correct` counts right abstentions too. `accuracy` is the share of answerable questions, and
    `hallucination_unanswerable` of the others."""

    step: int
    n: int
    correct: float | None
    accuracy: float | None
    hallucination: float | None
    hallucination_unanswerable: float | None
    abstention: float | None
    turns: float | None
    effort: float | None
    turns_when_correct: float | None
    effort_when_correct: float | None
    format_errors: float | None
    reward: float | None

    @property
    def merit(self) -> tuple[float, float]:
        """What the best checkpoint has most of: questions handled right, then few wrong answers."""
        return self.correct or 0.0, -(self.hallucination or 0.0)


def mean_of(values: Sequence[float]) -> float | None:
    """The mean; None for no values."""
    return fmean(values) if values else None


def by_second(scored: Scored) -> Scored:
    """The episode by the verdict of its second judge, if it has one."""
    if not (seconds := scored.trajectory.other_verdicts):
        return scored
    others = [*seconds[1:], *filter(None, [scored.trajectory.verdict])]
    trajectory = dataclasses.replace(scored.trajectory, verdict=seconds[0], other_verdicts=others)
    return Scored(scored.question, trajectory)


def read_steps(folder: Path) -> list[Step]:
    """The steps of a run's folder; none without a file."""
    return [Step(**json.loads(line)) for line in whole_lines(folder / STEPS)]


# ---- Alarms: a reason to look; they stop nothing.

# Batches of a mean: the share of one of 8 questions has a standard deviation of 0.18, if all
# rollouts of a question are alike; of 8 batches 0.06.
WINDOW = 8
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
    """What was seen, with numbers, and what to do about it, in a line of untrusted text."""

    kind: str
    message: str


def alarms_of(steps: Sequence[Step], validations: Sequence[Validation]) -> list[TrainingAlarm]:
    """Return the alarms after the last of `steps`, the last row of each batch so far."""
    looks = (collapse, no_spread, engines_differ)
    return [alarm for look in looks if (alarm := look(steps, validations)) is not None]


def collapse(steps: Sequence[Step], validations: Sequence[Validation]) -> TrainingAlarm | None:
    """The policy says "I don't know" to nearly everything, and used to answer right."""
    now, accuracy = _recent(steps, "abstention"), _recent(steps, "accuracy")
    if now is None or accuracy is None or not validations:
        return None
    # The first validation comes before any step.
    start, values = validations[0].abstention or 0.0, _values(steps, "accuracy")
    windows = (fmean(values[at : at + WINDOW]) for at in range(len(values) - WINDOW + 1))
    best = max([validations[0].accuracy or 0.0, *windows])
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
    flat, groups = (sum(_values(steps[-WINDOW:], name)) for name in ("flat_groups", "groups"))
    accuracy = _recent(steps, "accuracy")
    right = accuracy is not None and accuracy >= MOSTLY_RIGHT
    if len(steps) < WINDOW or not groups or flat < (NEARLY_FLAT if right else MOSTLY_FLAT) * groups:
        return None
    share = "" if accuracy is None else f" (accuracy {accuracy:.0%})"
    advice = f"most fail{share}: ask easier questions, or train the start on"
    if right:
        advice = f"most are right{share}: ask harder questions, or stop here"
    return TrainingAlarm(
        "no spread",
        f"{flat:g} of {groups:g} groups of the last {WINDOW} batches have no spread in reward;"
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


def hacking_alarms(scored: Sequence[Scored]) -> list[TrainingAlarm]:
    """Return the alarms of `evals.hacking` on all episodes so far, one kind for each detector. It
    takes seconds: call it at validations, not at steps."""
    return [
        TrainingAlarm(
            f"hacking: {each.detector}",
            f"{each.message}; look at its episodes with art-e runs show RUN --episode ID"
            + (f" (such as {each.episodes[0]})" if each.episodes else "")
            + "; if the answers are not honest, fix what judging.reward accepts",
        )
        for each in detect(scored)
    ]


def _values(steps: Sequence[Step], name: str) -> list[float]:
    return [value for each in steps if (value := getattr(each, name)) is not None]


def _recent(steps: Sequence[Step], name: str) -> float | None:
    """Return the finite mean of the last `WINDOW` steps; None if fewer than half have a figure."""
    last = _values(steps[-WINDOW:], name)
    if len(steps) < WINDOW or 2 * len(last) < WINDOW:
        return None
    mean = fmean(last)
    return mean if math.isfinite(mean) else None
