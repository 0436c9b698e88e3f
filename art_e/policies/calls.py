"""One call to a model that litellm knows: bounded in time and cost, and accounted for.

Policies and whatever else asks such a model make their calls with it. Knows nothing of
what is asked, of retries and of caches.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from art_e.policies.base import Usage
from art_e.policies.budget import Budget
from art_e.policies.failures import failure_of
from art_e.policies.litellm_module import close_clients_with_loop, load_litellm
from art_e.policies.prices import price_of
from art_e.policies.wire import usage_of

# A prompt is counted before the call with a tokenizer that need not be the model's own. The
# true count is taken to be at most so many times that, besides what frames it.
_COUNT_MARGIN = 1.5


class Called(NamedTuple):
    """What a call gave: litellm's message. None: usage or cost are not known."""

    message: Any
    usage: Usage | None
    cost_usd: float | None
    seconds: float


class Calls:
    """Makes calls to `model`, a litellm name, which together cost at most `max_cost_usd`.

    No completion has more than `max_output_tokens`, which the requests have to say too;
    `frame_tokens` are what a prompt may have besides the messages and tools counted.
    Raises `UserError` where there is a limit and no price to keep it by.
    """

    def __init__(
        self,
        model: str,
        max_cost_usd: float | None,
        *,
        max_output_tokens: int,
        frame_tokens: int,
        timeout_s: float,
    ) -> None:
        self._model = model
        self._limited = max_cost_usd is not None
        self._price = price_of(model)
        self._budget = Budget(max_cost_usd, self._price, model)
        self._max_output_tokens = max_output_tokens
        self._frame_tokens = frame_tokens
        self._timeout_s = timeout_s

    @property
    def spent_usd(self) -> float | None:
        """USD so far; None where the model's price is not known."""
        return None if self._price is None else self._budget.spent

    @property
    def exhausted(self) -> bool:
        """Whether a call was not made, for it could have cost more than is left."""
        return self._budget.exhausted

    async def make(self, request: Mapping[str, Any]) -> Called:
        """Call once, with the arguments of `litellm.acompletion`.

        Raises `CallError` where that fails, and `PolicyError` where the budget forbids it.
        """
        litellm = load_litellm()
        await close_clients_with_loop()
        reserved = self._budget.reserve(*self._most_tokens(request))
        # Until it is known, also for a call that is cancelled: the provider may bill it.
        cost: float | None = None
        try:
            started = time.perf_counter()
            async with asyncio.timeout(self._timeout_s):
                answer = await litellm.acompletion(
                    **request, timeout=self._timeout_s, num_retries=0, max_retries=0
                )
            seconds = time.perf_counter() - started
            message = answer.choices[0].message
            usage = usage_of(answer)
            if usage is not None and self._price is not None:
                cost = self._price.cost(usage)
        except Exception as error:  # noqa: BLE001 - litellm raises anything over a bad body
            failure = failure_of(error, self._model)
            cost = None if failure.may_be_billed else 0.0
            raise failure from None
        finally:
            self._budget.settle(reserved, cost)
        return Called(message, usage, cost, seconds)

    def _most_tokens(self, request: Mapping[str, Any]) -> tuple[int, int]:
        """An upper bound of the tokens of a call, prompt and completion."""
        if not self._limited:
            return 0, 0
        counted = load_litellm().token_counter(
            model=self._model, messages=request["messages"], tools=request.get("tools")
        )
        return int(counted * _COUNT_MARGIN) + self._frame_tokens, self._max_output_tokens
