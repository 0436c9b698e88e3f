"""What asking a model so many questions will cost, before any is asked.

Tokens a question are taken from the newest run that measured them, of the same model if
there is one, else of another; else they are assumed. Knows nothing of how questions are asked.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from art_e.policies.prices import price_of
from art_e.runs import list_runs

# About four searches and two mails read, each turn sending what came before once more.
ASSUMED_PROMPT_TOKENS, ASSUMED_COMPLETION_TOKENS = 15_000, 600


class Tokens(NamedTuple):
    """Tokens a question, and in words where they are from; `cached` ones are of the prompt's."""

    prompt: float
    cached: float
    completion: float
    source: str


class CostEstimate(NamedTuple):
    """What is expected; `usd` is None where the model's price is not known."""

    model: str
    episodes: int
    tokens: Tokens
    usd: float | None

    def __str__(self) -> str:
        cost = "cost unknown" if self.usd is None else f"about ${self.usd:,.2f}"
        return (
            f"{self.model}: {cost} for {self.episodes:,} episodes"
            f" ({self.tokens.prompt:,.0f} + {self.tokens.completion:,.0f} tokens each,"
            f" {self.tokens.source})"
        )


def estimate_cost(model: str, episodes: int, runs: Path) -> CostEstimate:
    """What `episodes` of the model of that litellm name will cost; `runs` holds earlier runs."""
    tokens = _tokens(model, runs)
    price = price_of(model)
    if price is None:
        return CostEstimate(model, episodes, tokens, None)
    one = (
        (tokens.prompt - tokens.cached) * price.prompt
        + tokens.cached * price.cached_prompt
        + tokens.completion * price.completion
    )
    return CostEstimate(model, episodes, tokens, episodes * one)


def _tokens(model: str, runs: Path) -> Tokens:
    measured = list(_measured(runs))
    same = (tokens for name, tokens in measured if name == model)
    assumed = Tokens(ASSUMED_PROMPT_TOKENS, 0, ASSUMED_COMPLETION_TOKENS, "assumed: no run yet")
    return next(same, next((tokens for _, tokens in measured), assumed))


def _measured(runs: Path) -> Iterator[tuple[str, Tokens]]:
    """Of each model of each finished run, the newest run first, the tokens where it used some."""
    for run in list_runs(runs):
        path = run.folder / "metrics.json"
        if not (run.complete and path.is_file()):
            continue
        models: dict[str, Any] = json.loads(path.read_text("utf-8")).get("models", {})
        for model, figures in models.items():
            tokens = figures["tokens"]
            names = ("prompt_tokens", "cached_prompt_tokens", "completion_tokens")
            # Runs made before figures had intervals hold plain numbers.
            if not all(isinstance(tokens.get(name), dict) for name in names):
                continue
            prompt, cached, completion = (tokens[name]["value"] for name in names)
            if prompt:
                yield model, Tokens(prompt, cached, completion, f"as {model} in {run.id}")
