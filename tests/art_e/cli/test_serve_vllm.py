"""The options that `art-e serve` starts vLLM with.

vLLM itself was not run: it needs a GPU. A script stands in its place (tests/processes.py) that
takes the options of vLLM's documentation and no others.
"""

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

pytest.importorskip("torch", reason="local models need the extra: art-e[train]")

from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from tests import tiny_qwen
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


class TestSpeculation:
    def test_by_words_of_the_prompt(self, checkpoint: Path, vllm: Path) -> None:
        with serving(checkpoint, "--speculative", "ngram", "--speculative-tokens", "7"):
            given = json.loads(vllm.read_text())
        assert json.loads(pairs(given)["--speculative-config"]) == {
            "method": "ngram",
            "num_speculative_tokens": 7,
            "prompt_lookup_max": 4,
        }

    def test_by_a_draft_model(self, checkpoint: Path, vllm: Path, tmp_path: Path) -> None:
        draft = Path(shutil.copytree(checkpoint, tmp_path / "draft"))
        with serving(checkpoint, "--speculative", str(draft)):
            given = json.loads(vllm.read_text())
        assert json.loads(pairs(given)["--speculative-config"]) == {
            "method": "draft_model",
            "model": str(draft),
            "num_speculative_tokens": 5,
        }

    def test_none_where_none_is_asked_for(self, checkpoint: Path, vllm: Path) -> None:
        with serving(checkpoint):
            given = json.loads(vllm.read_text())
        assert "--speculative-config" not in given

    def test_a_draft_of_other_words(
        self, checkpoint: Path, vllm: Path, tmp_path: Path, art_e: Run
    ) -> None:
        tokenizer = tiny_qwen.make_tokenizer(["Other words.", tiny_qwen.stock_template()])
        model = tiny_qwen.make_model(tokenizer, hidden=16)
        draft = tiny_qwen.save(model, tokenizer, tmp_path / "draft")
        line = the_error(refused(art_e, checkpoint, draft))
        assert f"{draft} has another vocabulary than {checkpoint}" in line
        assert "--speculative ngram" in line
        assert not vllm.exists()

    def test_a_draft_of_the_same_words_in_more_rows_and_how_to_mend_it(
        self, checkpoint: Path, vllm: Path, tmp_path: Path, art_e: Run
    ) -> None:
        """As Qwen2.5-0.5B (151,936 rows) is for Qwen2.5-14B (152,064)."""
        target, draft = padded(checkpoint, tmp_path / "target", 64), checkpoint
        line = the_error(refused(art_e, target, draft))
        rows = embedded(target)
        assert f"resize_token_embeddings({rows})" in line
        assert not vllm.exists()
        mended = padded(draft, tmp_path / "mended", 64)
        with serving(target, "--speculative", str(mended)):
            given = json.loads(vllm.read_text())
        assert str(mended) in pairs(given)["--speculative-config"]

    @pytest.mark.parametrize("by", ["ngram", "draft"])
    def test_an_adapter_is_to_be_merged_first(
        self, checkpoint: Path, adapter: Path, vllm: Path, art_e: Run, by: str
    ) -> None:
        chosen = checkpoint if by == "draft" else by
        result = refused(art_e, checkpoint, chosen, "--adapter", adapter)
        assert f"art-e train merge {adapter} --out DIR" in the_error(result)
        # A checkpoint that is an adapter is no other case.
        assert "art-e train merge" in the_error(refused(art_e, adapter, chosen))
        assert not vllm.exists()

    def test_no_draft(self, checkpoint: Path, vllm: Path, tmp_path: Path, art_e: Run) -> None:
        assert "there is no folder" in the_error(refused(art_e, checkpoint, tmp_path / "none"))


def refused(art_e: Run, checkpoint: Path, by: Path | str, *options: object) -> Result:
    return art_e("serve", checkpoint, "--speculative", by, "--port", free_port(), *options)


def padded(checkpoint: Path, folder: Path, multiple: int) -> Path:
    """The checkpoint with rows of embeddings that no token has, saved by transformers."""
    model: Any = AutoModelForCausalLM.from_pretrained(checkpoint)
    model.resize_token_embeddings(pad_to_multiple_of=multiple)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(checkpoint)
    assert embedded(tiny_qwen.save(model, tokenizer, folder)) > len(tokenizer)
    return folder


def embedded(checkpoint: Path) -> int:
    return int(json.loads((checkpoint / "config.json").read_text())["vocab_size"])
