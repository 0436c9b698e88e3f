"""Prices of a model's tokens in USD, and the budget of its calls.

Prices of hosted models come from litellm's list in the installed package; the cost of a call is
computed here, because litellm's handling of cached tokens has been wrong. Surcharges for prompts of
over 128,000 tokens are left out: episodes are shorter. Entries in `prices.toml` of `ART_E_HOME`
override the list (docs/models.md shows them), and self-hosted models need one. An unknown price is
None, never 0. `Budget` keeps all calls of a policy within a limit."""

import math
import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from art_e.errors import UserError, fault_of
from art_e.models.base import PolicyError, Usage, kind_of
from art_e.models.providers import listed_model, listed_models, on_this_machine, receiving_host
from art_e.storage import home, toml_content


@dataclass(frozen=True, slots=True)
class Price:
    """USD per token of a prompt, of its cached part, and of a completion. `reasoning` and
    `cache_write`: prices of reasoning tokens and of tokens written to a cache, if they differ."""

    prompt: float
    cached_prompt: float
    completion: float
    reasoning: float | None = None
    cache_write: float | None = None

    def cost(self, usage: Usage) -> float:
        reasoning = self.completion if self.reasoning is None else self.reasoning
        write = self.prompt if self.cache_write is None else self.cache_write
        # Cached, cache-write and reasoning tokens are in the totals: add only the price difference.
        return (
            usage.prompt_tokens * self.prompt
            + usage.cached_prompt_tokens * (self.cached_prompt - self.prompt)
            + usage.cache_write_tokens * (write - self.prompt)
            + usage.completion_tokens * self.completion
            + usage.reasoning_tokens * (reasoning - self.completion)
        )

    def max_cost(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return an upper bound of the cost in USD of a call with at most these tokens."""
        prompt = prompt_tokens * max(self.prompt, self.cached_prompt, self.cache_write or 0)
        return prompt + completion_tokens * max(self.completion, self.reasoning or 0)


def prices_file() -> Path:
    """Return the path of the user's prices, which may not exist."""
    return home() / "prices.toml"


def price_of(model: str) -> Price | None:
    """Return a model's price, None if unknown. Raises `UserError` if `prices.toml` is malformed."""
    path = prices_file()
    content = toml_content(path)
    entries = content.pop("models", {})
    if content or not isinstance(entries, dict):
        raise UserError(f'{path}: {next(iter(content), "models")}: entries are [models."NAME"]')
    if model in entries:
        return _user_price(entries[model], f'{path}: models."{model}"')
    # A model in this process has no list price; Ollama on this machine is free.
    if kind_of(model) == "local":
        return None
    free = model.startswith("ollama") and on_this_machine(receiving_host(model))
    return Price(0.0, 0.0, 0.0) if free else _list_price(model)


_DATE = re.compile(r"-\d{4}-\d\d-\d\d$")  # in the name of a model's version


def served_price(model: str, served: str | None, price: Price | None) -> Price | None:
    """Return the price of a call that the model `served` answered, because providers bill the model
    that answers. `price`, that of `model`, stays if it comes from the user's file."""
    provider = model.partition("/")[0]
    # The name of an Azure deployment doesn't tell its model.
    if price != _list_price(model) or (price is None and provider != "azure"):
        return price
    name = f"{provider}/{served}"
    return _list_price(name) or _list_price(_DATE.sub("", name)) or price


def expected_cost(model: str, usages: Iterable[Usage], times: float = 1) -> float | None:
    """Return the cost in USD of calls with these usages, each made `times` times; None: unknown."""
    price = price_of(model)
    return None if price is None else times * sum(map(price.cost, usages))


class _ByToken(BaseModel, strict=True, extra="forbid", allow_inf_nan=False):
    usd_per_million_prompt: float = Field(ge=0)
    usd_per_million_completion: float = Field(ge=0)
    usd_per_million_cached_prompt: float | None = Field(None, ge=0)

    def price(self) -> Price:
        prompt, cached = self.usd_per_million_prompt, self.usd_per_million_cached_prompt
        cached = prompt if cached is None else cached
        return Price(prompt / 1e6, cached / 1e6, self.usd_per_million_completion / 1e6)


class _ByGpu(BaseModel, strict=True, extra="forbid", allow_inf_nan=False):
    gpu_usd_per_hour: float = Field(ge=0)
    prompt_tokens_per_second: float = Field(gt=0)
    completion_tokens_per_second: float = Field(gt=0)

    def price(self) -> Price:
        second = self.gpu_usd_per_hour / 3600
        prompt = second / self.prompt_tokens_per_second
        return Price(prompt, prompt, second / self.completion_tokens_per_second)


def _user_price(entry: Any, where: str) -> Price:
    """Return the price in an entry of `prices.toml`; `where` names it in errors."""
    by_gpu = isinstance(entry, dict) and not entry.keys().isdisjoint(_ByGpu.model_fields)
    form: type[_ByGpu | _ByToken] = _ByGpu if by_gpu else _ByToken
    try:
        return form.model_validate(entry).price()
    except ValidationError as error:
        both = ", or ".join(", ".join(each.model_fields) for each in (_ByGpu, _ByToken))
        raise UserError(f"{where}: {fault_of(error, 'it')}; an entry needs {both}") from None


def _list_price(model: str) -> Price | None:
    """Return the price in litellm's list, with or without the provider in the model's name."""
    provider, entry = model.partition("/")[0], listed_model(model)
    entry_provider = str(entry.get("litellm_provider"))
    of_provider = entry_provider == provider or entry_provider.startswith(f"{provider}-")
    if model not in listed_models() and not of_provider:
        return None
    prompt, completion = entry.get("input_cost_per_token"), entry.get("output_cost_per_token")
    if not prompt or not completion:
        return None
    # Without a price of their own, cached tokens cost as much as others.
    cached = entry.get("cache_read_input_token_cost") or prompt
    reasoning = entry.get("output_cost_per_reasoning_token") or None
    write = entry.get("cache_creation_input_token_cost") or None
    return Price(prompt, cached, completion, reasoning, write)


class Budget:
    """Counts spent and reserved USD against `max_cost_usd` (None: no limit), from any thread or
    task. Raises `UserError` for a limit without a price."""

    def __init__(self, max_cost_usd: float | None, price: Price | None, model: str) -> None:
        if max_cost_usd is not None:
            if not (math.isfinite(max_cost_usd) and max_cost_usd >= 0):
                raise UserError("--max-cost must be an amount in USD, such as 0.50")
            if price is None:
                why = f"--max-cost needs the price of {model}, which is unknown"
                fields = "usd_per_million_prompt and usd_per_million_completion"
                raise UserError(f'{why}; add [models."{model}"] with {fields} to {prices_file()}')
        self._price = price
        # Fractions, because sums of floats drift.
        self._limit = None if max_cost_usd is None else Fraction(max_cost_usd)
        self._spent = Fraction(0)
        self._reserved = Fraction(0)
        self.exhausted = False  # True once a call was refused
        self._lock = threading.Lock()

    @property
    def spent(self) -> float:
        return float(self._spent)

    def reserve(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Reserve the maximum cost of a call with at most these tokens, and return it for `settle`.
        Raises `PolicyError` of the kind "budget" if that could exceed the limit."""
        bound = self._price.max_cost(prompt_tokens, completion_tokens) if self._price else 0.0
        with self._lock:
            in_sum = self._spent + self._reserved + Fraction(bound)  # if all calls cost the maximum
            if self._limit is not None and in_sum > self._limit:
                self.exhausted = True
                pending = f" and ${float(self._reserved):.4f} under way" if self._reserved else ""
                why = f"the next call could exceed the limit of ${float(self._limit):.4f}"
                sums = f"${self.spent:.4f} spent{pending}, up to ${bound:.4f} more"
                raise PolicyError("budget", f"{why} ({sums}); --max-cost sets it")
            self._reserved += Fraction(bound)
        return bound

    def settle(self, reserved: float, actual: float | None) -> None:
        """Count a finished call at `actual` USD, or at the reserved amount if that is unknown."""
        with self._lock:
            self._reserved -= Fraction(reserved)
            self._spent += Fraction(reserved if actual is None else actual)
