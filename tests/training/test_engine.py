"""Who generates: our sampler, and the private method of TRL that `Dispatch` leans on.

The contract tests fail where another TRL would break training: read them before raising its
pin. What stands here of vLLM is what TRL's code says; it was never run with vLLM itself.
"""

import inspect
from collections.abc import Iterator
from importlib import metadata
from typing import Any, cast

import pytest
import torch
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from torch.nn.utils.rnn import pad_sequence
from transformers import Qwen2ForCausalLM, Qwen2Tokenizer
from trl.trainer import utils
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from tests.tiny_qwen import END, END_OF_TEXT, make_model, make_tokenizer
from training.engine import Dispatch, Sampler, merged_weights
from training.optimizer import own_tokens_scored, packed
from training.processes import quiet
from training.rollout import Turn
from training.start import start_of

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
    first = sampler(model, words)(prompts)
    torch.manual_seed(7)
    undisturbed = torch.rand(3)
    torch.manual_seed(7)
    assert sampler(model, words)(prompts) == first
    assert torch.equal(torch.rand(3), undisturbed)
    assert sampler(model, words, seed=1)(prompts) != first


def test_greedy_turns_are_the_likeliest_tokens(
    model: Qwen2ForCausalLM, words: Qwen2Tokenizer, prompts: list[list[int]]
) -> None:
    """Each by itself, so that neither padding nor the order of batches plays a part."""
    turns = sampler(model, words, temperature=0.0, batch=2)(prompts)
    for prompt, turn in zip(prompts, turns, strict=True):
        ids = list(prompt)
        for token in turn.ids:
            with torch.no_grad():
                logits = model(input_ids=torch.tensor([ids])).logits[0, -1]
            assert token == int(logits.argmax())
            ids.append(token)
        assert turn.logprobs is None


def check_ends(turns: list[Turn], words: Qwen2Tokenizer, limit: int) -> None:
    """New weights sample any token: some turns come to an end, others are cut off."""
    end = words.get_vocab()[END]
    ended = [each.ids for each in turns if each.ids[-1] == end]
    assert ended
    # The padding behind an end mark is no part of the turn.
    assert all(each.index(end) == len(each) - 1 for each in ended)
    assert {len(each.ids) for each in turns if each.ids[-1] != end} == {limit}


def test_a_turn_ends_with_its_mark_or_at_its_limit(
    model: Qwen2ForCausalLM, words: Qwen2Tokenizer, prompts: list[list[int]]
) -> None:
    check_ends(sampler(model, words, turn=120)(prompts * 12), words, 120)


# The contract with TRL


@pytest.fixture
def _quiet() -> Iterator[None]:
    """As training does: transformers warns of names of its own that TRL still uses."""
    with quiet():
        yield


def test_the_pinned_version_is_installed() -> None:
    assert metadata.version("trl").startswith("1.16.")


@pytest.fixture(scope="module")
def trainer(
    words: Qwen2Tokenizer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GRPOTrainer]:
    """A trainer as `training.grpo` makes it, of a tiny Qwen2 on the CPU."""
    with quiet():
        yield GRPOTrainer(
            model=trainable(words),
            reward_funcs=[lambda completions, **_: [0.0] * len(completions)],
            args=GRPOConfig(
                output_dir=str(tmp_path_factory.mktemp("trainer")),
                per_device_train_batch_size=2,
                num_generations=2,
                max_completion_length=400,
                temperature=1.0,
                use_cpu=True,
                bf16=False,
                gradient_checkpointing=False,
                report_to="none",
                disable_tqdm=True,
            ),
            train_dataset=Dataset.from_list(
                [{"prompt": [{"role": "user", "content": each}]} for each in TEXTS]
            ),
            processing_class=words,
            rollout_func=lambda prompts, trainer: {},
        )


@pytest.mark.usefixtures("_quiet")
def test_a_turn_keeps_to_its_limit_and_ends_with_its_mark(
    trainer: Any, prompts: list[list[int]], words: Qwen2Tokenizer
) -> None:
    # TRL would give each turn the whole episode's budget.
    assert trainer.args.max_completion_length == 400
    generate = Dispatch(trainer, 100)
    assert trainer.generation_config.max_new_tokens == 100
    torch.manual_seed(0)
    turns = generate(prompts * 12)
    check_ends(turns, words, 100)
    assert all(each.logprobs is None for each in turns)


def test_it_samples_as_the_trainer_is_set(trainer: GRPOTrainer, prompts: list[list[int]]) -> None:
    config = trainer.generation_config
    assert config.do_sample
    assert config.temperature == 1.0
    assert config.top_p == 1.0
    assert not config.top_k
    # Qwen2.5-Instruct is published with a penalty, and with two ends of which one ends a turn.
    assert config.repetition_penalty == 1.0
    assert config.eos_token_id == [trainer.processing_class.get_vocab()[END]]  # type: ignore[union-attr]


def test_what_trl_asks_of_a_rollout_func() -> None:
    """It is called with prompts and the trainer, and what we add reaches the reward functions."""
    source = inspect.getsource(GRPOTrainer)
    assert "self.rollout_func(prompts, self)" in source
    assert "env_mask" in source
    rows = inspect.signature(GRPOTrainer._generate_and_score_completions).parameters
    assert list(rows) == ["self", "inputs"]


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
    """A step's rows as TRL pads and buffers them, each with its number as its advantage."""
    prompts = [torch.tensor(prompt).flip(0) for prompt, _ in rows]
    completions = [torch.tensor(completion) for _, completion in rows]
    left, right = (pad_sequence(each, batch_first=True) for each in (prompts, completions))
    whole = {
        "prompt_ids": left.flip(1),
        "prompt_mask": (left > 0).int().flip(1),
        "completion_ids": right,
        "completion_mask": (right > 0).int(),
        "tool_mask": right % 2,
        "advantages": torch.arange(len(rows), dtype=torch.float32),
    }
    cut = {name: each.chunk(parts) for name, each in whole.items()}
    return [
        {**{name: each[part] for name, each in cut.items()}, "num_items_in_batch": torch.tensor(7)}
        for part in range(parts)
    ]


@given(st.lists(st.tuples(TOKENS, TOKENS), min_size=4, max_size=4), st.sampled_from([1, 2, 4]))
def test_packed_rows_are_the_same_rows_without_padding(rows: Rows, parts: int) -> None:
    found, lengths = dict[int, tuple[list[int], list[int]]](), []
    for batch in packed(buffered(rows, parts)):
        assert batch["num_items_in_batch"] == 7
        assert len(batch["advantages"]) == 4 // parts
        # No column is padding in all rows.
        assert bool(batch["prompt_mask"].any(0).all())
        assert bool(batch["completion_mask"].any(0).all())
        for place, number in enumerate(batch["advantages"].int().tolist()):
            masks = [batch[f"{part}_mask"][place].bool() for part in ("prompt", "completion")]
            prompt = batch["prompt_ids"][place][masks[0]].tolist()
            completion = batch["completion_ids"][place][masks[1]].tolist()
            own = batch["tool_mask"][place][masks[1]].tolist()
            assert own == [each % 2 for each in completion]
            found[number] = (prompt, completion)
            lengths.append(len(prompt) + len(completion))
    assert [found[each] for each in range(4)] == rows
    assert lengths == sorted(lengths)


def test_an_adapter_is_folded_into_what_is_sent_and_not_into_the_model(
    words: Qwen2Tokenizer,
) -> None:
    """In bfloat16, where TRL's own way leaves other weights behind."""
    plain: Any = make_model(words, hidden=32, layers=1)
    plain = plain.to(torch.bfloat16)
    names = [name for name, _ in plain.named_parameters()]
    before = {name: each.clone() for name, each in plain.named_parameters()}
    config = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    with quiet():
        model: Any = get_peft_model(plain, config)
    for name, each in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(each, std=0.02)
    sent = [dict(merged_weights(model)) for _ in range(3)][-1]
    assert list(sent) == names
    own = {
        name.removeprefix("base_model.model.").replace(".base_layer", ""): each
        for name, each in model.named_parameters()
        if "lora_" not in name
    }
    assert all(torch.equal(own[name], before[name]) for name in names)
    for each in range(20):
        model.merge_adapter()
        if each == 0:
            merged = {name: value.clone() for name, value in own.items()}
        model.unmerge_adapter()
    # What is sent is what peft folds, to the last place, and some of it is another weight.
    for name in names:
        assert torch.allclose(sent[name].float(), merged[name].float(), rtol=2**-7, atol=1e-6)
    moved = [name for name in names if not torch.equal(sent[name], before[name])]
    assert len(moved) == 7
    # The reason for it all.
    assert any(not torch.equal(own[name], before[name]) for name in names)
