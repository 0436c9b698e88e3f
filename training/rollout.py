"""Rollouts: many episodes at once, driven by an engine that takes and gives tokens.

Each round generates one turn of every episode that goes on. A turn has at most `turn`
tokens, an episode at most `episode`, observations included; one that has no room for another
turn is out of turns.
An episode stops at its last turn exactly: nothing is generated or put behind it. The same
`Episode` as everywhere runs the tools and writes the facts. Knows nothing of rewards, groups
and of who generates.
"""

import itertools
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from art_e.episode import Episode
from art_e.errors import UserError
from art_e.message import ChatMessage
from art_e.models.tool_formats import as_written, parse_reply

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


# ---- Conversations as tokens: the model's own stay as it sampled them, and are told apart.

_PROBE: ChatMessage = {"role": "user", "content": "probe"}


@dataclass(slots=True)
class Conversation:
    """A conversation as it was generated.

    `own` says of each of `completion_ids` whether the model sampled it; `logprobs` has its
    log-probability then, and 0.0 for the others. It is None where the engine tells none.
    """

    prompt_ids: list[int]
    completion_ids: list[int] = field(default_factory=list)
    own: list[bool] = field(default_factory=list)
    logprobs: list[float] | None = None

    @property
    def ids(self) -> list[int]:
        """All tokens: what the model sees next."""
        return self.prompt_ids + self.completion_ids

    @property
    def length(self) -> int:
        """The number of all tokens."""
        return len(self.prompt_ids) + len(self.completion_ids)

    def add_turn(self, ids: Sequence[int], logprobs: Sequence[float] | None = None) -> None:
        """Put what the model sampled behind, with its end mark where it came to one."""
        self.completion_ids += ids
        self.own += [True] * len(ids)
        if logprobs is not None:
            before = len(self.completion_ids) - len(ids)
            self.logprobs = [*(self.logprobs or [0.0] * before), *logprobs]

    def add_context(self, ids: Sequence[int]) -> None:
        """Put behind what others wrote."""
        self.completion_ids += ids
        self.own += [False] * len(ids)
        if self.logprobs is not None:
            self.logprobs += [0.0] * len(ids)


class Tokens:
    """The chat template of `tokenizer` with `tools`, as tokens. `end_id` ends a turn.

    Raises `UserError` for a template that can't be used turn by turn.
    """

    def __init__(
        self, tokenizer: "PreTrainedTokenizerFast", tools: list[dict[str, Any]], end_id: int
    ) -> None:
        self._tokenizer = tokenizer
        self._tools = tools
        self.end_id = end_id
        self._end = str(tokenizer.decode([end_id]))
        self._check()

    def begin(self, messages: Sequence[ChatMessage]) -> Conversation:
        """The conversation so far, with the mark behind which the model's turn begins."""
        return Conversation(self._encode(self._render(messages)))

    def said(self, message: ChatMessage) -> list[int]:
        """What the model would have sampled to say this message of its own, the end mark too."""
        [written] = as_written([message])
        return [*self._encode(str(written["content"] or "")), self.end_id]

    def text_of(self, ids: Sequence[int]) -> str:
        """What a turn says, without its end mark."""
        end = ids.index(self.end_id) if self.end_id in ids else len(ids)
        return str(self._tokenizer.decode(list(ids[:end])))

    def between(self, observations: Sequence[ChatMessage], *, cut: bool = False) -> list[int]:
        """What stands between the end mark of a turn and the beginning of the next.

        With `cut` the turn came to no end of its own, and its end mark is added.
        """
        marker = uuid.uuid4().hex
        said: ChatMessage = {"role": "assistant", "content": marker}
        rendered = self._render([_PROBE, said, *observations])
        after = rendered.partition(marker)[2].removeprefix(self._end)
        return [self.end_id] * cut + self._encode(after)

    def _render(self, messages: Sequence[ChatMessage]) -> str:
        """The messages with the mark behind them at which the model goes on."""
        return str(
            self._tokenizer.apply_chat_template(
                as_written(messages),
                tools=list[Any](self._tools),
                add_generation_prompt=True,
                tokenize=False,
            )
        )

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def _check(self) -> None:
        tool: ChatMessage = {"role": "tool", "tool_call_id": "1", "content": "{}"}
        said: ChatMessage = {"role": "assistant", "content": "said"}
        steps = [[_PROBE], [_PROBE, said, tool], [_PROBE, said, tool, said, tool]]
        texts = [self._render(each) for each in steps]
        grows = all(
            later.startswith(f"{earlier}said{self._end}")
            for earlier, later in itertools.pairwise(texts)
        )
        if not grows:
            raise UserError(
                "the chat template writes earlier messages anew as the conversation goes on, so"
                " that it can't be trained on turn by turn; use another template"
            )


# ---- Rollouts: many episodes at once, driven by an engine that takes and gives tokens.


class Turn(NamedTuple):
    """What an engine sampled behind a prompt: tokens, the end mark among them where it came to
    one, and the log-probability of each, None where the engine tells none."""

    ids: list[int]
    logprobs: list[float] | None


# Prompts in, a turn for each out. It keeps to the limit of tokens a turn by itself.
Generate = Callable[[list[list[int]]], list[Turn]]


@dataclass(frozen=True, slots=True)
class Limits:
    """The most tokens of a turn, and of an episode with its prompt."""

    turn: int
    episode: int


@dataclass(frozen=True, slots=True)
class Rollout:
    """An episode that has ended, and its tokens."""

    episode: Episode
    conversation: Conversation


def roll_out(
    episodes: Sequence[Episode], tokens: Tokens, generate: Generate, limits: Limits
) -> list[Rollout]:
    """Run all `episodes` to their ends; the rollouts, in their order."""
    rollouts = [Rollout(each, tokens.begin(each.messages)) for each in episodes]
    for each in rollouts:
        _go_on(each, [], limits)
    while going := [each for each in rollouts if not each.episode.done]:
        turns = generate([each.conversation.ids for each in going])
        for rollout, turn in zip(going, turns, strict=True):
            _take(rollout, turn, tokens, limits)
    return rollouts


def _take(rollout: Rollout, turn: Turn, tokens: Tokens, limits: Limits) -> None:
    episode, conversation = rollout.episode, rollout.conversation
    prompt = conversation.length
    conversation.add_turn(turn.ids, turn.logprobs)
    episode.count_tokens(prompt, len(turn.ids))
    message = parse_reply(tokens.text_of(turn.ids), episode.rubric.turns)
    observations = episode.step(message)
    if not episode.done:
        cut = not turn.ids or turn.ids[-1] != tokens.end_id
        _go_on(rollout, tokens.between(observations, cut=cut), limits)


def _go_on(rollout: Rollout, context: list[int], limits: Limits) -> None:
    """Append `context` and leave the episode open if another turn fits behind it.

    Otherwise the episode is out of turns, and its last token stays the model's own: what nobody
    answers teaches nothing, and a long mail would pass the limit.
    """
    if rollout.conversation.length + len(context) + limits.turn <= limits.episode:
        rollout.conversation.add_context(context)
    else:
        rollout.episode.cut_off()
