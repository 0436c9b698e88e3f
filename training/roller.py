"""The rollouts of a step: groups of episodes, scored, in the form that TRL trains on.

Groups without spread are replaced before that. Where several processes train, each rolls out
its own groups, and all know what all have earned. Knows nothing of optimizers and validations.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from art_e.question import Question
from evals.scored import Scored
from training.engine import Dispatch
from training.groups import Curriculum, complete, is_flat
from training.judging import Judges
from training.material import Material
from training.memory import gpu_memory_used
from training.processes import Processes
from training.progress import mean_of
from training.reward import malformed_calls
from training.rollout import Limits, Rollout, roll_out
from training.run import TrainingRun
from training.scoring import Scorer, reward_in
from training.tables import Grpo
from training.tokens import Tokens

# A group: its rollouts with what was made of them.
Group = list[tuple[Rollout, Scored]]
# With a larger share of a step's episodes unjudged, the run pauses: a judge that is down costs
# rollouts that nothing is learnt from.
MOST_UNJUDGED = 0.1


class Roller:
    """Rolls out a step's groups for TRL, scores them, and replaces those without spread."""

    def __init__(
        self,
        training: TrainingRun,
        table: Grpo,
        tokens: Tokens,
        material: Material,
        judges: Judges,
        processes: Processes,
    ) -> None:
        recipe = training.setting.recipe
        self._training = training
        self._table = table
        self._form = recipe.episode
        self._tokens = tokens
        self._material = material
        self._judges = judges
        self._processes = processes
        self._scorer = Scorer(judges.reward, recipe.reward, training.run.id, recipe.name)
        self._by_id = {each.id: each for each in material.questions}
        self.curriculum = Curriculum(material.questions, training.setting.seed)
        self.figures: dict[str, Any] = {}
        self.outage: str | None = None
        # By all processes, from the run's begin on.
        self.generated = training.tokens

    def __call__(
        self, rows: Sequence[Mapping[str, Any]], step: int, dispatch: Dispatch
    ) -> dict[str, Any]:
        """The rollouts of this process's `rows` for that step, in the form that TRL wants of a
        `rollout_func`. A question comes as many times in a row as a group has members."""
        asked = [self._by_id[row["question_id"]] for row in rows[:: self._table.rollouts]]
        with dispatch.awake():
            groups, resampled = self._with_spread(asked, dispatch, step)
            # vLLM in the process has its keys and values now.
            self._training.note_memory(gpu_memory_used())
        members = [each for group in groups for each in group]
        scored = self._processes.gather([each for _, each in members])
        self._training.add_episodes(scored)
        self.outage = outage(scored)
        flat = self._processes.gather([_flat(group) for group in groups])
        self.figures = {
            **figures(scored),
            "groups": len(flat),
            "flat_groups": sum(flat),
            "resampled": resampled,
            "cost_usd": self._training.cost_before
            + sum(self._processes.gather([self._judges.cost_usd])),
        }
        return _for_trl(groups, self._tokens.end_id)

    def _with_spread(
        self, asked: Sequence[Question], dispatch: Dispatch, step: int
    ) -> tuple[list[Group], int]:
        """A group for each question, or for another in its place; how many were replaced, by
        all processes."""
        groups = self._roll(asked, dispatch, step)
        mine = range(self._processes.index * len(asked), (self._processes.index + 1) * len(asked))
        asked_by_all = self._processes.gather([each.id for each in asked])
        resampled = 0
        for _ in range(self._table.resample):
            flat = self._processes.gather([_flat(group) for group in groups])
            others = self._others([place for place, each in enumerate(flat) if each], asked_by_all)
            if not others:
                break
            own = [place for place in others if place in mine]
            rolled = self._roll([others[place] for place in own], dispatch, step)
            for place, group in zip(own, rolled, strict=True):
                groups[place - mine.start] = group
            for place, question in others.items():
                asked_by_all[place] = question.id
            resampled += len(others)
        return groups, resampled

    def _roll(self, asked: Sequence[Question], dispatch: Dispatch, step: int) -> list[Group]:
        """A group for each question; its rewards are noted, in all processes."""
        size = self._table.rollouts
        episodes = [self._material.episode(each, self._form) for each in asked for _ in range(size)]
        limits = Limits(self._form.turn_tokens, self._form.episode_tokens)
        rollouts = roll_out(episodes, self._tokens, dispatch, limits)
        groups = [rollouts[at : at + size] for at in range(0, len(rollouts), size)]

        async def score_all() -> list[list[Scored]]:
            scores = (
                self._scorer.score(
                    group,
                    {
                        "step": step,
                        "group": f"{step}/{question.id}",
                        "temperature": self._table.temperature,
                        "seed": self._training.setting.seed,
                    },
                )
                for question, group in zip(asked, groups, strict=True)
            )
            return await asyncio.gather(*scores)

        scored = asyncio.run(score_all())
        earned = [
            (question.id, [reward_in(each) for each in group])
            for question, group in zip(asked, scored, strict=True)
        ]
        for name, rewards in self._processes.gather(earned):
            self.curriculum.note(self._by_id[name], rewards)
        own = sum(sum(each.conversation.own) for each in rollouts)
        self.generated += sum(self._processes.gather([own]))
        return [list(zip(*pair, strict=True)) for pair in zip(groups, scored, strict=True)]

    def _others(self, flat: Sequence[int], asked: Sequence[str]) -> dict[int, Question]:
        """By its place among `asked`, the question to ask instead, as far as there are any."""
        besides = set(asked)
        others: dict[int, Question] = {}
        for place in flat:
            other = self.curriculum.replacement(besides)
            if other is None:
                break
            besides.add(other.id)
            others[place] = other
        return others


def figures(scored: Sequence[Scored]) -> dict[str, Any]:
    """The figures of `Step` that come from its episodes."""
    rewards = [each.trajectory.reward for each in scored if each.trajectory.reward is not None]
    facts = [each.trajectory.rubric for each in scored]
    names = sorted({name for each in rewards for name in each["components"]})
    return {
        "reward": mean_of([each["total"] for each in rewards]),
        "components": {
            name: fmean(each["components"].get(name, 0.0) for each in rewards) for name in names
        },
        "accuracy": mean_of([each.correct for each in scored if each.question.answerable]),
        "hallucination": mean_of([each.wrong for each in scored]),
        "abstention": mean_of([bool(each["abstained"]) for each in facts]),
        "turns": mean_of([each["turns"] for each in facts]),
        "effort": mean_of([each["effort"] for each in facts]),
        "format_errors": mean_of([malformed_calls(each) for each in facts]),
        "unjudged": len(scored) - len(rewards),
    }


def outage(scored: Sequence[Scored]) -> str | None:
    """Why to pause, in the words of the failing judge; None if few episodes are unjudged."""
    unjudged = [each for each in scored if each.unjudged]
    if len(unjudged) <= MOST_UNJUDGED * len(scored):
        return None
    reasons = Counter(verdict["reason"] for each in unjudged for verdict in each.verdicts[:1])
    [(words, _)] = reasons.most_common(1)
    return f"{len(unjudged)} of {len(scored)} episodes could not be judged ({words})"


def _flat(group: Group) -> bool:
    return is_flat([reward_in(scored) for _, scored in group])


def _for_trl(groups: Sequence[Group], end_id: int) -> dict[str, Any]:
    """What TRL takes.

    A group with an unjudged member is masked whole: it is in no sum of the loss. Abstentions need
    no judge, and would alone gain the advantage when it fails. A rollout whose prompt left no
    room for a turn becomes one masked end token, because TRL rejects empty completions.
    """
    conversations = [rollout.conversation for group in groups for rollout, _ in group]
    earned: list[float | None] = []
    for group in groups:
        rewards = complete([reward_in(scored) for _, scored in group])
        earned += [None] * len(group) if rewards is None else rewards
    said = [each.completion_ids or [end_id] for each in conversations]
    told = [each.logprobs for each in conversations]
    untold = any(each.logprobs is None and each.completion_ids for each in conversations)
    return {
        "prompt_ids": [each.prompt_ids for each in conversations],
        "completion_ids": said,
        "env_mask": [
            [int(own and reward is not None) for own in each.own] or [0]
            for each, reward in zip(conversations, earned, strict=True)
        ],
        "logprobs": None
        if untold
        else [each or [0.0] * len(ids) for each, ids in zip(told, said, strict=True)],
        "earned": earned,
    }
