"""The protocol of a policy, which chooses the next message of an episode."""

from collections.abc import Callable
from dataclasses import astuple, dataclass
from operator import add
from typing import Any, Literal, Protocol

from art_e.message import AssistantMessage, ChatMessage
from art_e.models.tool_formats import answer_so_far
from art_e.privacy import without_keys


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a call. `cached_prompt_tokens` (read from a cache) and `cache_write_tokens` are
    among the prompt's, `reasoning_tokens` among the completion's."""

    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    cache_write_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(*map(add, astuple(self), astuple(other)))


@dataclass(frozen=True, slots=True)
class PolicyStep:
    """The next message. `cost_usd` None: the price is unknown. `seconds` is how long the successful
    call took, None without a model; `retries` counts the calls that failed before it. `score` is
    higher the surer the policy is of a final answer, None if it has no score. `served` is the model
    that answered, as its provider names it, and `finish` why it ended its message."""

    message: AssistantMessage
    usage: Usage
    cost_usd: float | None
    seconds: float | None = None
    retries: int = 0
    score: float | None = None
    served: str | None = None
    finish: str | None = None


# Kinds of `PolicyError` that further calls would raise too (a rejected key, a missing model, no
# credit, a spent quota, another host); then those that the same call would raise again.
REFUSED = frozenset({"auth", "no-model", "no-credit", "quota", "region", "redirect"})
LASTING = REFUSED | {"context", "content", "length", "request", "budget"}
MAX_FAILURES = 10  # a model that fails so often in a row is not called again in a run


class PolicyError(Exception):
    """The policy failed for a reason outside the episode (a provider is down). `kind` is a fixed
    word, such as "provider"; the message must hold no key. `retries` counts the retries before it
    gave up, and `cost_usd` is what they cost, None if that is unknown."""

    def __init__(
        self, kind: str, message: str, retries: int = 0, cost_usd: float | None = 0.0
    ) -> None:
        super().__init__(message)
        self.kind, self.retries, self.cost_usd = kind, retries, cost_usd


class Policy(Protocol):
    """Chooses the next message of an episode. One policy serves many episodes at once."""

    @property
    def model(self) -> str:
        """The name under which results are reported."""
        ...

    @property
    def settings(self) -> dict[str, Any]: ...

    async def act(self, messages: list[ChatMessage], tools: list[dict[str, Any]]) -> PolicyStep:
        """Return the next message. Raises `PolicyError` if an outside failure prevents it."""
        ...


OFFLINE = "offline"
LOCAL_PREFIX = "local:"  # the prefix of models that transformers runs in this process


def kind_of(model: str) -> Literal["offline", "local", "hosted"]:
    """Return the kind of a model by its name: none, in this process, or behind an API."""
    if model == OFFLINE:
        return "offline"
    return "local" if model.startswith(LOCAL_PREFIX) else "hosted"


# Enough for a few calls or a short answer, after a model's thinking.
MAX_OUTPUT_TOKENS, MAX_REASONING_TOKENS = 4_096, 16_384

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Options of a model's calls; a policy ignores those that it does not support. `temperature`
    None is 0, or the model's own default if it accepts no other. `max_output_tokens` limits each
    message (None: as much as its kind of model needs). With `tool_calls` "text" the model writes
    its calls as JSON in its text; "auto" does so if it knows no other way. `max_cost_usd` limits
    all calls of the policy together. `timeout_s` is the longest silence (None: 120 seconds, or 600
    on this machine), `tries` the most tries of a call. `on_retry` gets the number of each further
    try, the most tries, why, and the seconds until then. `on_answer` gets the final answer as far
    as it is written, each time it grows, if the model can be followed."""

    temperature: float | None = None
    reasoning_effort: Effort | None = None
    max_output_tokens: int | None = None
    tool_calls: Literal["auto", "native", "text"] = "auto"
    concurrency: int = 16
    timeout_s: float | None = None
    tries: int = 8
    max_cost_usd: float | None = None
    on_retry: Callable[[int, int, str, float], None] = lambda *_: None
    on_answer: Callable[[str], None] | None = None

    def follow(self, written: str) -> None:
        """Give `on_answer` what the final answer says in a call that is being written."""
        if self.on_answer and (answer := answer_so_far(written)):
            self.on_answer(without_keys(answer))
