"""How much memory a forward and backward pass of a Qwen2 takes, by the real libraries, without it.

Tensors are fake: they have shapes and storages of a size, and no content. What is alive at a time
is counted operator by operator, which is what a GPU's allocator would hold, but for kernels that
take room for themselves.
"""

import warnings
import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from peft import LoraConfig, get_peft_model
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from torch.utils.weak import WeakIdKeyDictionary
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from training.planning import Shape


def config_of(shape: Shape) -> Qwen2Config | Qwen3Config:
    fields: dict[str, Any] = {
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "tie_word_embeddings": shape.tied,
    }
    if shape.head is None:
        return Qwen2Config(**fields)
    return Qwen3Config(**fields, head_dim=shape.head)


def model_of(shape: Shape) -> Qwen2ForCausalLM | Qwen3ForCausalLM:
    """A model without memory for its weights."""
    config = config_of(shape)
    with torch.device("meta"):
        if isinstance(config, Qwen3Config):
            return Qwen3ForCausalLM(config)
        return Qwen2ForCausalLM(config)


class _Live(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of storages that operators made, and that are alive."""

    def __init__(self, without: "list[torch.Tensor]") -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.most = 0
        self._seen: Any = WeakIdKeyDictionary()
        for each in without:
            self._seen[each.untyped_storage()] = True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        for each in tree_iter(out):
            if isinstance(each, torch.Tensor):
                self._note(each.untyped_storage())
        return out

    def _note(self, storage: Any) -> None:
        if storage in self._seen:
            return
        self._seen[storage] = True
        size = storage.nbytes()
        self.now += size
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self._drop, size)

    def _drop(self, size: int) -> None:
        self.now -= size


class Taken(NamedTuple):
    """Bytes beside the weights: at most, and of these the gradients of what is trained."""

    most: int
    gradients: int


def taken(shape: Shape, episodes: int, tokens: int, *, lora: int, checkpointing: bool) -> Taken:
    """What a pass over so many episodes takes; what learns is in float32: with `lora` 0 all."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        model = _model(shape, lora)
        with FakeTensorMode(allow_non_fake_inputs=True):
            return _taken(model, episodes, tokens, checkpointing)


def _model(shape: Shape, lora: int) -> Any:
    model: Any = model_of(shape)
    if not lora:
        return model
    model = model.to(torch.bfloat16)
    return get_peft_model(
        model, LoraConfig(r=lora, target_modules="all-linear", task_type="CAUSAL_LM")
    )


def _taken(model: Any, episodes: int, tokens: int, checkpointing: bool) -> Taken:
    for module in model.modules():
        for name, weight in list(module._parameters.items()):
            if weight is not None:
                dtype = torch.float32 if weight.requires_grad else weight.dtype
                made = torch.empty(weight.shape, dtype=dtype)
                module._parameters[name] = torch.nn.Parameter(made, weight.requires_grad)
        for name, buffer in list(module._buffers.items()):
            if buffer is not None:
                module._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype)
    model.train()
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    ids = torch.zeros(episodes, tokens, dtype=torch.long)
    body = (model.get_base_model() if hasattr(model, "get_base_model") else model).model
    live = _Live([*model.parameters(), *model.buffers(), ids])
    with live:
        with torch.autocast("cpu", torch.bfloat16):
            out = body(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False)
        out.last_hidden_state.float().mean().backward()
    gradients = sum(
        each.numel() * each.element_size() for each in model.parameters() if each.grad is not None
    )
    return Taken(live.most, gradients)
