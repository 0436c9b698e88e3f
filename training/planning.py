"""What a recipe takes before it is run: memory, tokens, hours, money.

    art-e train plan --recipe talk --gpu h100-80gb

Weights, gradients, optimizer states, keys and values, and operations are counted. What autograd
keeps was measured once. How fast a GPU works, how many turns an episode has, and what CUDA and
vLLM keep for themselves is assumed, and printed as such. Planning needs no GPU, and for Qwen2.5
neither torch nor a network.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import accumulate
from operator import mul
from pathlib import Path
from statistics import fmean, linear_regression
from typing import Any, Literal, NamedTuple

from art_e.errors import UserError
from art_e.models.base import Usage
from art_e.models.checkpoint import base_of, meant_checkpoint, require_train_extra, split_adapter
from art_e.models.prices import expected_cost
from art_e.runs import Run
from art_e.tools import MAX_RESULTS
from evals.scored import load_run
from training.judging import is_paid
from training.progress import read_steps
from training.recipe import AT_ONCE, BATCH, Grpo, ModelTable, Part, Recipe, Sft, Vllm

# Mean tokens of real mail, measured on the 73 questions of the public ART-E set and its Enron mail
# with the offline policy (2026-11), by cl100k_base on text cut as Qwen2 cuts it.
PROMPT = 729  # system prompt 147, schemas 486, question 13, the rest Qwen2.5's chat template
SEARCH, READ, FRAME = 1_090, 585, 11  # ten hits, a mail that is read, what stands around each
SEARCH_CALL, READ_CALL, ANSWER_CALL = 42, 26, 43  # as Qwen writes them, with the end mark
SEARCHES, READS = 2.5, 1.5  # of an episode (assumed)
# A judge's prompt, form of the reply, and question with answers: 434 + 82 + 85; for groundedness
# 267 + 82 + 62 and every mail that was read. Assumed: its reply, and the share of episodes that
# give an answer (abstentions are settled by rule).
CORRECT_TOKENS, GROUNDED_TOKENS, MAIL_TOKENS, REPLY_TOKENS, ANSWERED = 601, 411, 622, 45, 0.75

# TRL never gives its vLLM more tokens at once, and scores logits in bfloat16 tiles (its
# kernels/chunked_logprob.py and trainer/utils.py).
VLLM_BATCH_TOKENS, TILE_TOKENS, TILE_VOCABULARY = 4_096, 4_096, 32_768
SERVER_SHARE = 0.9  # of a GPU's memory, by default of vLLM's server
# Assumed from here on. vLLM's own graphs and buffers are in its share, and stay while it sleeps.
CONTEXT_BYTES, VLLM_OWN_BYTES = 1_000_000_000, 1_000_000_000
TRAIN_SHARE, TRAIN_SHARE_4BIT, READ_SHARE, DECODE_SHARE = 0.40, 0.30, 0.45, 0.70
# Seconds: a layer of transformers' generation for Python and launches, and its adapter; the same of
# a forward and backward pass; a token of vLLM.
LAYER_S, ADAPTER_S, PASS_LAYER_S, PASS_ADAPTER_S, VLLM_STEP_S = 0.0006, 0.0006, 0.002, 0.002, 0.005
WAKE_S, IN_PROCESS_RATE, TO_SERVER_RATE, JUDGE_S, LONGEST = 2.0, 10e9, 5e9, 6.0, 2.0
TOOLS_S = 0.0007  # a turn, measured on the real archive

ASSUMED = (
    f"CUDA and the allocator take {CONTEXT_BYTES / 1e9:g} GB",
    f"training runs at {TRAIN_SHARE:.0%} of the GPU's bfloat16 rate, with weights of 4 bits at"
    f" {TRAIN_SHARE_4BIT:.0%}",
    f"prompts are read at {READ_SHARE:.0%} of it; vLLM reads a token once as far as keys and values"
    " have room, transformers at every turn",
    f"tokens are generated at {DECODE_SHARE:.0%} of the GPU's bandwidth: weights, keys and values"
    " are read once for each",
    f"a token takes transformers at least {LAYER_S * 1e3:g} ms a layer, {ADAPTER_S * 1e3:g} ms more"
    f" with an adapter, and vLLM {VLLM_STEP_S * 1e3:g} ms",
    f"the longest episode of a step takes {LONGEST:g} times the mean's turns, and all wait for it",
    f"a judge that is a model takes {JUDGE_S:g} s a step: it sees all episodes at the same time",
    f"weights go to vLLM at {IN_PROCESS_RATE / 1e9:g} GB/s and {WAKE_S:g} s in the process, at"
    f" {TO_SERVER_RATE / 1e9:g} GB/s to a server",
    "not counted: loading weights, making worlds and examples, checkpoints",
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
# NF4 of bitsandbytes with double quantisation: half a byte a weight, for each 64 weights a scale of
# one byte, and for each 256 scales one of four bytes.
_NF4_BYTES = 0.5 + 1 / 64 + 4 / (64 * 256)

# ---- GPUs, models and episodes.


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
            f"can't find the shape of {name}: there is no such checkpoint here or on the hub; name"
            f" a checkpoint's folder, or one of {sizes}"
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


@dataclass(frozen=True)
class EpisodeTokens:
    """A mean episode: its `turns`, the tokens of its first prompt and of the whole, how many of
    these the model wrote, and how many mails it read. `source` says where from."""

    turns: float
    prompt_tokens: float
    own_tokens: float
    tokens: float
    reads: float
    source: str

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
_WORLD_TURNS = {True: 3.2, False: 3.4}


def _short_world(recipe: Recipe) -> bool | None:
    """Whether mails are short, of a model that is made for a world; None for any other."""
    worlds = recipe.data.worlds
    return None if recipe.model.scratch is None or worlds is None else worlds.short


def expected_episode(recipe: Recipe) -> EpisodeTokens:
    """The mean episode that is expected of the recipe, within its limits."""
    short, limits = _short_world(recipe), recipe.episode
    if short is not None:
        prompt, own, turns = 11, 20.0, _WORLD_TURNS[short]
        reads, length = turns / 3, _WORLD_PARTS[short]["whole"][0]
        source = "measured on the scripted expert's episodes"
    else:
        turns, prompt, reads = SEARCHES + READS + 1, PROMPT, READS
        own = SEARCHES * SEARCH_CALL + READS * READ_CALL + ANSWER_CALL
        hits = SEARCH * limits.hits / MAX_RESULTS
        length = PROMPT + own + SEARCHES * (hits + FRAME) + READS * (READ + FRAME)
        source = f"measured on Enron mail; {SEARCHES:g} searches and {READS:g} reads are assumed"
    most = limits.episode_tokens
    kept, tokens = min(turns, limits.max_turns), min(length, most)
    own = min(own * kept / turns, kept * limits.turn_tokens, tokens)
    return EpisodeTokens(kept, min(prompt, most), own, tokens, reads, source)


def _part_tokens(recipe: Recipe, part: Part) -> tuple[float, int]:
    """Tokens of a conversation that a stage of the warm start imitates: mean and largest."""
    limit, short = recipe.episode.episode_tokens, _short_world(recipe)
    if short is None:
        # A part of a conversation on real mail is shorter than the whole by an unknown number.
        return expected_episode(recipe).tokens, limit
    mean, most = _WORLD_PARTS[short][part]
    return min(mean, limit), min(most, limit)


# ---- Judges.


@dataclass(frozen=True)
class JudgeFee:
    """What a judge is expected to cost for `episodes`; `usd` is None if the price is unknown."""

    judge: str
    episodes: int
    calls: int
    prompt_tokens: int
    completion_tokens: int
    usd: float | None


def fee_of(judge: str, episodes: int, episode: EpisodeTokens) -> JudgeFee:
    """What a judge that is a model costs for its verdicts on so many episodes."""
    answers = round(episodes * ANSWERED)
    calls, prompt = answers, answers * CORRECT_TOKENS
    if episode.reads:
        calls += answers
        prompt += round(answers * (GROUNDED_TOKENS + episode.reads * MAIL_TOKENS))
    # By the call, because long prompts may have prices of their own.
    one = Usage(prompt_tokens=prompt // calls, completion_tokens=REPLY_TOKENS)
    usd = expected_cost(judge, [one], calls)
    return JudgeFee(judge, episodes, calls, prompt, calls * REPLY_TOKENS, usd)


def judge_fees(recipe: Recipe, episode: EpisodeTokens | None = None) -> list[JudgeFee]:
    """What judges will cost: both for validations and for the test, which is asked twice, and
    the reward's judge for all episodes of GRPO."""
    grpo, judging = recipe.grpo, recipe.judging
    stages = [each for each in (recipe.sft, grpo) if each is not None]
    held_out = sum(
        _validations(each) * judging.questions + 2 * judging.test_questions for each in stages
    )
    trained = 0
    if grpo is not None:
        trained = grpo.questions * grpo.rollouts * grpo.steps
    judges = ((judging.reward, trained + held_out), (judging.validation, held_out))
    expected = episode or expected_episode(recipe)
    return [fee_of(judge, episodes, expected) for judge, episodes in judges if is_paid(judge)]


def _validations(stage: Sft | Grpo) -> int:
    """How many: before the first step, at intervals, and at the end (of each stage of SFT)."""
    if isinstance(stage, Grpo):
        return 1 + -(-stage.steps // stage.validate_every)
    ends = set(accumulate(each.steps for each in stage.stages))
    return 1 + len(ends | set(range(stage.validate_every, stage.steps + 1, stage.validate_every)))


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
    lines: tuple[MemoryLine, ...]
    bytes: int
    left: int


@dataclass(frozen=True)
class KvRoom:
    """Room for keys and values in tokens and in whole episodes, and how many episodes are under
    way at a time."""

    kv_tokens: int
    whole_episodes: int
    under_way: int


@dataclass(frozen=True)
class StagePlan:
    """The warm start ("sft") or GRPO ("grpo"). `examinations` are validations and the test, and
    `examining_seconds` the time of all of them."""

    stage: str
    steps: int
    episodes: float
    tokens_per_step: dict[str, float]
    seconds_per_step: dict[str, float]
    examinations: int
    examining_seconds: float
    hours: float
    memory: tuple[MemoryPhase, ...]
    room: KvRoom


class Generation(NamedTuple):
    """Who generates: so many GPUs, by vLLM or by transformers `batch` episodes at a time (None:
    all), with room for so many tokens of keys and values."""

    gpus: int
    vllm: Vllm | None
    batch: int | None
    kv_tokens: int


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
    def weight_bytes(self) -> int:
        """Bytes of the model that is trained: in float32 without an adapter."""
        model = self.recipe.model
        return self.shape.weight_bytes(32 if model.lora is None else model.bits)

    def activations(self, episodes: int, tokens: int) -> list[MemoryLine]:
        """What autograd keeps of one pass over so many episodes of so many tokens each."""
        shape, model, total = self.shape, self.recipe.model, episodes * tokens
        trained = "whole" if model.lora is None else "adapter"
        kept, work, mask = _AUTOGRAD[trained, model.checkpointing]
        widths = (shape.hidden, shape.intermediate, shape.kv_width)
        layer, once = (sum(map(mul, factors, widths)) for factors in (kept, work))
        tile = min(total, TILE_TOKENS) * min(shape.vocabulary, TILE_VOCABULARY) * 2
        inputs = "inputs of the layers" if model.checkpointing else "activations"
        recomputed = "a layer computed anew" if model.checkpointing else "on the way back"
        how = f"{episodes} x {tokens:,} tokens, {shape.layers} layers of {layer / 1e3:.0f} kB"
        in_work = round(total * once + episodes * tokens**2 * mask)
        # The gradient of what goes into the logits is in float32.
        logits = tile + total * shape.hidden * 4
        lines = [
            MemoryLine(inputs, round(total * shape.layers * layer), how),
            MemoryLine(recomputed, in_work, f"{once / 1e3:.0f} kB a token"),
            MemoryLine("logits", logits, "a tile, and gradients behind it"),
        ]
        if model.lora is None:
            how = "copies that autocast multiplies by"
            lines.append(MemoryLine("weights in bfloat16", 2 * shape.linear, how))
        if model.bits == 4:
            decoded, how = (
                2 * shape.hidden * shape.intermediate,
                "the largest, from NF4 to bfloat16",
            )
            lines.append(MemoryLine("a matrix decoded", decoded, how))
        return lines

    def training_memory(
        self, episodes: int, tokens: int, vllm: Vllm | None = None, processes: int = 1
    ) -> MemoryPhase:
        """While weights are trained, with `episodes` of `tokens` tokens in a pass."""
        gradients = 4 * (self.lora_weights or self.shape.parameters)
        lines = [*self._own(), MemoryLine("gradients", gradients, "4 bytes a trained weight")]
        if processes > 1:
            lines.append(MemoryLine("gradients to share", gradients, "buckets of DDP"))
        lines += self.activations(episodes, tokens)
        if vllm is not None and vllm.mode == "colocate" and vllm.sleep:
            how = "its graphs and buffers (assumed)"
            lines.append(MemoryLine("vLLM asleep", VLLM_OWN_BYTES, how))
        elif vllm is not None and vllm.mode == "colocate":
            share, how = round(vllm.memory * self.gpu.memory), "of the GPU: sleep is off"
            lines.append(MemoryLine("vLLM awake", share, f"{vllm.memory:g} {how}"))
        return self._phase("while weights are trained", lines)

    def generating_memory(
        self, at_once: int, tokens: int, vllm: Vllm | None = None
    ) -> tuple[MemoryPhase, KvRoom]:
        """While rollouts are generated on a GPU that trains too, `at_once` episodes of `tokens`
        tokens at a time: by transformers, or by vLLM beside the weights that are trained."""
        name, shape = "while rollouts are generated", self.shape
        if vllm is not None:
            lines, room = self._vllm_share(vllm.memory, at_once, tokens)
            return self._phase(name, [*self._own(), *lines]), room
        # One layer's keys and values are there twice.
        keys = tokens * shape.kv_bytes + tokens * shape.kv_bytes // shape.layers
        # The longest prompt is the last of an episode; an adapter's input is in float32.
        prefill = 2 * (4 * shape.hidden + 3 * shape.intermediate)
        prefill += 4 * shape.intermediate if self.recipe.model.lora is not None else 0
        prefill *= tokens
        how = f"{at_once} episodes of {tokens:,} tokens, {shape.kv_bytes:,} bytes each"
        lines = [
            *self._own(),
            MemoryLine("keys and values", at_once * keys, f"{how}; one layer twice"),
            MemoryLine("reading prompts", at_once * prefill, "a layer, without gradients"),
        ]
        phase = self._phase(name, lines)
        fit = max(0, phase.left // (keys + prefill) + at_once)
        return phase, KvRoom(fit * tokens, fit, at_once)

    def serving_memory(self, at_once: int, tokens: int) -> tuple[MemoryPhase, KvRoom]:
        """A GPU that vLLM's server has for itself."""
        lines, room = self._vllm_share(SERVER_SHARE, at_once, tokens)
        return self._phase("vLLM's server", lines), room

    def _own(self) -> list[MemoryLine]:
        """What a GPU that trains always holds."""
        shape, model = self.shape, self.recipe.model
        trained, how = self.lora_weights or shape.parameters, count_of(shape.parameters)
        if model.lora is None:
            how += ", 4 bytes each: all of them are trained, in float32"
        elif model.bits == 4:
            rest = count_of(shape.parameters - shape.linear)
            how = f"{count_of(shape.linear)} in NF4, {rest} in bfloat16"
        else:
            how += ", 2 bytes each"
        lines = [MemoryLine("weights", self.weight_bytes, how)]
        if model.lora is not None:
            how = f"{count_of(trained)} of rank {model.lora.rank}, 4 bytes each"
            lines.append(MemoryLine("adapter", 4 * trained, how))
        lines.append(MemoryLine("AdamW", 8 * trained, "two moments, 8 bytes a trained weight"))
        return [*lines, MemoryLine("CUDA and the allocator", CONTEXT_BYTES, "assumed")]

    def _phase(self, name: str, lines: list[MemoryLine]) -> MemoryPhase:
        size = sum(each.size for each in lines)
        return MemoryPhase(name, tuple(lines), size, self.gpu.memory - size)

    def _vllm_share(
        self, share: float, at_once: int, tokens: int
    ) -> tuple[list[MemoryLine], KvRoom]:
        """vLLM takes its whole share: keys and values get what weights and work leave."""
        shape, weights = self.shape, self.shape.weight_bytes(16)
        work = VLLM_BATCH_TOKENS * 2 * (4 * shape.hidden + 3 * shape.intermediate)
        work += at_once * shape.vocabulary * 4 * 2
        left = max(0, round(share * self.gpu.memory) - weights - work - VLLM_OWN_BYTES)
        kv_tokens = left // shape.kv_bytes
        at_work = f"{VLLM_BATCH_TOKENS:,} tokens at once, {at_once} rows of logits"
        rest = f"the rest of its share, {share:g} of the GPU; {shape.kv_bytes:,} bytes a token"
        lines = [
            MemoryLine("vLLM: weights", weights, f"{count_of(shape.parameters)}, 2 bytes each"),
            MemoryLine("vLLM: work", work, at_work),
            MemoryLine("vLLM: its own", VLLM_OWN_BYTES, "graphs and buffers (assumed)"),
            MemoryLine("vLLM: keys and values", left, rest),
        ]
        return lines, KvRoom(kv_tokens, kv_tokens // tokens, at_once)

    def training_seconds(
        self, episodes: float, length: float, batch: int, scorings: int = 0
    ) -> float:
        """Seconds to learn from so many episodes of a mean `length` on one GPU, `batch` in a pass;
        `scorings` more forward passes only score them."""
        model, shape = self.recipe.model, self.shape
        share = TRAIN_SHARE_4BIT if model.bits == 4 else TRAIN_SHARE
        compute = shape.forward_flops(episodes * length, length) / (self.gpu.tflops * 1e12 * share)
        layer = PASS_LAYER_S + (PASS_ADAPTER_S if model.lora is not None else 0)
        # A forward pass alone waits a third of what one with its backward pass waits.
        launches = shape.layers * layer * math.ceil(episodes / batch) / 3
        # The backward pass costs one more with an adapter, else two; recomputing costs one more.
        passes = 1 + (1 if model.lora is not None else 2) + model.checkpointing
        return (passes + scorings) * max(compute, launches)

    def generating_seconds(self, episodes: float, by: Generation) -> float:
        """Seconds until all episodes have ended."""
        shape, gpu, episode = self.shape, self.gpu, self.episode
        mine = episodes / by.gpus
        rounds = min(self.recipe.episode.max_turns, LONGEST * episode.turns)
        going = mine * episode.turns / rounds
        held = going * (episode.prompt_tokens + episode.tokens) / 2
        rate, bandwidth = gpu.tflops * 1e12 * READ_SHARE, gpu.gb_per_second * 1e9 * DECODE_SHARE
        if by.vllm is not None:
            # What has no room waits for it, and is read again at the next turn.
            waves = max(1.0, held / max(by.kv_tokens, 1))
            again = max(0.0, (episode.all_prompts - episode.tokens) * (1 - 1 / waves))
            read = shape.forward_flops(mine * (episode.tokens + again), episode.tokens) / rate
            carried = shape.weight_bytes(16) + held / waves * shape.kv_bytes
            turn = self._longest(going / waves) + (waves - 1) * episode.own_tokens / episode.turns
            return read + rounds * turn * (VLLM_STEP_S + carried / bandwidth)
        # Without vLLM every turn reads the whole episode again, and every token waits for Python.
        read = shape.forward_flops(mine * episode.all_prompts, episode.tokens) / rate
        at_once = min(mine, by.batch or mine)
        waves = max(1.0, going / at_once)
        adapter = 0 if self.recipe.model.lora is None else ADAPTER_S
        carried = self.weight_bytes + held / waves * shape.kv_bytes
        token = max(shape.layers * (LAYER_S + adapter), carried / bandwidth)
        return read + rounds * waves * self._longest(min(going, at_once)) * token

    def _longest(self, turns: float) -> float:
        """Tokens of the longest of so many turns that are generated together."""
        mean = self.episode.own_tokens / self.episode.turns
        longest = mean * (1 + 0.5 * math.log(max(1.0, turns)))
        return min(float(self.recipe.episode.turn_tokens), longest)

    def _transfer_seconds(self, vllm: Vllm | None) -> float:
        """Seconds for all weights on their way to vLLM, once a step."""
        sent = self.shape.weight_bytes(16)
        if vllm is None:
            return 0.0
        if vllm.mode == "server":
            return sent / TO_SERVER_RATE
        return (WAKE_S if vllm.sleep else 0.0) + sent / IN_PROCESS_RATE

    def sft_plan(self, sft: Sft) -> StagePlan:
        """The warm start on one GPU; transformers generates its validations."""
        recipe = self.recipe
        stages = [(stage, *_part_tokens(recipe, stage.part)) for stage in sft.stages]
        tokens = sum(stage.steps * stage.batch * mean for stage, mean, _ in stages)
        training = sum(
            stage.steps * self.training_seconds(stage.batch, mean, stage.batch)
            for stage, mean, _ in stages
        )
        # The pass that takes the most memory.
        largest, _, longest = max(stages, key=lambda each: each[0].batch * each[2])
        batch = (recipe.grpo.generate_batch if recipe.grpo else None) or BATCH
        at_once = min(batch, recipe.judging.questions)
        generating, room = self.generating_memory(at_once, recipe.episode.episode_tokens)
        return self._stage_plan(
            sft,
            Generation(1, None, batch, room.kv_tokens),
            episodes=sum(stage.steps * stage.batch for stage in sft.stages) / sft.steps,
            tokens_per_step={"generated": 0.0, "read": 0.0, "trained_on": tokens / sft.steps},
            seconds_per_step={"training": training / sft.steps},
            memory=(generating, self.training_memory(largest.batch, longest)),
            room=room,
        )

    def grpo_plan(self, grpo: Grpo, train: int, serve: int) -> StagePlan:
        """GRPO on `train` GPUs, with `serve` more for vLLM's server."""
        recipe, episode, vllm = self.recipe, self.episode, grpo.vllm
        episodes, tokens = grpo.questions * grpo.rollouts, recipe.episode.episode_tokens
        mine, at_once = episodes / train, episodes // train
        if vllm is None:
            # A validation asks its questions at the same time as well.
            at_once = max(at_once, min(AT_ONCE, recipe.judging.questions))
            at_once = min(grpo.generate_batch or at_once, at_once)
        if serve:
            generating, room = self.serving_memory(-(-episodes // serve), tokens)
        else:
            generating, room = self.generating_memory(at_once, tokens, vllm)
        by = Generation(serve or train, vllm, grpo.generate_batch, room.kv_tokens)
        # TRL scores vLLM's tokens again; a KL term takes the same of the model as it began.
        scorings = (vllm is not None) + (grpo.beta > 0)
        reads = episode.all_prompts if vllm is None else episode.tokens - episode.own_tokens
        return self._stage_plan(
            grpo,
            by,
            episodes=float(episodes),
            tokens_per_step={
                "generated": episodes * episode.own_tokens,
                "read": episodes * reads,
                "trained_on": episodes * episode.tokens,
            },
            seconds_per_step={
                "generating": self.generating_seconds(episodes, by),
                "training": self.training_seconds(mine, episode.tokens, grpo.micro_batch, scorings),
                "weights to vLLM": self._transfer_seconds(vllm),
                "tools": mine * episode.turns * TOOLS_S,
                "judges": JUDGE_S if is_paid(recipe.judging.reward) else 0.0,
            },
            memory=(generating, self.training_memory(grpo.micro_batch, tokens, vllm, train)),
            room=room,
        )

    def _stage_plan(
        self, table: Sft | Grpo, by: Generation, seconds_per_step: dict[str, float], **fields: Any
    ) -> StagePlan:
        """The plan with its validations and the test, which is asked twice."""
        judging, tools = self.recipe.judging, self.episode.turns * TOOLS_S
        beside = self._transfer_seconds(by.vllm)
        if is_paid(judging.reward) or is_paid(judging.validation):
            beside += JUDGE_S
        validations = _validations(table)
        examining = sum(
            times * (self.generating_seconds(questions, by) + questions * tools + beside)
            for times, questions in ((validations, judging.questions), (2, judging.test_questions))
        )
        return StagePlan(
            stage="grpo" if isinstance(table, Grpo) else "sft",
            steps=table.steps,
            seconds_per_step=seconds_per_step,
            examinations=validations + 1,
            examining_seconds=examining,
            hours=(table.steps * sum(seconds_per_step.values()) + examining) / 3600,
            **fields,
        )


# ---- The plan.


@dataclass(frozen=True)
class TrainingPlan:
    """What a recipe takes, as `--json` prints it: sizes in bytes, times in seconds or hours. It
    fits if there are no `faults`; `judge_usd` is None if a price is unknown."""

    recipe: str
    model: str
    parameters: int
    kv_bytes_per_token: int
    lora_parameters: int
    gpu: str
    gpus: dict[str, int]
    memory_bytes: int
    usd_per_hour: float
    episode: EpisodeTokens
    stages: tuple[StagePlan, ...]
    hours: float
    gpu_usd: float
    judges: tuple[JudgeFee, ...]
    judge_usd: float | None
    max_cost_usd: float | None
    faults: list[str]
    assumed: tuple[str, ...] = ASSUMED

    def row(self) -> dict[str, Any]:
        """The plan as JSON."""
        return {**asdict(self), "fits": not self.faults}


def plan(
    recipe: Recipe,
    gpu: Gpu,
    *,
    count: int = 1,
    usd_per_hour: float | None = None,
    episode: EpisodeTokens | None = None,
) -> TrainingPlan:
    """The plan of a recipe on `count` GPUs; `episode` is what a run's episodes had.

    GPUs are divided between training and vLLM's server in the fastest way that fits. Raises
    `UserError` if the work can't be divided among them.
    """
    shape = shape_of(recipe.model)
    estimator = Estimator(recipe, shape, gpu, episode or expected_episode(recipe))
    fees = tuple(judge_fees(recipe, estimator.episode))
    paid = [fee.usd for fee in fees if fee.usd is not None]
    usd = gpu.usd_per_hour if usd_per_hour is None else usd_per_hour

    def planned(train: int) -> TrainingPlan:
        stages = [] if recipe.sft is None else [estimator.sft_plan(recipe.sft)]
        if recipe.grpo is not None:
            stages.append(estimator.grpo_plan(recipe.grpo, train, count - train))
        hours = sum(stage.hours for stage in stages)
        return TrainingPlan(
            recipe=recipe.name,
            model=recipe.model.base or "made from nothing",
            parameters=shape.parameters,
            kv_bytes_per_token=shape.kv_bytes,
            lora_parameters=estimator.lora_weights,
            gpu=gpu.name,
            gpus={"train": train, "serve": count - train},
            memory_bytes=gpu.memory,
            usd_per_hour=usd,
            episode=estimator.episode,
            stages=tuple(stages),
            hours=hours,
            gpu_usd=hours * count * usd,
            judges=fees,
            judge_usd=sum(paid) if len(paid) == len(fees) else None,
            max_cost_usd=recipe.judging.max_cost_usd,
            faults=list(_faults(stages, recipe.episode.episode_tokens)),
        )

    plans = map(planned, _divisions(recipe.grpo, count))
    return min(plans, key=lambda each: (bool(each.faults), each.hours))


def _divisions(grpo: Grpo | None, count: int) -> list[int]:
    """How many of the GPUs may train; vLLM's server gets the others."""
    if grpo is None:
        return [count]
    served = grpo.vllm is not None and grpo.vllm.mode == "server"
    if served and count < 2:
        raise UserError("vLLM's server needs GPUs beside those that train: --gpus 2 or more")
    candidates = range(1, count) if served else (count,)
    divisions = [
        train
        for train in candidates
        if not grpo.questions % train
        and not grpo.questions // train * grpo.rollouts % grpo.micro_batch
    ]
    if divisions:
        return divisions
    raise UserError(
        f"{grpo.questions} questions of {grpo.rollouts} episodes, {grpo.micro_batch} in a"
        f" pass, can't be divided among {count} GPUs: set grpo.questions or grpo.micro_batch"
    )


def _faults(stages: list[StagePlan], tokens: int) -> Iterator[str]:
    """Why it does not fit."""
    for stage in stages:
        for phase in stage.memory:
            if phase.left < 0:
                yield f"{stage.stage}, {phase.phase}: {-phase.left / 1e9:.1f} GB too much"
        if stage.room.whole_episodes < 1:
            yield f"{stage.stage}: one whole episode of {tokens:,} tokens has no room"


def count_of(number: int) -> str:
    """A large number in words: 14.77 billion, 68.8 million."""
    return f"{number / 1e9:.2f} billion" if number >= 1e9 else f"{number / 1e6:.1f} million"


# ---- A run beside its plan.


def compared(planned: TrainingPlan, run: Run) -> list[dict[str, Any]]:
    """What is planned beside what a training run reported, line by line; None if it is unknown."""
    stage = next((each for each in planned.stages if each.stage == run.config["kind"]), None)
    if stage is None:
        return []
    name = "generated" if stage.stage == "grpo" else "trained_on"
    largest = max(phase.bytes for phase in stage.memory)
    # A run's seconds have its validations among them, and not yet its test.
    seconds = sum(stage.seconds_per_step.values()) + stage.examining_seconds / stage.steps
    usd = None if planned.judge_usd is None else planned.judge_usd / stage.steps
    made, means = 0, list[float | None]([None] * 3)
    if steps := read_steps(run.folder):
        made, last = steps[-1].step, steps[-1]
        means = [each / made for each in (last.tokens, last.seconds, last.cost_usd)]
    peak = run.metrics.get("peak_memory_bytes") if run.complete else None
    rows = (
        ("steps", stage.steps, made),
        (f"tokens a step, {name.replace('_', ' ')}", stage.tokens_per_step[name], means[0]),
        ("seconds a step, with validations", seconds, means[1]),
        ("most memory in use, GB", largest / 1e9, None if peak is None else peak / 1e9),
        ("judges a step, USD", usd, means[2]),
    )
    return [{"what": what, "planned": mine, "reported": its} for what, mine, its in rows]


def measured_episode(run: Run) -> EpisodeTokens | None:
    """The mean training episode of a run; None if it has no episodes yet.

    Lengths are not on record, but prompts of an episode grow about evenly from turn to turn: by how
    much follows from longer and shorter episodes.
    """
    if not run.trajectories.is_file() or not run.trajectories.stat().st_size:
        return None
    # Episodes of validations are in no group.
    trained = [
        each.trajectory
        for each in load_run(run)
        if "group" in each.trajectory.policy and each.trajectory.rubric["turns"]
    ]
    if not trained:
        return None
    facts = [each.rubric for each in trained]
    turns = fmean(each["turns"] for each in facts)
    own = fmean(each["completion_tokens"] for each in facts)
    before = [(each["turns"] - 1) / 2 for each in facts]
    prompts = [each["prompt_tokens"] / each["turns"] for each in facts]
    slope = 0.0 if len(set(before)) == 1 else linear_regression(before, prompts).slope
    # At least by what the model wrote itself.
    grows = max(own / turns, slope)
    prompt = max(1.0, fmean(prompts) - grows * fmean(before))
    length = prompt + grows * (turns - 1) + own / turns
    reads = fmean(len(each.mails_read) for each in trained)
    return EpisodeTokens(turns, prompt, own, length, reads, f"{len(facts)} episodes of the run")
