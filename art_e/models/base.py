"""The protocol of a policy, which chooses the next message of an episode."""

from collections.abc import Callable
from dataclasses import astuple, dataclass
from operator import add
from typing import Any, Literal, Protocol

from art_e.message import AssistantMessage, ChatMessage
from art_e.models.tool_formats import partial_answer
from art_e.privacy import without_keys


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a call. `cached_prompt_tokens` (read from a cache) and `cache_write_tokens` are
    part of the prompt's, `reasoning_tokens` part of the completion's."""

    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    cache_write_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(*map(add, astuple(self), astuple(other)))


@dataclass(frozen=True, slots=True)
class PolicyStep:
    """The next message. `cost_usd` None: the price is unknown. `seconds`: time of the successful
    call, None without a model; `retries`: failed calls before it. `score`: confidence of the policy
    in a final answer (higher is surer), None if it has none. `served`: the model that answered, as
    its provider names it. `finish`: why it ended its message."""

    message: AssistantMessage
    usage: Usage
    cost_usd: float | None
    seconds: float | None = None
    retries: int = 0
    score: float | None = None
    served: str | None = None
    finish: str | None = None


# Kinds of `PolicyError` that every further call would raise (a rejected key, a missing model, no
# credit, a spent quota, another host), and those that a retry of the same call would raise.
REFUSED = frozenset({"auth", "no-model", "no-credit", "quota", "region", "redirect"})
PERMANENT = REFUSED | {"context", "content", "length", "request", "budget"}
MAX_FAILURES = 10  # after this many failures in a row a run stops calling the model


class PolicyError(Exception):
    """The policy failed for a reason outside the episode (a provider is down). `kind` is a fixed
    word, such as "provider"; the message must not contain a key. `retries`: retries before it gave
    up. `cost_usd`: their cost, None if unknown."""

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
    """Return the kind of a model by its name: no model, in this process, or behind an API."""
    if model == OFFLINE:
        return "offline"
    return "local" if model.startswith(LOCAL_PREFIX) else "hosted"


# Enough for a few calls or a short answer; more if the model reasons first.
MAX_OUTPUT_TOKENS, MAX_REASONING_TOKENS = 4_096, 16_384

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Options of a model's calls; a policy ignores those that it does not support. `temperature`
    None is 0, or the model's default if it accepts no other. `max_output_tokens` limits each
    message (None: the default of the kind of model). With `tool_calls` "text" the model writes its
    calls as JSON in its text; "auto" does so if it can't call tools. `max_cost_usd` limits the cost
    of all calls together. `timeout_s`: seconds without an answer (None: 120, or 600 on this
    machine). `tries`: maximum tries of a call. `on_retry` gets the number of the next try, `tries`,
    the reason, and the seconds until then. `on_answer` gets the final answer so far, each time it
    grows, if the model can stream."""

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

    def stream_answer(self, partial_call: str) -> None:
        """Give `on_answer` the final answer so far, from a call that is still being written."""
        if self.on_answer and (answer := partial_answer(partial_call)):
            self.on_answer(without_keys(answer))
