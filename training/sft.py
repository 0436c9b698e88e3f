"""The warm start: TRL's SFTTrainer on conversations, with loss on the model's own tokens.

A recipe's stages are stretches of one run, each with its batch size and learning rate: short
conversations first, whole ones later. A small new model has to learn first to copy a name from
the question into its search, and first turns alone teach that in a tenth of the time.
"""

import math
from collections.abc import Sequence
from itertools import accumulate, cycle, islice
from pathlib import Path
from random import Random
from typing import Any

from datasets import Dataset
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from art_e.errors import UserError
from art_e.message import ChatMessage
from training.expert import MarkedTokens, marked_tokens, part_of
from training.optimizer import optimizer_of, own_tokens_scored
from training.processes import quiet
from training.recipe import Sft, SftStage
from training.rollout import ChatTokens
from training.run import Judges, TrainingRun
from training.start import Start, adapter_config, keep_exact, load_start, make_start
from training.validation import Examiner, Load, carry_out_supervised, trainer_arguments

# A new tokenizer learns its words from so many conversations.
TOKENIZER_CONVERSATIONS = 4_000
# Conversations are sorted by length within so many batches, to save padding.
SORTED_BATCHES = 50
LOG_EVERY = 10
# Of a new model, Muon's multiple of a stage's rate: it learns to copy in far fewer steps.
MUON = 1.4


def train_sft(
    training: TrainingRun,
    checkpoint: Path | None,
    conversations: Sequence[Sequence[Sequence[ChatMessage]]],
    load: Load,
    judges: Judges,
) -> dict[str, Any]:
    """Train on the `conversations` of each stage, from `checkpoint` if given, and return the run's
    metrics. Raises `UserError` if the recipe can't be carried out."""
    setting = training.setting
    table, model = setting.recipe.sft, setting.recipe.model
    assert table is not None
    with quiet(), own_tokens_scored():
        if name := setting.init or model.base:
            start = load_start(name, model)
        else:
            assert model.scratch is not None
            texts = conversations[0][:TOKENIZER_CONVERSATIONS]
            start = make_start(setting.recipe, model.scratch, texts, setting.seed)
        examples, batches = _batches(table, conversations, start.tokens, setting.seed)
        trainer = StagedTrainer(training, table.stages, start, examples, batches)
        lengths = [sum(len(examples[place].input_ids) for place in batch) for batch in batches]
        ends = list(accumulate(stage.steps for stage in table.stages))
        examiner = Examiner(training, judges, start.tokens, load)
        return carry_out_supervised(
            trainer, examiner, start, checkpoint, lengths, table.validate_every, ends
        )


def rate_at(stages: Sequence[SftStage], step: int) -> float:
    """Return the learning rate of `step` (from 0): a warm-up, then constant or a cosine."""
    for stage in stages:
        if step < stage.steps:
            rising = min(1.0, (step + 1) / max(1, stage.warmup))
            if stage.schedule == "cosine":
                # Down to a twentieth: at 0 the last steps would be lost.
                rising *= 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * step / stage.steps))
            return stage.rate * rising
        step -= stage.steps
    return 0.0


def _batches(
    table: Sft,
    conversations: Sequence[Sequence[Sequence[ChatMessage]]],
    tokens: ChatTokens,
    seed: int,
) -> tuple[list[MarkedTokens], list[list[int]]]:
    """Return the examples of all stages, and for each step the numbers of those in its batch."""
    examples: list[MarkedTokens] = []
    batches: list[list[int]] = []
    for number, (stage, of_stage) in enumerate(zip(table.stages, conversations, strict=True)):
        rng, first = Random(f"{seed}/stage/{number}"), len(examples)
        parts = (part for each in of_stage if (part := part_of(each, stage.part)) is not None)
        used = list(islice(parts, stage.steps * stage.batch))
        if not used:
            raise UserError(
                "no conversation reads a mail that has a turn after it; leave the stage of the"
                f' part "{stage.part}" out of sft.stages'
            )
        last_alone = stage.part in ("read", "answer")
        examples += [marked_tokens(each, tokens, last_alone=last_alone) for each in used]
        order = list(range(first, len(examples)))
        rng.shuffle(order)
        endless = cycle(order)
        for done in range(0, stage.steps, SORTED_BATCHES):
            drawn = list(islice(endless, min(SORTED_BATCHES, stage.steps - done) * stage.batch))
            drawn.sort(key=lambda place: len(examples[place].input_ids))
            cut = [drawn[at : at + stage.batch] for at in range(0, len(drawn), stage.batch)]
            rng.shuffle(cut)
            batches += cut
    return examples, batches


class StagedTrainer(SFTTrainer):
    """TRL's trainer, which takes its `batches` and its learning rate from the stages."""

    optimizer: Optimizer | None

    def __init__(
        self,
        training: TrainingRun,
        stages: Sequence[SftStage],
        start: Start,
        examples: Sequence[MarkedTokens],
        batches: list[list[int]],
    ) -> None:
        model = training.setting.recipe.model
        self.stages, self.batches = stages, batches
        self.muon = 0.0 if model.scratch is None else MUON
        super().__init__(
            model=start.model,
            args=SFTConfig(
                logging_steps=LOG_EVERY,
                report_to="none",
                max_length=None,
                **trainer_arguments(training, len(batches)),
            ),
            train_dataset=Dataset.from_list([each._asdict() for each in examples]),
            processing_class=start.tokenizer,
            peft_config=adapter_config(model, start),
        )
        keep_exact(self.model)

    def get_train_dataloader(self) -> DataLoader[Any]:
        """The batches of all stages."""
        rows: Any = self.train_dataset
        loader: DataLoader[Any] = DataLoader(
            rows, batch_sampler=self.batches, collate_fn=self.data_collator
        )
        prepared: DataLoader[Any] = self.accelerator.prepare(loader)
        return prepared

    def create_optimizer(self, model: Any = None) -> Optimizer:
        """An optimizer at the rate 1."""
        if self.optimizer is None:
            trained: Any = model or self.model
            self.optimizer = optimizer_of(trained, ratio=self.muon)
        return self.optimizer

    def create_scheduler(
        self, num_training_steps: int, optimizer: Optimizer | None = None
    ) -> LambdaLR:
        """A scheduler that multiplies it by the stages' rates."""
        chosen: Any = optimizer or self.optimizer
        self.lr_scheduler = LambdaLR(chosen, lambda step: rate_at(self.stages, step))
        return self.lr_scheduler
