"""Reinforcement learning: TRL's GRPOTrainer over our episodes.

TRL does groups, advantages, clipping and losses. A step here is read in this order: `grpo.py`
sets TRL up, `roller.py` takes the step's questions, `rollout.py` runs their episodes turn by
turn, `engine.py` generates, `roller.py` asks the judges, `reward.py` pays, and TRL trains on the
tokens. `validation.py` asks held-out questions now and then.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from torch.optim import Optimizer
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from art_e.errors import UserError
from training.engine import SERVER_TIMEOUT_S, Dispatch, check_generation, taking_adapters
from training.optimizer import (
    logit_scale_optimizer,
    own_tokens_scored,
    packed,
    padded,
    scored_packed,
)
from training.processes import quiet
from training.progress import Step
from training.recipe import Grpo, Loss, ModelTable
from training.roller import Roller
from training.run import Judges, TrainingRun
from training.start import Start, adapter_config, keep_exact, load_start
from training.validation import (
    Examiner,
    Load,
    RunCallback,
    by_transformers,
    carry_out,
    trainer_arguments,
)

# As transformers names them; its cosine has a warm-up too.
_SCHEDULES = {"constant": "constant_with_warmup", "cosine": "cosine"}
# What TRL logs of the trainer's probabilities over those of vLLM.
_RATIO = "sampling/importance_sampling_ratio"
# What we log beside it.
_LIKELIHOOD = "likelihood"


def train_grpo(
    training: TrainingRun,
    checkpoint: Path | None,
    load: Load,
    judges: Judges,
    *,
    report_to: str = "none",
) -> dict[str, Any]:
    """Carry the run out, from `checkpoint` if given; its metrics.

    It pauses when the judges may cost no more, and when they fail on too many episodes. Raises
    `UserError` if the recipe can't be carried out.
    """
    recipe = training.setting.recipe
    table = recipe.grpo
    if table is None:
        raise UserError(f"the recipe {recipe.name} has no table [grpo]; use another")
    init = training.setting.init or recipe.model.base
    if init is None:
        raise UserError(
            f"the recipe {recipe.name} makes its model from nothing: train a start with"
            " art-e train sft, and name its folder with --init"
        )
    table.passes(training.processes.count)
    check_generation(table.vllm)
    with quiet(), own_tokens_scored():
        start = load_start(init, recipe.model)
        roller = Roller(training, table, start.tokens, load("train"), judges)
        trainer = _trainer(roller, start, report_to)
        dispatch = trainer.dispatch
        examiner = Examiner(training, judges, start.tokens, load)
        callback = RunCallback(
            examiner,
            dispatch,
            lambda step, logs: _step(roller, step, logs),
            validate_every=table.validate_every,
            together=table.minibatches,
            pause=lambda: _spent(judges) or roller.outage,
            awake=dispatch.awake,
        )
        by_trl = isinstance(dispatch, Dispatch) and table.vllm is None
        generate_at = by_transformers(training, start) if by_trl else dispatch.at
        return carry_out(trainer, callback, checkpoint, generate_at)


def _spent(judges: Judges) -> str | None:
    if not judges.exhausted():
        return None
    return "the judges' fees have reached their limit; resume with a higher --max-cost"


def _step(roller: Roller, step: int, logs: Mapping[str, float]) -> Step:
    names = ("loss", "learning_rate", "grad_norm", "entropy", "kl")
    logged: dict[str, Any] = {name: logs.get(name) for name in names}
    # Logged once for a batch, which may serve several steps; 0 where all its groups were left out.
    if logs.get(f"{_RATIO}/mean"):
        for name in ("min", "mean", "max", "spread", "cut"):
            roller.figures[f"ratio_{name}"] = logs.get(f"{_RATIO}/{name}")
    logged |= {"likelihood": logs.get(_LIKELIHOOD), **roller.figures}
    seconds = roller.training.seconds
    return Step(step=step, seconds=seconds, tokens=roller.generated, **logged)


def _earned(earned: list[float | None], **_: Any) -> list[float | None]:
    """TRL's reward function: the rollouts bring their rewards with them."""
    return earned


def _trainer(roller: Roller, start: Start, report_to: str) -> Any:
    training, table = roller.training, roller.table
    setting = training.setting

    class AgentTrainer(GRPOTrainer):
        """Pads its batches less, and may scale logits and credit turns."""

        dispatch: Dispatch
        batch: Mapping[str, Any]

        def create_optimizer(self, model: Any = None) -> Optimizer:
            if self.optimizer is None and table.logit_scale_rate:
                trained: Any = model or self.model
                self.optimizer = logit_scale_optimizer(
                    trained, rate=table.rate, scale_rate=table.logit_scale_rate
                )
            made: Optimizer = super().create_optimizer(model)
            return made

        def _generate_and_score_completions(self, inputs: Any) -> Any:
            scored = super()._generate_and_score_completions(inputs)
            if (ratios := scored.get("importance_sampling_ratio")) is not None:
                masks = scored["completion_mask"] * scored.get("tool_mask", 1)
                self._note_ratios(ratios.expand_as(masks)[masks.bool()])
            if table.turn_credit:
                credit = padded(roller.credits, scored["completion_mask"], torch.float32)
                scored["advantages"] = scored["advantages"][:, None] + table.turn_credit * credit
            return scored

        def _note_ratios(self, ratios: Tensor) -> None:
            """Log how far the ratios spread, and which share of them is cut or masked."""
            assert table.vllm is not None
            cut = (ratios >= table.vllm.ratio_cap) | (ratios == 0)
            for name, value in (("spread", ratios.std(correction=0)), ("cut", cut.float().mean())):
                told = self.accelerator.gather(value).nanmean().item()
                self._metrics["train"][f"{_RATIO}/{name}"].append(told)

        def _get_per_token_logps_and_entropies(
            self, model: Any, input_ids: Any, attention_mask: Any, *args: Any, **options: Any
        ) -> Any:
            usual = super()._get_per_token_logps_and_entropies
            if torch.is_grad_enabled():  # a batch that is packed
                found = usual(model, input_ids, attention_mask, *args, **options)
                self._note_likelihood(found[0].detach())
                return found
            kept, size = args[0], options.pop("batch_size", None) or len(input_ids)
            score = partial(usual, model, **options)
            return scored_packed(score, input_ids, attention_mask, kept, size)

        def _compute_loss(self, model: Any, inputs: Any) -> Any:
            self.batch = inputs
            usual: Any = super()._compute_loss
            return usual(model, inputs)

        def _note_likelihood(self, logps: Tensor) -> None:
            """Log how likely the tokens are that this batch makes likelier."""
            masks = self.batch["completion_mask"] * self.batch.get("tool_mask", 1)
            advantages = self.batch["advantages"].reshape(len(masks), -1)
            better = (advantages > 0).expand_as(masks) & masks.bool()
            if better.any():
                self._metrics["train"][_LIKELIHOOD].append(logps[better].mean().item())

        def _prepare_inputs(self, generation_batch: Any) -> Any:
            before = self._buffered_inputs
            inputs = super()._prepare_inputs(generation_batch)
            if self._buffered_inputs is before:
                return inputs
            self._buffered_inputs = packed(
                self._buffered_inputs, skip_flat=table.beta == 0, minibatches=table.minibatches
            )
            return self._buffered_inputs[self._step % self.args.steps_per_generation]

    form = setting.recipe.episode
    # The roller chooses the questions; TRL counts rows and groups.
    rows = [{"prompt": ""}] * (table.batches * table.questions)
    passes = table.passes(training.processes.count)

    def roll(_: Any, trainer: Any) -> dict[str, Any]:
        step, dispatch = int(trainer.state.global_step) + 1, trainer.dispatch
        return roller(roller.asked_at(step, dispatch), step, dispatch)

    rank = None if table.vllm is None else _adapter_rank(setting.recipe.model, start)
    with taking_adapters(rank):
        trainer = AgentTrainer(
            model=start.model,
            reward_funcs=[_earned],
            args=GRPOConfig(
                per_device_train_batch_size=table.micro_batch,
                gradient_accumulation_steps=passes // table.minibatches,
                steps_per_generation=passes,
                num_generations=table.rollouts,
                max_completion_length=form.episode_tokens,
                temperature=table.temperature,
                learning_rate=table.rate,
                lr_scheduler_type=_SCHEDULES[table.schedule],
                warmup_steps=table.warmup,
                weight_decay=0.0,
                adam_beta2=0.98,
                **_loss(table),
                scale_rewards=table.scale,
                beta=table.beta,
                logging_steps=1,
                report_to=report_to,
                ddp_find_unused_parameters=False,
                # Rows come in the order in which they are asked, pass after pass.
                shuffle_dataset=False,
                **trainer_arguments(training, table.steps),
                **_vllm(table, form.episode_tokens),
            ),
            train_dataset=Dataset.from_list(rows),
            processing_class=start.tokenizer,
            rollout_func=roll,
            peft_config=adapter_config(setting.recipe.model, start),
        )
    keep_exact(trainer.model)
    trainer.dispatch = Dispatch(trainer, form.turn_tokens, setting.seed, batch=table.generate_batch)
    return trainer


def _adapter_rank(table: ModelTable, start: Start) -> int | None:
    """The rank of the adapter that is trained; None for whole weights."""
    if start.adapter:
        model: Any = start.model
        return int(model.peft_config["default"].r)
    return None if table.lora is None else table.lora.rank


# How far a ratio may be from 1 below, and above where the recipe says nothing: TRL's default, for
# GSPO the paper's, for CISPO what TRL advises (after ScaleRL, arXiv:2510.13786).
_CLIPS: Mapping[Loss, tuple[float, float]] = {
    "dapo": (0.2, 0.2),
    "dr_grpo": (0.2, 0.2),
    "gspo": (3e-4, 4e-4),
    "cispo": (0.2, 5.0),
}


def _loss(table: Grpo) -> dict[str, Any]:
    """TRL's settings of the loss."""
    low, high = _CLIPS[table.loss]
    whole = table.loss == "gspo"
    return {
        "loss_type": "grpo" if whole else table.loss,
        "importance_sampling_level": "sequence" if whole else "token",
        "epsilon": low,
        "epsilon_high": high if table.clip_high is None else table.clip_high,
        "mask_truncated_completions": table.mask_truncated,
    }


def _vllm(table: Grpo, context: int) -> dict[str, Any]:
    """TRL's settings of vLLM."""
    if table.vllm is None:
        return {}
    return {
        "use_vllm": True,
        "vllm_mode": table.vllm.mode,
        "vllm_gpu_memory_utilization": table.vllm.memory,
        "vllm_enable_sleep_mode": table.vllm.sleep,
        "vllm_max_model_length": context,
        "vllm_server_base_url": table.vllm.server,
        "vllm_server_timeout": SERVER_TIMEOUT_S,
        "vllm_importance_sampling_mode": table.vllm.ratios,
        "vllm_importance_sampling_clip_max": table.vllm.ratio_cap,
    }
