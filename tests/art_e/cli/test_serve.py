"""`art-e serve`: which server is started how, what is told, and how it ends.

transformers' server is the real one, run here. For vLLM, which needs a GPU and was not run,
a script stands in (tests/processes.py); what it is given is in test_serve_vllm.py.
"""

import json
import shutil
import signal
import socket
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="local models need the extra: art-e[train]")

from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from art_e.cli.serve import of_training
from art_e.errors import UserError
from art_e.models.tool_formats import RESPONSE_TEMPLATE
from tests import tiny_qwen
from tests.command_line import Run, the_error
from tests.processes import TOLD, free_port, pairs, serving

# peft asks transformers by an older name.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")


def said(base: str, model: str, prompt: str = "When?") -> dict[str, Any]:
    """What the server answers to a plain HTTP request."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0,
        "max_tokens": 8,
    }
    request = urllib.request.Request(
        f"{base}/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as response:
        answer = json.load(response)
    assert isinstance(answer, dict)
    return answer


class TestTransformers:
    def test_it_serves_the_name_and_goes_with_sigterm(self, checkpoint: Path) -> None:
        with serving(checkpoint) as (process, base):
            answer = said(base, "tiny-1-a")
            assert answer["usage"]["completion_tokens"] > 0
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) in (0, 128 + signal.SIGTERM)
            assert not answers(base)

    def test_an_adapter_changes_what_is_said_and_ctrl_c_ends_it(
        self, checkpoint: Path, adapter: Path, ctrl_c: None
    ) -> None:
        with serving(checkpoint, "--adapter", str(adapter), "--name", "lora") as (process, base):
            served = said(base, "lora")["choices"][0]["message"]["content"]
            process.send_signal(signal.SIGINT)
            process.wait(timeout=60)
            assert not answers(base)
        assert served == generated(checkpoint, adapter)
        assert served != generated(checkpoint, None)

    def test_a_checkpoint_that_no_server_can_read_is_an_end_with_its_code(
        self, checkpoint: Path, tmp_path: Path, art_e: Run
    ) -> None:
        torn = Path(shutil.copytree(checkpoint, tmp_path / "torn"))
        (torn / "model.safetensors").write_bytes(b"no weights")
        result = art_e("serve", torn, "--port", free_port())
        assert result.exit_code == 1
        assert result.stdout == ""
        assert "ended before it answered" in result.stderr


def generated(checkpoint: Path, adapter: Path | None) -> str:
    """What transformers itself makes of the same prompt."""
    model: Any = AutoModelForCausalLM.from_pretrained(checkpoint)
    if adapter is not None:
        model.load_adapter(str(adapter))
    tokenizer: Any = AutoTokenizer.from_pretrained(checkpoint)
    conversation = [{"role": "user", "content": "When?"}]
    inputs = tokenizer.apply_chat_template(
        conversation, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    output = model.generate(**inputs, max_new_tokens=8, do_sample=False, repetition_penalty=1.0)
    return str(tokenizer.decode(output[0, inputs["input_ids"].shape[1] :]))


def answers(base: str) -> bool:
    port = int(base.rpartition(":")[2].partition("/")[0])
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize(
    ("host", "base", "whom"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000/v1", "this machine only"),
        ("localhost", "http://localhost:8000/v1", "this machine only"),
        ("::1", "http://[::1]:8000/v1", "this machine only"),
        ("0.0.0.0", "http://127.0.0.1:8000/v1", "whoever reaches it, without a key"),
        ("192.168.0.5", "http://192.168.0.5:8000/v1", "whoever reaches it, without a key"),
    ],
)
def test_one_line_says_where_it_is_for_whom_and_how_to_use_it(
    capsys: pytest.CaptureFixture[str], host: str, base: str, whom: str
) -> None:
    from art_e.cli.serve import print_address

    print_address("talk", host, 8000)
    told = TOLD.fullmatch(capsys.readouterr().out)
    assert told
    assert told.groups() == (base, whom, base, "hosted_vllm/talk")


class TestTraining:
    """A training run's folder stands for its best checkpoint."""

    @pytest.fixture
    def run(self, tmp_path: Path) -> Path:
        folder = tmp_path / "mine"
        (folder / "checkpoints").mkdir(parents=True)
        (folder / "metrics.json").write_text('{"best_checkpoint": "checkpoints/checkpoint-4"}')
        return folder

    def test_its_best_checkpoint_is_served_by_the_runs_name(
        self, checkpoint: Path, run: Path, vllm: Path
    ) -> None:
        best = Path(shutil.copytree(checkpoint, run / "checkpoints" / "checkpoint-4"))
        with serving(run):
            given = json.loads(vllm.read_text())
        assert given[1] == str(best.resolve())
        assert pairs(given)["--served-model-name"] == "mine"

    def test_an_adapter_is_served_on_its_model(
        self, checkpoint: Path, adapter: Path, run: Path
    ) -> None:
        best = Path(shutil.copytree(adapter, run / "checkpoints" / "checkpoint-4"))
        for folder in (run, best):
            assert of_training(str(folder), None) == (str(checkpoint), str(best))
            with pytest.raises(UserError, match="leave --adapter out"):
                of_training(str(folder), "other")

    def test_others_are_left_as_they_are(self, checkpoint: Path) -> None:
        for name in (str(checkpoint), "Qwen/Qwen2.5-14B-Instruct"):
            assert of_training(name, None) == (name, None)
            assert of_training(name, "me/talk") == (name, "me/talk")

    def test_a_run_without_a_best_one(self, run: Path, art_e: Run) -> None:
        (run / "metrics.json").write_text('{"best_checkpoint": null}')
        assert "no best checkpoint yet" in the_error(art_e("serve", run, "--port", free_port()))


class TestOptionsOfTheServer:
    """What follows -- is passed on as it is."""

    def test_they_reach_transformers_too(self, checkpoint: Path) -> None:
        with serving(checkpoint, after=("--default-seed", "3")) as (_, base):
            assert said(base, "tiny-1-a")["usage"]["completion_tokens"] > 0

    @pytest.mark.parametrize(
        ("options", "why"),
        [
            (["--", "--port", "9"], "--port is set by art-e serve itself"),
            (["--", "--served_model_name=x"], "--served-model-name is set by art-e serve itself"),
            (["second"], "what is 'second'?"),
        ],
    )
    def test_what_is_refused(
        self, checkpoint: Path, vllm: Path, art_e: Run, options: list[str], why: str
    ) -> None:
        result = art_e("serve", "--port", free_port(), checkpoint, *options)
        assert why in the_error(result)
        assert not vllm.exists()


class TestRefused:
    def test_a_port_that_is_taken(self, checkpoint: Path, art_e: Run) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            line = the_error(art_e("serve", checkpoint, "--port", port))
        assert f"port {port} is taken; choose another with --port" in line

    def test_an_address_of_another_machine(self, checkpoint: Path, art_e: Run) -> None:
        line = the_error(art_e("serve", checkpoint, "--host", "192.0.2.1", "--port", free_port()))
        assert "--host" in line

    @pytest.mark.parametrize("name", ["", "a b", "../up", "me/talk", "a@b"])
    def test_a_name_that_is_none(self, checkpoint: Path, art_e: Run, name: str) -> None:
        assert "--name" in the_error(art_e("serve", checkpoint, "--name", name))

    def test_no_checkpoint(self, tmp_path: Path, art_e: Run) -> None:
        line = the_error(art_e("serve", tmp_path / "none", "--port", free_port()))
        assert "there is no folder" in line

    def test_an_adapter_that_is_none(self, checkpoint: Path, art_e: Run) -> None:
        options = ("--adapter", checkpoint, "--port", free_port())
        assert "is no adapter" in the_error(art_e("serve", checkpoint, *options))

    def test_a_tokenizer_that_servers_would_change(
        self, checkpoint: Path, tmp_path: Path, art_e: Run
    ) -> None:
        changed = Path(shutil.copytree(checkpoint, tmp_path / "changed"))
        content = json.loads((changed / "tokenizer.json").read_text())
        content["pre_tokenizer"] = content["pre_tokenizer"]["pretokenizers"][-1]
        (changed / "tokenizer.json").write_text(json.dumps(content))
        line = the_error(art_e("serve", changed, "--port", free_port()))
        assert f"--model local:{changed}" in line

    def test_no_server_is_installed(
        self, checkpoint: Path, art_e: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", "")
        monkeypatch.setitem(sys.modules, "uvicorn", None)
        line = the_error(art_e("serve", checkpoint, "--port", free_port()))
        assert "pip install 'art-e[train]'" in line
