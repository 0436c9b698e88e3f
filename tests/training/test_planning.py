"""Plans: shapes and memory against real libraries and a measured GPU, hours, fees."""

from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from art_e.models.prices import price_of
from art_e.text import prompt_text
from tests.command_line import Run as Command
from tests.command_line import json_of
from training.judging import CORRECT_TOKENS, GROUNDED_TOKENS, judge_fees
from training.planning import GPUS, NOTES, PUBLISHED, SEARCHES, EpisodeTokens, TrainingPlan, plan
from training.recipe import load_recipe, toml_names

H100, RTX = "h100-80gb", "rtx4090-24gb"


def planned(name: str, *changes: str, gpu: str = H100, count: int = 1) -> TrainingPlan:
    return plan(load_recipe(name, changes), gpu, count)


@pytest.mark.parametrize(("name", "shape"), PUBLISHED.items())
def test_shapes_match_real_models_and_adapters(name: str, shape: Any) -> None:
    head = 128
    fields: dict[str, Any] = {
        "vocab_size": shape.vocabulary, "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate, "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.q_width // head, "num_key_value_heads": shape.kv_width // head,
        "tie_word_embeddings": shape.tied,
    }  # fmt: skip
    with torch.device("meta"):
        if name.startswith("Qwen3"):
            model: Any = Qwen3ForCausalLM(Qwen3Config(**fields, head_dim=head))
        else:
            model = Qwen2ForCausalLM(Qwen2Config(**fields))
        weights = sum(each.numel() for each in model.parameters())
        config = LoraConfig(r=3, target_modules="all-linear", task_type="CAUSAL_LM")
        adapted = get_peft_model(model, config)
    assert shape.parameters == pytest.approx(weights, rel=1e-3)
    learns = sum(each.numel() for each in adapted.parameters() if each.requires_grad)
    assert shape.lora_parameters(3) == learns


def test_plan_of_talk_matches_measurements_on_an_h100(monkeypatch: pytest.MonkeyPatch) -> None:
    """37.4 GB at the peak for an episode of 8,000 tokens, and its seconds for three lengths."""
    alone = ("model.lora=16", "grpo.micro_batch=1", "episode.episode_tokens=8000")
    talk = planned("talk", *alone)
    training = talk.memory["training"]
    logits = 2 * 4_096 * 32_768 + 4 * 8_000 * 5_120  # of 187 tokens alone when it was measured
    measured = sum(training.values()) - training["vLLM"] - training["CUDA"] - logits
    assert measured / 1e9 == pytest.approx(37.4, rel=0.02)
    for tokens, seconds in ((2_000, 0.63), (4_562, 1.27), (8_000, 2.12)):
        episode = EpisodeTokens(tokens, 774, 187, 1.5)
        monkeypatch.setattr("training.planning.expected_episode", lambda _, each=episode: each)
        trained = planned("talk", *alone).hours["training"] * 3600
        grpo = load_recipe("talk").grpo
        assert grpo is not None
        assert trained / (grpo.batches * 48) == pytest.approx(seconds, rel=0.02)
    # vLLM stays within its share; keys and values get the rest.
    generating = talk.memory["generating"]
    of_vllm = ("vLLM", "vLLM's weights", "keys and values")
    assert sum(generating[name] for name in of_vllm) == pytest.approx(0.6 * 79.19 * 2**30)
    assert talk.room == pytest.approx(generating["keys and values"] / (8_000 * 196_608))


def test_another_search_adds_the_seconds_that_the_notes_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = planned("talk").batch_seconds
    monkeypatch.setattr("training.planning.SEARCHES", SEARCHES + 1)
    assert f"add {planned('talk').batch_seconds - before:.0f} s to a batch of `talk`" in NOTES[1]


def test_overlap_hides_the_shorter_of_generation_and_training() -> None:
    alone, beside = (
        planned("talk-multi", f"grpo.vllm.overlap={overlap}", count=4).hours
        for overlap in ("false", "true")
    )
    longer = max(alone["generating"], alone["training"])
    assert beside["total"] == pytest.approx(longer + alone["validations"])


def test_plan_reports_what_does_not_fit(art_e: Command) -> None:
    for name, changes, gpu, fitting in (
        ("talk", ("grpo.vllm.memory=0.3",), H100, "grpo.vllm.memory=0.6"),
        ("talk", ("grpo.minibatches=4", "grpo.micro_batch=12"), H100, "grpo.micro_batch=2"),
        ("talk-24gb", ("grpo.generate_batch=24",), RTX, "grpo.generate_batch=4"),
    ):
        assert planned(name, *changes, gpu=gpu).faults
        assert not planned(name, *changes, fitting, gpu=gpu).faults
    # A plan that does not fit is not an error.
    tight = art_e("train", "plan", "--recipe", "talk", "--set", "grpo.vllm.memory=0.3")
    assert tight.exit_code == 0 and "one whole episode" in tight.stdout


def test_judges_are_paid_by_the_call() -> None:
    talk = load_recipe("talk")
    fees = judge_fees(talk, 1.5)
    held_out = 18 * 100 + 2 * 400
    # Those of spare questions too.
    assert [each.episodes for each in fees] == [500 * (12 + 4) * 4 + held_out, held_out]
    assert planned("talk").judges == fees
    assert [each.judge for each in fees] == [talk.judging.reward, talk.judging.validation]
    for fee in fees:
        price = price_of(fee.judge)
        assert price is not None
        # One prompt for the answer, and one with the mails that were read.
        prompts = CORRECT_TOKENS + GROUNDED_TOKENS + 1.5 * 622
        expected = 0.75 * fee.episodes * (prompts * price.prompt + 2 * 45 * price.completion)
        assert fee.usd == pytest.approx(expected, rel=0.01)
    unknown = judge_fees(load_recipe("talk", ["judging.validation='hosted_vllm/own'"]), 1.5)
    assert [each.usd is None for each in unknown] == [False, True]
    # All runs of a sweep.
    once, probe = planned("talk-probe", "runs=1"), planned("talk-probe")
    assert probe.gpu_usd == pytest.approx(3 * once.gpu_usd)
    assert [each.episodes for each in probe.judges] == [3 * each.episodes for each in once.judges]
    assert judge_fees(load_recipe("nano"), 1.5) == []
    # Measure again after changing a prompt: 4.3 and 4.4 characters a token.
    correct, grounded = (len(prompt_text("evals.judges", each)) for each in ("judge", "grounded"))
    assert correct / 4.34 == pytest.approx(CORRECT_TOKENS - 82 - 85, rel=0.1)
    assert grounded / 4.43 == pytest.approx(GROUNDED_TOKENS - 82 - 62, rel=0.1)


@pytest.mark.parametrize("recipe", toml_names("recipe"))
def test_each_recipe_is_planned(art_e: Command, recipe: str) -> None:
    gpu = RTX if recipe in ("talk-24gb", "qwen3-4b") else H100
    gpus = "4" if recipe == "talk-multi" else "1"
    words = ("train", "plan", "--recipe", recipe, "--gpu", gpu, "--gpus", gpus)
    printed = art_e(*words)
    for part in ("weights", "AdamW", "keys and values", "measured", "assumed", " fits on"):
        assert part in printed.stdout
    row = json_of(art_e(*words, "--json"))
    *parts, total = row["hours"].values()
    assert total == pytest.approx(sum(parts))
    assert row["gpu_usd"] == pytest.approx(GPUS[gpu].usd_per_hour * total * int(gpus))
