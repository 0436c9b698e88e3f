"""A training run's folder: what a kill leaves, what a resumed run forgets, what is kept."""

import dataclasses
import json
import platform
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from art_e.errors import UserError
from art_e.question import Question
from art_e.trajectory import read_trajectories
from evals.scored import Scored
from tests.builders import QUESTION, trajectory
from tests.training import tiny
from tests.training.rows import validation
from training.processes import gpu_memory_used, keep_memory
from training.progress import STEPS, Step, Validation, append_step, read_steps
from training.recipe import load_recipe
from training.run import STATE, Setting, TrainingRun, newest_checkpoint, opened

SETTING = Setting("grpo", tiny.recipe(), 3, "start")
RUBRIC = {
    "answered": True,
    "abstained": False,
    "answerable": True,
    "turns": 1,
    "effort": 1,
    "tool_calls": 1,
    "num_sources": 0,
    "prompt_tokens": 1,
    "completion_tokens": 1,
}


def handled(step: int, correct: float, hallucination: float = 0.0) -> Validation:
    return validation(step, correct=correct, hallucination=hallucination)


def scored(step: int) -> Scored:
    question: Question = QUESTION
    made = trajectory(
        policy={"step": step, "group": f"{step}/q"},
        question=question.to_row(),
        rubric=RUBRIC,
        episode_id=f"e{step}",
    )
    return Scored(question, made)


def step_made(training: TrainingRun, number: int) -> None:
    training.add_episodes([scored(number)])
    training.add_step(Step(number, training.seconds, 10 * number, cost_usd=0.5 * number))


def checkpoint_made(training: TrainingRun, number: int, correct: float, **state: Any) -> Path:
    training.add_validation(handled(number, correct), [scored(number)])
    folder = training.checkpoints / f"checkpoint-{number}"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").touch()
    training.checkpoint_saved(number, **state)
    return folder


def made(out: Path, correct: Sequence[float], steps: int, every: int = 2) -> None:
    """A run that got as far as `steps`, and was killed there: a validation every so many."""
    with tiny.begun(SETTING, out) as training:
        training.add_validation(handled(0, 0.0), [scored(0)])
        left = iter(correct)
        for number in range(1, steps + 1):
            step_made(training, number)
            if number % every == 0:
                checkpoint_made(training, number, next(left), curriculum={"at": number})


def names(out: Path) -> list[str]:
    return sorted(each.name for each in (out / "checkpoints").iterdir())


def test_a_resumed_run_goes_on_from_its_newest_checkpoint(tmp_path: Path) -> None:
    out = tmp_path / "run"
    made(out, [0.3, 0.2], steps=5)
    inode = (out / "trajectories.jsonl").stat().st_ino
    with opened(SETTING, out, tmp_path, resume=True) as (training, checkpoint):
        assert checkpoint == out / "checkpoints" / "checkpoint-4"
        assert [each.step for each in training.steps] == [1, 2, 3, 4]
        assert [each.step for each in training.validations] == [0, 2, 4]
        assert training.state["curriculum"] == {"at": 4}
        assert training.tokens == 40
        assert training.cost_before == 2.0
        assert training.seconds >= training.state["seconds"]
        # Step 5 was under way when the run was killed: it is made again.
        kept = [each.policy["step"] for each in read_trajectories(out / "trajectories.jsonl")]
        assert kept == [0, 1, 2, 2, 3, 4, 4]
        step_made(training, 5)
    # The lock is on the file, which must stay the same one.
    assert (out / "trajectories.jsonl").stat().st_ino == inode
    assert [each.step for each in read_steps(out)] == [1, 2, 3, 4, 5]
    ids = [each.episode_id for each in read_trajectories(out / "trajectories.jsonl")]
    assert ids == ["e0", "e1", "e2", "e2", "e3", "e4", "e4", "e5"]


def test_a_torn_checkpoint_does_not_count(tmp_path: Path) -> None:
    out = tmp_path / "run"
    made(out, [0.3], steps=3)
    torn = out / "checkpoints" / "checkpoint-4"
    torn.mkdir()
    (torn / "model.safetensors").touch()
    (torn / f".{STATE}.partial").write_text('{"validation": [')
    with (out / "trajectories.jsonl").open("a") as lines:
        lines.write('{"schema": 1, "run_id": "r", "poli')
    with (out / "steps.jsonl").open("a") as lines:
        lines.write('{"step": 4, "seco')
    assert newest_checkpoint(out) == out / "checkpoints" / "checkpoint-2"
    with tiny.begun(SETTING, out, resume=True) as training:
        assert [each.step for each in training.steps] == [1, 2]
        assert names(out) == ["checkpoint-2"]
        kept = [each.policy["step"] for each in read_trajectories(out / "trajectories.jsonl")]
        assert kept == [0, 1, 2, 2]


def test_a_run_without_a_checkpoint_begins_anew(tmp_path: Path) -> None:
    out = tmp_path / "run"
    made(out, [], steps=1)
    with opened(SETTING, out, tmp_path, resume=True) as (training, checkpoint):
        assert checkpoint is None
        assert training.steps == []
        assert training.validations == []
        assert (out / "trajectories.jsonl").read_bytes() == b""


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (SETTING._replace(seed=4), r"another seed \(3\)"),
        (
            SETTING._replace(recipe=tiny.recipe("grpo.rate=1e-5")),
            r"another recipe \(grpo\.rate=0\.0008\)",
        ),
        (SETTING._replace(kind="sft"), "another kind"),
        (SETTING._replace(init="other"), r"another init \(start\)"),
    ],
)
def test_another_run_is_not_gone_on_with(tmp_path: Path, other: Setting, said: str) -> None:
    out = tmp_path / "run"
    made(out, [0.3], steps=2)
    before = (out / "trajectories.jsonl").read_bytes()
    with pytest.raises(UserError, match=said), tiny.begun(other, out, resume=True):
        pass
    assert (out / "trajectories.jsonl").read_bytes() == before


def test_a_run_goes_on_with_another_vllm_server(tmp_path: Path) -> None:
    """Where the jobs of a cluster are begun again they are on other machines."""
    out = tmp_path / "run"
    here, there, other = (
        Setting("grpo", load_recipe("talk-multi", [f"grpo.vllm.{each}"]), 0)
        for each in ("server=http://a:8000", "server=http://b:8000", "memory=0.3")
    )
    with tiny.begun(here, out) as training:
        step_made(training, 1)
    with tiny.begun(there, out, resume=True) as training:
        assert training.setting == there
    with pytest.raises(UserError, match="another recipe"), tiny.begun(other, out, resume=True):
        pass


def test_what_was_never_begun_leaves_nothing_behind(tmp_path: Path) -> None:
    out = tmp_path / "run"
    for _ in range(2):
        with pytest.raises(UserError, match="no such model"), tiny.begun(SETTING, out) as training:
            training.checkpoints.mkdir()
            raise UserError("no such model")
        assert not out.exists()
    with pytest.raises(UserError, match="no more money"), tiny.begun(SETTING, out) as training:
        step_made(training, 1)
        raise UserError("no more money")
    assert (out / "config.json").is_file()


def test_what_can_not_be_opened(tmp_path: Path) -> None:
    out = tmp_path / "run"
    made(out, [0.3], steps=2)
    with pytest.raises(UserError, match="is there already"), tiny.begun(SETTING, out):
        pass
    (out / "COMPLETE").touch()
    with pytest.raises(UserError, match="is complete"), tiny.begun(SETTING, out, resume=True):
        pass
    none = tmp_path / "none"
    with pytest.raises(UserError, match="no run to resume"), tiny.begun(SETTING, none, resume=True):
        pass
    with (
        pytest.raises(UserError, match="which run"),
        opened(SETTING, None, tmp_path, resume=True),
    ):
        pass


def test_only_one_works_on_a_run(tmp_path: Path) -> None:
    out = tmp_path / "run"
    made(out, [0.3], steps=2)
    with tiny.begun(SETTING, out, resume=True):
        before = (out / "trajectories.jsonl").read_bytes()
        with pytest.raises(UserError), tiny.begun(SETTING, out, resume=True):
            pass
        assert (out / "trajectories.jsonl").read_bytes() == before


def test_the_best_checkpoint_and_the_last_are_kept(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with tiny.begun(SETTING, out) as training:
        training.add_validation(handled(0, 0.9), [scored(0)])
        checkpoint_made(training, 2, 0.3)
        assert names(out) == ["checkpoint-2"]
        checkpoint_made(training, 4, 0.6)
        checkpoint_made(training, 6, 0.5)
        assert names(out) == ["checkpoint-4", "checkpoint-6"]
        # The earliest of equals. What the start could do counts not.
        checkpoint_made(training, 8, 0.6)
        assert names(out) == ["checkpoint-4", "checkpoint-8"]
        best = training.best
        assert best is not None
        assert best.step == 4
        metrics = json.loads((out / "metrics.json").read_text("utf-8"))
        assert metrics["best_checkpoint"] == "checkpoints/checkpoint-4"
        assert [each["step"] for each in metrics["validation"]] == [0, 2, 4, 6, 8]


def test_of_those_that_handle_as_many_right_the_best_answers_fewest_wrong(tmp_path: Path) -> None:
    with tiny.begun(SETTING, tmp_path / "run") as training:
        training.add_validation(handled(1, 0.6, 0.3), [scored(1)])
        training.add_validation(handled(2, 0.6, 0.1), [scored(2)])
        training.add_validation(handled(3, 0.5, 0.0), [scored(3)])
        best = training.best
        assert best is not None
        assert best.step == 2
        # It has no folder yet.
        assert training.best_checkpoint is None


def test_of_a_warm_start_with_early_noise_the_last_stage_alone_is_chosen_from(
    tmp_path: Path,
) -> None:
    setting = SETTING._replace(kind="sft", recipe=tiny.recipe("sft.early_noise.guesses=0"))
    assert setting.recipe.sft is not None
    assert [each.steps for each in setting.recipe.sft.stages] == [10, 10]
    with tiny.begun(setting, tmp_path / "run") as training:
        chosen = []
        for step, share in ((0, 0.9), (10, 0.8), (15, 0.3), (20, 0.2)):
            training.add_validation(handled(step, share), [scored(step)])
            best = training.best
            chosen.append(best and best.step)
    assert chosen == [0, 10, 15, 15]
    # Of what other runs have stored no expert has a part.
    imitating = tiny.recipe("sft.early_noise.guesses=0", 'sft.trajectories=["run"]')
    assert SETTING._replace(kind="sft", recipe=imitating).recipe.sft.chosen_from == 1  # type: ignore[union-attr]


def test_finish(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with tiny.begun(SETTING, out) as training:
        training.add_validation(handled(0, 0.1), [scored(0)])
        step_made(training, 1)
        checkpoint_made(training, 1, 0.4)
        metrics = training.finish(None)
    assert json.loads((out / "metrics.json").read_text("utf-8")) == metrics
    assert (metrics["tokens"], metrics["cost_usd"]) == (10, 0.5)
    assert (out / "COMPLETE").exists()
    assert (out / "README.md").read_text("utf-8")


def test_alarms_are_raised_once_and_survive_a_kill(tmp_path: Path) -> None:
    """A policy that always abstains: the alarm is in metrics.json, and is not raised again."""
    out = tmp_path / "run"

    def goes_on(training: TrainingRun, first: int, end: int, abstention: float) -> None:
        for number in range(first, end):
            accuracy = 0.5 * (1 - abstention)
            training.add_step(Step(number, 1.0, 1, abstention=abstention, accuracy=accuracy))

    with tiny.begun(SETTING, out) as training:
        goes_on(training, 1, 12, 0.2)
        assert training.alarms == []
        goes_on(training, 12, 30, 1.0)
        raised = list(training.alarms)
        checkpoint_made(training, 29, 0.1)
    assert raised
    assert {"step", "kind", "message"} == set(raised[0])
    with tiny.begun(SETTING, out, resume=True) as training:
        before = list(training.alarms)
        assert before[: len(raised)] == raised
        goes_on(training, 30, 33, 1.0)
        kinds = [each["kind"] for each in training.alarms]
        assert kinds.count(raised[0]["kind"]) == 1


numbers = st.floats(allow_nan=False, allow_infinity=False)
optional = st.none() | numbers


def fields_of(name: str) -> st.SearchStrategy[Any]:
    if name in ("step", "tokens", "groups", "flat_groups", "resampled", "unjudged"):
        return st.integers(0, 10**9)
    if name == "components":
        return st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), numbers)
    return numbers if name in ("seconds", "cost_usd") else optional


steps = st.builds(Step, **{each.name: fields_of(each.name) for each in dataclasses.fields(Step)})


# Each line is synced to disk, which takes its time.
@settings(max_examples=20)
@given(st.lists(steps, max_size=5), st.binary(max_size=40))
def test_what_was_written_is_read_again(made: list[Step], torn: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for each in made:
            append_step(folder, each)
        assert read_steps(folder) == made
        # A kill cut off the last line: it never was.
        with (folder / STEPS).open("ab") as file:
            file.write(torn.replace(b"\n", b" "))
        assert read_steps(folder) == made
        append_step(folder, Step(7, 1.0, 2))
        assert read_steps(folder) == [*made, Step(7, 1.0, 2)]


@pytest.mark.parametrize("line", ["{}", '{"step": 1, "seconds": 1, "tokens": 1, "x": 2}', "nope"])
def test_what_is_no_step_is_refused(line: str, tmp_path: Path) -> None:
    (tmp_path / STEPS).write_text(f"{line}\n")
    with pytest.raises(ValueError, match=r"."):
        read_steps(tmp_path)


def test_elsewhere_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert keep_memory() is False


def test_what_a_gpu_had_in_use_is_the_most_since_the_last_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of all who use it: 60 of 80 GB now, and 15 more that torch has given back."""
    assert gpu_memory_used() is None or torch.cuda.is_available()
    told = {
        "is_available": True,
        "mem_get_info": (20, 80),
        "max_memory_reserved": 45,
        "memory_reserved": 30,
        "reset_peak_memory_stats": None,
    }
    for name, value in told.items():
        monkeypatch.setattr(torch.cuda, name, lambda value=value: value)
    assert gpu_memory_used() == 75
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda: 90)
    assert gpu_memory_used() == 80


def test_a_run_keeps_the_most(tmp_path: Path) -> None:
    with tiny.begun(Setting("sft", tiny.recipe(), 0), tmp_path / "run") as training:
        training.note_memory(None)
        assert training.metrics["peak_memory_bytes"] is None
        for used in (5, 9, 7):
            training.note_memory(used)
        assert training.metrics["peak_memory_bytes"] == 9
