"""What supervised training imitates: conversations as tokens, the model's own marked.

They come from the scripted expert, or from trajectories that runs have stored, of which those
are kept that earned the most (rejection sampling, best of a group). Knows nothing of trainers.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from art_e.agent import run_episode
from art_e.errors import UserError
from art_e.message import ChatMessage
from art_e.question import Question
from art_e.runs import find_run
from art_e.trajectory import read_trajectories
from training.expert import Expert, Noise
from training.material import Material
from training.recipe import EpisodeForm, Part
from training.tokens import Tokens

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
    if part == "answer":
        # What was called last, what that showed, and what was said then.
        shown = messages[own[-2] if len(own) > 1 else own[-1] : own[-1] + 1]
        return _marked([*asked, *shown], tokens, last_alone=True)
    return _marked(messages[: own[-1] + 1], tokens)


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
    played: dict[int, list[ChatMessage]] = {}

    async def play(place: int) -> None:
        question = questions[place]
        episode = material.episode(question, form)
        expert = Expert(
            episode,
            material.planted[question.id],
            Random(f"{seed}/{question.id}"),
            noise,
            leading_space=leading_space,
        )
        messages = (await run_episode(episode, expert, "expert")).messages
        # Where the gold never came up the expert knows that it must give up, and a model can't.
        if episode.rubric.found_gold is not False:
            played[place] = messages

    async def play_all() -> None:
        for place in order:
            await play(place)

    asyncio.run(play_all())
    return [played[place] for place in range(len(questions)) if place in played]


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
