"""Loads checkpoints. Faults become one-line errors before a run starts, and the tokenizer is loaded
exactly as it was saved.

This module needs the extra `train`: call `checkpoint.require_train_extra` before importing it."""

import json
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from jinja2 import TemplateError
from peft import PeftModel, get_peft_model_state_dict, load_peft_weights
from safetensors import SafetensorError
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerFast

from art_e.errors import UserError
from art_e.models.checkpoint import ADAPTER_CONFIG, TOKENIZER, best_device, checkpoint_folder
from art_e.models.tool_formats import call_form

if not sys.stderr.isatty():
    transformers.utils.logging.disable_progress_bar()


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model that is ready to generate. `stop_ids` end a turn; `context` is in tokens."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast
    generation_config: GenerationConfig
    device: str
    dtype: str
    stop_ids: tuple[int, ...]
    context: int


def load_checkpoint(
    name: str,
    adapter: str | None = None,
    *,
    exact: bool = False,
    bits: int = 16,
    sharded: bool = False,
) -> Checkpoint:
    """Load the model and its adapter on the best device. Raises `UserError`. `exact` keeps weights
    in float32 on a GPU too, because bfloat16 would round small training steps to zero. With 4
    `bits`, linear layers are NF4. `sharded` weights stay on the CPU for a trainer that shards."""
    folder = checkpoint_folder(name)
    tokenizer = load_tokenizer(folder, name)
    device, dtype = best_device()
    if exact:
        dtype = "float32"
    model = _load_model(folder, name, None if sharded else device, dtype, bits)
    if bits == 4 and device == "cpu":
        # On some CPUs bitsandbytes would pack the weights, which breaks gradients.
        for module in model.modules():
            if hasattr(module, "support_avx512bf16_for_cpu"):
                module.support_avx512bf16_for_cpu = False
    generation_config = model.generation_config
    assert generation_config is not None
    if adapter is not None:
        model = _with_adapter(model, checkpoint_folder(adapter, "adapter"), adapter)
    model.train(False)
    context = int(model.config.get_text_config().max_position_embeddings)
    ends = stop_ids(tokenizer, generation_config)
    return Checkpoint(model, tokenizer, generation_config, device, dtype, ends, context)


def load_tokenizer(folder: Path, name: str) -> PreTrainedTokenizerFast:
    """Load the tokenizer saved in `folder`; its chat template must write calls in Qwen's form.
    `AutoTokenizer` would split words by other rules for the type qwen2. `name` is for errors."""
    if not (folder / TOKENIZER).is_file():
        raise UserError(f"{name} has no {TOKENIZER}; save its tokenizer with the weights")
    try:
        tokenizer: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(
            folder, trust_remote_code=False
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"the tokenizer of {name} can't be loaded: {_one_line(error)}") from None
    if tokenizer.chat_template is None:
        fix = "use an instruct model, or save its tokenizer with one"
        raise UserError(f"{name} has no chat template; {fix}")
    try:
        call_form(tokenizer)
    except TemplateError as error:
        why = f"{_one_line(error)}; save its tokenizer with another"
        raise UserError(f"the chat template of {name} can't be used: {why}") from None
    except ValueError:
        why = f"{name} does not call tools in Qwen's form, the only one that local: reads"
        fix = "use a Qwen model, or serve it yourself and use --model hosted_vllm/NAME"
        raise UserError(f"{why}; {fix}") from None
    return tokenizer


def autotokenizer_matches(folder: Path, tokenizer: PreTrainedTokenizerFast) -> bool:
    """Return whether `AutoTokenizer`, which servers use, loads the same tokenizer from `folder`."""
    try:
        reloaded = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except ValueError:  # a tokenizer that comes as code, which is never run
        return False
    contents = (json.loads(each.backend_tokenizer.to_str()) for each in (reloaded, tokenizer))
    # All settings but truncation and padding affect how a text is encoded.
    one, other = ({**each, "truncation": None, "padding": None} for each in contents)
    return bool(one == other)


def stop_ids(tokenizer: PreTrainedTokenizerFast, config: GenerationConfig) -> tuple[int, ...]:
    """Return the tokens that end a turn: the model's, the tokenizer's, the chat template's."""
    eos = config.eos_token_id
    configured = [] if eos is None else eos if isinstance(eos, list) else [eos]
    others = [tokenizer.eos_token_id, end_of_turn(tokenizer)]
    return tuple(dict.fromkeys([*configured, *(each for each in others if each is not None)]))


def end_of_turn(tokenizer: PreTrainedTokenizerFast) -> int | None:
    """Return the special token that the chat template writes after a message of the model, or None.
    Of the two end tokens in Qwen2.5-Instruct's generation config it is the one that ends a turn."""
    reply = "reply"
    rendered = tokenizer.apply_chat_template(
        [{"role": "user", "content": "?"}, {"role": "assistant", "content": reply}], tokenize=False
    )
    assert isinstance(rendered, str)
    first = tokenizer.encode(rendered.rpartition(reply)[2], add_special_tokens=False)[:1]
    return next((each for each in first if each in tokenizer.all_special_ids), None)


def _load_model(
    folder: Path, name: str, device: str | None, dtype: str, bits: int
) -> PreTrainedModel:
    options: dict[str, Any] = {"dtype": getattr(torch, dtype), "device_map": device}
    if bits == 4:
        # As in QLoRA (arXiv 2305.14314): NF4 with double quantisation.
        options["quantization_config"] = transformers.BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=options["dtype"],
        )
        # accelerate compares device numbers, so "cuda" needs its number here.
        options["device_map"] = {"": torch.cuda.current_device() if device == "cuda" else device}
    try:
        model: PreTrainedModel = transformers.AutoModelForCausalLM.from_pretrained(
            folder, trust_remote_code=False, **options
        )
    except torch.OutOfMemoryError:
        where = f"the memory of the {device or 'cpu'}"
        raise UserError(f"{name} does not fit into {where}; use a smaller model") from None
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        why = f"{_one_line(error)}; save or download it again"
        raise UserError(f"{name} can't be loaded as a causal language model: {why}") from None
    return model


def _with_adapter(model: PreTrainedModel, folder: Path, name: str) -> PreTrainedModel:
    """Return the model with the adapter. Raises `UserError` if their weights don't match."""

    def misfit(why: str) -> UserError:
        fix = f"name the model that it was trained on (base_model_name_or_path in {ADAPTER_CONFIG})"
        return UserError(f"the adapter {name} does not fit the model: {why}; {fix}")

    try:
        with warnings.catch_warnings():
            # Missing weights are reported below.
            warnings.filterwarnings("ignore", "Found missing adapter keys", UserWarning)
            # peft 0.21 uses an older name of transformers 5.
            warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
            adapted = PeftModel.from_pretrained(model, str(folder))
        saved = load_peft_weights(str(folder), device="cpu")
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise misfit(_one_line(error)) from None
    # By default peft would ask the hub whether embeddings were resized.
    expected = set(get_peft_model_state_dict(adapted, save_embedding_layers=False))
    unmatched = (expected - set(saved)) | (set(saved) - expected - set(adapted.state_dict()))
    if unmatched:
        raise misfit(f"{len(unmatched)} weights have no counterpart")
    result: Any = adapted  # it generates like the model that it wraps, without subclassing it
    return result


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
