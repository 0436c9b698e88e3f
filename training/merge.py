"""How a checkpoint with an adapter becomes whole.

    art-e train merge DIR --out DIR

An adapter is folded into the weights of the model that it was trained on, so that what is
written needs nothing beside it. Knows nothing of how checkpoints come about.
"""

import re
import shutil
from pathlib import Path
from typing import Any

from art_e.errors import UserError
from art_e.policies.checkpoint import (
    CONFIG,
    TOKENIZER,
    checkpoint_folder,
    load_checkpoint,
    load_tokenizer,
    require_train_extra,
)
from training.checkpoints import (
    ADAPTER_WEIGHTS,
    TOKENIZER_FILES,
    base_of,
    meant_checkpoint,
    no_checkpoint,
)

# Where a model has the same weights at both ends, an adapter of one of them changes both.
_ENDS = re.compile(r"\b(embed_tokens|lm_head)\b")


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
    folder = checkpoint_folder(base)
    saved = AutoConfig.from_pretrained(folder, trust_remote_code=False).dtype
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


def _check_ends(checkpoint: Path, base_folder: Path) -> None:
    """Raise `UserError` where the adapter changes embeddings that are output weights as well."""
    from safetensors import SafetensorError, safe_open
    from transformers import AutoConfig

    try:
        with safe_open(checkpoint / ADAPTER_WEIGHTS, framework="pt") as weights:
            changed = any(_ENDS.search(each) for each in weights.keys())  # noqa: SIM118
        config = AutoConfig.from_pretrained(base_folder, trust_remote_code=False)
        tied = config.get_text_config().tie_word_embeddings
    except (OSError, ValueError, KeyError, SafetensorError):
        return  # loading tells what is wrong
    if changed and tied:
        raise UserError(
            f"the adapter {checkpoint} changes embeddings that its model uses twice, and can't"
            " be folded in; use it as it is: --model local:MODEL+ADAPTER"
        )
