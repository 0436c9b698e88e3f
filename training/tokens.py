"""Conversations as tokens: the model's own stay as it sampled them, and are told apart.

Token in, token out: what a model generated is never rendered or tokenised again. Only what
stands between its turns, the tools' answers in the frame of its chat template, is rendered
and encoded, and put behind. For that the template has to be prefix-preserving: what it makes
of a conversation begins with what it made of the part before. Knows nothing of generation and
of episodes.
"""

import itertools
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from art_e.errors import UserError
from art_e.message import ChatMessage
from art_e.policies.qwen_calls import as_written

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

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
