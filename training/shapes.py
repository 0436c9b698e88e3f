"""GPUs, and the shapes of models: how many weights, bytes and operations they have.

Shapes of Qwen2.5 are known here; others come from a checkpoint's folder or the hub.
"""

import re
from pathlib import Path
from typing import Literal, NamedTuple

from art_e.errors import UserError
from art_e.models.checkpoint import base_of, meant_checkpoint, require_train_extra, split_adapter
from training.recipe import ModelTable

# NF4 of bitsandbytes with double quantisation: half a byte a weight, for each 64 weights a scale of
# one byte, and for each 256 scales one of four bytes.
_NF4_BYTES = 0.5 + 1 / 64 + 4 / (64 * 256)


class Gpu(NamedTuple):
    """A GPU: GiB of memory, 10^12 operations a second of dense bfloat16 matrices, 10^9 bytes a
    second of bandwidth, and the rent."""

    name: str
    gib: float
    tflops: float
    gb_per_second: float
    usd_per_hour: float

    @property
    def memory(self) -> int:
        """Bytes of memory."""
        return round(self.gib * 2**30)


# Memory as CUDA reports it, speed from the maker's data sheet, and a typical on-demand price of
# 2026 at providers that rent GPUs (large clouds ask more).
GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("h100-80gb", 79.19, 989, 3350, 3.00),
        Gpu("h200-141gb", 139.8, 989, 4800, 3.80),
        Gpu("a100-80gb", 79.15, 312, 2039, 1.40),
        Gpu("a100-40gb", 39.5, 312, 1555, 1.10),
        Gpu("l40s-48gb", 44.4, 362, 864, 0.90),
        Gpu("rtx4090-24gb", 23.6, 165, 1008, 0.40),
        Gpu("a10g-24gb", 22.06, 70, 600, 1.00),
        Gpu("l4-24gb", 22.03, 121, 300, 0.70),
    )
}
DEFAULT_GPU = "h100-80gb"


def gpu_of(name: str) -> Gpu:
    """The GPU of that name. Raises `UserError`, with the list, for an unknown name."""
    if name not in GPUS:
        raise UserError(f"no GPU {name!r} is known; there are {', '.join(GPUS)}")
    return GPUS[name]


class Shape(NamedTuple):
    """A Qwen2: `hidden` is the width, `heads` are those of queries, `kv_heads` those of keys and
    values. With `tied` the embeddings are the output weights as well."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    vocabulary: int
    tied: bool

    @property
    def kv_width(self) -> int:
        """The width of a token's keys in one layer, and of its values."""
        return self.hidden // self.heads * self.kv_heads

    @property
    def linear(self) -> int:
        """Weights of all linear layers: q and o, k and v, gate, up and down."""
        attention = 2 * self.hidden * (self.hidden + self.kv_width)
        return self.layers * (attention + 3 * self.hidden * self.intermediate)

    @property
    def parameters(self) -> int:
        """All weights: matrices, embeddings, biases of q, k and v, and norms."""
        embeddings = (1 if self.tied else 2) * self.vocabulary * self.hidden
        small = self.layers * (3 * self.hidden + 2 * self.kv_width) + self.hidden
        return self.linear + embeddings + small

    @property
    def kv_bytes(self) -> int:
        """Bytes of a token's keys and values in all layers, in bfloat16."""
        return self.layers * 2 * self.kv_width * 2

    def weight_bytes(self, bits: Literal[4, 16, 32]) -> int:
        """All weights in float32 or bfloat16; with 4 bits the linear layers are in NF4, and the
        rest in bfloat16."""
        if bits == 4:
            return round(self.linear * _NF4_BYTES) + 2 * (self.parameters - self.linear)
        return self.parameters * bits // 8

    def lora_parameters(self, rank: int) -> int:
        """Weights of an adapter on all linear layers (peft's "all-linear", without the output)."""
        attention = 6 * self.hidden + 2 * self.kv_width
        return self.layers * rank * (attention + 3 * (self.hidden + self.intermediate))

    def forward_flops(self, tokens: float, length: float) -> float:
        """Operations of a forward pass over `tokens` tokens of episodes of `length` each: two a
        weight, and attention to half of the episode on average."""
        multiplied = self.linear + self.vocabulary * self.hidden
        return tokens * (2 * multiplied + 2 * self.layers * self.hidden * length)


# Tokens that `training.start` adds to those that a new tokenizer learns, for mail of two years.
PHRASES = 627
# From the models' config.json; the instruct version has the same shape.
PUBLISHED = {
    "0.5B": Shape(24, 896, 4_864, 14, 2, 151_936, tied=True),
    "1.5B": Shape(28, 1_536, 8_960, 12, 2, 151_936, tied=True),
    "3B": Shape(36, 2_048, 11_008, 16, 2, 151_936, tied=True),
    "7B": Shape(28, 3_584, 18_944, 28, 4, 152_064, tied=False),
    "14B": Shape(48, 5_120, 13_824, 40, 8, 152_064, tied=False),
    "32B": Shape(64, 5_120, 27_648, 40, 8, 152_064, tied=False),
}


def shape_of(model: ModelTable) -> Shape:
    """The shape of a recipe's model. Raises `UserError` if it can't be found."""
    form = model.scratch
    if form is None:
        assert model.base is not None
        return named_shape(model.base)
    inner, vocabulary = 3 * form.hidden, form.vocabulary + PHRASES
    return Shape(form.layers, form.hidden, inner, form.heads, form.heads, vocabulary, tied=True)


def named_shape(name: str) -> Shape:
    """The shape of a checkpoint: a folder, a training run's folder, or a hub id.

    The hub is asked only for ids that are not in `PUBLISHED`. Raises `UserError` if there is no
    checkpoint, or it is not a Qwen2.
    """
    name, _ = split_adapter(name)
    published = re.fullmatch(r"Qwen/Qwen2\.5-(\d+(?:\.\d+)?B)(?:-Instruct)?", name)
    if (folder := Path(name).expanduser()).is_dir():
        folder = meant_checkpoint(folder)
        if (base := base_of(folder)) is not None:
            return named_shape(base)
        name = str(folder)
    elif published is not None and published[1] in PUBLISHED:
        return PUBLISHED[published[1]]
    require_train_extra()
    from transformers import AutoConfig, Qwen2Config

    try:
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)
    except (OSError, ValueError, KeyError):
        sizes = ", ".join(f"Qwen/Qwen2.5-{size}" for size in PUBLISHED)
        raise UserError(
            f"can't find the shape of {name}: it is no checkpoint here or on the hub; name a"
            f" checkpoint's folder, or one of {sizes}"
        ) from None
    if not isinstance(config, Qwen2Config):
        raise UserError(f"{name} is a {config.model_type} model; plans are for qwen2 only")
    return Shape(
        config.num_hidden_layers,
        config.hidden_size,
        config.intermediate_size,
        config.num_attention_heads,
        config.num_key_value_heads or config.num_attention_heads,
        config.vocab_size,
        tied=bool(config.tie_word_embeddings),
    )


def count_of(number: int) -> str:
    """A large number in words: 14.77 billion, 68.8 million."""
    return f"{number / 1e9:.2f} billion" if number >= 1e9 else f"{number / 1e6:.1f} million"
