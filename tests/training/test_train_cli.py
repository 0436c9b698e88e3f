"""`art-e train`: its questions, a run of a new model, the card of a run, a merged model."""

import json
import os
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from art_e.episode import EpisodeForm
from art_e.inbox.file import InboxFile
from art_e.models.checkpoint import best_checkpoint_of, episode_form
from art_e.models.loading import autotokenizer_matches, load_checkpoint, load_tokenizer
from art_e.question import Split, load_questions
from art_e.runs import read_trajectories
from data_pipeline.cli import read_sources
from data_pipeline.ingest import build
from data_pipeline.synthetic.world import questions_of
from evals.scored import check_questions
from tests import tiny_qwen
from tests.builders import files_of, table, the_error, write_lines
from tests.command_line import ANN, Run, json_of
from tests.training import tiny
from training.cli import card, load_material, planted_in, rounding_retention
from training.cli import merge_adapter as merge
from training.recipe import Data, Recipe, Setting
from training.rollout import Material

changes = partial(tiny.flags, *tiny.FEW)


def test_sft_then_grpo_with_a_pause(art_e: Run, tmp_path: Path) -> None:
    start, trained = tmp_path / "start", tmp_path / "trained"
    metrics = json_of(art_e("train", "sft", *changes(), "--out", start, "--json"))
    assert (metrics["run"], metrics["paused"]) == (str(start), None)
    assert [each["step"] for each in metrics["validation"]] == [0, 4]
    # The start may be named as the model, in place of a new one.
    command = ("train", "grpo", *changes(), "--set", f"model.base={start}", "--out", trained)
    result = art_e(*command, "--minutes", "0")
    assert result.exit_code == 75, result.output
    assert (trained / "PAUSED").is_file()
    assert f"--resume --out {trained}" in result.stderr.splitlines()[-1]
    result = art_e(*command, "--resume")
    assert (result.exit_code, result.stdout) == (0, ""), result.output
    assert not (trained / "PAUSED").exists()
    assert f"art-e eval report {trained}" in result.stderr
    metrics = json.loads((trained / "metrics.json").read_text("utf-8"))
    assert metrics["test"]["greedy"]["n"] == 3
    assert f"local:{trained} " in result.stderr


def test_the_questions_of_a_split(art_e: Run, tmp_path: Path) -> None:
    words = ("train", "questions", "--recipe", "nano", *changes())
    counts: tuple[tuple[Split, int], ...] = (("test", 3), ("train", 40))
    for split, number in counts:
        out = tmp_path / split
        row = json_of(art_e(*words, "--split", split, "--out", out, "--json"))
        rows, whole = load_questions(row["questions"]), load_material(tiny.recipe().data, split)
        assert row["n"] == len(rows) >= number and {each.split for each in rows} == {split}
        assert rows == (whole.held_out(3) if split == "test" else whole.questions)
        form = EpisodeForm.model_validate_json((out / "episode.json").read_text())
        assert form == tiny.recipe().episode
        with InboxFile(Path(row["db"])) as file:
            check_questions(rows, file)


def test_libraries_report_no_use() -> None:
    """TRL would tell its makers of every training."""
    imports = "import art_e, training.cli; from huggingface_hub import constants as hub"
    command = [sys.executable, "-c", f"{imports}; assert hub.HF_HUB_DISABLE_TELEMETRY"]
    settings = ("TELEMETRY", "DO_NOT_TRACK")
    env = {name: each for name, each in os.environ.items() if not name.endswith(settings)}
    subprocess.run(command, check=True, env=env, cwd=Path(__file__).parents[2])


def test_expected_fees_are_shown_before_the_start(art_e: Run, tmp_path: Path) -> None:
    """Without a key the run ends at its start."""
    costly = changes("judging.reward='openai/gpt-4.1'", "grpo.steps=100", "grpo.rollouts=8")
    command = ("train", "grpo", "--init", "start", "--out", tmp_path / "run", *costly)
    lines = art_e(*command, "--max-cost", "5").stderr.splitlines()
    fee = next(each for each in lines if each.startswith("judge openai/gpt-4.1"))
    # Two questions of eight rollouts a step, 51 validations of three questions, the test twice.
    assert re.fullmatch(r".*: about \$\d\.\d for 1,759 episodes; \$5\.00 at most", fee), fee
    assert "no limit: --max-cost sets one" in art_e(*command).stderr
    # A model that is made from nothing needs a start.
    result = art_e("train", "grpo", *changes(), "--out", tmp_path / "run")
    assert result.exit_code == 2 and "--init" in result.stderr.splitlines()[-1]
    assert not (tmp_path / "run").exists()


@pytest.fixture
def data(home: Path) -> Data:
    return tiny.recipe().data


def ids(material: Material) -> list[str]:
    return [each.id for each in material.questions]


def test_splits_share_no_question_and_no_inbox(data: Data) -> None:
    train, validation = load_material(data, "train"), load_material(data, "validation")
    for material, split in ((train, "train"), (validation, "validation")):
        assert {each.split for each in material.questions} == {split}
        assert {each.kind for each in material.questions} == set(data.kinds)
    assert set(ids(train)) <= set(planted_in(data))
    one, other = (
        {m for q in part.questions for m in q.message_ids} for part in (train, validation)
    )
    assert not one & other
    assert not set(ids(train)) & set(ids(validation))


def test_golden_set_is_held_out_with_training_worlds(data: Data, tmp_path: Path) -> None:
    db = tmp_path / "held-out.duckdb"
    source = "synthetic:1000,seed=7,short,split="
    read_sources([f"{source}test"], db)
    questions = tmp_path / "held-out.questions.jsonl"
    both = data.model_copy(update={"questions": str(questions), "db": str(db)})
    test = load_material(both, "test")
    assert set(ids(test)) <= {each.id for each in questions_of(f"{source}test")}
    assert test.file.path == db
    assert ids(load_material(both, "train")) == ids(load_material(data, "train"))


@pytest.mark.parametrize("share", [0.1, 0.34, 0.9])
def test_the_share_of_unanswerable_questions_is_capped(data: Data, share: float) -> None:
    every = load_material(data.model_copy(update={"unanswerable": None}), "train").questions
    rows = load_material(data.model_copy(update={"unanswerable": share}), "train").questions
    assert [each for each in rows if each.answerable] == [each for each in every if each.answerable]
    assert [each for each in every if each in rows] == rows
    left, had = (sum(not each.answerable for each in some) for some in (rows, every))
    assert left / len(rows) <= share
    # One more would be too many, or all are in.
    assert left == had or (left + 1) / (len(rows) + 1) > share


def test_a_worlds_file_is_made_once(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_material(data, "train")
    monkeypatch.setattr(build, "ingest", mock.Mock(side_effect=AssertionError("made again")))
    assert load_material(data, "train").questions == first.questions
    # Another world is another file.
    assert data.worlds is not None
    other = data.worlds.model_copy(update={"vocabulary": 900})
    with pytest.raises(AssertionError, match="made again"):
        load_material(data.model_copy(update={"worlds": other}), "train")


def test_golden_set_of_home(data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    material = load_material(data, "train")
    monkeypatch.setenv("ART_E_HOME", str(tmp_path))
    of_home = Data(db=str(material.file.path), train_questions=5)
    error = the_error(load_material, of_home, "train")
    assert "no golden set at " in error and "art-e golden import" in error
    (tmp_path / "golden").mkdir()
    for name in ("train", "test"):
        rows = (json.dumps(each.to_row() | {"split": name}) for each in material.questions)
        (tmp_path / "golden" / f"{name}.jsonl").write_text("\n".join(rows), encoding="utf-8")
    few = load_material(of_home, "train")
    assert len(few.questions) == 5
    assert ids(load_material(of_home, "train")) == ids(few)
    # Training alone has fewer.
    assert len(load_material(of_home, "test").questions) == len(material.questions)
    named = Data(questions=str(tmp_path / "golden"), db=of_home.db)
    assert ids(load_material(named, "train")) == ids(material)
    # The expert has no evidence for these.
    assert not planted_in(named)
    counts = named.model_copy(update={"kinds": ("count",)})
    assert "split train has no question of count" in the_error(load_material, counts, "train")


def test_held_out_questions_are_always_the_same(material: Material) -> None:
    first = material.held_out(10)
    assert len(first) == 10
    assert material.held_out(20)[:10] == first != material.questions[:10]
    assert len(material.held_out(10**6)) == len(material.questions)


@pytest.fixture
def adapter(checkpoint: Path, adapter: Path, tmp_path: Path) -> Path:
    """Make the checkpoint of a run with an adapter and the trainer's other files."""
    folder = tmp_path / "annsecret" / "run"
    copy = shutil.copytree(adapter, folder / "checkpoints" / "checkpoint-12")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copyfile(checkpoint / name, copy / name)
    write_lines(folder / "metrics.json", {"best_checkpoint": "checkpoints/checkpoint-12"})
    return copy


def test_merged_model_computes_the_same(checkpoint: Path, adapter: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "merged"
    left = out.parent / ".merged.partial"  # of a merge that was killed
    left.mkdir(parents=True)
    (left / "model-00001-of-00002.safetensors").write_bytes(b"half")
    write_lines(adapter / "episode.json", {"max_turns": 3})
    merge(adapter.parents[1], out)
    assert files_of(out)["episode.json"] == files_of(adapter)["episode.json"]
    assert sorted(out.parent.iterdir()) == [out]
    ids = torch.tensor([[5, 6, 7, 8, 9, 10]])
    with torch.inference_mode():
        whole, both, bare = (
            load_checkpoint(str(model), adapted).model(input_ids=ids).logits
            for model, adapted in ((out, None), (checkpoint, str(adapter)), (checkpoint, None))
        )
    assert torch.allclose(whole, both, atol=1e-4)
    assert not torch.allclose(whole, bare, atol=1e-2)
    assert "adapter_config.json" not in files_of(out)
    # Servers load the same tokenizer as was saved.
    assert autotokenizer_matches(out, load_tokenizer(out, "merged"))


def test_a_merge_keeps_bits_and_tokenizer(checkpoint: Path, adapter: Path, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(checkpoint, "base")
    half: Any = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.bfloat16)
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
    write_lines(config, {**json.loads(config.read_text()), "base_model_name_or_path": name})


def test_merge_errors(checkpoint: Path, adapter: Path, tmp_path: Path) -> None:
    out, file, full = (tmp_path / each for each in ("merged", "file", "full"))
    file.write_text("mine")
    full.mkdir()
    (full / "mine").write_text("mine")
    for action, words in (
        (lambda: merge(checkpoint, out), f"local:{checkpoint}"),
        (lambda: merge(tmp_path / "nowhere", out), "holds no adapter"),
        (lambda: merge(adapter, full), "--out"),
        (lambda: merge(adapter, file / "merged"), "can't write"),
    ):
        assert words in the_error(action)
    assert files_of(full) == {"mine": b"mine"}
    with mock.patch.object(Path, "replace", side_effect=OSError(28, "No space left on device")):
        assert "No space left" in the_error(merge, adapter, out)
    rename_base(adapter, str(tmp_path / "gone"))
    assert f"there is no folder {tmp_path / 'gone'}" in the_error(merge, adapter, out)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["annsecret", "file", "full"]


def test_a_copy_keeps_its_form(art_e: Run, trained: Path, db: Path, tmp_path: Path) -> None:
    out, form = tmp_path / "shared", tiny.recipe().episode
    shutil.copytree(best_checkpoint_of(trained), out)
    assert episode_form(f"local:{trained}") == episode_form(str(out)) == form
    command = ("ask", "When does the lease end?", "--inbox", ANN, "--db", db, "--json")
    answered = json_of(art_e(*command, "--model", f"local:{out}"))
    [trajectory] = read_trajectories(Path(answered["trajectory"]))
    assert trajectory.messages[0]["content"] == form.prompt
    assert trajectory.rubric["max_turns"] == form.max_turns
    assert trajectory.policy["max_output_tokens"] == form.turn_tokens


# ---- The model card: it reports the metrics, and no text becomes markup.

SMALL = table(__file__, "small.toml")


def rendered_card(recipe: dict[str, Any] = SMALL, kind: Any = "grpo", **metrics: Any) -> str:
    setting = Setting(kind, Recipe.model_validate(recipe), 20_010)
    figures = {"best_checkpoint": "checkpoints/checkpoint-40", "seconds": 1.0, "cost_usd": 1.0}
    return card(setting, {**figures, "tokens": 1, "test": None, "alarms": [], **metrics})


def test_card_content() -> None:
    of_scratch = rendered_card(
        alarms=[{"step": 1_200, "kind": "abstention", "message": "lower the rate"}]
    )
    greedy = {"n": 400, "accuracy": {"value": 0.81, "low": 0.77, "high": 0.85, "n": 267}}
    adapted = {"base": "Qwen/Qwen2.5-14B-Instruct", "lora": 8}
    data = {"questions": "/home/ann/secret/golden", "db": "/home/ann/secret/mail.duckdb"}
    golden = {"data": data, "judging": {"validation": "offline"}}
    of_adapter = rendered_card(
        {**SMALL, "model": adapted, **golden}, "sft", test={"greedy": greedy}
    )
    for text, parts in (
        (of_scratch, ["- Step 1,200, abstention: lower the rate\n", "The test was not asked."]),
        (of_scratch, ["--init START --seed 20010", "local:RUN/checkpoints/checkpoint-40\n"]),
        (of_adapter, ["| accuracy | 0.810 (0.770 to 0.850, n = 267) |", "None was raised"]),
        # An adapter is merged before it is used.
        (of_adapter, ["art-e train merge RUN/checkpoints/checkpoint-40 --out MERGED"]),
    ):
        assert [each for each in parts if each not in text] == []
    assert "secret" not in of_adapter and "--init" not in of_adapter


def hostile(word: str) -> str:
    """Render a card whose untrusted texts are all `word` to HTML."""
    recipe = {
        **SMALL, "name": word, "model": {"base": word}, "data": {"questions": word},
        "judging": {"reward": word, "validation": f"other {word}"},
    }  # fmt: skip
    alarm = {"step": 1, "kind": word, "message": word}
    body = rendered_card(recipe, alarms=[alarm], test={word: {"n": 1}}).split("---\n", 2)[2]
    return str(MarkdownIt("commonmark").enable("table").render(body))


@given(st.text(min_size=1, max_size=60))
@example("x | y\n\n# a <script>alert(1)</script> [a](http://evil) `b` ![i](//e) **c** {{ 7*7 }}")
@example("```\n# x")
@example("a\\|b")
@example("accuracy")
@example("~0")
def test_hostile_words_are_only_words(word: str) -> None:
    page, plain = hostile(word), hostile("word")
    assert set(re.findall(r"</?(\w+)", page)) == set(re.findall(r"</?(\w+)", plain))
    for tag in ("<h2>", "<td", "<li>", "<pre>"):
        assert page.count(tag) == plain.count(tag)


def test_rounding_retention_of_a_young_adapter_is_low() -> None:
    """bfloat16 has 8 bits: a change of a thousandth of a weight is often lost, a large one not."""
    torch.manual_seed(0)
    # The base's weights are of bfloat16.
    layer = torch.nn.Linear(64, 64, bias=False, dtype=torch.bfloat16)
    plain = torch.nn.Sequential(layer.float())
    adapted: Any = get_peft_model(plain, LoraConfig(r=4, target_modules=["0"]))
    second = adapted.base_model.model[0].lora_B["default"].weight
    shares = []
    for size in (1e-5, 1e-3, 1.0):
        torch.nn.init.normal_(second, std=size)
        shares.append(rounding_retention(adapted, torch.bfloat16))
    assert shares[0] < 0.9 and shares[2] == pytest.approx(1.0, abs=0.01)
    assert rounding_retention(adapted, torch.float32) == pytest.approx(1.0, abs=1e-3)
