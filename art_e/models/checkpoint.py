"""Checkpoints: a model, its adapter and its tokenizer, from folders or the hub.

Their faults are one-line errors before a run starts. The tokenizer is loaded exactly as it was
saved. torch, transformers and peft are the extra `train`, imported when a checkpoint is loaded.
"""

import json
import logging
import os
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from art_e.episode import EpisodeForm
from art_e.errors import UserError, fault_of
from art_e.models.base import LOCAL_PREFIX
from art_e.models.tool_formats import NOT_THINKING, CallForm, form_of, probe_conversation
from art_e.storage import expanded

if TYPE_CHECKING:
    from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerFast

CONFIG, ADAPTER_CONFIG, TOKENIZER = "config.json", "adapter_config.json", "tokenizer.json"
# In a checkpoint: the form of episode that it was trained in.
EPISODE = "episode.json"
# In the folder of a training run.
CHECKPOINTS, METRICS = "checkpoints", "metrics.json"
INSTALL_EXTRA = "pip install 'art-e[train]'"
# Files fetched from the hub; it may hold the same weights in older formats.
_FILES = ["*.json", "*.safetensors", "*.txt", "*.jinja", "*.model"]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model that is ready to generate. `stop_ids` end a turn, `context` is in tokens."""

    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerFast"
    generation_config: "GenerationConfig"
    device: str
    dtype: str
    stop_ids: tuple[int, ...]
    context: int


def split_adapter(name: str) -> tuple[str, str | None]:
    """The checkpoint and the adapter of "PATH-or-hub-id[+ADAPTER]"; a path may hold a "+".

    Raises `UserError` if a ~user home does not exist.
    """
    parts = name.split("+")
    bases = ["+".join(parts[:count]) for count in range(len(parts), 0, -1)]
    base = next((each for each in bases if each and expanded(each).is_dir()), parts[0])
    return base, name.removeprefix(base).removeprefix("+") or None


def checkpoint_folder(name: str) -> Path:
    """The folder of a model, fetched from the hub if `name` is a hub id. Raises `UserError`."""
    return _folder(name, CONFIG, "model")


def adapter_folder(name: str) -> Path:
    """The folder of a peft adapter, found as `checkpoint_folder` finds a model."""
    return _folder(name, ADAPTER_CONFIG, "adapter")


def meant_checkpoint(folder: Path) -> Path:
    """The best checkpoint if `folder` is a training run's, else `folder` itself."""
    return best_checkpoint(folder) if (folder / CHECKPOINTS).is_dir() else folder


def best_checkpoint(run_folder: Path) -> Path:
    """The checkpoint of a training run that did best on validation. Raises `UserError`."""
    best = json_object(run_folder / METRICS).get("best_checkpoint")
    if not isinstance(best, str):
        raise UserError(
            f"{run_folder} has no best checkpoint yet: its {METRICS} names none; name one of"
            f" {run_folder / CHECKPOINTS}, or continue the run (--resume)"
        )
    folder = run_folder / best
    if not folder.is_dir():
        raise UserError(
            f"{folder}, the best checkpoint of {run_folder}, is missing; name one of"
            f" {run_folder / CHECKPOINTS}"
        )
    return folder


def episode_form(model: str) -> EpisodeForm | None:
    """Return the form of episode that a model was trained in; None if nothing says which.

    `model` is local:PATH-or-hub-id[+ADAPTER], or the folder of a run, a checkpoint or an adapter.
    Raises `UserError` if the model does not exist, or its form is of another version.
    """
    base, adapter = split_adapter(model.removeprefix(LOCAL_PREFIX))
    folder = expanded(adapter or base)
    if folder.is_dir():
        folder = meant_checkpoint(folder)
    elif model.startswith(LOCAL_PREFIX):
        folder = checkpoint_folder(base) if adapter is None else adapter_folder(adapter)
    file = folder / EPISODE
    if not file.is_file():
        return None
    try:
        return EpisodeForm.model_validate_json(file.read_bytes())
    except ValidationError as error:
        fault = fault_of(error, "the form")
        raise UserError(
            f"{file} does not fit this version: {fault}; name a form with --recipe FILE.toml"
        ) from None


def base_of(checkpoint: Path) -> str | None:
    """The folder or hub id of the model under the adapter in `checkpoint`; None for a whole model.

    Raises `UserError` if the adapter names no model.
    """
    if not (checkpoint / ADAPTER_CONFIG).is_file():
        return None
    base = json_object(checkpoint / ADAPTER_CONFIG).get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise UserError(
            f"the {ADAPTER_CONFIG} of {checkpoint} does not name the model that it was trained"
            " on; write it there as base_model_name_or_path"
        )
    return base


def of_training(checkpoint: str, adapter: str | None) -> tuple[str, str | None]:
    """The model and the adapter that are meant.

    A training run's folder stands for its best checkpoint, and an adapter's folder for the model
    that it was trained on with the adapter. Raises `UserError` for a run without a best checkpoint,
    for an adapter that names no model, and for two adapters.
    """
    folder = expanded(checkpoint)
    if not folder.is_dir():
        return checkpoint, adapter
    best = meant_checkpoint(folder)
    base = base_of(best)
    if base is None:
        return (checkpoint if best == folder else str(best)), adapter
    if adapter is not None:
        raise UserError(f"{checkpoint} is an adapter already; name no other")
    return base, str(best)


def json_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file of a run or checkpoint. Raises `UserError` without one."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        content = None
    if not isinstance(content, dict):
        raise UserError(
            f"{path} can't be read; name a training run's folder, or a checkpoint, that has it"
        )
    return content


def require_train_extra() -> None:
    """Raise `UserError` if the libraries that load checkpoints are not installed."""
    # Must precede the first import of the hub's library.
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    # On a CPU bitsandbytes warns of a missing faster kernel when it is imported.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    try:
        import peft  # noqa: F401
        import torch  # noqa: F401
        import transformers
    except ImportError as error:
        raise UserError(f"local models need {error.name}: {INSTALL_EXTRA}") from None
    if not sys.stderr.isatty():
        bars: Any = transformers.utils.logging
        bars.disable_progress_bar()


def best_device() -> tuple[str, str]:
    """The device that models run on here, and the number format of their weights."""
    import torch

    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return ("cpu", "float32") if accelerator is None else (accelerator.type, "bfloat16")


def load_checkpoint(
    name: str,
    adapter: str | None = None,
    *,
    exact: bool = False,
    bits: int = 16,
    sharded: bool = False,
    template: str | None = None,
) -> Checkpoint:
    """The model, with its adapter, on the best device. Raises `UserError`.

    `exact` keeps weights in float32 on a GPU too: bfloat16 would round small training steps away.
    With 4 `bits` the linear layers are NF4. With `sharded` the weights stay on the CPU for a
    trainer that spreads them over several devices. `template` is a chat template in place of the
    model's own.
    """
    require_train_extra()
    folder = checkpoint_folder(name)
    tokenizer = load_tokenizer(folder, name, template)
    device, dtype = best_device()
    if exact:
        dtype = "float32"
    model = _load_model(folder, name, None if sharded else device, dtype, bits)
    if bits == 4 and device == "cpu":
        _keep_differentiable(model)
    generation_config = model.generation_config
    assert generation_config is not None
    if adapter is not None:
        model = _with_adapter(model, adapter_folder(adapter), adapter)
    model.train(False)
    return Checkpoint(
        model=model,
        tokenizer=tokenizer,
        generation_config=generation_config,
        device=device,
        dtype=dtype,
        stop_ids=stop_ids(tokenizer, generation_config),
        context=int(model.config.get_text_config().max_position_embeddings),
    )


def load_tokenizer(
    folder: Path, name: str, template: str | None = None
) -> "PreTrainedTokenizerFast":
    """The tokenizer saved in `folder`; its chat template must call tools as Qwen's does.

    It reads tokenizer.json as it is: `AutoTokenizer` would replace the rules that split words if
    the config says qwen2. `name` is for errors.
    """
    from jinja2 import TemplateError
    from transformers import PreTrainedTokenizerFast

    if not (folder / TOKENIZER).is_file():
        raise UserError(f"{name} has no {TOKENIZER}; save its tokenizer beside the weights")
    try:
        tokenizer: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(
            folder, trust_remote_code=False
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"the tokenizer of {name} can't be loaded: {_in_a_line(error)}") from None
    if template is not None:
        tokenizer.chat_template = template
    if tokenizer.chat_template is None:
        raise UserError(
            f"{name} has no chat template; use an instruct model, or save its tokenizer with one"
        )
    try:
        call_form(tokenizer)
    except TemplateError as error:
        raise UserError(
            f"the chat template of {name} can't be used: {_in_a_line(error)};"
            " save its tokenizer with another"
        ) from None
    except ValueError:
        raise UserError(
            f"{name} does not call tools in Qwen's form, the only one that local: reads; use a"
            " Qwen model, or serve it yourself and use --model hosted_vllm/NAME"
        ) from None
    return tokenizer


def call_form(tokenizer: "PreTrainedTokenizerFast") -> CallForm:
    """How the chat template writes calls. Raises `ValueError` for another form than Qwen's two, and
    jinja2's `TemplateError` if it can't be used."""
    rendered = tokenizer.apply_chat_template(probe_conversation(), tokenize=False, **NOT_THINKING)
    form = form_of(str(rendered))
    if form is None:
        raise ValueError("none of Qwen's forms")
    return form


# The ranks for adapters that vLLM can be started with.
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)


def room_for(rank: object) -> int:
    """The rank to start vLLM with for an adapter. Raises `UserError` if `rank` is too high."""
    if not isinstance(rank, int) or rank > _RANKS[-1]:
        raise UserError(f"vLLM takes no adapter of rank {rank}: merge it, or train one of less")
    return next(each for each in _RANKS if each >= rank)


def reloads_the_same(folder: Path, tokenizer: "PreTrainedTokenizerFast") -> bool:
    """Whether `AutoTokenizer`, which servers use, makes the same tokenizer of `folder`."""
    from transformers import AutoTokenizer

    try:
        reloaded = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except ValueError:  # a tokenizer that comes as code, which is never run
        return False
    return bool(_content(reloaded) == _content(tokenizer))


def stop_ids(
    tokenizer: "PreTrainedTokenizerFast", generation_config: "GenerationConfig"
) -> tuple[int, ...]:
    """The tokens that end a turn: the model's, the tokenizer's, the chat template's."""
    eos = generation_config.eos_token_id
    configured = [] if eos is None else eos if isinstance(eos, list) else [eos]
    own = [tokenizer.eos_token_id, end_of_turn(tokenizer)]
    return tuple(dict.fromkeys([*configured, *(each for each in own if each is not None)]))


def end_of_turn(tokenizer: "PreTrainedTokenizerFast") -> int | None:
    """The special token that the chat template writes after a message of the model.

    None if the template writes no special token there. Qwen2.5-Instruct's generation config
    lists two end tokens, and only the template tells which of them ends a turn.
    """
    reply = "reply"
    rendered = tokenizer.apply_chat_template(
        [{"role": "user", "content": "?"}, {"role": "assistant", "content": reply}], tokenize=False
    )
    assert isinstance(rendered, str)
    first = tokenizer.encode(rendered.rpartition(reply)[2], add_special_tokens=False)[:1]
    return next((each for each in first if each in tokenizer.all_special_ids), None)


def _folder(name: str, needed: str, kind: str) -> Path:
    local = expanded(name)
    if local.is_dir():
        if (local / needed).is_file():
            return local.resolve()
        raise UserError(f"{name} is no {kind}: it has no {needed}; name the folder that holds it")
    if local.exists():
        raise UserError(f"{name} is a file; name the folder that holds the {kind}")
    if name.startswith(("/", ".", "~")) or name.count("/") != 1:
        raise UserError(f"there is no folder {name}; name a {kind}'s folder or its id on the hub")
    return _from_hub(name, needed, kind)


def _from_hub(name: str, needed: str, kind: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

    try:
        folder = Path(snapshot_download(name, allow_patterns=_FILES))
    except GatedRepoError:
        raise UserError(
            f"{name} has terms to accept: do so at https://huggingface.co/{name},"
            " then hf auth login"
        ) from None
    except RepositoryNotFoundError:
        raise UserError(
            f"there is no folder {name}, and no {kind} of that id on the hub; check the name"
            " (a private one needs hf auth login)"
        ) from None
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise UserError(
            f"there is no folder {name}, and the hub can't be reached"
            f" ({type(error).__name__}); with a network: hf download {name}"
        ) from None
    if not (folder / needed).is_file():
        raise UserError(f"{name} on the hub is no {kind}: it has no {needed}; use another id")
    return folder


def _load_model(
    folder: Path, name: str, device: str | None, dtype: str, bits: int
) -> "PreTrainedModel":
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    how: dict[str, Any] = {"dtype": getattr(torch, dtype), "device_map": device}
    how["trust_remote_code"] = False
    if bits == 4:
        how |= _in_four_bits(how["dtype"], device)
    try:
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder, **how)
    except torch.OutOfMemoryError:
        raise UserError(
            f"{name} does not fit into the memory of the {device or 'cpu'}; use a smaller model"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise UserError(
            f"{name} can't be loaded as a causal language model: {_in_a_line(error)};"
            " save or download it again"
        ) from None
    return model


def _keep_differentiable(model: "PreTrainedModel") -> None:
    """Keep bitsandbytes from packing weights on some CPUs, which stops gradients for good."""
    from bitsandbytes.nn.modules import Linear4bit

    for module in model.modules():
        if isinstance(module, Linear4bit):
            module.support_avx512bf16_for_cpu = False


def _in_four_bits(dtype: Any, device: str | None) -> dict[str, Any]:
    """As in QLoRA (arXiv 2305.14314): NF4 with double quantisation."""
    import torch
    from transformers import BitsAndBytesConfig

    config_type: Any = BitsAndBytesConfig
    config = config_type(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )
    # accelerate compares the device's number.
    place = torch.cuda.current_device() if device == "cuda" else device
    return {"quantization_config": config, "device_map": {"": place}}


def _with_adapter(model: "PreTrainedModel", folder: Path, name: str) -> "PreTrainedModel":
    """The model with the adapter on it. Raises `UserError` if weights have no counterpart."""
    from peft import PeftModel, get_peft_model_state_dict, load_peft_weights
    from safetensors import SafetensorError

    try:
        with warnings.catch_warnings():
            # Missing weights are found below.
            warnings.filterwarnings("ignore", "Found missing adapter keys", UserWarning)
            # peft 0.21 uses an older name of transformers 5.
            warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
            adapted = PeftModel.from_pretrained(model, str(folder))
        saved = load_peft_weights(str(folder), device="cpu")
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise _misfit(name, _in_a_line(error)) from None
    # By default peft would look on the hub whether embeddings were resized.
    own = set(get_peft_model_state_dict(adapted, save_embedding_layers=False))
    lost = (own - set(saved)) | (set(saved) - own - set(adapted.state_dict()))
    if lost:
        raise _misfit(name, f"{len(lost)} weights have no counterpart")
    # A PeftModel generates like the model that it wraps, but is no subclass of it.
    result: Any = adapted
    return result  # type: ignore[no-any-return]


def _misfit(name: str, why: str) -> UserError:
    return UserError(
        f"the adapter {name} does not fit the model: {why};"
        " name the model that it was trained on (base_model_name_or_path in its"
        f" {ADAPTER_CONFIG})"
    )


def _content(tokenizer: Any) -> Any:
    """All that decides how a tokenizer encodes a text."""
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    return {key: value for key, value in content.items() if key not in ("truncation", "padding")}


def _in_a_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
