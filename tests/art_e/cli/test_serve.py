"""`art-e serve`: vLLM's command, the printed line, and errors.

vLLM needs a GPU, so a script stands in for it."""

import itertools
import json
import os
import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="local models need the extra: art-e[train]")

from art_e.errors import UserError
from art_e.models.base import ModelOptions
from art_e.models.checkpoint import resolve_checkpoint
from art_e.models.local import LocalPolicy
from tests.builders import WAIT_S
from tests.command_line import Process, Run, the_error


@pytest.fixture
def vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a fake vLLM on the path that writes its arguments to this file and fails."""
    script, arguments = tmp_path / "bin" / "vllm", tmp_path / "arguments"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\necho its log\nprintf "%s\\n" "$@" > {arguments}\nexit 7')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}{os.pathsep}{os.environ['PATH']}")
    return arguments


@pytest.fixture
def run(tmp_path: Path, adapter: Path) -> Path:
    """Return a training run whose best checkpoint is the adapter."""
    run = tmp_path / "mine"
    shutil.copytree(adapter, run / "checkpoints" / "checkpoint-4")
    (run / "metrics.json").write_text('{"best_checkpoint": "checkpoints/checkpoint-4"}')
    return run


def test_vllm_serves_as_in_training(process: Process, checkpoint: Path, vllm: Path) -> None:
    after = ("--", "--max-model-len", "2048", "--quantization=fp8")
    where = ("--host", "0.0.0.0", "--port", "8123")
    running = process("serve", checkpoint, "--name", "talk", *where, *after)
    stdout, stderr = running.communicate(timeout=WAIT_S)
    assert running.returncode == 7 and "its log" in stderr, stderr
    arguments = vllm.read_text().splitlines()
    options = dict(itertools.pairwise(arguments))
    base = "http://127.0.0.1:8123/v1"
    assert stdout == f"HOSTED_VLLM_API_BASE={base} art-e ask QUESTION --model hosted_vllm/talk\n"
    assert arguments[:2] == ["serve", str(checkpoint.resolve())]
    assert arguments[-3:] == list(after[1:])
    assert options["--served-model-name"] == "talk" and options["--host"] == "0.0.0.0"
    assert options["--tool-call-parser"] == "hermes" and "--enable-auto-tool-choice" in arguments
    assert "--enable-lora" not in arguments and options["--allowed-origins"] == "[]"
    assert json.loads(options["--default-chat-template-kwargs"]) == {"enable_thinking": False}
    config = Path(options["--generation-config"]) / "generation_config.json"
    generation = json.loads(config.read_text())
    assert generation["repetition_penalty"] == 1.0 and generation["eos_token_id"]


def test_run_serves_its_best_adapter_and_form(
    art_e: Run, checkpoint: Path, run: Path, vllm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    best = run / "checkpoints" / "checkpoint-4"
    for folder in (run, best):
        assert resolve_checkpoint(str(folder), None) == (str(checkpoint), str(best))
        with pytest.raises(UserError, match="don't name another"):
            resolve_checkpoint(str(folder), "other")
    settings = LocalPolicy(str(run), ModelOptions()).settings
    assert (settings["path"], settings["adapter"]) == (str(checkpoint), str(best))
    (best / "episode.json").write_text('{"max_turns": 4}')
    arguments: list[str] = []
    monkeypatch.setattr("os.dup2", lambda *_: None)
    monkeypatch.setattr("os.execv", lambda _, command: arguments.extend(command))
    stdout = art_e("serve", run, "--name", "a b").stdout
    assert stdout.endswith(f" --model hosted_vllm/a-b --recipe {run}\n")
    options = dict(itertools.pairwise(arguments))
    assert arguments[2] == str(checkpoint.resolve())
    assert options["--lora-modules"] == f"a-b={best.resolve()}"
    assert (options["--max-lora-rank"], options["--served-model-name"]) == ("16", "a-b-base")
    assert options["--host"] == "127.0.0.1"


@pytest.mark.parametrize(
    ("args", "words"),
    [("base --adapter mine", "--model local:base+mine"), ("{run}/none", "there is no folder"),
     ("{checkpoint} --adapter {checkpoint}", "has no adapter_config"), ("{run}", "no best")],
)  # fmt: skip
def test_user_errors_are_one_line(
    checkpoint: Path, run: Path, art_e: Run, monkeypatch: pytest.MonkeyPatch, args: str, words: str
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None if "base" in args else "vllm")
    (run / "metrics.json").write_text('{"best_checkpoint": null}')
    filled = [each.format(checkpoint=checkpoint, run=run) for each in args.split()]
    assert words in the_error(art_e("serve", *filled))
