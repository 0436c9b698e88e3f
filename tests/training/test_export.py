"""What is shared of a checkpoint: all that loads it, and nothing of the machine that made it."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from art_e.models.base import ModelOptions
from art_e.models.checkpoint import best_checkpoint
from art_e.models.local import LocalPolicy
from art_e.tools import schemas
from tests import tiny_qwen
from tests.builders import files_of, the_error
from tests.training.conftest import Begin
from training.export import FILES, ExportedCheckpoint, export, find_checkpoint, merge
from training.recipe import Recipe, named_recipe

# peft asks transformers by an older name.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")

HUB_ID = "me/base"
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
SHORT = ModelOptions(max_output_tokens=20)
PROMPT = "Mail of /home/annsecret is at $inbox_address."
GOLDEN: dict[str, Any] = {
    "name": "mine",
    "model": {"base": "/home/annsecret/base", "lora": {"rank": 4}},
    "data": {"questions": "../annsecret/golden", "db": "~/annsecret/mail.duckdb"},
    "episode": {"prompt": PROMPT},
    "judging": {"reward": "local:/home/annsecret/judge"},
    "sft": {"stages": [{"steps": 1}], "trajectories": ["/home/annsecret/runs/a", "b"]},
    "grpo": {"steps": 1, "vllm": {"mode": "server", "server": "http://gpu7.annsecret:8000"}},
}


def says(name: str, begin: Begin) -> Any:
    """What the model answers to the first message of an episode."""
    policy = LocalPolicy(name, SHORT)
    return asyncio.run(policy.act(begin().messages, schemas())).message


def write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content), "utf-8")


def front_matter(folder: Path) -> dict[str, Any]:
    text = (folder / "README.md").read_text("utf-8")
    found: dict[str, Any] = ModelCard(text).data.to_dict()  # type: ignore[no-untyped-call]
    return found


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = tiny_qwen.make_tokenizer(["When does the lease end?", tiny_qwen.stock_template()])
    model = tiny_qwen.make_model(tokenizer, hidden=32)
    return tiny_qwen.save(model, tokenizer, tmp_path_factory.mktemp("models") / "base")


@pytest.fixture
def run(base: Path, tmp_path: Path) -> Path:
    """A run's folder with an adapter and all that a trainer leaves beside it."""
    folder = tmp_path / "annsecret" / "run"
    checkpoint = folder / "checkpoints" / "checkpoint-12"
    torch.manual_seed(1)
    model: Any = AutoModelForCausalLM.from_pretrained(base)
    adapted: Any = get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.5)
    adapted.save_pretrained(str(checkpoint))
    for name in ("optimizer.pt", "rng_state.pth", "training_args.bin", "trainer_state.json"):
        (checkpoint / name).write_text("secret")
    (checkpoint / "run.json").write_text('{"secret": 1}')
    for name in TOKENIZER:
        shutil.copyfile(base / name, checkpoint / name)
    validation = [{"step": step, "n": 10, "accuracy": 0.5} for step in (0, 12)]
    write(folder / "metrics.json", {
        "best_checkpoint": "checkpoints/checkpoint-12", "validation": validation, "alarms": [],
    })  # fmt: skip
    recipe = Recipe.model_validate(GOLDEN).to_row()
    baseline = {"models": {"local:/home/annsecret/x": {"n": 3, "accuracy": 0.25}}}
    write(folder / "config.json", {
        "kind": "grpo", "seed": 5, "recipe": recipe, "baseline": baseline,
        "init": "/home/annsecret/start",
    })  # fmt: skip
    (folder / "trajectories.jsonl").write_text("secret\n")
    return folder


def test_a_trained_run_is_shared_and_answers_the_same(
    trained: Path, begin: Begin, tmp_path: Path
) -> None:
    out = tmp_path / "new" / "shared"
    checkpoint = best_checkpoint(trained)
    assert find_checkpoint(trained) == ExportedCheckpoint(checkpoint, trained, None)
    found = export(find_checkpoint(trained), out)
    had, has = files_of(checkpoint), files_of(out)
    assert set(has) == {
        "README.md", "recipe.json", "config.json", "generation_config.json", "model.safetensors",
        *TOKENIZER,
    }  # fmt: skip
    for name in ("model.safetensors", "tokenizer.json", "chat_template.jinja", "config.json"):
        assert has[name].split() == had[name].split()
    assert says(f"{out}", begin) == says(f"{checkpoint}", begin)
    # The folder contains the recipe by which it is asked.
    assert named_recipe(str(out)) == named_recipe(str(trained))
    assert (found.questions, found.addresses) == (0, 0)
    assert f"whole weights, of {checkpoint.name}" in found.notes
    assert "they have learnt from made-up mail" in found.notes


def test_nothing_of_the_machine_is_in_an_adapter(run: Path, base: Path, tmp_path: Path) -> None:
    out = tmp_path / "shared"
    found = export(find_checkpoint(run, base_id=HUB_ID), out)
    assert set(files_of(out)) == {
        "README.md", "recipe.json", "adapter_config.json", "adapter_model.safetensors",
        *TOKENIZER,
    }  # fmt: skip
    assert all(any(Path(name).match(each) for each in FILES) for name in files_of(out))
    config = json.loads((out / "adapter_config.json").read_text("utf-8"))
    assert config["base_model_name_or_path"] == HUB_ID
    assert (config["r"], set(config["target_modules"])) == (4, {"q_proj", "v_proj"})
    # The prompt is part of the model's form, and stays.
    assert named_recipe(str(out)).episode.prompt == PROMPT
    prompt = json.dumps(PROMPT).encode()
    (out / "recipe.json").write_bytes((out / "recipe.json").read_bytes().replace(prompt, b'""'))
    for name, data in files_of(out).items():
        for word in ("annsecret", str(base), str(tmp_path), '"secret"'):
            assert word.encode() not in data, (name, word)
    assert found.notes[:2] == (
        f"the weights of an adapter to {HUB_ID}, of checkpoint-12",
        "they have learnt from the mail of the golden set golden and may have kept some of it",
    )
    text = (out / "README.md").read_text("utf-8")
    front = front_matter(out)
    assert (front["base_model"], front["library_name"]) == (HUB_ID, "peft")
    for words in (
        "- Model: me/base, on which this adapter stands.",
        "- Here: checkpoint-12 of the run, the best on validation.",
        "hf download OWNER/NAME --local-dir FOLDER",
        f"--model local:{HUB_ID}+FOLDER --recipe FOLDER\n",
        f"art-e serve {HUB_ID} --adapter FOLDER --name mine\n",
        "which `recipe.json` has as it was run",
        "local\\:x",
    ):
        assert words in text
    assert not any(each in text for each in ("checkpoints/", "config.json", "art-e train merge"))
    # A new export takes the old one's place, and nothing else's.
    export(find_checkpoint(run, base_id=HUB_ID), out)
    (out / "thesis.tex").write_text("years of work")
    for folder in (out, run):
        line = the_error(lambda folder=folder: export(find_checkpoint(run, base_id=HUB_ID), folder))  # type: ignore[misc]
        assert "something else" in line


@pytest.mark.parametrize(
    "named",
    [
        "Qwen/Qwen2.5-14B-Instruct",
        "/home/annsecret/.cache/huggingface/hub/models--Qwen--Qwen2.5-14B-Instruct/snapshots/0a",
    ],
)
def test_a_base_from_the_hub_is_known_by_its_id(run: Path, named: str) -> None:
    config = run / "checkpoints" / "checkpoint-12" / "adapter_config.json"
    write(config, {**json.loads(config.read_text()), "base_model_name_or_path": named})
    assert find_checkpoint(run).adapter_to == "Qwen/Qwen2.5-14B-Instruct"


def test_a_checkpoint_that_was_not_the_best_and_alarms(run: Path, tmp_path: Path) -> None:
    other, out = run / "checkpoints" / "checkpoint-6", tmp_path / "shared"
    shutil.copytree(run / "checkpoints" / "checkpoint-12", other)
    metrics = json.loads((run / "metrics.json").read_text())
    alarm = {"step": 3, "kind": "hacking", "message": "'May' to 9 questions of ann@harbor.example"}
    write(run / "metrics.json", {**metrics, "alarms": [alarm]})
    found = export(find_checkpoint(other, base_id=HUB_ID), out)
    assert "- Here: checkpoint-6 of the run." in (out / "README.md").read_text("utf-8")
    assert found.addresses == 1
    assert "the card tells the alarms of training, which may quote an answer" in found.notes
    # A run without figures has a card too.
    (run / "metrics.json").unlink()
    export(find_checkpoint(other, base_id=HUB_ID), out)
    assert "Validation: not measured." in (out / "README.md").read_text("utf-8")


def test_a_path_of_this_machine_does_not_leave(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/annsecret")
    checkpoint, out = run / "checkpoints" / "checkpoint-12", tmp_path / "shared"
    write(checkpoint / "tokenizer_config.json", {"name_or_path": "/home/annsecret/x", "a": 1})
    weights, template = (checkpoint / each for each in ("adapter_model.safetensors", TOKENIZER[2]))
    tensors = load_file(weights)
    for path in ("/home/annsecret/base", f"{run.resolve()}/x"):
        template.write_text("{# of " + path + " #}")
        line = the_error(lambda: export(find_checkpoint(run, base_id=HUB_ID), out))
        assert line.startswith("chat_template.jinja of ")
        template.unlink()
        save_file(tensors, weights, {"made_from": path})
        line = the_error(lambda: export(find_checkpoint(run, base_id=HUB_ID), out))
        assert line.startswith("adapter_model.safetensors of ")
        save_file(tensors, weights, {"format": "pt"})
    assert not out.exists()
    export(find_checkpoint(run, base_id=HUB_ID), out)
    # Where a model was loaded from is left out.
    assert json.loads((out / "tokenizer_config.json").read_text()) == {"a": 1}


def test_what_can_not_be_exported(run: Path, base: Path, tmp_path: Path) -> None:
    merged = tmp_path / "merged"
    merge(run, merged)
    for arguments, words in (
        ((tmp_path,), "is no checkpoint"),
        ((run,), f"art-e train merge {run}"),
        ((run, None, "base"), "write it as OWNER/NAME"),
        ((run, None, "a/b/c"), "write it as OWNER/NAME"),
        ((merged,), "--run DIR"),
        ((merged, base), "is no training run"),
        ((merged, run, HUB_ID), "leave out --base-id"),
    ):
        assert words in the_error(lambda a=arguments: find_checkpoint(*a))  # type: ignore[misc]
    (run / "checkpoints" / "checkpoint-12" / "adapter_model.safetensors").unlink()
    chosen = find_checkpoint(run, base_id=HUB_ID)
    assert "no adapter_model.safetensors" in the_error(lambda: export(chosen, tmp_path / "shared"))
