"""How long a step takes, from operations and bytes, and from shares of what a card could do.

Operations and bytes are counted. The shares, and what launches and servers add, are assumed: no
GPU was at hand when they were written (2026-11). `ASSUMED` is printed with every plan, and what a
run reports stands beside it. Knows nothing of memory and of money.
"""

import math
from dataclasses import dataclass

from training.planning.cards import Card
from training.planning.footprint import Trained
from training.planning.geometry import Shape
from training.planning.workload import EpisodeTokens
from training.recipe import Vllm

TRAIN_SHARE, TRAIN_SHARE_4BIT = 0.40, 0.30
READ_SHARE = 0.45
DECODE_SHARE = 0.70
# Of transformers' generation, seconds a token and a layer: Python and launches, which small batches
# wait for. A tiny Qwen2 on a CPU took 0.0001, and 0.0002 more with an adapter; launches cost more.
LAYER_S, ADAPTER_S = 0.0006, 0.0006
# The same of a pass forward and back.
PASS_LAYER_S, PASS_ADAPTER_S = 0.002, 0.002
# vLLM's own time a token, whatever the model.
VLLM_STEP_S = 0.005
# New weights to vLLM: in the process, where it also wakes and sleeps, and to a server.
WAKE_S, IN_PROCESS_RATE, TO_SERVER_RATE = 2.0, 10e9, 5e9
# A judge that is a model is asked about all episodes of a step at the same time.
JUDGE_S = 6.0
# An episode's own time a turn with a search or a read, measured on the real archive (README).
TOOLS_S = 0.0007
# Turns of the longest of many episodes, as so many times the mean.
LONGEST = 2.0

ASSUMED = (
    f"training runs at {TRAIN_SHARE:.0%} of the card's bfloat16 rate, with weights of 4 bits at"
    f" {TRAIN_SHARE_4BIT:.0%}",
    f"prompts are read at {READ_SHARE:.0%} of it; vLLM reads a token once as far as keys and values"
    " have room, transformers at every turn",
    f"tokens are generated at {DECODE_SHARE:.0%} of the card's bandwidth: weights, keys and values"
    " are read once for each",
    f"a token takes transformers at least {LAYER_S * 1e3:g} ms a layer, {ADAPTER_S * 1e3:g} ms more"
    f" with an adapter, and vLLM {VLLM_STEP_S * 1e3:g} ms",
    f"the longest episode of a step takes {LONGEST:g} times the mean's turns, and all wait for it",
    f"a judge that is a model takes {JUDGE_S:g} s a step: it is asked about all at the same time",
    f"weights go to vLLM at {IN_PROCESS_RATE / 1e9:g} GB/s and {WAKE_S:g} s in the process, at"
    f" {TO_SERVER_RATE / 1e9:g} GB/s to a server",
    "not counted: loading weights, making worlds and examples, checkpoints",
)


@dataclass(frozen=True, slots=True)
class Generators:
    """What generates: `gpus` cards, each for its part of the episodes; by vLLM, or by transformers
    at most `batch` episodes at a time (None: all)."""

    card: Card
    gpus: int
    vllm: Vllm | None
    batch: int | None
    kv_tokens: int


def pass_flops(shape: Shape, tokens: float, length: float) -> float:
    """Operations of a pass forward over `tokens` tokens of episodes of `length` each: two a weight,
    and attention to half of the episode in the mean."""
    attention = 2 * shape.layers * shape.hidden * length
    return tokens * (2 * shape.multiplied + attention)


def passes_of(trained: Trained) -> float:
    """Passes forward that learning from a token costs as much as: with an adapter the way back
    is one more, without it two; computing activations anew is one more."""
    back = 1 if trained.table.lora is not None else 2
    return 1 + back + (1 if trained.table.checkpointing else 0)


def training_seconds(
    trained: Trained, card: Card, episodes: float, length: float, *, at_once: int, scored: int
) -> float:
    """Seconds to learn from so many episodes of a mean `length` on one card, `at_once` in a pass;
    `scored` times they are passed forward alone before."""
    share = TRAIN_SHARE_4BIT if trained.table.bits == 4 else TRAIN_SHARE
    one = pass_flops(trained.shape, episodes * length, length) / (card.flops * share)
    each = PASS_LAYER_S + (PASS_ADAPTER_S if trained.table.lora is not None else 0)
    # A pass forward alone takes a third of what one with its way back waits for.
    launches = trained.shape.layers * each * math.ceil(episodes / at_once) / 3
    return (passes_of(trained) * max(one, launches)) + scored * max(one, launches)


def generating_seconds(
    trained: Trained, by: Generators, episodes: float, told: EpisodeTokens, form: tuple[int, int]
) -> float:
    """Seconds until `episodes` episodes have ended, all generators at work; `form` is the most
    turns and the most tokens of a turn."""
    most_turns, most_tokens = form
    mine = episodes / by.gpus
    rounds = min(most_turns, LONGEST * told.turns)
    going = mine * told.turns / rounds
    shape = trained.shape
    rate = by.card.flops * READ_SHARE
    held = going * (told.prompt + told.length) / 2
    if by.vllm is not None:
        # What has no room is read again at the next turn, and waits for room.
        waves = max(1.0, held / max(by.kv_tokens, 1))
        tokens = told.length + (told.prompts - told.length) * (1 - 1 / waves)
        read = pass_flops(shape, mine * max(tokens, told.length), told.length) / rate
        carried = shape.weight_bytes(16) + held / waves * shape.kv_bytes
        token = VLLM_STEP_S + carried / (by.card.bandwidth * DECODE_SHARE)
        turn = _longest(told.turn, going / waves, most_tokens) + (waves - 1) * told.turn
        return read + rounds * turn * token
    # Without vLLM every turn reads all of the episode again, and waits for Python at every token.
    read = pass_flops(shape, mine * told.prompts, told.length) / rate
    batch = min(mine, by.batch or mine)
    waves = max(1.0, going / batch)
    launches = shape.layers * (LAYER_S + (ADAPTER_S if trained.table.lora is not None else 0))
    carried = trained.weights.size + held / waves * shape.kv_bytes
    carried /= by.card.bandwidth * DECODE_SHARE
    token = max(launches, carried)
    return read + rounds * waves * _longest(told.turn, min(going, batch), most_tokens) * token


def transfer_seconds(shape: Shape, vllm: Vllm | None) -> float:
    """Seconds for all weights on their way to vLLM, once a step."""
    if vllm is None:
        return 0.0
    sent = shape.weight_bytes(16)
    if vllm.mode == "server":
        return sent / TO_SERVER_RATE
    return (WAKE_S if vllm.sleep else 0.0) + sent / IN_PROCESS_RATE


def _longest(mean: float, turns: float, most: int) -> float:
    """Tokens of the longest of so many turns that are generated together."""
    return min(float(most), mean * (1 + 0.5 * math.log(max(1.0, turns))))
