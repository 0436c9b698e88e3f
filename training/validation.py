"""Held-out questions: validations during training, and the test after it.

A judge other than the reward's decides. Validations choose the checkpoint, which is tested once."""

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple

from requests import RequestException
from transformers import PrinterCallback, TrainerCallback, TrainerState
from transformers import TrainerControl as Control
from transformers import TrainingArguments as Args

from art_e.models.checkpoint import CHECKPOINTS, best_device
from art_e.question import Split
from art_e.storage import AppendLog
from evals.metrics import model_metrics, sample_of
from evals.scored import Scored
from training.engine import GenerateAt, Sampler
from training.judging import Judges
from training.optimizer import BETAS
from training.processes import PausedError, keep_memory
from training.recipe import AT_ONCE, BATCH
from training.reward import malformed_calls
from training.roller import outage, score
from training.rollout import Generate, Material, in_groups, roll_out
from training.run import EPISODES, Step, TrainingRun, Validation, mean_of, with_second_judge
from training.start import Start

# The benchmark's figures that metrics.json reports of the test.
FIGURES = (
    "accuracy unanswerable_accuracy hallucination abstention turns turns_when_correct effort"
).split()

Load = Callable[[Split], Material]

# ---- Asking held-out questions, and their figures.


class Evaluator(NamedTuple):
    """Evaluates a run's model on held-out questions; each process takes its share."""

    training: TrainingRun
    judges: Judges
    start: Start
    load: Load

    def by_transformers(self, temperature: float) -> Sampler:
        setting = self.training.setting
        grpo, limit = setting.recipe.grpo, setting.recipe.episode.turn_tokens
        batch = (grpo and grpo.generate_batch) or BATCH
        return Sampler(self.start, limit, temperature, setting.seed, batch)

    def evaluate(self, split: Split, generate: Generate, settings: dict[str, Any]) -> list[Scored]:
        """Return an episode for each held-out question, judged by the reward's judge and then the
        validations', with `settings` as policy. Raises `PausedError` if judges fail too often."""
        material = self.load(split)
        training, recipe = self.training, self.training.setting.recipe
        judges = (self.judges.reward, self.judges.validation)
        run_settings = judges, recipe.reward, training.run.id, recipe.name
        number = recipe.judging.test_questions if split == "test" else recipe.judging.questions
        questions = training.processes.share(material.held_out(number))
        scored: list[Scored] = []
        for part in in_groups(questions, AT_ONCE):
            episodes = [material.episode(each, recipe.episode) for each in part]
            rollouts = roll_out(episodes, self.start.tokens, generate, recipe.episode)
            scored += asyncio.run(score([rollouts], [settings], *run_settings))
        scored = training.processes.gather(scored)
        # The figures choose checkpoints, so they must be complete: a resumed run asks again.
        if (paused := outage(scored, self.judges)) is not None:
            raise paused
        return scored


def figures_of(scored: Sequence[Scored]) -> dict[str, Any]:
    """Return a test's figures as estimates, by the judge of validations."""
    decided = list(map(with_second_judge, scored))
    figures: Mapping[str, Any] = model_metrics(decided, ["validation", "reward"])
    right = [each for each in decided if each.question.answerable and each.correct]
    others = [each for each in decided if not (each.unjudged or each.question.answerable)]
    efforts = [each.trajectory.rubric["effort"] for each in right]
    malformed = [malformed_calls(each.trajectory.rubric) for each in scored]
    invented = sample_of(others).share([each.answered_by(0) for each in others])
    return {
        "n": len(scored),
        **{name: figures[name] for name in FIGURES},
        "hallucination_unanswerable": invented,
        "effort_when_correct": sample_of(right).mean(efforts),
        "format_errors": sample_of(scored).mean(malformed),
    }


def validation_of(scored: Sequence[Scored], step: int) -> Validation:
    """Return the figures of a validation."""
    # Leave unjudged episodes out: a range could not be compared.
    judged = [each for each in scored if not with_second_judge(each).unjudged]
    figures = figures_of(judged)
    names = {each.name for each in dataclasses.fields(Validation)} & figures.keys() - {"n"}
    rewards = [each.trajectory.reward["total"] for each in scored if each.trajectory.reward]
    return Validation(
        step=step, n=len(scored),
        correct=mean_of([with_second_judge(each).correct for each in judged]),
        reward=mean_of(rewards), **{name: figures[name]["value"] for name in names},
    )  # fmt: skip


# ---- During training: validations, checkpoints, pauses.


@dataclass(eq=False)
class RunCallback(TrainerCallback):
    """Records a trainer's steps. It validates at step 0, every `validate_every` steps and at those
    of `also_at`, each time with a checkpoint; others are saved when due. If `pause` returns a
    reason, training pauses with a checkpoint. All this happens only after the last of the
    `together` steps that train on one batch."""

    evaluator: Evaluator
    generate: Generate
    to_step: Callable[[int, Mapping[str, float]], Step]  # from the trainer's log
    validate_every: int
    also_at: Sequence[int] = ()
    together: int = 1
    pause: Callable[[], PausedError | None] = lambda: None
    awake: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext  # while it generates

    def on_train_begin(self, args: Args, state: TrainerState, control: Control, **_: Any) -> None:
        if state.global_step == 0:
            self._validate(0)

    def on_log(self, args: Args, state: TrainerState, control: Control, **more: Any) -> None:
        if "loss" in (logs := more["logs"]):
            self.evaluator.training.add_step(self.to_step(state.global_step, logs))

    def on_step_end(self, args: Args, state: TrainerState, control: Control, **_: Any) -> None:
        step, training = state.global_step, self.evaluator.training
        # transformers' own checkpoints would lack a validation.
        control.should_save = False
        if step % self.together:
            return
        # Clocks and fees differ between processes: all pause and save if one does.
        state_here = (self.pause() or training.time_is_up(), training.checkpoint_due)
        reasons, due = zip(*training.processes.gather([state_here]), strict=True)
        if step < state.max_steps:
            training.paused = min(filter(None, reasons), key=lambda each: each.passes, default=None)
        if not step % self.validate_every or step in self.also_at or step == state.max_steps:
            self._validate(step)
        elif training.paused is None and not any(due):
            return
        control.should_save = True
        # The logged loss is a mean since the last log, which checkpoints don't store.
        control.should_log = True
        control.should_training_stop = training.paused is not None

    def on_save(self, args: Args, state: TrainerState, control: Control, **_: Any) -> None:
        over = state.global_step >= state.max_steps
        self.evaluator.training.checkpoint_saved(state.global_step, over=over)

    def _validate(self, step: int) -> None:
        evaluator, setting = self.evaluator, self.evaluator.training.setting
        settings = {"step": step, "seed": setting.seed, "sampled": True}
        with self.awake():
            scored = evaluator.evaluate("validation", self.generate, settings)
        evaluator.training.add_validation(validation_of(scored, step), scored)


# ---- A whole run: training, and the test after it.


def trainer_arguments(
    training: TrainingRun, steps: int, max_grad_norm: float = 1.0
) -> dict[str, Any]:
    """Return the arguments that all trainers share; `RunCallback` decides when they save."""
    on_cpu = best_device()[0] == "cpu"
    if on_cpu:
        keep_memory()
    return {
        "output_dir": str(training.run.folder / CHECKPOINTS), "seed": training.setting.seed,
        "max_grad_norm": max_grad_norm, "weight_decay": 0.0, "adam_beta2": BETAS[1],
        "max_steps": steps, "save_strategy": "steps", "save_steps": steps + 1,
        "use_cpu": on_cpu, "bf16": not on_cpu, "report_to": "none", "disable_tqdm": True,
        "gradient_checkpointing": training.setting.recipe.model.checkpointing,
    }  # fmt: skip


def train_and_test(trainer: Any, callback: RunCallback, generate_at: GenerateAt) -> dict[str, Any]:
    """Train, test the best checkpoint unless the run paused, and return the run's metrics."""
    evaluator = callback.evaluator
    training = evaluator.training
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(callback)
    try:
        if not training.state.get("over"):
            trainer.train(resume_from_checkpoint=training.checkpoint and str(training.checkpoint))
        if training.paused is not None:
            return training.metrics
        best = training.processes.from_first(training.best_checkpoint)
        if best is None:
            return training.finish(None)
        trainer._load_from_checkpoint(str(best))
        trainer._last_loaded_step = -1  # vLLM holds other weights of the same step
        with callback.awake():
            figures, episodes = figures_on_test(evaluator, generate_at)
    except PausedError as error:
        training.paused = error
        return training.metrics
    except RequestException as error:
        # TRL's client retried for a minute, and a restarted server lacks the adapter.
        lost = f"vLLM's server no longer answers ({type(error).__name__}): restart it"
        training.paused = PausedError(lost)
        return training.metrics
    if training.processes.leads:
        file = training.run.folder / EPISODES
        file.unlink(missing_ok=True)  # left by a run that was killed here
        with AppendLog(file) as log:
            for episode in episodes:
                log.append(episode.trajectory.to_line())
    return training.finish(figures)


def figures_on_test(
    evaluator: Evaluator, generate_at: GenerateAt
) -> tuple[dict[str, Any], list[Scored]]:
    """Return `test` of metrics.json, `{"sampled": ..., "greedy": ...}`, and its episodes."""
    scored = {}
    for name, temperature in (("sampled", 1.0), ("greedy", 0.0)):
        settings = {"temperature": temperature, "seed": evaluator.training.setting.seed}
        scored[name] = evaluator.evaluate("test", generate_at(temperature), settings)
    figures = {name: figures_of(each) for name, each in scored.items()}
    return figures, [each for way in scored.values() for each in way]
