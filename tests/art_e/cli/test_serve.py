"""`art-e serve`: which server it starts with which options, its one line, and how it ends.

transformers' server is the real one. A script with the documented options of vLLM stands in for
vLLM, which needs a GPU (tests/processes.py).
"""

import asyncio
import json
import shutil
import signal
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("torch", reason="local models need the extra: art-e[train]")

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from art_e.cli.bounded import MOST_TOKENS, Bounds
from art_e.cli.serve import print_address
from art_e.errors import UserError
from art_e.models.base import ModelOptions
from art_e.models.checkpoint import of_training
from art_e.models.local import LocalPolicy
from tests.command_line import Run, the_error
from tests.processes import TOLD, free_port, pairs, serving

# peft asks transformers by an older name.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")


def completion(base: str, model: str) -> str:
    """The server's answer to a plain HTTP request."""
    messages = [{"role": "user", "content": "When?"}]
    body = {"model": model, "messages": messages, "max_tokens": 8, "temperature": 0}
    reply = httpx.post(f"{base}/chat/completions", json=body, trust_env=False, timeout=60)
    return str(reply.json()["choices"][0]["message"]["content"])


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


def test_transformers_serves_an_adapter_until_ctrl_c(
    checkpoint: Path, adapter: Path, ctrl_c: None
) -> None:
    with serving(checkpoint, "--adapter", str(adapter), "--name", "lora") as (process, base):
        served = completion(base, "lora")
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
        port = int(base.rpartition(":")[2].partition("/")[0])
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0
    assert served == generated(checkpoint, adapter)
    assert served != generated(checkpoint, None)
    # The checkpoint itself is left as it was.
    assert "response_template" not in (checkpoint / "tokenizer_config.json").read_text()


def test_nobody_can_keep_it_from_others(checkpoint: Path) -> None:
    """What is too long is refused or cut, and what nobody waits for any more is left."""
    messages = [{"role": "user", "content": "When?"}]
    with serving(checkpoint, "--name", "mine") as (_, base):

        def ask(timeout: float, **more: Any) -> httpx.Response:
            body = {"model": "mine", "messages": messages, "temperature": 0, **more}
            url = f"{base}/chat/completions"
            return httpx.post(url, json=body, trust_env=False, timeout=timeout)

        root = base.removesuffix("/v1")
        listed = httpx.get(f"{base}/models", trust_env=False).json()
        assert [each["id"] for each in listed["data"]] == ["mine"]
        for path in ("/load_model", "/reset", "/v1/responses"):
            reply = httpx.post(f"{root}{path}", json={"model": "mine"}, trust_env=False)
            assert reply.status_code == 404
        assert ask(30, messages=[{"role": "user", "content": "x" * 1_200_000}]).status_code == 413
        assert ask(30, model="other").status_code == 404
        assert ask(30, max_tokens="many").status_code == 400
        whole = ask(300, max_tokens=10**9)
        assert whole.json()["usage"]["completion_tokens"] <= MOST_TOKENS
        assert completion(base, "mine")


def test_what_nobody_waits_for_any_more_is_left() -> None:
    """Of three requests the client of the first leaves while it is answered, that of the second
    before; the third is answered whole."""
    asked: list[str] = []
    steps = {"first": 10**9, "second": 10**9, "third": 5}

    async def endless(_: Any, receive: Any, send: Any) -> None:
        said = json.loads((await receive())["body"])["messages"]
        asked.append(said)
        stops, left = bounds.stops(), steps[said]
        while left and not stops(torch.zeros(1, 1), None).all():
            left -= 1
            await asyncio.sleep(0.01)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": str(left).encode()})

    bounds = Bounds(endless, "mine", 100)

    async def client(said: str, leaves: float | None) -> bytes:
        body = json.dumps({"model": "mine", "messages": said}).encode()
        left, got = [{"type": "http.request", "body": body}], b""

        async def receive() -> Any:
            if left:
                return left.pop()
            await asyncio.sleep(1_000 if leaves is None else leaves)
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            nonlocal got
            got += message.get("body", b"")

        scope = {
            "type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": [],
        }  # fmt: skip
        await bounds(scope, receive, send)
        return got

    async def all_three() -> list[bytes]:
        talks = client("first", 0.3), client("second", 0.1), client("third", None)
        return list(await asyncio.wait_for(asyncio.gather(*talks), 20))

    first, second, third = asyncio.run(all_three())
    assert asked == ["first", "third"]
    assert int(first) > 0
    assert (second, third) == (b"", b"0")


def test_a_server_that_fails_gives_its_exit_code(
    checkpoint: Path, vllm: Path, art_e: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAILING", "1")
    result = art_e("serve", checkpoint, "--port", free_port())
    assert (result.exit_code, result.stdout) == (7, "")
    assert "ended before it answered" in result.stderr


@pytest.mark.parametrize(
    ("host", "base", "whom"),
    [
        ("::1", "http://[::1]:8000/v1", "this machine only"),
        ("0.0.0.0", "http://127.0.0.1:8000/v1", "whoever reaches it, without a key"),
    ],
)
def test_one_line_says_where_it_is_for_whom_and_how_to_use_it(
    capsys: pytest.CaptureFixture[str], host: str, base: str, whom: str
) -> None:
    print_address("talk", host, 8000)
    line = TOLD.fullmatch(capsys.readouterr().out)
    assert line
    assert line.groups() == (base, whom, base, "hosted_vllm/talk")


def test_vllm_calls_tools_and_gets_the_options_after_the_dashes(
    checkpoint: Path, vllm: Path, ctrl_c: None
) -> None:
    after = ("--max-model-len", "2048", "--quantization=fp8")
    with serving(checkpoint, "--name", "talk", after=after) as (process, _):
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=30)
        assert process.returncode == 128 + signal.SIGTERM
    assert "a line of the server's log" in log
    given = json.loads(vllm.read_text())
    assert given[:2] == ["serve", str(checkpoint.resolve())]
    assert given[-3:] == list(after)
    options = pairs(given)
    assert options["--served-model-name"] == "talk"
    assert (options["--tool-call-parser"], options["--host"]) == ("hermes", "127.0.0.1")
    assert json.loads(options["--override-generation-config"]) == {"repetition_penalty": 1.0}
    assert json.loads(options["--default-chat-template-kwargs"]) == {"enable_thinking": False}
    assert "--enable-auto-tool-choice" in given and "--enable-lora" not in given


# A training run's folder stands for its best checkpoint.


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "mine" / "checkpoints").mkdir(parents=True)
    best = {"best_checkpoint": "checkpoints/checkpoint-4"}
    (tmp_path / "mine" / "metrics.json").write_text(json.dumps(best))
    return tmp_path / "mine"


def test_a_runs_adapter_is_served_on_its_model(
    checkpoint: Path, adapter: Path, run: Path, vllm: Path
) -> None:
    best = Path(shutil.copytree(adapter, run / "checkpoints" / "checkpoint-4"))
    for folder in (run, best):
        assert of_training(str(folder), None) == (str(checkpoint), str(best))
        with pytest.raises(UserError, match="name no other"):
            of_training(str(folder), "other")
    asked = LocalPolicy(str(run), ModelOptions()).settings
    assert (asked["path"], asked["adapter"]) == (str(checkpoint), str(best))
    with serving(run, "--name", "talk"):
        given = json.loads(vllm.read_text())
    assert given[1] == str(checkpoint.resolve())
    assert "--enable-lora" in given
    assert pairs(given)["--lora-modules"] == f"talk={best.resolve()}"
    assert pairs(given)["--max-lora-rank"] == "16"
    assert pairs(given)["--served-model-name"] != "talk"


# Errors


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["{checkpoint}", "--host", "192.0.2.1"], "--host"),
        (["{checkpoint}", "--name", "a b"], "--name"),
        (["{checkpoint}", "--name", "../up"], "--name"),
        (["{tmp}/none"], "there is no folder"),
        (["{checkpoint}", "--adapter", "{checkpoint}"], "is no adapter"),
        (["{run}"], "no best checkpoint yet"),
        (["{checkpoint}", "--", "--port", "9"], "--port is set by art-e serve itself"),
        (["{checkpoint}", "--", "--served_model_name=x"], "--served-model-name is set by"),
        (["{checkpoint}", "second"], "what is 'second'?"),
    ],
)
def test_user_errors_are_one_line(
    checkpoint: Path, vllm: Path, run: Path, art_e: Run, tmp_path: Path, args: list[str], words: str
) -> None:
    (run / "metrics.json").write_text('{"best_checkpoint": null}')
    made = [each.format(checkpoint=checkpoint, tmp=tmp_path, run=run) for each in args]
    assert words in the_error(art_e("serve", "--port", free_port(), *made))
    assert not vllm.exists()


def test_a_taken_port_is_an_error(checkpoint: Path, art_e: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = the_error(art_e("serve", checkpoint, "--port", port))
    assert f"port {port} is taken; choose another with --port" in line
