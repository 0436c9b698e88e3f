"""The server of transformers, for where there is no vLLM: one request after another.

Knows nothing of requests, and of how the server is run. Heavy imports are made inside
the functions.
"""

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from art_e.cli.serve_process import Server
from art_e.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

WEIGHTS = "adapter_model.safetensors"


def transformers_can_serve() -> bool:
    """Whether transformers and what its server needs are installed."""
    needed = ("torch", "transformers", "peft", "fastapi", "uvicorn", "openai", "pydantic")
    return all(importlib.util.find_spec(each) is not None for each in needed)


def transformers_server(
    checkpoint: str, adapter: str | None, name: str, listen: list[str], folder: Path
) -> Server:
    """The server of transformers. `folder` is for what it is given; raises `UserError`.

    The server takes the path that it loads for the model's name, an adapter only beside
    the weights, and the model's own tokenizer: so it gets a folder that has them so.
    """
    from art_e.policies.checkpoint import (
        adapter_folder,
        best_device,
        checkpoint_folder,
        load_tokenizer,
        require_train_extra,
    )
    from art_e.policies.qwen_calls import RESPONSE_TEMPLATE

    require_train_extra()
    source = checkpoint_folder(checkpoint)
    tokenizer = load_tokenizer(source, checkpoint)
    model = folder / name
    model.mkdir()
    _link(source, model, [each.name for each in source.iterdir() if each.is_file()])
    if adapter is not None:
        _link(adapter_folder(adapter), model, ["adapter_config.json", WEIGHTS])
    for replaced in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (model / replaced).unlink(missing_ok=True)
    tokenizer.response_template = RESPONSE_TEMPLATE
    tokenizer.save_pretrained(model)
    check_tokenizer(model, tokenizer, checkpoint)
    _end_turns(model, tokenizer)
    device, dtype = best_device()
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", name, *listen]
    # All that it needs is in the folder; it would ask PyPI for newer versions.
    offline = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_UPDATE_CHECK": "1"}
    return Server(
        [*command, "--device", device, "--dtype", dtype], folder, {**os.environ, **offline}
    )


def check_tokenizer(folder: Path, tokenizer: "PreTrainedTokenizerFast", checkpoint: str) -> None:
    """Raise `UserError` where transformers, as vLLM uses it too, would make another one of
    `folder`."""
    from art_e.policies.checkpoint import reloads_the_same

    if not reloads_the_same(folder, tokenizer):
        raise UserError(
            f"servers would load another tokenizer than the one saved in {checkpoint};"
            f" use --model local:{checkpoint}, or train it with a Qwen2Tokenizer"
        )


def _link(source: Path, folder: Path, names: list[str]) -> None:
    for each in names:
        (folder / each).unlink(missing_ok=True)
        (folder / each).symlink_to((source / each).resolve())


def _end_turns(folder: Path, tokenizer: "PreTrainedTokenizerFast") -> None:
    """Let generation stop where `local:` stops, and repeat as freely."""
    from transformers import AutoConfig, GenerationConfig

    from art_e.policies.checkpoint import stop_ids

    path = folder / "generation_config.json"
    if path.is_file():
        config = json.loads(path.read_text(encoding="utf-8"))
    else:
        model_config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        config = GenerationConfig.from_model_config(model_config).to_diff_dict()
    config["eos_token_id"] = list(stop_ids(tokenizer, GenerationConfig.from_dict(config)))
    config["repetition_penalty"] = 1.0
    path.unlink(missing_ok=True)
    path.write_text(json.dumps(config, indent=2), encoding="utf-8")
