"""Merging: what is written says what model and adapter said together, or nothing is written."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, PreTrainedModel

from art_e.episode import Episode
from art_e.inbox.file import InboxFile
from art_e.models.base import ModelOptions, PolicyStep
from art_e.models.checkpoint import (
    base_of,
    best_checkpoint,
    load_checkpoint,
    load_tokenizer,
    meant_checkpoint,
    reloads_the_same,
)
from art_e.models.local import LocalPolicy
from art_e.tools import schemas
from tests import tiny_qwen
from tests.builders import BOB, QUESTION, answer, files_of, message, the_error
from tests.builders import read_episodes as read
from tests.builders import search_episodes as search
from tests.training.conftest import Begin
from training.export import merge

# peft asks transformers by an older name.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj", "gate_proj"]
SHORT = ModelOptions(max_output_tokens=40)
IDS = torch.tensor([[5, 6, 7, 8, 9, 10]])


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of random weights that ends a turn as its generation config says."""
    tokenizer = tiny_qwen.make_tokenizer(["When does the lease end?", tiny_qwen.stock_template()])
    model = tiny_qwen.make_model(tokenizer, hidden=32)
    assert model.generation_config is not None
    model.generation_config.repetition_penalty = 1.05
    return tiny_qwen.save(model, tokenizer, tmp_path_factory.mktemp("models") / "base")


@pytest.fixture(scope="module")
def trained(base: Path, inbox_file: InboxFile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter that has learnt from an episode for some steps."""
    episode = Episode(inbox_file.open_inbox(BOB), QUESTION)
    for calls in ([search("lease")], [read("m1")], [answer("May 3", "m1")]):
        episode.step(message(*calls))
    tokenizer = load_tokenizer(base, "base")
    model = adapted(base, r=8, target_modules=TARGETS)
    lesson = tiny_qwen.example(tokenizer, episode.messages, schemas())
    before = tiny_qwen.overfit(model, [lesson], steps=1)
    assert tiny_qwen.overfit(model, [lesson], steps=12, rate=1e-2) < 0.9 * before
    folder = tmp_path_factory.mktemp("adapters") / "lora"
    model.save_pretrained(str(folder))
    return folder


@pytest.fixture
def adapter(trained: Path, tmp_path: Path) -> Path:
    """The same in a training run's folder, to be spoilt."""
    return Path(shutil.copytree(trained, tmp_path / "run" / "checkpoints" / "checkpoint-12"))


def adapted(base: Path, **config: Any) -> Any:
    torch.manual_seed(1)
    model: Any = AutoModelForCausalLM.from_pretrained(base)
    return get_peft_model(model, LoraConfig(**config))


def logits(model: PreTrainedModel) -> torch.Tensor:
    with torch.inference_mode():
        found = model(input_ids=IDS).logits
    assert isinstance(found, torch.Tensor)
    return found


def says(name: str, begin: Begin) -> list[PolicyStep]:
    """What the model answers to the first message of an episode, and to a later one."""
    policy = LocalPolicy(name, SHORT)
    episode = begin()
    first = asyncio.run(policy.act(episode.messages, schemas()))
    episode.step(message(search("crane")))
    return [first, asyncio.run(policy.act(episode.messages, schemas()))]


def test_it_says_what_model_and_adapter_say(
    base: Path, adapter: Path, begin: Begin, tmp_path: Path
) -> None:
    out = tmp_path / "new" / "merged"
    merge(adapter, out)
    whole = load_checkpoint(str(out))
    both = load_checkpoint(str(base), str(adapter))
    assert torch.allclose(logits(whole.model), logits(both.model), atol=1e-4)
    assert not torch.allclose(
        logits(whole.model), logits(load_checkpoint(str(base)).model), atol=1e-2
    )
    merged, apart = says(str(out), begin), says(f"{base}+{adapter}", begin)
    assert [each.message for each in merged] == [each.message for each in apart]
    assert [each.usage for each in merged] == [each.usage for each in apart]


def test_the_folder_is_a_plain_checkpoint(base: Path, adapter: Path, tmp_path: Path) -> None:
    out = tmp_path / "merged"
    out.mkdir()  # an empty one may be there
    merge(adapter, out)
    had, has = files_of(base), files_of(out)
    assert "adapter_config.json" not in has
    assert has["generation_config.json"] == had["generation_config.json"]
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        assert has[name] == had[name]
    # What servers make of it is the tokenizer that was saved.
    assert reloads_the_same(out, load_tokenizer(out, "merged"))
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []


def test_a_checkpoints_own_tokenizer_comes_before_its_bases(
    base: Path, adapter: Path, tmp_path: Path
) -> None:
    tokenizer = load_tokenizer(base, "base")
    tokenizer.chat_template = "{# its own #}" + tiny_qwen.stock_template()
    tokenizer.save_pretrained(adapter)
    merge(adapter, tmp_path / "merged")
    merged = load_tokenizer(tmp_path / "merged", "merged")
    assert merged.chat_template == tokenizer.chat_template


def test_weights_keep_the_number_format_of_the_base(
    base: Path, adapter: Path, tmp_path: Path
) -> None:
    half = tmp_path / "half"
    model: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16)
    tiny_qwen.save(model, load_tokenizer(base, "base"), half)
    config = adapter / "adapter_config.json"
    content = json.loads(config.read_text())
    write(config, {**content, "base_model_name_or_path": str(half)})
    merge(adapter, tmp_path / "merged")
    saved: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype="auto")
    assert {each.dtype for each in saved.parameters()} == {torch.bfloat16}


def test_of_a_training_run_the_best_checkpoint_is_merged(
    base: Path, adapter: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    write(run / "metrics.json", {"best_checkpoint": "checkpoints/checkpoint-12"})
    assert best_checkpoint(run) == meant_checkpoint(run) == adapter
    assert meant_checkpoint(adapter) == adapter
    assert base_of(adapter) == str(base)
    left = tmp_path / ".merged.partial"  # of a merge that was killed
    left.mkdir()
    (left / "model-00001-of-00002.safetensors").write_bytes(b"half")
    merge(run, tmp_path / "merged")
    merge(adapter, tmp_path / "same")
    assert not left.exists()
    assert files_of(tmp_path / "merged") == files_of(tmp_path / "same")


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        ({"best_checkpoint": None}, "no best checkpoint yet"),
        ({"best_checkpoint": "checkpoints/checkpoint-9"}, "checkpoint-9, the best"),
        ([], "metrics.json can't be read"),
        (None, "metrics.json can't be read"),
    ],
)
def test_a_run_without_a_best_checkpoint(tmp_path: Path, metrics: Any, words: str) -> None:
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    if metrics is not None:
        write(run / "metrics.json", metrics)
    assert words in the_error(lambda: merge(run, tmp_path / "merged"))
    assert not (tmp_path / "merged").exists()


def test_what_can_not_be_merged(base: Path, adapter: Path, tmp_path: Path) -> None:
    out, file, full = (tmp_path / each for each in ("merged", "file", "full"))
    file.write_text("mine")
    full.mkdir()
    (full / "mine").write_text("mine")
    assert f"local:{base}" in the_error(lambda: merge(base, out))
    assert "is no checkpoint" in the_error(lambda: merge(tmp_path / "nowhere", out))
    for taken in (file, full):
        assert "--out" in the_error(lambda taken=taken: merge(adapter, taken))  # type: ignore[misc]
    assert "can't write" in the_error(lambda: merge(adapter, file / "merged"))
    assert files_of(full) == {"mine": b"mine"}
    config = adapter / "adapter_config.json"
    other = tiny_qwen.make_model(tiny_qwen.make_tokenizer(["x"]), hidden=64)
    tiny_qwen.save(other, load_tokenizer(base, "base"), tmp_path / "other")
    for name, words in (
        (str(tmp_path / "gone"), f"there is no folder {tmp_path / 'gone'}"),
        (None, "base_model_name_or_path"),
        ("", "base_model_name_or_path"),
        (str(tmp_path / "other"), "does not fit"),
    ):
        write(config, {**json.loads(config.read_text()), "base_model_name_or_path": name})
        assert words in the_error(lambda: merge(adapter, out))
        assert not out.exists()


def test_embeddings_that_are_used_twice(base: Path, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="tie_word_embeddings"):
        model = adapted(base, r=4, target_modules=["q_proj", "embed_tokens"])
    model.save_pretrained(str(tmp_path / "lora"), save_embedding_layers=True)
    assert "embeddings" in the_error(lambda: merge(tmp_path / "lora", tmp_path / "merged"))


def test_a_write_that_fails_leaves_nothing(
    adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    before = sorted(tmp_path.iterdir())
    assert "No space left" in the_error(lambda: merge(adapter, tmp_path / "merged"))
    assert sorted(tmp_path.iterdir()) == before


def write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content))
