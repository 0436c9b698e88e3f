"""What the questions of a plan will cost, before any is asked.

Prompts are counted as they will be sent; what a model will write is assumed. Knows nothing
of how mails are chosen.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from art_e.message import observation_json
from art_e.policies.base import Usage
from art_e.policies.litellm_module import load_litellm
from art_e.policies.prices import price_of
from art_e.text import encodable

# Of an item as `GeneratedItems` has it: about 60 words of content and as much of form.
TOKENS_PER_ITEM = 130
# A model that thinks does so for about that long over 20 mails; it is paid as output.
THINKING_TOKENS = 4_000


class GenerationCost(NamedTuple):
    """What is expected; `usd` None: the model's price is not known."""

    requests: int
    prompt_tokens: int
    completion_tokens: int
    usd: float | None

    def __str__(self) -> str:
        cost = "cost unknown" if self.usd is None else f"about ${self.usd:,.2f}"
        return (
            f"{cost} for {self.requests:,} requests ({self.prompt_tokens:,} tokens of prompts,"
            f" counted; {self.completion_tokens:,} of replies, assumed)"
        )


def estimate(
    model: str, prompt: str, data: Iterable[Mapping[str, Any]], form: Mapping[str, Any], items: int
) -> GenerationCost:
    """What asking `model`, a litellm name, about each of `data` for `items` items will cost.

    Prompt, data and the reply's form (a JSON schema) are counted by litellm's tokenizer for
    the model, which for some is a like one.
    """
    litellm = load_litellm()
    price = price_of(model)
    frame = litellm.token_counter(model=model, text=json.dumps(form))
    completion = items * TOKENS_PER_ITEM + (THINKING_TOKENS if _thinks(model) else 0)
    prompts = [
        frame
        + litellm.token_counter(
            model=model,
            messages=[
                {"role": "system", "content": prompt},
                {"role": "user", "content": encodable(observation_json(each))},
            ],
        )
        for each in data
    ]
    costs = [price.cost(Usage(each, 0, completion)) for each in prompts] if price else None
    usd = None if costs is None else round(sum(costs), 6)
    return GenerationCost(len(prompts), sum(prompts), completion * len(prompts), usd)


def _thinks(model: str) -> bool:
    # Not by `capabilities_of`, which wants the key that a mere estimate does without.
    prices = load_litellm().model_cost
    entry = prices.get(model) or prices.get(model.partition("/")[2]) or {}
    return entry.get("supports_reasoning") is True
