"""The recipes for full scale, each stepped with a tiny Qwen2 as its base.

Adapter, 4 bits, recomputed activations and groups are as the recipes have them, and real. vLLM
was not run: the stand-in of `tests/fake_vllm.py` takes its place below TRL's own code."""

import os
import shutil
import tarfile
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import trl
from safetensors.torch import load_file
from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM

from art_e.models.checkpoint import best_checkpoint_of
from art_e.models.loading import load_checkpoint
from art_e.runs import read_trajectories
from tests import fake_vllm
from tests.builders import the_error
from tests.training import full, tiny
from training import grpo
from training.cli import run_training
from training.optimizer import scored_packed
from training.recipe import Setting
from training.run import TrainingRun
from training.start import load_start

pytestmark = pytest.mark.usefixtures("home")
QWEN = Path(os.environ.get("ART_E_REAL_DATA", "none")).parent / "qwen2.5-tokenizer.tar.xz"


def trained(name: str, base: Path, out: Path, *changes: str) -> tuple[dict[str, Any], TrainingRun]:
    recipe = full.recipe(name, base, ["grpo.rollouts=4", *changes])
    with tiny.started(Setting("grpo", recipe, 0), out) as training:
        metrics = run_training(training)
    return metrics, training


def adapter(training: TrainingRun, step: int = 2) -> dict[str, torch.Tensor]:
    folder = training.run.folder / "checkpoints" / f"checkpoint-{step}"
    return load_file(folder / "adapter_model.safetensors")


def adapter_moved(training: TrainingRun, step: int = 2) -> bool:
    """Return True if training changed the adapter, whose B starts at zero."""
    weights = adapter(training, step).items()
    return any(bool(value.any()) for name, value in weights if "lora_B" in name)


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_vllm.install(monkeypatch)


@pytest.mark.usefixtures("vllm")
def test_talk_with_vllm_in_the_process(base: Path, tmp_path: Path) -> None:
    metrics, training = trained("talk", base, tmp_path / "run")
    did = fake_vllm.LLM.latest.did
    # Rollouts of two steps, three validations, the test: one transfer each, whatever the turns.
    assert did.count("transferred") == 6
    assert did.count("step") > 6
    assert did[0] == did[-1] == "sleep"
    for place, action in enumerate(did):
        if action == "transferred":
            assert did[place - 1] == "wake weights"
            assert did[place + 1] == "wake kv_cache"
    # Trainer and vLLM agree on the probabilities: the newest adapter sampled.
    assert [each.ratio_mean for each in training.steps] == pytest.approx([1.0] * 2, abs=1e-4)
    assert adapter_moved(training)
    assert metrics["test"]["greedy"]["n"] == 2


@pytest.mark.usefixtures("vllm")
def test_vllms_logprobs_replace_a_scoring_pass(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If both compute the same model, the gradients are the same."""
    few = ("grpo.steps=2", "grpo.validate_every=2")
    changes = ("grpo.minibatches=2", "grpo.micro_batch=2", *few)
    score, roll = mock.Mock(wraps=scored_packed), grpo.AgentTrainer._roll

    def silent(trainer: grpo.AgentTrainer, *_: Any) -> dict[str, Any]:
        columns = roll(trainer)
        trainer._sampled = None
        return columns

    monkeypatch.setattr("training.grpo.scored_packed", score)
    _, sampled = trained("talk", base, tmp_path / "sampled", *changes)
    assert not score.called
    monkeypatch.setattr(grpo.AgentTrainer, "_roll", silent)
    _, scored = trained("talk", base, tmp_path / "scored", *changes)
    assert score.called
    assert adapter_moved(sampled)
    for first, second in zip(sampled.steps, scored.steps, strict=True):
        assert first.grad_norm == pytest.approx(second.grad_norm, rel=1e-4)
        assert first.loss == pytest.approx(second.loss, abs=1e-5)


@pytest.mark.long
def test_talk_starts_on_the_tokens_of_qwen2_5(tmp_path: Path) -> None:
    """The real tokenizer, template and generation config, around random weights."""
    if not QWEN.is_file():
        pytest.skip("no qwen2.5-tokenizer.tar.xz beside the folder that ART_E_REAL_DATA names")
    with tarfile.open(QWEN) as archive:
        archive.extractall(tmp_path, filter="data")
    base = tmp_path / "qwen2.5-tokenizer"
    config = Qwen2Config(
        vocab_size=151_936, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, tie_word_embeddings=True,
    )  # fmt: skip
    model = Qwen2ForCausalLM(config)
    model.generation_config = GenerationConfig.from_pretrained(base)
    model.save_pretrained(base)
    start = load_start(str(base))
    assert start.tokenizer.decode([start.end_id]) == "<|im_end|>"
    short = ("grpo.steps=1", "judging.questions=1", "judging.test_questions=1")
    changes = ("grpo.vllm.mode=off", "episode.episode_tokens=4000", *short)
    _, training = trained("talk", base, tmp_path / "run", *changes)
    assert adapter(training, 1)


def test_talk_24gb_in_four_bits(base: Path, tmp_path: Path) -> None:
    from bitsandbytes.nn.modules import Linear4bit

    changes = ("grpo.generate_batch=3", "grpo.steps=1")
    _, training = trained("talk-24gb", base, tmp_path / "run", *changes)
    assert adapter_moved(training, 1)
    # TRL would have it in bfloat16, which steps of 1.2e-5 do not change.
    assert {each.dtype for each in adapter(training, 1).values()} == {torch.float32}
    assert [each.unjudged for each in training.steps] == [0]
    start = load_start(str(training.run.folder), training.setting.recipe.model)
    kinds = [type(each) for each in start.model.modules()]
    # Seven matrices in each of two layers; only the adapter is trained.
    assert kinds.count(Linear4bit) == 14
    names = [name for name, each in start.model.named_parameters() if each.requires_grad]
    assert names and all("lora_" in name for name in names)
    # It serves beside the base in 16 bits as well.
    assert load_checkpoint(str(base), str(best_checkpoint_of(training.run.folder))).context


@pytest.mark.usefixtures("vllm")
def test_talk_multi_asks_vllms_server(base: Path, tmp_path: Path) -> None:
    with fake_vllm.served(base) as server:
        changes = (f"grpo.vllm.server={server.address}", "grpo.vllm.overlap=false")
        _, training = trained("talk-multi", base, tmp_path / "run", *changes)
    assert len(server.names) == 4
    assert [each.ratio_mean for each in training.steps] == pytest.approx([1.0] * 2, abs=1e-4)
    assert adapter_moved(training)


@pytest.mark.usefixtures("vllm")
def test_overlap_generates_the_next_batch_while_training(base: Path, tmp_path: Path) -> None:
    """Two servers, with the previous adapter; an episode stays on its server."""
    changes = ("grpo.steps=3", "grpo.validate_every=3", "grpo.rate=0.01")
    with fake_vllm.served(base) as one, fake_vllm.served(base) as other:
        servers = f"grpo.vllm.server={one.address},{other.address}"
        _, training = trained("talk-multi", base, tmp_path / "run", servers, *changes)
    assert one.names == other.names
    # Two validations, a test, and TRL's before the second and the third batch.
    assert len(one.names) == 5
    assert len(one.batches) == pytest.approx(len(other.batches), rel=0.5)
    ratios = [each.ratio_mean for each in training.steps]
    assert ratios[0] == pytest.approx(1.0, abs=1e-4)
    assert all(abs((each or 0) - 1) > 1e-4 for each in ratios[1:])
    groups = [each.policy["step"] for each in read_trajectories(training.run.trajectories)]
    assert sorted(groups) == groups


def test_newer_base_keeps_its_template(base: Path, tmp_path: Path) -> None:
    """The tiny weights with the template of the newer family."""
    folder = shutil.copytree(base, tmp_path / "base")
    templates = Path(trl.__file__).parent / "chat_templates"
    shutil.copy(templates / "qwen3.jinja", folder / "chat_template.jinja")
    changes = ("grpo.vllm.mode=off", "grpo.steps=1", "episode.episode_tokens=1500")
    _, training = trained("qwen3-14b", folder, tmp_path / "run", *changes)
    assert adapter(training, 1)
    stored = read_trajectories(training.run.trajectories)
    assert all(each.rubric["turns"] >= 1 for each in stored)


@pytest.mark.long
@pytest.mark.usefixtures("vllm")
def test_whole_weights_go_to_vllm_as_trl_sends_them(base: Path, tmp_path: Path) -> None:
    """Asleep, vLLM discards them."""
    changes = ("grpo.vllm.mode=colocate", "grpo.steps=1", "episode.episode_tokens=4_000")
    _, training = trained("mini", base, tmp_path / "run", *changes)
    llm = fake_vllm.LLM.latest
    assert llm.takes is None
    # For two validations, the rollouts between them, and the test.
    assert llm.did.count("transferred") == 4
    assert [each.ratio_mean for each in training.steps] == pytest.approx([1.0], abs=1e-4)


def test_impossible_settings_stop_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(name: str, *changes: str) -> str:
        return the_error(trained, name, tmp_path / "no-such-model", tmp_path / "run", *changes)

    with monkeypatch.context() as patch:
        patch.setattr("importlib.util.find_spec", lambda name: None)
        assert "grpo.vllm.mode=off" in refused("talk")
    odd = ("grpo.questions=3", "grpo.micro_batch=5")
    assert "not a multiple of grpo.micro_batch" in refused("talk-24gb", *odd)
    fake_vllm.install(monkeypatch)
    monkeypatch.setattr("training.engine.SERVER_TIMEOUT_S", 0.0)
    reason = refused("talk-multi", "grpo.vllm.server=http://127.0.0.1:9")
    assert "no vLLM server answers at http://127.0.0.1:9" in reason
    # As accelerate names them; FSDP and ZeRO-3 themselves need GPUs, and were not run.
    zero3 = {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_ZERO_STAGE": "3"}
    for launcher in ({"ACCELERATE_USE_FSDP": "true"}, zero3):
        with mock.patch.dict(os.environ, launcher):
            for mode in ("off", "colocate"):
                reason = refused("talk-multi", f"grpo.vllm.mode={mode}")
                assert "grpo.vllm.mode=server, or train with ddp" in reason
