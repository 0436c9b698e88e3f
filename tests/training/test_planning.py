"""Plans: shapes and memory against the real libraries, hours, and a run beside its plan."""

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from torch.utils.flop_counter import FlopCounterMode
from transformers import DynamicCache, Qwen2ForCausalLM

from art_e.errors import UserError
from art_e.models.prices import price_of
from art_e.runs import start_run
from evals.judges.llm import prompt_text
from tests.command_line import Run as Command
from tests.command_line import json_of, the_error
from tests.training import tiny
from tests.training.live_memory import config_of, model_of, taken
from training.judging import CORRECT_TOKENS, GROUNDED_TOKENS, judge_fees
from training.planning import (
    PUBLISHED,
    EpisodeTokens,
    Estimator,
    MemoryPhase,
    Shape,
    TrainingPlan,
    gpu_of,
    plan,
    shape_of,
)
from training.progress import read_steps
from training.recipe import Vllm, load_recipe, recipe_names
from training.start import load_start

H100, RTX = "h100-80gb", "rtx4090-24gb"
EPISODE = EpisodeTokens(5, 700, 200, 4_500, 1.5)
# Vocabularies are small, because TRL scores logits in tiles.
SMALL = Shape(3, 1_024, 3_072, 8, 2, 512, tied=True)
FEW_LAYERS = PUBLISHED["14B"]._replace(layers=8)
WIDE = Shape(2, 1_280, 5_440, 10, 10, 512, tied=False)


def estimator(
    shape: Shape = PUBLISHED["14B"], *changes: str, gpu: str = H100, lora: bool = True
) -> Estimator:
    """The estimates of the recipe `talk` for a model of that shape."""
    recipe = load_recipe("talk", changes)
    if not lora:
        model = recipe.model.model_copy(update={"lora": None})
        recipe = recipe.model_copy(update={"model": model})
    return Estimator(recipe, shape, gpu_of(gpu), EPISODE)


def planned(name: str, *changes: str, gpu: str = H100, count: int = 1) -> TrainingPlan:
    return plan(load_recipe(name, changes), gpu_of(gpu), count=count)


def lines_of(phase: MemoryPhase) -> dict[str, float]:
    return {line.what: line.size / 1e9 for line in phase.lines}


# Shapes.


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
        head=draw(st.sampled_from([None, 4, 12])),
    )


@settings(max_examples=10, deadline=None)
@given(shapes())
def test_any_shape_has_the_weights_of_its_model_and_of_its_adapter(shape: Shape) -> None:
    model = model_of(shape)
    assert sum(each.numel() for each in model.parameters()) == shape.parameters
    body = [each for each in model.model.layers.modules() if isinstance(each, torch.nn.Linear)]
    assert sum(each.weight.numel() for each in body) == shape.linear
    with warnings.catch_warnings():
        # peft 0.21 uses an older name of transformers 5.
        warnings.simplefilter("ignore", FutureWarning)
        config = LoraConfig(r=3, target_modules="all-linear", task_type="CAUSAL_LM")
        adapted = get_peft_model(model, config)
    learns = sum(each.numel() for each in adapted.parameters() if each.requires_grad)
    assert learns == shape.lora_parameters(3)


@pytest.mark.parametrize(
    # Billions of weights, from the models' cards.
    ("size", "billions"),
    [("0.5B", 0.49), ("1.5B", 1.54), ("3B", 3.09), ("7B", 7.61), ("14B", 14.7), ("32B", 32.5),
     ("Qwen3-4B", 4.0), ("Qwen3-14B", 14.8)],
)  # fmt: skip
def test_published_shapes_have_the_weights_of_their_models(size: str, billions: float) -> None:
    model = model_of(PUBLISHED[size])
    assert sum(each.numel() for each in model.parameters()) == PUBLISHED[size].parameters
    assert PUBLISHED[size].parameters / 1e9 == pytest.approx(billions, rel=0.01)


def test_keys_and_values_of_a_real_cache() -> None:
    for shape, episodes, tokens in ((SMALL, 3, 7), (WIDE, 1, 9)):
        config: Any = config_of(shape)
        model: Any = Qwen2ForCausalLM(config)
        cache: Any = DynamicCache(config=config)
        ids = torch.zeros(episodes, tokens, dtype=torch.long)
        with torch.inference_mode():
            model.to(torch.bfloat16)(input_ids=ids, past_key_values=cache, use_cache=True)
        held = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
        assert held == episodes * tokens * shape.kv_bytes


def test_four_bits_are_those_of_bitsandbytes() -> None:
    bnb = pytest.importorskip("bitsandbytes")
    weights = torch.randn(2_048, 1_024, dtype=torch.bfloat16)
    packed, state = bnb.functional.quantize_4bit(
        weights, quant_type="nf4", compress_statistics=True, blocksize=64
    )
    held = packed.nbytes + state.absmax.nbytes + state.state2.absmax.nbytes
    rest = SMALL.parameters - SMALL.linear
    a_weight = (SMALL.weight_bytes(4) - 2 * rest) / SMALL.linear
    assert a_weight == pytest.approx(held / weights.numel(), rel=1e-3)


def test_shapes_of_recipes(warm: Path) -> None:
    # A model that is made from nothing has at most the tokens that are planned.
    model, planned = load_start(str(warm)).model, shape_of(tiny.recipe().model)
    tokens = int(model.config.vocab_size)
    assert tokens <= planned.vocabulary
    weights = sum(each.numel() for each in model.parameters())
    assert planned._replace(vocabulary=tokens).parameters == weights
    for name in ("Qwen/Qwen2.5-7B-Instruct", "/models/Qwen2.5-7B"):
        assert shape_of(load_recipe("talk", [f"model.base={name}"]).model) == PUBLISHED["7B"]
    with pytest.raises(UserError, match="is not known: plan a model of a similar size"):
        shape_of(load_recipe("talk", ["model.base=Qwen/Qwen3-8B"]).model)


# Memory.


@pytest.mark.parametrize("checkpointing", [True, False])
@pytest.mark.parametrize(
    # Beside as many heads of keys as of queries, which no published shape has, less is kept.
    ("shape", "bits", "episodes", "tokens", "off"),
    [
        (SMALL, 16, 2, 2_048, 0.12),
        (WIDE, 16, 2, 2_048, 0.25),
        (SMALL, None, 4, 1_024, 0.15),
        (WIDE, None, 4, 1_024, 0.15),
        (FEW_LAYERS, 16, 1, 8_000, 0.1),
    ],
)
def test_activations_are_what_autograd_keeps(
    shape: Shape, bits: int | None, episodes: int, tokens: int, off: float, checkpointing: bool
) -> None:
    if shape is FEW_LAYERS and not checkpointing:
        return  # No recipe trains it so.
    lora = bits is not None
    own = estimator(shape, f"model.checkpointing={str(checkpointing).lower()}", lora=lora)
    real = taken(shape, episodes, tokens, lora=16 if lora else 0, checkpointing=checkpointing)
    # The stand-in has no head.
    lines = own.activations(episodes, tokens)
    size = sum(each.size for each in lines if each.what != "logits")
    if lora:
        assert size == pytest.approx(real.most - real.gradients, rel=off)
    else:
        # Gradients come one by one as activations go, and are planned apart.
        assert real.most - real.gradients <= 1.1 * size
        assert size <= (1 + off) * real.most


def test_the_memory_of_the_talk() -> None:
    talk = estimator()
    memory = talk.gpu.memory
    phase, room = talk.vllm_memory(48, 0.55, alone=False)
    made = lines_of(phase)
    # Its weights twice, and vLLM has its share and no more.
    assert made["weights"] == made["vLLM: weights"] == pytest.approx(29.54, abs=0.01)
    share = sum(size for what, size in made.items() if what.startswith("vLLM"))
    assert share == pytest.approx(0.55 * memory / 1e9, abs=0.01)
    assert room == int(made["vLLM: keys and values"] * 1e9 // 196_608)
    assert phase.left == memory - phase.bytes
    vllm = Vllm(mode="colocate", memory=0.55)
    asleep = talk.training_memory(1, 8_000, vllm)
    learnt = lines_of(asleep)
    adapter = learnt["adapter"] + learnt["gradients"] + learnt["AdamW"]
    assert adapter == pytest.approx(1.10, abs=0.01)
    assert asleep.left > 0
    assert learnt["vLLM asleep"] < 2
    awake = talk.training_memory(1, 8_000, vllm.model_copy(update={"sleep": False}))
    assert lines_of(awake)["vLLM awake"] == pytest.approx(0.55 * memory / 1e9)
    # A share without room has none, and the least that it needs is listed all the same.
    phase, room = talk.vllm_memory(48, 0.3, alone=False)
    assert room == 0
    assert lines_of(phase)["vLLM: weights"] == pytest.approx(29.54, abs=0.01)
    phase, room = talk.vllm_memory(32, 0.9, alone=True)
    assert phase.bytes == pytest.approx(0.9 * memory, rel=1e-6)
    assert room > 200_000


# Pace.


def test_operations_are_those_that_torch_counts() -> None:
    shape = Shape(4, 512, 1_536, 8, 2, 1_000, tied=False)
    model, tokens = model_of(shape), 256
    with FlopCounterMode(display=False) as counter:
        model(input_ids=torch.zeros(1, tokens, dtype=torch.long, device="meta"))
    # torch counts all of the attention, and the causal half is needed.
    attention = shape.layers * 2 * 2 * tokens**2 * shape.hidden
    counted = counter.get_total_flops() - attention / 2
    assert shape.forward_flops(tokens, tokens) == pytest.approx(counted, rel=0.01)


def test_generating_takes_longer_for_more_episodes_and_in_smaller_batches() -> None:
    talk = estimator()
    half, whole = (talk.generating_seconds(number, 48, by_vllm=True) for number in (24, 48))
    by_batch = [talk.generating_seconds(48, batch, by_vllm=False) for batch in (24, 6, 1)]
    assert half < whole < talk.generating_seconds(48, 48, by_vllm=False)
    assert by_batch == sorted(set(by_batch))


# Tokens and fees.


@given(st.integers(1, 10), st.integers(1, 2_000), st.integers(1, 60), st.integers(0, 1_500))
def test_the_prompts_of_all_turns_are_their_sum(
    turns: int, prompt: int, own: int, shown: int
) -> None:
    """Every turn's prompt is the one before with what the model wrote and the tool showed."""
    prompts = [prompt + turn * (own + shown) for turn in range(turns)]
    episode = EpisodeTokens(turns, prompt, turns * own, prompts[-1] + own, 1)
    assert episode.all_prompts == pytest.approx(sum(prompts))


def test_judges_are_paid_by_the_call() -> None:
    judge = "gemini/gemini-2.5-flash-lite"
    [fee], price = judge_fees(load_recipe("talk"), 1.5), price_of(judge)
    assert (fee.judge, fee.episodes) == (judge, 667 * 48 + 24 * 100 + 2 * 400)
    assert planned("talk").judges == [fee]
    assert price is not None
    # One prompt for the answer, and one with the mails that were read.
    prompts = CORRECT_TOKENS + GROUNDED_TOKENS + 1.5 * 622
    expected = 0.75 * fee.episodes * (prompts * price.prompt + 2 * 45 * price.completion)
    assert fee.usd == pytest.approx(expected, rel=0.01)
    other = judge_fees(load_recipe("talk", ["judging.validation='hosted_vllm/own'"]), 1.5)
    assert [each.usd is None for each in other] == [False, True]
    assert other[1].episodes == 24 * 100 + 2 * 400
    assert judge_fees(load_recipe("nano"), 1.5) == []


def test_prompts_have_the_length_that_was_measured() -> None:
    """Whoever changes a prompt measures again: 4.3 and 4.4 characters a token."""
    assert len(prompt_text("judge")) / 4.34 == pytest.approx(CORRECT_TOKENS - 82 - 85, rel=0.1)
    assert len(prompt_text("grounded")) / 4.43 == pytest.approx(GROUNDED_TOKENS - 82 - 62, rel=0.1)


# Plans.


def test_more_gpus_share_the_work() -> None:
    one, two = (planned("talk", count=count) for count in (1, 2))
    assert two.hours < 0.65 * one.hours
    assert two.stages[0].under_way == one.stages[0].under_way / 2
    multi = planned("talk-multi", count=4)
    # Sixteen questions can't be divided among three processes.
    assert multi.gpus["train"] in (1, 2)
    assert multi.gpus["train"] + multi.gpus["serve"] == 4
    assert not multi.faults
    assert multi.hours < planned("talk-multi", count=2).hours
    with pytest.raises(UserError, match="--gpus 2"):
        planned("talk-multi")
    with pytest.raises(UserError, match=r"grpo\.questions"):
        planned("talk", count=5)


@pytest.mark.parametrize(
    ("name", "changes", "gpu", "mended"),
    [
        ("talk", ("grpo.vllm.memory=0.3",), H100, "grpo.vllm.memory=0.6"),
        ("talk", ("grpo.vllm.sleep=false", "grpo.micro_batch=4"), H100, "grpo.vllm.sleep=true"),
        ("talk", ("model.checkpointing=false",), H100, "model.checkpointing=true"),
        ("talk", ("grpo.micro_batch=12",), H100, "grpo.micro_batch=2"),
        ("talk-24gb", ("grpo.generate_batch=24",), RTX, "grpo.generate_batch=4"),
    ],
)
def test_what_does_not_fit_has_faults(
    name: str, changes: tuple[str, ...], gpu: str, mended: str
) -> None:
    assert planned(name, *changes, gpu=gpu).faults
    assert not planned(name, *changes, mended, gpu=gpu).faults


# The command.


@pytest.mark.parametrize("recipe", recipe_names())
def test_each_recipe_is_planned_line_by_line(art_e: Command, recipe: str) -> None:
    words = ("train", "plan", "--recipe", recipe, "--gpus", "4" if recipe == "talk-multi" else "1")
    shown = art_e(*words)
    assert shown.exit_code == 0, shown.output
    for part in ("weights", "AdamW", "keys and values", "validations", "assumed", "fit"):
        assert part in shown.stdout
    row = json_of(art_e(*words, "--json"))
    assert row["recipe"] == recipe
    hours = 0.0
    for stage in row["stages"]:
        for phase in stage["memory"]:
            size = sum(line["size"] for line in phase["lines"])
            assert size == phase["bytes"] == row["memory_bytes"] - phase["left"]
        hours += stage["steps"] * sum(stage["seconds_per_step"].values()) / 3600
    assert row["hours"] == pytest.approx(hours)
    assert row["gpu_usd"] == pytest.approx(hours * sum(row["gpus"].values()) * row["usd_per_hour"])


def test_minibatches_share_their_rollouts() -> None:
    """As many rollouts as without, in four times as many steps."""
    single = ("grpo.minibatches=1", "grpo.steps=667", "grpo.validate_every=30")
    four, one = planned("talk"), planned("talk", *single)
    assert four.hours == pytest.approx(one.hours)
    assert four.judges == one.judges
    tokens = [each.stages[0].tokens_per_step for each in (one, four)]
    assert tokens[1] == pytest.approx({name: each / 4 for name, each in tokens[0].items()})
    # Without vLLM, whose tokens are scored anyway, the scores are a pass more.
    single = ("grpo.minibatches=1", "grpo.steps=500", "grpo.validate_every=50")
    four, one = planned("talk-24gb"), planned("talk-24gb", *single)
    assert four.hours > 1.01 * one.hours


def test_options_change_the_plan(art_e: Command) -> None:
    words = ("train", "plan", "--recipe", "talk")
    dear = json_of(art_e(*words, "--json", "--usd-per-hour", "6"))
    assert dear["gpu_usd"] == pytest.approx(6 * dear["hours"])
    small = json_of(art_e(*words, "--json", "--set", "model.base=Qwen/Qwen2.5-7B-Instruct"))
    assert small["parameters"] == pytest.approx(7.61e9, rel=0.01)
    tight = art_e(*words, "--set", "grpo.vllm.memory=0.3")
    # The plan is the answer, whether it fits or not.
    assert tight.exit_code == 0
    for part in ("one whole episode", "another grpo.vllm.memory"):
        assert part in tight.stdout


def test_a_run_stands_beside_its_plan(
    art_e: Command, trained: Path, warm: Path, tmp_path: Path
) -> None:
    folder, last = tmp_path / "run", read_steps(trained)[-1]
    shutil.copytree(trained, folder)
    metrics = json.loads((folder / "metrics.json").read_text())
    (folder / "metrics.json").write_text(json.dumps({**metrics, "peak_memory_bytes": 12e9}))
    row = json_of(art_e("train", "plan", "--against", folder, "--json"))
    assert row["recipe"] == "nano"
    assert row["compared"][0] == {"what": "steps", "planned": 3, "reported": 3}
    assert {each["what"]: each["reported"] for each in row["compared"]} == {
        "steps": last.step,
        "tokens a step, generated": last.tokens / last.step,
        "seconds a step, with validations": last.seconds / last.step,
        "most memory in use, GB": 12,
    }
    assert "reported" in art_e("train", "plan", "--against", trained).stdout
    last = read_steps(warm)[-1]
    started = json_of(art_e("train", "plan", "--against", warm, "--json"))["compared"][1]
    assert started["what"] == "tokens a step, trained on"
    assert started["reported"] == last.tokens / last.step
    for name in ("COMPLETE", "metrics.json", "steps.jsonl", "trajectories.jsonl"):
        (folder / name).unlink()
    row = json_of(art_e("train", "plan", "--against", folder, "--json"))
    assert row["compared"][0]["reported"] == 0
    assert art_e("train", "plan", "--against", folder).exit_code == 0


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--gpu", "tpu"), "h100-80gb"),
        (("--recipe", "talk-multi"), "--gpus 2"),
        (("--against", "none"), "no run"),
        (("--against", "OTHER"), "not a training run"),
        (("--recipe", "talk", "--against", "TRAINED"), "leave out --recipe"),
        (("--set", "grpo.steps=1", "--against", "TRAINED"), "leave out --recipe and --set"),
    ],
)
def test_what_can_not_be_planned_is_one_line(
    art_e: Command, trained: Path, tmp_path: Path, options: tuple[str, ...], named: str
) -> None:
    other = start_run("ask", {"model": "offline"}, tmp_path).folder
    paths = {"TRAINED": str(trained), "OTHER": str(other)}
    words = [paths.get(each, each) for each in options]
    assert named in the_error(art_e("train", "plan", *words))
