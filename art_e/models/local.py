"""The local policy: a checkpoint that generates in this process, with transformers.

    local:PATH-or-hub-id[+ADAPTER]

The model sees the conversation through its own chat template, tools included, and calls tools in
Qwen's form (`tool_formats.py`). Call `checkpoint.require_train_extra` before importing this."""

import asyncio
import contextlib
import copy
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig

from art_e.message import ChatMessage
from art_e.models import base
from art_e.models.checkpoint import resolve_checkpoint
from art_e.models.loading import Checkpoint, load_checkpoint
from art_e.models.prices import Budget, price_of
from art_e.models.tool_formats import NOT_THINKING, call_form, parse_reply, render_calls
from art_e.text import digest


class Generated(NamedTuple):
    """New tokens without the end-of-turn token, their number with it, and the batch's seconds."""

    ids: list[int]
    tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Request:
    ids: Sequence[int]
    limit: int
    answer: "Future[Generated]"  # cancelled once the caller no longer waits


class BatchedGenerator:
    """Generates with one model, `size` requests at a time. `temperature` 0 is greedy."""

    def __init__(self, checkpoint: Checkpoint, size: int, temperature: float) -> None:
        self._checkpoint = checkpoint
        self._size = size
        self._config = _generation_config(checkpoint, temperature)
        # A deque, because callers append while the worker pops.
        self._waiting: deque[_Request] = deque()
        # One thread, because the model can't run two generations at once.
        self._worker = ThreadPoolExecutor(1, "art-e-generate")

    async def generate(self, ids: Sequence[int], limit: int) -> Generated:
        """Generate at most `limit` tokens after `ids`. Raises the model's exceptions."""
        request = _Request(ids, limit, Future())
        self._waiting.append(request)
        try:
            await asyncio.sleep(0)  # let other ready callers join the batch
            self._worker.submit(self._next_batch)
            return await asyncio.wrap_future(request.answer)
        finally:
            request.answer.cancel()

    def _next_batch(self) -> None:
        batch: list[_Request] = []
        while self._waiting and len(batch) < self._size:
            request = self._waiting.popleft()
            if not request.answer.cancelled():
                batch.append(request)
        try:
            answers = self._run(batch) if batch else []
            for request, answer in zip(batch, answers, strict=True):
                with contextlib.suppress(InvalidStateError):  # it was cancelled
                    request.answer.set_result(answer)
        except Exception as error:  # noqa: BLE001 - the callers raise it
            for request in batch:
                with contextlib.suppress(InvalidStateError):
                    request.answer.set_exception(error)

    def _run(self, batch: Sequence[_Request]) -> list[Generated]:
        checkpoint = self._checkpoint
        started = time.perf_counter()
        rows = [torch.tensor(each.ids) for each in batch]
        inputs = pad_sequence(rows, True, self._config.pad_token_id, "left")  # (batch, longest)
        mask = pad_sequence(list(map(torch.ones_like, rows)), True, 0, "left")  # 0: padding
        config = copy.deepcopy(self._config)
        config.max_new_tokens = max(each.limit for each in batch)

        def all_cancelled(ids: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
            """Stop the generation if nobody waits for it; called after each token."""
            stop = all(each.answer.cancelled() for each in batch)
            return torch.full((ids.shape[0],), stop, device=ids.device, dtype=torch.bool)

        with torch.inference_mode():
            model: Any = checkpoint.model
            output = model.generate(
                input_ids=inputs.to(checkpoint.device),
                attention_mask=mask.to(checkpoint.device),
                generation_config=config,
                stopping_criteria=[all_cancelled],
            )
        seconds = time.perf_counter() - started
        answers = []
        for request, row in zip(batch, output[:, inputs.size(1) :].tolist(), strict=True):
            ids, stops = row[: request.limit], checkpoint.stop_ids
            end = next((place for place, token in enumerate(ids) if token in stops), len(ids))
            answers.append(Generated(ids[:end], min(end + 1, len(ids)), seconds))
        return answers


def _generation_config(checkpoint: Checkpoint, temperature: float) -> GenerationConfig:
    """Return a configuration with only a temperature: a repetition penalty would punish copying."""
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
    """Generates with the checkpoint and adapter of `path_and_adapter`, greedily by default. Raises
    `UserError` without a usable checkpoint, and for a cost limit without a price."""

    def __init__(self, path_and_adapter: str, options: base.ModelOptions) -> None:
        self.model = base.LOCAL_PREFIX + path_and_adapter
        self._path, self._adapter = resolve_checkpoint(path_and_adapter)
        self._max_output_tokens = options.max_output_tokens or base.MAX_OUTPUT_TOKENS
        self._price = price_of(self.model)
        self._budget = Budget(options.max_cost_usd, self._price, self.model)
        self._temperature = options.temperature or 0.0
        self._checkpoint = load_checkpoint(self._path, self._adapter)
        self._form = call_form(self._checkpoint.tokenizer)
        self._generator = BatchedGenerator(self._checkpoint, options.concurrency, self._temperature)

    @property
    def settings(self) -> dict[str, Any]:
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

    async def act(
        self, messages: list[ChatMessage], tools: list[dict[str, Any]]
    ) -> base.PolicyStep:
        """Return the model's next message; `seconds` are the batch's. Raises `PolicyError` of the
        kinds context (conversation too long), model (such as out of memory), budget."""
        ids, context = self._prompt(messages, tools), self._checkpoint.context
        limit = min(self._max_output_tokens, context - len(ids))
        if limit < 1:
            why = f"the conversation has {len(ids):,} tokens, the model's context {context:,}"
            raise base.PolicyError("context", why)
        reserved = self._budget.reserve(len(ids), limit)
        cost = None
        try:
            generated = await self._generator.generate(ids, limit)
            usage = base.Usage(prompt_tokens=len(ids), completion_tokens=generated.tokens)
            cost = None if self._price is None else self._price.cost(usage)
        except RuntimeError as error:
            line = (str(error).strip().splitlines() or ["no reason given"])[0]
            raise base.PolicyError("model", f"{type(error).__name__}: {line[:200]}") from None
        finally:
            self._budget.settle(reserved, cost)
        text = self._checkpoint.tokenizer.decode(generated.ids)
        turn = sum(each["role"] == "assistant" for each in messages)
        return base.PolicyStep(parse_reply(str(text), turn), usage, cost, generated.seconds)

    def _prompt(self, messages: list[ChatMessage], tools: list[dict[str, Any]]) -> list[int]:
        tokenizer = self._checkpoint.tokenizer
        text = tokenizer.apply_chat_template(
            render_calls(messages, self._form),
            tools=list[Any](tools),
            add_generation_prompt=True,
            tokenize=False,
            **NOT_THINKING,
        )
        return list(tokenizer.encode(str(text), add_special_tokens=False))
