"""What happens beside the steps of a trainer of transformers: steps told, validations, ends.

Both kinds of training are such trainers, and share this. A validation comes before the
checkpoint of its step, so that a checkpoint knows of it. Knows nothing of losses.
"""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from training.processes import gpu_memory_used
from training.progress import Step
from training.rollout import Generate
from training.run import TrainingRun
from training.validation import Examiner, validation_of

# ---- What happens beside the steps of a trainer of transformers: steps told, validations, ends.

# What a trainer logged, and the step it was at, as a row.
ToStep = Callable[[int, Mapping[str, float]], Step]
# Asked after each step: why the run is to stop there and go on later, None where it is not.
Pause = Callable[[], str | None]


def never() -> None:
    """No reason to pause."""


def after(minutes: float | None) -> Pause:
    """A reason to pause when so many minutes have gone by from now on; None: there is none."""
    if minutes is None:
        return never
    end = time.monotonic() + 60 * minutes
    return lambda: f"{minutes:g} minutes are over" if time.monotonic() >= end else None


class RunCallback(TrainerCallback):
    """Tells `training` of a trainer's steps, and examines the model as the recipe says.

    There is a validation before any step, every `validate_every` steps and at those of
    `also_at`, each with a checkpoint. Training stops after `patience` validations without a
    better one, and pauses with a checkpoint when `pause` gives a reason to. `awake` is around
    what `generate` is asked in a validation. `state` gives what a checkpoint keeps besides.
    """

    def __init__(
        self,
        training: TrainingRun,
        examiner: Examiner,
        generate: Generate,
        to_step: ToStep,
        *,
        validate_every: int,
        also_at: Sequence[int] = (),
        patience: int | None = None,
        pause: Pause = never,
        awake: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
        state: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        self._training = training
        self._examiner = examiner
        self._generate = generate
        self._to_step = to_step
        self._every = validate_every
        self._also_at = also_at
        self._patience = patience
        self._pause = pause
        self._awake = awake
        self._state = state

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Examine the model as it is before any step."""
        if state.global_step == 0:
            self._examine(0)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **_: Any,
    ) -> None:
        """Keep the step; what the trainer logs at its end is none."""
        if logs and "loss" in logs:
            self._training.add_step(self._to_step(state.global_step, logs))

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Examine, and ask for a checkpoint."""
        step = state.global_step
        self._training.note_memory(gpu_memory_used())
        # What transformers would save by itself has no validation.
        control.should_save = False
        due = not step % self._every or step in self._also_at or step == state.max_steps
        if step < state.max_steps:
            # One that has a reason pauses all: their clocks and fees differ.
            reasons = self._training.processes.gather([self._pause()])
            self._training.paused = next((each for each in reasons if each is not None), None)
        if due:
            self._examine(step)
        elif self._training.paused is None:
            return
        control.should_save = True
        # The loss is told as a mean since it was told last, which no checkpoint remembers.
        control.should_log = True
        worse = self._patience is not None and self._stale() >= self._patience
        control.should_training_stop = worse or self._training.paused is not None

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Make the checkpoint count."""
        stopped = control.should_training_stop and self._training.paused is None
        over = stopped or state.global_step >= state.max_steps
        self._training.checkpoint_saved(state.global_step, over=over, **self._state())

    def _examine(self, step: int) -> None:
        settings = {"step": step, "seed": self._training.setting.seed, "sampled": True}
        with self._awake():
            scored = self._examiner.examine(self._generate, settings)
        self._training.add_validation(validation_of(scored, step), scored)

    def _stale(self) -> int:
        """The validations since the best one."""
        best = self._training.best
        assert best is not None
        return sum(each.step > best.step for each in self._training.validations)
