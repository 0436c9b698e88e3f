"""What a model takes, as litellm knows it without asking anyone.

Knows nothing of messages and prices. For a model that litellm has not listed (one's
own server) what its provider takes is what it takes.
"""

import os
from dataclasses import dataclass
from typing import Any, Literal

from art_e.errors import UserError
from art_e.policies.choose import MAX_OUTPUT_TOKENS, MAX_REASONING_TOKENS
from art_e.policies.litellm_module import load_litellm

# litellm drops `tool_choice` for these, because requests that hold it hang.
_OLLAMA = frozenset({"ollama", "ollama_chat"})
# Of the hosted ones these document "auto" and no "required".
_AUTO_ONLY = frozenset({"dashscope"})


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What can be sent to a model.

    `native_tools`: it takes tool schemas. `reasons`: it may think before it answers, and
    its output holds both. `tool_choice` is the strongest form that it
    takes; None: none. `max_tokens` is the name of the parameter that bounds its output,
    `system_role` the role of the system prompt. `endpoint` is the base URL where it is not
    the provider's own; it may hold credentials.
    """

    native_tools: bool
    reasons: bool
    tool_choice: Literal["required", "auto"] | None
    temperature: bool
    reasoning_effort: bool
    max_tokens: Literal["max_tokens", "max_completion_tokens"]
    system_role: Literal["system", "developer"]
    endpoint: str | None

    @property
    def most_tokens(self) -> int:
        """The bound of its output where nobody sets another."""
        return MAX_REASONING_TOKENS if self.reasons else MAX_OUTPUT_TOKENS


def capabilities_of(model: str) -> Capabilities:
    """What `model` takes. Raises `UserError` for a name that litellm can't place.

    Raises it too where the provider's API key is not in the environment.
    """
    litellm = load_litellm()
    try:
        name, provider, _, base = litellm.get_llm_provider(model)
    except litellm.BadRequestError:
        name = provider = ""
        base = None
    if not name or name != name.strip():
        raise UserError(
            f"unknown model {model!r}; use offline, local:PATH or a litellm name such as openai/o3"
        )
    missing = litellm.validate_environment(model)["missing_keys"]
    # Others than API keys have sources of their own (a cloud's profile, a default address).
    if missing and all(each.endswith("_API_KEY") for each in missing):
        raise UserError(f"{model} needs a key: export {' or '.join(missing)}, or put it into .env")
    taken = litellm.get_supported_openai_params(name, custom_llm_provider=provider) or []
    entry: dict[str, Any] = litellm.model_cost.get(model) or litellm.model_cost.get(name) or {}
    o_series = litellm.OpenAIOSeriesConfig().is_model_o_series_model(name)
    fixed_sampling = o_series or litellm.OpenAIGPT5Config.is_model_gpt_5_model(name)
    return Capabilities(
        native_tools="tools" in taken and entry.get("supports_function_calling") is not False,
        reasons=fixed_sampling or entry.get("supports_reasoning") is True,
        tool_choice=_tool_choice(provider, taken, entry.get("supports_tool_choice")),
        temperature="temperature" in taken and not fixed_sampling,
        # Claude refuses to go on thinking where its thoughts are not sent back with each
        # tool call, and a conversation of ours holds none.
        reasoning_effort="reasoning_effort" in taken and "claude" not in name,
        max_tokens="max_completion_tokens" if fixed_sampling else "max_tokens",
        # litellm would make a user's message of the system prompt of these.
        system_role="developer" if o_series and provider == "openai" else "system",
        endpoint=_endpoint(provider) or base,
    )


def _tool_choice(
    provider: str, taken: list[str], listed: bool | None
) -> Literal["required", "auto"] | None:
    if "tool_choice" not in taken or provider in _OLLAMA or listed is False:
        return None
    # A server of one's own may make "required" a grammar that is not the form in which the
    # model was taught to call.
    return "required" if listed and provider not in _AUTO_ONLY else "auto"


def _endpoint(provider: str) -> str | None:
    """The address that the environment sets for a provider."""
    prefix = provider.removesuffix("_chat").upper()
    return os.environ.get(f"{prefix}_BASE_URL") or os.environ.get(f"{prefix}_API_BASE")
