"""Plan the memory, hours and cost of GRPO by a recipe.

    art-e train plan --recipe talk --gpu h100-80gb

A plan is rough: memory within about 10 %, hours within a third. `NOTES` say where its numbers come
from. Planning needs no GPU, torch or network."""

import re
from dataclasses import dataclass
from typing import NamedTuple

from art_e.errors import UserError
from art_e.text import toml_table
from art_e.tools import MAX_RESULTS
from training.judging import JudgeFee, held_out_episodes, judge_fees
from training.recipe import AT_ONCE, HEAD_WIDTH, Grpo, ModelTable, Recipe


class Gpu(NamedTuple):
    """A GPU, as `hardware.toml` describes it."""

    gib: float  # memory, as CUDA reports it, in 2^30 bytes
    tflops: float  # dense bfloat16, in 10^12 FLOP/s
    gb_per_second: float  # memory bandwidth, in 10^9 bytes/s
    usd_per_hour: float


class Shape(NamedTuple):
    """A Qwen2's or Qwen3's shape; widths cover all heads, `tied` embeddings are output weights."""

    layers: int
    hidden: int  # width of the residual stream
    intermediate: int
    q_width: int
    kv_width: int  # less than `q_width` if several heads share keys and values (GQA)
    vocabulary: int
    tied: bool = False

    @property
    def linear(self) -> int:
        # Projections of q, k, v and attention's output; gate, up and down of the MLP.
        attention = 2 * (self.q_width + self.kv_width)  # weights per unit of `hidden`
        return self.layers * self.hidden * (attention + 3 * self.intermediate)

    @property
    def parameters(self) -> int:
        """Count all weights but norms and biases, which are below 0.1 %."""
        return self.linear + (1 if self.tied else 2) * self.vocabulary * self.hidden

    def lora_parameters(self, rank: int) -> int:
        """Count the weights of an adapter on all linear layers (peft's "all-linear")."""
        # A matrix of (inputs, outputs) gets (inputs, rank) and (rank, outputs).
        attention = 4 * self.hidden + 2 * (self.q_width + self.kv_width)  # inputs + outputs
        return self.layers * rank * (attention + 3 * (self.hidden + self.intermediate))


_KNOWN = toml_table("training", "hardware.toml")
GPUS = {name: Gpu(**fields) for name, fields in _KNOWN["gpus"].items()}
PUBLISHED = {name: Shape(**fields) for name, fields in _KNOWN["shapes"].items()}


def shape_of(model: ModelTable) -> Shape:
    """Return the shape of a recipe's model, by the size in its name. Raises `UserError`."""
    if (new := model.scratch) is not None:
        inner, heads = new.widening * new.hidden, new.heads * HEAD_WIDTH
        return Shape(new.layers, new.hidden, inner, heads, heads, new.vocabulary, tied=True)
    name = re.search(r"Qwen(2\.5|3)-[\d.]+B", model.base or "")
    if name is None or name[0] not in PUBLISHED:
        names = ", ".join(PUBLISHED)
        raise UserError(f"unknown shape of {model.base}: set model.base to one of {names}")
    return PUBLISHED[name[0]]


# Achieved shares of a GPU's bfloat16 rate and bandwidth, milliseconds a layer, seconds, bytes.
TRAIN_SHARE, TRAIN_SHARE_4BIT, SCORE_SHARE, READ_SHARE, DECODE_SHARE = 0.36, 0.25, 0.40, 0.45, 0.70
PASS_MS, LAYER_MS, VLLM_STEP_S, LONGEST, WAKE_BYTES_S = 2.7, 4.6, 0.005, 4.5, 25e9
CUDA_BYTES, VLLM_BYTES, SERVER_SHARE = 1e9, 1.5e9, 0.9  # two in bytes, a share of a server's GPU
# A strong model's mean episode on the 73 public questions: calls before its answer; tokens, by
# Qwen2.5's tokenizer, of the prompt with tools, calls, observations, and a frame around each.
SEARCHES, READS = 1.3, 1.5
PROMPT, SEARCH, READ, ANSWER, HITS, MAIL, FRAME = 602, 36, 23, 66, 616, 110, 19

NOTES = [each.format_map(globals()) for each in _KNOWN["notes"]]


class EpisodeTokens(NamedTuple):
    """A mean episode: its tokens, those of the prompt and of the model's turns, the mails read."""

    tokens: float
    prompt: float
    sampled: float
    reads: float


def expected_episode(recipe: Recipe) -> EpisodeTokens:
    """Return the recipe's expected mean episode, within its limits. For worlds it is the scripted
    expert's, by the tokenizers of nano and mini."""
    limits, worlds = recipe.episode, recipe.data.worlds
    if recipe.model.scratch is not None and worlds is not None:
        tokens: float = min(165 if worlds.short else 543, limits.episode_tokens)
        return EpisodeTokens(tokens, tokens / 3, 20, 1.1)
    sampled = SEARCHES * SEARCH + READS * READ + ANSWER
    observed = SEARCHES * HITS * limits.hits / MAX_RESULTS + READS * MAIL
    tokens = PROMPT + sampled + observed + (SEARCHES + READS) * FRAME
    return EpisodeTokens(min(tokens, limits.episode_tokens), PROMPT, sampled, READS)


@dataclass(frozen=True)
class TrainingPlan:
    """A recipe's needs: bytes of each GPU by phase and part, `room` for the keys and values of that
    many whole episodes, hours by part, seconds a batch. It fits if there are no `faults`."""

    recipe: str
    parameters: int
    trained_parameters: int
    gpu: str
    gpus: dict[str, int]
    memory: dict[str, dict[str, float]]
    room: float
    hours: dict[str, float]
    batch_seconds: float
    gpu_usd: float
    judges: list[JudgeFee]
    faults: list[str]


def plan(recipe: Recipe, gpu: str, count: int = 1) -> TrainingPlan:
    """Plan a recipe on `count` GPUs, half of them for vLLM's server if any. Raises `UserError`."""
    if gpu not in GPUS:
        raise UserError(f"unknown GPU {gpu!r}; choose one of {', '.join(GPUS)}")
    if (grpo := recipe.grpo) is None:
        raise UserError(f"the recipe {recipe.name} has no table [grpo] to plan; use another")
    by_server = grpo.vllm is not None and grpo.vllm.mode == "server"
    if by_server and count < 2:
        raise UserError("vLLM's server needs GPUs of its own: --gpus 2 or more")
    serve, price = count // 2 if by_server else 0, GPUS[gpu].usd_per_hour
    work = _Work(recipe, grpo, GPUS[gpu], count - serve, serve)
    memory, room = work.memory()
    hours = {part: value * recipe.runs for part, value in work.hours().items()}
    over = {name: sum(parts.values()) - work.bytes for name, parts in memory.items()}
    faults = [f"{name}: {size / 1e9:.2g} GB too much" for name, size in over.items() if size > 0]
    if room < 1:
        faults.append(f"no room for one whole episode of {recipe.episode.episode_tokens:,} tokens")
    return TrainingPlan(
        recipe.name, work.shape.parameters, work.trained, gpu,
        {"train": work.train, "serve": serve}, memory, room,
        hours, 3600 * (hours["total"] - hours["validations"]) / (grpo.batches * recipe.runs),
        hours["total"] * count * price, judge_fees(recipe, work.episode.reads), faults,
    )  # fmt: skip


class _Work:
    """A recipe's work on `train` GPUs that train and `serve` more that generate."""

    def __init__(self, recipe: Recipe, grpo: Grpo, gpu: Gpu, train: int, serve: int) -> None:
        grpo.passes(train)
        self.recipe, self.grpo, self.gpu, self.train, self.serve = recipe, grpo, gpu, train, serve
        self.shape, self.episode = shape_of(recipe.model), expected_episode(recipe)
        self.bytes, lora = gpu.gib * 2**30, recipe.model.lora
        self.trained = self.shape.lora_parameters(lora) if lora else self.shape.parameters
        # Episodes of a batch for each GPU, and how many are generated at a time.
        self.batch = self.at_once = grpo.questions * grpo.rollouts // (serve or train)
        if grpo.vllm is None:
            held_out = min(AT_ONCE, recipe.judging.questions)
            self.at_once = grpo.generate_batch or max(self.batch, held_out)

    def memory(self) -> tuple[dict[str, dict[str, float]], float]:
        """Return the bytes of a GPU by phase and part, and the number of episodes that fit."""
        shape, model, vllm = self.shape, self.recipe.model, self.grpo.vllm
        longest = self.recipe.episode.episode_tokens
        # Float32, or under an adapter bfloat16 or NF4 (linear layers); AdamW has two moments.
        held = {"weights": 4.0 * shape.parameters}
        if model.lora:
            saved = 1.484 * shape.linear if model.bits == 4 else 0  # 2 bytes - NF4's 4.127 bits
            held = {"weights": 2 * shape.parameters - saved, "adapter": 4.0 * self.trained}
        held |= {"AdamW": 8.0 * self.trained, "CUDA": CUDA_BYTES}
        keys = longest * 4 * shape.layers * shape.kv_width  # bytes per episode: K, V in bfloat16
        if vllm:
            weights, share = 2.0 * shape.parameters, SERVER_SHARE if self.serve else vllm.memory
            left = max(0.0, share * self.bytes - weights - VLLM_BYTES)
            parts = {"vLLM's weights": weights, "vLLM": VLLM_BYTES, "keys and values": left}
            generating, room = ({} if self.serve else held) | parts, left / keys
        else:
            # The cache grows by copying a layer at a time; the last turn's prompt is the longest.
            keys += keys // shape.layers
            prompt = longest * (8 * shape.hidden + (10 if model.lora else 6) * shape.intermediate)
            parts = {"keys and values": self.at_once * keys, "prompts": self.at_once * prompt}
            generating, room = held | parts, (self.bytes - sum(held.values())) / (keys + prompt)
        size = self._activations(self.grpo.micro_batch * longest)  # if all are of full length
        training = held | {"gradients": 4.0 * self.trained, "activations": size}
        if vllm and not self.serve:
            training["vLLM"] = VLLM_BYTES
        return {"generating": generating, "training": training}, room

    def _activations(self, tokens: float) -> float:
        """Return the bytes that autograd stores. Per token, a layer takes 36 per unit of its width
        and 9 per unit of its MLP's; if recomputed, its input, and one layer in full. Logits: TRL's
        tiles (4,096 x 32,768, bfloat16), float32 gradients. Whole weights add bfloat16 copies."""
        shape, model = self.shape, self.recipe.model
        layer, inputs = 36 * shape.hidden + 9 * shape.intermediate, 2 * shape.layers * shape.hidden
        stored = inputs + layer if model.checkpointing else shape.layers * layer  # bytes per token
        logits = 2 * min(tokens, 4_096) * min(shape.vocabulary, 32_768)
        copies = 0 if model.lora else 2 * shape.linear
        return tokens * (stored + 4 * shape.hidden) + logits + copies

    def hours(self) -> dict[str, float]:
        """Return the hours by part. A forward pass takes 2 FLOPs per weight and token."""
        shape, episode, model, grpo = self.shape, self.episode, self.recipe.model, self.grpo
        a_pass = 2 * shape.parameters / (self.gpu.tflops * 1e12) / 3600  # hours per token
        # A backward pass costs two forward ones, with an adapter one; recomputing costs one more.
        learning = a_pass * (2 + (not model.lora) + model.checkpointing)
        learning /= TRAIN_SHARE_4BIT if model.bits == 4 else TRAIN_SHARE
        # Without vLLM the trainer scores the batch first, if several minibatches use it.
        if grpo.vllm is None and grpo.minibatches > 1:
            learning += a_pass / SCORE_SHARE
        # Every pass waits for its kernel launches, however short it is.
        launches = shape.layers * PASS_MS / 1e3 / 3600 / grpo.micro_batch  # hours per episode
        # Every generated token reads weights, keys and values. On average 0.6 of an episode exists
        # while it grows; transformers reads that much again in each of four turns.
        there, generators = 0.6 * episode.tokens, self.serve or self.train
        held = 2 * shape.parameters + self.at_once / 2 * there * 4 * shape.layers * shape.kv_width
        token = held / (self.gpu.gb_per_second * 1e9 * DECODE_SHARE) + VLLM_STEP_S  # seconds a step
        token = token if grpo.vllm else max(token, shape.layers * LAYER_MS / 1e3)
        written = LONGEST * episode.sampled * token / 3600 / min(self.batch, 2 * self.at_once)
        # vLLM reads each token once, and a group's prompt once.
        read: float = 4 * there
        if grpo.vllm:
            read = episode.tokens - episode.prompt * (1 - 1 / grpo.rollouts)
        reading = read * a_pass / READ_SHARE
        rollout = (written + reading) / generators
        episodes = grpo.questions * grpo.rollouts * grpo.batches
        batches = episodes * written + grpo.asked * grpo.rollouts * grpo.batches * reading
        # A vLLM that sleeps while the model trains moves its weights to host memory and back.
        moved = 4 * shape.parameters if grpo.vllm and not self.serve else 0  # bytes, 2 each way
        hours = {
            "generating": batches / generators + grpo.batches * moved / WAKE_BYTES_S / 3600,
            "training": episodes * (episode.tokens * learning + launches) / self.train,
            "validations": held_out_episodes(self.recipe, grpo) * rollout,
        }
        if grpo.vllm and grpo.vllm.overlaps:
            hours["both at once"] = -min(hours["generating"], hours["training"])
        return {**hours, "total": sum(hours.values())}
