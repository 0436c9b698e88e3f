"""What supervised training imitates: conversations as tokens, the model's own marked.

They come from the scripted expert, or from trajectories that runs have stored, of which those
are kept that earned the most (rejection sampling, best of a group). Knows nothing of trainers.
"""

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple

from art_e.agent import run_episode
from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.message import ChatMessage
from art_e.question import Question
from art_e.runs import find_run
from art_e.trajectory import read_trajectories
from data_pipeline.ingest.workers import spread
from data_pipeline.synthetic.plan import Planted
from training.expert import Expert, Noise
from training.material import Material
from training.recipe import EpisodeForm, Part
from training.rollout import Tokens

# ---- What supervised training imitates: conversations as tokens, the model's own marked.

# Questions that a process plays at a time; fewer in all are played before processes have started.
_AT_ONCE = 500
_WORTH_WORKERS = 1_000
# As the trainers of TRL and transformers mark what carries no loss.
NO_LOSS = -100


class Example(NamedTuple):
    """A conversation's tokens; `labels` are the same, `NO_LOSS` where the model said nothing.

    It ends with the model's last turn: what was answered to it is nothing to learn from.
    """

    input_ids: list[int]
    labels: list[int]


def example(messages: Sequence[ChatMessage], tokens: Tokens, part: Part = "whole") -> Example:
    """The conversation as tokens, or that part of it; see `training.recipe.Stage`."""
    own = [place for place, each in enumerate(messages) if each["role"] == "assistant"]
    asked = list(messages[: own[0]])
    if part == "first":
        return _marked([*asked, messages[own[0]]], tokens)
    if part in ("read", "answer"):
        # A turn that read, what that showed, and what was said then.
        reading = _reading(messages)
        place, following = reading[0] if part == "read" else reading[-1]
        return _marked([*asked, *messages[place : following + 1]], tokens, last_alone=True)
    return _marked(messages[: own[-1] + 1], tokens)


def has_part(messages: Sequence[ChatMessage], part: Part) -> bool:
    """Whether there is that part of the conversation to imitate."""
    if part == "read":
        return bool(_reading(messages))
    if part == "answer":
        last = max(place for place, each in enumerate(messages) if each["role"] == "assistant")
        return any(following == last for _, following in _reading(messages))
    return True


def _reading(messages: Sequence[ChatMessage]) -> list[tuple[int, int]]:
    """The places of the turns that read a mail, each with that of the turn after it."""
    own = [place for place, each in enumerate(messages) if each["role"] == "assistant"]
    return [
        (place, following)
        for place, following in itertools.pairwise(own)
        if any(
            call["function"]["name"] == "read_email"
            for call in messages[place].get("tool_calls") or ()
        )
    ]


def _marked(
    messages: Sequence[ChatMessage], tokens: Tokens, *, last_alone: bool = False
) -> Example:
    """The tokens, with the labels of what the model said, or with `last_alone` said last."""
    own = [place for place, each in enumerate(messages) if each["role"] == "assistant"]
    conversation = tokens.begin(messages[: own[0]])
    for place, following in zip(own, [*own[1:], None], strict=True):
        said = tokens.said(messages[place])
        if last_alone and following is not None:
            conversation.add_context(said)
        else:
            conversation.add_turn(said)
        if following is not None:
            conversation.add_context(tokens.between(messages[place + 1 : following]))
    labels = [NO_LOSS] * len(conversation.prompt_ids) + [
        token if own else NO_LOSS
        for token, own in zip(conversation.completion_ids, conversation.own, strict=True)
    ]
    return Example(conversation.ids, labels)


def expert_conversations(
    material: Material,
    questions: Sequence[Question],
    form: EpisodeForm,
    noise: Noise,
    seed: int,
    *,
    leading_space: bool,
) -> list[list[ChatMessage]]:
    """What the expert says about each question, in their order; `seed` decides how it errs.

    Questions whose mails its searches do not find are left out.

    Raises `UserError` for questions that no synthetic world has planted.
    """
    if not material.planted:
        raise UserError(
            "the expert knows synthetic questions only; train on trajectories of another model:"
            " --set 'sft.trajectories=[\"RUN\"]'"
        )

    # Inbox by inbox: few can be held open, and opening one takes as long as some episodes.
    order = sorted(range(len(questions)), key=lambda place: questions[place].inbox_address)
    size = _AT_ONCE if len(order) > _WORTH_WORKERS else len(order)
    parts = [order[at : at + size] for at in range(0, len(order), size)]
    performances = (
        _Performance(
            material.inbox_file.path,
            tuple(material.planted[questions[place].id] for place in part),
            form,
            noise,
            seed,
            leading_space,
        )
        for part in parts
    )
    if len(parts) > 1:
        done = [messages for _, messages in spread(_perform, performances)]
    else:
        done = [_perform(each) for each in performances]
    played = dict(zip(itertools.chain(*parts), itertools.chain(*done), strict=True))
    return [each for place in range(len(questions)) if (each := played[place]) is not None]


@dataclass(frozen=True, slots=True)
class _Performance:
    """Questions for the expert to answer, with all that a process of its own needs for it."""

    file: Path
    asked: tuple[Planted, ...]
    form: EpisodeForm
    noise: Noise
    seed: int
    leading_space: bool


def _perform(told: _Performance) -> list[list[ChatMessage] | None]:
    """What the expert says about each question; None where it did not find the gold mails."""
    questions = [each.question for each in told.asked]
    material = Material(InboxFile(told.file), questions, {})

    async def play(planted: Planted) -> list[ChatMessage] | None:
        episode = material.episode(planted.question, told.form)
        rng = Random(f"{told.seed}/{planted.question.id}")
        expert = Expert(episode, planted, rng, told.noise, leading_space=told.leading_space)
        messages = (await run_episode(episode, expert, "expert")).messages
        # Where the gold never came up the expert knows that it must give up, and a model can't.
        return None if episode.rubric.found_gold is False else messages

    async def play_all() -> list[list[ChatMessage] | None]:
        return [await play(each) for each in told.asked]

    return asyncio.run(play_all())


def stored_conversations(
    runs: Sequence[str], parent: Path, *, least_reward: float
) -> list[list[ChatMessage]]:
    """The best trajectory of each question in the runs, where it earned `least_reward` or more.

    Raises `UserError` where no trajectory has a reward.
    """
    groups: defaultdict[str, list[tuple[float, list[ChatMessage]]]] = defaultdict(list)
    for name in runs:
        for each in read_trajectories(find_run(name, parent).trajectories):
            if each.reward is not None:
                groups[each.question_id].append((each.reward["total"], each.messages))
    if not groups:
        raise UserError(f"{', '.join(runs)}: no trajectory has a reward; name a run of GRPO")
    best = [max(group, key=lambda each: each[0]) for group in groups.values()]
    return [messages for reward, messages in best if reward >= least_reward]
