"""Asking the scripted provider through the litellm policy, as several tests do."""

import asyncio
from collections.abc import Callable, Sequence

from art_e.message import ChatMessage
from art_e.policies.base import PolicyStep
from art_e.policies.litellm import LitellmPolicy
from art_e.policies.retries import Retries
from art_e.tools import schemas

QUICK = Retries(tries=3, base_s=0.002, longest_s=0.01, longest_asked_s=0.02)
HELLO: list[ChatMessage] = [
    {"role": "system", "content": "You answer."},
    {"role": "user", "content": "When?"},
]
# The `make` fixture: a policy that asks a provider; options as `ModelOptions` has them.
Make = Callable[..., LitellmPolicy]


def act(policy: LitellmPolicy, messages: Sequence[ChatMessage] = HELLO) -> PolicyStep:
    """The policy's next message, asked for in an event loop of its own."""
    return asyncio.run(policy.act(list(messages), schemas()))
