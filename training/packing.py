"""What a trainer of TRL computes on: fewer positions, and less padding, for the same figures.

Uses what is private to TRL (pinned to 1.16), and is held by contract tests. Knows nothing of
generation.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


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
