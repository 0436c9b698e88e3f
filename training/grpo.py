"""Reinforcement learning: TRL's GRPOTrainer over our episodes.

TRL computes advantages and losses. Read a step in this order: `grpo.py` sets TRL up, `roller.py`
takes the step's questions, `rollout.py` runs their episodes turn by turn, `engine.py` generates,
`roller.py` asks the judges, `reward.py` computes the rewards, and TRL trains on the tokens. At
intervals `validation.py` asks held-out questions.

An episode with the reward R has the advantage A = (R - mean of its group) / (std of the batch +
1e-4). The loss of an optimizer step on N tokens that the model sampled (DAPO, Yu et al., 2025) is

    -1/N sum over these tokens of min(min(r, RATIO_CAP) A, clip(r, 0.8, 1.2) A)

with the importance ratio r = p(token | current weights) / p(token | weights that sampled it)."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from datasets import Dataset
from torch.nn.utils.rnn import pad_sequence
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from art_e.models.checkpoint import best_device
from evals.scored import Scored
from training import validation
from training.engine import SERVER_TIMEOUT_S, Dispatch, check_generation, taking_adapters
from training.judging import Judges
from training.optimizer import own_tokens_scored, packed, scored_as_one, scored_packed
from training.processes import PausedError, quiet
from training.recipe import TEMPERATURE, Vllm
from training.roller import Played, Roller, StepBatch, rewards_of
from training.rollout import in_groups
from training.run import Step, TrainingRun
from training.start import Start, adapter_config, keep_float32, load_init

# transformers' names; its cosine has a warm-up, too.
_SCHEDULES = {"constant": "constant_with_warmup", "cosine": "cosine"}
# PPO's clip leaves r unbounded if A < 0; this bounds it ("dual clip", Ye et al., 2020).
RATIO_CAP = 3.0


def train_grpo(training: TrainingRun, load: validation.Load, judges: Judges) -> dict[str, Any]:
    """Train, and return the run's metrics. Pause if the judges' budget is used up or they fail too
    often. Raises `UserError` if the recipe does not fit."""
    recipe = training.setting.recipe
    table = recipe.grpo
    assert table is not None
    table.passes(training.processes.count)
    check_generation(table.vllm)
    with quiet(), own_tokens_scored():
        start = load_init(training.setting)
        roller = Roller(training, table, start.tokens, load("train"), judges)
        trainer = AgentTrainer(roller, start)
        evaluator = validation.Evaluator(training, judges, start, load)
        callback = validation.RunCallback(
            evaluator, trainer.dispatch, trainer.step_of, validate_every=table.validate_every,
            together=table.minibatches, pause=trainer.why_pause, awake=trainer.awake,
        )  # fmt: skip
        generate_at = evaluator.by_transformers if table.vllm is None else trainer.dispatch.at
        return validation.train_and_test(trainer, callback, generate_at)


def total_reward(scored: Sequence[Scored], *, size: int, **_: Any) -> list[float | None]:
    """Return the episodes' rewards to TRL; None for a group with an unjudged member."""
    groups = in_groups(scored, size)
    return [reward for group in groups for reward in rewards_of(group) or (None,) * size]


class AgentTrainer(GRPOTrainer):
    """TRL's trainer on the episodes of `roller`; `batch` holds those of the newest step."""

    def __init__(self, roller: Roller, start: Start) -> None:
        training, table = roller.training, roller.table
        recipe, seed = training.setting.recipe, training.setting.seed
        self.roller, self.table = roller, table
        self.batch: StepBatch | None = None
        self.generated = training.tokens  # tokens that all processes generated since the run began
        # Log-probabilities of the newest batch's tokens, if the engine returned them.
        self._sampled: list[list[float]] | None = None
        # Over the passes before the batch's first step: the sum of r, and the number of tokens.
        self._ratios = torch.zeros(2)
        self._own = self._scores = torch.zeros(0)  # a pass's mask and log p: (rows, columns)
        # Join a pass's episodes into one row for large models; small ones wait for kernel launches.
        self._joins = recipe.model.base is not None
        passes, form = table.passes(training.processes.count), recipe.episode
        # The roller chooses the questions; TRL counts rows and groups.
        rows = [{"prompt": ""}] * (table.batches * table.questions)
        adapters = getattr(start.model, "peft_config", {})
        rank = adapters["default"].r if adapters else recipe.model.lora
        config = GRPOConfig(
            per_device_train_batch_size=table.micro_batch, steps_per_generation=passes,
            gradient_accumulation_steps=passes // table.minibatches,  # passes per optimizer step
            num_generations=table.rollouts, max_completion_length=form.episode_tokens,
            temperature=TEMPERATURE, loss_type="dapo", beta=0.0,  # beta 0: no KL term
            learning_rate=table.rate, lr_scheduler_type=_SCHEDULES[table.schedule],
            warmup_steps=table.warmup, logging_steps=1, ddp_find_unused_parameters=False,
            # Divide by the batch's std: a group's own would magnify tiny differences.
            scale_rewards="batch",
            delta=RATIO_CAP,  # TRL's default epsilon, 0.2, gives the other clip
            # Rows stay in the order in which they were asked.
            shuffle_dataset=False,
            **validation.trainer_arguments(training, table.steps, table.max_grad_norm),
            **_vllm(table.vllm, form.episode_tokens),
        )  # fmt: skip
        with taking_adapters(rank) if table.vllm and rank else nullcontext():
            super().__init__(
                model=start.model, args=config, processing_class=start.tokenizer,
                reward_funcs=[partial(total_reward, size=table.rollouts)],
                train_dataset=Dataset.from_list(rows), rollout_func=self._roll,
                peft_config=adapter_config(recipe.model, start),
            )  # fmt: skip
        keep_float32(self.model)
        servers = table.vllm.servers if table.vllm else ()
        self.dispatch = Dispatch(
            self, form.turn_tokens, seed, batch=table.generate_batch, servers=servers
        )
        # With overlap: the thread that rolls out the next batch, and its result.
        self._aside = ThreadPoolExecutor(1) if table.vllm and table.vllm.overlaps else None
        self._pending: Future[Played] | None = None

    def _roll(self, *_: Any) -> dict[str, Any]:
        step = int(self.state.global_step) + 1
        if self._aside is None:
            questions = self.roller.questions_for_step(step)
            self.batch = self.roller.roll(questions, step, self.dispatch)
        else:
            played = (self._pending or self._start_rollout(self._aside, step)).result()
            # Off-policy by one batch: r corrects for the weight updates in between.
            after = step + self.table.minibatches  # first step of the next batch
            self._pending = (
                self._start_rollout(self._aside, after) if after <= self.table.steps else None
            )
            self.batch = self.roller.collected(played)
        self.generated += self.batch.sampled
        columns = self.batch.for_trl(self.roller.tokens.end_id)
        self._sampled, self._ratios = columns["logprobs"], torch.zeros(2)
        return columns

    def _start_rollout(self, aside: ThreadPoolExecutor, step: int) -> "Future[Played]":
        questions = self.roller.questions_for_step(step)
        with self.dispatch.awake():
            return aside.submit(self.roller.played, questions, step, self.dispatch)

    def _generate(self, prompts: list[Any]) -> Any:
        # TRL will now send new weights, so wait for the batch that the old ones roll out.
        wait([self._pending] if self._pending else [])
        usual: Any = super()._generate
        return usual(prompts)

    @contextmanager
    def awake(self) -> Iterator[None]:
        """Wait for the batch that old weights roll out; keep vLLM awake with the newest weights."""
        wait([self._pending] if self._pending else [])
        with self.dispatch.awake():
            yield

    def step_of(self, step: int, logs: Mapping[str, float]) -> Step:
        assert self.batch is not None
        names = ("loss", "learning_rate", "grad_norm", "entropy")
        logged: dict[str, Any] = {name: logs.get(name) for name in names}
        if (step - 1) % self.table.minibatches == 0:  # the batch's first step
            # No tokens if all groups were masked.
            sums = self.roller.training.processes.gather([self._ratios.tolist()])
            ratios, tokens = map(sum, zip(*sums, strict=True))
            self.batch.figures["ratio_mean"] = ratios / tokens if tokens else None
        seconds = self.roller.training.seconds
        return Step(step, seconds, self.generated, **logged, **self.batch.figures)

    def why_pause(self) -> PausedError | None:
        if self.roller.judges.exhausted():
            limit = "the judges' fees have reached their limit; resume with a higher --max-cost"
            return PausedError(limit, passes=False)
        return None if self.batch is None else self.batch.outage

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: Any, attention_mask: Any, *args: Any, **options: Any
    ) -> Any:
        usual = super()._get_per_token_logps_and_entropies
        # Returns log-probabilities (rows, completion columns). With gradients: numerators of r.
        if torch.is_grad_enabled():  # a packed batch
            if self._joins:
                with self.accelerator.autocast():
                    scored = scored_as_one(model, input_ids, attention_mask, self._own)
                scores = *scored, None
            else:
                scores = usual(model, input_ids, attention_mask, *args, **options)
            self._scores = scores[0].detach()
            return scores
        # Without gradients: denominators of r. vLLM returns nan for tokens that it did not score.
        if self._sampled is not None:
            rows = pad_sequence(list(map(torch.tensor, self._sampled)), batch_first=True)
            return rows.nan_to_num().to(input_ids.device), None, None
        count, size = args[0], options.pop("batch_size", None) or len(input_ids)
        score = partial(usual, model, **options)
        return scored_packed(score, input_ids, attention_mask, count, size)

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        usual: Any = super()._compute_loss
        # 1 for tokens that the model sampled, 0 for tool results and padding.
        self._own = mask = inputs["completion_mask"] * inputs["tool_mask"]
        loss = usual(model, inputs)
        steps, place = self.args.gradient_accumulation_steps, self._step  # both count passes
        # Before the batch's first step the weights are still those that sampled it (without
        # `overlap`), so r differs from 1 only because engine and trainer round differently.
        old = inputs.get("old_per_token_logps") if self._sampled else None
        if old is not None and place % self.args.steps_per_generation < steps:
            ratios = (self._scores - old).exp()  # p_trainer / p_vllm: (rows, columns)
            self._ratios += torch.stack([(ratios * mask).sum(), mask.sum()]).cpu()
        return loss

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        before, inputs = self._buffered_inputs, super()._prepare_inputs(generation_batch)
        if self._buffered_inputs is before:
            return inputs  # TRL buffers a batch's passes; they are packed when they are new
        self._buffered_inputs = packed(
            self._buffered_inputs, minibatches=self.table.minibatches, even=self._joins
        )
        return self._buffered_inputs[self._step % self.args.steps_per_generation]


def _vllm(table: Vllm | None, context: int) -> dict[str, Any]:
    if table is None:
        return {}
    return {
        "use_vllm": True, "vllm_mode": table.mode, "vllm_gpu_memory_utilization": table.memory,
        "vllm_enable_sleep_mode": best_device()[0] != "cpu",  # vLLM on a CPU can't sleep
        "vllm_server_base_url": next(iter(table.servers), None),
        "vllm_server_timeout": SERVER_TIMEOUT_S, "vllm_max_model_length": context,
    }  # fmt: skip
