"""The shape of a model, and what follows from it: parameters, bytes, keys and values, adapters.

Of Qwen2 alone, the family of all recipes: biases on queries, keys and values, none elsewhere, and
an MLP of three matrices. The published Qwen2.5 shapes are known here, so that planning a recipe
takes neither torch nor a network. Knows nothing of GPUs and of training.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from art_e.errors import UserError
from art_e.models.checkpoint import (
    CONFIG,
    base_of,
    json_object,
    meant_checkpoint,
    require_train_extra,
    split_adapter,
)
from training.recipe import ModelTable, Scratch
from training.start import END, END_OF_TEXT, MARKS, START, phrases

Bits = Literal[4, 16, 32]

# NF4 of bitsandbytes with double quantisation: half a byte a weight, of each 64 weights a scale of
# one byte, and of each 256 scales one of four bytes.
_NF4_BLOCK, _NF4_SCALES = 64, 256
_NF4_BYTES = 0.5 + 1 / _NF4_BLOCK + 4 / (_NF4_BLOCK * _NF4_SCALES)

_FAMILY = "qwen2"
# What scratch.phrases is made for besides the words of the prompt; a world's mails span so many
# years at most, and each is some tokens more.
_YEARS = (2_000, 2_001)


@dataclass(frozen=True, slots=True)
class Shape:
    """A Qwen2: `hidden` is the width, `heads` those of queries, `kv_heads` those of keys and
    values; with `tied` the embeddings are the output weights as well."""

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
    def matrices(self) -> tuple[tuple[int, int], ...]:
        """The linear layers of a layer, each (in, out): q, k, v, o, gate, up, down."""
        wide, inner, narrow = self.hidden, self.intermediate, self.kv_width
        attention = ((wide, wide), (wide, narrow), (wide, narrow), (wide, wide))
        return (*attention, (wide, inner), (wide, inner), (inner, wide))

    @property
    def linear(self) -> int:
        """Weights of all linear layers, without their biases and without the output weights."""
        return self.layers * sum(each_in * each_out for each_in, each_out in self.matrices)

    @property
    def embeddings(self) -> int:
        """Weights of the embeddings, and of the output where it has its own."""
        return (1 if self.tied else 2) * self.vocabulary * self.hidden

    @property
    def small(self) -> int:
        """Biases of q, k and v, and norms."""
        return self.layers * (3 * self.hidden + 2 * self.kv_width) + self.hidden

    @property
    def parameters(self) -> int:
        """All weights."""
        return self.linear + self.embeddings + self.small

    @property
    def multiplied(self) -> int:
        """Weights that each token is multiplied with: all matrices, the output's among them."""
        return self.linear + self.vocabulary * self.hidden

    def weight_bytes(self, bits: Bits) -> int:
        """All weights in float32 or bfloat16; or the linear layers in NF4, and in bfloat16 what
        bitsandbytes leaves alone: embeddings, output, biases, norms."""
        if bits == 4:
            return round(self.linear * _NF4_BYTES) + 2 * (self.embeddings + self.small)
        return self.parameters * bits // 8

    @property
    def kv_bytes(self) -> int:
        """Bytes of a token's keys and values in all layers, in bfloat16."""
        return self.layers * 2 * self.kv_width * 2

    def lora_parameters(self, rank: int) -> int:
        """Weights of an adapter of that rank on all linear layers, as peft's "all-linear" has
        them: not on the output."""
        return self.layers * rank * sum(map(sum, self.matrices))


# Of the models' config.json; a model's instruct version has the same shape.
PUBLISHED = {
    "0.5B": Shape(24, 896, 4_864, 14, 2, 151_936, tied=True),
    "1.5B": Shape(28, 1_536, 8_960, 12, 2, 151_936, tied=True),
    "3B": Shape(36, 2_048, 11_008, 16, 2, 151_936, tied=True),
    "7B": Shape(28, 3_584, 18_944, 28, 4, 152_064, tied=False),
    "14B": Shape(48, 5_120, 13_824, 40, 8, 152_064, tied=False),
    "32B": Shape(64, 5_120, 27_648, 40, 8, 152_064, tied=False),
}
_PUBLISHED_ID = re.compile(r"Qwen/Qwen2\.5-(\d+(?:\.\d+)?B)(?:-Instruct)?")


def shape_of(table: ModelTable, prompt: str | None = None) -> Shape:
    """The shape of a recipe's model; `prompt` is its system prompt.

    Raises `UserError` for a model whose shape can't be had, or that is no Qwen2.
    """
    if table.scratch is not None:
        return _scratch_shape(table.scratch, prompt)
    assert table.base is not None
    return named_shape(table.base)


def named_shape(name: str) -> Shape:
    """The shape of a checkpoint: a folder, a training run's, or an id of the hub.

    The hub is asked only for ids that are not among the published ones. Raises `UserError`.
    """
    base, _ = split_adapter(name)
    folder = Path(base).expanduser()
    if folder.is_dir():
        folder = meant_checkpoint(folder)
        own_base = base_of(folder)
        return _folder_shape(folder) if own_base is None else named_shape(own_base)
    published = _PUBLISHED_ID.fullmatch(base)
    if published is not None and published[1] in PUBLISHED:
        return PUBLISHED[published[1]]
    return _hub_shape(base)


def _scratch_shape(form: Scratch, prompt: str | None) -> Shape:
    """As `training.start` makes it, with as many tokens as its tokenizer may have at most."""
    own = {END, END_OF_TEXT, START, *MARKS, *phrases(prompt or "", _YEARS)}
    vocabulary = form.vocabulary + len(own)
    inner = 3 * form.hidden
    return Shape(form.layers, form.hidden, inner, form.heads, form.heads, vocabulary, tied=True)


def _folder_shape(folder: Path) -> Shape:
    return _from_config(json_object(folder / CONFIG), str(folder))


def _hub_shape(name: str) -> Shape:

    require_train_extra()
    from transformers import AutoConfig

    known = ", ".join(f"Qwen/Qwen2.5-{size}" for size in PUBLISHED)
    try:
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)
    except (OSError, ValueError, KeyError):
        raise UserError(
            f"the shape of {name} can't be had: there is no such folder, and the hub does not"
            f" tell; name a checkpoint's folder, or one of {known}"
        ) from None
    return _from_config(config.to_dict(), name)


def _from_config(config: dict[str, Any], name: str) -> Shape:
    family = config.get("model_type")
    if family != _FAMILY:
        raise UserError(f"{name} is a model of the type {family}; plans are for {_FAMILY} alone")
    try:
        return Shape(
            layers=int(config["num_hidden_layers"]),
            hidden=int(config["hidden_size"]),
            intermediate=int(config["intermediate_size"]),
            heads=int(config["num_attention_heads"]),
            kv_heads=int(config["num_key_value_heads"]),
            vocabulary=int(config["vocab_size"]),
            tied=bool(config.get("tie_word_embeddings", False)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"the {CONFIG} of {name} can't be read: {error}; save it again") from None
