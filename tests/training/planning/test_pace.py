"""Seconds, against operations and bytes counted by hand."""

import pytest
from torch.utils.flop_counter import FlopCounterMode

from tests.training.planning.live_memory import model_of
from training.planning.cards import card_of
from training.planning.footprint import Trained
from training.planning.geometry import PUBLISHED, Shape
from training.planning.pace import (
    DECODE_SHARE,
    TRAIN_SHARE,
    Generators,
    generating_seconds,
    pass_flops,
    passes_of,
    training_seconds,
    transfer_seconds,
)
from training.planning.workload import EpisodeTokens
from training.recipe import Lora, ModelTable, Vllm

BASE = "Qwen/Qwen2.5-14B-Instruct"
H100 = card_of("h100-80gb")
TALK = Trained(PUBLISHED["14B"], ModelTable(base=BASE, lora=Lora(), checkpointing=True))
TOLD = EpisodeTokens(5, 700, 200, 4_500, 1.5, "")
VLLM = Vllm(mode="server")
FORM = (10, 2_048)


def test_operations_are_those_that_torch_counts() -> None:
    import torch

    shape = Shape(4, 512, 1_536, 8, 2, 1_000, tied=False)
    model = model_of(shape)
    tokens = 256
    with FlopCounterMode(display=False) as counter:
        model(input_ids=torch.zeros(1, tokens, dtype=torch.long, device="meta"))
    # torch counts all of the attention, of which the causal half is worked out.
    attention = shape.layers * 2 * 2 * tokens**2 * shape.hidden
    counted = counter.get_total_flops() - attention / 2
    assert pass_flops(shape, tokens, tokens) == pytest.approx(counted, rel=0.01)


def test_passes() -> None:
    whole = ModelTable(base=BASE)
    assert passes_of(Trained(PUBLISHED["14B"], whole)) == 3
    anew = whole.model_copy(update={"checkpointing": True})
    assert passes_of(Trained(PUBLISHED["14B"], anew)) == 4
    # What is frozen needs no gradients of its own.
    assert passes_of(TALK) == 3


def test_learning_takes_the_operations_at_the_assumed_rate() -> None:
    one = pass_flops(TALK.shape, 4_500, 4_500) / (989e12 * TRAIN_SHARE)
    took = training_seconds(TALK, H100, 48, 4_500, at_once=1, scored=1)
    assert took == pytest.approx(48 * 4 * one)


def test_a_tiny_model_waits_for_launches() -> None:
    tiny = Trained(Shape(3, 128, 384, 2, 2, 4_000, tied=True), ModelTable(base=BASE))
    slow, fast = (
        training_seconds(tiny, H100, 128, 165, at_once=size, scored=0) for size in (1, 128)
    )
    assert slow == pytest.approx(128 * fast, rel=0.01)


def test_vllm_reads_weights_and_keys_for_each_token() -> None:
    by = Generators(H100, 1, VLLM, None, 10_000_000)
    took = generating_seconds(TALK, by, 1, TOLD, FORM)
    read = pass_flops(TALK.shape, 4_500, 4_500) / (989e12 * 0.45)
    held = 0.5 * (700 + 4_500) / 2 * 196_608
    token = 0.005 + (29.54e9 + held) / (3.35e12 * DECODE_SHARE)
    # One episode has ten rounds at most, half of them its own, of 40 tokens each.
    assert took == pytest.approx(read + 10 * 40 * token, rel=0.01)


def test_less_room_for_keys_takes_longer() -> None:
    took = [
        generating_seconds(TALK, Generators(H100, 1, VLLM, None, room), 48, TOLD, FORM)
        for room in (1_000_000, 40_000, 10_000)
    ]
    assert took == sorted(took)
    assert took[0] < took[-1]


def test_more_cards_generate_sooner_and_smaller_batches_later() -> None:
    def by(gpus: int, batch: int | None, vllm: Vllm | None) -> float:
        generators = Generators(H100, gpus, vllm, batch, 1_000_000)
        return generating_seconds(TALK, generators, 48, TOLD, FORM)

    assert by(2, None, VLLM) < by(1, None, VLLM) < by(1, None, None)
    assert by(1, 24, None) < by(1, 6, None) < by(1, 1, None)


def test_weights_on_their_way() -> None:
    shape = PUBLISHED["14B"]
    assert transfer_seconds(shape, None) == 0
    asleep, awake = (
        transfer_seconds(shape, Vllm(mode="colocate", sleep=sleep)) for sleep in (True, False)
    )
    assert asleep - awake == pytest.approx(2)
    assert transfer_seconds(shape, VLLM) == pytest.approx(29.54e9 / 5e9, rel=0.01)
