"""GRPO: a short run's folder, and what whole runs learn from scripted replies."""

import itertools
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from peft import get_peft_model
from requests import Timeout

from art_e.message import AssistantMessage
from art_e.models.base import Usage
from art_e.runs import read_trajectories
from examples import grpo_in_one_file
from tests.builders import answer, message, the_error
from tests.provider import Reply, Request, openai, refuses, says
from tests.training import tiny
from tests.training.scripted import FLAT, IDK, SOMETHING, Script
from training import grpo
from training.cli import load_material, run_training
from training.recipe import Setting
from training.run import TrainingRun, newest_checkpoint, read_steps
from training.start import Start, adapter_config, load_start


def test_steps_report_their_episodes_rewards(trained: Path) -> None:
    stored = list(read_trajectories(trained / "trajectories.jsonl"))
    grouped = [each for each in stored if "group" in each.policy]
    steps = read_steps(trained)
    assert [each.step for each in steps] == [1, 2, 3]
    # TRL got the stored rewards.
    checkpoint = max((trained / "checkpoints").glob("checkpoint-*"))
    state = json.loads((checkpoint / "trainer_state.json").read_text("utf-8"))
    logged = {each["step"]: each for each in state["log_history"] if "reward" in each}
    for step in steps:
        of_step = [each for each in grouped if each.policy["step"] == step.step]
        assert len(of_step) == 8
        assert len({each.policy["group"] for each in of_step}) == step.groups == 2
        rewards = [each.reward["total"] for each in of_step if each.reward is not None]
        assert step.reward == pytest.approx(sum(rewards) / len(rewards))
        assert step.reward == pytest.approx(logged[step.step]["reward"], abs=1e-4)
        assert step.turns == sum(each.rubric["turns"] for each in of_step) / 8
        # TRL would give each turn the whole episode's budget.
        for episode in of_step:
            assert episode.rubric["completion_tokens"] <= 32 * episode.rubric["turns"]
        assert (step.entropy or 0) > 0
    assert [each.tokens for each in steps] == sorted({each.tokens for each in steps})


# Groups so large that rewards differ within them, even those of a start that knows nothing.
SPREAD = (
    "grpo.steps=4", "grpo.minibatches=2", "grpo.rollouts=16", "grpo.micro_batch=12", "grpo.spare=1",
)  # fmt: skip


@pytest.mark.parametrize("adapted", [False, True])
def test_one_file_takes_the_same_steps(
    home: Path, warm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, adapted: bool
) -> None:
    """From the same random numbers, the loop in plain torch has the figures and weights of TRL."""
    recipe = tiny.recipe(*tiny.SETS["killed"], *SPREAD, f"model.lora={4 if adapted else 0}")
    init, start = warm, load_start(str(warm))
    if adapter := adapter_config(recipe.model, start):
        init = tmp_path / "adapter"
        model: Any = start.model
        get_peft_model(model, adapter).save_pretrained(str(init))
        start.tokenizer.save_pretrained(init)
    roll = grpo.AgentTrainer._roll

    def seeded(trainer: grpo.AgentTrainer, *_: Any) -> dict[str, Any]:
        torch.manual_seed(trainer.state.global_step // 2)  # of the batch
        return roll(trainer)

    monkeypatch.setattr(grpo.AgentTrainer, "_roll", seeded)
    with tiny.started(Setting("grpo", recipe, 0, str(init)), tmp_path / "run") as training:
        run_training(training)
    plain = load_start(str(init))
    material = load_material(recipe.data, "train")
    steps = list(grpo_in_one_file.train(plain, recipe, material, 0))
    for by_trl, step in zip(training.steps, steps, strict=True):
        assert step["reward"] == pytest.approx(by_trl.reward)
        assert step["loss"] == pytest.approx(by_trl.loss, abs=1e-5)
        assert step["grad_norm"] == pytest.approx(by_trl.grad_norm, rel=1e-3)
        assert by_trl.grad_norm
    last = newest_checkpoint(training.run.folder)
    trained = load_start(str(last)).model.state_dict()
    for name, weights in plain.model.state_dict().items():
        torch.testing.assert_close(weights, trained[name], atol=1e-4, rtol=1e-3)


SHORT = ("judging.questions=2", "judging.test_questions=2", "grpo.rollouts=2")
NOT_SO = says(json.dumps({"reason": "Not so.", "verdict": "incorrect"}))
Trained = tuple[dict[str, Any], TrainingRun]
Scripted = Callable[..., Trained]


@pytest.fixture
def scripted(
    start: Start, home: Path, warm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Scripted:
    def train(replies: Sequence[AssistantMessage], *changes: str) -> Trained:
        def cycling(*_: Any, **__: Any) -> Script:
            return Script(start.tokenizer, map(itertools.cycle, itertools.repeat(replies)))

        monkeypatch.setattr(grpo, "Dispatch", cycling)
        setting = Setting("grpo", tiny.recipe(*SHORT, *changes), 0, str(warm))
        with tiny.started(setting, tmp_path / f"run{len(list(tmp_path.iterdir()))}") as training:
            return run_training(training), training

    return train


def moved(training: TrainingRun, start: Start) -> bool:
    last = newest_checkpoint(training.run.folder)
    assert last is not None
    before, after = (each.model.state_dict() for each in (start, load_start(str(last))))
    return any(bool((before[name] != after[name]).any()) for name in before)


def test_groups_without_spread_teach_nothing(scripted: Scripted, start: Start) -> None:
    metrics, training = scripted(FLAT, "grpo.steps=2", "grpo.validate_every=1")
    # All validations are equal, so that the first checkpoint is the best.
    assert metrics["best_checkpoint"] == "checkpoints/checkpoint-1"
    assert not moved(training, start)
    assert [each.flat_groups for each in training.steps] == [2, 2]


def test_refused_judge(scripted: Scripted, start: Start) -> None:
    # After the validation before the first step.
    replies = itertools.chain([NOT_SO] * 2, itertools.repeat(refuses(401, "Incorrect API key.")))
    with openai(lambda _: next(replies)):
        changes = ("grpo.steps=3", "data.kinds=['lookup']", "judging.reward='openai/gpt-4.1'")
        _, training = scripted([SOMETHING, IDK], *changes)
    # Waiting does not help a rejected key, so launchers don't restart it.
    assert training.paused is not None and not training.paused.passes
    assert str(training.paused).startswith("4 of 4 episodes could not be judged (failed: auth:")
    assert "401: Incorrect API key." in str(training.paused)
    assert len(training.steps) == 1
    # "I don't know" needs no judge, but gained no advantage by that.
    assert not moved(training, start)


def test_unjudged_validation_pauses(scripted: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its figures would choose the checkpoint. The resumed run repeats it."""
    monkeypatch.setattr("training.roller.WAITS", ())
    down = True
    changes = ("grpo.steps=2", "data.kinds=['lookup']", "judging.validation='openai/gpt-4.1'")
    with openai(lambda _: refuses(400, "Not now.") if down else NOT_SO):
        _, training = scripted([SOMETHING, IDK], *changes)
        assert training.paused is not None and training.paused.passes
        assert (training.steps, training.validations) == ([], [])
        down = False
        setting, folder = training.setting, training.run.folder
        with tiny.started(setting, folder, resume=True) as again:
            assert run_training(again)["test"] is not None
    assert [each.step for each in again.validations] == [0, 2]


def test_lost_server_pauses(scripted: Scripted) -> None:
    replies: Any = mock.MagicMock()
    replies.__iter__.side_effect = Timeout
    _, training = scripted(replies)
    assert training.paused is not None and training.paused.passes
    assert "vLLM's server no longer answers (Timeout)" in str(training.paused)


def test_minibatches_share_one_batch(scripted: Scripted, start: Start) -> None:
    changes = ("grpo.steps=4", "grpo.validate_every=2", "grpo.micro_batch=1", "grpo.minibatches=2")
    metrics, training = scripted([SOMETHING, IDK], *changes, "data.kinds=['lookup']")
    assert moved(training, start)
    assert [each.step for each in training.steps] == [1, 2, 3, 4]
    policies = [each.policy for each in read_trajectories(training.run.trajectories)]
    assert {each["step"] for each in policies if "group" in each} == {1, 3}
    assert [each["step"] for each in metrics["validation"]] == [0, 2, 4]


def test_judges_share_one_budget(scripted: Scripted) -> None:
    """When it is used up the run pauses with what it learned, and goes on with a larger one."""

    def grader(request: Request) -> Reply:
        # Of 0.032 USD: at 8 USD a million.
        usage = Usage(100, 0, 4_000, 0)
        return says(json.dumps({"reason": "Not so.", "verdict": "incorrect"}), usage=usage)

    changes = [f"judging.{each}='openai/gpt-4.1'" for each in ("reward", "validation")]
    changes += ["data.kinds=['lookup']", "grpo.steps=3", "judging.max_cost_usd=0.2"]
    with openai(grader):
        animals = [message(answer(each)) for each in ("zebra", "giraffe", "lion")]
        metrics, training = scripted(animals, *changes)
        assert 0 < metrics["cost_usd"] <= 0.2
        assert "--max-cost" in str(training.paused)
        assert metrics["test"] is None
        assert len(training.steps) < 3
        assert (training.steps[-1].unjudged or 0) > 0

        def goes_on(usd: float) -> Trained:
            recipe = tiny.recipe(*SHORT, *changes, f"judging.max_cost_usd={usd}")
            setting = training.setting._replace(recipe=recipe)
            with tiny.started(setting, training.run.folder, resume=True) as again:
                return run_training(again), again

        assert re.search(r"judges have cost .*, and may cost \$0\.01", the_error(goes_on, 0.01))
        resumed, again = goes_on(50.0)
        assert [each.step for each in again.steps] == [1, 2, 3]
        assert again.steps[-1].unjudged == 0
        assert resumed["cost_usd"] > metrics["cost_usd"]
        assert resumed["test"] is not None
