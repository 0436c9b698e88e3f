"""The optimizer of small models, and the packing that saves TRL's trainers padding.

With `MuonAdamW` a small new model learns to copy names and numbers in fewer steps."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Muon, Optimizer
from torch.overrides import TorchFunctionMode
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from trl.trainer import utils

BETAS = (0.9, 0.98)  # 0.98: squares over about 50 steps; gradients of small batches change fast
FLAT = 1e-6  # smaller differences of rewards and advantages are rounding

# ---- Packing: less padding, the same gradients.

# The loss is a sum over own tokens, L = sum_i A_i f(token i), so neither the order of rows nor
# padding columns change its gradient, and a row with A = 0 adds nothing to it.


@contextlib.contextmanager
def own_tokens_scored() -> Iterator[None]:
    """Make TRL compute logits of labelled tokens only, and attention stay within an episode."""
    module: Any = utils
    usual = module._use_triton
    module._use_triton = lambda device: device.type == "cpu" or usual(device)
    AttentionInterface.register("sdpa", attention_by_episode)
    try:
        yield
    finally:
        module._use_triton = usual
        AttentionInterface.register("sdpa", sdpa_attention_forward)


def packed(
    batches: Sequence[Mapping[str, Any]], *, minibatches: int = 1, even: bool = False
) -> list[dict[str, Any]]:
    """Distribute the rows of TRL's `batches` over as many batches, without columns of only padding.
    Within each of the `minibatches`, sort rows by length, or (`even`) deal them out so that batches
    have similar numbers of tokens. Cut rows with A = 0 to one completion token."""
    whole: dict[str, Tensor] = {  # (rows of all batches, columns), advantages: (rows,)
        name: torch.cat([batch[name] for batch in batches])
        for name, value in batches[0].items()
        if isinstance(value, Tensor) and value.ndim
    }
    # Rows with A = 0 have no gradient, so their length is cut to the one token that TRL needs.
    whole["completion_mask"][whole["advantages"].abs() < FLAT, 1:] = 0
    lengths = whole["prompt_mask"].sum(1) + whole["completion_mask"].sum(1)
    parts: list[Tensor] = []
    number = len(batches) // minibatches
    for rows in torch.arange(len(lengths), device=lengths.device).chunk(minibatches):
        # Deal out the sorted rows, for similar sums of tokens; or cut them, for similar lengths.
        order = rows[lengths[rows].argsort(stable=True)]
        parts += [order[at::number] for at in range(number)] if even else order.chunk(number)
    return [
        {**batch, **_trimmed({name: value[rows] for name, value in whole.items()})}
        for batch, rows in zip(batches, parts, strict=True)
    ]


def scored_packed(
    score: Callable[..., tuple[Tensor, Tensor | None, Any]], ids: Tensor, mask: Tensor, count: int,
    size: int,
) -> tuple[Tensor, Tensor | None, Any]:  # fmt: skip
    """Return TRL's `score(ids, mask, count)` of the last `count` columns, in passes of `size` rows
    that are sorted by length, without columns of padding."""
    before = ids.size(1) - count  # columns of the prompts
    whole: list[Any] = [None, None]  # log-probabilities and entropies: (rows, count)
    order = mask.sum(1).argsort(stable=True)
    for start in range(0, len(order), size):
        rows = order[start : start + size]
        # Prompts end and completions begin at column `before`; padding is at both ends of a row.
        first = before - int(mask[rows, :before].sum(1).max())
        last = max(1, int(mask[rows, before:].sum(1).max()))
        columns = slice(first, before + last)
        for place, values in enumerate(score(ids[rows, columns], mask[rows, columns], last)[:2]):
            if values is not None:
                if whole[place] is None:
                    whole[place] = values.new_zeros(len(ids), count)
                whole[place][rows, :last] = values
    return whole[0], whole[1], None


def attention_by_episode(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None,
    *, episodes: Sequence[int] | None = None, **options: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """Return transformers' sdpa attention. If a row joins `episodes` of the lengths n_i, each
    attends only to itself, by a causal kernel: sum n_i^2 work instead of a mask's (sum n_i)^2."""
    attend: Any = sdpa_attention_forward
    if episodes is None:
        return attend(module, query, key, value, mask, **options)  # type: ignore[no-any-return]
    # q, k, v are (1, heads, sum n_i, width), the outputs (1, n_i, heads, width).
    parts = zip(*(torch.split(each, [*episodes], 2) for each in (query, key, value)), strict=True)
    return torch.cat([attend(module, *part, None, **options)[0] for part in parts], 1), None


def scored_as_one(model: Any, ids: Tensor, mask: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """Return log-probabilities and entropies of the `counted` tokens in the last columns of all
    rows (0 elsewhere), from one pass over all rows joined into one, without padding."""
    there, count = mask.bool(), counted.size(1)  # (rows, columns); completion columns
    labels = ids.new_full(ids.shape, -100)  # -100: not scored
    labels[:, -count:][counted.bool()] = ids[:, -count:][counted.bool()]
    # Logits at place t predict token t + 1, so labels move left; an episode's last place has none.
    labels = torch.cat([labels[:, 1:], ids.new_full((len(ids), 1), -100)], 1)
    # (rows, columns)[there][None] is (1, sum n_i), in which each episode's positions start at 0.
    scores = model(
        input_ids=ids[there][None], position_ids=(mask.cumsum(1) - 1)[there][None],
        # transformers leaves a mask of four dimensions alone.
        attention_mask=mask.new_ones(1, 1, 1, 1).bool(), episodes=mask.sum(1).tolist(),
        shift_labels=labels[there][None], fused_lm_head=True,
    )  # fmt: skip

    def unpack(values: Tensor) -> Tensor:
        # Back to (rows, columns); the scores of the last `count` columns are one place before them.
        return values.new_zeros(ids.shape).masked_scatter(there, values)[:, -count - 1 : -1]

    return unpack(scores.log_probs), unpack(scores.entropy)


def _trimmed(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    prompts, completions = batch["prompt_mask"].size(1), batch["completion_mask"].size(1)
    # Prompts are padded on their left, completions on their right.
    first = prompts - int(batch["prompt_mask"].sum(1).max())
    # Leave one column if all completions are masked.
    last = max(1, int(batch["completion_mask"].sum(1).max()))

    def trimmed(name: str, value: Tensor) -> Tensor:
        if name.startswith("prompt"):
            return value[:, first:]
        return value[:, :last] if value.ndim == 2 and value.size(1) == completions else value

    return {name: trimmed(name, value) for name, value in batch.items()}


class WithoutBfloat16(TorchFunctionMode):
    """Keeps tensors in float32 that code would convert to bfloat16, which many CPUs only emulate:
    Muon's matrix products would take 20 times as long."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0].clone() if func is Tensor.bfloat16 else func(*args, **(kwargs or {}))


class MuonAdamW(Optimizer):
    """Muon (Jordan et al., 2024) for `matrices`, AdamW for `others`, both without weight decay.
    Muon's update is the momentum, orthogonalized to U V^T, times 0.2 sqrt(max(rows, columns)), so
    that its RMS is AdamW's (Liu et al., 2025). AdamW's rate is 1, Muon's is `ratio`; a scheduler
    multiplies both `param_groups`, AdamW's first."""

    def __init__(
        self, matrices: list[nn.Parameter], others: list[nn.Parameter], ratio: float
    ) -> None:
        # "match_rms_adamw" is the factor 0.2 sqrt(max(rows, columns)).
        self._muon: Any = Muon(matrices, lr=ratio, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
        self._adamw = AdamW(others, lr=1.0, weight_decay=0.0, betas=BETAS)
        super().__init__([*self._adamw.param_groups, *self._muon.param_groups], {})
        self._share()

    def step(self, closure: Any = None) -> Any:
        with WithoutBfloat16():
            self._muon.step()
        self._adamw.step()

    def state_dict(self) -> dict[str, Any]:
        return {"muon": self._muon.state_dict(), "adamw": self._adamw.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._muon.load_state_dict(state_dict["muon"])
        self._adamw.load_state_dict(state_dict["adamw"])
        self._share()

    def _share(self) -> None:
        self.param_groups = [*self._adamw.param_groups, *self._muon.param_groups]


def optimizer_of(model: nn.Module, *, ratio: float) -> Optimizer:
    """Return an optimizer with rate 1, for a scheduler to multiply: `MuonAdamW` if `ratio` is above
    0, with Muon for all matrices but embeddings, else AdamW."""
    weights = [each for each in model.parameters() if each.requires_grad]
    tables = {id(each.weight) for each in model.modules() if isinstance(each, nn.Embedding)}
    matrices = [each for each in weights if each.ndim == 2 and id(each) not in tables]
    if not ratio or not matrices:
        return AdamW(weights, lr=1.0, weight_decay=0.0, betas=BETAS)
    chosen = set(map(id, matrices))
    return MuonAdamW(matrices, [each for each in weights if id(each) not in chosen], ratio)
