"""Who generates a turn: transformers on a model at hand, or TRL's own dispatch.

Both take prompts as tokens and give a `Turn` for each. What is private to TRL (pinned to 1.16)
is used here alone, and held by contract tests: `Dispatch` calls `_generate_single_turn`, which
generates by transformers or by vLLM, as the trainer is set up, and moves new weights to vLLM
once a step. Knows nothing of episodes.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from training.rollout import Turn

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel
    from trl.trainer.grpo_trainer import GRPOTrainer


@dataclass(frozen=True, slots=True)
class Sampler:
    """Samples from `model` at `temperature` (0: greedily), `batch` prompts at a time.

    A turn ends with `end_id`, or after `turn_tokens`. The same `seed` gives the same turns,
    and the random numbers of others stay as they are.
    """

    model: "PreTrainedModel"
    end_id: int
    pad_id: int
    turn_tokens: int
    temperature: float
    seed: int
    batch: int = 128

    def __call__(self, prompts: list[list[int]]) -> list[Turn]:
        """A turn for each prompt, in their order."""
        import torch

        # Prompts of like length together, so that little is spent on padding.
        order = sorted(range(len(prompts)), key=lambda place: len(prompts[place]))
        turns: dict[int, Turn] = {}
        training = self.model.training
        self.model.train(False)
        try:
            with torch.random.fork_rng(), torch.inference_mode():
                torch.manual_seed(self.seed + sum(map(len, prompts)))
                for start in range(0, len(order), self.batch):
                    places = order[start : start + self.batch]
                    ids = self._generate([prompts[place] for place in places])
                    turns |= {
                        place: Turn(each, None) for place, each in zip(places, ids, strict=True)
                    }
        finally:
            self.model.train(training)
        return [turns[place] for place in range(len(prompts))]

    def _generate(self, prompts: list[list[int]]) -> list[list[int]]:
        import torch

        longest = max(map(len, prompts))
        device = self.model.device
        ids = torch.tensor(
            [[self.pad_id] * (longest - len(each)) + each for each in prompts], device=device
        )
        seen = torch.tensor(
            [[0] * (longest - len(each)) + [1] * len(each) for each in prompts], device=device
        )
        how: dict[str, Any] = {"do_sample": False}
        if self.temperature > 0:
            how = {"do_sample": True, "temperature": self.temperature, "top_k": 0, "top_p": 1.0}
        model: Any = self.model
        generated = model.generate(
            input_ids=ids,
            attention_mask=seen,
            max_new_tokens=self.turn_tokens,
            eos_token_id=self.end_id,
            pad_token_id=self.pad_id,
            **how,
        )
        return [_ended(each, self.end_id) for each in generated[:, longest:].tolist()]


@contextlib.contextmanager
def own_tokens_scored() -> Iterator[None]:
    """TRL's trainers score the tokens that carry loss alone, on a CPU too.

    Elsewhere than on a GPU they score every position, for devices that compile anew for each
    shape; a CPU does not, and most tokens of an episode are mail. The figures are the same.
    """
    from trl.trainer import utils

    module: Any = utils
    usual = module._use_triton
    module._use_triton = lambda device: device.type == "cpu" or usual(device)
    try:
        yield
    finally:
        module._use_triton = usual


def packed(batches: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows of `batches`, as TRL buffers them for a step, in as many batches: rows of like
    length together, and no column that is padding in all rows of its batch.

    TRL pads all to the longest of the step, which an episode that went astray decides. Gradients
    of a step are sums over its batches, so that the order of rows changes nothing.
    """
    import torch

    whole: dict[str, Tensor] = {
        name: torch.cat([batch[name] for batch in batches])
        for name, value in batches[0].items()
        if isinstance(value, torch.Tensor) and value.ndim
    }
    lengths = whole["prompt_mask"].sum(1) + whole["completion_mask"].sum(1)
    parts = lengths.argsort(stable=True).chunk(len(batches))
    return [
        {**batch, **_trimmed({name: value[rows] for name, value in whole.items()})}
        for batch, rows in zip(batches, parts, strict=True)
    ]


def _trimmed(batch: "Mapping[str, Tensor]") -> "dict[str, Tensor]":
    """The batch without the columns that are padding in all its rows."""
    prompts, completions = batch["prompt_mask"].size(1), batch["completion_mask"].size(1)
    # Prompts are padded on their left, completions on their right.
    first = prompts - int(batch["prompt_mask"].sum(1).max())
    last = int(batch["completion_mask"].sum(1).max())
    trimmed = {}
    for name, value in batch.items():
        if name.startswith("prompt"):
            trimmed[name] = value[:, first:]
        else:
            by_token = value.ndim == 2 and value.size(1) == completions
            trimmed[name] = value[:, :last] if by_token else value
    return trimmed


class Dispatch:
    """Generates through `trainer`, with its sampling settings, `turn_tokens` a turn at most."""

    def __init__(self, trainer: "GRPOTrainer", turn_tokens: int) -> None:
        self._trainer: Any = trainer
        # TRL gives each generation the whole episode's budget.
        if self._trainer.use_vllm:
            self._trainer.vllm_generation.max_completion_length = turn_tokens
        else:
            self._trainer.generation_config.max_new_tokens = turn_tokens

    def __call__(self, prompts: list[list[int]]) -> list[Turn]:
        """A turn for each prompt, in their order."""
        model = self._trainer.model
        training = model.training
        model.train(False)
        try:
            ids, logprobs = self._trainer._generate_single_turn(prompts, None, {}, 1)
        finally:
            model.train(training)
        told = logprobs or [None] * len(ids)
        return [Turn(list(each), said) for each, said in zip(ids, told, strict=True)]


def _ended(ids: list[int], end_id: int) -> list[int]:
    """The turn with its end mark, without what pads the batch behind it."""
    return ids[: ids.index(end_id) + 1] if end_id in ids else ids
