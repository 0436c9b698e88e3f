"""The optimizer of small models, and two savings in what TRL's trainers compute.

With `MuonAdamW` a small new model learns to copy names and numbers sooner."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Muon, Optimizer
from trl.trainer import utils

# Gradients of small batches change fast.
BETAS = (0.9, 0.98)
# Rewards and advantages that differ by less are equal but for rounding.
FLAT = 1e-6

# ---- Fewer positions and less padding, for the same figures.


@contextlib.contextmanager
def own_tokens_scored() -> Iterator[None]:
    """Have TRL compute logits of tokens with loss only, also on a CPU: most tokens are mail."""
    module: Any = utils
    usual = module._use_triton
    module._use_triton = lambda device: device.type == "cpu" or usual(device)
    try:
        yield
    finally:
        module._use_triton = usual


def packed(batches: Sequence[Mapping[str, Any]], *, minibatches: int = 1) -> list[dict[str, Any]]:
    """Return the rows of TRL's `batches`, within each of the `minibatches` sorted by length into as
    many batches, without columns that are all padding: gradients are sums, so that the order of
    rows changes nothing. A row without an advantage has no gradient: it keeps one token."""
    whole: dict[str, Tensor] = {
        name: torch.cat([batch[name] for batch in batches])
        for name, value in batches[0].items()
        if isinstance(value, Tensor) and value.ndim
    }
    whole["completion_mask"][whole["advantages"].abs() < FLAT, 1:] = 0
    lengths = whole["prompt_mask"].sum(1) + whole["completion_mask"].sum(1)
    parts = [
        part
        for rows in torch.arange(len(lengths), device=lengths.device).chunk(minibatches)
        for part in rows[lengths[rows].argsort(stable=True)].chunk(len(batches) // minibatches)
    ]
    return [
        {**batch, **_trimmed({name: value[rows] for name, value in whole.items()})}
        for batch, rows in zip(batches, parts, strict=True)
    ]


def scored_packed(
    score: Callable[..., tuple[Tensor, Tensor | None, Any]], ids: Tensor, mask: Tensor, kept: int,
    size: int,
) -> tuple[Tensor, Tensor | None, Any]:  # fmt: skip
    """Return what TRL's `score(ids, mask, kept)` gives of the last `kept` columns of all rows, from
    passes of `size` rows, sorted by length and without columns that are all padding."""
    before = ids.size(1) - kept
    whole: list[Any] = [None, None]
    order = mask.sum(1).argsort(stable=True)
    for start in range(0, len(order), size):
        rows = order[start : start + size]
        first = before - int(mask[rows, :before].sum(1).max())
        last = max(1, int(mask[rows, before:].sum(1).max()))
        columns = slice(first, before + last)
        for place, values in enumerate(score(ids[rows, columns], mask[rows, columns], last)[:2]):
            if values is not None:
                if whole[place] is None:
                    whole[place] = values.new_zeros(len(ids), kept)
                whole[place][rows, :last] = values
    return whole[0], whole[1], None


def _trimmed(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    prompts, completions = batch["prompt_mask"].size(1), batch["completion_mask"].size(1)
    # Prompts are padded on their left, completions on their right.
    first = prompts - int(batch["prompt_mask"].sum(1).max())
    # Where all were cut off and are masked, one is left.
    last = max(1, int(batch["completion_mask"].sum(1).max()))

    def trimmed(name: str, value: Tensor) -> Tensor:
        if name.startswith("prompt"):
            return value[:, first:]
        return value[:, :last] if value.ndim == 2 and value.size(1) == completions else value

    return {name: trimmed(name, value) for name, value in batch.items()}


class MuonAdamW(Optimizer):
    """Muon (Jordan et al., 2024) for `matrices`, AdamW for `others`, both without decay. AdamW
    learns at the rate 1, Muon at `ratio`; its updates are scaled to the size of AdamW's (Liu et
    al., 2025). A scheduler multiplies the rates of both `param_groups`, AdamW's first."""

    def __init__(
        self, matrices: list[nn.Parameter], others: list[nn.Parameter], ratio: float
    ) -> None:
        scaled = "match_rms_adamw"
        self._muon: Any = Muon(matrices, lr=ratio, weight_decay=0.0, adjust_lr_fn=scaled)
        self._adamw = AdamW(others, lr=1.0, weight_decay=0.0, betas=BETAS)
        super().__init__([*self._adamw.param_groups, *self._muon.param_groups], {})
        self._share()

    def step(self, closure: Any = None) -> Any:
        self._muon.step()
        self._adamw.step()

    def state_dict(self) -> dict[str, Any]:
        return {"muon": self._muon.state_dict(), "adamw": self._adamw.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._muon.load_state_dict(state_dict["muon"])
        self._adamw.load_state_dict(state_dict["adamw"])
        self._share()

    def _share(self) -> None:
        """Use the very groups of both: a rate that changes here changes there."""
        self.param_groups = [*self._adamw.param_groups, *self._muon.param_groups]


def optimizer_of(model: nn.Module, *, ratio: float) -> Optimizer:
    """Return an optimizer at the rate 1, which a scheduler multiplies: `MuonAdamW` if `ratio` is
    above 0, with Muon for all matrices but embeddings, else AdamW."""
    weights = [each for each in model.parameters() if each.requires_grad]
    tables = {id(each.weight) for each in model.modules() if isinstance(each, nn.Embedding)}
    matrices = [each for each in weights if each.ndim == 2 and id(each) not in tables]
    if not ratio or not matrices:
        return AdamW(weights, lr=1.0, weight_decay=0.0, betas=BETAS)
    chosen = set(map(id, matrices))
    others = [each for each in weights if id(each) not in chosen]
    return MuonAdamW(matrices, others, ratio)
