"""Generation for many episodes at once: what is asked for together is generated together.

Requests wait in a line. One worker thread takes as many of them as a batch may hold,
pads them on the left and generates; what comes in meanwhile is the next batch, so
nobody waits for a clock. Callers may be in several event loops, one after another or at
once. Knows nothing of messages; tokens in, tokens out.
"""

import asyncio
import contextlib
import copy
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from art_e.policies.checkpoint import Checkpoint

if TYPE_CHECKING:
    import torch
    from transformers import GenerationConfig


class Generated(NamedTuple):
    """New tokens, the one that ended the turn left out, and how long their batch took.

    `tokens` is how many were generated, the ending one among them.
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
        """Whether nobody waits for the answer any more."""
        return self.loop.is_closed() or self.answer.cancelled()


class BatchedGenerator:
    """Generates with one model, `size` requests at a time. `temperature` 0 is greedy."""

    def __init__(self, checkpoint: Checkpoint, size: int, temperature: float) -> None:
        self._checkpoint = checkpoint
        self._size = size
        self._config = _generation_config(checkpoint, temperature)
        self._waiting: deque[_Request] = deque()
        self._lock = threading.Lock()
        # A thread of its own: the model must not be asked by two at once.
        self._worker = ThreadPoolExecutor(1, "art-e-generate")

    async def generate(self, ids: Sequence[int], most: int) -> Generated:
        """At most `most` tokens that follow `ids`. Raises what the model raised."""
        loop = asyncio.get_running_loop()
        request = _Request(ids, most, loop, loop.create_future())
        with self._lock:
            self._waiting.append(request)
        try:
            # Others who are ready to ask do so first, and share the batch.
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
        except Exception as error:  # noqa: BLE001 - whoever waits must hear of it
            answers = [error] * len(batch)
        for loop in dict.fromkeys(each.loop for each in batch):
            told = [
                (each.answer, answer)
                for each, answer in zip(batch, answers, strict=True)
                if each.loop is loop
            ]
            # A loop that was closed meanwhile has nobody left who waits.
            with contextlib.suppress(RuntimeError):
                # In one go: those who are answered together ask together again.
                loop.call_soon_threadsafe(_tell, told)

    def _take(self) -> list[_Request]:
        """The next in line, those left out whose callers have gone."""
        batch: list[_Request] = []
        with self._lock:
            while self._waiting and len(batch) < self._size:
                request = self._waiting.popleft()
                if not request.gone:
                    batch.append(request)
        return batch

    def _run(self, batch: Sequence[_Request]) -> list[Generated]:
        import torch

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


def _tell(told: Sequence[tuple["asyncio.Future[Generated]", Generated | Exception]]) -> None:
    for future, answer in told:
        if future.cancelled():
            continue
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)


def _unless_all_gone(batch: Sequence[_Request]) -> Callable[..., "torch.Tensor"]:
    """Ends a generation that nobody waits for (Ctrl-C); transformers asks after each token."""
    import torch

    def ended(ids: "torch.Tensor", scores: object, **_: object) -> "torch.Tensor":
        gone = all(each.gone for each in batch)
        return torch.full((ids.shape[0],), gone, device=ids.device, dtype=torch.bool)

    return ended


def _generation_config(checkpoint: Checkpoint, temperature: float) -> "GenerationConfig":
    """The model's own, with what is asked for here in its place.

    The temperature alone decides how it samples, as in training. Qwen2.5-Instruct is published
    with `repetition_penalty` 1.05, which punishes copying from mail, `top_p` 0.8 and `top_k` 20.
    """
    config = copy.deepcopy(checkpoint.generation_config)
    config.do_sample = temperature > 0
    config.temperature = temperature if config.do_sample else 1.0
    # In greedy decoding top_k has no say, and transformers warns of another than its own.
    config.top_k = 0 if config.do_sample else 50
    config.top_p = config.repetition_penalty = 1.0
    config.max_length = None
    config.eos_token_id = list(checkpoint.stop_ids)
    padding = checkpoint.tokenizer.pad_token_id
    config.pad_token_id = checkpoint.stop_ids[0] if padding is None else padding
    return config
