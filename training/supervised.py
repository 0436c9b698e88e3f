"""Training on stored conversations: the warm start (SFT), and preferences (DPO, KTO).

TRL trains: its SFTTrainer on conversations to imitate, its DPOTrainer and KTOTrainer on stored
episodes. Only the model's own tokens carry loss."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate, cycle, islice
from random import Random
from typing import Any, NamedTuple

import torch
from datasets import Dataset
from torch.nn.utils.rnn import pad_sequence
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader
from trl.trainer.dpo_config import DPOConfig
from trl.trainer.dpo_trainer import DataCollatorForPreference, DPOTrainer
from trl.trainer.kto_config import KTOConfig
from trl.trainer.kto_trainer import DataCollatorForUnpairedPreference, KTOTrainer
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from art_e.errors import UserError
from art_e.message import ChatMessage
from art_e.ratings import read_ratings
from art_e.runs import read_trajectories, runs_of
from art_e.storage import runs_folder
from art_e.trajectory import Trajectory
from evals.scored import Scored
from training import validation
from training.expert import (
    NO_LOSS,
    MarkedTokens,
    marked_tokens,
    part_of,
    return_of,
    stored_episodes,
)
from training.judging import Judges
from training.optimizer import FLAT, optimizer_of, own_tokens_scored
from training.processes import quiet
from training.recipe import Preference, Sft, SftStage
from training.rollout import ChatTokens, in_groups, in_passes
from training.run import Step, TrainingRun
from training.start import Start, adapter_config, keep_float32, load_init, make_start

# ---- The warm start.

# Each stage of a run has its own batch size and learning rate: short conversations come first,
# whole ones later. A small new model must first learn to copy a name from the question into its
# search, which it does ten times as fast on first turns alone.

SORTED_BATCHES = 50  # sort by length within this many batches, to save padding
# Muon's rate as a multiple of the stage's; new models learn to copy in far fewer steps with Muon.
MUON = 1.4


def train_sft(
    training: TrainingRun, conversations: Sequence[Sequence[Sequence[ChatMessage]]],
    load: validation.Load, judges: Judges,
) -> dict[str, Any]:  # fmt: skip
    """Train on the `conversations` of each stage, and return the run's metrics."""
    setting = training.setting
    table, new = setting.recipe.sft, setting.new
    assert table is not None
    with quiet(), own_tokens_scored():
        if new is None:
            start = load_init(setting)
        else:
            texts = conversations[0][:4_000]  # enough to contain all words
            start = make_start(setting.recipe, new, texts, setting.seed)
        examples, batches = _batches(table, conversations, start.tokens, setting.seed)
        trainer = StagedTrainer(training, table.stages, start, examples, batches)
        lengths = [sum(len(examples[place].input_ids) for place in batch) for batch in batches]
        # Validate after stages of whole conversations: parts don't teach how to end an episode.
        ends = zip(accumulate(each.steps for each in table.stages), table.stages, strict=True)
        whole = [step for step, stage in ends if stage.part == "whole"]
        evaluator = validation.Evaluator(training, judges, start, load)
        return _train_and_test(trainer, evaluator, lengths, table.validate_every, whole)


def rate_at(stages: Sequence[SftStage], step: int) -> float:
    """Return the learning rate of `step` (from 0): a warm-up, then constant or a cosine."""
    for stage in stages:
        if step < stage.steps:
            # Linear warm-up, times half a cosine wave from 1 to 0.05 if the schedule has one.
            factor = min(1.0, (step + 1) / max(1, stage.warmup))  # + 1: never a rate of 0
            if stage.schedule == "cosine":
                # Down to a twentieth: near 0 the last steps would be wasted.
                factor *= 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * step / stage.steps))
            return stage.rate * factor
        step -= stage.steps  # every stage has its own warm-up and cosine
    return 0.0


def _batches(
    table: Sft, conversations: Sequence[Sequence[Sequence[ChatMessage]]], tokens: ChatTokens,
    seed: int,
) -> tuple[list[MarkedTokens], list[list[int]]]:  # fmt: skip
    """Return the examples of all stages, and for each step the indices of its batch in them."""
    examples: list[MarkedTokens] = []
    batches: list[list[int]] = []
    for number, (stage, of_stage) in enumerate(zip(table.stages, conversations, strict=True)):
        rng, first = Random(f"{seed}/stage/{number}"), len(examples)
        parts = (part for each in of_stage if (part := part_of(each, stage.part)) is not None)
        used = list(islice(parts, stage.steps * stage.batch))
        if not used:
            remedy = f'leave the stage of the part "{stage.part}" out of sft.stages'
            raise UserError(f"no conversation reads a mail that has a turn after it; {remedy}")
        last_alone = stage.part in ("read", "answer")
        examples += [marked_tokens(each, tokens, last_alone=last_alone) for each in used]
        order = list(range(first, len(examples)))
        rng.shuffle(order)
        endless = cycle(order)
        for done in range(0, stage.steps, SORTED_BATCHES):
            places = list(islice(endless, min(SORTED_BATCHES, stage.steps - done) * stage.batch))
            places.sort(key=lambda place: len(examples[place].input_ids))
            parts_of_stage = in_groups(places, stage.batch)
            rng.shuffle(parts_of_stage)
            batches += parts_of_stage
    return examples, batches


class StagedTrainer(SFTTrainer):
    """TRL's trainer with the `batches` and learning rates of the stages."""

    optimizer: Optimizer | None

    def __init__(
        self, training: TrainingRun, stages: Sequence[SftStage], start: Start,
        examples: Sequence[MarkedTokens], batches: list[list[int]],
    ) -> None:  # fmt: skip
        setting = training.setting
        self.stages, self.batches = stages, batches
        self.muon = MUON if setting.new else 0.0
        common = validation.trainer_arguments(training, len(batches))
        super().__init__(
            model=start.model,
            args=SFTConfig(logging_steps=10, max_length=None, **common),
            train_dataset=Dataset.from_list([each._asdict() for each in examples]),
            processing_class=start.tokenizer,
            peft_config=None if setting.new else adapter_config(setting.recipe.model, start),
        )
        keep_float32(self.model)

    def get_train_dataloader(self) -> Any:
        rows: Any = self.train_dataset
        loader = DataLoader(rows, batch_sampler=self.batches, collate_fn=self.data_collator)
        return self.accelerator.prepare(loader)

    def create_optimizer(self, model: Any = None) -> Optimizer:
        if self.optimizer is None:
            # Its rate is 1; the scheduler multiplies it by the stages' rates.
            self.optimizer = optimizer_of(model or self.model, ratio=self.muon)
        return self.optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> LambdaLR:
        chosen: Any = optimizer or self.optimizer
        self.lr_scheduler = LambdaLR(chosen, lambda step: rate_at(self.stages, step))
        return self.lr_scheduler


# ---- Preferences: DPO takes pairs of a better and a worse episode of a question, KTO single
# episodes that are good or bad, by `art-e rate` or by their verdicts.

RATINGS = "ratings"  # in place of a run: the answers of `art-e ask` that the user rated
WARMUP, VALIDATIONS = 5, 4  # steps of warm-up, and validations of a run after step 0


class Labelled(NamedTuple):
    """An episode, labelled good or bad."""

    trajectory: Trajectory
    good: bool


def pairs_of(episodes: Sequence[Scored]) -> list[tuple[Scored, Scored]]:
    """Return pairs of a better and a worse episode of a question: the best with the worst, the
    second best with the second worst, and so on, while their returns differ."""
    by_question: dict[str, list[Scored]] = defaultdict(list)
    for episode in episodes:
        by_question[episode.question.id].append(episode)
    ranked = [sorted(group, key=return_of, reverse=True) for group in by_question.values()]
    return [
        (better, worse)
        for group in ranked
        for better, worse in zip(group, reversed(group), strict=True)
        if return_of(better) - return_of(worse) > FLAT  # false for the mirrored second half
    ]


def labels_of(episodes: Sequence[Scored]) -> list[Labelled]:
    """Label right episodes good and others bad; leave out wrong abstentions."""
    return [
        Labelled(episode.trajectory, episode.correct)
        for episode in episodes
        if episode.correct or not episode.trajectory.rubric["abstained"]
    ]


def rated_episodes() -> list[Labelled]:
    """Return the stored answers that the user rated. Raises `UserError` for an unreadable run."""
    ratings = {each.episode_id: each.rating == "good" for each in read_ratings()}
    labelled = []
    for run in runs_of("ask", runs_folder()):
        try:
            labelled += [
                Labelled(row, ratings[row.episode_id])
                for row in read_trajectories(run.trajectories)
                if row.episode_id in ratings
            ]
        except ValueError as error:
            raise UserError(f"{run.trajectories} can't be read ({error}); delete it") from None
    return labelled


def own_tokens(usual: Any, examples: list[dict[str, Any]]) -> dict[str, Any]:
    """Collate the examples like TRL, but mask all tokens except the model's own."""
    batch: dict[str, Any] = usual(examples)
    # DPO stacks the better episodes on the worse; KTO has those of other questions in KL_ columns.
    for mask in [name for name in batch if name.endswith("completion_mask")]:
        column = mask.replace("mask", "own")
        columns = [column] if column in examples[0] else ["chosen_own", "rejected_own"]
        rows = [torch.tensor(each[name]) for name in columns for each in examples]
        batch[mask] = pad_sequence(rows, True).to(batch[mask])  # (episodes, tokens)
    return batch


def _row(tokens: ChatTokens, **episodes: Trajectory) -> dict[str, Any]:
    row: dict[str, Any] = {"prompt_ids": []}
    for name, trajectory in episodes.items():
        row[f"{name}_ids"], labels = marked_tokens(trajectory.messages, tokens)
        row[f"{name}_own"] = [int(label != NO_LOSS) for label in labels]
    return row


def dpo_rows(
    pairs: Sequence[tuple[Scored, Scored]], tokens: ChatTokens, table: Preference, seed: int
) -> list[dict[str, Any]]:
    """Return a row for each pair of all steps."""
    return [
        _row(tokens, chosen=better.trajectory, rejected=worse.trajectory)
        for better, worse in in_passes(pairs, table.steps * table.batch, f"{seed}/preference")
    ]


def kto_rows(
    labelled: Sequence[Labelled], tokens: ChatTokens, table: Preference, seed: int
) -> list[dict[str, Any]]:
    """Return a row for each episode of all steps, with the next one of its batch for KTO's KL."""
    rows = in_passes(labelled, table.steps * table.batch, f"{seed}/preference")
    # KTO estimates KL(policy || reference) from the completions of other rows.
    return [
        _row(tokens, completion=episode.trajectory, KL_completion=other.trajectory)
        | {"label": episode.good}
        for part in in_groups(rows, table.batch)
        for episode, other in zip(part, [*part[1:], part[0]], strict=True)
    ]


def train_preference(
    training: TrainingRun, load: validation.Load, judges: Judges
) -> dict[str, Any]:
    """Train, and return the run's metrics. Raises `UserError` if the runs hold no preferences."""
    setting = training.setting
    table, seed = setting.recipe.preference, setting.seed
    assert table is not None
    episodes = stored_episodes([each for each in setting.runs if each != RATINGS])
    with quiet(), own_tokens_scored():
        start = load_init(setting)
        if setting.kind == "dpo":
            pairs = pairs_of(episodes)
            _require(pairs, "no question has two episodes of which one earned more")
            rows = dpo_rows(pairs, start.tokens, table, seed)
        else:
            labelled = labels_of(episodes) + (rated_episodes() if RATINGS in setting.runs else [])
            _require({each.good for each in labelled} == {True, False}, "all episodes are alike")
            rows = kto_rows(labelled, start.tokens, table, seed)
        trainer = _trainer(training, table, start, rows)
        lengths = [sum(len(row[each]) for each in row if each.endswith("_ids")) for row in rows]
        of_steps = [sum(group) for group in in_groups(lengths, table.batch)]
        evaluator = validation.Evaluator(training, judges, start, load)
        return _train_and_test(trainer, evaluator, of_steps, max(1, table.steps // VALIDATIONS))


def _require(condition: object, lack: str) -> None:
    if not condition:
        runs = "runs of art-e train grpo, or of eval run --repeat"
        raise UserError(f"{lack}: name {runs}, with --from")


def _trainer(training: TrainingRun, table: Preference, start: Start, rows: list[Any]) -> Any:
    setting = training.setting
    common: dict[str, Any] = {
        "per_device_train_batch_size": table.batch,
        "learning_rate": table.rate,
        "lr_scheduler_type": "constant_with_warmup",
        "warmup_steps": WARMUP,
        "beta": table.beta,
        "max_length": None,
        # Avoids a second model in memory; a resumed run still compares with the initial model.
        "precompute_ref_log_probs": True,
        "train_sampling_strategy": "sequential",  # keep the rows in order
        "remove_unused_columns": False,  # some columns are our masks
        "logging_steps": 1,
        **validation.trainer_arguments(training, table.steps),
    }
    arguments = {
        "model": start.model,
        "train_dataset": Dataset.from_list(rows),
        "processing_class": start.tokenizer,
        "peft_config": adapter_config(setting.recipe.model, start),
    }
    trainer: Any
    if setting.kind == "dpo":
        collator = partial(own_tokens, DataCollatorForPreference(start.pad_id))
        trainer = _Pairs(args=DPOConfig(**common), data_collator=collator, **arguments)
    else:
        good = sum(each["label"] for each in rows)
        # w n_good = n_bad balances both kinds, for w from 3/4 to 4/3 (Ethayarajh et al., 2024).
        weight = min(4 / 3, max(3 / 4, (len(rows) - good) / max(1, good)))
        args = KTOConfig(**common, desirable_weight=weight)
        collator = partial(own_tokens, DataCollatorForUnpairedPreference(start.pad_id))
        trainer = _Labels(args=args, data_collator=collator, **arguments)
    if "ref" in getattr(trainer.model, "peft_config", {}):
        # The reference adapter: its log-probabilities are already computed.
        trainer.model.delete_adapter("ref")
    keep_float32(trainer.model)
    return trainer


class _Pairs(DPOTrainer):  # -log sigmoid(beta (h(better) - h(worse))), h = log(p / p_ref)
    def _prepare_dataset(self, dataset: Any, *_: Any, **__: Any) -> Any:
        return dataset  # The rows are tokenized already.


class _Labels(KTOTrainer):
    _prepare_dataset: Any = _Pairs._prepare_dataset


def _train_and_test(
    trainer: Any, evaluator: validation.Evaluator, lengths: Sequence[int], validate_every: int,
    also_at: Sequence[int] = (),
) -> dict[str, Any]:  # fmt: skip
    """Train and test; `lengths` are the numbers of tokens of each step."""

    def to_step(step: int, logs: Mapping[str, float]) -> Step:
        names = ("loss", "learning_rate", "grad_norm")
        logged: dict[str, Any] = {name: logs[name] for name in names}
        return Step(step, evaluator.training.seconds, sum(lengths[:step]), **logged)

    generate = evaluator.by_transformers
    callback = validation.RunCallback(evaluator, generate(1.0), to_step, validate_every, also_at)
    return validation.train_and_test(trainer, callback, generate)
