"""Rollouts: many episodes at once, token in and token out.

A `Transcript` marks the tokens that the model sampled; only they carry loss. An engine
generates turns, and each turn advances its episode by a step. If there is room for only one more
turn, the model is told that it is the last."""

import itertools
import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from art_e.episode import LAST_TURN, NO_ROOM, Episode, EpisodeForm
from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.message import ChatMessage, observation_json
from art_e.models.tool_formats import NOT_THINKING, CallForm, call_form, parse_reply, render_calls
from art_e.question import Question
from art_e.tools import schemas

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_PROBE: ChatMessage = {"role": "user", "content": "probe"}
_LAST: ChatMessage = {
    "role": "tool", "tool_call_id": "1",
    "content": "\n".join(map(observation_json, (NO_ROOM, LAST_TURN))),
}  # fmt: skip
T = TypeVar("T")


def in_passes(values: Sequence[T], number: int, key: str) -> list[T]:
    """Return the first `number` values of repeated passes, each shuffled with a seed from `key`."""
    order: list[T] = []
    for index in range(-(-number // len(values))):  # rounded up
        part = list(values)
        Random(f"{key}/{index}").shuffle(part)
        order += part
    return order[:number]


def in_groups(values: Sequence[T], size: int) -> list[list[T]]:
    """Split the values into groups of that size; the last may be smaller."""
    return [list(values[at : at + size]) for at in range(0, len(values), size)]


class Material(NamedTuple):
    """The questions of a split and their inbox file."""

    file: InboxFile
    questions: list[Question]

    def held_out(self, number: int) -> list[Question]:
        """Return the first `number` questions, in an order that no run's seed changes."""
        shuffled = list(self.questions)
        Random("held out").shuffle(shuffled)
        return shuffled[:number]

    def episode(self, question: Question, form: EpisodeForm) -> Episode:
        return form.begin(self.file.inbox_of(question), question)


@dataclass(slots=True)
class Transcript:
    """The tokens of a conversation. `sampled` marks the `completion_ids` that the model sampled;
    `logprobs` has 0.0 for the others, and is None if the engine returns no log-probabilities."""

    prompt_ids: list[int]
    completion_ids: list[int] = field(default_factory=list)
    sampled: list[bool] = field(default_factory=list)
    logprobs: list[float] | None = None  # in nats

    @property
    def ids(self) -> list[int]:
        return self.prompt_ids + self.completion_ids

    def add(
        self, ids: Sequence[int], *, sampled: bool, logprobs: Sequence[float] | None = None
    ) -> None:
        """Append the tokens of a `sampled` turn (with its end token if reached) or of context."""
        before = self.logprobs or [0.0] * len(self.completion_ids)
        if logprobs is not None or self.logprobs is not None:
            self.logprobs = [*before, *(logprobs or [0.0] * len(ids))]
        self.completion_ids += ids
        self.sampled += [sampled] * len(ids)


class ChatTokens:
    """Encodes messages by the chat template of `tokenizer`; `end_id` ends a turn, `lean` selects
    the lean tools. Raises `UserError` if the template rewrites earlier messages, `ValueError` if it
    is not one of Qwen's."""

    def __init__(
        self, tokenizer: "PreTrainedTokenizerFast", end_id: int, *, lean: bool = False
    ) -> None:
        self._tokenizer = tokenizer
        self._tools: list[Any] = schemas(lean=lean)
        self._form: CallForm = "json"  # until the template is checked
        self.end_id = end_id
        self._end = str(tokenizer.decode([end_id]))
        self._check()
        self._form = call_form(tokenizer)

    def begin(self, messages: Sequence[ChatMessage]) -> Transcript:
        return Transcript(self.ids_of(self._render(messages)))

    def turn(self, message: ChatMessage) -> list[int]:
        """Return the tokens that the model would sample for this message, with the end token."""
        [written] = render_calls([message], self._form)
        return [*self.ids_of(str(written["content"] or "")), self.end_id]

    def text_of(self, ids: Sequence[int]) -> str:
        end = ids.index(self.end_id) if self.end_id in ids else len(ids)
        return str(self._tokenizer.decode(list(ids[:end])))

    def between(self, observations: Sequence[ChatMessage], *, cut: bool = False) -> list[int]:
        """Return the tokens between two turns, after the end token that a `cut` turn lacks."""
        marker = uuid.uuid4().hex
        reply: ChatMessage = {"role": "assistant", "content": marker}
        rendered = self._render([_PROBE, reply, *observations])
        after = rendered.partition(marker)[2].removeprefix(self._end)
        return [self.end_id] * cut + self.ids_of(after)

    def _render(self, messages: Sequence[ChatMessage]) -> str:
        options: dict[str, Any] = {"add_generation_prompt": True, "tokenize": False, **NOT_THINKING}
        written = render_calls(messages, self._form)
        return str(self._tokenizer.apply_chat_template(written, tools=self._tools, **options))

    def ids_of(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def _check(self) -> None:
        tool: ChatMessage = {"role": "tool", "tool_call_id": "1", "content": "{}"}
        reply: ChatMessage = {"role": "assistant", "content": "said"}
        steps = [[_PROBE], [_PROBE, reply, tool], [_PROBE, reply, tool, reply, tool]]
        for earlier, later in itertools.pairwise(map(self._render, steps)):
            if not later.startswith(f"{earlier}said{self._end}"):
                fault = "the template rewrites earlier messages: it can't be trained turn by turn"
                raise UserError(f"{fault}; use another chat template")


class Turn(NamedTuple):
    """Tokens sampled after a prompt, any end token included; log-probabilities if known."""

    ids: list[int]
    logprobs: list[float] | None


# Called with an episode's index and its turn; returns the next prompt, or None at the end.
Follow = Callable[[int, Turn], list[int] | None]
# Generates turns from each prompt until its episode ends.
Generate = Callable[[list[list[int]], Follow], None]


def in_rounds(
    turns: Callable[[list[list[int]]], list[Turn]], prompts: Sequence[list[int]], follow: Follow
) -> None:
    """Generate with an engine that takes batches: one turn of every episode at a time."""
    going = dict(enumerate(prompts))
    while going:
        pairs = zip(tuple(going), turns(list(going.values())), strict=True)
        after = [(place, follow(place, turn)) for place, turn in pairs]
        going = {place: ids for place, ids in after if ids is not None}


def side_by_side(
    turn: Callable[[int, list[int]], Turn], prompts: Sequence[list[int]], follow: Follow, *,
    slots: int,
) -> None:  # fmt: skip
    """Generate with an engine that takes requests: `slots` episodes run independently."""
    stop, lock = threading.Event(), threading.Lock()

    def play(place: int, ids: list[int] | None) -> None:
        try:
            while ids is not None and not stop.is_set():
                sampled = turn(place, ids)
                with lock:
                    ids = follow(place, sampled)
        except BaseException:
            stop.set()
            raise

    with ThreadPoolExecutor(slots) as pool:
        try:
            list(pool.map(play, range(len(prompts)), prompts))
        finally:
            stop.set()


class Rollout(NamedTuple):
    """An episode that has ended, and its tokens."""

    episode: Episode
    transcript: Transcript


def roll_out(
    episodes: Sequence[Episode], tokens: ChatTokens, generate: Generate, form: EpisodeForm
) -> list[Rollout]:
    """Run all `episodes` to their ends, and return the rollouts in order."""
    rollouts = [Rollout(each, tokens.begin(each.messages)) for each in episodes]
    for episode, transcript in rollouts:
        if len(transcript.ids) + form.turn_tokens > form.episode_tokens:
            episode.cut_off()
    going = [each for each in rollouts if not each.episode.done]
    # Room for two more turns and, between them, the note that replaces overlong observations.
    spare = 2 * form.turn_tokens + len(tokens.between([_LAST], cut=True))

    def follow(place: int, turn: Turn) -> list[int] | None:
        episode, transcript = going[place]
        episode.count_tokens(len(transcript.ids), len(turn.ids))
        transcript.add(turn.ids, sampled=True, logprobs=turn.logprobs)
        observations = episode.step(parse_reply(tokens.text_of(turn.ids), episode.rubric.turns))
        if not episode.done:
            cut = not turn.ids or turn.ids[-1] != tokens.end_id  # stopped by `turn_tokens`
            room = form.episode_tokens - len(transcript.ids)
            context = tokens.between(observations, cut=cut)
            if len(context) + spare > room:
                context = tokens.between(episode.last_turn(keep=True), cut=cut)  # a note added
            if len(context) + form.turn_tokens > room:
                context = tokens.between(episode.last_turn(keep=False), cut=cut)  # an error instead
            if len(context) + form.turn_tokens > room:  # several calls in a full turn
                episode.cut_off()
            else:
                transcript.add(context, sampled=False)
        return None if episode.done else transcript.ids

    generate([each.transcript.ids for each in going], follow)
    return rollouts
