"""Reinforcement learning: TRL's GRPOTrainer over our episodes.

TRL brings groups, advantages, clipping, losses and the generation of a turn. Ours is what it
has no place for: many turns with tools, over the same `Episode` as everywhere; rewards from
judges who are asked at the same time; groups without spread replaced before they are trained
on. TRL hands `rollout_func` the prompts alone, so that the trainer keeps the rows they are of.
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import fmean
from typing import TYPE_CHECKING, Any

from art_e.errors import UserError
from art_e.question import Question
from evals.scored import Scored
from training.callbacks import RunCallback, quiet
from training.engine import Dispatch, own_tokens_scored, packed
from training.evaluation import examined
from training.groups import Curriculum, is_flat
from training.judging import Judges, judges_of
from training.material import Material, load_material
from training.memory import keep_memory
from training.progress import Step
from training.reward import malformed_calls
from training.rollout import Limits, Rollout, roll_out
from training.run import TrainingRun
from training.scoring import Scorer, reward_in
from training.start import Start, adapter_config, load_start
from training.tables import Grpo
from training.validation import examiner_of

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from trl.trainer.grpo_trainer import GRPOTrainer

# As transformers names them; its cosine has a warm-up too.
_SCHEDULES = {"constant": "constant_with_warmup", "cosine": "cosine"}


class Roller:
    """Rolls out a step's groups for TRL, scores them, and replaces those without spread."""

    def __init__(
        self, training: TrainingRun, table: Grpo, start: Start, material: Material, judges: Judges
    ) -> None:
        recipe = training.setting.recipe
        self._training = training
        self._table = table
        self._form = recipe.episode
        self._tokens = start.tokens
        self._material = material
        self._judges = judges
        self._scorer = Scorer(judges.reward, recipe.reward, training.run.id, recipe.name)
        self._by_id = {each.id: each for each in material.questions}
        self.curriculum = Curriculum(material.questions, training.setting.seed)
        self.figures: dict[str, Any] = {}
        self.generated = training.tokens

    def __call__(self, rows: Sequence[Mapping[str, Any]], trainer: "GRPOTrainer") -> dict[str, Any]:
        """The rollouts of `rows`, whose questions come as many times in a row as a group has
        members, in the form that TRL wants of a `rollout_func`."""
        size = self._table.rollouts
        asked = [self._by_id[row["question_id"]] for row in rows[::size]]
        generate = Dispatch(trainer, self._form.turn_tokens)
        step = int(trainer.state.global_step) + 1
        groups = self._roll(asked, generate, step)
        resampled = 0
        for _ in range(self._table.resample):
            flat = [place for place, group in enumerate(groups) if _flat(group)]
            others = self._others([asked[place] for place in flat], asked)
            if not others:
                break
            replaced = flat[: len(others)]
            for place, group in zip(replaced, self._roll(others, generate, step), strict=True):
                asked[place], groups[place] = group[0][1].question, group
            resampled += len(others)
        members = [each for group in groups for each in group]
        self._training.add_episodes([scored for _, scored in members])
        self.figures = {
            **figures([scored for _, scored in members]),
            "groups": len(groups),
            "flat_groups": sum(map(_flat, groups)),
            "resampled": resampled,
            "cost_usd": self._training.cost_before + self._judges.cost_usd,
        }
        return _for_trl([rollout for rollout, _ in members], [each for _, each in members])

    def _roll(
        self, asked: Sequence[Question], generate: Dispatch, step: int
    ) -> list[list[tuple[Rollout, Scored]]]:
        """A group for each question; its rewards are noted."""
        size = self._table.rollouts
        episodes = [self._material.episode(each, self._form) for each in asked for _ in range(size)]
        limits = Limits(self._form.turn_tokens, self._form.episode_tokens)
        rollouts = roll_out(episodes, self._tokens, generate, limits)
        self.generated += sum(sum(each.conversation.own) for each in rollouts)
        groups = [rollouts[at : at + size] for at in range(0, len(rollouts), size)]

        async def score_all() -> list[list[Scored]]:
            scores = (
                self._scorer.score(
                    group,
                    {
                        "step": step,
                        "group": f"{step}/{question.id}",
                        "temperature": self._table.temperature,
                        "seed": self._training.setting.seed,
                    },
                )
                for question, group in zip(asked, groups, strict=True)
            )
            return await asyncio.gather(*scores)

        scored = asyncio.run(score_all())
        for question, group in zip(asked, scored, strict=True):
            self.curriculum.note(question, [reward_in(each) for each in group])
        return [list(zip(*pair, strict=True)) for pair in zip(groups, scored, strict=True)]

    def _others(self, flat: Sequence[Question], asked: Sequence[Question]) -> list[Question]:
        """Questions to ask in place of those whose groups were flat, as far as there are any."""
        besides = {each.id for each in asked}
        others: list[Question] = []
        for _ in flat:
            other = self.curriculum.replacement(besides)
            if other is None:
                break
            besides.add(other.id)
            others.append(other)
        return others


def train_grpo(
    training: TrainingRun, checkpoint: Path | None, *, max_cost_usd: float | None, report_to: str
) -> dict[str, Any]:
    """Carry the run out, from `checkpoint` on where there is one; its metrics.

    `max_cost_usd` bounds what judges are paid over the whole run; `report_to` is TRL's name of
    a tracker, or "none". Raises `UserError` for a recipe that can't be carried out.
    """
    from transformers import PrinterCallback

    setting = training.setting
    table = setting.recipe.grpo
    if table is None:
        raise UserError(f"the recipe {setting.recipe.name} has no table [grpo]; use another")
    init = setting.init or setting.recipe.model.base
    if init is None:
        raise UserError(
            f"the recipe {setting.recipe.name} makes its model from nothing: train a start with"
            " art-e train sft, and name its folder with --init"
        )
    left = None if max_cost_usd is None else max(0.0, max_cost_usd - training.cost_before)
    judges = judges_of(setting.recipe.judging, max_cost_usd=left)
    with quiet(), own_tokens_scored():
        start = load_start(init)
        material = load_material(setting.recipe.data, "train")
        roller = Roller(training, table, start, material, judges)
        if "curriculum" in training.state:
            roller.curriculum.restore(training.state["curriculum"])
        trainer = _trainer(training, table, start, material, roller, report_to)
        callback = RunCallback(
            training,
            examiner_of(setting.recipe, judges, start.tokens, training.run.id),
            Dispatch(trainer, setting.recipe.episode.turn_tokens),
            lambda step, logs: _step(training, roller, step, logs),
            validate_every=table.validate_every,
            patience=table.patience,
            state=lambda: {"curriculum": roller.curriculum.to_row()},
        )
        trainer.remove_callback(PrinterCallback)
        trainer.add_callback(callback)
        if not training.trained:
            trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        return examined(training, judges)


def figures(scored: Sequence[Scored]) -> dict[str, Any]:
    """The figures of `Step` that come from its episodes."""
    rewards = [each.trajectory.reward for each in scored if each.trajectory.reward is not None]
    facts = [each.trajectory.rubric for each in scored]
    names = sorted({name for each in rewards for name in each["components"]})
    return {
        "reward": _mean([each["total"] for each in rewards]),
        "components": {
            name: fmean(each["components"].get(name, 0.0) for each in rewards) for name in names
        },
        "accuracy": _mean([each.correct for each in scored if each.question.answerable]),
        "hallucination": _mean([each.wrong for each in scored]),
        "abstention": _mean([bool(each["abstained"]) for each in facts]),
        "turns": _mean([each["turns"] for each in facts]),
        "effort": _mean([each["effort"] for each in facts]),
        "format_errors": _mean([malformed_calls(each) for each in facts]),
        "unjudged": len(scored) - len(rewards),
    }


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _flat(group: Sequence[tuple[Rollout, Scored]]) -> bool:
    return is_flat([reward_in(scored) for _, scored in group])


def _for_trl(rollouts: Sequence[Rollout], scored: Sequence[Scored]) -> dict[str, Any]:
    """What TRL takes. A rollout without a reward is masked: it is in no sum of the loss."""
    conversations = [each.conversation for each in rollouts]
    earned = [reward_in(each) for each in scored]
    told = [each.logprobs for each in conversations]
    return {
        "prompt_ids": [each.prompt_ids for each in conversations],
        "completion_ids": [each.completion_ids for each in conversations],
        "env_mask": [
            [int(own and reward is not None) for own in each.own]
            for each, reward in zip(conversations, earned, strict=True)
        ],
        "logprobs": None if None in told else told,
        "earned": earned,
    }


def _step(training: TrainingRun, roller: Roller, step: int, logs: Mapping[str, float]) -> Step:
    return Step(
        step=step,
        seconds=training.seconds,
        tokens=roller.generated,
        loss=logs.get("loss"),
        learning_rate=logs.get("learning_rate"),
        grad_norm=logs.get("grad_norm"),
        entropy=logs.get("entropy"),
        kl=logs.get("kl"),
        **roller.figures,
    )


def _earned(earned: list[float | None], **_: Any) -> list[float | None]:
    """TRL's reward function: the rollouts bring their rewards with them."""
    return earned


def _trainer(
    training: TrainingRun,
    table: Grpo,
    start: Start,
    material: Material,
    roller: Roller,
    report_to: str,
) -> "GRPOTrainer":
    from datasets import Dataset
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    from training.optimizer import logit_scale_optimizer

    setting = training.setting

    class AgentTrainer(GRPOTrainer):
        """Keeps the rows whose prompts TRL hands to `rollout_func`, pads its batches less, and
        may scale logits."""

        rows: Sequence[Mapping[str, Any]] = ()

        def create_optimizer(self, model: Any = None) -> "Optimizer":
            if self.optimizer is None and table.logit_scale_rate:
                trained: Any = model or self.model
                self.optimizer = logit_scale_optimizer(
                    trained, rate=table.rate, scale_rate=table.logit_scale_rate
                )
            made: Optimizer = super().create_optimizer(model)
            return made

        def _generate_and_score_completions(self, inputs: Any) -> Any:
            self.rows = inputs
            return super()._generate_and_score_completions(inputs)

        def _prepare_inputs(self, generation_batch: Any) -> Any:
            before = self._buffered_inputs
            inputs = super()._prepare_inputs(generation_batch)
            if self._buffered_inputs is before:
                return inputs
            self._buffered_inputs = packed(self._buffered_inputs)
            return self._buffered_inputs[self._step % self.args.steps_per_generation]

    questions = list(material.questions)
    Random(f"{setting.seed}/grpo").shuffle(questions)
    needed = questions[: table.steps * table.questions]
    rows = [
        {
            "prompt": material.episode(each, setting.recipe.episode).messages,
            "question_id": each.id,
        }
        for each in needed
    ]
    rollouts = table.questions * table.rollouts
    passes = rollouts // table.micro_batch
    on_cpu = start.model.device.type == "cpu"
    if on_cpu:
        keep_memory()
    form = setting.recipe.episode

    def roll(_: Any, trainer: Any) -> dict[str, Any]:
        return roller(trainer.rows, trainer)

    return AgentTrainer(
        model=start.model,
        reward_funcs=[_earned],
        args=GRPOConfig(
            output_dir=str(training.checkpoints),
            max_steps=table.steps,
            per_device_train_batch_size=table.micro_batch,
            gradient_accumulation_steps=passes,
            steps_per_generation=passes,
            num_generations=table.rollouts,
            num_iterations=table.iterations,
            max_completion_length=form.episode_tokens,
            temperature=table.temperature,
            learning_rate=table.rate,
            lr_scheduler_type=_SCHEDULES[table.schedule],
            warmup_steps=table.warmup,
            weight_decay=0.0,
            adam_beta2=0.98,
            max_grad_norm=1.0,
            loss_type=table.loss,
            scale_rewards=table.scale,
            epsilon=table.clip,
            beta=table.beta,
            logging_steps=1,
            save_strategy="steps",
            save_steps=table.steps + 1,
            report_to=report_to,
            use_cpu=on_cpu,
            bf16=not on_cpu,
            gradient_checkpointing=not on_cpu,
            disable_tqdm=True,
            seed=setting.seed,
        ),
        train_dataset=Dataset.from_list(rows),
        processing_class=start.tokenizer,
        rollout_func=roll,
        peft_config=adapter_config(setting.recipe.model, start),
    )
