"""A training run's folder: what a kill leaves, what a resumed run forgets, what is kept."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from art_e.errors import UserError
from art_e.trajectory import read_trajectories
from evals.judges.offline import F1Judge, OfflineJudge
from evals.scored import Scored
from tests.builders import QUESTION, make_inbox, raw, trajectory
from tests.training import tiny
from tests.training.tiny import validation
from training.progress import WINDOW, Step, TrainingAlarm, read_steps
from training.recipe import Setting, load_recipe
from training.run import STATE, Judges, TrainingRun, line_of, opened

JUDGES = Judges(OfflineJudge(), F1Judge(), hacks=lambda _: [TrainingAlarm("hacking", "lists")])
SETTING = Setting("grpo", tiny.recipe(), 3, "start")
RUBRIC = {
    "answered": True, "abstained": False, "answerable": True, "lost_to_format": False,
    "turns": 1, "effort": 1, "tool_calls": 1, "num_sources": 0, "prompt_tokens": 1,
    "completion_tokens": 1,
}  # fmt: skip


def scored(step: int) -> Scored:
    policy, row = {"step": step, "group": f"{step}/q"}, QUESTION.to_row()
    made = trajectory(policy=policy, question=row, rubric=RUBRIC, episode_id=f"e{step}")
    return Scored(QUESTION, made)


def validate(training: TrainingRun, step: int, correct: float, wrong: float = 0.0) -> None:
    made = validation(step, correct=correct, hallucination=wrong)
    training.add_validation(made, [scored(step)], JUDGES)


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
    """A run that was killed after so many steps: a checkpoint every second one."""
    with tiny.begun(SETTING, out) as training:
        validate(training, 0, 0.0)
        left = iter(correct)
        for number in range(1, steps + 1):
            make_step(training, number)
            if number % 2 == 0:
                make_checkpoint(training, number, next(left))


def names(out: Path) -> list[str]:
    return sorted(each.name for each in (out / "checkpoints").iterdir())


def stored(out: Path) -> list[int]:
    return [each.policy["step"] for each in read_trajectories(out / "trajectories.jsonl")]


def test_a_resumed_run_continues_from_its_newest_checkpoint(tmp_path: Path) -> None:
    out = tmp_path / "run"
    killed(out, [0.3, 0.2], steps=5)
    with opened(SETTING, out, tmp_path, resume=True) as (training, checkpoint):
        assert checkpoint == out / "checkpoints" / "checkpoint-4"
        assert [each.step for each in training.steps] == [1, 2, 3, 4]
        assert [each.step for each in training.validations] == [0, 2, 4]
        assert (training.tokens, training.cost_before) == (40, 2.0)
        assert training.seconds >= training.state["seconds"]
        # Step 5 was under way when the run was killed: it is made again.
        assert stored(out) == [0, 1, 2, 2, 3, 4, 4]
        # Only one process works on a run.
        with pytest.raises(UserError), tiny.begun(SETTING, out, resume=True):
            pass
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
    with opened(SETTING, out, tmp_path, resume=True) as (training, checkpoint):
        assert checkpoint == whole
        assert [each.step for each in training.steps] == ([1, 2] if whole else [])
        assert names(out) == (["checkpoint-2"] if whole else [])
        assert stored(out) == ([0, 1, 2, 2] if whole else [])


def test_another_run_is_not_resumed(tmp_path: Path) -> None:
    out = tmp_path / "run"
    killed(out, [0.3], steps=2)
    before = (out / "trajectories.jsonl").read_bytes()
    for other, words in (
        (SETTING._replace(seed=4), "begun with seed=3"),
        (SETTING._replace(recipe=tiny.recipe("grpo.rate=1e-5")), r"begun with grpo\.rate=0\.0008"),
        (SETTING._replace(kind="sft"), "begun with kind=grpo"),
        (SETTING._replace(init="other"), "begun with init=start"),
    ):
        with pytest.raises(UserError, match=words):
            tiny.begun(other, out, resume=True).__enter__()
    assert (out / "trajectories.jsonl").read_bytes() == before


def test_a_run_is_not_resumed_over_other_mail(tmp_path: Path) -> None:
    db, moved = tmp_path / "inbox.duckdb", tmp_path / "moved.duckdb"
    recipe = tiny.recipe(f"data={{questions='{tmp_path}', db='{db}'}}")
    setting, out = Setting("grpo", recipe, 0), tmp_path / "run"
    make_inbox(db, [raw("<1@t>"), raw("<2@t>", subject="Other")])
    with tiny.begun(setting, out) as training:
        make_step(training, 1)
    db.rename(moved)
    make_inbox(db, [raw("<1@t>"), raw("<2@t>", subject="Another")])
    with pytest.raises(UserError, match="begun with inbox="):
        tiny.begun(setting, out, resume=True).__enter__()
    moved.replace(db)
    with tiny.begun(setting, out, resume=True) as training:
        assert training.setting == setting


def test_a_run_may_resume_with_another_server_and_limit(tmp_path: Path) -> None:
    """Jobs of a cluster that begin again are on other machines."""
    elsewhere = ["grpo.vllm.server=http://b:8000", "judging.max_cost_usd=90"]
    changes = (["grpo.vllm.server=http://a:8000"], elsewhere, ["grpo.vllm.memory=0.3"])
    here, there, other = (Setting("grpo", load_recipe("talk-multi", each), 0) for each in changes)
    out = tmp_path / "run"
    with tiny.begun(here, out) as training:
        make_step(training, 1)
    with tiny.begun(there, out, resume=True) as training:
        assert training.setting == there
    with pytest.raises(UserError, match=r"begun with grpo\.vllm\.memory"):
        tiny.begun(other, out, resume=True).__enter__()


def test_what_can_not_be_opened(tmp_path: Path) -> None:
    out = tmp_path / "run"
    # What fails before its first episode leaves nothing behind.
    with pytest.raises(UserError, match="no such model"), tiny.begun(SETTING, out):
        raise UserError("no such model")
    assert not out.exists()
    with pytest.raises(UserError, match="no more money"), tiny.begun(SETTING, out) as training:
        make_step(training, 1)
        raise UserError("no more money")
    (out / "COMPLETE").touch()
    for folder, resume, words in (
        (out, False, "is there already"),
        (out, True, "is complete"),
        (tmp_path / "none", True, "no run to resume"),
        (None, True, "with --out"),
    ):
        with pytest.raises(UserError, match=words):
            opened(SETTING, folder, tmp_path, resume=resume).__enter__()


def test_the_best_checkpoint_and_the_last_are_kept(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with tiny.begun(SETTING, out) as training:
        assert training.best is None
        validate(training, 0, 0.9)
        for step, correct, kept in (
            (2, 0.3, ["checkpoint-2"]),
            (4, 0.6, ["checkpoint-4"]),
            (6, 0.5, ["checkpoint-4", "checkpoint-6"]),
            # The earliest of equals. What the start could do does not count.
            (8, 0.6, ["checkpoint-4", "checkpoint-8"]),
        ):
            make_checkpoint(training, step, correct)
            assert names(out) == kept
        # Of two with as many right, the one with fewer wrong answers. It has no folder yet.
        validate(training, 9, 0.6, -0.1)
        assert training.best_checkpoint is None
    metrics = json.loads((out / "metrics.json").read_text("utf-8"))
    assert metrics["best_checkpoint"] == "checkpoints/checkpoint-4"
    assert [each["step"] for each in metrics["validation"]] == [0, 2, 4, 6, 8]
    # With early noise a start is chosen from the last stage.
    recipe = tiny.recipe("sft.early_noise.guesses=0")
    with tiny.begun(Setting("sft", recipe, 3), tmp_path / "start") as training:
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

    with tiny.begun(SETTING, out) as training:
        start = validation(0, correct=0.4, abstention=0.2, accuracy=0.4)
        training.add_validation(start, [scored(0)], JUDGES._replace(hacks=lambda _: []))
        go_on(training, 1, 12, 0.2)
        assert training.alarms == []
        go_on(training, 12, 30, 1.0)  # a policy that always abstains
        validate(training, 28, 0.1)
        raised = list(training.alarms)
        make_checkpoint(training, 29, 0.1)
    assert {"step", "kind", "message"} == set(raised[0])
    assert [each["kind"] for each in raised] == ["collapse to abstention", "hacking"]
    with tiny.begun(SETTING, out, resume=True) as training:
        assert training.alarms == raised
        go_on(training, 30, 33, 1.0)
        assert training.alarms == raised


def test_steps_of_one_batch_count_once_for_alarms(tmp_path: Path) -> None:
    setting = SETTING._replace(recipe=tiny.recipe("grpo.minibatches=2", "grpo.steps=20"))
    with tiny.begun(setting, tmp_path / "run") as training:
        for number in range(1, 2 * WINDOW + 1):
            assert not training.alarms
            training.add_step(Step(number, 0.0, 0, ratio_mean=1.5))
        [alarm] = training.alarms
    assert (alarm["step"], alarm["kind"]) == (2 * WINDOW, "engine against trainer")


def test_steps_and_alarms_are_safe_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "\x1b[2J\x1b]0;title\x07\u202etxt [red]x[/] \r\n\x9b31m \ud800"
    judges = JUDGES._replace(hacks=lambda _: [TrainingAlarm("hacking", hostile)])
    steps = [Step(n, 10.0 * n, 5_000 * n, reward=0.5, groups=8, flat_groups=2) for n in (1, 2)]
    with tiny.begun(SETTING, tmp_path / "run") as training:
        for step in steps:
            training.add_step(step)
        training.add_validation(validation(2, accuracy=0.62), [scored(2)], judges)
    first, valued, alarm = capsys.readouterr().err.splitlines()
    # The second step came within ten seconds of the first.
    assert first == "step 1 of 3: reward 0.5, flat groups 25%, 0:00:10"
    assert line_of(steps, 3).endswith("0:00:20, 0:00:10 to go, 500 tokens/s")
    assert "accuracy 0.62" in valued
    assert alarm.isprintable() and "[red]x[/]" in alarm
