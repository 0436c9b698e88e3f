"""Shapes against transformers' models, peft's adapters, bitsandbytes' weights, a real cache."""

import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from transformers import DynamicCache, Qwen2ForCausalLM

from art_e.errors import UserError
from tests.training import tiny
from tests.training.planning.live_memory import config_of, model_of
from training.planning.geometry import PUBLISHED, Shape, named_shape, shape_of
from training.recipe import ModelTable
from training.start import load_start


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    kv_heads = draw(st.integers(1, 4))
    heads = kv_heads * draw(st.integers(1, 4))
    return Shape(
        layers=draw(st.integers(1, 4)),
        hidden=heads * draw(st.sampled_from([4, 8, 16])),
        intermediate=draw(st.integers(8, 200)),
        heads=heads,
        kv_heads=kv_heads,
        vocabulary=draw(st.integers(50, 500)),
        tied=draw(st.booleans()),
    )


def check_counts(shape: Shape) -> None:
    model = model_of(shape)
    assert sum(each.numel() for each in model.parameters()) == shape.parameters
    embeddings = {*model.get_input_embeddings().parameters(), *model.lm_head.parameters()}
    assert sum(each.numel() for each in embeddings) == shape.embeddings
    body = [each for each in model.model.layers.modules() if isinstance(each, torch.nn.Linear)]
    assert sum(each.weight.numel() for each in body) == shape.linear
    with warnings.catch_warnings():
        # peft 0.21 asks transformers 5 by an older name.
        warnings.simplefilter("ignore", FutureWarning)
        adapted = get_peft_model(
            model, LoraConfig(r=3, target_modules="all-linear", task_type="CAUSAL_LM")
        )
    assert adapted.get_nb_trainable_parameters()[0] == shape.lora_parameters(3)


@settings(max_examples=15, deadline=None)
@given(shapes())
def test_any_shape_has_the_weights_of_its_model_and_of_its_adapter(shape: Shape) -> None:
    check_counts(shape)


@pytest.mark.parametrize("size", list(PUBLISHED))
def test_published_shapes_have_the_weights_of_their_models(size: str) -> None:
    check_counts(PUBLISHED[size])


@pytest.mark.parametrize(
    ("size", "billions", "without_embeddings"),
    # Of the models' cards.
    [
        ("0.5B", 0.49, 0.36),
        ("1.5B", 1.54, 1.31),
        ("3B", 3.09, 2.77),
        ("7B", 7.61, 6.53),
        ("14B", 14.7, 13.1),
        ("32B", 32.5, 31.0),
    ],
)
def test_published_counts(size: str, billions: float, without_embeddings: float) -> None:
    shape = PUBLISHED[size]
    assert shape.parameters / 1e9 == pytest.approx(billions, rel=0.01)
    assert (shape.parameters - shape.embeddings) / 1e9 == pytest.approx(
        without_embeddings, rel=0.01
    )


def test_the_model_of_the_talk() -> None:
    shape = PUBLISHED["14B"]
    assert shape.weight_bytes(16) / 1e9 == pytest.approx(29.54, abs=0.01)
    assert shape.kv_bytes == 196_608
    # In float32, with its gradients and AdamW's two moments.
    assert 16 * shape.lora_parameters(16) / 1e9 == pytest.approx(1.10, abs=0.01)


@settings(max_examples=10, deadline=None)
@given(shapes(), st.integers(1, 5), st.integers(1, 9))
def test_keys_and_values_of_a_real_cache(shape: Shape, episodes: int, tokens: int) -> None:
    config = config_of(shape)
    model: Any = Qwen2ForCausalLM(config)
    model = model.to(torch.bfloat16)
    cache: Any = DynamicCache(config=config)
    ids = torch.zeros(episodes, tokens, dtype=torch.long)
    with torch.inference_mode():
        model(input_ids=ids, past_key_values=cache, use_cache=True)
    held = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    assert held == episodes * tokens * shape.kv_bytes


def test_four_bits_are_those_of_bitsandbytes() -> None:
    bnb = pytest.importorskip("bitsandbytes")
    rows, columns = 2_048, 1_024
    weights = torch.randn(rows, columns, dtype=torch.bfloat16)
    packed, state = bnb.functional.quantize_4bit(
        weights, quant_type="nf4", compress_statistics=True, blocksize=64
    )
    held = packed.nbytes + state.absmax.nbytes + state.state2.absmax.nbytes
    one = Shape(1, 1_024, 1, 1, 1, 1, tied=True)
    assert (one.weight_bytes(4) - 2 * (one.embeddings + one.small)) / one.linear == pytest.approx(
        held / weights.numel(), rel=1e-3
    )


def test_shapes_of_folders_of_runs_and_of_adapters(warm: Path, tmp_path: Path) -> None:
    start = load_start(str(warm))
    weights = sum(each.numel() for each in start.model.parameters())
    assert named_shape(str(warm)).parameters == weights
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    [base] = (warm / "checkpoints").glob("checkpoint-20")
    (adapter / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(base)}))
    assert named_shape(str(adapter)).parameters == weights
    assert named_shape(f"{base}+{adapter}").parameters == weights


def test_a_model_made_from_nothing_is_no_larger_than_planned(warm: Path) -> None:
    planned = shape_of(tiny.recipe().model, tiny.recipe().episode.prompt)
    made = named_shape(str(warm))
    assert made.vocabulary <= planned.vocabulary
    assert (made.layers, made.hidden, made.intermediate, made.kv_heads, made.tied) == (
        planned.layers,
        planned.hidden,
        planned.intermediate,
        planned.kv_heads,
        planned.tied,
    )


def test_published_models_take_neither_torch_nor_a_network() -> None:
    code = (
        "import socket, sys\n"
        "from training.planning.plan import plan\n"
        "from training.planning.cards import card_of\n"
        "from training.recipe import load_recipe\n"
        "def refuse(*_): raise AssertionError('the network')\n"
        "socket.socket.connect = refuse\n"
        "plan(load_recipe('talk', ['judging.reward=\"offline\"']), card_of('h100-80gb'))\n"
        "print('torch' in sys.modules or 'transformers' in sys.modules)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


def test_what_has_no_shape_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"config\.json"):
        named_shape(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(UserError, match="llama"):
        named_shape(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "qwen2"}')
    with pytest.raises(UserError, match="num_hidden_layers"):
        shape_of(ModelTable(base=str(tmp_path)))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="nobody/nothing"):
        named_shape("nobody/nothing")
