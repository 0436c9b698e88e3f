"""A model that is asked for JSON of a fixed form, and what that cost.

Like `art_e.policies.litellm` it asks any model that litellm knows, with the same retries,
prices, limit and cache of responses; unlike it there is no conversation and no tool.
Knows nothing of judging. How many calls go on at once is up to the caller.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from art_e.errors import UserError
from art_e.message import AssistantMessage, observation_json
from art_e.policies.base import Usage
from art_e.policies.calls import Calls
from art_e.policies.capabilities import capabilities_of
from art_e.policies.host import receiving_host
from art_e.policies.litellm_module import load_litellm
from art_e.policies.responses import Response, Responses, request_key
from art_e.policies.retries import Retries, make
from art_e.text import encodable

TIMEOUT_S = 120.0
_FRAME_TOKENS = 600  # of a prompt, besides its messages: its schema
_SHOWN_CHARS = 80

Form = TypeVar("Form", bound=BaseModel)


class UnparseableError(Exception):
    """The model's reply is not of the form asked for. The message is one line."""


class Spent(NamedTuple):
    """What calls have cost so far; those answered from the cache are not among them.

    `cost_usd` is None where the price is not known; then `usage` says how much was used.
    """

    calls: int
    usage: Usage
    cost_usd: float | None


class StructuredModel:
    """Asks `model`, a litellm name.

    `max_cost_usd` bounds all its calls together, `cache` is a folder that keeps responses,
    `temperature` is used where the model takes one.
    Raises `UserError` for a model that litellm does not know, that lacks its key, that
    can't be held to a form, or whose price is not known where there is a limit.
    """

    def __init__(
        self,
        model: str,
        *,
        max_cost_usd: float | None = None,
        cache: Path | None = None,
        temperature: float = 0.0,
        retries: Retries | None = None,
    ) -> None:
        self.model = model
        self._temperature = temperature
        self._retries = retries or Retries()
        self._takes = capabilities_of(model)
        # Raises where it can't be told: litellm sends some such requests to OpenAI.
        receiving_host(model)
        taken = load_litellm().get_supported_openai_params(model) or []
        if "response_format" not in taken:
            raise UserError(f"{model} can't be held to a form of reply; name another judge")
        self._calls = Calls(
            model,
            max_cost_usd,
            max_output_tokens=self._takes.most_tokens,
            frame_tokens=_FRAME_TOKENS,
            timeout_s=TIMEOUT_S,
        )
        self._responses = None if cache is None else Responses(cache)
        self._answered = 0
        self._usage = Usage()

    @property
    def spent(self) -> Spent:
        """What its calls have cost so far."""
        cost = self._calls.spent_usd
        if cost is None and self._answered == 0:
            cost = 0.0
        return Spent(self._answered, self._usage, cost)

    @property
    def exhausted(self) -> bool:
        """Whether a call was not made, for it could have cost more than is left."""
        return self._calls.exhausted

    async def ask(self, prompt: str, data: Mapping[str, Any], form: type[Form]) -> Form:
        """The model's reply to `prompt` about `data`, which it gets as quoted JSON.

        Raises `UnparseableError` where it is not of `form`, and `PolicyError` where the
        call is given up (the kinds are those of `LitellmPolicy.act`).
        """
        request = self._request(prompt, data)
        key = self._key(request, form)
        if (kept := self._kept(key)) is not None:
            return parsed(kept, form)
        made = await make(lambda: self._call(request, form), self._retries)
        reply = parsed(made.result.message.content, form)
        # What can't be read is asked again the next time.
        self._keep(key, made.result)
        return reply

    async def reply(
        self, prompt: str, data: Mapping[str, Any], form: type[BaseModel], *, attempt: int = 0
    ) -> str:
        """What the model said when it was asked for `form`, be it of the form or not.

        It is kept whatever it is; another `attempt` is another request to the cache, and
        the same to the model. Raises `PolicyError` as `ask` does.
        """
        request = self._request(prompt, data)
        key = self._key(request, form, attempt)
        if (kept := self._kept(key)) is not None:
            return kept
        made = await make(lambda: self._call(request, form), self._retries)
        self._keep(key, made.result)
        return made.result.message.content or ""

    def _key(self, request: Mapping[str, Any], form: type[BaseModel], attempt: int = 0) -> str:
        named = {**request, "form": form.model_json_schema(), "endpoint": self._takes.endpoint}
        return request_key(named | ({"attempt": attempt} if attempt else {}))

    def _kept(self, key: str) -> str | None:
        kept = None if self._responses is None else self._responses.get(key)
        return None if kept is None else kept.message.content or ""

    def _keep(self, key: str, response: Response) -> None:
        if self._responses is not None:
            self._responses.put(key, response)

    def _request(self, prompt: str, data: Mapping[str, Any]) -> dict[str, Any]:
        request: dict[str, Any] = {
            "model": self.model,
            self._takes.max_tokens: self._takes.most_tokens,
            "messages": [
                {"role": self._takes.system_role, "content": prompt},
                {"role": "user", "content": encodable(observation_json(data))},
            ],
        }
        return {**request, "temperature": self._temperature} if self._takes.temperature else request

    async def _call(self, request: Mapping[str, Any], form: type[BaseModel]) -> Response:
        """Make the call once. Raises `CallError`, or `PolicyError` where the budget forbids it."""
        called = await self._calls.make({**request, "response_format": form})
        self._answered += 1
        self._usage += called.usage or Usage()
        return Response(AssistantMessage(called.message.content), called.usage)


def parsed(text: str | None, form: type[Form]) -> Form:
    """The reply as `form`. Raises `UnparseableError` where it is not of it."""
    try:
        return form.model_validate_json(text or "")
    except ValidationError as error:
        said = " ".join(encodable(text or "").split())
        shown = f"{said[:_SHOWN_CHARS]!r}" if said else "an empty reply"
        what = error.errors()[0]["msg"].partition(":")[0]
        raise UnparseableError(f"{what}: {shown}") from None
