"""A hosted model that replies with JSON of a given schema, for judges and question writers.

Replies are cached on disk, so that no request is paid for twice. Each is a file named by the
SHA-256 of its request; the request itself is not stored, because it might contain keys."""

import contextlib
import hashlib
import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from art_e.errors import UserError, explained
from art_e.message import compact_json, observation_json
from art_e.models.base import MAX_FAILURES, REFUSED, ModelOptions, PolicyError, Usage, kind_of
from art_e.models.calls import Calls, Retries
from art_e.models.prices import price_of
from art_e.models.providers import Capabilities, capabilities, set_address
from art_e.storage import write_whole
from art_e.text import cut_line, encodable

ATTEMPTS = 3  # for a reply that can't be read
_SHOWN_CHARS = 80
# Models may wrap their JSON in a code fence; a truncated reply does not close it.
_FENCE = re.compile(r"```\w*\s*\n(.*?)(?:^\s{0,99}```|\Z)", re.DOTALL | re.MULTILINE)

_SCHEMA = "art-e/response/1"
_log = logging.getLogger(__name__)

Form = TypeVar("Form", bound=BaseModel)
Result = TypeVar("Result")


class UnparseableError(Exception):
    """The model's reply does not fit the requested schema. The message is one line."""


class Response(NamedTuple):
    """A model's text; `usage` is None if the provider did not report it."""

    text: str
    usage: Usage | None


class Spent(NamedTuple):
    """The cost of calls that the cache did not answer; `cost_usd` is None for unknown prices."""

    calls: int
    usage: Usage
    cost_usd: float | None


class StructuredModel:
    """Asks `model`. `max_cost_usd` limits the cost of all calls, `cache` is a folder of responses,
    `temperature` is for models that take one. Raises `UserError` for an unsuitable model."""

    def __init__(
        self, model: str, *, max_cost_usd: float | None = None, cache: Path | None = None,
        temperature: float = 0.0, retries: Retries | None = None,
    ) -> None:  # fmt: skip
        if kind_of(model) == "local":
            fix = "start it with art-e serve, and name it hosted_vllm/NAME"
            raise UserError(f"{model} can't be asked in this process: {fix}")
        self.model = model
        self._temperature = temperature
        self._calls = Calls(model, ModelOptions(max_cost_usd=max_cost_usd), retries)
        if not self._calls.supports.schema:
            raise UserError(f"{model} does not support structured output; name another model")
        self._stopped: PolicyError | None = None
        self._failures = 0  # in a row
        self._responses = None if cache is None else ResponseCache(cache)
        self._answered = 0
        self._usage = Usage()

    @property
    def spent(self) -> Spent:
        cost = self._calls.spent_usd
        return Spent(self._answered, self._usage, cost if self._answered else cost or 0.0)

    @property
    def total_spent(self) -> Spent:
        """The cost of all replies in the cache, of this run and earlier ones."""
        return self.spent if self._responses is None else self._responses.spent_on(self.model)

    @property
    def exhausted(self) -> bool:
        """A call was refused because it could have cost more than the budget has left."""
        return self._calls.budget.exhausted

    def try_again(self) -> bool:
        """Allow calls again after failures; False if the model refuses or the budget is spent."""
        if self.exhausted or (self._stopped is not None and self._stopped.kind in REFUSED):
            return False
        self._stopped, self._failures = None, 0
        return True

    async def ask(self, prompt: str, data: Mapping[str, Any], form: type[Form]) -> Form:
        """Return the model's reply to `prompt` about `data`, which is sent as JSON. Raises
        `UnparseableError` for a reply of another form, which is not cached, and `PolicyError`."""
        return parse_reply(await self._reply(prompt, data, form, None), form)

    async def read(
        self, prompt: str, data: Mapping[str, Any], form: type[BaseModel],
        parse: Callable[[str], Result],
    ) -> Result:  # fmt: skip
        """Return the reply as `parse` reads it; replies are cached even if unreadable. Raises the
        error of `parse` after `ATTEMPTS` unreadable replies, and `PolicyError`."""
        for attempt in range(ATTEMPTS - 1):
            with contextlib.suppress(UnparseableError):
                return parse(await self._reply(prompt, data, form, attempt))
        return parse(await self._reply(prompt, data, form, ATTEMPTS - 1))

    async def _reply(
        self, prompt: str, data: Mapping[str, Any], form: type[BaseModel], attempt: int | None
    ) -> str:
        """Return the model's reply as text. `attempt` is part of the cache key, but not sent to the
        model; without it only readable replies are cached. Raises as `ask`."""
        endpoint = set_address(self.model.partition("/")[0])
        request = self._request(prompt, data, capabilities(self.model))
        facts = {**request, "form": form.model_json_schema(), "endpoint": endpoint}
        key = request_key(facts | ({"attempt": attempt} if attempt else {}))
        if self._responses is not None and (cached := self._responses.get(key)) is not None:
            return cached.text
        response = await self._call(prompt, data, form)
        if attempt is None:
            parse_reply(response.text, form)
        if self._responses is not None:
            self._responses.put(key, response)
        return response.text

    def _request(
        self, prompt: str, data: Mapping[str, Any], supports: Capabilities
    ) -> dict[str, Any]:
        system = {"role": supports.system_role, "content": prompt}
        user = {"role": "user", "content": encodable(observation_json(data))}
        request: dict[str, Any] = {"model": self.model, "messages": [system, user]}
        request[supports.max_tokens] = self._calls.max_output_tokens
        return {**request, "temperature": self._temperature} if supports.temperature else request

    async def _call(self, prompt: str, data: Mapping[str, Any], form: type[BaseModel]) -> Response:
        """Call the model; after too many failures, raise the last `PolicyError` without a call."""
        if self._stopped is not None:
            raise self._stopped
        try:
            called = await self._calls.make(
                lambda supports: {**self._request(prompt, data, supports), "response_format": form}
            )
        except PolicyError as error:
            self._failures += 1
            if error.kind in REFUSED or self._failures >= MAX_FAILURES:
                self._stopped = error
            raise
        self._failures = 0
        self._answered += 1
        self._usage += called.usage or Usage()
        return Response(called.message.content or "", called.usage)


def parse_reply(text: str | None, form: type[Form]) -> Form:
    """Return the reply as `form`. Raises `UnparseableError` if it does not fit."""
    try:
        return form.model_validate_json(unwrap_json(text or "", form))
    except ValidationError as error:
        excerpt = cut_line(text or "an empty reply", _SHOWN_CHARS)
        what = error.errors()[0]["msg"].partition(":")[0]
        raise UnparseableError(f"{what}: {excerpt!r}") from None


def unwrap_json(reply: str, form: type[BaseModel]) -> str:
    """Return the JSON of a reply without its code fence; a bare list becomes `form`'s one field."""
    text = reply.strip()
    if not text.startswith(("{", "[")) and (fence := _FENCE.search(text)) is not None:
        text = fence[1].strip()
    if text.startswith("[") and len(form.model_fields) == 1:
        return f'{{"{next(iter(form.model_fields))}":{text}' + "}" * text.endswith("]")
    return text


# ---- The cache of replies.


def request_key(request: Mapping[str, Any]) -> str:
    """Return the cache key of a request, whatever the order of its fields."""
    text = json.dumps(request, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


class ResponseCache:
    """A cache of responses in `folder`. Raises `UserError` if the folder can't be created."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with explained(f"can't keep responses in {folder}", "choose another folder"):
            folder.mkdir(parents=True, exist_ok=True)

    def get(self, key: str) -> Response | None:
        """Return the cached response; None if it is missing or its file is damaged."""
        try:
            row = json.loads(self._path(key).read_bytes())
            if row["schema"] != _SCHEMA:
                return None
            usage = None if row["usage"] is None else Usage(**row["usage"])
            return Response(row["message"]["content"] or "", usage)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.warning("response %s can't be read and is requested again: %s", key, error)
            return None

    def put(self, key: str, response: Response) -> None:
        """Store a response; a disk error is only logged."""
        usage = None if response.usage is None else asdict(response.usage)
        row = {"schema": _SCHEMA, "message": {"content": response.text}, "usage": usage}
        try:
            self._path(key).parent.mkdir(exist_ok=True)
            # A lone surrogate becomes its escape.
            write_whole(self._path(key), compact_json(row), errors="backslashreplace")
        except OSError as error:
            _log.warning("response %s can't be cached: %s", key, error)

    def spent_on(self, model: str) -> Spent:
        """Return the cost of all responses; one without usage is priced as the longest possible."""
        keys = [each.stem for each in self._folder.glob("??/*.json")]
        usages = [response.usage for key in keys if (response := self.get(key)) is not None]
        known = [each for each in usages if each is not None]
        price, cost = price_of(model), None if usages else 0.0
        if price is not None and usages:
            longest = price.max_cost(0, capabilities(model).output_limit) if None in usages else 0.0
            cost = sum(map(price.cost, known)) + longest * (len(usages) - len(known))
        return Spent(len(usages), sum(known, Usage()), cost)

    def _path(self, key: str) -> Path:
        # Subfolders, because a run has tens of thousands of responses.
        return self._folder / key[:2] / f"{key}.json"
