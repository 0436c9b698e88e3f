"""What an episode asks of a policy: the next message, and what it cost.

A policy sees what a model sees, messages and tool schemas, and nothing else.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from art_e.message import AssistantMessage, ChatMessage


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call to a model."""

    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class PolicyStep:
    """The next message. `cost_usd` is None where the price is not known."""

    message: AssistantMessage
    usage: Usage
    cost_usd: float | None


class PolicyError(Exception):
    """The policy can't go on for a reason outside the episode (a provider is down).

    `kind` is a short fixed word, such as "provider"; the message must hold no key.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Policy(Protocol):
    """Chooses the next message of an episode."""

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
