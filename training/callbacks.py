"""What happens beside the steps of a trainer of transformers: steps told, validations, ends.

Both kinds of training are such trainers, and share this. A validation comes before the
checkpoint of its step, so that a checkpoint knows of it. Knows nothing of losses.
"""

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from training.progress import Step
from training.rollout import Generate
from training.run import TrainingRun
from training.validation import Examiner, validation_of

# What a trainer logged, and the step it was at, as a row.
ToStep = Callable[[int, Mapping[str, float]], Step]


class RunCallback(TrainerCallback):
    """Tells `training` of a trainer's steps, and examines the model as the recipe says.

    There is a validation before any step, every `validate_every` steps and at those of
    `also_at`, each with a checkpoint. Training stops after `patience` validations without a
    better one. `state` gives what a checkpoint keeps besides.
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
        state: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        self._training = training
        self._examiner = examiner
        self._generate = generate
        self._to_step = to_step
        self._every = validate_every
        self._also_at = also_at
        self._patience = patience
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
        # What transformers would save by itself has no validation.
        control.should_save = False
        if step % self._every and step not in self._also_at and step != state.max_steps:
            return
        self._examine(step)
        control.should_save = True
        # The loss is told as a mean since it was told last, which no checkpoint remembers.
        control.should_log = True
        if self._patience is not None and self._stale() >= self._patience:
            control.should_training_stop = True

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Make the checkpoint count."""
        over = control.should_training_stop or state.global_step >= state.max_steps
        self._training.checkpoint_saved(state.global_step, over=over, **self._state())

    def _examine(self, step: int) -> None:
        settings = {"step": step, "seed": self._training.setting.seed, "sampled": True}
        scored = self._examiner.examine(self._generate, settings)
        self._training.add_validation(validation_of(scored, step), scored)

    def _stale(self) -> int:
        """The validations since the best one."""
        best = self._training.best
        assert best is not None
        return sum(each.step > best.step for each in self._training.validations)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without what the trainers' libraries say beside the run's own view.

    One of TRL's warnings quotes a whole rollout, which is mail.
    """
    told = [logging.getLogger(each) for each in ("trl", "transformers", "accelerate", "datasets")]
    before = [each.level for each in told]
    for each in told:
        each.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for each, level in zip(told, before, strict=True):
            each.setLevel(level)
