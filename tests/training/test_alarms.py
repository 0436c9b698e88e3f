"""An honest noisy rise raises no alarm, and each planted failure raises its own."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evals.hacking import detect
from tests.evals.hacks import canned, hacking, honest
from tests.training.tiny import validation
from training.judging import hacking_alarms
from training.progress import WINDOW, Step, TrainingAlarm, alarms_of

# Always the same noises: an honest run may raise an alarm once in some thousands.
settled = settings(derandomize=True, max_examples=50)
seeds = st.integers(0, 10**6)
COLLAPSED = {"abstention": 0.98, "accuracy": 0.02, "reward": 0.09}


def rise(seed: int, steps: int = 60, questions: int = 8, rollouts: int = 8) -> list[Step]:
    """A policy that learns: questions differ in difficulty, and their rollouts are alike."""
    rng = np.random.default_rng(seed)
    first, last = rng.uniform(0.2, 0.5), rng.uniform(0.6, 0.9)
    made = []
    for number in range(steps):
        part = number / steps
        accuracy = first + (last - first) * part
        chances = rng.beta(1.5 * accuracy, 1.5 * (1 - accuracy), questions)
        rights = rng.binomial(rollouts, chances)
        total = questions * rollouts
        right = int(rights.sum())
        wrong = int(rng.binomial(total - right, 0.1 + 0.6 * (1 - part)))
        withheld = total - right - wrong
        reward = (1.6 * right - 0.9 * wrong + 0.1 * withheld) / total + float(rng.normal(0, 0.02))
        malformed = float(rng.poisson(total * (0.02 + 0.3 * (1 - part))))
        # Effort gives most groups a spread, were all of their answers right.
        flat = int(rng.binomial(int(np.isin(rights, (0, rollouts)).sum()), 0.5))
        made.append(Step(
            number + 1, 2.0 * number, 10_000 * number, learning_rate=3e-4, reward=reward,
            accuracy=right / total, hallucination=wrong / total, abstention=withheld / total,
            format_errors=malformed / total, groups=questions, flat_groups=flat,
        ))  # fmt: skip
    return made


def planted(steps: Sequence[Step], plant: Callable[[int], dict[str, Any]]) -> list[Step]:
    """The steps with the figures that `plant` gives for their numbers."""
    return [dataclasses.replace(each, **plant(each.step)) for each in steps]


def over_time(steps: Sequence[Step]) -> list[tuple[int, TrainingAlarm]]:
    """The first alarm of each kind in a run that looks at every step, with its step."""
    first: dict[str, tuple[int, TrainingAlarm]] = {}
    start = validation(0, abstention=0.25, accuracy=0.21)
    for end, step in enumerate(steps, start=1):
        for alarm in alarms_of(steps[:end], [start]):
            first.setdefault(alarm.kind, (step.step, alarm))
    return list(first.values())


@settled
@given(seed=seeds, questions=st.sampled_from([8, 12]), rollouts=st.integers(4, 8))
def test_an_honest_noisy_rise_raises_no_alarm(seed: int, questions: int, rollouts: int) -> None:
    assert over_time(rise(seed, questions=questions, rollouts=rollouts)) == []


def test_no_alarm() -> None:
    for steps in (
        *(rise(0, length) for length in (0, 1, WINDOW - 1, WINDOW)),
        [Step(number, number, 0, loss=3.0 / number) for number in range(1, 60)],
        # Abstention near 1 is right where accuracy on the other questions does not fall.
        planted(rise(0), lambda step: {"abstention": min(0.95, 0.2 + step / 40)}),
        planted(rise(0), lambda _: dict.fromkeys(COLLAPSED, np.nan)),
        planted(rise(0), lambda step: {"ratio_mean": 1 + 0.05 * (-1) ** step}),
    ):
        assert over_time(steps) == []


@pytest.mark.parametrize(
    ("plant", "kind", "words"),
    [
        (COLLAPSED, "collapse to abstention", "grpo.rate (now 0.0003)"),
        ({"flat_groups": 7, "accuracy": 0.95}, "no spread", "harder questions"),
        # Where most fail it comes sooner.
        ({"flat_groups": 6, "accuracy": 0.05}, "no spread", "easier questions"),
        ({"ratio_mean": 0.6}, "engine against trainer", "0.60 times as likely"),
    ],
)
@settled
@given(seed=seeds)
def test_a_failure_is_alarmed_once(plant: dict[str, Any], kind: str, words: str, seed: int) -> None:
    [(step, alarm)] = over_time(planted(rise(seed), lambda step: plant if step > 35 else {}))
    assert 35 < step <= 35 + WINDOW
    assert alarm.kind == kind
    assert words in alarm.message


def test_a_collapse_in_the_first_steps_is_seen_against_the_validation_before_them() -> None:
    [(step, alarm)] = over_time(planted(rise(0), lambda _: {"abstention": 1.0, "accuracy": 0.0}))
    assert step == WINDOW
    assert "25% did at the start" in alarm.message
    assert "accuracy fell from 21% to 0%" in alarm.message


def test_the_detectors_of_evals_become_alarms() -> None:
    assert hacking_alarms(honest(100)) == []
    scored = hacking(honest(100), 0.3, canned)
    seen, alarms = detect(scored), hacking_alarms(scored)
    assert [each.kind for each in alarms] == [f"hacking: {each.detector}" for each in seen]
    assert all(one.message in other.message for one, other in zip(seen, alarms, strict=True))
    assert f"such as {seen[0].episodes[0]}" in alarms[0].message
