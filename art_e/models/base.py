"""What an episode asks of a policy: the next message, and what it cost."""

from dataclasses import dataclass
from typing import Any, Protocol

from art_e.message import AssistantMessage, ChatMessage


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call to a model.

    `cached_prompt_tokens` are among the prompt's, `reasoning_tokens` among the completion's.
    """

    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.cached_prompt_tokens + other.cached_prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
        )


@dataclass(frozen=True, slots=True)
class PolicyStep:
    """The next message. `cost_usd` is None where the price is not known.

    `seconds` is how long the call that succeeded took, None where there was none (no
    model, or a response from the cache); `retries` counts the calls that failed before it.
    """

    message: AssistantMessage
    usage: Usage
    cost_usd: float | None
    seconds: float | None = None
    retries: int = 0


# Kinds of `PolicyError` that every further call would meet: a refused key, a model that is not
# there, an account without credit.
REFUSED = frozenset({"auth", "no-model", "no-credit"})


class PolicyError(Exception):
    """The policy can't go on for a reason outside the episode (a provider is down).

    `kind` is a short fixed word, such as "provider"; the message must hold no key.
    `retries` counts the calls that were tried again before it gave up.
    """

    def __init__(self, kind: str, message: str, retries: int = 0) -> None:
        super().__init__(message)
        self.kind = kind
        self.retries = retries


class Policy(Protocol):
    """Chooses the next message of an episode. One policy serves many episodes at once."""

    @property
    def model(self) -> str:
        """The name under which results are reported."""
        ...

    @property
    def settings(self) -> dict[str, Any]:
        """Sampling settings, as trajectories record them."""
        ...

    async def act(self, messages: list[ChatMessage], tools: list[dict[str, Any]]) -> PolicyStep:
        """The next message. Raises `PolicyError` where an outside failure prevents it."""
        ...
