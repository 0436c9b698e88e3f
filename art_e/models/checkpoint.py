"""Finds checkpoints: folders of models, adapters and training runs, or ids on the hub.

`local.py` loads them, which needs the extra `train` (torch, transformers and peft)."""

import contextlib
import importlib.util
import json
import logging
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from art_e.episode import EpisodeForm
from art_e.errors import UserError, fault_of, install_command
from art_e.models.base import LOCAL_PREFIX
from art_e.storage import expanded

CONFIG, ADAPTER_CONFIG, TOKENIZER = "config.json", "adapter_config.json", "tokenizer.json"
EPISODE = "episode.json"  # in a checkpoint: the form of episode that it was trained in
CHECKPOINTS, METRICS = "checkpoints", "metrics.json"  # in the folder of a training run
TRAIN_EXTRA = ("torch", "transformers", "peft")
# Files to fetch from the hub, which may have the same weights in older formats too.
_FILES = ["*.json", "*.safetensors", "*.txt", "*.jinja", "*.model"]


def best_checkpoint_of(folder: Path) -> Path:
    """Return a run's best checkpoint (or raise `UserError`); return any other folder unchanged."""
    if not (folder / CHECKPOINTS).is_dir():
        return folder
    best = _json_object(folder / METRICS).get("best_checkpoint")
    others = f"name one of {folder / CHECKPOINTS}"
    if not isinstance(best, str):
        why = f"{folder} has no best checkpoint yet: its {METRICS} names none"
        raise UserError(f"{why}; {others}, or continue the run (--resume)")
    if not (folder / best).is_dir():
        raise UserError(f"{folder / best}, the best checkpoint of {folder}, is missing; {others}")
    return folder / best


def episode_form(model: str) -> EpisodeForm | None:
    """Return the episode form that a model was trained in, None if it is not recorded. `model` is
    local:PATH-or-hub-id[+ADAPTER], or the folder of a run, a checkpoint or an adapter. Raises
    `UserError` if the model does not exist, or its form is of another version."""
    base, adapter = _split(model.removeprefix(LOCAL_PREFIX))
    folder = expanded(adapter or base)
    if folder.is_dir():
        folder = best_checkpoint_of(folder)
    elif model.startswith(LOCAL_PREFIX):
        folder = checkpoint_folder(adapter or base, "adapter" if adapter else "model")
    file = folder / EPISODE
    if not file.is_file():
        return None
    try:
        # Checkpoints from before the lean form don't record it.
        return EpisodeForm.model_validate({"lean": False, **_json_object(file)})
    except ValidationError as error:
        fault = fault_of(error, "the form")
        why = f"{file} does not fit this version: {fault}"
        raise UserError(f"{why}; name a form with --recipe FILE.toml") from None


def base_of(checkpoint: Path) -> str | None:
    """Return an adapter's base model, a folder or hub id; None for a model. Raises `UserError`."""
    if not (checkpoint / ADAPTER_CONFIG).is_file():
        return None
    base = _json_object(checkpoint / ADAPTER_CONFIG).get("base_model_name_or_path")
    if isinstance(base, str) and base:
        return base
    why = f"the {ADAPTER_CONFIG} of {checkpoint} does not name the model that it was trained on"
    raise UserError(f"{why}; write it there as base_model_name_or_path")


def resolve_checkpoint(name: str, adapter: str | None = None) -> tuple[str, str | None]:
    """Return the model and the adapter that PATH-or-hub-id[+ADAPTER] names. A training run's folder
    means its best checkpoint; an adapter's folder means its base model with that adapter. Raises
    `UserError` for a run without a best checkpoint, and for two adapters."""
    if adapter is None:
        name, adapter = _split(name)
    folder = expanded(name)
    if not folder.is_dir():
        return name, adapter
    best = best_checkpoint_of(folder)
    base = base_of(best)
    if base is None:
        return (name if best == folder else str(best)), adapter
    if adapter is not None:
        raise UserError(f"{name} is an adapter itself; don't name another")
    return base, str(best)


def _split(name: str) -> tuple[str, str | None]:
    """Split a checkpoint from its adapter; a path may contain a "+" itself."""
    parts = name.split("+")
    bases = ["+".join(parts[:count]) for count in range(len(parts), 0, -1)]
    base = next((each for each in bases if each and expanded(each).is_dir()), parts[0])
    return base, name.removeprefix(base).removeprefix("+") or None


def _json_object(path: Path) -> dict[str, Any]:
    """Read the JSON object in a file of a run or checkpoint. Raises `UserError` without one."""
    with contextlib.suppress(OSError, ValueError):
        content = json.loads(path.read_text("utf-8"))
        if isinstance(content, dict):
            return content
    fix = "name a training run's folder, or a checkpoint, that has it"
    raise UserError(f"{path} can't be read; {fix}")


def require_train_extra() -> None:
    """Raise `UserError` if the libraries that load checkpoints are not installed."""
    # On a CPU, importing bitsandbytes warns of a missing faster kernel.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    missing = [name for name in TRAIN_EXTRA if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"local models need {missing[0]}: {install_command('eval,train')}")


def best_device() -> tuple[str, str]:
    """Return the device that models run on here, and the dtype of their weights."""
    import torch

    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return ("cpu", "float32") if accelerator is None else (accelerator.type, "bfloat16")


def checkpoint_folder(name: str, kind: Literal["model", "adapter"] = "model") -> Path:
    """Return the folder of a model or peft adapter; a hub id is fetched. Raises `UserError`."""
    local, needed = expanded(name), CONFIG if kind == "model" else ADAPTER_CONFIG
    if local.is_dir():
        if (local / needed).is_file():
            return local.resolve()
        raise UserError(f"{name} has no {needed}; name the folder of the {kind}")
    if local.exists():
        raise UserError(f"{name} is a file; name the folder of the {kind}")
    if name.startswith(("/", ".", "~")) or name.count("/") != 1:
        raise UserError(f"there is no folder {name}; name a {kind}'s folder or its id on the hub")
    from huggingface_hub import errors, snapshot_download

    try:
        folder = Path(snapshot_download(name, allow_patterns=_FILES))
    except errors.GatedRepoError:
        where = f"https://huggingface.co/{name}"
        raise UserError(f"{name} is gated: accept it at {where}, then hf auth login") from None
    except errors.RepositoryNotFoundError:
        why = f"no {kind} of that id on the hub; check the name (a private one needs hf auth login)"
        raise UserError(f"there is no folder {name}, and {why}") from None
    except (errors.HfHubHTTPError, OSError, ValueError) as error:
        why = f"the hub can't be reached ({type(error).__name__})"
        fix = f"with a network: hf download {name}"
        raise UserError(f"there is no folder {name}, and {why}; {fix}") from None
    if not (folder / needed).is_file():
        raise UserError(f"{name} on the hub has no {needed}; use the id of the {kind}")
    return folder


_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # the values of vLLM's --max-lora-rank


def vllm_rank(rank: object) -> int:
    """Return vLLM's --max-lora-rank for an adapter. Raises `UserError` if its rank is too high."""
    if not isinstance(rank, int) or rank > _RANKS[-1]:
        raise UserError(f"rank {rank} is too high for vLLM: merge the adapter, or lower the rank")
    return next(each for each in _RANKS if each >= rank)
