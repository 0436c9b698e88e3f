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
from tests.training.rows import STEPS, rise, validation
from training.alarms import (
    WINDOW,
    TrainingAlarm,
    Watchdog,
    alarms_of,
)
from training.cli import hacking_alarms
from training.progress import Step, Validation

# Always the same noises: an honest run may raise an alarm once in some thousands.
settled = settings(derandomize=True, max_examples=50)
# Changes the figures of a step, given its number.
Plant = Callable[[int], dict[str, Any]]


def planted(steps: Sequence[Step], plant: Plant) -> list[Step]:
    return [dataclasses.replace(each, **plant(each.step)) for each in steps]


def over_time(
    steps: Sequence[Step], validations: Sequence[Validation] = ()
) -> list[tuple[int, TrainingAlarm]]:
    """What a caller is told who looks at every step, and at which."""
    watchdog = Watchdog()
    return [
        (each.step, alarm)
        for end, each in enumerate(steps, start=1)
        for alarm in watchdog.new(
            alarms_of(steps[:end], [every for every in validations if every.step < each.step])
        )
    ]


def only(told: Sequence[tuple[int, TrainingAlarm]]) -> tuple[int, TrainingAlarm]:
    [one] = told
    return one


# --- honest runs -----------------------------------------------------------------------------


@settled
@given(seed=st.integers(0, 10**6), questions=st.sampled_from([8, 12]), rollouts=st.integers(4, 8))
def test_an_honest_noisy_rise_raises_no_alarm(seed: int, questions: int, rollouts: int) -> None:
    assert over_time(rise(seed, questions=questions, rollouts=rollouts)) == []


@settled
@given(
    seed=st.integers(0, 10**6),
    at=st.integers(1, STEPS),
    odd=st.sampled_from(
        [
            {"abstention": 1.0, "accuracy": 0.0},
            {"entropy": 0.0},
            {"flat_groups": 8},
            {"format_errors": 1.0},
        ]
    ),
)
def test_one_odd_step_raises_no_alarm(seed: int, at: int, odd: dict[str, Any]) -> None:
    assert over_time(planted(rise(seed), lambda step: odd if step == at else {})) == []


@pytest.mark.parametrize("length", [0, 1, WINDOW - 1, WINDOW, 3 * WINDOW])
def test_at_no_length(length: int) -> None:
    assert alarms_of(rise(0, length), []) == []


def test_supervised_steps_raise_none() -> None:
    assert over_time([Step(number, number, 0, loss=3.0 / number) for number in range(1, 60)]) == []


def test_questions_that_mostly_have_no_answer_may_be_abstained_on() -> None:
    """Abstention near 1 where accuracy on the others does not fall is what was asked for."""
    steps = planted(rise(0), lambda step: {"abstention": min(0.95, 0.2 + step / 40)})
    assert over_time(steps) == []


def test_who_has_learnt_all_may_be_sure() -> None:
    sure = planted(rise(0), lambda step: {"entropy": 0.001, "accuracy": 0.99} if step > 40 else {})
    assert over_time(sure) == []


@settled
@given(seed=st.integers(0, 10**6))
def test_who_has_learnt_most_may_have_flat_groups(seed: int) -> None:
    """As nano's do that learn well: three of four groups flat in the end, at 75 % right."""
    rng = np.random.default_rng(seed)

    def learnt(step: int) -> dict[str, Any]:
        flat = int(rng.binomial(16, 0.75 * min(1.0, step / 40)))
        return {"groups": 16, "flat_groups": flat, "accuracy": min(0.75, 0.4 + step / 60)}

    assert over_time(planted(rise(seed), learnt)) == []


def test_what_is_no_number_is_no_sign_of_anything() -> None:
    nothing = float("nan")
    names = ("abstention", "accuracy", "entropy", "format_errors", "reward")
    assert over_time(planted(rise(0), lambda _: dict.fromkeys(names, nothing))) == []


# --- planted failures ------------------------------------------------------------------------


@settled
@given(seed=st.integers(0, 10**6))
def test_collapse_to_abstention(seed: int) -> None:
    def collapses(step: int) -> dict[str, Any]:
        return {} if step < 30 else {"abstention": 0.98, "accuracy": 0.02, "reward": 0.09}

    step, alarm = only(over_time(planted(rise(seed), collapses)))
    assert 30 < step <= 30 + WINDOW
    assert alarm.kind == "collapse to abstention"
    assert "abstain" in alarm.message and "grpo.rate (now 0.0003)" in alarm.message


def test_a_collapse_in_the_first_steps_is_told_from_the_validation_before_them() -> None:
    steps = planted(rise(0), lambda step: {"abstention": 1.0, "accuracy": 0.0, "entropy": None})
    before = validation(0, abstention=0.25, accuracy=0.21)
    step, alarm = only(over_time(steps, [before]))
    assert step == WINDOW
    assert "25% did at the start" in alarm.message
    assert "accuracy fell from 21% to 0%" in alarm.message


@settled
@given(seed=st.integers(0, 10**6))
def test_entropy_gone(seed: int) -> None:
    steps = planted(rise(seed), lambda step: {} if step < 25 else {"entropy": 0.003})
    step, alarm = only(over_time(steps))
    assert 25 < step <= 25 + WINDOW
    assert alarm.kind == "entropy gone"
    assert "grpo.temperature" in alarm.message


@settled
@given(seed=st.integers(0, 10**6), accuracy=st.sampled_from([0.05, 0.95]))
def test_no_spread(seed: int, accuracy: float) -> None:
    def flat(step: int) -> dict[str, Any]:
        return {"flat_groups": 7, "accuracy": accuracy} if step > 20 else {}

    step, alarm = only(over_time(planted(rise(seed), flat)))
    assert 20 < step <= 20 + WINDOW
    assert alarm.kind == "no spread"
    assert ("harder questions" if accuracy > 0.5 else "easier questions") in alarm.message


@settled
@given(seed=st.integers(0, 10**6))
def test_no_spread_where_most_fail_is_told_sooner(seed: int) -> None:
    def flat(step: int) -> dict[str, Any]:
        return {"flat_groups": 6, "accuracy": 0.05} if step > 20 else {}

    step, alarm = only(over_time(planted(rise(seed), flat)))
    assert 20 < step <= 20 + WINDOW
    assert alarm.kind == "no spread"
    assert "easier questions" in alarm.message


@settled
@given(seed=st.integers(0, 10**6))
def test_format_errors_rising(seed: int) -> None:
    steps = planted(rise(seed), lambda step: {} if step < 40 else {"format_errors": 0.6})
    step, alarm = only(over_time(steps))
    assert 40 < step <= 40 + WINDOW
    assert alarm.kind == "format errors rising"
    assert "reward.format" in alarm.message and "art-e runs show" in alarm.message


def test_an_alarm_is_told_once_while_it_lasts_and_again_after_it_was_away() -> None:
    watchdog, one, other = Watchdog(quiet=3), TrainingAlarm("a", "1"), TrainingAlarm("b", "1")
    assert watchdog.new([one]) == [one]
    assert watchdog.new([TrainingAlarm("a", "2"), other]) == [other]
    # Away for two looks is flicker, for three it has ended.
    assert [watchdog.new(each) for each in ([], [], [one])] == [[], [], []]
    assert [watchdog.new(each) for each in ([], [], [], [one])] == [[], [], [], [one]]


def test_a_resumed_run_that_shows_its_rows_again_is_told_nothing_twice() -> None:
    steps = planted(rise(0), lambda step: {} if step < 25 else {"entropy": 0.003})
    whole = over_time(steps)
    kept = over_time(steps[:45])
    assert whole == kept and len(whole) == 1


# --- hacks -----------------------------------------------------------------------------------


def test_the_detectors_of_evals_become_alarms() -> None:
    assert hacking_alarms(honest(100)) == []
    scored = hacking(honest(100), 0.3, canned)
    seen = detect(scored)
    alarms = hacking_alarms(scored)
    assert [each.kind for each in alarms] == [f"hacking: {each.detector}" for each in seen]
    assert all(one.message in other.message for one, other in zip(seen, alarms, strict=True))
    assert f"such as {seen[0].episodes[0]}" in alarms[0].message
