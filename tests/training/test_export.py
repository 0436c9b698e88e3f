"""What leaves a run: a merged model that says the same, and an export with all that loads it and
nothing of the machine that made it."""

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from art_e.models.base import ModelOptions
from art_e.models.checkpoint import (
    best_checkpoint,
    load_checkpoint,
    load_tokenizer,
    reloads_the_same,
)
from art_e.models.local import LocalPolicy
from art_e.tools import schemas
from tests import tiny_qwen
from tests.builders import files_of, message, the_error
from tests.builders import search_episodes as search
from tests.command_line import ANN, Run
from tests.command_line import the_error as error_of
from tests.training.conftest import Begin
from training.export import FILES, ExportedCheckpoint, export, find_checkpoint, merge, public_recipe
from training.recipe import Recipe, named_recipe

# peft asks transformers by an older name.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")

HUB_ID = "me/base"
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
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


def says(name: object, begin: Begin) -> list[Any]:
    """What the model answers to the first message of an episode, and to a later one."""
    policy = LocalPolicy(str(name), ModelOptions(max_output_tokens=20))
    episode = begin()
    steps = [asyncio.run(policy.act(episode.messages, schemas()))]
    episode.step(message(search("crane")))
    steps.append(asyncio.run(policy.act(episode.messages, schemas())))
    return [(each.message, each.usage) for each in steps]


def write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content), "utf-8")


def text_of(folder: Path) -> str:
    return (folder / "README.md").read_text("utf-8")


def front_matter(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = ModelCard(text_of(folder)).data.to_dict()  # type: ignore[no-untyped-call]
    return found


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
    best = {"best_checkpoint": "checkpoints/checkpoint-12"}
    write(folder / "metrics.json", {**best, "validation": validation, "alarms": []})
    recipe = Recipe.model_validate(GOLDEN).to_row()
    baseline = {"models": {"local:/home/annsecret/x": {"n": 3, "accuracy": 0.25}}}
    config = {"kind": "grpo", "seed": 5, "recipe": recipe, "baseline": baseline}
    write(folder / "config.json", {**config, "init": "/home/annsecret/start"})
    (folder / "trajectories.jsonl").write_text("secret\n")
    return folder


@pytest.fixture
def adapter(run: Path) -> Path:
    return run / "checkpoints" / "checkpoint-12"


# ---- Merging.


def test_what_is_merged_says_what_model_and_adapter_say(
    base: Path, run: Path, adapter: Path, begin: Begin, tmp_path: Path
) -> None:
    out = tmp_path / "new" / "merged"
    left = out.parent / ".merged.partial"  # of a merge that was killed
    left.mkdir(parents=True)
    (left / "model-00001-of-00002.safetensors").write_bytes(b"half")
    merge(run, out)
    assert sorted(out.parent.iterdir()) == [out]
    ids = torch.tensor([[5, 6, 7, 8, 9, 10]])
    with torch.inference_mode():
        whole, both, bare = (
            load_checkpoint(*each).model(input_ids=ids).logits
            for each in ((str(out), None), (str(base), str(adapter)), (str(base), None))
        )
    assert torch.allclose(whole, both, atol=1e-4)
    assert not torch.allclose(whole, bare, atol=1e-2)
    assert says(out, begin) == says(f"{base}+{adapter}", begin)
    assert "adapter_config.json" not in files_of(out)
    # What servers make of it is the tokenizer that was saved.
    assert reloads_the_same(out, load_tokenizer(out, "merged"))


def test_a_merged_model_keeps_the_bases_number_format_and_the_checkpoints_tokenizer(
    base: Path, adapter: Path, tmp_path: Path
) -> None:
    tokenizer = load_tokenizer(base, "base")
    half: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16)
    tiny_qwen.save(half, tokenizer, tmp_path / "half")
    tokenizer.chat_template = "{# its own #}" + tiny_qwen.stock_template()
    tokenizer.save_pretrained(adapter)
    rename_base(adapter, str(tmp_path / "half"))
    merge(adapter, tmp_path / "merged")
    saved: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype="auto")
    assert {each.dtype for each in saved.parameters()} == {torch.bfloat16}
    merged = load_tokenizer(tmp_path / "merged", "merged")
    assert merged.chat_template == tokenizer.chat_template


def rename_base(adapter: Path, name: str | None) -> None:
    config = adapter / "adapter_config.json"
    write(config, {**json.loads(config.read_text()), "base_model_name_or_path": name})


def test_what_can_not_be_merged(
    base: Path, run: Path, adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, file, full = (tmp_path / each for each in ("merged", "file", "full"))
    file.write_text("mine")
    full.mkdir()
    (full / "mine").write_text("mine")
    cases: list[tuple[Callable[[], None], str]] = [
        (lambda: merge(base, out), f"local:{base}"),
        (lambda: merge(tmp_path / "nowhere", out), "is no checkpoint"),
        (lambda: merge(adapter, file), "--out"),
        (lambda: merge(adapter, full), "--out"),
        (lambda: merge(adapter, file / "merged"), "can't write"),
    ]
    for action, words in cases:
        assert words in the_error(action)
    assert files_of(full) == {"mine": b"mine"}
    with monkeypatch.context() as patch:

        def no_space(*_: object) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr(shutil, "copyfile", no_space)
        assert "No space left" in the_error(lambda: merge(adapter, out))
    gone = tmp_path / "gone"
    for name, words in (
        (str(gone), f"there is no folder {gone}"),
        (None, "base_model_name_or_path"),
        ("", "base_model_name_or_path"),
    ):
        rename_base(adapter, name)
        assert words in the_error(lambda: merge(adapter, out))
    for metrics, words in (
        ({"best_checkpoint": None}, "no best checkpoint yet"),
        ({"best_checkpoint": "checkpoints/checkpoint-9"}, "checkpoint-9, the best"),
        ([], "metrics.json can't be read"),
    ):
        write(run / "metrics.json", metrics)
        assert words in the_error(lambda: merge(run, out))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["annsecret", "file", "full"]


# ---- Exports.


def test_a_trained_run_is_shared_and_answers_the_same(
    trained: Path, begin: Begin, tmp_path: Path
) -> None:
    out, checkpoint = tmp_path / "new" / "shared", best_checkpoint(trained)
    assert find_checkpoint(trained) == ExportedCheckpoint(checkpoint, trained, None)
    export(find_checkpoint(trained), out)
    had, has = files_of(checkpoint), files_of(out)
    assert set(has) == {
        "README.md", "recipe.json", "config.json", "generation_config.json", "model.safetensors",
        *TOKENIZER,
    }  # fmt: skip
    for name in ("model.safetensors", "tokenizer.json", "chat_template.jinja", "config.json"):
        assert has[name].split() == had[name].split()
    assert says(out, begin) == says(checkpoint, begin)
    # The folder contains the recipe by which it is asked.
    assert named_recipe(str(out)) == named_recipe(str(trained))


def test_nothing_of_the_machine_is_in_an_adapter(run: Path, base: Path, tmp_path: Path) -> None:
    out = tmp_path / "shared"
    export(find_checkpoint(run, base_id=HUB_ID), out)
    assert set(files_of(out)) == {
        "README.md", "recipe.json", "adapter_config.json", "adapter_model.safetensors", *TOKENIZER,
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
    front = front_matter(out)
    assert (front["base_model"], front["library_name"]) == (HUB_ID, "peft")
    for words in (
        "- Here: checkpoint-12 of the run, the best on validation.",
        f"--model local:{HUB_ID}+FOLDER --recipe FOLDER\n",
        f"art-e serve {HUB_ID} --adapter FOLDER --name mine\n",
        "which `recipe.json` has as it was run",
    ):
        assert words in text_of(out)
    # A new export takes the old one's place, and nothing else's.
    export(find_checkpoint(run, base_id=HUB_ID), out)
    (out / "thesis.tex").write_text("years of work")
    for folder in (out, run):
        line = the_error(lambda folder=folder: export(find_checkpoint(run, base_id=HUB_ID), folder))  # type: ignore[misc]
        assert "something else" in line


def test_a_base_from_the_hub_is_known_by_its_id(run: Path, adapter: Path) -> None:
    hub_id = "Qwen/Qwen2.5-14B-Instruct"
    cached = "/home/annsecret/.cache/huggingface/hub/models--Qwen--Qwen2.5-14B-Instruct/snapshots/0"
    for name in (hub_id, cached):
        rename_base(adapter, name)
        assert find_checkpoint(run).adapter_to == hub_id


def test_a_merged_model_and_a_worse_checkpoint_are_shared_with_their_runs_card(
    run: Path, base: Path, adapter: Path, begin: Begin, tmp_path: Path
) -> None:
    merged, out, other = tmp_path / "merged", tmp_path / "shared", tmp_path / "other"
    merge(run, merged)
    export(find_checkpoint(merged, run=run), out)
    assert says(out, begin) == says(f"{base}+{adapter}", begin)
    assert front_matter(out)["library_name"] == "transformers"
    assert "of rank 4, which is folded in here." in text_of(out)
    shutil.copytree(adapter, run / "checkpoints" / "checkpoint-6")
    metrics = json.loads((run / "metrics.json").read_text())
    alarm = {"step": 3, "kind": "hacking", "message": "'May' to 9 questions of ann@harbor.example"}
    write(run / "metrics.json", {**metrics, "alarms": [alarm]})
    worse = find_checkpoint(run / "checkpoints" / "checkpoint-6", base_id=HUB_ID)
    export(worse, other)
    assert "- Here: checkpoint-6 of the run.\n" in text_of(other)
    # A run without figures has a card too.
    (run / "metrics.json").unlink()
    export(worse, other)
    assert "Validation: not measured." in text_of(other)


def test_a_path_of_this_machine_does_not_leave(
    run: Path, adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/annsecret")
    out = tmp_path / "shared"
    write(adapter / "tokenizer_config.json", {"name_or_path": "/home/annsecret/x", "a": 1})
    weights, template = adapter / "adapter_model.safetensors", adapter / TOKENIZER[2]
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


def test_a_public_recipe_is_a_recipe() -> None:
    recipe = public_recipe(Recipe.model_validate(GOLDEN))
    assert recipe.model.base == "base"
    assert (recipe.data.questions, recipe.data.db) == ("golden", "mail.duckdb")
    assert recipe.judging.reward == "local:judge"
    assert recipe.sft is not None and recipe.sft.trajectories == ("a", "b")
    assert recipe.grpo is not None and recipe.grpo.vllm is not None
    assert recipe.grpo.vllm.server == "http://127.0.0.1:8000"
    assert recipe.episode.prompt == PROMPT


def test_what_can_not_be_exported(run: Path, base: Path, adapter: Path, tmp_path: Path) -> None:
    apart = tmp_path / "apart"
    shutil.copytree(adapter, apart)
    for arguments, words in (
        ((run,), "with --base-id OWNER/NAME"),
        ((run, None, "no id"), "no id of the hub"),
        ((base, run, HUB_ID), "leave out --base-id"),
        ((apart, None, HUB_ID), "--run DIR"),
        ((apart, tmp_path, HUB_ID), "--run DIR"),
        ((tmp_path,), "is no checkpoint"),
    ):
        assert words in the_error(lambda arguments=arguments: find_checkpoint(*arguments))  # type: ignore[misc]
    (adapter / "adapter_model.safetensors").unlink()
    found = find_checkpoint(run, base_id=HUB_ID)
    assert "save it as safetensors" in the_error(lambda: export(found, tmp_path / "out"))


# ---- The command.


def test_an_export_is_asked_as_the_command_says(
    art_e: Run, trained: Path, db: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    result = art_e("train", "export", trained, "--to", out)
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"art-e ask --model local:{out} --recipe {out}" in result.stderr
    command = ("ask", "When does the lease end?", "--inbox", ANN, "--db", db, "--json")
    answered = art_e(*command, "--model", f"local:{out}", "--recipe", out)
    assert json.loads(answered.stdout)["usage"]["completion_tokens"] > 0
    assert "art-e runs list" in error_of(art_e("train", "export", "none", "--to", out))
