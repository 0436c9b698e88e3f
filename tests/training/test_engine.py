"""Our sampler and optimizers, and what goes to TRL's trainer and to vLLM."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR
from transformers import GenerationConfig, Qwen2ForCausalLM, Qwen2Tokenizer
from trl.trainer import utils

from tests.tiny_qwen import END, END_OF_TEXT, make_model, make_tokenizer
from training.engine import Sampler, adapter_weights
from training.optimizer import (
    LogitScaleAdamW,
    MuonAdamW,
    optimizer_of,
    own_tokens_scored,
    packed,
    scored_packed,
)
from training.processes import quiet
from training.start import keep_exact, start_of

TEXTS = ["When does the lease of the harbor office end?", "Who pays?", "The crane costs a lot."]


@pytest.fixture(scope="module")
def words() -> Qwen2Tokenizer:
    return make_tokenizer(TEXTS, vocabulary=300)


@pytest.fixture(scope="module")
def model(words: Qwen2Tokenizer) -> Qwen2ForCausalLM:
    return trainable(words)


def trainable(words: Qwen2Tokenizer) -> Qwen2ForCausalLM:
    """New weights as a run begins with them, whatever their generation config was published as."""
    model = start_of(make_model(words, hidden=16, layers=1), words).model
    assert isinstance(model, Qwen2ForCausalLM)
    return model


@pytest.fixture(scope="module")
def prompts(words: Qwen2Tokenizer) -> list[list[int]]:
    return [list(words.encode(each)) for each in TEXTS]


def sampler(
    model: Qwen2ForCausalLM, words: Qwen2Tokenizer, turn: int = 8, **options: Any
) -> Sampler:
    ids = words.get_vocab()
    settings: dict[str, Any] = {"temperature": 1.0, "seed": 0, **options}
    return Sampler(model, ids[END], ids[END_OF_TEXT], turn, **settings)


def test_the_same_seed_gives_the_same_turns_and_disturbs_nobodys_random_numbers(
    model: Qwen2ForCausalLM, words: Qwen2Tokenizer, prompts: list[list[int]]
) -> None:
    first = sampler(model, words).turns(prompts)
    torch.manual_seed(7)
    undisturbed = torch.rand(3)
    torch.manual_seed(7)
    assert sampler(model, words).turns(prompts) == first
    assert torch.equal(torch.rand(3), undisturbed)
    assert sampler(model, words, seed=1).turns(prompts) != first


def test_greedy_turns_are_the_likeliest_tokens(
    model: Qwen2ForCausalLM, words: Qwen2Tokenizer, prompts: list[list[int]]
) -> None:
    """Each by itself, so that neither padding nor the order of batches plays a part."""
    turns = sampler(model, words, temperature=0.0, batch=2).turns(prompts)
    for prompt, turn in zip(prompts, turns, strict=True):
        ids = list(prompt)
        for token in turn.ids:
            with torch.no_grad():
                logits = model(input_ids=torch.tensor([ids])).logits[0, -1]
            assert token == int(logits.argmax())
            ids.append(token)
        assert turn.logprobs is None


def test_a_turn_ends_with_its_mark_or_at_its_limit(
    model: Qwen2ForCausalLM, words: Qwen2Tokenizer, prompts: list[list[int]]
) -> None:
    """New weights sample any token: some turns come to an end, others are cut off."""
    turns = [turn.ids for turn in sampler(model, words, turn=120).turns(prompts * 12)]
    end = words.get_vocab()[END]
    ended = [turn for turn in turns if turn[-1] == end]
    assert ended
    # The padding behind an end mark is no part of the turn.
    assert all(turn.index(end) == len(turn) - 1 for turn in ended)
    assert {len(turn) for turn in turns if turn[-1] != end} == {120}


def test_a_start_samples_what_is_trained_whatever_was_published(words: Qwen2Tokenizer) -> None:
    """Qwen2.5-Instruct is published with a penalty, and with two ends of which one ends a turn."""
    published = make_model(words, hidden=16, layers=1)
    ends = [words.get_vocab()[each] for each in (END, END_OF_TEXT)]
    published.generation_config = GenerationConfig.from_dict(
        {"repetition_penalty": 1.05, "top_p": 0.8, "top_k": 20, "eos_token_id": ends}
    )
    config = start_of(published, words).model.generation_config
    assert config is not None
    assert config.eos_token_id == ends[0]
    assert [config.repetition_penalty, config.top_p, config.top_k] == [None] * 3


def test_own_tokens_are_scored_on_a_cpu_too() -> None:
    cpu, module = torch.device("cpu"), cast("Any", utils)
    before = module._use_triton
    assert not before(cpu)
    with own_tokens_scored():
        assert module._use_triton(cpu)
    assert module._use_triton is before


Rows = list[tuple[list[int], list[int]]]
TOKENS = st.lists(st.integers(1, 9), min_size=1, max_size=12)


def buffered(rows: Rows, parts: int) -> list[dict[str, Any]]:
    """A step's rows as TRL pads and buffers them, each with its number from 1 as its advantage."""
    prompts = [torch.tensor(prompt).flip(0) for prompt, _ in rows]
    completions = [torch.tensor(completion) for _, completion in rows]
    left, right = (pad_sequence(each, batch_first=True) for each in (prompts, completions))
    whole = {
        "prompt_ids": left.flip(1),
        "prompt_mask": (left > 0).int().flip(1),
        "completion_ids": right,
        "completion_mask": (right > 0).int(),
        "tool_mask": right % 2,
        "advantages": torch.arange(1, len(rows) + 1, dtype=torch.float32),
    }
    cut = {name: each.chunk(parts) for name, each in whole.items()}
    return [
        {**{name: each[part] for name, each in cut.items()}, "num_items_in_batch": torch.tensor(7)}
        for part in range(parts)
    ]


@given(
    st.lists(st.tuples(TOKENS, TOKENS), min_size=4, max_size=4),
    st.sampled_from([(1, 1), (2, 1), (4, 1), (2, 2), (4, 2), (4, 4)]),
)
def test_packed_rows_are_the_same_rows_without_padding(rows: Rows, shape: tuple[int, int]) -> None:
    parts, minibatches = shape
    found, lengths = dict[int, tuple[list[int], list[int]]](), []
    batches = packed(buffered(rows, parts), minibatches=minibatches)
    assert len(batches) == parts
    for batch in batches:
        assert batch["num_items_in_batch"] == 7
        assert len(batch["advantages"]) == 4 // parts
        # No column is padding in all rows.
        assert bool(batch["prompt_mask"].any(0).all())
        assert bool(batch["completion_mask"].any(0).all())
        for place, number in enumerate((batch["advantages"] - 1).int().tolist()):
            masks = [batch[f"{part}_mask"][place].bool() for part in ("prompt", "completion")]
            prompt = batch["prompt_ids"][place][masks[0]].tolist()
            completion = batch["completion_ids"][place][masks[1]].tolist()
            own = batch["tool_mask"][place][masks[1]].tolist()
            assert own == [each % 2 for each in completion]
            found[number] = (prompt, completion)
            lengths.append(len(prompt) + len(completion))
    assert [found[each] for each in range(4)] == rows
    size = 4 // minibatches
    for start in range(0, 4, size):
        # Within a minibatch, or the longest decides for the shortest.
        part = lengths[start : start + size]
        assert part == sorted(part)
        assert set(list(found)[start : start + size]) == set(range(start, start + size))


def test_rows_without_an_advantage_keep_one_token() -> None:
    rows = [([1, 2], [3, 4, 5]), ([1], [6, 7, 8, 9])]
    step = buffered(rows, 1)
    step[0]["advantages"][0] = 0.0
    [batch] = packed(step)
    lengths = dict(
        zip(batch["advantages"].tolist(), batch["completion_mask"].sum(1).tolist(), strict=True)
    )
    assert lengths == {0.0: 1, 2.0: 4}
    assert batch["num_items_in_batch"] == 7


def test_what_is_sent_of_an_adapter_is_what_peft_saves(
    words: Qwen2Tokenizer, tmp_path: Path
) -> None:
    """Folded into the weights of 16 bits it would be rounded away."""
    plain: Any = make_model(words, hidden=32, layers=1)
    config = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    with quiet():
        model: Any = get_peft_model(plain.to(torch.bfloat16), config)
    keep_exact(model)
    for name, each in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(each, std=1e-5)
    entered = []

    @contextmanager
    def gathered(weights: list[Tensor]) -> Iterator[None]:
        entered.extend(weights)
        yield

    sent = adapter_weights(model, gathered)
    model.save_pretrained(tmp_path, save_embedding_layers=False)
    saved = load_file(tmp_path / "adapter_model.safetensors")
    assert sent.keys() == saved.keys()
    assert all(torch.equal(each, saved[name]) for name, each in sent.items())
    assert len(entered) == len(sent) == 14
    model.base_model.model.model.layers[0].self_attn.q_proj.lora_A.default.weight.data.zero_()
    assert sent["base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"].any()


LENGTHS = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 9)), min_size=1, max_size=9)


@given(LENGTHS, st.integers(1, 4))
def test_rows_scored_in_short_batches_have_the_same_figures(
    lengths: list[tuple[int, int]], size: int
) -> None:
    rows = [
        (torch.arange(1, prompt + 1), torch.arange(1, own + 1) * 10 + place)
        for place, (prompt, own) in enumerate(lengths)
    ]
    left, right = max(len(prompt) for prompt, _ in rows), max(len(own) for _, own in rows)
    ids = torch.zeros(len(rows), left + right, dtype=torch.long)
    for place, (prompt, own) in enumerate(rows):
        ids[place, left - len(prompt) : left + len(own)] = torch.cat([prompt, own])
    passes: list[tuple[int, ...]] = []

    def score(ids: Tensor, mask: Tensor, kept: int) -> tuple[Tensor, Tensor | None, None]:
        """Each column behind the prompt: what stands there, and how much stood before it."""
        passes.append(tuple(ids.shape))
        before = (ids * mask).cumsum(1)
        return before[:, -kept:].float(), None, None

    found, entropies, _ = scored_packed(score, ids, (ids > 0).long(), right, size)
    own = ids[:, -right:] > 0
    assert torch.equal(found * own, ids.cumsum(1)[:, -right:].float() * own)
    assert entropies is None
    # No pass is wider than its own longest prompt and completion.
    order = sorted(range(len(rows)), key=lambda place: sum(lengths[place]))
    parts = [order[at : at + size] for at in range(0, len(order), size)]
    assert passes == [
        (len(part), max(lengths[each][0] for each in part) + max(lengths[each][1] for each in part))
        for part in parts
    ]


# ---- Optimizers: test_killed.py shows that a resumed one goes on as if never stopped.


def small() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(11, 6), nn.Linear(6, 5), nn.LayerNorm(5), nn.Linear(5, 3))


def train(model: nn.Module, optimizer: Optimizer, steps: int) -> None:
    for _ in range(steps):
        inputs, wanted = torch.randint(11, (16,)), torch.randint(3, (16,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), wanted).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def test_matrices_go_to_muon_and_embeddings_norms_and_biases_to_adamw() -> None:
    model = small()
    optimizer = optimizer_of(model, ratio=2.0)
    assert isinstance(optimizer, MuonAdamW)
    adamw, muon = optimizer.param_groups
    names = {id(each): name for name, each in model.named_parameters()}
    assert {names[id(each)] for each in muon["params"]} == {"1.weight", "3.weight"}
    assert {names[id(each)] for each in adamw["params"]} == {
        "0.weight", "1.bias", "2.weight", "2.bias", "3.bias",
    }  # fmt: skip
    assert (muon["lr"], adamw["lr"]) == (2.0, 1.0)


def test_a_tied_embedding_stays_with_adamw() -> None:
    model = nn.ModuleDict({"embed": nn.Embedding(11, 6), "head": nn.Linear(6, 11, bias=False)})
    model["head"].weight = model["embed"].weight
    # Nothing is left for Muon, which takes no empty list.
    assert type(optimizer_of(model, ratio=2.0)) is AdamW


def test_a_schedule_moves_both_halves() -> None:
    model = small()
    optimizer = optimizer_of(model, ratio=2.0)
    schedule = LambdaLR(optimizer, lambda step: 0.01 if step < 2 else 0.0)
    train(model, optimizer, 1)
    schedule.step()
    schedule.step()
    still = copy.deepcopy(model.state_dict())
    train(model, optimizer, 3)
    for name, value in model.state_dict().items():
        assert torch.equal(value, still[name]), name


class Head(nn.Module):
    """A norm and a head behind it, whose logits point the right way and are far too small."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm = nn.RMSNorm(8)
        self.head = nn.Linear(8, 4, bias=False)
        with torch.no_grad():
            self.norm.weight.copy_(torch.linspace(0.1, 0.2, 8))

    def forward(self, shown: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(shown))
        return logits


def test_logits_that_are_right_and_unsure_are_scaled_up_by_one_factor() -> None:
    head = Head()
    before = head.norm.weight.detach().clone()
    optimizer = LogitScaleAdamW([], head.norm.weight, rate=1.0, scale_rate=0.1)
    shown = torch.randn(64, 8)
    guessed = head(shown).argmax(-1)
    for _ in range(10):
        nn.functional.cross_entropy(head(shown), guessed).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    factors = head.norm.weight.detach() / before
    # Adam's steps are as long as the rate while the gradient keeps its sign.
    assert factors.log().tolist() == pytest.approx([1.0] * 8, rel=0.05)
