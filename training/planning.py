"""What a recipe takes before it is run: memory, tokens, hours, money.

    art-e train plan --recipe talk --gpu h100-80gb

Weights, gradients, optimizer states, keys and values, and operations are counted. What autograd
keeps, and how fast an adapter is trained, was measured. The other speeds, turns, and what CUDA and
vLLM keep for themselves are assumptions. Both are printed as what they are. Planning needs neither
a GPU nor torch nor a network.
"""

import math
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from operator import mul
from typing import Any, Literal, NamedTuple

from art_e.errors import UserError
from art_e.runs import Run
from art_e.tools import MAX_RESULTS
from training.judging import JudgeFee, held_out_episodes, is_paid, judge_fees
from training.progress import read_steps
from training.recipe import AT_ONCE, BATCH, Grpo, ModelTable, Part, Recipe, Sft, Vllm

# ---- GPUs and shapes of models.

# Bytes a weight in NF4 of bitsandbytes: half a byte, for each 64 weights a scale of one byte, and
# for each 256 scales one of four bytes.
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
    """A Qwen2, or with the width `head` of a head a Qwen3, which norms these and has no biases.
    `hidden` is the width, `heads` are those of queries, `kv_heads` those of keys and values. With
    `tied` the embeddings are the output weights as well."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    vocabulary: int
    tied: bool
    head: int | None = None

    @property
    def kv_width(self) -> int:
        """The width of a token's keys in one layer, and of its values."""
        return (self.head or self.hidden // self.heads) * self.kv_heads

    @property
    def q_width(self) -> int:
        """The width of a token's queries in one layer."""
        return self.hidden if self.head is None else self.head * self.heads

    @property
    def linear(self) -> int:
        """Weights of all linear layers: q and o, k and v, gate, up and down."""
        attention = 2 * self.hidden * (self.q_width + self.kv_width)
        return self.layers * (attention + 3 * self.hidden * self.intermediate)

    @property
    def parameters(self) -> int:
        """All weights: matrices, embeddings, biases of q, k and v, and norms."""
        embeddings = (1 if self.tied else 2) * self.vocabulary * self.hidden
        own = self.hidden + 2 * self.kv_width if self.head is None else 2 * self.head
        small = self.layers * (2 * self.hidden + own) + self.hidden
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
        attention = 4 * self.hidden + 2 * self.q_width + 2 * self.kv_width
        return self.layers * rank * (attention + 3 * (self.hidden + self.intermediate))

    def forward_flops(self, tokens: float, length: float) -> float:
        """Operations of a forward pass over `tokens` tokens of episodes of `length` each: two a
        weight, and attention to half of the episode on average."""
        multiplied = self.linear + self.vocabulary * self.hidden
        return tokens * (2 * multiplied + 2 * self.layers * self.q_width * length)


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
    "Qwen3-4B": Shape(36, 2_560, 9_728, 32, 8, 151_936, tied=True, head=128),
    "Qwen3-14B": Shape(40, 5_120, 17_408, 40, 8, 151_936, tied=False, head=128),
}


def shape_of(model: ModelTable) -> Shape:
    """The shape of a recipe's model, of a `base` by the size in its name. Raises `UserError` if it
    is no Qwen2.5 or Qwen3 of a known size."""
    form = model.scratch
    if form is not None:
        inner, vocabulary = 3 * form.hidden, form.vocabulary + PHRASES
        return Shape(form.layers, form.hidden, inner, form.heads, form.heads, vocabulary, tied=True)
    name = re.search(r"(Qwen2\.5|Qwen3)-(\d+(?:\.\d+)?[BM])", model.base or "")
    size = "" if name is None else name[0] if name[1] == "Qwen3" else name[2]
    if size not in PUBLISHED:
        known = ", ".join(each for each in PUBLISHED if "-" not in each)
        raise UserError(
            f"the shape of {model.base} is not known: plan a model of a similar size with"
            f" --set model.base=Qwen/Qwen2.5-SIZE, one of {known}"
        )
    return PUBLISHED[size]


def count_of(number: int) -> str:
    """A large number in words: 14.77 billion, 68.8 million."""
    return f"{number / 1e9:.2f} billion" if number >= 1e9 else f"{number / 1e6:.1f} million"


# ---- What was measured, and what is assumed.

# Mean tokens of real mail, measured on the 73 questions of the public ART-E set and its Enron mail
# with the offline policy (2026-11), by cl100k_base on text cut as Qwen2 cuts it.
PROMPT = 729  # system prompt 147, schemas 486, question 13, the rest Qwen2.5's chat template
SEARCH, READ, FRAME = 1_090, 585, 11  # ten hits, a mail that is read, what stands around each
SEARCH_CALL, READ_CALL, ANSWER_CALL = 42, 26, 43  # as Qwen writes them, with the end mark
SEARCHES, READS = 2.5, 1.5  # of an episode (assumed)

# TRL never gives its vLLM more tokens at once, and scores logits in bfloat16 tiles (its
# kernels/chunked_logprob.py and trainer/utils.py).
VLLM_BATCH_TOKENS, TILE_TOKENS, TILE_VOCABULARY = 4_096, 4_096, 32_768
SERVER_SHARE = 0.9  # of a GPU's memory, by default of vLLM's server
# Measured on one H100 80GB (2026-11-27, torch 2.11.0+cu130, transformers 5.23, peft 0.21): random
# weights in the shape of Qwen2.5-14B, an adapter of rank 16 in float32, activations recomputed,
# logits of 187 tokens. An episode of 4,562 tokens took 1.265 s to train on and 0.350 s to score,
# one of 8,000 2.121 s, with a peak of 37.4 GB (37.8 by the plan). 48 episodes of 1,000 tokens took
# transformers 0.22 s for each further token.
TRAIN_SHARE, SCORE_SHARE, LAYER_S = 0.33, 0.40, 0.0046
# Assumed from here on. vLLM's own graphs and buffers are in its share, and stay while it sleeps.
CONTEXT_BYTES, VLLM_OWN_BYTES = 1_000_000_000, 1_000_000_000
TRAIN_SHARE_4BIT, READ_SHARE, DECODE_SHARE = 0.25, 0.45, 0.70
VLLM_STEP_S, JUDGE_S, LONGEST = 0.005, 6.0, 2.0
TRANSFER_RATE, HOST_RATE = 6e9, 20e9

MEASURED = (
    f"an adapter on 14B is trained at {TRAIN_SHARE:.0%} of an H100's bfloat16 rate, and episodes"
    f" are scored at {SCORE_SHARE:.0%}; transformers take {LAYER_S * 1e3:g} ms a layer for a token"
    " (random weights, 2026-11-27)",
    "bytes that autograd keeps: on fake tensors, and on that H100 to 1%",
    "tokens of mail: on the 73 public questions (2026-11)",
)
ASSUMED = (
    f"{SEARCHES:g} searches and {READS:g} reads an episode, if the mail is not synthetic",
    f"CUDA and the allocator take {CONTEXT_BYTES / 1e9:g} GB",
    f"other models and cards are as fast, but for weights of 4 bits ({TRAIN_SHARE_4BIT:.0%});"
    f" prompts are read at {READ_SHARE:.0%}",
    f"vLLM, never run on a GPU here, generates at {DECODE_SHARE:.0%} of the bandwidth, a token in"
    f" {VLLM_STEP_S * 1e3:g} ms at least",
    f"the longest episode of a step takes {LONGEST:g} times the mean's turns, and all wait for it",
    f"a judge that is a model takes {JUDGE_S:g} s a step; whole weights or an adapter go to vLLM at"
    f" {TRANSFER_RATE / 1e9:g} GB/s; with an adapter a sleeping vLLM keeps its weights in the"
    f" machine's memory, at {HOST_RATE / 1e9:g} GB/s there and back",
    "not counted: loading weights, tools, making worlds and examples, checkpoints, and what an"
    " adapter costs vLLM",
)

# Bytes a token that autograd keeps in each layer, as multiples of the width, the MLP's width and
# the keys' width; the same of what is in work once (a layer recomputed); and bytes of an attention
# mask and its copies for each pair of tokens. By what is trained (an adapter, or all weights in
# float32 under autocast) and whether activations are recomputed. Measured on fake tensors through
# transformers' Qwen2, over 36 shapes (torch 2.13, transformers 5.23, peft 0.21); a test repeats it.
_AUTOGRAD = {
    ("adapter", True): ((2, 0, 0), (36, 14.5, 4), 3.5),
    ("adapter", False): ((32, 8.2, 4), (6, 4, 0), 6),
    ("whole", True): ((4, 0, 0), (38, 13, 1), 3.5),
    ("whole", False): ((38.5, 8.7, 1), (14, 0, 0), 6),
}

# ---- Episodes.


@dataclass(frozen=True)
class EpisodeTokens:
    """A mean episode: its `turns`, the tokens of its first prompt and of the whole, how many of
    these the model wrote, and how many mails it read."""

    turns: float
    prompt_tokens: float
    own_tokens: float
    tokens: float
    reads: float

    @property
    def all_prompts(self) -> float:
        """Tokens of the prompts of all turns together, which grow evenly."""
        return self.turns * (self.prompt_tokens + self.tokens - self.own_tokens / self.turns) / 2


# Tokens of conversations that the scripted expert had about companies with short and with long
# mails: mean and largest of each part that a stage imitates. Measured with the tokenizers of nano
# (715 conversations of ten worlds) and of mini (695 of three).
_WORLD_PARTS: dict[bool, dict[Part, tuple[float, int]]] = {
    True: {"first": (18, 27), "answer": (62, 88), "read": (61, 88), "whole": (165, 400)},
    False: {"first": (19, 27), "answer": (82, 121), "read": (80, 119), "whole": (543, 1_221)},
}


def _world_parts(recipe: Recipe) -> dict[Part, tuple[float, int]]:
    """The lengths for a model that is made for a world; of any other they are unknown."""
    worlds = recipe.data.worlds
    return {} if recipe.model.scratch is None or worlds is None else _WORLD_PARTS[worlds.short]


def expected_episode(recipe: Recipe) -> EpisodeTokens:
    """The mean episode that is expected of the recipe, within its limits."""
    limits, parts = recipe.episode, _world_parts(recipe)
    most = limits.episode_tokens
    if parts:
        return EpisodeTokens(3.3, 11, 20, min(parts["whole"][0], most), 1.1)
    turns = min(SEARCHES + READS + 1, limits.max_turns)
    own = SEARCHES * SEARCH_CALL + READS * READ_CALL + ANSWER_CALL
    hits = SEARCH * limits.hits / MAX_RESULTS
    length = PROMPT + own + SEARCHES * (hits + FRAME) + READS * (READ + FRAME)
    own = min(own, turns * limits.turn_tokens, most)
    return EpisodeTokens(turns, min(PROMPT, most), own, min(length, most), READS)


# ---- Memory and pace.


@dataclass(frozen=True)
class MemoryLine:
    """A part of a GPU's memory in bytes, and in words how it was counted."""

    what: str
    size: int
    how: str


@dataclass(frozen=True)
class MemoryPhase:
    """What is in the memory of one GPU at a time; with `left` below 0 it does not fit."""

    phase: str
    lines: list[MemoryLine]
    bytes: int
    left: int


@dataclass(frozen=True)
class StagePlan:
    """The warm start ("sft") or GRPO ("grpo"). Keys and values of `kv_tokens` tokens have room;
    `under_way` episodes are generated at a time."""

    stage: str
    steps: int
    tokens_per_step: dict[str, float]
    seconds_per_step: dict[str, float]
    memory: list[MemoryPhase]
    kv_tokens: int
    under_way: int

    @property
    def hours(self) -> float:
        """The time of all steps, with validations and the test."""
        return self.steps * sum(self.seconds_per_step.values()) / 3600


class Estimator(NamedTuple):
    """Memory and pace of a recipe's model on a kind of GPU, for the episodes expected of it."""

    recipe: Recipe
    shape: Shape
    gpu: Gpu
    episode: EpisodeTokens

    @property
    def lora_weights(self) -> int:
        """Weights of the adapter; 0 without one."""
        lora = self.recipe.model.lora
        return 0 if lora is None else self.shape.lora_parameters(lora.rank)

    @property
    def bits(self) -> Literal[4, 16, 32]:
        """Bits of a weight of the model that is trained: 32 without an adapter."""
        return 32 if self.recipe.model.lora is None else self.recipe.model.bits

    def activations(self, episodes: int, tokens: int) -> list[MemoryLine]:
        """What autograd keeps of one pass over so many episodes of so many tokens each."""
        shape, model, total = self.shape, self.recipe.model, episodes * tokens
        trained = "whole" if model.lora is None else "adapter"
        kept, work, mask = _AUTOGRAD[trained, model.checkpointing]
        widths = (shape.hidden, shape.intermediate, shape.kv_width)
        layer, once = (sum(map(mul, factors, widths)) for factors in (kept, work))
        tile = min(total, TILE_TOKENS) * min(shape.vocabulary, TILE_VOCABULARY) * 2
        # The gradient of what goes into the logits is in float32.
        logits = tile + total * shape.hidden * 4
        in_work = round(total * once + episodes * tokens**2 * mask)
        how = f"{episodes} x {tokens:,} tokens, {shape.layers} layers of {layer / 1e3:.0f} kB"
        lines = [
            MemoryLine("activations", round(total * shape.layers * layer), how),
            MemoryLine("a layer in work", in_work, f"{once / 1e3:.0f} kB a token"),
            MemoryLine("logits", logits, "a tile, and gradients behind it"),
        ]
        if model.lora is None:
            lines.append(MemoryLine("weights in bfloat16", 2 * shape.linear, "autocast's copies"))
        return lines

    def training_memory(self, episodes: int, tokens: int, vllm: Vllm | None = None) -> MemoryPhase:
        """While weights are trained, with `episodes` of `tokens` tokens in a pass."""
        gradients = 4 * (self.lora_weights or self.shape.parameters)
        lines = [*self._own(), MemoryLine("gradients", gradients, "4 bytes a trained weight")]
        lines += self.activations(episodes, tokens)
        if vllm is not None and vllm.mode == "colocate":
            share = round(vllm.memory * self.gpu.memory)
            asleep = MemoryLine("vLLM asleep", VLLM_OWN_BYTES, "graphs and buffers (assumed)")
            awake = MemoryLine("vLLM awake", share, f"{vllm.memory:g} of the GPU: sleep is off")
            lines.append(asleep if vllm.sleep else awake)
        return self._phase("while weights are trained", lines)

    def generating_memory(self, at_once: int, tokens: int) -> tuple[MemoryPhase, int]:
        """While transformers generates `at_once` episodes of `tokens` tokens at a time; and for
        how many tokens keys and values have room."""
        shape = self.shape
        # One layer's keys and values are there twice.
        keys = tokens * shape.kv_bytes + tokens * shape.kv_bytes // shape.layers
        # The longest prompt is the last of an episode; an adapter's input is in float32.
        inner = 6 if self.recipe.model.lora is None else 10
        prefill = tokens * (8 * shape.hidden + inner * shape.intermediate)
        how = f"{at_once} x {tokens:,} tokens of {shape.kv_bytes:,} bytes; one layer twice"
        lines = [
            *self._own(),
            MemoryLine("keys and values", at_once * keys, how),
            MemoryLine("reading prompts", at_once * prefill, "a layer, without gradients"),
        ]
        phase = self._phase("while rollouts are generated", lines)
        return phase, tokens * max(0, phase.left // (keys + prefill) + at_once)

    def vllm_memory(self, at_once: int, share: float, *, alone: bool) -> tuple[MemoryPhase, int]:
        """While vLLM generates with its share of a GPU, `alone` or beside the weights that are
        trained; and for how many tokens keys and values have room: they get what is left."""
        shape, weights = self.shape, self.shape.weight_bytes(16)
        work = VLLM_BATCH_TOKENS * 2 * (4 * shape.hidden + 3 * shape.intermediate)
        work += at_once * shape.vocabulary * 4 * 2
        left = max(0, round(share * self.gpu.memory) - weights - work - VLLM_OWN_BYTES)
        at_work = f"{VLLM_BATCH_TOKENS:,} tokens at once, {at_once} rows of logits"
        rest = f"the rest of its share ({share:g}); {shape.kv_bytes:,} bytes a token"
        lines = [
            *([] if alone else self._own()),
            MemoryLine("vLLM: weights", weights, f"{count_of(shape.parameters)} in bfloat16"),
            MemoryLine("vLLM: work", work, at_work),
            MemoryLine("vLLM: its own", VLLM_OWN_BYTES, "graphs and buffers (assumed)"),
            MemoryLine("vLLM: keys and values", left, rest),
        ]
        name = "vLLM's server" if alone else "while rollouts are generated"
        return self._phase(name, lines), left // shape.kv_bytes

    def _own(self) -> list[MemoryLine]:
        """What a GPU that trains always holds."""
        model, count = self.recipe.model, count_of(self.shape.parameters)
        trained = self.lora_weights or self.shape.parameters
        size = self.shape.weight_bytes(self.bits)
        forms = {32: "float32", 16: "bfloat16", 4: "NF4, the rest in bfloat16"}
        lines = [MemoryLine("weights", size, f"{count} in {forms[self.bits]}")]
        if model.lora is not None:
            how = f"{count_of(trained)} of rank {model.lora.rank}, 4 bytes each"
            lines.append(MemoryLine("adapter", 4 * trained, how))
        lines.append(MemoryLine("AdamW", 8 * trained, "two moments, 8 bytes a trained weight"))
        return [*lines, MemoryLine("CUDA and the allocator", CONTEXT_BYTES, "assumed")]

    def _phase(self, name: str, lines: list[MemoryLine]) -> MemoryPhase:
        size = sum(each.size for each in lines)
        return MemoryPhase(name, lines, size, self.gpu.memory - size)

    def training_seconds(self, episodes: float, length: float, scorings: int = 0) -> float:
        """Seconds to learn from so many episodes of a mean `length` on one GPU; `scorings` more
        forward passes only score them."""
        model = self.recipe.model
        share = TRAIN_SHARE_4BIT if model.bits == 4 else TRAIN_SHARE
        forward = self.shape.forward_flops(episodes * length, length)
        # The backward pass costs one more with an adapter, else two; recomputing costs one more.
        passes = 1 + (1 if model.lora is not None else 2) + model.checkpointing
        rate = self.gpu.tflops * 1e12
        return forward / rate * (passes / share + scorings / SCORE_SHARE)

    def generating_seconds(self, episodes: float, at_once: float, *, by_vllm: bool) -> float:
        """Seconds until all episodes of one GPU have ended, `at_once` at a time."""
        shape, gpu, episode = self.shape, self.gpu, self.episode
        rounds = min(self.recipe.episode.max_turns, LONGEST * episode.turns)
        going = episodes * episode.turns / rounds
        waves = max(1.0, going / at_once)
        # Without vLLM every turn reads the whole episode again.
        tokens = episode.tokens if by_vllm else episode.all_prompts
        rate = gpu.tflops * 1e12 * READ_SHARE
        read = shape.forward_flops(episodes * tokens, episode.tokens) / rate
        # Weights, keys and values are read for each token.
        held = going / waves * (episode.prompt_tokens + episode.tokens) / 2
        weights = shape.weight_bytes(16 if by_vllm else self.bits)
        token = (weights + held * shape.kv_bytes) / (gpu.gb_per_second * 1e9 * DECODE_SHARE)
        token = token + VLLM_STEP_S if by_vllm else max(token, shape.layers * LAYER_S)
        return read + rounds * waves * self._longest(going / waves) * token

    def _longest(self, turns: float) -> float:
        """Tokens of the longest of so many turns that are generated together."""
        mean = self.episode.own_tokens / self.episode.turns
        longest = mean * (1 + 0.5 * math.log(max(1.0, turns)))
        return min(float(self.recipe.episode.turn_tokens), longest)

    def sft_plan(self, sft: Sft) -> StagePlan:
        """The warm start on one GPU; transformers generates its validations."""
        limit, grpo = self.recipe.episode.episode_tokens, self.recipe.grpo
        # A part of a conversation on real mail is shorter than the whole by an unknown number.
        parts, whole = _world_parts(self.recipe), (self.episode.tokens, limit)
        tokens, seconds, largest = 0.0, 0.0, (0, 0)
        for stage in sft.stages:
            mean, most = parts.get(stage.part, whole)
            tokens += stage.steps * stage.batch * mean / sft.steps
            seconds += stage.steps * self.training_seconds(stage.batch, mean) / sft.steps
            together = stage.batch // sft.parts
            largest = max(largest, (together * min(most, limit), together))
        at_once = min((grpo and grpo.generate_batch) or BATCH, self.recipe.judging.questions)
        generating, room = self.generating_memory(at_once, limit)
        held_out = held_out_episodes(self.recipe, sft) * self.generating_seconds(
            at_once, at_once, by_vllm=False
        )
        times = {"training": seconds, "validations and test": held_out / at_once / sft.steps}
        training = self.training_memory(largest[1], largest[0] // largest[1])
        memory = [generating, training]
        return StagePlan("sft", sft.steps, {"trained_on": tokens}, times, memory, room, at_once)

    def grpo_plan(self, grpo: Grpo, train: int, serve: int) -> StagePlan:
        """GRPO on `train` GPUs, with `serve` more for vLLM's server."""
        recipe, episode, vllm = self.recipe, self.episode, grpo.vllm
        episodes, limit = grpo.questions * grpo.rollouts, recipe.episode.episode_tokens
        at_once = -(-episodes // (serve or train))
        if vllm is None:
            # A validation asks its questions at the same time as well.
            at_once = max(at_once, min(AT_ONCE, recipe.judging.questions))
            at_once = min(grpo.generate_batch or at_once, at_once)
            generating, room = self.generating_memory(at_once, limit)
        else:
            share = SERVER_SHARE if serve else vllm.memory
            generating, room = self.vllm_memory(at_once, share, alone=bool(serve))
        mine, by_vllm = episodes / (serve or train), vllm is not None
        held_out = held_out_episodes(recipe, grpo)
        rollouts = self.generating_seconds(mine, at_once, by_vllm=by_vllm)
        # TRL scores vLLM's tokens again; a KL term takes the same of the model as it began.
        # So it does where the weights move between minibatches.
        scorings = (by_vllm or grpo.minibatches > 1) + (grpo.beta > 0)
        weights = self.shape.weight_bytes(16)
        sent = (4 * self.lora_weights or weights) / TRANSFER_RATE if by_vllm else 0.0
        if self.lora_weights and vllm is not None and vllm.sleep and not serve:
            sent += 2 * weights / HOST_RATE
        reads = episode.tokens - episode.own_tokens if by_vllm else episode.all_prompts
        tokens = {
            "generated": episodes * episode.own_tokens,
            "read": episodes * reads,
            "trained_on": episodes * episode.tokens,
        }
        seconds = {
            "generating": rollouts,
            "training": self.training_seconds(episodes / train, episode.tokens, scorings),
            "weights to vLLM": sent,
            "judges": JUDGE_S if is_paid(recipe.judging.reward) else 0.0,
            "validations and test": rollouts * held_out / episodes / grpo.batches,
        }
        # All of it serves so many steps.
        tokens, seconds = (
            {name: value / grpo.minibatches for name, value in each.items()}
            for each in (tokens, seconds)
        )
        memory = [generating, self.training_memory(grpo.micro_batch, limit, vllm)]
        return StagePlan("grpo", grpo.steps, tokens, seconds, memory, room, at_once)


# ---- The plan.


@dataclass(frozen=True)
class TrainingPlan:
    """What a recipe takes, as `--json` prints it: sizes in bytes, times in seconds or hours. It
    fits if there are no `faults`."""

    recipe: str
    model: str
    parameters: int
    lora_parameters: int
    gpu: str
    gpus: dict[str, int]
    memory_bytes: int
    usd_per_hour: float
    episode: EpisodeTokens
    stages: list[StagePlan]
    judges: list[JudgeFee]
    faults: list[str]

    @property
    def hours(self) -> float:
        """The time of all stages."""
        return sum(stage.hours for stage in self.stages)

    @property
    def gpu_usd(self) -> float:
        """The rent of all GPUs."""
        return self.hours * sum(self.gpus.values()) * self.usd_per_hour

    def row(self) -> dict[str, Any]:
        """The plan as JSON."""
        sums = {"hours": self.hours, "gpu_usd": self.gpu_usd}
        return {
            **asdict(self),
            **sums,
            "fits": not self.faults,
            "measured": MEASURED,
            "assumed": ASSUMED,
        }


def plan(
    recipe: Recipe, gpu: Gpu, *, count: int = 1, usd_per_hour: float | None = None
) -> TrainingPlan:
    """The plan of a recipe on `count` GPUs, which are divided between training and vLLM's server
    in the fastest way that fits. Raises `UserError` if the work can't be divided among them."""
    sft, grpo, shape = recipe.sft, recipe.grpo, shape_of(recipe.model)
    estimator = Estimator(recipe, shape, gpu, expected_episode(recipe))

    def planned(train: int) -> TrainingPlan:
        stages = [] if sft is None else [estimator.sft_plan(sft)]
        stages += [] if grpo is None else [estimator.grpo_plan(grpo, train, count - train)]
        return TrainingPlan(
            recipe=recipe.name,
            model=recipe.model.base or "made from nothing",
            parameters=shape.parameters,
            lora_parameters=estimator.lora_weights,
            gpu=gpu.name,
            gpus={"train": train, "serve": count - train},
            memory_bytes=gpu.memory,
            usd_per_hour=gpu.usd_per_hour if usd_per_hour is None else usd_per_hour,
            episode=estimator.episode,
            stages=stages,
            judges=judge_fees(recipe, estimator.episode.reads),
            faults=list(_faults(stages, recipe.episode.episode_tokens)),
        )

    plans = map(planned, _divisions(grpo, count))
    return min(plans, key=lambda each: (bool(each.faults), each.hours))


def _divisions(grpo: Grpo | None, count: int) -> list[int]:
    """How many of the GPUs may train; vLLM's server gets the others."""
    if grpo is None:
        return [count]
    if grpo.vllm is None or grpo.vllm.mode != "server":
        grpo.passes(count)
        return [count]
    if count < 2:
        raise UserError("vLLM's server needs GPUs beside those that train: --gpus 2 or more")
    divisions = []
    for train in range(1, count):
        with suppress(UserError):
            grpo.passes(train)
            divisions.append(train)
    return divisions


def _faults(stages: list[StagePlan], tokens: int) -> Iterator[str]:
    """Why it does not fit."""
    for stage in stages:
        for phase in stage.memory:
            if phase.left < 0:
                yield f"{stage.stage}, {phase.phase}: {-phase.left / 1e9:.1f} GB too much"
        if stage.kv_tokens < tokens:
            yield f"{stage.stage}: one whole episode of {tokens:,} tokens has no room"


def compared(planned: TrainingPlan, run: Run) -> list[dict[str, Any]]:
    """What is planned beside what a training run reported, line by line; None if it is unknown."""
    stage = next(each for each in planned.stages if each.stage == run.config["kind"])
    name = "generated" if stage.stage == "grpo" else "trained_on"
    steps = read_steps(run.folder)
    made = steps[-1].step if steps else 0
    means = (steps[-1].tokens / made, steps[-1].seconds / made) if steps else (None, None)
    peak = run.metrics.get("peak_memory_bytes") if run.complete else None
    seconds = sum(stage.seconds_per_step.values())
    memory = max(phase.bytes for phase in stage.memory) / 1e9
    rows = (
        ("steps", stage.steps, made),
        (f"tokens a step, {name.replace('_', ' ')}", stage.tokens_per_step[name], means[0]),
        ("seconds a step, with validations", seconds, means[1]),
        ("most memory in use, GB", memory, None if peak is None else peak / 1e9),
    )
    return [{"what": what, "planned": mine, "reported": its} for what, mine, its in rows]
