"""The local policy: a checkpoint that generates in this process, with transformers.

    local:PATH-or-hub-id[+ADAPTER]

Loading comes first: faults of a checkpoint are one-line errors before a run starts, and the
tokenizer is loaded exactly as it was saved. The model sees the conversation through its own chat
template, tools included, and calls tools in Qwen's form (`tool_formats.py`). One policy serves many
episodes at once, and several event loops.

This module needs the extra `train`: `checkpoint.require_train_extra` comes before its import.
"""

import asyncio
import contextlib
import copy
import json
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from jinja2 import TemplateError
from peft import PeftModel, get_peft_model_state_dict, load_peft_weights
from safetensors import SafetensorError
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from art_e.errors import UserError
from art_e.message import ChatMessage
from art_e.models.base import (
    LOCAL_PREFIX,
    MAX_OUTPUT_TOKENS,
    ModelOptions,
    PolicyError,
    PolicyStep,
    Usage,
)
from art_e.models.checkpoint import (
    ADAPTER_CONFIG,
    TOKENIZER,
    adapter_folder,
    best_device,
    checkpoint_folder,
    of_training,
)
from art_e.models.prices import Budget, price_of
from art_e.models.tool_formats import NOT_THINKING, as_written, call_form, parse_reply
from art_e.text import digest

if not sys.stderr.isatty():
    _bars: Any = transformers.utils.logging
    _bars.disable_progress_bar()

# ---- Loading a checkpoint.


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model that is ready to generate. `stop_ids` end a turn, `context` is in tokens."""

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
    """The model, with its adapter, on the best device. Raises `UserError`.

    `exact` keeps weights in float32 on a GPU too: bfloat16 would round small training steps away.
    With 4 `bits` the linear layers are NF4. With `sharded` the weights stay on the CPU for a
    trainer that spreads them over several devices.
    """
    folder = checkpoint_folder(name)
    tokenizer = load_tokenizer(folder, name)
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


def load_tokenizer(folder: Path, name: str) -> PreTrainedTokenizerFast:
    """The tokenizer saved in `folder`; its chat template must call tools as Qwen's does.

    It reads tokenizer.json as it is: `AutoTokenizer` would replace the rules that split words if
    the config says qwen2. `name` is for errors.
    """
    if not (folder / TOKENIZER).is_file():
        raise UserError(f"{name} has no {TOKENIZER}; save its tokenizer beside the weights")
    try:
        tokenizer: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(
            folder, trust_remote_code=False
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"the tokenizer of {name} can't be loaded: {_in_a_line(error)}") from None
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


def reloads_the_same(folder: Path, tokenizer: PreTrainedTokenizerFast) -> bool:
    """Whether `AutoTokenizer`, which servers use, makes the same tokenizer of `folder`."""
    try:
        reloaded = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except ValueError:  # a tokenizer that comes as code, which is never run
        return False
    return bool(_content(reloaded) == _content(tokenizer))


def stop_ids(
    tokenizer: PreTrainedTokenizerFast, generation_config: GenerationConfig
) -> tuple[int, ...]:
    """The tokens that end a turn: the model's, the tokenizer's, the chat template's."""
    eos = generation_config.eos_token_id
    configured = [] if eos is None else eos if isinstance(eos, list) else [eos]
    own = [tokenizer.eos_token_id, end_of_turn(tokenizer)]
    return tuple(dict.fromkeys([*configured, *(each for each in own if each is not None)]))


def end_of_turn(tokenizer: PreTrainedTokenizerFast) -> int | None:
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


def _load_model(
    folder: Path, name: str, device: str | None, dtype: str, bits: int
) -> PreTrainedModel:
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


def _keep_differentiable(model: PreTrainedModel) -> None:
    """Keep bitsandbytes from packing weights on some CPUs, which stops gradients for good."""
    from bitsandbytes.nn.modules import Linear4bit

    for module in model.modules():
        if isinstance(module, Linear4bit):
            module.support_avx512bf16_for_cpu = False


def _in_four_bits(dtype: Any, device: str | None) -> dict[str, Any]:
    """As in QLoRA (arXiv 2305.14314): NF4 with double quantisation."""
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


def _with_adapter(model: PreTrainedModel, folder: Path, name: str) -> PreTrainedModel:
    """The model with the adapter on it. Raises `UserError` if weights have no counterpart."""
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


# ---- Generating.


class Generated(NamedTuple):
    """New tokens without the one that ended the turn, and how long their batch took.

    `tokens` counts all generated ones, the last included.
    """

    ids: list[int]
    tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Request:
    ids: Sequence[int]
    most: int
    loop: asyncio.AbstractEventLoop
    answer: "asyncio.Future[Generated]"

    @property
    def gone(self) -> bool:
        """Whether the caller no longer waits for the answer."""
        return self.loop.is_closed() or self.answer.cancelled()


class BatchedGenerator:
    """Generates with one model, `size` requests at a time. `temperature` 0 is greedy."""

    def __init__(self, checkpoint: Checkpoint, size: int, temperature: float) -> None:
        self._checkpoint = checkpoint
        self._size = size
        self._config = _generation_config(checkpoint, temperature)
        self._waiting: deque[_Request] = deque()
        self._lock = threading.Lock()
        # One thread: the model must not generate twice at once.
        self._worker = ThreadPoolExecutor(1, "art-e-generate")

    async def generate(self, ids: Sequence[int], most: int) -> Generated:
        """At most `most` tokens that follow `ids`. Raises the model's exceptions."""
        loop = asyncio.get_running_loop()
        request = _Request(ids, most, loop, loop.create_future())
        with self._lock:
            self._waiting.append(request)
        try:
            # Let other ready callers join the batch first.
            await asyncio.sleep(0)
            self._worker.submit(self._next_batch)
            return await request.answer
        finally:
            request.answer.cancel()

    def _next_batch(self) -> None:
        batch = self._take()
        if not batch:
            return
        answers: list[Generated | Exception]
        try:
            answers = list(self._run(batch))
        except Exception as error:  # noqa: BLE001 - the callers raise it
            answers = [error] * len(batch)
        for loop in dict.fromkeys(each.loop for each in batch):
            results = [
                (each.answer, answer)
                for each, answer in zip(batch, answers, strict=True)
                if each.loop is loop
            ]
            # Together, so that these callers share their next batch. The loop may be closed.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_resolve, results)

    def _take(self) -> list[_Request]:
        """The next in line whose callers still wait."""
        batch: list[_Request] = []
        with self._lock:
            while self._waiting and len(batch) < self._size:
                request = self._waiting.popleft()
                if not request.gone:
                    batch.append(request)
        return batch

    def _run(self, batch: Sequence[_Request]) -> list[Generated]:
        checkpoint = self._checkpoint
        started = time.perf_counter()
        longest = max(len(each.ids) for each in batch)
        padding = self._config.pad_token_id
        inputs = torch.full((len(batch), longest), padding)
        mask = torch.zeros_like(inputs)
        for row, each in enumerate(batch):
            inputs[row, longest - len(each.ids) :] = torch.tensor(each.ids)
            mask[row, longest - len(each.ids) :] = 1
        config = copy.deepcopy(self._config)
        config.max_new_tokens = max(each.most for each in batch)
        with torch.inference_mode():
            model: Any = checkpoint.model
            output = model.generate(
                input_ids=inputs.to(checkpoint.device),
                attention_mask=mask.to(checkpoint.device),
                generation_config=config,
                stopping_criteria=[_unless_all_gone(batch)],
            )
        seconds = time.perf_counter() - started
        rows = output[:, longest:].tolist()
        return [self._cut(row[: each.most], seconds) for row, each in zip(rows, batch, strict=True)]

    def _cut(self, ids: list[int], seconds: float) -> Generated:
        stops = self._checkpoint.stop_ids
        end = next((place for place, each in enumerate(ids) if each in stops), len(ids))
        return Generated(ids[:end], min(end + 1, len(ids)), seconds)


def _resolve(results: Sequence[tuple["asyncio.Future[Generated]", Generated | Exception]]) -> None:
    for future, answer in results:
        if future.cancelled():
            continue
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)


def _unless_all_gone(batch: Sequence[_Request]) -> Callable[..., torch.Tensor]:
    """A criterion, called after each token, that stops a generation after Ctrl-C."""

    def ended(ids: torch.Tensor, scores: object, **_: object) -> torch.Tensor:
        gone = all(each.gone for each in batch)
        return torch.full((ids.shape[0],), gone, device=ids.device, dtype=torch.bool)

    return ended


def _generation_config(checkpoint: Checkpoint, temperature: float) -> GenerationConfig:
    """The model's own configuration, with the temperature alone deciding the sampling.

    Training samples the same way. Qwen2.5-Instruct's published `repetition_penalty` of 1.05 would
    punish copying from mail.
    """
    config = copy.deepcopy(checkpoint.generation_config)
    config.do_sample = temperature > 0
    config.temperature = temperature if config.do_sample else 1.0
    # Greedy decoding ignores top_k, and transformers warns unless it is the default.
    config.top_k = 0 if config.do_sample else 50
    config.top_p = config.repetition_penalty = 1.0
    config.max_length = None
    config.eos_token_id = list(checkpoint.stop_ids)
    padding = checkpoint.tokenizer.pad_token_id
    config.pad_token_id = checkpoint.stop_ids[0] if padding is None else padding
    return config


class LocalPolicy:
    """Generates with the checkpoint and adapter of `path_and_adapter`, or a training run's best.

    `temperature` None is greedy decoding. Raises `UserError` for a checkpoint that can't be used,
    and for a cost limit without a price.
    """

    def __init__(self, path_and_adapter: str, options: ModelOptions) -> None:
        self.model = LOCAL_PREFIX + path_and_adapter
        self._path, self._adapter = of_training(path_and_adapter)
        self._max_output_tokens = options.max_output_tokens or MAX_OUTPUT_TOKENS
        self._price = price_of(self.model)
        self._budget = Budget(options.max_cost_usd, self._price, self.model)
        self._temperature = options.temperature or 0.0
        self._checkpoint = load_checkpoint(self._path, self._adapter)
        self._form = call_form(self._checkpoint.tokenizer)
        self._generator = BatchedGenerator(self._checkpoint, options.concurrency, self._temperature)

    @property
    def settings(self) -> dict[str, Any]:
        """What an answer depends on besides the messages."""
        template = self._checkpoint.tokenizer.chat_template
        return {
            "path": self._path,
            "adapter": self._adapter,
            "dtype": self._checkpoint.dtype,
            "device": self._checkpoint.device,
            "temperature": self._temperature,
            "max_output_tokens": self._max_output_tokens,
            "chat_template_hash": digest(str(template)),
        }

    async def act(self, messages: list[ChatMessage], tools: list[dict[str, Any]]) -> PolicyStep:
        """The model's next message; `seconds` are those of the whole batch.

        Raises `PolicyError`: context (the conversation is too long), model (out of memory or
        another failure), budget.
        """
        ids = self._prompt(messages, tools)
        most = min(self._max_output_tokens, self._checkpoint.context - len(ids))
        if most < 1:
            raise PolicyError(
                "context",
                f"the conversation has {len(ids):,} tokens, and the model takes"
                f" {self._checkpoint.context:,}",
            )
        reserved = self._budget.reserve(len(ids), most)
        cost = None
        try:
            generated = await self._generator.generate(ids, most)
            usage = Usage(prompt_tokens=len(ids), completion_tokens=generated.tokens)
            cost = None if self._price is None else self._price.cost(usage)
        except RuntimeError as error:
            line = (str(error).strip().splitlines() or ["no reason given"])[0]
            raise PolicyError("model", f"{type(error).__name__}: {line[:200]}") from None
        finally:
            self._budget.settle(reserved, cost)
        text = self._checkpoint.tokenizer.decode(generated.ids)
        turn = sum(each["role"] == "assistant" for each in messages)
        return PolicyStep(parse_reply(str(text), turn), usage, cost, generated.seconds)

    def _prompt(self, messages: list[ChatMessage], tools: list[dict[str, Any]]) -> list[int]:
        tokenizer = self._checkpoint.tokenizer
        text = tokenizer.apply_chat_template(
            as_written(messages, self._form),
            tools=list[Any](tools),
            add_generation_prompt=True,
            tokenize=False,
            **NOT_THINKING,
        )
        return list(tokenizer.encode(str(text), add_special_tokens=False))
