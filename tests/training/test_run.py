"""A training run's folder after kills and resumes, and its alarms."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from art_e.errors import UserError
from art_e.runs import read_trajectories
from evals.hacking import detect
from evals.scored import Scored
from tests.builders import QUESTION, make_inbox, raw, the_error
from tests.evals.hacks import canned, hacking, honest
from tests.evals.runs import episode
from tests.training import tiny
from tests.training.tiny import validation
from training import run
from training.recipe import Setting, load_recipe
from training.run import STATE, WINDOW, Step, TrainingAlarm, TrainingRun, open_training, read_steps

SETTING = Setting("grpo", tiny.recipe(), 3, "start")


def scored(step: int) -> Scored:
    policy = {"step": step, "group": f"{step}/q"}
    return Scored(QUESTION, episode(QUESTION, "right", policy=policy, episode_id=f"e{step}"))


def validate(training: TrainingRun, step: int, correct: float, wrong: float = 0.0) -> None:
    row = validation(step, correct=correct, hallucination=wrong)
    training.add_validation(row, [scored(step)])


def make_step(training: TrainingRun, number: int) -> None:
    training.add_episodes([scored(number)])
    training.add_step(Step(number, training.seconds, 10 * number, cost_usd=0.5 * number))


def make_checkpoint(training: TrainingRun, number: int, correct: float) -> None:
    validate(training, number, correct)
    folder = training.run.folder / "checkpoints" / f"checkpoint-{number}"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").touch()
    training.checkpoint_saved(number)


def killed(out: Path, correct: Sequence[float], steps: int) -> None:
    """Make a run that was killed after `steps`, with a checkpoint every second step."""
    with tiny.started(SETTING, out) as training:
        validate(training, 0, 0.0)
        left = iter(correct)
        for number in range(1, steps + 1):
            make_step(training, number)
            if number % 2 == 0:
                make_checkpoint(training, number, next(left))


def refused(setting: Setting, out: Path) -> str:
    return the_error(tiny.started(setting, out, resume=True).__enter__)


def hacking_seen(message: str) -> Any:
    alarm = TrainingAlarm("hacking", message)
    return mock.patch.object(run, "hacking_alarms", lambda _: [alarm])


def names(out: Path) -> list[str]:
    return sorted(each.name for each in (out / "checkpoints").iterdir())


def stored(out: Path) -> list[int]:
    return [each.policy["step"] for each in read_trajectories(out / "trajectories.jsonl")]


def test_a_resumed_run_continues_from_its_newest_checkpoint(tmp_path: Path) -> None:
    out = tmp_path / "run"
    killed(out, [0.3, 0.2], steps=5)
    with tiny.started(SETTING, out, resume=True) as training:
        assert training.checkpoint == out / "checkpoints" / "checkpoint-4"
        assert [each.step for each in training.steps] == [1, 2, 3, 4]
        assert [each.step for each in training.validations] == [0, 2, 4]
        assert (training.tokens, training.cost_before) == (40, 2.0)
        assert training.seconds >= training.state["seconds"]
        # Step 5 was under way when the run was killed: it is repeated.
        assert stored(out) == [0, 1, 2, 2, 3, 4, 4]
        # Only one process works on a run.
        assert refused(SETTING, out)
        make_step(training, 5)
    assert [each.step for each in read_steps(out)] == [1, 2, 3, 4, 5]
    assert stored(out) == [0, 1, 2, 2, 3, 4, 4, 5]


@pytest.mark.parametrize("steps", [3, 1])
def test_torn_files_do_not_count(tmp_path: Path, steps: int) -> None:
    out = tmp_path / "run"
    killed(out, [0.3], steps=steps)
    torn = out / "checkpoints" / "checkpoint-4"
    torn.mkdir(parents=True)
    (torn / f".{STATE}.partial").write_text('{"validation": [')
    for name, line in (("trajectories", '{"schema": 1, "poli'), ("steps", '{"step": 4, "seco')):
        with (out / f"{name}.jsonl").open("a") as lines:
            lines.write(line)
    whole = out / "checkpoints" / "checkpoint-2" if steps == 3 else None
    with tiny.started(SETTING, out, resume=True) as training:
        assert training.checkpoint == whole
        assert [each.step for each in training.steps] == ([1, 2] if whole else [])
        assert names(out) == (["checkpoint-2"] if whole else [])
        assert stored(out) == ([0, 1, 2, 2] if whole else [])


def test_run_with_other_settings_is_not_resumed(tmp_path: Path) -> None:
    out = tmp_path / "run"
    killed(out, [0.3], steps=2)
    before = (out / "trajectories.jsonl").read_bytes()
    for other, words in (
        (SETTING._replace(seed=4), "started with seed=3"),
        (SETTING._replace(recipe=tiny.recipe("grpo.rate=1e-5")), "started with grpo.rate=0.002"),
        (SETTING._replace(kind="sft"), "started with kind=grpo"),
        (SETTING._replace(init="other"), "started with init=start"),
    ):
        assert words in refused(other, out)
    assert (out / "trajectories.jsonl").read_bytes() == before


def test_a_run_is_not_resumed_over_other_mail(tmp_path: Path) -> None:
    db, moved = tmp_path / "inbox.duckdb", tmp_path / "moved.duckdb"
    golden = f"data={{questions='{tmp_path}', db='{db}'}}"
    recipe = tiny.recipe(golden, "judging.validation=offline")
    setting, out = Setting("grpo", recipe, 0), tmp_path / "run"
    make_inbox(db, [raw("<1@t>"), raw("<2@t>", subject="Other")])
    with tiny.started(setting, out) as training:
        make_step(training, 1)
    db.rename(moved)
    make_inbox(db, [raw("<1@t>"), raw("<2@t>", subject="Another")])
    assert "started with inbox=" in refused(setting, out)
    moved.replace(db)
    with tiny.started(setting, out, resume=True) as training:
        assert training.setting == setting


def test_a_run_may_resume_with_another_server_and_limit(tmp_path: Path) -> None:
    """A cluster restarts jobs on other machines."""
    elsewhere = ["grpo.vllm.server=http://b:8000", "judging.max_cost_usd=90"]
    changes = (["grpo.vllm.server=http://a:8000"], elsewhere, ["grpo.vllm.memory=0.3"])
    here, there, other = (Setting("grpo", load_recipe("talk-multi", each), 0) for each in changes)
    out = tmp_path / "run"
    with tiny.started(here, out) as training:
        make_step(training, 1)
    with tiny.started(there, out, resume=True) as training:
        assert training.setting == there
    assert "started with grpo.vllm.memory" in refused(other, out)


def test_runs_that_can_not_be_opened(tmp_path: Path) -> None:
    out = tmp_path / "run"
    # A run that fails before its first episode leaves nothing behind.
    with pytest.raises(UserError, match="no such model"), tiny.started(SETTING, out):
        raise UserError("no such model")
    assert not out.exists()
    with pytest.raises(UserError, match="no more money"), tiny.started(SETTING, out) as training:
        make_step(training, 1)
        raise UserError("no more money")
    (out / "COMPLETE").touch()
    for folder, resume, words in (
        (out, False, "already exists"), (out, True, "is complete"),
        (tmp_path / "none", True, "no run to resume"), (None, True, "with --out"),
    ):  # fmt: skip
        assert words in the_error(open_training(SETTING, folder, tmp_path, resume=resume).__enter__)


def test_the_best_checkpoint_and_the_last_are_kept(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with tiny.started(SETTING, out) as training:
        assert training.best is None
        validate(training, 0, 0.9)
        for step, correct, left in (
            (2, 0.3, ["checkpoint-2"]),
            (4, 0.6, ["checkpoint-4"]),
            (6, 0.5, ["checkpoint-4", "checkpoint-6"]),
            # The earliest of equals. The start does not count.
            (8, 0.6, ["checkpoint-4", "checkpoint-8"]),
        ):
            make_checkpoint(training, step, correct)
            assert names(out) == left
        # Of two with as many right, the one with fewer wrong answers. It has no folder yet.
        validate(training, 9, 0.6, -0.1)
        assert training.best_checkpoint is None
    metrics = json.loads((out / "metrics.json").read_text("utf-8"))
    assert metrics["best_checkpoint"] == "checkpoints/checkpoint-4"
    assert [each["step"] for each in metrics["validation"]] == [0, 2, 4, 6, 8]
    # With early noise a start is chosen from the last stage.
    recipe = tiny.recipe("sft.early_noise.reads_one=0")
    with tiny.started(Setting("sft", recipe, 3), tmp_path / "start") as training:
        chosen = []
        for step, share in ((0, 0.9), (10, 0.8), (15, 0.3), (20, 0.2)):
            validate(training, step, share)
            chosen.append(training.best and training.best.step)
    assert chosen == [0, 10, 15, 15]


def test_alarms_are_raised_once_and_survive_a_kill(tmp_path: Path) -> None:
    out = tmp_path / "run"

    def go_on(training: TrainingRun, first: int, end: int, abstention: float) -> None:
        for number in range(first, end):
            accuracy = 0.5 * (1 - abstention)
            training.add_step(Step(number, 1.0, 1, abstention=abstention, accuracy=accuracy))

    with tiny.started(SETTING, out) as training:
        start = validation(0, correct=0.4, abstention=0.2, accuracy=0.4)
        training.add_validation(start, [scored(0)])
        go_on(training, 1, 12, 0.2)
        assert training.alarms == []
        go_on(training, 12, 30, 1.0)  # a policy that always abstains
        with hacking_seen("lists"):
            validate(training, 28, 0.1)
        raised = list(training.alarms)
        make_checkpoint(training, 29, 0.1)
    assert {"step", "kind", "message"} == set(raised[0])
    assert [each["kind"] for each in raised] == ["collapse to abstention", "hacking"]
    with tiny.started(SETTING, out, resume=True) as training:
        assert training.alarms == raised
        go_on(training, 30, 33, 1.0)
        assert training.alarms == raised


def test_steps_of_one_batch_count_once_for_alarms(tmp_path: Path) -> None:
    setting = SETTING._replace(recipe=tiny.recipe("grpo.minibatches=2", "grpo.steps=20"))
    with tiny.started(setting, tmp_path / "run") as training:
        for number in range(1, 2 * WINDOW + 1):
            assert not training.alarms
            training.add_step(Step(number, 0.0, 0, ratio_mean=1.5))
        [alarm] = training.alarms
    assert (alarm["step"], alarm["kind"]) == (2 * WINDOW, "engine against trainer")


def test_steps_and_alarms_are_safe_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "\x1b[2J\x1b]0;title\x07\u202etxt [red]x[/] \r\n\x9b31m \ud800"
    steps = [Step(n, 10.0 * n, 5_000 * n, reward=0.5, groups=8, flat_groups=2) for n in (1, 2)]
    with hacking_seen(hostile), tiny.started(SETTING, tmp_path / "run") as training:
        for step in steps:
            training.add_step(step)
        training.add_validation(validation(2, accuracy=0.62), [scored(2)])
    first, valued, alarm = capsys.readouterr().err.splitlines()
    # The second step came within ten seconds of the first.
    assert first == "step 1 of 3: reward 0.5, flat groups 25%, 0:00:10"
    assert run.line_of(steps, 3).endswith("0:00:20, 0:00:10 to go, 500 tokens/s")
    assert "accuracy 0.62" in valued
    assert alarm.isprintable() and "[red]x[/]" in alarm


# Fixed noise: an honest run may raise an alarm once in some thousand runs.
settled = settings(derandomize=True, max_examples=50)
seeds = st.integers(0, 10**6)
COLLAPSED = {"abstention": 0.98, "accuracy": 0.02, "reward": 0.09}


def rise(seed: int, steps: int = 60, questions: int = 8, rollouts: int = 8) -> list[Step]:
    rng = np.random.default_rng(seed)
    first, last = rng.uniform(0.2, 0.5), rng.uniform(0.6, 0.9)
    rows = []
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
        rows.append(Step(
            number + 1, 2.0 * number, 10_000 * number, learning_rate=3e-4, reward=reward,
            accuracy=right / total, hallucination=wrong / total, abstention=withheld / total,
            format_errors=malformed / total, groups=questions, flat_groups=flat,
        ))  # fmt: skip
    return rows


def planted(steps: Sequence[Step], plant: Callable[[int], dict[str, Any]]) -> list[Step]:
    return [dataclasses.replace(each, **plant(each.step)) for each in steps]


def over_time(steps: Sequence[Step]) -> list[tuple[int, TrainingAlarm]]:
    """Return the first alarm of each kind, with its step, if all steps are checked."""
    first: dict[str, tuple[int, TrainingAlarm]] = {}
    start = validation(0, abstention=0.25, accuracy=0.21)
    for end, step in enumerate(steps, start=1):
        for alarm in run.alarms_of(steps[:end], [start]):
            first.setdefault(alarm.kind, (step.step, alarm))
    return list(first.values())


@settled
@given(seed=seeds, questions=st.sampled_from([8, 12]), rollouts=st.integers(4, 8))
def test_honest_noisy_rise_raises_no_alarm(seed: int, questions: int, rollouts: int) -> None:
    assert over_time(rise(seed, questions=questions, rollouts=rollouts)) == []


def test_no_alarm() -> None:
    for steps in (
        *(rise(0, length) for length in (0, 1, WINDOW - 1, WINDOW)),
        [Step(number, number, 0, loss=3.0 / number) for number in range(1, 60)],
        # Abstention near 1 is right if accuracy on the other questions does not fall.
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
        # It comes sooner if most fail.
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


def test_early_collapse_is_seen_against_the_first_validation() -> None:
    [(step, alarm)] = over_time(planted(rise(0), lambda _: {"abstention": 1.0, "accuracy": 0.0}))
    assert step == WINDOW
    assert "25% did at the start" in alarm.message
    assert "accuracy fell from 21% to 0%" in alarm.message


def test_the_detectors_of_evals_become_alarms() -> None:
    assert run.hacking_alarms(honest(100)) == []
    scored = hacking(honest(100), 0.3, canned)
    seen, alarms = detect(scored), run.hacking_alarms(scored)
    assert [each.kind for each in alarms] == [f"hacking: {each.detector}" for each in seen]
    assert all(one.message in other.message for one, other in zip(seen, alarms, strict=True))
    assert f"such as {seen[0].episodes[0]}" in alarms[0].message
