"""Loading: the weights, the adapter and the tokenizer that were saved, or a line that helps."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="local models need the extra: art-e[train]")

import torch
from tokenizers import Regex, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from art_e.models.checkpoint import best_device, load_checkpoint, load_tokenizer, reloads_the_same
from tests import tiny_qwen
from tests.builders import the_error

# peft asks transformers by an older name.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")

WORDS = ["When does the lease end?", tiny_qwen.stock_template()]
TEXT = "<|im_start|>user\nWhen does the lease 2001 end?\t<|im_end|>\n<tool_call>\nZürich 東"
IDS = torch.tensor([[5, 6, 7, 8]])


@pytest.fixture
def copied(checkpoint: Path, tmp_path: Path) -> Path:
    """A copy of the checkpoint, to be damaged."""
    return Path(shutil.copytree(checkpoint, tmp_path / "copied"))


def logits(model: Any) -> torch.Tensor:
    with torch.inference_mode():
        found = model(input_ids=IDS).logits
    assert isinstance(found, torch.Tensor)
    return found


def test_the_weights_are_those_saved(checkpoint: Path) -> None:
    loaded = load_checkpoint(str(checkpoint))
    assert (loaded.device, loaded.dtype) == best_device()
    assert loaded.context == 4_096
    same = tiny_qwen.make_model(tiny_qwen.make_tokenizer(WORDS), hidden=16)
    assert not loaded.model.training
    if loaded.device == "cpu":
        assert torch.equal(logits(loaded.model), logits(same))


def test_an_adapter_changes_what_the_model_says(checkpoint: Path, adapter: Path) -> None:
    plain = load_checkpoint(str(checkpoint))
    adapted = load_checkpoint(str(checkpoint), str(adapter))
    assert not torch.allclose(logits(plain.model), logits(adapted.model), atol=1e-3)
    assert adapted.stop_ids == plain.stop_ids
    merged: Any = adapted.model
    assert torch.allclose(logits(adapted.model), logits(merged.merge_and_unload()), atol=1e-4)


def test_a_turn_ends_where_the_template_ends_it(copied: Path) -> None:
    tokenizer = load_tokenizer(copied, "tiny")
    end = tokenizer.get_vocab()[tiny_qwen.END]
    # As base models have it: neither the model nor the tokenizer says that a turn ends.
    for file in ("generation_config.json", "config.json"):
        content = json.loads((copied / file).read_text())
        content["eos_token_id"] = tokenizer.get_vocab()[tiny_qwen.END_OF_TEXT]
        (copied / file).write_text(json.dumps(content))
    stops = load_checkpoint(str(copied)).stop_ids
    assert end in stops
    assert tokenizer.get_vocab()[tiny_qwen.END_OF_TEXT] in stops


def test_the_tokenizer_is_the_same_for_us_and_for_servers(checkpoint: Path) -> None:
    made = tiny_qwen.make_tokenizer(WORDS)
    loaded = load_tokenizer(checkpoint, "tiny")
    assert loaded.encode(TEXT) == made.encode(TEXT)
    assert loaded.decode(loaded.encode(TEXT)) == TEXT
    assert loaded.chat_template == tiny_qwen.stock_template()
    assert reloads_the_same(checkpoint, loaded)


def test_a_tokenizer_that_servers_load_differently_is_noticed(copied: Path) -> None:
    own = PreTrainedTokenizerFast.from_pretrained(copied)
    pairs = pre_tokenizers.Split(Regex(r"[a-z]{2}"), behavior="isolated")
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    own.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pairs, whole])
    own.save_pretrained(copied)
    expected = own.encode(TEXT)
    assert load_tokenizer(copied, "tiny").encode(TEXT) == expected
    assert AutoTokenizer.from_pretrained(copied).encode(TEXT) != expected
    assert not reloads_the_same(copied, load_tokenizer(copied, "tiny"))


def test_a_path_without_a_model_is_a_user_error(checkpoint: Path, tmp_path: Path) -> None:
    for path, line in (
        (tmp_path / "nowhere", f"there is no folder {tmp_path / 'nowhere'}"),
        (checkpoint / "config.json", "is a file; name the folder"),
        (tmp_path, "is no model"),
    ):
        assert line in the_error(lambda path=path: load_checkpoint(str(path)))  # type: ignore[misc]


OTHER_FORM = "{% for each in messages %}{{ each.content }}{% endfor %}"


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("config.json", "{", "can't be loaded"),
        ("tokenizer.json", None, "has no tokenizer.json"),
        ("tokenizer.json", "{}", "tokenizer"),
        ("chat_template.jinja", None, "has no chat template"),
        ("chat_template.jinja", OTHER_FORM, "does not call tools in Qwen's form"),
        ("model.safetensors", "cut off", "save or download it again"),
    ],
)
def test_a_damaged_file_is_a_user_error(
    copied: Path, name: str, content: str | None, line: str
) -> None:
    file = copied / name
    if content is None:
        file.unlink()
    elif content == "cut off":
        file.write_bytes(file.read_bytes()[:-1000])
    else:
        file.write_text(content)
    assert line in the_error(lambda: load_checkpoint(str(copied)))
