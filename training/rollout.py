"""Rollouts: many episodes at once, driven by an engine that takes and gives tokens.

Each round generates one turn of every episode that goes on. A turn has at most `turn`
tokens, an episode at most `episode`; one that has no room for another turn is out of turns.
An episode stops at its last turn exactly: nothing is generated or put behind it. The same
`Episode` as everywhere runs the tools and writes the facts. Knows nothing of rewards, groups
and of who generates.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from art_e.episode import Episode
from art_e.policies.qwen_calls import parse_reply
from training.tokens import Conversation, Tokens


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
    going = [each for each in rollouts if _has_room(each, limits)]
    while going:
        turns = generate([each.conversation.ids for each in going])
        for rollout, turn in zip(going, turns, strict=True):
            _take(rollout, turn, tokens)
        going = [each for each in going if not each.episode.done and _has_room(each, limits)]
    return rollouts


def _take(rollout: Rollout, turn: Turn, tokens: Tokens) -> None:
    episode, conversation = rollout.episode, rollout.conversation
    prompt = len(conversation.prompt_ids) + len(conversation.completion_ids)
    conversation.add_turn(turn.ids, turn.logprobs)
    episode.count_tokens(prompt, len(turn.ids))
    message = parse_reply(tokens.text_of(turn.ids), episode.rubric.turns)
    observations = episode.step(message)
    if not episode.done:
        cut = not turn.ids or turn.ids[-1] != tokens.end_id
        conversation.add_context(tokens.between(observations, cut=cut))


def _has_room(rollout: Rollout, limits: Limits) -> bool:
    """Whether another turn fits; an episode for which none does is out of turns."""
    conversation = rollout.conversation
    used = len(conversation.prompt_ids) + len(conversation.completion_ids)
    if used + limits.turn <= limits.episode:
        return True
    rollout.episode.cut_off()
    return False
