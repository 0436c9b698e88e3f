"""The options that `art-e serve` starts vLLM with.

vLLM itself was not run: it needs a GPU. A script stands in its place (tests/processes.py) that
takes the options of vLLM's documentation and no others.
"""

import json
import shutil
import signal
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="local models need the extra: art-e[train]")

from tests.command_line import Run, the_error
from tests.processes import free_port, pairs, serving

# peft asks transformers by an older name.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")


def test_is_started_so_that_it_calls_tools(checkpoint: Path, vllm: Path, ctrl_c: None) -> None:
    with serving(checkpoint, "--name", "talk") as (process, base):
        assert base.startswith("http://127.0.0.1:")
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=30)
        assert process.returncode == 128 + signal.SIGTERM
    assert "a line of the server's log" in log
    given = json.loads(vllm.read_text())
    assert given[:2] == ["serve", str(checkpoint.resolve())]
    assert pairs(given)["--served-model-name"] == "talk"
    assert pairs(given)["--tool-call-parser"] == "hermes"
    assert pairs(given)["--host"] == "127.0.0.1"
    assert json.loads(pairs(given)["--override-generation-config"]) == {"repetition_penalty": 1.0}
    assert "--enable-auto-tool-choice" in given
    assert "--enable-lora" not in given


def test_has_room_for_the_adapter_which_gets_the_name(
    checkpoint: Path, adapter: Path, vllm: Path
) -> None:
    with serving(checkpoint, "--name", "talk", "--adapter", str(adapter)):
        given = json.loads(vllm.read_text())
    assert "--enable-lora" in given
    assert pairs(given)["--lora-modules"] == f"talk={adapter.resolve()}"
    assert pairs(given)["--max-lora-rank"] == "16"
    assert pairs(given)["--served-model-name"] != "talk"


def test_its_exit_code_is_ours(
    checkpoint: Path, vllm: Path, art_e: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAILING", "1")
    result = art_e("serve", checkpoint, "--port", free_port())
    assert result.exit_code == 7
    assert result.stdout == ""
    assert "ended before it answered" in result.stderr


def test_an_adapter_of_a_rank_that_it_does_not_serve(
    checkpoint: Path, adapter: Path, vllm: Path, art_e: Run, tmp_path: Path
) -> None:
    huge = Path(shutil.copytree(adapter, tmp_path / "huge"))
    config = json.loads((huge / "adapter_config.json").read_text())
    (huge / "adapter_config.json").write_text(json.dumps({**config, "r": 1024}))
    result = art_e("serve", checkpoint, "--adapter", huge, "--port", free_port())
    assert "rank 1024" in the_error(result)
    assert not vllm.exists()
