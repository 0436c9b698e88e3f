"""Rollouts: many episodes at once, driven by an engine that takes and gives tokens.

Each round generates one turn of every episode that goes on. A turn has at most `turn`
tokens, an episode at most `episode`, observations included; one that has no room for another
turn is out of turns.
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
