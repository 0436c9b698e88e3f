"""Learning from preferences: TRL's DPOTrainer and KTOTrainer on episodes that were stored.

DPO takes pairs of a better and a worse episode of a question, KTO single episodes that are good or
bad; ratings of `art-e rate` are such labels. TRL takes everything after the prompt, mail included,
for the completion; the collators here leave only what the model wrote.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from datasets import Dataset
from trl.trainer.dpo_config import DPOConfig
from trl.trainer.dpo_trainer import DataCollatorForPreference, DPOTrainer
from trl.trainer.kto_config import KTOConfig
from trl.trainer.kto_trainer import DataCollatorForUnpairedPreference, KTOTrainer

from art_e.errors import UserError
from art_e.ratings import read_ratings
from art_e.runs import runs_of
from art_e.storage import runs_folder
from art_e.trajectory import Trajectory, read_trajectories
from evals.scored import Scored
from training.expert import NO_LOSS, MarkedTokens, marked_tokens, stored_episodes, worth_of
from training.optimizer import BETAS, FLAT, own_tokens_scored, padded
from training.processes import quiet
from training.recipe import Preference
from training.rollout import ChatTokens, in_passes
from training.run import Judges, TrainingRun
from training.start import Start, adapter_config, keep_exact, load_start
from training.validation import Examiner, Load, carry_out_supervised, trainer_arguments

# In place of a run: the answers of `art-e ask` that the user rated.
RATINGS = "ratings"
# Steps before the full rate, and validations of a run after its start.
WARMUP, VALIDATIONS = 5, 4

# ---- From episodes to preferences.


class Labelled(NamedTuple):
    """An episode, and whether it is good."""

    trajectory: Trajectory
    good: bool


def pairs_of(episodes: Sequence[Scored]) -> list[tuple[Scored, Scored]]:
    """Return pairs of a better and a worse episode of a question: the best with the worst, the
    second best with the second worst, and so on, as long as one earned more."""
    by_question: dict[str, list[Scored]] = defaultdict(list)
    for each in episodes:
        by_question[each.question.id].append(each)
    pairs = []
    for group in by_question.values():
        ranked = sorted(group, key=worth_of, reverse=True)
        for better, worse in zip(ranked, reversed(ranked), strict=True):
            if worth_of(better) - worth_of(worse) <= FLAT:
                break
            pairs.append((better, worse))
    return pairs


def labels_of(episodes: Sequence[Scored]) -> list[Labelled]:
    """Call right episodes good, and wrong, lost or unfinished ones bad; an abstention from a
    question that has an answer is neither."""
    return [
        Labelled(each.trajectory, each.correct)
        for each in episodes
        if each.correct or not each.trajectory.rubric["abstained"]
    ]


def rated_episodes() -> list[Labelled]:
    """Return the answers of `art-e ask` that the user rated, if their run is still there. Raises
    `UserError` for a run that can't be read."""
    ratings = {each.episode_id: each.rating == "good" for each in read_ratings()}
    labelled = []
    for run in runs_of("ask", runs_folder()):
        try:
            labelled += [
                Labelled(each, ratings[each.episode_id])
                for each in read_trajectories(run.trajectories)
                if each.episode_id in ratings
            ]
        except ValueError as error:
            raise UserError(f"{run.trajectories} can't be read ({error}); delete it") from None
    return labelled


@dataclass
class OwnPairs(DataCollatorForPreference):
    """TRL's, with a mask of the model's own tokens."""

    def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the better episodes, then the worse."""
        batch: dict[str, Any] = super().torch_call(examples)
        rows = [each[f"{name}_own"] for name in ("chosen", "rejected") for each in examples]
        return {**batch, "completion_mask": padded(rows, batch["completion_mask"])}


@dataclass
class OwnLabelled(DataCollatorForUnpairedPreference):
    """TRL's, with a mask of the model's own tokens."""

    def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the episodes, and those of other questions that KTO compares with."""
        batch: dict[str, Any] = super().torch_call(examples)
        for prefix in ("", "KL_"):
            name = f"{prefix}completion_mask"
            batch[name] = padded([each[f"{prefix}own"] for each in examples], batch[name])
        return batch


def _own(marked: MarkedTokens) -> list[int]:
    return [int(label != NO_LOSS) for label in marked.labels]


def dpo_rows(
    pairs: Sequence[tuple[Scored, Scored]], tokens: ChatTokens, table: Preference, seed: int
) -> list[dict[str, Any]]:
    """Return a row for each pair of all steps."""
    rows = []
    for pair in in_passes(pairs, table.steps * table.batch, f"{seed}/preference"):
        better, worse = (marked_tokens(each.trajectory.messages, tokens) for each in pair)
        ids = {"chosen_ids": better.input_ids, "rejected_ids": worse.input_ids}
        own = {"chosen_own": _own(better), "rejected_own": _own(worse)}
        rows.append({"prompt_ids": [], **ids, **own})
    return rows


def kto_rows(
    labelled: Sequence[Labelled], tokens: ChatTokens, table: Preference, seed: int
) -> list[dict[str, Any]]:
    """Return a row for each episode of all steps, with the next one of its batch beside it."""
    rows: list[dict[str, Any]] = []
    for each in in_passes(labelled, table.steps * table.batch, f"{seed}/preference"):
        marked = marked_tokens(each.trajectory.messages, tokens)
        row = {"completion_ids": marked.input_ids, "own": _own(marked)}
        rows.append({"prompt_ids": [], **row, "label": each.good})
    for start in range(0, len(rows), table.batch):
        part = rows[start : start + table.batch]
        for row, other in zip(part, [*part[1:], part[0]], strict=True):
            row |= {"KL_completion_ids": other["completion_ids"], "KL_own": other["own"]}
    return rows


def train_preference(
    training: TrainingRun, checkpoint: Path | None, load: Load, judges: Judges
) -> dict[str, Any]:
    """Train, from `checkpoint` if given, and return the run's metrics. Raises `UserError` if the
    recipe can't be carried out, or the runs have no preferences."""
    setting = training.setting
    recipe, seed = setting.recipe, setting.seed
    table, init = recipe.preference, setting.init or recipe.model.base
    assert table is not None
    if init is None:
        raise UserError("name the folder of a start with --init")
    episodes = stored_episodes([each for each in setting.runs if each != RATINGS])
    with quiet(), own_tokens_scored():
        start = load_start(init, recipe.model)
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
        of_steps = [sum(lengths[at : at + table.batch]) for at in range(0, len(rows), table.batch)]
        examiner = Examiner(training, judges, start.tokens, load)
        every = max(1, table.steps // VALIDATIONS)
        return carry_out_supervised(trainer, examiner, start, checkpoint, of_steps, every)


def _require(there: object, lack: str) -> None:
    if not there:
        runs = "runs of art-e train grpo, or of eval run --repeat"
        raise UserError(f"{lack}: name {runs}, with --from")


def _trainer(training: TrainingRun, table: Preference, start: Start, rows: list[Any]) -> Any:
    setting = training.setting
    common: dict[str, Any] = {
        "per_device_train_batch_size": table.batch,
        "learning_rate": table.rate,
        "lr_scheduler_type": "constant_with_warmup",
        "warmup_steps": WARMUP,
        "weight_decay": 0.0,
        "adam_beta2": BETAS[1],
        "beta": table.beta,
        "max_length": None,
        # No second model is held, and a resumed run still compares with the start.
        "precompute_ref_log_probs": True,
        # Rows come in the order in which they are taken.
        "train_sampling_strategy": "sequential",
        # Our masks are among the columns.
        "remove_unused_columns": False,
        "logging_steps": 1,
        "report_to": "none",
        **trainer_arguments(training, table.steps),
    }
    given = {
        "model": start.model,
        "train_dataset": Dataset.from_list(rows),
        "processing_class": start.tokenizer,
        "peft_config": adapter_config(setting.recipe.model, start),
    }
    trainer: Any
    if setting.kind == "dpo":
        trainer = _Pairs(args=DPOConfig(**common), data_collator=OwnPairs(start.pad_id), **given)
    else:
        good = sum(each["label"] for each in rows)
        # Both kinds count as much in all, within the paper's bound of 4/3.
        weight = min(4 / 3, max(3 / 4, (len(rows) - good) / max(1, good)))
        args = KTOConfig(**common, desirable_weight=weight)
        trainer = _Labels(args=args, data_collator=OwnLabelled(start.pad_id), **given)
    if "ref" in getattr(trainer.model, "peft_config", {}):
        # The reference adapter: its log-probabilities are already computed.
        trainer.model.delete_adapter("ref")
    keep_exact(trainer.model)
    return trainer


class _Prepared:
    """A trainer whose rows are tokens already."""

    def _prepare_dataset(self, dataset: Any, *_: Any, **__: Any) -> Any:
        return dataset


class _Pairs(_Prepared, DPOTrainer): ...


class _Labels(_Prepared, KTOTrainer): ...
