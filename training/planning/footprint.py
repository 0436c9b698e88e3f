"""What a GPU holds while rollouts are generated, and while weights are trained, line by line.

Weights, adapters, gradients, optimizer states, keys and values are counted. What autograd keeps
was measured: live storages of a forward and backward pass through transformers' Qwen2 with peft's
adapters, on fake tensors, over 36 shapes (torch 2.13, transformers 5.23, peft 0.21; a test repeats
it). What CUDA, allocators and vLLM take besides is assumed, and says so. Knows nothing of time.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from training.planning.cards import Card
from training.planning.geometry import Shape
from training.recipe import ModelTable, Vllm

# TRL's vLLM is never given more tokens at once, and scores logits in tiles (its
# kernels/chunked_logprob.py and trainer/utils.py), of bfloat16.
VLLM_BATCH_TOKENS = 4_096
TILE_TOKENS, TILE_VOCABULARY = 4_096, 32_768

# Assumed: the CUDA context, cuBLAS and what the allocator holds without use.
CONTEXT_BYTES = 1_000_000_000
# Assumed: vLLM's CUDA graphs and buffers, inside its share since 0.21; the most that its logs tell
# of a model like these is about a GiB. Asleep it keeps them.
VLLM_OWN_BYTES = 1_000_000_000
# vLLM's own server takes this share of a card unless told otherwise.
SERVER_SHARE = 0.9

Serving = Literal["transformers", "colocate", "server"]


class Line(NamedTuple):
    """A part of a GPU's memory, and in words how it was counted."""

    what: str
    size: int
    how: str


@dataclass(frozen=True, slots=True)
class Phase:
    """What is in the memory of one GPU at a time; `room` is what it has (bytes)."""

    name: str
    room: int
    lines: tuple[Line, ...]

    @property
    def size(self) -> int:
        """Bytes of all lines."""
        return sum(line.size for line in self.lines)

    @property
    def left(self) -> int:
        """Bytes that are left; below 0 it does not fit."""
        return self.room - self.size


@dataclass(frozen=True, slots=True)
class KvRoom:
    """Room for keys and values: in tokens, and for how many whole episodes, of which `wanted` are
    under way at a time where the recipe is carried out on so many GPUs."""

    tokens: int
    episodes: int
    wanted: int


class _Kept(NamedTuple):
    """Bytes a token that autograd keeps in each layer, as so many times the width, the MLP's
    width and the keys' width; and the same of what is at work once, a layer computed anew."""

    wide: float
    inner: float
    narrow: float
    once_wide: float
    once_inner: float
    once_narrow: float
    mask: float  # bytes a pair of tokens, of an attention mask and its copies


# By what is trained (an adapter in float32, all weights in float32 under autocast) and whether
# activations are computed anew.
_KEPT = {
    ("adapter", True): _Kept(2, 0, 0, 36, 14.5, 4, 3.5),
    ("adapter", False): _Kept(32, 8.2, 4, 6, 4, 0, 6),
    ("whole", True): _Kept(4, 0, 0, 38, 13, 1, 3.5),
    ("whole", False): _Kept(38.5, 8.7, 1, 14, 0, 0, 6),
}


@dataclass(frozen=True, slots=True)
class Trained:
    """A model that is trained: which weights, and in how many bits they are held."""

    shape: Shape
    table: ModelTable

    @property
    def lora_weights(self) -> int:
        """Weights of the adapter; 0 where there is none."""
        return 0 if self.table.lora is None else self.shape.lora_parameters(self.table.lora.rank)

    @property
    def weights(self) -> Line:
        """The model's own weights."""
        shape, many = self.shape, count_of(self.shape.parameters)
        if self.table.lora is None:
            how = f"{many}, 4 bytes each: all of them are trained, in float32"
            return Line("weights", shape.weight_bytes(32), how)
        if self.table.bits == 4:
            rest = count_of(shape.parameters - shape.linear)
            how = f"{count_of(shape.linear)} in NF4, {rest} in bfloat16"
            return Line("weights", shape.weight_bytes(4), how)
        return Line("weights", shape.weight_bytes(16), f"{many}, 2 bytes each")

    def learning(self, processes: int) -> list[Line]:
        """What learning takes beside the weights: gradients, and AdamW's two moments, in float32
        as the weights that learn."""
        trained = self.lora_weights or self.shape.parameters
        lines = [Line("gradients", 4 * trained, "4 bytes a trained weight")]
        if processes > 1:
            lines.append(Line("gradients to share", 4 * trained, "buckets of DDP"))
        return [*lines, self.moments]

    @property
    def moments(self) -> Line:
        """AdamW's two moments."""
        trained = self.lora_weights or self.shape.parameters
        return Line("AdamW", 8 * trained, "two moments, 8 bytes a trained weight")

    @property
    def adapter(self) -> list[Line]:
        """The adapter, where there is one."""
        lora = self.table.lora
        if lora is None:
            return []
        how = f"{count_of(self.lora_weights)} of rank {lora.rank}, 4 bytes each"
        return [Line("adapter", 4 * self.lora_weights, how)]

    def activations(self, episodes: int, tokens: int) -> list[Line]:
        """What autograd keeps of one pass over so many episodes of so many tokens each."""
        shape, table = self.shape, self.table
        kept = _KEPT["whole" if table.lora is None else "adapter", table.checkpointing]
        each_layer = kept.wide * shape.hidden + kept.inner * shape.intermediate
        each_layer += kept.narrow * shape.kv_width
        once = kept.once_wide * shape.hidden + kept.once_inner * shape.intermediate
        once += kept.once_narrow * shape.kv_width
        total, pairs = episodes * tokens, episodes * tokens**2
        what = "inputs of the layers" if table.checkpointing else "activations"
        how = f"{episodes} x {tokens:,} tokens, {shape.layers} layers of {each_layer / 1e3:.0f} kB"
        work = "a layer computed anew" if table.checkpointing else "on the way back"
        lines = [
            Line(what, round(total * shape.layers * each_layer), how),
            Line(work, round(total * once + pairs * kept.mask), f"{once / 1e3:.0f} kB a token"),
            Line("logits", _logits_bytes(shape, total), "a tile, and gradients behind it"),
        ]
        if table.lora is None:
            copies = 2 * shape.linear
            lines.append(Line("weights in bfloat16", copies, "copies that autocast multiplies by"))
        if table.bits == 4:
            decoded = 2 * shape.hidden * shape.intermediate
            lines.append(Line("a matrix decoded", decoded, "the largest, from NF4 to bfloat16"))
        return lines

    def prefill(self, tokens: int) -> int:
        """Bytes at work while so many tokens are read without gradients."""
        each = 2 * (4 * self.shape.hidden + 3 * self.shape.intermediate)
        if self.table.lora is not None:
            each += 4 * self.shape.intermediate  # the adapter's input in float32
        return tokens * each


def training_phase(
    trained: Trained, card: Card, processes: int, episodes: int, tokens: int, vllm: Vllm | None
) -> Phase:
    """While weights are trained, `episodes` of `tokens` tokens at a time."""
    lines = [
        trained.weights,
        *trained.adapter,
        *trained.learning(processes),
        *trained.activations(episodes, tokens),
        _context(),
    ]
    if vllm is not None and vllm.mode == "colocate":
        share = round(vllm.memory * card.memory)
        if vllm.sleep:
            kept = Line("vLLM asleep", VLLM_OWN_BYTES, "its graphs and buffers (assumed)")
        else:
            kept = Line("vLLM awake", share, f"{vllm.memory:g} of the card: sleep is off")
        lines.append(kept)
    return Phase("while weights are trained", card.memory, tuple(lines))


def generating_phase(
    trained: Trained, card: Card, vllm: Vllm | None, at_once: int, tokens: int
) -> tuple[Phase, KvRoom]:
    """While rollouts are generated on a GPU that trains too, `at_once` episodes of `tokens` tokens
    at a time: by transformers, or by a vLLM beside the weights that are trained."""
    own = [trained.weights, *trained.adapter, trained.moments, _context()]
    shape = trained.shape
    if vllm is not None:
        kept, room = _vllm_share(shape, card, vllm.memory, at_once, tokens)
        return Phase("while rollouts are generated", card.memory, (*own, *kept)), room
    each = tokens * shape.kv_bytes
    copied = at_once * each // shape.layers
    keys = Line(
        "keys and values",
        at_once * each + copied,
        f"{at_once} episodes of {tokens:,} tokens, {shape.kv_bytes:,} bytes each; one layer twice",
    )
    # The longest prompt is an episode's last.
    read = Line("reading prompts", trained.prefill(at_once * tokens), "a layer, without gradients")
    phase = Phase("while rollouts are generated", card.memory, (*own, keys, read))
    an_episode = each + each // shape.layers + trained.prefill(tokens)
    fit = max(0, (phase.left + at_once * an_episode) // an_episode)
    return phase, KvRoom(fit * tokens, fit, at_once)


def serving_phase(shape: Shape, card: Card, at_once: int, tokens: int) -> tuple[Phase, KvRoom]:
    """A GPU that vLLM's server has for itself."""
    lines, room = _vllm_share(shape, card, SERVER_SHARE, at_once, tokens)
    return Phase("vLLM's server", card.memory, tuple(lines)), room


def _vllm_share(
    shape: Shape, card: Card, share: float, at_once: int, tokens: int
) -> tuple[list[Line], KvRoom]:
    """vLLM takes all of its share: what weights and work leave is for keys and values."""
    taken = round(share * card.memory)
    weights = shape.weight_bytes(16)
    work = VLLM_BATCH_TOKENS * 2 * (4 * shape.hidden + 3 * shape.intermediate)
    work += at_once * shape.vocabulary * 4 * 2
    left = taken - weights - work - VLLM_OWN_BYTES
    kv_tokens = max(0, left) // shape.kv_bytes
    room = KvRoom(kv_tokens, kv_tokens // tokens, at_once)
    lines = [
        Line("vLLM: weights", weights, f"{count_of(shape.parameters)}, 2 bytes each"),
        Line("vLLM: work", work, f"{VLLM_BATCH_TOKENS:,} tokens at once, {at_once} rows of logits"),
        Line("vLLM: its own", VLLM_OWN_BYTES, "graphs and buffers (assumed)"),
        Line(
            "vLLM: keys and values",
            max(0, left),
            f"the rest of its share, {share:g} of the card; {shape.kv_bytes:,} bytes a token",
        ),
    ]
    return lines, room


def count_of(number: int) -> str:
    """A large number in words: 14.77 billion, 68.8 million."""
    return f"{number / 1e9:.2f} billion" if number >= 1e9 else f"{number / 1e6:.1f} million"


def _context() -> Line:
    return Line("CUDA and the allocator", CONTEXT_BYTES, "assumed")


def _logits_bytes(shape: Shape, tokens: int) -> int:
    """TRL's tile of logits, and the gradient of what goes into it in float32."""
    tile = min(tokens, TILE_TOKENS) * min(shape.vocabulary, TILE_VOCABULARY) * 2
    return tile + tokens * shape.hidden * 4
