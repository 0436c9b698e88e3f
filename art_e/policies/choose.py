"""From the name of a model to its policy.

    offline                          no model
    local:PATH-or-hub-id[+ADAPTER]   transformers in this process
    anything else                    a litellm name: openai/o3, ollama_chat/qwen2.5:14b

Imports what a name needs, and nothing before.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from art_e.policies.base import Policy

LOCAL_PREFIX = "local:"
# A message is a few calls or a short answer. A cut-off one is a wrong one, so a model that
# thinks gets room for it.
MAX_OUTPUT_TOKENS = 4_096
MAX_REASONING_TOKENS = 16_384


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """How a model is asked; what a kind of policy has no use for, it leaves alone.

    `max_output_tokens` bounds each message; None: `MAX_OUTPUT_TOKENS`, and for a model that
    spends some on thinking first `MAX_REASONING_TOKENS`. `temperature` None: the model's own
    default where it takes none, else 0.
    `tool_calls` "text": the model writes its calls as JSON in its text, "auto": where
    litellm says that it knows no other way. `max_cost_usd` bounds all calls of the
    policy together. `cache` is a folder that keeps responses; None: none are kept.
    """

    temperature: float | None = None
    reasoning_effort: Literal["minimal", "low", "medium", "high"] | None = None
    max_output_tokens: int | None = None
    tool_calls: Literal["auto", "native", "text"] = "auto"
    concurrency: int = 16
    timeout_s: float = 120.0
    max_cost_usd: float | None = None
    cache: Path | None = None


def choose_policy(model: str, options: ModelOptions | None = None) -> Policy:
    """The policy that `--model` names. Raises `UserError` for one that can't be used."""
    chosen = options or ModelOptions()
    if model == "offline":
        from art_e.policies.offline import OfflinePolicy

        return OfflinePolicy()
    if model.startswith(LOCAL_PREFIX):
        from art_e.policies.local import LocalPolicy

        return LocalPolicy(model.removeprefix(LOCAL_PREFIX), chosen)
    from art_e.policies.litellm import LitellmPolicy

    return LitellmPolicy(model, chosen)
