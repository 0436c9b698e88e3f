"""Checkpoints of a training run: which is the best, and how one with an adapter becomes whole.

    art-e train merge DIR --out DIR

An adapter is folded into the weights of the model that it was trained on, so that what is
written needs nothing beside it. Knows nothing of how checkpoints come about.
"""

import json
import re
import shutil
from pathlib import Path
from typing import Any

from art_e.errors import UserError
from art_e.policies.checkpoint import (
    ADAPTER_CONFIG,
    CONFIG,
    TOKENIZER,
    checkpoint_folder,
    load_checkpoint,
    load_tokenizer,
    require_train_extra,
)

CHECKPOINTS = "checkpoints"
METRICS = "metrics.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
# All that a tokenizer may be saved as; one folder has some of them.
TOKENIZER_FILES = (
    TOKENIZER,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
)
# Where a model has the same weights at both ends, an adapter of one of them changes both.
_ENDS = re.compile(r"\b(embed_tokens|lm_head)\b")


def best_checkpoint(run_folder: Path) -> Path:
    """The checkpoint of a training run that did best on validation, as its metrics name it.

    Raises `UserError` where there is none.
    """
    named = content_of(run_folder / METRICS).get("best_checkpoint")
    if not isinstance(named, str):
        raise UserError(
            f"{run_folder} has no best checkpoint yet: its {METRICS} names none; name one of"
            f" {run_folder / CHECKPOINTS}, or go on with the run (--resume)"
        )
    folder = run_folder / named
    if not folder.is_dir():
        raise UserError(
            f"{folder}, the best checkpoint of {run_folder}, is gone; name one of"
            f" {run_folder / CHECKPOINTS}"
        )
    return folder


def meant_checkpoint(folder: Path) -> Path:
    """The best checkpoint where `folder` is a training run's, else `folder` itself."""
    is_run = (folder / CHECKPOINTS).is_dir()
    return best_checkpoint(folder) if is_run else folder


def base_of(checkpoint: Path) -> str | None:
    """The folder or hub id of the model that the adapter in `checkpoint` was trained on.

    None for a checkpoint that is whole. Raises `UserError` for an adapter that names none.
    """
    if not (checkpoint / ADAPTER_CONFIG).is_file():
        return None
    base = content_of(checkpoint / ADAPTER_CONFIG).get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise UserError(
            f"the {ADAPTER_CONFIG} of {checkpoint} does not name the model that it was trained"
            " on; write it there as base_model_name_or_path"
        )
    return base


def merge(checkpoint: Path, out: Path) -> None:
    """Write the model of `checkpoint`, its adapter folded in, to the new folder `out`.

    `checkpoint` is a folder with a peft adapter, or a training run's, whose best one is meant.
    The weights are in the number format of the model that was trained on. The tokenizer is
    the checkpoint's own, file by file, or that model's where it has none. `out` is there whole
    or not at all. Raises `UserError` where there is nothing to merge, no model to merge it
    into, or no room at `out`.
    """
    _check_free(out)
    chosen = meant_checkpoint(checkpoint)
    base = base_of(chosen)
    if base is None:
        raise _whole(chosen)
    require_train_extra()
    try:
        base_folder = checkpoint_folder(base)
    except UserError as error:
        raise UserError(f"{chosen} is an adapter to {base}: {error}") from None
    _check_ends(chosen, base_folder)
    own = chosen if (chosen / TOKENIZER).is_file() else base_folder
    load_tokenizer(own, str(own))  # what can't be used is told before the work
    model = _merged(chosen, base)

    partial = out.parent / f".{out.name}.partial"
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)  # of a merge that was killed
        model.save_pretrained(partial)
        for name in TOKENIZER_FILES:
            if (own / name).is_file():
                shutil.copyfile(own / name, partial / name)
        partial.replace(out)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise UserError(
            f"can't write {out}: {error.strerror or error}; name another --out"
        ) from None


def _merged(checkpoint: Path, base: str) -> Any:
    """The whole model, in the number format in which its base is saved."""
    import torch
    from transformers import AutoConfig

    loaded = load_checkpoint(base, str(checkpoint))
    adapted: Any = loaded.model
    model = adapted.merge_and_unload()
    saved = AutoConfig.from_pretrained(checkpoint_folder(base)).dtype
    if isinstance(saved, torch.dtype):
        model = model.to(saved)
    model.generation_config = loaded.generation_config
    return model


def _check_free(out: Path) -> None:
    if out.is_dir():
        if any(out.iterdir()):
            raise UserError(f"{out} is there already; name a new folder with --out")
    elif out.exists() or out.is_symlink():
        raise UserError(f"{out} is there already and no folder; name a new one with --out")


def _whole(checkpoint: Path) -> UserError:
    if (checkpoint / CONFIG).is_file():
        return UserError(
            f"there is nothing to merge: {checkpoint} has no adapter, it is whole already;"
            f" use it as --model local:{checkpoint}"
        )
    return no_checkpoint(checkpoint)


def no_checkpoint(checkpoint: Path) -> UserError:
    """What is said of a folder that holds neither a model nor an adapter."""
    return UserError(
        f"{checkpoint} is no checkpoint: it has neither {ADAPTER_CONFIG} nor {CONFIG}; name a"
        " training run's folder, or a checkpoint in it"
    )


def _check_ends(checkpoint: Path, base_folder: Path) -> None:
    """Raise `UserError` where the adapter changes embeddings that are output weights as well."""
    from safetensors import SafetensorError, safe_open
    from transformers import AutoConfig

    try:
        with safe_open(checkpoint / ADAPTER_WEIGHTS, framework="pt") as weights:
            changed = any(_ENDS.search(each) for each in weights.keys())  # noqa: SIM118
        tied = AutoConfig.from_pretrained(base_folder).get_text_config().tie_word_embeddings
    except (OSError, ValueError, KeyError, SafetensorError):
        return  # loading tells what is wrong
    if changed and tied:
        raise UserError(
            f"the adapter {checkpoint} changes embeddings that its model uses twice, and can't"
            " be folded in; use it as it is: --model local:MODEL+ADAPTER"
        )


def content_of(path: Path) -> dict[str, Any]:
    """The JSON object of that file. Raises `UserError` where there is none."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        content = None
    if not isinstance(content, dict):
        raise UserError(f"{path} can't be read; name the folder of a training run that has it")
    return content
